"""Noise of real releases, drawn by OpenDP from the operating system's randomness; there is no seed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpjax.errors import InputError, require

_NUDGES = 64


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
    if values.ndim != 1 or len(values) == 0:
        raise InputError("statistics must be a non-empty vector")
    if not np.isfinite(values).all():
        raise InputError("statistics must be finite")
    scale = sensitivity / epsilon
    if not (math.isfinite(scale) and scale > 0):
        raise InputError(f"epsilon = {epsilon!r} asks for noise beyond the range of a float")
    dp = _opendp()
    space = (
        dp.vector_domain(dp.atom_domain(T=float, nan=False), size=len(values)),
        dp.l1_distance(T=float),
    )
    for _ in range(_NUDGES):
        measurement = dp.m.make_laplace(*space, scale)
        spent = measurement.map(sensitivity)
        if spent <= epsilon:
            break
        scale = math.nextafter(scale, math.inf)  # the map rounds up
    else:
        raise InputError(f"epsilon = {epsilon!r} cannot be met in floating point")
    noised = np.array(measurement(values.tolist()), dtype=np.float64)
    if noised.shape != values.shape or not np.isfinite(noised).all():
        raise InputError(f"epsilon = {epsilon!r} asks for noise beyond the range of a float")
    return noised, scale, float(spent)


def _opendp() -> Any:
    dp = require("opendp.prelude", "release", "dpjax.release")
    dp.enable_features("contrib")
    return dp
