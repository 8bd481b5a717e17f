"""From the arguments of a release to budgets, and from budgets to noised sums: what `dpjax.release.release` is made
of. What stands here never imports JAX, as the release path as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpjax import _release_file as _file
from dpjax._budget import checked_share, spent_together, split
from dpjax._checks import check_choice, check_number, shown
from dpjax._quantile import PrivateQuantile
from dpjax.errors import InputError
from dpjax.family_statistics import FamilyStatistic
from dpjax.statistics import MOMENTS_SHARE, Statistic


@dataclass(frozen=True)
class Part:
    """Sums that are released together with noise of one scale.

    statistic: what is summed; epsilon, delta: its budget before, and what was spent after the noise was drawn;
    sensitivity: of the computed sum, in the norm of the mechanism.
    """

    statistic: Statistic
    epsilon: float
    delta: float
    sensitivity: float


def parts_of(
    statistic: Statistic, mechanism: str, epsilon: float, delta: float, share: float | None, records: int
) -> list[Part]:
    """The parts of a statistic, each with its budget and sensitivity; it is checked that each can be given noise.

    Args:
        share: of epsilon and delta that the second part gets, None where there is one part.

    Raises:
        InputError: noise beyond the range of a float.
    """
    from dpjax._noise import noise_scale  # it loads SciPy

    budgets = [(epsilon, delta)]
    if share is not None:
        deltas = split(delta, share, "moments_share") if delta else (delta, delta)
        budgets = list(zip(split(epsilon, share, "moments_share"), deltas, strict=True))
    parts = [
        Part(one, *budget, _summed_sensitivity(one, _file.MECHANISMS[mechanism], records))
        for one, budget in zip(statistic.parts, budgets, strict=True)
    ]
    for part in parts:
        noise_scale(mechanism, part.sensitivity, part.epsilon, part.delta)
    return parts


def draw(mechanism: str, exact: np.ndarray, parts: Sequence[Part]) -> tuple[list[float], Any, list[Part]]:
    """Noise on every part of a vector of sums.

    Returns:
        noised values; noise scale, one number, or by entry if there are several parts; the parts with the epsilon
        that was spent.
    """
    from dpjax._noise import add_noise

    noised: list[float] = []
    scales: dict[str, float] = {}
    spent = []
    for part in parts:
        names = part.statistic.names
        values = exact[len(noised) : len(noised) + len(names)]
        drawn, scale, epsilon = add_noise(mechanism, values, part.sensitivity, part.epsilon, part.delta)
        noised += drawn.tolist()
        scales |= dict.fromkeys(names, scale)
        spent.append(Part(part.statistic, epsilon, part.delta, part.sensitivity))
    return noised, scales if len(parts) > 1 else scale, spent


def total_spent(parts: Sequence[Part]) -> tuple[float, float]:
    """epsilon and delta of the parts together, by basic composition, rounded up."""
    first, *more = parts
    epsilon, delta = first.epsilon, first.delta
    for part in more:
        epsilon, delta = spent_together(epsilon, part.epsilon), spent_together(delta, part.delta)
    return epsilon, delta


def _summed_sensitivity(statistic: Statistic, norm: str, records: int) -> float:
    """Sensitivity of the computed sum: with what the arithmetic can add, rounded up."""
    exact, allowance = statistic.sensitivity(norm), statistic.rounding_allowance(records)
    return math.nextafter(exact + allowance, math.inf) if allowance else exact


def checked_moments_share(moments: Any, share: Any) -> float | None:
    """The share of the budget that moments get; None without moments."""
    if not isinstance(moments, bool):
        raise InputError(f"moments must be True or False, got {shown(moments)}")
    if share is None:
        return MOMENTS_SHARE if moments else None
    number = checked_share(share, "moments_share")
    if not moments:
        raise InputError(f"moments_share is of use only with moments, got {shown(share)}")
    return number


def check_definition(mechanism: Any, adjacency: Any, intercept: Any) -> None:
    check_choice("mechanism", mechanism, tuple(_file.MECHANISMS))
    if adjacency == "add-remove":
        raise InputError(_file.NO_ADD_REMOVE)
    if adjacency != _file.ADJACENCY:
        raise InputError(f"adjacency must be {_file.ADJACENCY!r}, got {shown(adjacency)}")
    if not isinstance(intercept, bool):
        raise InputError(f"intercept must be True or False, got {shown(intercept)}")


def checked_delta(mechanism: str, delta: Any) -> float:
    """delta of Gaussian noise, which has no default; 0 of the others."""
    if mechanism != "gaussian":
        if delta is not None:
            raise InputError(f"delta has no place in a release with {mechanism} noise; got {shown(delta)}")
        return 0.0
    if delta is None:
        raise InputError("delta is missing: gaussian noise needs one, inside (0, 1)")
    number = check_number(delta, "delta must lie inside (0, 1)")
    if not 0 < number < 1:
        raise InputError(f"delta must lie inside (0, 1), got {shown(delta)}")
    return number


def public_bounds(bounds: Any) -> tuple[Any, PrivateQuantile | None]:
    """The bounds, with the public range in the place of private ones, and the search for those."""
    if isinstance(bounds, PrivateQuantile):
        return bounds.range, bounds
    if not isinstance(bounds, Mapping):
        return bounds, None
    private = {name: value for name, value in bounds.items() if isinstance(value, PrivateQuantile)}
    if not private:
        return bounds, None
    if len(bounds) > 1:
        raise InputError("private bounds are for a family's one column: give no other bounds beside them")
    (name, search), *_ = private.items()
    return {name: search.range}, search


def grid_of(statistic: Statistic) -> tuple[bool, bool]:
    """Whether private bounds of the statistic are whole numbers, and whether they are sought in log x."""
    if not isinstance(statistic, FamilyStatistic):
        raise InputError(f"private bounds are for families of one column, not for {statistic.kind}")
    return statistic.family.discrete, statistic.family.log
