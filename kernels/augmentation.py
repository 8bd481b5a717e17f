"""Laplace noise as a Gaussian scale mixture: draw the mixing variances given the noise.

If w ~ Exponential(rate 1/2) and e | w ~ N(0, w), then e ~ Laplace(0, 1). Given e, w has density
proportional to w^{-1/2} exp(-e^2 / (2 w) - w / 2): InverseGaussian(mean |e|, shape e^2) + chi^2_1
(docs/formulas.md#laplace-mixture), or 1 / InverseGaussian(mean 1 / |e|, shape 1), which takes one normal less.
Everything is in units of the Laplace scale b: w = omega^2 / b^2, e = (z - s) / b.

Annotations show the lane form (`f.lanes`, last axis over chains); the functions themselves take one chain.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from .batching import batch_last
from .random import lane_normals, lane_split, lane_uniforms


@batch_last
def laplace_scales_from(
    residual: Float[Array, "D B"], normals: Float[Array, "D B"], uniforms: Float[Array, "D B"]
) -> Float[Array, "D B"]:
    """Draw w | e from numbers drawn beforehand (exact; for loops that draw everything in one call).

    Args:
        residual: noise in units of b, e = (z - s) / b `[D]`; any size from 0 to 1e18 in float32.
        normals, uniforms: standard normals, uniforms on [0, 1) `[D]`.

    Returns:
        Mixing variances w = omega^2 / b^2 `[D]`, positive (at least the smallest normal number of the dtype).
    """
    m = jnp.abs(residual)
    y = normals * normals
    # 1/w is InverseGaussian(mean 1/m, shape 1). The reciprocals of the two roots of Michael, Schucany and Haas are
    # a sum of non-negative terms and m^2 over it, so neither cancels at any m; the first is taken with
    # probability large / (large + m)
    large = m + 0.5 * y + 0.5 * jnp.sqrt(y * (4.0 * m + y))
    positive = large > 0
    small = jnp.where(positive, m * (m / jnp.where(positive, large, jnp.ones_like(large))), jnp.zeros_like(m))
    w = jnp.where(uniforms * (large + m) < large, large, small)
    return jnp.maximum(w, jnp.finfo(m.dtype).tiny)


@batch_last
def laplace_scales(key: Key[Array, " B"], residual: Float[Array, "D B"]) -> Float[Array, "D B"]:
    """Draw w | e exactly.

    Args:
        key: typed key.
        residual: noise in units of b `[D]`.

    Returns:
        Mixing variances w = omega^2 / b^2 `[D]`; E w = |e| + 1 and E 1/w = 1/|e|.
    """
    keys = lane_split(key, 2)
    normals = lane_normals(keys[0], residual.shape[:-1], residual.dtype)
    uniforms = lane_uniforms(keys[1], residual.shape[:-1], residual.dtype)
    return laplace_scales_from.lanes(residual, normals, uniforms)
