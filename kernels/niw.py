"""Normal-inverse-Wishart: the conjugate law of a normal mean and covariance, any dimension
(docs/formulas.md#normal-inverse-wishart).

    Sigma ~ InvWishart(psi, nu),  mu | Sigma ~ N(mean, Sigma / kappa)

Statistics enter as means per record, so that n = 1e9 works in float32 (see `nig`). In one dimension
InvWishart(psi, nu) is InvGamma(nu / 2, psi / 2).

Annotations show the lane form (`f.lanes`, last axis over chains); the functions themselves take one chain.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .batching import batch_last
from .symmetric import cholesky, lower_triangle_lanes, matmul_lanes, matvec_lanes, take


class NIW(NamedTuple):
    """Parameters: mean `[p]`, kappa `[]` (a scalar, Bernstein and Sheldon's Lambda_0), psi `[p, p]`, nu `[]` > p -
    1."""

    mean: Array
    kappa: Array
    psi: Array
    nu: Array


class NIWDraw(NamedTuple):
    """A draw: mean `[p]`, covariance `[p, p]` and its lower Cholesky factor `[p, p]`."""

    mean: Array
    covariance: Array
    factor: Array


@batch_last
def update(prior: NIW, x: Float[Array, "P B"], xx: Float[Array, "P P B"], n: Float[Array, " B"]) -> NIW:
    """Posterior given the first and second moments of n records.

    Args:
        prior: prior parameters.
        x: mean of the records `[p]`.
        xx: mean of x x' `[p, p]` (not centred); xx - x x' must be positive semi-definite
            (docs/formulas.md#consistent-sums).
        n: number of records `[]`, as a float of the same dtype.

    Returns:
        NIW(mu_n, kappa_n, Psi_n, nu_n).
    """
    kappa = prior.kappa + n
    weight = n / kappa
    gap = x - prior.mean
    scatter = n[None, None] * (xx - x[:, None] * x[None])
    between = (prior.kappa * weight)[None, None] * gap[:, None] * gap[None]
    return NIW(prior.mean + weight[None] * gap, kappa, prior.psi + scatter + between, prior.nu + n)


@batch_last
def draw_from(posterior: NIW, chi_squares: Float[Array, "P B"], normals: Float[Array, "M B"]) -> NIWDraw:
    """Draw from numbers drawn beforehand.

    Bartlett's decomposition with the triangle that makes the result triangular: with psi = C C' and T lower
    triangular, T_ii^2 ~ chi^2(nu - p + i) (i = 1..p) and normals below the diagonal, L = C T^{-1} is the
    Cholesky factor of an InvWishart(psi, nu) matrix.

    Args:
        posterior: parameters.
        chi_squares: chi-square draws with nu - p + 1, ..., nu degrees of freedom `[p]`.
        normals: p + p (p - 1) / 2 standard normals, the first p for the mean.
    """
    p = posterior.mean.shape[0]
    i = jnp.arange(p, dtype=jnp.int32)[:, None]
    t = lower_triangle_lanes(jnp.sqrt(chi_squares), normals[p:])

    def solve(step, x):
        # column k of L = C T^{-1} once columns k+1.. have been eliminated from C
        k = p - 1 - step
        row = take(t, k, 0)
        column = take(x, k, 1) / take(row, k, 0)[None]
        x = jnp.where(i[None] == k, column[:, None], x)
        return x - column[:, None] * jnp.where(i < k, row, jnp.zeros_like(row))[None]

    factor = lax.fori_loop(0, p, solve, cholesky.lanes(posterior.psi))
    covariance = matmul_lanes(factor, jnp.swapaxes(factor, 0, 1))
    mean = posterior.mean + matvec_lanes(factor, normals[:p]) / jnp.sqrt(posterior.kappa)[None]
    return NIWDraw(mean, covariance, factor)


@batch_last
def degrees_of_freedom(posterior: NIW) -> Float[Array, "P B"]:
    """Degrees of freedom nu - p + 1, ..., nu of the chi-squares that `draw_from` takes `[p]`."""
    p = posterior.mean.shape[0]
    return posterior.nu[None] - jnp.arange(p - 1, -1, -1, dtype=posterior.nu.dtype)[:, None]
