"""Exact random draws with a fixed amount of work per chain.

A rejection loop inside a vmapped step makes every chain wait for the slowest one. Here each draw evaluates
a few proposals side by side and takes the first that is accepted; a loop runs only when some chain rejected
them all (six in a million at the worst gamma shape), so the draws stay exact. A chain's numbers come from
that chain's key alone: they do not change with the number of chains beside it.

Every public function takes the arrays of one chain. Its annotations show the lane form (`f.lanes`), whose
extra last axis `B` runs over chains and whose `key` is an array of B typed keys. The `*_from` functions take
numbers drawn beforehand, for loops that draw all their normals and uniforms in one call.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax, random
from jaxtyping import Array, Float, Key

from .batching import batch_last

#: Marsaglia-Tsang proposals evaluated side by side; each is accepted with probability at least 0.951.
PROPOSALS = 4


def lane_normals(key: Key[Array, " B"], shape: tuple[int, ...], dtype: jnp.dtype) -> Float[Array, "... B"]:
    """Standard normals `[*shape, B]`; lane i depends on key i only."""
    return jax.vmap(lambda k: random.normal(k, shape, dtype), out_axes=-1)(key)


def lane_uniforms(key: Key[Array, " B"], shape: tuple[int, ...], dtype: jnp.dtype) -> Float[Array, "... B"]:
    """Uniforms on [0, 1) `[*shape, B]`; lane i depends on key i only."""
    return jax.vmap(lambda k: random.uniform(k, shape, dtype), out_axes=-1)(key)


def lane_split(key: Key[Array, " B"], num: int) -> Key[Array, "N B"]:
    """`num` independent keys per lane, first axis over the new keys."""
    return jax.vmap(lambda k: random.split(k, num), out_axes=-1)(key)


def _propose(shape: Array, normal: Array, uniform: Array) -> tuple[Array, Array]:
    """One Marsaglia-Tsang proposal for shape >= 1: value and whether it is accepted.

    The textbook test, log u < x^2/2 + d - d v + d log v, subtracts numbers of size d and is pure rounding in
    float32 from d = 1e6 on. With t = c x it equals d (3 (log(1 + t) - t + t^2/2) - t^3), whose leading terms
    cancel exactly (x^2/2 = 4.5 d t^2), so small t take the remaining series -3 t^4/4 + 3 t^5/5 - ...
    """
    d = shape - 1.0 / 3.0
    t = normal * lax.rsqrt(9.0 * d)
    series = jnp.zeros_like(t)
    for power in range(13, 3, -1):
        series = series * t + 3.0 * (-1.0) ** (power + 1) / power
    near = t * t * t * t * series
    inside = t > -1.0
    safe = jnp.where(inside, t, jnp.zeros_like(t))
    far = 3.0 * (jnp.log1p(safe) - safe + 0.5 * safe * safe) - safe * safe * safe
    log_accept = d * jnp.where(jnp.abs(t) < 0.1, near, far)
    accepted = inside & (jnp.log(uniform) < log_accept)
    return d * (1.0 + t) * (1.0 + t) * (1.0 + t), accepted


@batch_last
def gamma_from(
    key: Key[Array, " B"],
    shape: Float[Array, "*S B"],
    normals: Float[Array, "K *S B"],
    uniforms: Float[Array, "K_plus_one *S B"],
) -> Float[Array, "*S B"]:
    """Gamma(shape, rate 1) from proposals drawn beforehand (Marsaglia and Tsang 2000).

    Args:
        key: used only if all K proposals of an element are rejected; independent of the numbers below.
        shape: any positive shape; a shape that is not positive and finite gives NaN.
        normals: K standard normals per element; K = 4 leaves 6e-6 of the elements to the loop at shape 1.
        uniforms: K + 1 uniforms on [0, 1) per element; the last one serves shapes under 1, drawn as
            Gamma(shape + 1) u^(1/shape) (underflows to 0 where the true draw does).

    Returns:
        Draw of the shape of `shape`.
    """
    valid = (shape > 0) & jnp.isfinite(shape)
    safe = jnp.where(valid, shape, jnp.ones_like(shape))
    boosted = jnp.where(safe < 1.0, safe + 1.0, safe)
    value, done = jnp.zeros_like(shape), ~valid
    for normal, uniform in zip(normals, uniforms[:-1], strict=True):
        proposal, accepted = _propose(boosted, normal, uniform)
        value, done = jnp.where(done, value, proposal), done | accepted

    def retry(carry):
        count, value, done = carry
        pair = lane_split(jax.vmap(random.fold_in, in_axes=(0, None))(key, count), 2)
        normal = lane_normals(pair[0], shape.shape[:-1], shape.dtype)
        uniform = lane_uniforms(pair[1], shape.shape[:-1], shape.dtype)
        proposal, accepted = _propose(boosted, normal, uniform)
        return count + jnp.uint32(1), jnp.where(done, value, proposal), done | accepted

    start = (jnp.uint32(0), value, done)
    _, value, _ = lax.while_loop(lambda carry: ~jnp.all(carry[2]), retry, start)
    power = jnp.where(safe < 1.0, jnp.exp(jnp.log1p(-uniforms[-1]) / safe), jnp.ones_like(safe))
    return jnp.where(valid, value * power, jnp.full_like(value, jnp.nan))


def _gamma(key: Array, shape: Array) -> Array:
    keys = lane_split(key, 3)
    inner = shape.shape[:-1]
    normals = lane_normals(keys[0], (PROPOSALS, *inner), shape.dtype)
    uniforms = lane_uniforms(keys[1], (PROPOSALS + 1, *inner), shape.dtype)
    return gamma_from.lanes(keys[2], shape, normals, uniforms)


@batch_last
def gamma(key: Key[Array, " B"], shape: Float[Array, "*S B"]) -> Float[Array, "*S B"]:
    """Gamma(shape, rate 1) draws, exact for every positive shape, one per element of `shape`.

    Args:
        key: typed key.
        shape: positive shapes; one that is not positive and finite gives NaN.
    """
    return _gamma(key, shape)


@batch_last
def chi_square(key: Key[Array, " B"], df: Float[Array, "*S B"]) -> Float[Array, "*S B"]:
    """Chi-square draws with `df` > 0 degrees of freedom, one per element (arguments as in `gamma`)."""
    return 2.0 * _gamma(key, 0.5 * df)
