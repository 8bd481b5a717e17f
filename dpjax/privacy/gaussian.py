"""The analytic Gaussian mechanism: exact (epsilon, delta) of Gaussian noise (Balle and Wang 2018, Theorem 8).

Adding N(0, sigma^2 I) to a vector of L2 sensitivity D is (epsilon, delta)-DP if and only if
`delta >= Phi(D/(2 sigma) - epsilon sigma/D) - exp(epsilon) Phi(-D/(2 sigma) - epsilon sigma/D)`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr

from dpjax._base.checks import check_number
from dpjax.errors import InputError
from dpjax.privacy.gaussian_proof import LARGEST_PROVED, is_private

_ALLOWED_ERROR = 1e-12  # relative; results are enlarged by it so that rounding never understates a guarantee
_NARROW = 0.05  # sensitivity / sigma below which the two terms of delta cancel and their difference is integrated
_FAR = 100.0  # where 1 - t M(t) is taken from its asymptotic series
_STEPS, _WEIGHTS = np.polynomial.legendre.leggauss(8)
#: Logarithms of sensitivity / sigma that are searched: beyond them sigma is no float, or the noise nothing.
_SMALLEST_RATIO, _LARGEST_RATIO = -700.0, 300.0


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
    if not math.log(ratio) < _LARGEST_RATIO:
        raise InputError(f"sigma must not be next to nothing beside the sensitivity, got {sigma!r}")
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
        sigma in the units of the sensitivity, 1e-12 relative above the root (docs/formulas.md#gaussian-scale:
        3.7306316348 for sensitivity 1, epsilon 1, delta 1e-5). Up to epsilon = 100 it is proved to be private
        (`dpjax.privacy.gaussian_proof`), and enlarged until it is; beyond that nothing cancels.

    Raises:
        InputError: an argument outside its range; noise beyond the range of a float.
    """
    size = _positive(sensitivity, "sensitivity")
    epsilon = _positive(epsilon, "epsilon")
    delta = _probability(delta)
    target = math.log(delta)
    low = high = 0.0  # log of sensitivity / sigma; delta grows with it
    while _log_delta(math.exp(low), epsilon) > target and low > _SMALLEST_RATIO:
        low -= 1.0
    while _log_delta(math.exp(high), epsilon) < target and high < _LARGEST_RATIO:
        high += 1.0
    if not _SMALLEST_RATIO < low <= high < _LARGEST_RATIO:
        raise InputError(f"epsilon = {epsilon!r} with delta = {delta!r} asks for noise beyond the range of a float")
    root = brentq(lambda t: max(_log_delta(math.exp(t), epsilon), -1e5) - target, low, high, xtol=1e-14, rtol=1e-14)
    exact, surplus = size / math.exp(root), _ALLOWED_ERROR
    while True:
        sigma = math.nextafter(exact * (1.0 + surplus), math.inf)
        # from here on the surplus doubles: what is proved in the end is the number that is returned
        if math.isinf(sigma):
            raise InputError(f"epsilon = {epsilon!r} with delta = {delta!r} asks for noise beyond the range of a float")
        if epsilon > LARGEST_PROVED or is_private(sigma, size, epsilon, delta):
            return sigma
        surplus *= 2.0


def _log_delta(ratio: float, epsilon: float) -> float:
    """log delta at ratio = sensitivity / sigma.

    With t = epsilon / ratio - ratio / 2, phi the normal density and M(t) = Phi(-t) / phi(t) Mills' ratio,
    delta = phi(t) (M(t) - M(t + ratio)), as exp(epsilon) phi(t + ratio) = phi(t). At small ratios the difference is the
    integral of -M' = 1 - t M(t) over [t, t + ratio], in which nothing cancels.
    """
    if ratio == 0:
        return -math.inf
    if ratio < _NARROW:
        t = epsilon / ratio - ratio / 2
        points = t + ratio / 2 * (_STEPS + 1)
        if not math.isfinite(t) or points[-1] > 1e100:
            return -math.inf
        near = np.minimum(points, _FAR)
        slopes = np.where(
            points < _FAR,
            1 - near * math.sqrt(math.pi / 2) * erfcx(near / math.sqrt(2)),
            (1 - 3 / np.maximum(points, _FAR) ** 2) / np.maximum(points, _FAR) ** 2,
        )
        mean = float(_WEIGHTS @ slopes) / 2
        return -t * t / 2 - math.log(2 * math.pi) / 2 + math.log(ratio) + math.log(mean)
    upper = float(log_ndtr(ratio / 2 - epsilon / ratio))
    lower = epsilon + float(log_ndtr(-ratio / 2 - epsilon / ratio))
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
