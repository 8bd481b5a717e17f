"""The analytic Gaussian mechanism: exact (epsilon, delta) of Gaussian noise (Balle and Wang 2018, Theorem 8).

Adding N(0, sigma^2 I) to a vector of L2 sensitivity D is (epsilon, delta)-DP if and only if
`delta >= Phi(D/(2 sigma) - epsilon sigma/D) - exp(epsilon) Phi(-D/(2 sigma) - epsilon sigma/D)`.
"""

from __future__ import annotations

import math
from typing import Any

from scipy.optimize import brentq
from scipy.special import log_ndtr

from dpjax._checks import check_number
from dpjax.errors import InputError

_ALLOWED_ERROR = 1e-12  # relative; results are enlarged by it so that rounding never understates a guarantee
_CANCELLATION = 1e-14  # relative, over the gap between the two terms of delta, which cancel at tiny epsilon


def gaussian_delta(sigma: Any, sensitivity: Any, epsilon: Any) -> float:
    """Smallest delta for which noise of standard deviation sigma is (epsilon, delta)-DP.

    Args:
        sigma: standard deviation of the noise, > 0, in the units of the statistic.
        sensitivity: L2 sensitivity, > 0, same units.
        epsilon: at least 0.

    Returns:
        delta in [0, 1], to about 12 digits (not rounded up).
    """
    ratio = _positive(sensitivity, "sensitivity") / _positive(sigma, "sigma")
    return math.exp(_log_delta(ratio, _not_negative(epsilon)))


def gaussian_epsilon(sigma: Any, sensitivity: Any, delta: Any) -> float:
    """Smallest epsilon (rounded up by 1e-12 relative) for which the noise is (epsilon, delta)-DP.

    Args:
        sigma: standard deviation of the noise, > 0.
        sensitivity: L2 sensitivity, > 0.
        delta: inside (0, 1).

    Returns:
        epsilon, 0 where even epsilon = 0 holds.
    """
    ratio = _positive(sensitivity, "sensitivity") / _positive(sigma, "sigma")
    target = math.log(_probability(delta))
    if _log_delta(ratio, 0.0) <= target:
        return 0.0
    high = 1.0
    while _log_delta(ratio, high) > target:
        high *= 2.0
    root = brentq(lambda e: max(_log_delta(ratio, e), -1e4) - target, 0.0, high, xtol=1e-300, rtol=1e-14)
    return float(root) * (1.0 + _ALLOWED_ERROR)


def analytic_gaussian_sigma(sensitivity: Any, epsilon: Any, delta: Any) -> float:
    """Smallest standard deviation (rounded up) that is (epsilon, delta)-DP.

    Args:
        sensitivity: L2 sensitivity, > 0.
        epsilon: > 0.
        delta: inside (0, 1).

    Returns:
        sigma in the units of the sensitivity, 1e-12 relative above the root, more where
        the formula cancels (epsilon far below 1e-3) (SPEC H3: 3.7306316348 for sensitivity 1, epsilon 1,
        delta 1e-5).

    Raises:
        InputError: an argument outside its range.
    """
    size = _positive(sensitivity, "sensitivity")
    epsilon = _positive(epsilon, "epsilon")
    target = math.log(_probability(delta))
    low = high = 0.0  # log of sensitivity / sigma; delta grows with it
    while _log_delta(math.exp(low), epsilon) > target:
        low -= 1.0
    while _log_delta(math.exp(high), epsilon) < target:
        high += 1.0
    root = brentq(lambda t: max(_log_delta(math.exp(t), epsilon), -1e5) - target, low, high, xtol=1e-14, rtol=1e-14)
    ratio = math.exp(root)
    gap = -math.expm1(min(_terms(ratio, epsilon)[1] - _terms(ratio, epsilon)[0], -1e-300))
    return size / ratio * (1.0 + _ALLOWED_ERROR + _CANCELLATION / gap)


def _terms(ratio: float, epsilon: float) -> tuple[float, float]:
    """Logs of the two terms of delta."""
    upper = float(log_ndtr(ratio / 2 - epsilon / ratio))
    return upper, epsilon + float(log_ndtr(-ratio / 2 - epsilon / ratio))


def _log_delta(ratio: float, epsilon: float) -> float:
    upper, lower = _terms(ratio, epsilon)
    if math.isinf(upper) or lower >= upper:
        return -math.inf
    return upper + math.log(-math.expm1(lower - upper))


def _positive(value: Any, name: str) -> float:
    number = check_number(value, f"{name} must be a finite number > 0")
    if not number > 0:
        raise InputError(f"{name} must be a finite number > 0, got {value!r}")
    return number


def _not_negative(value: Any) -> float:
    number = check_number(value, "epsilon must be a finite number of at least 0")
    if number < 0:
        raise InputError(f"epsilon must be a finite number of at least 0, got {value!r}")
    return number


def _probability(value: Any) -> float:
    number = check_number(value, "delta must lie inside (0, 1)")
    if not 0 < number < 1:
        raise InputError(f"delta must lie inside (0, 1), got {value!r}")
    return number
