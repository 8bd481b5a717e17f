"""JAX and the kernels as families use them: loaded at first use, since the release path must not load JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpjax._base.lazy import LazyModule

if TYPE_CHECKING:
    import jax
    import jax.numpy as jnp

    from dpjax.kernels import special, truncated
else:
    jax, jnp = LazyModule("jax"), LazyModule("jax.numpy")
    special, truncated = LazyModule("dpjax.kernels.special"), LazyModule("dpjax.kernels.truncated")

__all__ = ["jax", "jnp", "special", "truncated"]
