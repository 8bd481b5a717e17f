"""All random numbers of a step in one call per chain, from counters.

Each chain owns its key, so what a chain draws does not depend on how many others run beside it. The words come from
threefry2x32 (Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3"; 20 rounds) applied to
the counters 0, 1, 2, ... under the chain's key, both words of each block used, and its rounds are written out so that
they run in registers: `jax.random.bits` on CPU loops over memory once per round and throws one of the two words away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Key, UInt32

_SQRT2 = np.float32(np.sqrt(2.0))
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
#: Words per lane that one trip of the loop draws at most.
_ROWS = 16


def threefry2x32(key_0: Any, key_1: Any, counter_0: Any, counter_1: Any, rounds: int = 20) -> tuple[Any, Any]:
    """Two random words from two words of key and two of counter, elementwise.

    Args:
        key_0, key_1, counter_0, counter_1: uint32, arrays of one shape or scalars.
        rounds: 20 as in JAX; 13 is the fewest that pass Crush.
    """
    keys = (key_0, key_1, key_0 ^ key_1 ^ _PARITY)
    x, y = counter_0 + key_0, counter_1 + key_1
    for done in range(rounds):
        turn = _ROTATIONS[done // 4 % 2][done % 4]
        x = x + y
        y = lax.shift_left(y, jnp.full_like(y, turn)) | lax.shift_right_logical(y, jnp.full_like(y, 32 - turn))
        y = x ^ y
        if done % 4 == 3:
            group = done // 4 + 1
            x = x + keys[group % 3]
            y = y + keys[(group + 1) % 3] + np.uint32(group)
    return x, y


def _unit(words):
    """23 random mantissa bits, centred in their cell: never 0 or 1, symmetric about 1/2."""
    return (lax.shift_right_logical(words, np.uint32(9)).astype(jnp.float32) + 0.5) * np.float32(2.0**-23)


def _normal(words):
    return _SQRT2 * lax.erf_inv(2.0 * _unit(words) - 1.0)


def _drawn(key_words: UInt32[Array, "2 B"], first: int, count: int, function: Callable) -> Array:
    """`function` of `count` words per lane `[count, B]`, from the blocks with counters from `first` on.

    In a loop of a few trips: XLA would otherwise merge the rounds into every place that uses one of the numbers, and
    run them there once more.
    """
    rows = min(_ROWS, -(-count // 2))
    trips = max(2, -(-count // rows))
    shape = (rows, key_words.shape[1])
    key_0, key_1 = (jnp.broadcast_to(key_words[i][None], shape) for i in (0, 1))
    inside = lax.broadcasted_iota(jnp.uint32, shape, 0)

    def trip(_, start):
        return None, function(threefry2x32(key_0, key_1, jnp.zeros(shape, jnp.uint32), inside + start)[0])

    starts = np.uint32(first) + np.uint32(rows) * jnp.arange(trips, dtype=jnp.uint32)
    return lax.scan(trip, None, starts)[1].reshape(-1, shape[1])[:count]


def normals_and_uniforms_lanes(
    keys: Key[Array, " B"], normals: int, uniforms: int, dtype: DTypeLike = jnp.float32
) -> tuple[Float[Array, "N B"], Float[Array, "U B"]]:
    """Standard normals `[normals, B]` and uniforms on (0, 1) `[uniforms, B]`, one typed threefry key per lane.

    They have 23 random bits whatever the dtype: normals stay within 5.4 of zero.

    Raises:
        ValueError: keys of another generator than threefry2x32.
    """
    if str(random.key_impl(keys)) != "threefry2x32":
        raise ValueError(f"keys must be of the kind threefry2x32; got {random.key_impl(keys)}")
    words = jnp.moveaxis(random.key_data(keys), -1, 0)
    z = _drawn(words, 0, normals, _normal) if normals else jnp.zeros((0, words.shape[1]), jnp.float32)
    u = _drawn(words, normals, uniforms, _unit) if uniforms else jnp.zeros((0, words.shape[1]), jnp.float32)
    return z.astype(dtype), u.astype(dtype)


def normals_and_uniforms(key: Key[Array, ""], normals: int, uniforms: int, dtype: DTypeLike = jnp.float32):
    """Standard normals `[normals]` and uniforms on (0, 1) `[uniforms]` from one key."""
    z, u = normals_and_uniforms_lanes(key[None], normals, uniforms, dtype)
    return z[:, 0], u[:, 0]
