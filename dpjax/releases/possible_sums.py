"""How far released sums are from those of any table, in noise scales.

The sums of n records are n times a mean of what single records contribute. Of the set of such means we know convex
conditions that every table meets: the range of each entry; products of distances from bounds, (x - lo)(hi - y) >= 0
and so on, summed; matrices of moments, which have no negative eigenvalue. The distance of z from the set S of sums that
meet them is

    k = min over s in S of max over entries j of |z_j - s_j| / b_j,

b_j the noise scale: the true sums are in S, so the noise of some entry was at least k scales. With D entries that has
probability at most D times the tail of one (`Mechanism.tail`). k is computed from below (more conditions would only
raise it), so nothing is doubted without reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dpjax.mechanisms import MECHANISMS
from dpjax.releases.moment_conditions import Conditions, of_statistic

if TYPE_CHECKING:
    from dpjax.releases.release import Release

#: Sums are doubted when noise takes them so far from any table with less than this probability.
LEAST_PROBABILITY = 1e-6
#: Sums are given to so many digits: relative to the largest that an entry can be.
_ROUNDED = 1e-9
_CUTS = 30
_BEYOND = 1e6  # so many noise scales outside of the range of an entry leave nothing to compute


@dataclass(frozen=True)
class Misfit:
    """What no table gives: the distance k in noise scales, the probability (at most) of noise that does so, and what is
    wrong in words."""

    scales: float
    probability: float
    words: str


def doubts_about_sums(release: Release) -> list[str]:
    """A sentence where the released sums are those of no table, beyond what noise does; else nothing."""
    found = misfit(release)
    if found is None:
        return []
    bound = f"{1.05 * max(found.probability, 1e-300):.1e}"  # rounded up
    return [
        f"no table of {release.records} records has these sums: {found.words}. The nearest that a table can have are"
        f" {_count(found.scales)} noise scales away (noise does that with probability below {bound}): look at the"
        " number of records, the bounds, the noise scale, and the signs and units of the sums"
    ]


def _count(scales: float) -> str:
    return f"{scales:,.0f}" if 100 <= scales < 1e9 else f"{scales:.3g}"


def misfit(release: Release) -> Misfit | None:
    """The distance of a release's sums from those of any table; None where noise explains it."""
    z, scale, n = release.z, release.scale, float(release.records)
    statistic = release.statistic
    if statistic.categories is not None:
        return _of_counts(statistic.categories, z, scale, n, release.mechanism)
    limit = _limit(len(z), release.mechanism)
    with np.errstate(all="ignore"):
        conditions, units = of_statistic(statistic, z / n, scale / n)
        mean, width = z / n / units, scale / n / units + _ROUNDED
        if not np.isfinite([mean, width]).all() or conditions.met_within(mean, width, limit):
            return None
        far = _distance(conditions, mean, width, limit)
    if far < limit:
        return None
    beyond = np.maximum(mean - conditions.high, conditions.low - mean) / width
    j = int(np.argmax(beyond))
    words = "they contradict each other: squares and products are no moments of any records"
    if beyond[j] > far / 2:
        least, most = n * units[j] * conditions.low[j], n * units[j] * conditions.high[j]
        limits = f"from {least:.6g} to {most:.6g}" if np.isfinite(most) else f"at least {least:.6g}"
        words = f"{release.names[j]!r} is {z[j]:.6g}, which can only be {limits}"
    return Misfit(far, _tail(far, len(z), release.mechanism), words)


def _tail(scales: float, entries: int, mechanism: str) -> float:
    """Upper bound on the probability that the noise of any entry is so many scales or more."""
    return min(1.0, entries * MECHANISMS[mechanism].tail(scales))


@lru_cache(maxsize=64)
def _limit(entries: int, mechanism: str) -> float:
    """The distance from which on sums are doubted."""
    low, high = 0.0, 64.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _tail(middle, entries, mechanism) < LEAST_PROBABILITY else (middle, high)
    return high


def _distance(conditions: Conditions, mean: np.ndarray, width: np.ndarray, limit: float) -> float:
    """k from below: linear programs, with a plane added wherever a matrix of moments has a negative eigenvalue."""
    far = max(0.0, float(np.max(np.maximum(mean - conditions.high, conditions.low - mean) / width)))
    if far > _BEYOND or (not len(conditions.rows) and not conditions.matrices):
        return far
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, hstack, vstack

    size = len(mean)
    identity, ones = csr_array(np.eye(size)), csr_array(np.ones((size, 1)))
    near = vstack([hstack([identity, -ones]), hstack([-identity, -ones])])
    # unknown: (s - mean) / width of every entry, between -k and k, and k, the least that there is
    low, high = (conditions.low - mean) / width, (conditions.high - mean) / width
    ranges = [*zip(low, high, strict=True), (0, None)]
    rows, tops = conditions.rows, conditions.tops
    cuts = conditions.planes(mean)
    for _ in range(_CUTS):
        rows, tops = np.concatenate([rows, cuts]), np.concatenate([tops, np.zeros(len(cuts))])
        scaled = rows[:, :size] * width
        weight = np.abs(scaled).sum(axis=1)
        left = (tops - rows[:, size] - rows[:, :size] @ mean) / weight
        matrix = vstack([near, hstack([csr_array(scaled / weight[:, None]), csr_array((len(rows), 1))])])
        found = linprog(
            np.r_[np.zeros(size), 1.0], A_ub=matrix, b_ub=np.r_[np.zeros(2 * size), left], bounds=ranges, method="highs"
        )
        if found.status != 0:
            break
        before, far = far, max(far, float(found.fun))
        cuts = conditions.planes(mean + found.x[:size] * width)
        if not len(cuts) or (far > limit and far < before * 1.01):
            break
    return far


def _of_counts(categories: int, z: np.ndarray, scale: np.ndarray, n: float, mechanism: str) -> Misfit | None:
    """Counts from 0 to n that add up to n, or to at most n where one of them is not released."""
    whole = len(z) == categories
    width = scale + _ROUNDED * n

    def around(k: float) -> tuple[np.ndarray, np.ndarray]:
        return np.maximum(z - k * width, 0.0), np.minimum(z + k * width, n)

    def possible(k: float) -> bool:
        low, high = around(k)
        return bool((low <= high).all() and low.sum() <= n and (not whole or high.sum() >= n))

    low, high = 0.0, float((np.maximum(np.abs(z), np.abs(z - n)) / width).max())
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if possible(middle) else (middle, high)
    total, short = float(z.sum()), "" if whole else "at most "
    words = (
        f"{len(z)} counts from 0 to {n:.10g} that add up to {short}{n:.10g} are wanted, these add up to {total:.10g}"
    )
    probability = _tail(high, len(z), mechanism)
    if probability < LEAST_PROBABILITY:
        return Misfit(high, probability, words)
    excess = abs(total - n) if whole else max(total - n, 0.0)
    probability = 2 * _sum_tail(excess / float(width.max()), len(z), mechanism)
    return Misfit(high, probability, words) if probability < LEAST_PROBABILITY else None


def _sum_tail(scales: float, entries: int, mechanism: str) -> float:
    """Upper bound on the probability that the noise of all entries adds up to so many scales."""
    return 1.0 if scales <= 0 else MECHANISMS[mechanism].sum_tail(scales, entries)
