"""JAX and the kernels as mechanisms use them: loaded at first use, since the release path must not load JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpjax._base.lazy import LazyModule

if TYPE_CHECKING:
    import jax
    import jax.numpy as jnp

    from dpjax.kernels import augmentation, special
else:
    jax, jnp = LazyModule("jax"), LazyModule("jax.numpy")
    augmentation, special = LazyModule("dpjax.kernels.augmentation"), LazyModule("dpjax.kernels.special")


def lift(scale: Any, ndim: int) -> Any:
    """Leading axes of length 1 up to `ndim` axes: ranks are never broadcast silently here."""
    return scale.reshape((1,) * max(ndim - scale.ndim, 0) + scale.shape)


__all__ = ["augmentation", "jax", "jnp", "lift", "special"]
