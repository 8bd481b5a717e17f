"""Bounds found in the private table itself, at a price: differentially private quantiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpjax._base.checks import check_number, check_pair, shown
from dpjax._base.signatures import no_field_check
from dpjax.errors import InputError

_STEPS = 1024  # of the grid of candidates


@no_field_check
@dataclass(frozen=True)
class PrivateQuantile:
    """Bounds of a family's column to be found privately, in place of (a, b) in `dpjax.release`.

    Each of two quantiles is chosen from a grid over a public range by its rank error (Smith 2011,
    "Privacy-preserving statistical estimation with optimal convergence rates"). OpenDP's `make_private_quantile`
    draws it: by adding exponential noise to the scores it samples the permute-and-flip mechanism, which has the
    guarantee of Smith's exponential mechanism and never a larger expected rank error (McKenna and Sheldon 2020).

    Args:
        range: (lo, hi) in the column's units, within which the bounds are sought; public, stated a priori. Where
            share * epsilon * records is below a few hundred, a range much wider than the records gives bounds that are
            too wide.
        share: of the release's epsilon, inside (0, 1); each quantile spends half of it.
        quantiles: probabilities of the lower and the upper bound.

    Raises:
        InputError: any of these does not fit.
    """

    range: tuple[float, float]
    share: float
    quantiles: tuple[float, float] = (0.025, 0.975)

    def __post_init__(self) -> None:
        object.__setattr__(self, "range", check_pair(self.range, "range of the private bounds"))
        wanted = "share of the private bounds must lie inside (0, 1)"
        share = check_number(self.share, wanted)
        if not 0 < share < 1:
            raise InputError(f"{wanted}, got {shown(self.share)}")
        object.__setattr__(self, "share", share)
        pair = check_pair(self.quantiles, "quantiles of the private bounds")
        if not 0 <= pair[0] < pair[1] <= 1:
            raise InputError(f"quantiles of the private bounds must lie in [0, 1], got {shown(self.quantiles)}")
        object.__setattr__(self, "quantiles", pair)

    def candidates(self, whole: bool = False, log: bool = False) -> list[float]:
        """The grid of possible bounds, ascending, ends of the range included.

        Args:
            whole: whole numbers only.
            log: equally spaced in log x, not in x.

        Raises:
            InputError: the range has no whole ends, or is too narrow for a grid.
        """
        lo, hi = self.range
        if whole:
            if not (lo.is_integer() and hi.is_integer()):
                raise InputError(f"range of the private bounds must be whole numbers for counts, got {self.range!r}")
            grid = np.append(np.arange(lo, hi, math.ceil((hi - lo) / _STEPS)), hi)
        else:
            grid = (np.geomspace if log else np.linspace)(lo, hi, _STEPS + 1)
            grid[0], grid[-1] = lo, hi
        places = [math.log(value) for value in grid] if log else grid  # also any two neighbours must do as bounds
        if not (np.diff(places) > 0).all():
            raise InputError(f"range of the private bounds is too narrow, got {self.range!r}")
        return grid.tolist()


def find_bounds(
    values: np.ndarray, candidates: Sequence[float], quantiles: tuple[float, float], epsilon: float
) -> tuple[tuple[float, float], float]:
    """Draw two private quantiles.

    Args:
        values: [n] finite numbers, n public. Private. They are moved into the range of the grid first.
        candidates: ascending grid.
        quantiles: two probabilities.
        epsilon: for both together, finite, > 0.

    Returns:
        (a, b) with a < b, both from the grid: where the two quantiles coincide or are out of order, they are sorted
        and widened to the neighbours. And the epsilon of OpenDP's maps, at most the target.

    Raises:
        InputError: an epsilon that cannot be met in floating point.
        MissingExtraError: OpenDP is not installed.
    """
    drawn, spent = [], 0.0
    inside = np.clip(values, candidates[0], candidates[-1]).tolist()
    for alpha in quantiles:
        measurement, cost = quantile_measurement(len(values), candidates, alpha, epsilon / 2)
        drawn.append(measurement(inside))
        spent += cost
    places = np.searchsorted(np.asarray(candidates), drawn)
    low, high = int(places.min()), int(places.max())
    if low == high:
        low, high = max(low - 1, 0), min(high + 1, len(candidates) - 1)
    return (candidates[low], candidates[high]), spent


def quantile_measurement(records: int, candidates: Sequence[float], alpha: float, epsilon: float) -> tuple[Any, float]:
    """OpenDP's private quantile of a table of known size, and the epsilon of its map, at most `epsilon`."""
    from dpjax.privacy.opendp_noise import opendp, refused, smallest_scale

    dp = opendp()
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=records)
    make = lambda scale: dp.m.make_private_quantile(
        domain, dp.symmetric_distance(), dp.max_divergence(), list(candidates), alpha, scale
    )
    replaced = 2  # in symmetric distance: one record out, one in
    with refused(f"share of the private bounds leaves each of them epsilon = {epsilon!r}"):
        measurement, _, spent = smallest_scale(make, replaced, make(1.0).map(replaced) / epsilon, epsilon)
    return measurement, spent
