"""All random numbers of a step in one call per chain, from counters.

Each chain owns its key, so what a chain draws does not depend on how many others run beside it. The words come from
threefry2x32 (Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3"; 20 rounds) applied to
the counters 0, 1, 2, ... under the chain's key, both words of each block used, and written out so that XLA keeps it in
registers: `jax.random.bits` on CPU runs its rounds as a loop over memory and throws one of the two words away.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Key, UInt32

_SQRT2 = np.float32(np.sqrt(2.0))
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def threefry2x32(
    key_0: UInt32[Array, "*S"],
    key_1: UInt32[Array, "*S"],
    counter_0: UInt32[Array, "*S"],
    counter_1: UInt32[Array, "*S"],
) -> tuple[UInt32[Array, "*S"], UInt32[Array, "*S"]]:
    """Two random words from two words of key and two of counter, elementwise (20 rounds)."""
    schedule = (key_0, key_1, key_0 ^ key_1 ^ _PARITY)
    x, y = counter_0 + key_0, counter_1 + key_1
    for group in range(5):
        for turn in _ROTATIONS[group % 2]:
            x = x + y
            y = (y << np.uint32(turn)) | (y >> np.uint32(32 - turn))
            y = x ^ y
        x = x + schedule[(group + 1) % 3]
        y = y + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def words_lanes(keys: Key[Array, " B"], count: int) -> UInt32[Array, "N B"]:
    """`count` words of 32 random bits `[count, B]`, one typed threefry key per lane."""
    if random.key_impl(keys) != "threefry2x32":
        raise ValueError(f"keys must be of the kind threefry2x32; got {random.key_impl(keys)}")
    data = random.key_data(keys)
    half = -(-count // 2)
    shape = (half, data.shape[0])
    counter = lax.broadcasted_iota(jnp.uint32, shape, 0)
    key_0, key_1 = (jnp.broadcast_to(data[None, :, i], shape) for i in (0, 1))
    x, y = threefry2x32(key_0, key_1, jnp.zeros_like(counter), counter)
    return jnp.concatenate([x, y])[:count]


def normals_and_uniforms_lanes(
    keys: Key[Array, " B"], normals: int, uniforms: int, dtype: DTypeLike = jnp.float32
) -> tuple[Float[Array, "N B"], Float[Array, "U B"]]:
    """Standard normals `[normals, B]` and uniforms on (0, 1) `[uniforms, B]`, one key per lane.

    They have 23 random bits whatever the dtype: normals stay within 5.4 of zero.
    """
    bits = words_lanes(keys, normals + uniforms)
    # 23 random mantissa bits, centred in their cell: never 0 or 1, symmetric about 1/2
    unit = (lax.shift_right_logical(bits, np.uint32(9)).astype(jnp.float32) + 0.5) * np.float32(2.0**-23)
    z = _SQRT2 * lax.erf_inv(2.0 * unit[:normals] - 1.0)
    return lax.optimization_barrier((z.astype(dtype), unit[normals:].astype(dtype)))


def normals_and_uniforms(key: Key[Array, ""], normals: int, uniforms: int, dtype: DTypeLike = jnp.float32):
    """Standard normals `[normals]` and uniforms on (0, 1) `[uniforms]` from one key."""
    z, u = normals_and_uniforms_lanes(key[None], normals, uniforms, dtype)
    return z[:, 0], u[:, 0]
