"""The conjugate update of a regression given the exact sums of all parties (`PartySums`; SPEC C9)."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..kernels import suffstat
from ..kernels.products import pairs
from ..kernels.symmetric import diagonal_lanes, lower_inverse, matmul_lanes, matvec_lanes
from . import _regression_conjugate as conjugate
from ._regression_simulation import below_diagonal


def pooled_lanes(model: Any, mean_statistic):
    """The parties' sums added up in common units, per record, projected: entries `[D', B]`, with an intercept as
    `LinearRegression` has them, else the Gram matrix of (x, y) row by row."""
    q, total = model.p + 1, model.records.sum(0).astype(mean_statistic.dtype)
    sums = model.by_party(mean_statistic, model.entries) * model.to_parties(total)[None]
    centre, half = model.units_lanes(sums.dtype)
    n = model.records.astype(sums.dtype).reshape(-1)
    if model.intercept:
        moments = suffstat.moment_matrix.lanes(sums, n)
        first = half * moments[0, 1:] + n[None] * centre
        second = moments[1:, 1:] * half[:, None] * half[None]
        shift = centre[:, None] * (half * moments[0, 1:])[None]
        second = second + shift + jnp.swapaxes(shift, 0, 1) + n[None, None] * centre[:, None] * centre[None]
        full = jnp.pad(second, ((1, 0), (1, 0), (0, 0))).at[0, 1:].set(first)
        a, b = pairs(model.p)
        return model.base.valid_lanes(model.over_parties(full[a, b]) / total[None])
    gram = model.over_parties(model.matrix_lanes(sums) * half[:, None] * half[None]) / total[None, None]
    return conjugate.valid_origin_lanes(gram).reshape(q * q, -1)


def refresh_lanes(model: Any, x: Float[Array, "P B"], keys, normals, uniforms) -> Float[Array, "P B"]:
    """Draw the parameters given the sums of all parties, which stay what they are: an exact Gibbs step in
    (phi, sums) (SPEC C9), written in (phi, latent variables). Conjugate priors only.

    With G A A' G' = G* A* A*' G*', A* = T A for all parties with T = inv(G*) G, and
    v* = T v + sqrt(n) inv(G*) (m - m*) in common units.
    """
    start, q = model.base.dim, model.p + 1
    sums, (_, _, latent, a, _, _, _, n) = model.forward(x)
    total = model.records.sum(0).astype(x.dtype)
    statistic = pooled_lanes(model, model.stacked(sums) / total[None])
    phi = model.base.conjugate_lanes(statistic, total, keys, normals, uniforms)
    (m, g, _), (moved, factor, _) = (model.base.record_lanes(y) for y in (x[:start], phi))
    inverse = lower_inverse.lanes(factor)
    turn = model.to_parties(matmul_lanes(inverse, g))
    _, some, root = model.freedom(x.dtype)
    v, h, rest = model.split(latent)
    below = below_diagonal(q)
    shift = jnp.log(diagonal_lanes(turn)) * root
    h = h + jnp.where(some > 0, shift, jnp.zeros_like(shift))
    parts = [h, jnp.where(some[below[1]] > 0, matmul_lanes(turn, a)[below], rest)]
    if model.intercept:
        step = model.to_parties(matvec_lanes(inverse, m - moved)) * jnp.sqrt(n)[None]
        parts = [matvec_lanes(turn, v) + step, *parts]
    return jnp.concatenate([phi, model.stacked(jnp.concatenate(parts))])
