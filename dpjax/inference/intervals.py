"""Central intervals of predictions."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from dpjax._base.checks import check_number, shown
from dpjax.errors import InputError

LEVEL = 0.9


class Intervals(NamedTuple):
    """Central intervals of one level: of y at each row, and of the line (the mean of y at the row's covariates).

    low, high, line_low, line_high: [R] in the target's units.
    """

    low: np.ndarray
    high: np.ndarray
    line_low: np.ndarray
    line_high: np.ndarray


def ends_of_intervals(line: np.ndarray, y: np.ndarray, levels: Sequence[float]) -> np.ndarray:
    """Ends of central intervals, [levels, 4, rows] in the order of `Intervals`; sorts line and y in place."""
    y.sort(axis=1)
    line.sort(axis=1)
    tails = [((1 - level) / 2, (1 + level) / 2) for level in levels]
    return np.array([[_sorted_quantile(values, q) for values in (y, line) for q in tail] for tail in tails])


def _sorted_quantile(values: np.ndarray, q: float) -> np.ndarray:
    """NumPy's default quantile of rows that are sorted: a whole sort is several times faster than its partitions."""
    place = q * (values.shape[1] - 1)
    below = int(place)
    above = min(below + 1, values.shape[1] - 1)
    return values[:, below] + (place - below) * (values[:, above] - values[:, below])


def check_levels(level: Any) -> tuple[float, ...]:
    several = list(level) if isinstance(level, Sequence | np.ndarray) and not isinstance(level, str) else [level]
    if not several:
        raise InputError("level must be a number inside (0, 1), or several; got none")
    levels = tuple(check_number(one, "level must be a number inside (0, 1)") for one in several)
    for one in levels:
        if not 0 < one < 1:
            raise InputError(f"level must be a number inside (0, 1), got {shown(one)}")
    if len(set(levels)) < len(levels):
        raise InputError(f"level names a value twice: {shown(list(levels))}")
    return levels


def per_cent(level: float) -> str:
    """.9 -> "90", .975 -> "97.5": different levels have different texts."""
    return format((Decimal(repr(level)) * 100).normalize(), "f")
