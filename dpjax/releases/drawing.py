"""From a budget to parts that get noise, and from those to noised sums. What stands here never imports JAX, as the
release path as a whole.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpjax._base.checks import LARGEST_RELEASED, MOST_NOISE_UNITS, shown
from dpjax.errors import InputError
from dpjax.mechanisms import MECHANISMS
from dpjax.privacy.budget import budgets_of, spent_together
from dpjax.statistics.base import Statistic


@dataclass(frozen=True)
class Part:
    """Sums that are released together with noise of one scale.

    Args:
        statistic: what is summed.
        epsilon, delta: its budget before, and what was spent after the noise was drawn.
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
    budgets = budgets_of(epsilon, delta, share, "moments_share")
    parts = [
        Part(one, *budget, _summed_sensitivity(one, MECHANISMS[mechanism].norm, records))
        for one, budget in zip(statistic.parts, budgets, strict=True)
    ]
    for part in parts:
        scale_of(mechanism, part)
    return parts


def records_of(statistic: Statistic, rows: int) -> int:
    """Number of records that the sums are of, from that of the table's rows.

    Raises:
        InputError: records are averages of k rows, and k does not divide their number.
    """
    if rows % statistic.averaged:
        raise InputError(f"averaged must divide the number of records, which {statistic.averaged} does not")
    return rows // statistic.averaged


def check_whole_numbers(statistic: Statistic, mechanism: str) -> None:
    """Refuse noise for sums of whole numbers on others.

    Raises:
        InputError: the statistic has other sums.
    """
    if MECHANISMS[mechanism].integer and not statistic.integer:
        raise InputError(f"mechanism {mechanism!r} is for sums of whole numbers, which {statistic.kind} does not have")


def check_sizes(statistic: Statistic, mechanism: str, records: int) -> None:
    """Refuse sums that floats may be too small for, whatever the table holds: what is refused must not depend on it.

    Raises:
        InputError: bounds that are too wide for so many records.
    """
    if not statistic.largest_sum(records) <= LARGEST_RELEASED:
        bounds = statistic.column_bounds or statistic.norms
        raise InputError(
            f"bounds are too wide: the sums over the records may be at most {LARGEST_RELEASED:g} in size, noise comes"
            f" on top; got {shown(bounds)}"
        )
    # whole numbers are exact up to 2^53; noise, of a scale of at most 2^45, has the other half of that
    if MECHANISMS[mechanism].integer and not statistic.largest_sum(records) <= 2.0**52:
        raise InputError(f"{mechanism} noise needs sums of at most 2^52: the bounds are too wide for so many records")


def shuffled(columns: dict[str, np.ndarray], statistic: Statistic) -> dict[str, np.ndarray]:
    """The columns with their rows in a random order, where the statistic depends on it; else as they are.

    Rows that are averaged in groups need it: in a table that was exported in sorted order, one person with another key
    moves all rows between the two places, and with them a record of every group. After a uniform permutation that
    depends on nothing in the table, two tables that differ in one record, wherever it stands, give sums whose laws are
    those of tables that differ in one row: the sensitivity of one group is enough, and the guarantee holds as stated.
    """
    if statistic.averaged == 1:
        return columns
    order = _permutation(len(columns[statistic.variables[0]]))
    return {name: column[order] for name, column in columns.items()}


def _permutation(size: int) -> np.ndarray:
    """A uniform permutation of 0 .. size - 1 from the operating system's randomness."""
    while True:
        keys = np.frombuffer(os.urandom(16 * size), np.uint64).reshape(2, size)
        order = np.lexsort(keys)
        sorted_keys = keys[:, order]
        if not (sorted_keys[:, 1:] == sorted_keys[:, :-1]).all(axis=0).any():  # uniform given that no two are equal
            return order


def exact_sums(statistic: Statistic, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Sums of the table, silently: whether NumPy warns would depend on its values."""
    with np.errstate(all="ignore"):
        return statistic.from_columns(columns)


def check_noise_units(parts: Sequence[Part], mechanism: str, records: int) -> None:
    """Refuse noise beside which the sums are too large to be computed with, by public numbers only: nobody could fit
    the release.

    Raises:
        InputError: there is a part of so little noise.
    """
    for part in parts:
        scale = scale_of(mechanism, part)
        if records * max(1.0, part.statistic.largest_entry) / scale > MOST_NOISE_UNITS:
            raise InputError(
                f"epsilon = {part.epsilon!r} asks for noise of scale {scale:.3g}, beside which sums over {records}"
                f" records are too large to be fitted (above {MOST_NOISE_UNITS:g} noise scales)"
            )


def scale_of(mechanism: str, part: Part) -> float:
    """Noise scale of a part before OpenDP's rounding."""
    return MECHANISMS[mechanism].release_scale(part.sensitivity, part.epsilon, part.delta)


def check_quantile_budget(epsilon: float) -> None:
    """Refuse a budget of each private bound that floats are too small for, as OpenDP would.

    Raises:
        InputError: noise beyond the range of a float.
    """
    # the scale of its noise is 2 / epsilon: a record that is replaced moves two scores
    if epsilon == 0 or not math.isfinite(2 / epsilon):
        raise InputError(
            f"share of the private bounds leaves each of them epsilon = {epsilon!r}, which cannot be met in floating"
            " point"
        )


def draw(mechanism: str, exact: np.ndarray, parts: Sequence[Part]) -> tuple[list[float], Any, list[Part]]:
    """Noise on every part of a vector of sums.

    Returns:
        noised values; noise scale, one number, or by entry if there are several parts; the parts with the epsilon
        that was spent.
    """
    noised: list[float] = []
    scales: dict[str, float] = {}
    spent = []
    for part in parts:
        names = part.statistic.names
        values = exact[len(noised) : len(noised) + len(names)]
        drawn, scale, epsilon = MECHANISMS[mechanism].draw(values, part.sensitivity, part.epsilon, part.delta)
        noised += drawn.tolist()
        scales |= dict.fromkeys(names, scale)
        spent.append(Part(part.statistic, epsilon, part.delta, part.sensitivity))
    return noised, scales if len(parts) > 1 else scale, spent


def show_owner(
    raw: Mapping[str, np.ndarray],
    statistic: Statistic,
    reading: Any,
    searched: bool,
    report: bool | None,
    accept: bool,
):
    """Show the owner what the table looks like, and refuse one that looks wrong unless it is accepted.

    Raises:
        InputError: the table looks wrong.
    """
    from dpjax.releases.owner_report import OwnerReport

    if report is False and accept:
        return
    with np.errstate(all="ignore"):  # as of the sums
        counts = OwnerReport(raw, statistic, reading, searched)
    if report or (report is None and counts.remarkable):
        counts.show()
    if not accept:
        counts.refuse()


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
