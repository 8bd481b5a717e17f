"""Moments of a clamped or redacted record as plain sums over points, many chains at a time.

For families of one parameter and one statistic that are few counts, or give the nodes of a quadrature.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from dpjax.engine.model import over_lanes
from dpjax.kernels.symmetric import take


def summed_lanes(model, phi):
    """Mean and variance of c and their derivatives in phi, `[B]` each.

    With p the probabilities of points v: d E[g(v)] / d eta = sum of p (v - mu) g(v), mu the mean of v.
    """
    family, natural = model.family, over_lanes(lambda one, x: one.natural(x))
    eta, slope = jax.jvp(lambda x: natural(model, x)[0], (phi,), (jnp.ones_like(phi),))
    low, high = model.low.astype(phi.dtype), model.high.astype(phi.dtype)
    mu = jax.vmap(lambda e: jax.grad(family.log_partition)(e[None])[0])(eta)
    zero = jnp.zeros_like(eta)
    if model.counts:
        with jax.ensure_compile_time_eval():  # constants of the program
            k = jnp.arange(model.counts, dtype=phi.dtype)[:, None]
            base = family.log_base(k)
        partition = jax.vmap(lambda e: family.log_partition(e[None]))(eta)
        p = jnp.where(k <= high[None], jnp.exp(base + eta[None] * k - partition[None]), 0.0)
        v = jnp.broadcast_to(k, p.shape)
    else:
        points = jax.vmap(lambda e, a, b: family.points(e[None], a, b), out_axes=-1)
        center, offsets, weights, log_scale = points(eta, low, high)
        p, v = weights * jnp.exp(log_scale)[None], center[None] + offsets
    top = high if model.rule == "clamp" else zero
    bottom = low if model.rule == "clamp" else zero

    def over_points(term, start):
        """Sum of `term(p, c, p (v - mu))`, point by point: a reduction over a leading axis is slower."""

        def add(i, sums):
            one, at = take(p, i), take(v, i)
            # nodes of a quadrature may lie just outside, where the summand goes on smoothly; of counts
            # those below the bounds are clamped or left out
            c = at
            if model.counts:
                c = jnp.clip(at, low, high) if model.rule == "clamp" else jnp.where(at >= low, at, 0.0)
            return jax.tree.map(jnp.add, sums, term(one, c, one * (at - mu)))

        return lax.fori_loop(0, p.shape[0], add, start)

    if model.counts:  # what is missing lies above
        mass, d_mass = over_points(lambda p, c, dp: (p, dp), (zero, zero))
        below, d_below, above, d_above = zero, zero, jnp.maximum(1.0 - mass, 0.0), -d_mass
    else:
        outside = lambda e: (
            jnp.exp(jax.vmap(lambda x, a: family.log_mass_below(x[None], a))(e, low)),
            jnp.exp(jax.vmap(lambda x, b: family.log_mass_above(x[None], b))(e, high)),
        )
        (below, above), (d_below, d_above) = jax.jvp(outside, (eta,), (jnp.ones_like(eta),))
    mean, d_mean = over_points(
        lambda p, c, dp: (p * c, dp * c),
        (below * bottom + above * top, d_below * bottom + d_above * top),
    )
    under, over = (bottom - mean) ** 2, (top - mean) ** 2
    variance, d_variance = over_points(
        lambda p, c, dp: (p * (c - mean) ** 2, dp * (c - mean) ** 2),
        (below * under + above * over, d_below * under + d_above * over),
    )
    return mean, variance, d_mean * slope, d_variance * slope
