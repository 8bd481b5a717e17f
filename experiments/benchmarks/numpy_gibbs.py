"""Baseline: the Gibbs sampler of Bernstein and Sheldon 2019 (Algorithm 1 with Gibbs-SS-Update) as a plain NumPy loop,
one chain.

Bayesian linear regression with intercept and any number of normal covariates, from sums released with Laplace
noise. It is the papers' method, written as one would write it from the papers, with the corrections of
docs/formulas.md: distinct non-constant entries (docs/formulas.md#distinct-entries), the appendix's covariance
(docs/formulas.md#sum-moments), fourth moments in closed form (docs/formulas.md#normal-moments), the gain form of the
statistic's draw (docs/formulas.md#distinct-entries), Schur clipping (docs/formulas.md#consistent-sums), theta's prior
as a precision (docs/formulas.md#prior-precision), the conjugate updates of C9 and the stable draw of the noise
variances (docs/formulas.md#laplace-mixture). Depends on NumPy only, so that it measures nothing of dpjax.

    python experiments/benchmarks/numpy_gibbs.py [--features P] [--seconds S]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Prior:
    """sigma2 ~ InvGamma(shape, scale); theta | sigma2 ~ N(mean, sigma2 precision^{-1}); (mu_x, Sigma_x) ~ NIW."""

    theta_mean: np.ndarray
    theta_precision: np.ndarray
    sigma2_shape: float
    sigma2_scale: float
    x_mean: np.ndarray
    kappa: float
    psi: np.ndarray
    nu: float

    @classmethod
    def s0(cls, p: int) -> Prior:
        """Prior of Bernstein and Sheldon 2019, section 4.2."""
        return cls(np.zeros(p + 1), 0.5 / 19 * np.eye(p + 1), 20.0, 0.5, np.zeros(p), 1.0, np.eye(p), 49.0 + p)


def entries(p):
    """Pairs of (1, x_1..x_p, y) whose products are the statistic: x_i; x_i x_j; y; x_i y; y^2."""
    pairs = [(0, i) for i in range(1, p + 1)]
    pairs += [(i, j) for i in range(1, p + 1) for j in range(i, p + 1)]
    pairs += [(i, p + 1) for i in range(p + 1)] + [(p + 1, p + 1)]
    return np.array(pairs).T


def record_moments(theta, sigma2, mu, tau2):
    """Mean and covariance of one record's statistic (Bernstein and Sheldon 2019, eq 2 and 3)."""
    p = len(mu)
    rows, cols = entries(p)[:, : p + p * (p + 1) // 2]
    m = np.concatenate([[1.0], mu])
    c = np.zeros((p + 1, p + 1))
    c[1:, 1:] = tau2
    eta = c + np.outer(m, m)
    xi = (
        np.einsum("ik,jl->ijkl", c, eta)
        + np.einsum("il,jk->ijkl", c, eta)
        + np.einsum("i,k,jl->ijkl", m, m, c)
        + np.einsum("i,l,jk->ijkl", m, m, c)
    )
    by_one = xi @ theta
    by_two = by_one @ theta
    by_three = by_two @ theta
    xy = eta @ theta
    xx_xx, xx_xy, xx_yy = xi[rows, cols][:, rows, cols], by_one[rows, cols], by_two[rows, cols][:, None]
    xy_xy = sigma2 * eta + np.einsum("k,ikj->ij", theta, by_one)
    xy_yy = (by_three + 2 * sigma2 * xy)[:, None]
    yy_yy = np.array([[theta @ by_three + 4 * sigma2 * theta @ xy + 2 * sigma2**2]])
    mean = np.concatenate([eta[rows, cols], xy, [theta @ xy + sigma2]])
    return mean, np.block([[xx_xx, xx_xy, xx_yy], [xx_xy.T, xy_xy, xy_yy], [xx_yy.T, xy_yy.T, yy_yy]])


def draw_statistic(rng, mean, covariance, omega2, z):
    """Exact draw of s | z in gain form: simulate s and noise, then correct by what is left of z."""
    s0 = rng.multivariate_normal(mean, covariance, method="cholesky")
    e0 = np.sqrt(omega2) * rng.normal(size=len(z))
    return s0 + covariance @ np.linalg.solve(covariance + np.diag(omega2), z - s0 - e0)


def project(moments, floor):
    """Clip the eigenvalues of the centred scatter of (x, y), keeping n and the first sums."""
    first = moments[0, 1:]
    centre = np.outer(first, first) / moments[0, 0]
    values, vectors = np.linalg.eigh(moments[1:, 1:] - centre)
    if values[0] < floor:
        moments = moments.copy()
        moments[1:, 1:] = centre + (vectors * np.maximum(values, floor)) @ vectors.T
    return moments


def draw_coefficients(rng, prior, xx, xy, yy, n):
    """Normal-inverse-gamma update and draw of (theta, sigma2)."""
    precision = prior.theta_precision + xx
    mean = np.linalg.solve(precision, prior.theta_precision @ prior.theta_mean + xy)
    before = prior.theta_mean @ prior.theta_precision @ prior.theta_mean
    scale = prior.sigma2_scale + 0.5 * (yy + before - mean @ precision @ mean)
    sigma2 = scale / rng.gamma(prior.sigma2_shape + n / 2)
    lower = np.linalg.cholesky(precision)
    return mean + np.sqrt(sigma2) * np.linalg.solve(lower.T, rng.normal(size=len(mean))), sigma2


def draw_covariates(rng, prior, x, xx, n):
    """Normal-inverse-Wishart update and draw of (mu_x, Sigma_x) (Bartlett)."""
    p = len(x)
    centre, kappa, nu = x / n, prior.kappa + n, prior.nu + n
    gap = centre - prior.x_mean
    psi = prior.psi + xx - n * np.outer(centre, centre) + prior.kappa * n / kappa * np.outer(gap, gap)
    bartlett = np.tril(rng.normal(size=(p, p)), -1) + np.diag(np.sqrt(rng.chisquare(nu - np.arange(p))))
    root = np.linalg.solve(bartlett, np.linalg.cholesky(psi).T).T
    tau2 = root @ root.T
    mean = (prior.kappa * prior.x_mean + x) / kappa
    return mean + np.linalg.cholesky(tau2) @ rng.normal(size=p) / np.sqrt(kappa), tau2


def draw_noise_variance(rng, residual, b):
    """omega^2 | e for Laplace noise of scale b: inverse Gaussian (mean b|e|, shape e^2) plus b^2 chi^2_1."""
    m = np.abs(residual) / b
    y = rng.normal(size=len(m)) ** 2
    large = m + 0.5 * y + 0.5 * np.sqrt(y * (4 * m + y))
    small = m * (m / np.maximum(large, 1e-300))
    wald = np.where(rng.uniform(size=len(m)) * (m + small) <= m, small, large)
    return b * b * (wald + rng.normal(size=len(m)) ** 2)


def run(z, n, b, prior, steps, seed, start=None):
    """Run one chain.

    Args:
        z: released sums `[D]`, D = (p + 1)(p + 4)/2, order of `entries`.
        n: number of records.
        b: scale of the Laplace noise.
        prior: `Prior`, or anything with its fields.
        steps: number of iterations, all returned.
        seed: seed of NumPy's generator.
        start: optional (theta, sigma2, mu_x, Sigma_x, omega2); by default the prior's centre.

    Returns:
        Draws `[steps, D]`: theta, sigma2, mu_x, and Sigma_x[i, j] for i >= j.
    """
    rng, z, p = np.random.default_rng(seed), np.asarray(z, float), len(prior.x_mean)
    theta, sigma2 = np.array(prior.theta_mean, float), prior.sigma2_scale / prior.sigma2_shape
    mu, tau2 = np.array(prior.x_mean, float), np.asarray(prior.psi) / prior.nu
    omega2 = np.full(len(z), 2.0 * b * b)
    if start is not None:
        theta, sigma2, mu, tau2, omega2 = start
    rows, cols = entries(p)
    lower = np.tril_indices(p)
    draws = np.empty((steps, len(z)))
    for step in range(steps):
        mean, covariance = record_moments(theta, sigma2, mu, tau2)
        s = draw_statistic(rng, n * mean, n * covariance, omega2, z)
        moments = np.empty((p + 2, p + 2))
        moments[0, 0] = n
        moments[rows, cols] = moments[cols, rows] = s
        moments = project(moments, 1e-9 * n)
        theta, sigma2 = draw_coefficients(rng, prior, moments[:-1, :-1], moments[:-1, -1], moments[-1, -1], n)
        mu, tau2 = draw_covariates(rng, prior, moments[0, 1:-1], moments[1:-1, 1:-1], n)
        omega2 = draw_noise_variance(rng, z - moments[rows, cols], b)
        draws[step] = np.concatenate([theta, [sigma2], mu, tau2[lower]])
    return draws


def simulate(rng, prior, n, b):
    """Parameters from the prior and a release of the CLT statistic: (theta, sigma2, mu, tau2, omega2), z."""
    p = len(prior.x_mean)
    theta, sigma2 = draw_coefficients(rng, prior, 0.0, 0.0, 0.0, 0)
    bartlett = np.tril(rng.normal(size=(p, p)), -1) + np.diag(np.sqrt(rng.chisquare(prior.nu - np.arange(p))))
    root = np.linalg.solve(bartlett, np.linalg.cholesky(prior.psi).T).T
    tau2 = root @ root.T
    mu = prior.x_mean + np.linalg.cholesky(tau2) @ rng.normal(size=p) / np.sqrt(prior.kappa)
    mean, covariance = record_moments(theta, sigma2, mu, tau2)
    s = rng.multivariate_normal(n * mean, n * covariance, method="cholesky")
    omega2 = b * b * rng.exponential(2.0, size=len(s))
    return (theta, sigma2, mu, tau2, omega2), s + np.sqrt(omega2) * rng.normal(size=len(s))


def steps_per_second(seconds: float = 3.0, features: int = 1) -> float:
    """Iterations per second of one chain at n = 1000, epsilon = 0.1, over at least `seconds` of running."""
    prior, b = Prior.s0(features), 16 / 3 / 0.1
    _, z = simulate(np.random.default_rng(0), prior, 1000, b)
    run(z, 1000, b, prior, 100, seed=0)
    start, steps = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        run(z, 1000, b, prior, 500, seed=steps)
        steps += 500
    return steps / (time.perf_counter() - start)


def main():
    """Time one chain at n = 1000, epsilon = 0.1 and print steps per second."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--features", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    rate = steps_per_second(options.seconds, options.features)
    print(f"{options.features} features: {rate:,.0f} steps/s")


if __name__ == "__main__":
    main()
