"""Whether ranks are uniform: distances, bands, coverage, adjusted p-values."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.stats import binom, uniform

from dpjax.errors import InputError, require

LEVELS = (0.5, 0.8, 0.9, 0.95)


KS_CRITICAL = 1.358  # times 1 / sqrt(trials): asymptotic 5% point of the Kolmogorov-Smirnov statistic


def ks_critical(trials: int) -> float:
    """5% critical value of the KS statistic, 1.358 / sqrt(trials) (docs/formulas.md#uniform-ranks)."""
    return KS_CRITICAL / float(np.sqrt(trials))


def coverage(fractions, levels: Sequence[float] = LEVELS) -> dict[str, np.ndarray]:
    """Share of trials whose central interval of each level holds the truth, {"0.95": [K], ...}."""
    distance = np.abs(np.asarray(fractions) - 0.5)
    return {f"{level:g}": (distance <= level / 2 + 1e-12).mean(axis=0) for level in levels}


def binomial_band(trials: int, level: float, probability: float = 0.999, family: int = 1):
    """Band that the coverage of a calibrated interval stays in, for `family` comparisons together.

    Args:
        trials: M.
        level: nominal coverage.
        probability: family-wise probability of staying inside (Bonferroni over `family`).
        family: number of comparisons.

    Returns:
        (lowest, highest) share of trials, both inside the band.
    """
    tail = (1 - probability) / (2 * max(family, 1))
    low, high = binom.ppf([tail, 1 - tail], trials, level)
    return float(low / trials), float(high / trials)


def holm(p_values) -> np.ndarray:
    """Holm's step-down adjusted p-values (1979), same shape; reject where at most the family-wise level.

    Raises:
        InputError: a value is not in [0, 1].
    """
    p = np.asarray(p_values, dtype=np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise InputError("p_values: numbers in [0, 1] are needed")
    flat = p.ravel()
    order = np.argsort(flat)
    stepped = np.maximum.accumulate(flat[order] * np.arange(flat.size, 0, -1)) if flat.size else flat
    adjusted = np.empty_like(flat)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted.reshape(p.shape)


@lru_cache(maxsize=64)
def ecdf_band(trials: int, probability: float = 0.95, points: int = 100):
    """Simultaneous band for the ECDF of `trials` uniform values, by ArviZ (both lines).

    Saeilynoja, Buerkner and Vehtari (2022), "Graphical test for discrete uniformity": the narrowest family of
    pointwise binomial bands that holds the whole curve with `probability` (ArviZ calibrates it with 2,000
    simulated curves, fixed seed).

    Returns:
        (x, low, high): `points` - 1 equally spaced inner points and the band of the ECDF there.
    """
    x = np.arange(1, points) / points
    rng = np.random.default_rng(0)
    arviz = require("arviz", "the simultaneous ECDF band")
    if int(arviz.__version__.split(".")[0]) < 1:
        old = require("arviz.stats.ecdf_utils", "the simultaneous ECDF band")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            low, high = old.ecdf_confidence_band(
                trials,
                x,
                x,
                prob=probability,
                method="simulated",
                rvs=uniform(0, 1).rvs,
                num_trials=2000,
                random_state=rng,
            )
    else:
        new = require("arviz_stats.ecdf_utils", "the simultaneous ECDF band")
        pointwise = new.simulate_confidence_bands(trials, 1, x, probability, 2000, rng)
        low, high = new.get_pointwise_confidence_band(pointwise, trials, x)
    return x, np.asarray(low), np.asarray(high)


def ecdf(values, x) -> np.ndarray:
    """Empirical distribution function of `values` [M] at points `x` [P], [P]."""
    return np.searchsorted(np.sort(np.asarray(values)), np.asarray(x), side="right") / len(values)
