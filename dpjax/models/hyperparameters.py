"""Checks of hyperparameters given by people: each names the argument, the value and what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpjax.errors import InputError
from dpjax.statistics.base import LARGEST, SMALLEST


def numbers(name: str, value: Any, wanted: str) -> np.ndarray:
    """The value as a float64 array of any shape."""
    try:
        array = np.asarray(value)
    except ValueError:  # ragged
        array = np.asarray(None)
    if array.dtype.kind not in "iuf":
        raise InputError(f"{name} must be {wanted}; got {value!r}")
    return array.astype(np.float64)


def vector(name: str, value: Any, size: int) -> np.ndarray:
    """A vector `[size]`; a scalar stands for a constant one."""
    value = numbers(name, value, f"{size} finite numbers")
    value = np.full(size, float(value)) if value.ndim == 0 else value
    if value.shape != (size,) or not np.isfinite(value).all():
        raise InputError(f"{name} must be {size} finite numbers; got shape {value.shape}: {value}")
    return value


def matrix(name: str, value: Any, size: int) -> np.ndarray:
    """A positive definite matrix `[size, size]`; a scalar stands for a multiple of I."""
    value = numbers(name, value, f"a finite {size} x {size} matrix")
    value = float(value) * np.eye(size) if value.ndim == 0 else value
    if value.shape != (size, size) or not np.isfinite(value).all():
        raise InputError(f"{name} must be a finite {size} x {size} matrix; got shape {value.shape}")
    if np.abs(value - value.T).max() > 1e-8 * np.abs(value).max() or np.linalg.eigvalsh(value)[0] <= 0:
        raise InputError(f"{name} must be symmetric and positive definite; got {value.tolist()}")
    return value


def positive(name: str, value: Any, above: float = 0.0) -> float:
    """A number above a limit."""
    array = numbers(name, value, f"a finite number above {above:g}")
    if array.ndim != 0 or not np.isfinite(array) or array <= above:
        raise InputError(f"{name} must be a finite number above {above:g}; got {value!r}")
    return float(array)


def check_sizes(leaves: Mapping[str, Any]) -> None:
    """Refuse hyperparameters that float32 arithmetic cannot hold: huge entries, tiny scalars or diagonals."""
    for name, value in leaves.items():
        size = np.abs(np.asarray(value))
        scales = np.diag(size) if size.ndim == 2 else size
        smallest = np.inf if size.ndim == 1 else scales.min()  # means may be anything
        if smallest < SMALLEST or size.max() > LARGEST:
            raise InputError(f"{name} must lie between {SMALLEST:g} and {LARGEST:g} in size; got {value}")


def features(p: Any, most: int, why: str) -> None:
    """Refuse a number of features that is not from 1 to `most`; why: what the limit is for."""
    if isinstance(p, bool) or not isinstance(p, int | np.integer) or p < 1:
        raise InputError(f"p must be a whole number of features, at least 1; got {p!r}")
    if p > most:
        raise InputError(f"at most {most} features can be fitted {why}; got {p}")


def coefficients(
    size: int, theta_mean: Any, theta_precision: Any, sigma2_shape: Any, sigma2_scale: Any
) -> dict[str, np.ndarray | float]:
    """Checked prior of the coefficients `[size]` and the residual variance."""
    return {
        "theta_mean": vector("theta_mean", theta_mean, size),
        "theta_precision": matrix("theta_precision", theta_precision, size),
        "sigma2_shape": positive("sigma2_shape", sigma2_shape),
        "sigma2_scale": positive("sigma2_scale", sigma2_scale),
    }
