"""Coordinates of a covariance matrix L L': ell_i = log L_ii and c_ij = L_ij / L_ii for i > j, in row order."""

from __future__ import annotations

from functools import cache

import jax.numpy as jnp
import numpy as np
from jax import lax

from .order import below_diagonal
from .symmetric import gram_lanes, lower_inverse, matmul_lanes, take


@cache
def _scatter(p: int) -> np.ndarray:
    """`[p, p]` index of c_ij in (0, c): 0 where there is none."""
    index = np.zeros((p, p), np.int32)
    i, j = below_diagonal(p)
    index[i, j] = 1 + np.arange(len(i))
    return index


def scatter_below(c, p: int):
    """Strictly lower triangular `[p, p, B]` with these entries `[p (p - 1) / 2, B]`, in row order."""
    if not len(c):
        return jnp.zeros((p, p, c.shape[-1]), c.dtype)
    return jnp.concatenate([jnp.zeros_like(c[:1]), c])[_scatter(p)]


def unit_lower_lanes(c, ell):
    """I + U with U strictly lower triangular, `[p, p, B]`: L with its rows divided by its diagonal."""
    p = ell.shape[0]
    eye = jnp.broadcast_to(jnp.eye(p, dtype=ell.dtype)[..., None], (p, p, ell.shape[-1]))
    return eye + scatter_below(c, p) if p > 1 else eye


def inverse_lower_lanes(unit_lower, ell):
    """L^{-1} `[p, p, B]`."""
    p = ell.shape[0]
    inverse = jnp.broadcast_to(jnp.eye(p, dtype=ell.dtype)[..., None], unit_lower.shape)
    if p > 1:
        strict = unit_lower - inverse
        inverse = lax.fori_loop(0, p, lambda k, x: x - take(strict, k, 1)[:, None] * take(x, k, 0)[None], inverse)
    return inverse * jnp.exp(-ell)[None]


def inverse_wishart_lanes(psi, nu, unit_lower, ell):
    """log density of InvWishart(psi, nu) in these coordinates, up to a constant, `[B]` and its gradient
    `[p (p + 1) / 2, B]`."""
    inverse = inverse_lower_lanes(unit_lower, ell)
    weighted = matmul_lanes(gram_lanes(inverse, inverse), psi)
    value = -nu * ell.sum(0) - 0.5 * jnp.trace(weighted)
    gradient = pull_lower_lanes(matmul_lanes(weighted, jnp.swapaxes(inverse, 0, 1)), unit_lower, ell)
    return value, gradient.at[: ell.shape[0]].add(-nu[None])


def record_factor_lanes(lower, last, sigma):
    """Factor G = [[L, 0], [last', sigma]] of the covariance of (x, y) `[p + 1, p + 1, B]`, last = L' theta `[p, B]`."""
    row = jnp.concatenate([last, sigma[None]])[None]
    return jnp.concatenate([jnp.pad(lower, ((0, 0), (0, 1), (0, 0))), row], axis=0)


def pull_lower_lanes(by_lower, unit_lower, ell):
    """Derivatives by (ell, c) `[p (p + 1) / 2, B]` of what has these derivatives by the entries of L."""
    p, scaled = ell.shape[0], by_lower * jnp.exp(ell)[:, None]
    by_ell = (scaled * unit_lower).sum(1)
    return jnp.concatenate([by_ell, scaled[below_diagonal(p)]]) if p > 1 else by_ell


def coordinates(lower):
    """(ell, c) of a Cholesky factor `[p, p]` of one chain."""
    diagonal = jnp.diagonal(lower)
    return jnp.log(diagonal), (lower / diagonal[:, None])[below_diagonal(lower.shape[0])]


def curvature_at(lower, nu):
    """Minus the Hessian in (ell, c) of log InvWishart(nu L L', nu) at L `[p, p]`: closed form."""
    p = lower.shape[0]
    below_i, below_j = below_diagonal(p)
    inverse = lower_inverse(lower)
    row = np.concatenate([np.arange(p), below_i])
    eye = jnp.eye(p, dtype=lower.dtype)
    moved = jnp.concatenate([lower, eye[below_j] * jnp.diagonal(lower)[below_i][:, None]])
    curvature = nu * (inverse.T @ inverse)[row][:, row] * (moved @ moved.T)
    return curvature + jnp.diag(jnp.where(np.arange(len(row)) < p, nu, jnp.zeros_like(nu)))
