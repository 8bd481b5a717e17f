"""Exact posterior moments of regressions on the sums of parties: prior draws weighted by the noise's density.

Everything is drawn record by record in NumPy: no formula of the package is used. For few records and much noise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import stats


class Moments(NamedTuple):
    """Posterior means and variances `[K]` with standard errors."""

    mean: np.ndarray
    mean_error: np.ndarray
    variance: np.ndarray
    variance_error: np.ndarray
    draws: float


def prior_draws(rng, base: Any, count: int):
    """theta `[N, p]` (an intercept first, where the prior has one), sigma2 `[N]`, mean `[N, p]`, factor `[N, p, p]`."""
    f = lambda name: np.asarray(getattr(base, name), np.float64)
    sigma2 = stats.invgamma(f("sigma2_shape"), scale=f("sigma2_scale")).rvs(count, random_state=rng)
    precision = f("theta_precision")
    unit = rng.multivariate_normal(np.zeros(len(precision)), np.linalg.inv(precision), count)
    scale = np.ones(count) if getattr(base, "independent", False) else np.sqrt(sigma2)
    theta = f("theta_mean") + scale[:, None] * unit
    p = f("psi").shape[0]
    covariance = stats.invwishart(float(f("nu")), f("psi")).rvs(count, random_state=rng)
    factor = np.linalg.cholesky(covariance.reshape(-1, p, p))
    mean = np.zeros((count, p))
    if hasattr(base, "x_mean"):
        mean = f("x_mean") + np.einsum("kij,kj->ki", factor, rng.standard_normal((count, p))) / np.sqrt(f("kappa"))
    return theta, sigma2, mean, factor


def records(rng, base: Any, n: int, theta, sigma2, mean, factor) -> np.ndarray:
    """Rows (x, y) `[N, n, p + 1]`."""
    count, p = mean.shape
    x = mean[:, None] + np.einsum("kij,knj->kni", factor, rng.standard_normal((count, n, p)))
    intercept = theta.shape[1] - p
    y = np.einsum("kni,ki->kn", x, theta[:, intercept:]) + (theta[:, :1] if intercept else 0.0)
    y = y + np.sqrt(sigma2)[:, None] * rng.standard_normal((count, n))
    return np.concatenate([x, y[..., None]], 2)


def reported(theta, sigma2, mean, factor, intercept: bool) -> np.ndarray:
    """Parameters in the order of the package."""
    covariance = factor @ np.swapaxes(factor, 1, 2)
    i, j = np.tril_indices(mean.shape[1])
    parts = [theta, sigma2[:, None], *([mean] if intercept else []), covariance[:, i, j]]
    return np.concatenate(parts, 1)


def weighted(log_weight: np.ndarray, parameters: np.ndarray) -> Moments:
    """Moments of draws with these log weights."""
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean = weight @ parameters
    centred = (parameters - mean) ** 2
    variance = weight @ centred
    error = lambda x, m: np.sqrt((weight**2) @ (x - m) ** 2)
    return Moments(mean, error(parameters, mean), variance, error(centred, variance), 1 / (weight**2).sum())
