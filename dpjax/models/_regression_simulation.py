"""Draws from the regression model: parameters from the prior, statistics given parameters, clipped records."""

from __future__ import annotations

from functools import cache

import jax.numpy as jnp
import numpy as np
from jax import lax, random

from ..kernels.products import pairs


@cache
def below_diagonal(p: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each coordinate c_ij, i > j, in row order (int32: 64-bit indices mix badly with x64 off)."""
    rows, cols = np.tril_indices(p, -1)
    return rows.astype(np.int32), cols.astype(np.int32)


def sample_prior(model, key):
    """One draw of the unconstrained parameters from the prior `[P]`."""
    p, dtype = model.p, model.theta_mean.dtype
    k_s2, k_theta, k_chi, k_tri, k_mu = random.split(key, 5)
    s2 = model.sigma2_scale / random.gamma(k_s2, model.sigma2_shape, dtype=dtype)
    precision_factor = jnp.linalg.cholesky(model.theta_precision)
    theta = model.theta_mean + jnp.sqrt(s2) * jnp.linalg.solve(
        precision_factor.T, random.normal(k_theta, (p + 1,), dtype)
    )
    # Bartlett: T T' ~ Wishart(I, nu), Sigma = R T^{-T} T^{-1} R' with R = chol psi is InvWishart(psi, nu)
    chi2 = 2.0 * random.gamma(k_chi, 0.5 * (model.nu - jnp.arange(p, dtype=dtype)), dtype=dtype)
    bartlett = jnp.tril(random.normal(k_tri, (p, p), dtype), -1) + jnp.diag(jnp.sqrt(chi2))
    half = jnp.linalg.solve(bartlett, jnp.linalg.cholesky(model.psi).T)
    lower = jnp.linalg.cholesky(half.T @ half)
    mu = model.x_mean + lower @ random.normal(k_mu, (p,), dtype) / jnp.sqrt(model.kappa)
    diagonal = jnp.diagonal(lower)
    c = (lower / diagonal[:, None])[below_diagonal(p)]
    alpha = theta[0] + mu @ theta[1:]
    return jnp.concatenate([mu, alpha[None], theta[1:], jnp.log(s2)[None], jnp.log(diagonal), c])


def _entries(total, second):
    """Entries `[D]` from the sums `[q]` and the sums of products `[q, q]` of (x, y)."""
    q = total.shape[0]
    full = jnp.zeros((q + 1, q + 1), total.dtype).at[1:, 1:].set(second).at[0, 1:].set(total)
    a, b = pairs(q - 1)
    return full[a, b]


def _one_chain(model, phi):
    """Mean, factor and covariance of one record, without the lane axis."""
    return (x[..., 0] for x in model.record_lanes(phi[:, None]))


def simulate(model, key, phi, n):
    """Sums over n records drawn exactly from the model, without drawing the records.

    The first sums are normal and the centred scatter is Wishart with n - 1 degrees of freedom (any n >= 1). Use
    64-bit arrays when n is large.
    """
    p, dtype = model.p, phi.dtype
    q = p + 1
    m, g, _ = _one_chain(model, phi)
    k_mean, k_chi, k_tri, k_few = random.split(key, 4)
    total = n * m + jnp.sqrt(n) * (g @ random.normal(k_mean, (q,), dtype))
    dof = jnp.maximum(n - 1.0 - jnp.arange(q, dtype=dtype), 0.5)
    bartlett = jnp.tril(random.normal(k_tri, (q, q), dtype), -1)
    bartlett = bartlett + jnp.diag(jnp.sqrt(2.0 * random.gamma(k_chi, 0.5 * dof, dtype=dtype)))
    # fewer than q degrees of freedom: the scatter is the Gram matrix of n - 1 rows
    rows = random.normal(k_few, (q, q), dtype) * (jnp.arange(q, dtype=dtype) < n - 1.0).astype(dtype)[:, None]
    half = g @ jnp.where(n - 1.0 >= q, bartlett, rows.T)
    return _entries(total, half @ half.T + total[:, None] * total[None] / n)


def simulate_clipped(model, key, phi, n, bounds: tuple[float, float] = (-1.0, 1.0), chunk: int = 1000):
    """Sums over n records drawn one by one and clipped to `bounds` (n traced; work grows with n)."""
    m, g, _ = _one_chain(model, phi)
    q = m.shape[0]

    def body(k, carry):
        total, second = carry
        normals = random.normal(random.fold_in(key, k), (chunk, q), phi.dtype)
        rows = jnp.clip(m[None] + normals @ g.T, *bounds)
        number = k.astype(phi.dtype) * chunk + jnp.arange(chunk, dtype=phi.dtype)
        rows = rows * (number < n).astype(phi.dtype)[:, None]
        return total + rows.sum(0), second + rows.T @ rows

    chunks = jnp.ceil(n / chunk).astype(jnp.int32)
    start = (jnp.zeros(q, phi.dtype), jnp.zeros((q, q), phi.dtype))
    return _entries(*lax.fori_loop(jnp.int32(0), chunks, body, start))
