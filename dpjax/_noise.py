"""Noise of real releases, drawn by OpenDP from the operating system's randomness; there is no seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dpjax._gaussian import analytic_gaussian_sigma
from dpjax.errors import InputError, require

_NUDGES = 64
_LARGEST_DISCRETE_SCALE = 2.0**45


def add_laplace_noise(values: np.ndarray, sensitivity: float, epsilon: float) -> tuple[np.ndarray, float, float]:
    """Add Laplace noise to a vector so that OpenDP's privacy map gives at most epsilon.

    Args:
        values: [D] finite numbers, D public.
        sensitivity: L1 sensitivity of `values`, finite, > 0.
        epsilon: target, finite, > 0.

    Returns:
        noised values [D]; scale b; epsilon of OpenDP's map at this scale, at most the target.

    Raises:
        InputError: values that are not finite or not a vector (OpenDP takes them without a word: NaN becomes
            a number), or an epsilon whose noise is beyond the range of a float. The message holds no value.
        MissingExtraError: OpenDP is not installed.
    """
    _check_values(values)
    scale = noise_scale("laplace", sensitivity, epsilon)
    dp = opendp()
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=len(values))
    measurement, scale, spent = smallest_scale(
        lambda scale: dp.m.make_laplace(domain, dp.l1_distance(T=float), scale), sensitivity, scale, epsilon
    )
    return _noised(measurement, values.tolist(), epsilon), scale, spent


def add_discrete_laplace_noise(
    values: np.ndarray, sensitivity: float, epsilon: float
) -> tuple[np.ndarray, float, float]:
    """Add whole-numbered noise, P(k) proportional to exp(-|k| / scale), to a vector of whole numbers.

    Args, Returns, Raises: as `add_laplace_noise`; values and sensitivity are whole numbers below 2^53.
    """
    _check_values(values)
    if not ((values == np.round(values)).all() and (np.abs(values) < 2**53).all()):
        raise InputError("statistics must be whole numbers for discrete-laplace noise")
    scale = noise_scale("discrete-laplace", sensitivity, epsilon)
    dp = opendp()
    domain = dp.vector_domain(dp.atom_domain(T="i64"), size=len(values))
    measurement, scale, spent = smallest_scale(
        lambda scale: dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale), int(sensitivity), scale, epsilon
    )
    return _noised(measurement, [int(value) for value in values], epsilon), scale, spent


def add_gaussian_noise(
    values: np.ndarray, sensitivity: float, epsilon: float, delta: float
) -> tuple[np.ndarray, float, float]:
    """Add normal noise to a vector: OpenDP draws it, its scale is that of the analytic Gaussian mechanism.

    OpenDP states only the zero-concentrated guarantee of its noise. It is checked to be that of normal noise of
    this scale, which says that the grid on which OpenDP draws costs nothing; (epsilon, delta) then follow from
    `dpjax._gaussian` (Balle and Wang 2018), which is tighter than a conversion.

    Args:
        values: [D] finite numbers, D public.
        sensitivity: L2 sensitivity of `values`, finite, > 0.
        epsilon: finite, > 0.
        delta: inside (0, 1).

    Returns:
        noised values [D]; standard deviation; epsilon, the target.

    Raises: as `add_laplace_noise`.
    """
    _check_values(values)
    scale = noise_scale("gaussian", sensitivity, epsilon, delta)
    dp = opendp()
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=len(values))
    measurement = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale)
    rho = measurement.map(sensitivity)
    if not rho <= (sensitivity / scale) ** 2 / 2 * (1 + 1e-12):
        raise InputError(f"epsilon = {epsilon!r} cannot be met in floating point")
    return _noised(measurement, values.tolist(), epsilon), scale, epsilon


def add_noise(
    mechanism: str, values: np.ndarray, sensitivity: float, epsilon: float, delta: float = 0.0
) -> tuple[np.ndarray, float, float]:
    """Noise of the named mechanism: noised values, scale, epsilon. Arguments and errors as of its own function."""
    if mechanism == "gaussian":
        return add_gaussian_noise(values, sensitivity, epsilon, delta)
    if mechanism == "discrete-laplace":
        return add_discrete_laplace_noise(values, sensitivity, epsilon)
    return add_laplace_noise(values, sensitivity, epsilon)


def noise_scale(mechanism: str, sensitivity: float, epsilon: float, delta: float = 0.0) -> float:
    """Scale of the named mechanism before OpenDP's rounding: b, or the standard deviation of Gaussian noise.

    Raises:
        InputError: it is beyond the range of a float, or, of discrete noise, the sensitivity is no whole number.
    """
    if mechanism == "gaussian":
        scale = analytic_gaussian_sigma(sensitivity, epsilon, delta)
    else:
        scale = sensitivity / epsilon
    if not (math.isfinite(scale) and scale > 0):
        raise InputError(f"epsilon = {epsilon!r} asks for noise beyond the range of a float")
    if mechanism == "discrete-laplace":
        if not float(sensitivity).is_integer():
            raise InputError(f"sensitivity must be a whole number for discrete-laplace noise, got {sensitivity!r}")
        if scale > _LARGEST_DISCRETE_SCALE:  # beyond it OpenDP's 64-bit sums would be cut off
            raise InputError(f"epsilon = {epsilon!r} asks for noise beyond the whole numbers of a float")
    return scale


def smallest_scale(
    make: Callable[[float], Any], distance: float | int, scale: float, epsilon: float
) -> tuple[Any, float, float]:
    """The measurement `make(scale)` whose map gives at most epsilon, its scale, and what the map gives.

    Args:
        make: builds a measurement of OpenDP from its scale.
        distance: between neighbours, as the measurement's map takes it.
        scale: to begin with; enlarged by single steps of a float, as the map rounds up.
        epsilon: the target.

    Raises:
        InputError: no scale near the given one meets the target.
    """
    for _ in range(_NUDGES):
        measurement = make(scale)
        spent = measurement.map(distance)
        if spent <= epsilon:
            return measurement, scale, float(spent)
        scale = math.nextafter(scale, math.inf)
    raise InputError(f"epsilon = {epsilon!r} cannot be met in floating point")


def opendp() -> Any:
    """OpenDP, which draws all noise of real releases.

    Raises:
        MissingExtraError: it is not installed.
    """
    dp = require("opendp.prelude", "release", "dpjax.release")
    dp.enable_features("contrib")
    return dp


def _check_values(values: np.ndarray) -> None:
    if values.ndim != 1 or len(values) == 0:
        raise InputError("statistics must be a non-empty vector")
    if not np.isfinite(values).all():
        raise InputError("statistics must be finite")


def _noised(measurement: Any, values: list[Any], epsilon: float) -> np.ndarray:
    noised = np.array(measurement(values), dtype=np.float64)
    if noised.shape != (len(values),) or not np.isfinite(noised).all():
        raise InputError(f"epsilon = {epsilon!r} asks for noise beyond the range of a float")
    return noised
