"""One chain in the signature, many chains in the arithmetic.

Every hot kernel of this package is written once, on arrays whose LAST axis runs over chains ("lanes"),
because XLA turns elementwise work on a long minor axis into vector instructions; a batch axis in front of a
5 x 5 matrix gives it nothing to vectorise. Users should not have to know: `batch_last` turns such a function
into one that takes and returns the arrays of a single chain, and whose `jax.vmap` runs the lane code once
over the whole batch. The lane code stays reachable as `f.lanes` for callers that already hold lanes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap


def to_lane(x: Any) -> Any:
    """Give a single-chain array a lane axis of length one."""
    return x[..., None]


def from_lane(x: Any) -> Any:
    """Drop the lane axis of a batch of one."""
    return x[..., 0]


def repeat_lanes(x: Any, count: int) -> Any:
    """The lanes `[..., B]` `count` times, one after another: `[..., count * B]`."""
    return jnp.tile(x, (1,) * (x.ndim - 1) + (count,))


def split_lanes(x: Any, count: int) -> Any:
    """Inverse of joining `count` groups of lanes: `[..., count * B]` as `[..., count, B]`."""
    return x.reshape(*x.shape[:-1], count, x.shape[-1] // count)


def batch_last(lanes: Callable[..., Any]) -> Any:
    """Wrap lane code (arrays `[..., B]`) as a single-chain function with a batching rule.

    Args:
        lanes: function of pytrees of arrays whose last axis is the lane axis, all of the same length B (B = 1
            must work). All arguments are positional and traced; close over static ones with
            `functools.partial` before wrapping.

    Returns:
        Function of the same pytrees without the lane axis. Under `jax.vmap` (any `in_axes`) it moves the
        mapped axes last, broadcasts unmapped arguments and calls `lanes` once. It can be differentiated in both
        modes. Attribute `lanes` holds the wrapped function.
    """

    def plain(*args: Any) -> Any:
        return jax.tree.map(from_lane, lanes(*jax.tree.map(to_lane, args)))

    @custom_vmap
    def one(*args: Any) -> Any:
        return plain(*args)

    @one.def_vmap
    def rule(size: int, batched: Any, *args: Any) -> Any:
        def last(x: Any, mapped: bool) -> Any:
            return jnp.moveaxis(x, 0, -1) if mapped else jnp.broadcast_to(x[..., None], (*x.shape, size))

        out = lanes(*jax.tree.map(last, args, tuple(batched)))
        out = jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), out)
        return out, jax.tree.map(lambda _: True, out)

    # a kernel called outside of jit would otherwise be traced anew each time
    compiled = jax.jit(one, inline=True)

    @jax.custom_jvp
    @functools.wraps(lanes)
    def single(*args: Any) -> Any:
        return compiled(*args)

    @single.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        # custom_vmap cannot be transposed, so derivatives of both modes go through the unwrapped code
        return jax.jvp(plain, primals, tangents)

    single.lanes = lanes  # type: ignore[attr-defined]
    return single
