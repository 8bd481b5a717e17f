"""Truncated moments of exponential families to 40 digits and more by mpmath: closed forms and sums, no JAX.

Raw moments of v over a region are incomplete gamma functions (exponential, gamma), integrals of z^k phi(z) by parts
(normal) or sums over counts (Poisson, geometric); central moments follow by differences, so much precision is carried.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import mpmath as mp
import numpy as np

#: Digits carried: narrow regions lose six powers of their width, tails their mass.
DIGITS = 160


class Truth(NamedTuple):
    """One region: log masses below it, in it, above it; mean [S], covariance [S, S] and third central moments."""

    log_below: float
    log_mass: float
    log_above: float
    mean: np.ndarray
    covariance: np.ndarray
    third: np.ndarray


def _gamma_masses(shape, rate, low, high):
    """Below, inside, above."""
    regularized = lambda a, b: mp.gammainc(shape, rate * a, rate * b, regularized=True)
    return regularized(0, low), regularized(low, high), regularized(high, mp.inf)


def _gamma_moment(shape, rate, low, high, k):
    return mp.gammainc(shape + k, rate * low, rate * high) / mp.gamma(shape) / rate**k


def _normal_masses(mean, variance, low, high):
    upper = lambda v: mp.erfc((v - mean) / mp.sqrt(2 * variance)) / 2
    lower = lambda v: mp.erfc((mean - v) / mp.sqrt(2 * variance)) / 2
    return lower(low), upper(low) - upper(high), upper(high)


def _normal_moment(mean, variance, low, high, k):
    """E v^k 1[low <= v <= high]: I_k = mean I_{k-1} + variance ((k-1) I_{k-2} - [v^(k-1) density])."""
    density = lambda v: mp.npdf(v, mean, mp.sqrt(variance))
    previous, current = mp.mpf(0), _normal_masses(mean, variance, low, high)[1]
    for j in range(1, k + 1):
        ends = high ** (j - 1) * density(high) - low ** (j - 1) * density(low)
        previous, current = current, mean * current + variance * ((j - 1) * previous - ends)
    return current


def _poisson_masses(rate, low, high):
    """Below and above; inside comes from the sum, which is no difference."""
    # P(X >= k) = P(k, rate), the lower incomplete gamma function
    upper = lambda k: mp.gammainc(k, 0, rate, regularized=True) if k > 0 else mp.mpf(1)
    lower = lambda k: mp.gammainc(k, rate, mp.inf, regularized=True) if k > 0 else mp.mpf(0)
    return lower(low), None, upper(high + 1)


def _geometric_masses(p, low, high):
    q = 1 - p
    return 1 - q**low, None, q ** (high + 1)


def _counts(log_probability, low, high):
    """Probabilities from low to high, as far as they matter, and the counts."""
    peak = max(log_probability(k) for k in (low, high))
    for k in np.unique(np.linspace(float(low), float(high), 2001).round()):
        peak = max(peak, log_probability(mp.mpf(float(k))))
    values, k = [], low
    while k <= high:
        log_p = log_probability(k)
        if log_p > peak - 110:
            values.append((k, mp.exp(log_p)))
        elif values:
            break
        k += 1
    return values


def truth(kind: str, theta, low: float, high: float, shape: float = 1.0) -> Truth:
    """Masses and moments of t for a family of `dpjax.families` at its reported parameters.

    Args:
        kind: name of the family; theta: reported parameters.
        low, high: closed region of v, finite; whole numbers for counts.
        shape: the known shape of a gamma distribution.
    """
    with mp.workdps(DIGITS):
        theta = [mp.mpf(float(x)) for x in theta]
        low, high, shape = mp.mpf(float(low)), mp.mpf(float(high)), mp.mpf(float(shape))
        powers = (1, 2) if kind in ("normal", "log-normal") else (1,)
        if kind in ("normal", "log-normal"):
            masses, moment = _normal_masses(*theta, low, high), lambda k: _normal_moment(*theta, low, high, k)
        elif kind in ("gamma", "exponential"):
            masses = _gamma_masses(shape, *theta, low, high)
            moment = lambda k: _gamma_moment(shape, *theta, low, high, k)
        else:
            if kind == "poisson":
                rate = theta[0]
                masses = _poisson_masses(rate, low, high)
                log_probability = lambda k: k * mp.log(rate) - rate - mp.loggamma(k + 1)
            else:
                masses = _geometric_masses(theta[0], low, high)
                log_probability = lambda k: mp.log(theta[0]) + k * mp.log1p(-theta[0])
            with mp.workdps(40):
                counts = _counts(log_probability, low, high)
            moment = lambda k: sum(p * v**k for v, p in counts)
            masses = (masses[0], moment(0), masses[2])  # no difference of tails
        total = moment(0)
        raw = [moment(k) / total for k in range(3 * max(powers) + 1)]
        return Truth(*(float(mp.log(m)) if m > 0 else -np.inf for m in masses), *_central(raw, powers))


def _central(raw, powers):
    size = range(len(powers))
    mean = np.array([float(raw[p]) for p in powers])
    e = lambda *which: raw[sum(powers[i] for i in which)]
    covariance = np.array([[float(e(i, j) - e(i) * e(j)) for j in size] for i in size])
    third = np.zeros((len(powers),) * 3)
    for i, j, k in product(size, repeat=3):
        central = e(i, j, k) - e(i) * e(j, k) - e(j) * e(i, k) - e(k) * e(i, j) + 2 * e(i) * e(j) * e(k)
        third[i, j, k] = float(central)
    return mean, covariance, third
