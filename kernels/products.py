"""Statistics that are products of the coordinates of a joint normal record: moments and gradients in closed form.

A record r = (x_1..x_p, y) ~ N(m, C) is extended by the unit feature, r~ = (1, x, y) (C_00 = 0, m_0 = 1). The
statistic is t_ab = r~_a r~_b over the distinct non-constant pairs (docs/formulas.md#distinct-entries), whose moments
need no numerical derivative and no factorisation (docs/formulas.md#normal-moments;
docs/formulas.md#closed-form-products):

    E t_ab = E_ab = C_ab + m_a m_b
    Cov(t_ab, t_cd) = C_ac E_bd + m_a m_c C_bd + C_ad E_bc + m_a m_d C_bc
"""

from __future__ import annotations

from functools import cache

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from .batching import batch_last
from .order import pairs
from .symmetric import matmul_lanes, matvec_lanes, take


@cache
def _positions(p: int) -> tuple[np.ndarray, np.ndarray]:
    """For every (a, b) of r~ x r~ the entry that holds it and its weight (1/2 off the diagonal, 0 for (0, 0))."""
    a, b = pairs(p)
    position = np.zeros((p + 2, p + 2), np.int32)
    weight = np.zeros((p + 2, p + 2))
    for k, (i, j) in enumerate(zip(a, b, strict=True)):
        position[i, j] = position[j, i] = k
        weight[i, j] = weight[j, i] = 1.0 if i == j else 0.5
    return position, weight


def _with_unit(m: Float[Array, "Q B"], c: Float[Array, "Q Q B"]):
    one = jnp.ones_like(m[:1])
    return jnp.concatenate([one, m]), jnp.pad(c, ((1, 0), (1, 0), (0, 0)))


@batch_last
def product_mean(m: Float[Array, "Q B"], c: Float[Array, "Q Q B"]) -> Float[Array, "D B"]:
    """Mean of the statistic of one record.

    Args:
        m: record mean `[p + 1]`, order (x, y).
        c: record covariance `[p + 1, p + 1]`.

    Returns:
        `E_ab` over `pairs(p)`, shape `[D]`.
    """
    a, b = pairs(m.shape[0] - 1)
    mt, ct = _with_unit(m, c)
    return mt[a] * mt[b] + ct[a, b]


@batch_last
def product_covariance(m: Float[Array, "Q B"], c: Float[Array, "Q Q B"]) -> Float[Array, "D D B"]:
    """Covariance `[D, D]` of the statistic of one record (arguments as in `product_mean`)."""
    a, b = pairs(m.shape[0] - 1)
    mt, ct = _with_unit(m, c)
    ca, cb = ct[a], ct[b]
    ma, mb = mt[a], mt[b]
    c_ba = cb[:, a]
    return (
        ca[:, a] * (cb[:, b] + mb[:, None] * mb[None])
        + ma[:, None] * ma[None] * cb[:, b]
        + ca[:, b] * (c_ba + mb[:, None] * ma[None])
        + ma[:, None] * mb[None] * c_ba
    )


@batch_last
def product_pullback(
    m: Float[Array, "Q B"],
    c: Float[Array, "Q Q B"],
    mean_cotangent: Float[Array, "D B"],
    covariance_cotangent: Float[Array, "D D B"],
) -> tuple[Float[Array, "Q B"], Float[Array, "Q Q B"]]:
    """Gradient with respect to (m, C) of a function of the statistic's mean and covariance.

    Args:
        m, c: as in `product_mean`.
        mean_cotangent: derivative with respect to `product_mean` `[D]`.
        covariance_cotangent: derivative with respect to each element of `product_covariance` `[D, D]`, symmetric.

    Returns:
        `(dm [Q], dC [Q, Q])` with d f = sum_a dm_a d m_a + sum_ab dC_ab d C_ab, dC symmetric.
    """
    p = m.shape[0] - 1
    size, lanes = p + 2, m.shape[-1]
    position, weight = _positions(p)
    mt, ct = _with_unit(m, c)
    w = jnp.asarray(weight, m.dtype)
    # [b, d, a, c]: contract (b, d) against C and E one slice at a time
    first, second = position.T[:, None, :, None], position.T[None, :, None, :]
    w4 = (w.T[:, None, :, None] * w.T[None, :, None, :])[..., None]
    g4 = (covariance_cotangent[first, second] * w4).reshape(size * size, size, size, lanes)
    flat_c = ct.reshape(size * size, lanes)
    flat_e = flat_c + (mt[:, None] * mt[None]).reshape(size * size, lanes)
    zero = jnp.zeros((size, size, lanes), m.dtype)

    def body(k, carry):
        g = take(g4, k)
        return carry[0] + g * take(flat_c, k)[None, None], carry[1] + g * take(flat_e, k)[None, None]

    by_c, by_e = lax.fori_loop(0, size * size, body, (zero, zero))
    mean_part = mean_cotangent[position.reshape(-1)].reshape(size, size, lanes) * w[..., None]
    d_c = 4.0 * by_e + mean_part
    d_m = 2.0 * matvec_lanes(4.0 * by_c + mean_part, mt)
    return d_m[1:], d_c[1:, 1:]


@cache
def _symmetric_index(q: int) -> tuple[np.ndarray, np.ndarray]:
    rows, cols = np.triu_indices(q)
    index = np.zeros((q, q), np.int32)
    index[rows, cols] = index[cols, rows] = np.arange(len(rows), dtype=np.int32)
    return index, np.where(np.eye(q) > 0, np.sqrt(2.0), 1.0)


@batch_last
def product_deviation(
    m: Float[Array, "Q B"], g: Float[Array, "Q Q B"], normals: Float[Array, "D B"]
) -> Float[Array, "D B"]:
    """Draw from N(0, Cov t) without forming the covariance: entries of m u' + u m' + G H G', u = G v.

    Args:
        m: record mean `[Q]`.
        g: any factor of the record covariance, C = G G' `[Q, Q]`.
        normals: D = Q + Q (Q + 1) / 2 independent standard normals.

    Returns:
        Deviation of one record's statistic `[D]` (times sqrt(n) for a sum of n records under the CLT).
    """
    q = m.shape[0]
    index, scale = _symmetric_index(q)
    u = matvec_lanes(g, normals[:q])
    h = normals[q:][index] * jnp.asarray(scale, m.dtype)[..., None]
    ghg = matmul_lanes(matmul_lanes(g, h), jnp.swapaxes(g, 0, 1))
    inner = m[:, None] * u[None] + u[:, None] * m[None] + ghg
    top = jnp.concatenate([jnp.zeros_like(u[:1]), u])[None]
    full = jnp.concatenate([top, jnp.concatenate([u[:, None], inner], axis=1)])
    a, b = pairs(q - 1)
    return full[a, b]
