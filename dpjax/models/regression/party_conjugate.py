"""The conjugate update of a regression given the exact sums of all parties (`PartySums`;
docs/formulas.md#normal-inverse-wishart)."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from dpjax.kernels import suffstat
from dpjax.kernels.order import below_diagonal, pairs
from dpjax.kernels.symmetric import diagonal_lanes, lower_inverse, matmul_lanes, matvec_lanes
from dpjax.models.regression import conjugate


def moments_lanes(model: Any, mean_statistic):
    """Sums of every party, given over the records of all of them, in common units: with an intercept entries
    `[D', J * B]` as `LinearRegression` has them, else the Gram matrix of (x, y) `[q, q, J * B]`."""
    total = model.records.sum(0).astype(mean_statistic.dtype)
    sums = model.by_party(mean_statistic, model.entries) * model.to_parties(total)[None]
    centre, half = model.units_lanes(sums.dtype)
    if not model.intercept:
        return model.matrix_lanes(sums) * half[:, None] * half[None]
    n = model.records.astype(sums.dtype).reshape(-1)
    moments = suffstat.moment_matrix.lanes(sums, n)
    first = half * moments[0, 1:] + n[None] * centre
    second = moments[1:, 1:] * half[:, None] * half[None]
    shift = centre[:, None] * (half * moments[0, 1:])[None]
    second = second + shift + jnp.swapaxes(shift, 0, 1) + n[None, None] * centre[:, None] * centre[None]
    full = jnp.pad(second, ((1, 0), (1, 0), (0, 0))).at[0, 1:].set(first)
    a, b = pairs(model.p)
    return full[a, b]


def valid_lanes(model: Any, moments, n):
    """Moments of n `[B]` records per record, projected: entries `[D', B]`, with an intercept as `LinearRegression` has
    them, else the Gram matrix of (x, y) row by row."""
    if model.intercept:
        return model.base.valid_lanes(moments / n[None])
    return conjugate.valid_origin_lanes(moments / n[None, None]).reshape((model.p + 1) ** 2, -1)


def pooled_lanes(model: Any, moments):
    """`moments_lanes` added up over the parties, as `valid_lanes`."""
    return valid_lanes(model, model.over_parties(moments), model.records.sum(0).astype(moments.dtype))


def refresh_lanes(model: Any, x: Float[Array, "P B"], keys, normals, uniforms) -> Float[Array, "P B"]:
    """Draw the parameters given the sums of all parties, which stay what they are: an exact Gibbs step in
    (phi, sums) (docs/formulas.md#normal-inverse-wishart), written in (phi, latent variables). Conjugate priors only.

    With G A A' G' = G* A* A*' G*', A* = T A for every party with T = inv(G*) G, and
    v* = T v + sqrt(n) inv(G*) (m - m*) in common units.
    """
    q = model.p + 1
    sums, (_, _, latent, a, _, _, _, n) = model.forward(x)
    total = model.records.sum(0).astype(x.dtype)
    statistic = model.valid_lanes(model.stacked(sums) / total[None])
    drawn = model.conjugate_lanes(statistic, total, keys, normals, uniforms)
    (m, g), (moved, factor) = model.record_lanes(x), model.record_lanes(drawn)
    inverse = lower_inverse.lanes(factor)
    turn = model.spread(matmul_lanes(inverse, g))
    _, some, root = model.freedom(x.dtype)
    v, h, rest = model.split(latent)
    below = below_diagonal(q)
    shift = jnp.log(diagonal_lanes(turn)) * root
    h = h + jnp.where(some > 0, shift, jnp.zeros_like(shift))
    parts = [h, jnp.where(some[below[1]] > 0, matmul_lanes(turn, a)[below], rest)]
    if model.intercept:
        step = model.spread(matvec_lanes(inverse, m - moved)) * jnp.sqrt(n)[None]
        parts = [matvec_lanes(turn, v) + step, *parts]
    return model.with_latent_lanes(drawn, jnp.concatenate(parts))
