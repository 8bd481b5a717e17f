"""All random numbers of a step in one call per chain.

Each chain owns its key, so what a chain draws does not depend on how many others run beside it. Drawing bits once
and mapping them to normals and uniforms is cheaper than one threefry call per use.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Key

_SQRT2 = np.float32(np.sqrt(2.0))


def normals_and_uniforms_lanes(
    keys: Key[Array, " B"], normals: int, uniforms: int, dtype: DTypeLike = jnp.float32
) -> tuple[Float[Array, "N B"], Float[Array, "U B"]]:
    """Standard normals `[normals, B]` and uniforms on (0, 1) `[uniforms, B]`, one key per lane.

    They have 23 random bits whatever the dtype: normals stay within 5.4 of zero.
    """
    bits = jax.vmap(lambda key: random.bits(key, (normals + uniforms,), jnp.uint32), out_axes=-1)(keys)
    # 23 random mantissa bits, centred in their cell: never 0 or 1, symmetric about 1/2
    unit = (lax.shift_right_logical(bits, np.uint32(9)).astype(jnp.float32) + 0.5) * np.float32(2.0**-23)
    z = _SQRT2 * lax.erf_inv(2.0 * unit[:normals] - 1.0)
    return z.astype(dtype), unit[normals:].astype(dtype)


def normals_and_uniforms(key: Key[Array, ""], normals: int, uniforms: int, dtype: DTypeLike = jnp.float32):
    """Standard normals `[normals]` and uniforms on (0, 1) `[uniforms]` from one key."""
    z, u = normals_and_uniforms_lanes(key[None], normals, uniforms, dtype)
    return z[:, 0], u[:, 0]
