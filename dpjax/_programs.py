"""The compiled programs of the engine: start a block, run a segment of steps, spread blocks over devices."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from .samplers.base import LaneSampler

#: Steps whose keys come from one split. Part of the definition of a chain's random numbers: do not tune.
KEY_BLOCK = 20
_PROGRAMS: dict[Any, Any] = {}
#: Number of times a program was traced (tests count them).
TRACES = {"init": 0, "segment": 0}


def _lanes(x, chains: int):
    """Repeat a per-problem array over chains: lane c * T + t holds problem t."""
    return jnp.tile(x, (1,) * (x.ndim - 1) + (chains,))


def _init_block(sampler: LaneSampler, chains: int, model, observed, keys):
    TRACES["init"] += 1
    model, observed = jax.tree.map(lambda x: _lanes(x, chains), (model, observed))
    first = jax.vmap(lambda k: random.fold_in(k, np.uint32(0xFFFFFFFF)))(keys)
    return sampler.init_lanes(model, observed, first, chains)


def _segment_block(
    sampler: LaneSampler,
    chains: int,
    steps: int,
    thin: int,
    stream: bool,
    first,
    model,
    observed,
    truth,
    keys,
    carry,
):
    """Run `steps` steps of one block; returns the carry and the thinned draws or their sums."""
    TRACES["segment"] += 1
    model, observed = jax.tree.map(lambda x: _lanes(x, chains), (model, observed))
    per_chunk = max(thin, KEY_BLOCK)

    def key_block(carry, block):
        block_keys = jax.vmap(lambda k: random.fold_in(k, block))(keys)
        step_keys = jax.vmap(lambda k: random.split(k, KEY_BLOCK), out_axes=1)(block_keys)
        index = (block * KEY_BLOCK).astype(jnp.int32) + jnp.arange(KEY_BLOCK, dtype=jnp.int32)

        def step(carry, x):
            carry, draw = sampler.iterate_lanes(model, observed, carry, x[0], x[1], chains)
            return carry, draw

        carry, draws = lax.scan(step, carry, (step_keys, index))
        kept = draws.parameters[thin - 1 :: thin] if thin <= KEY_BLOCK else draws.parameters[-1:]
        return carry, (kept, draws.acceptance.mean(0), draws.divergent.sum(0, dtype=jnp.int32))

    def chunk(carry, number):
        blocks = per_chunk // KEY_BLOCK
        start = first + number * np.uint32(blocks)
        if blocks == 1:
            return key_block(carry, start)
        carry, (kept, acceptance, divergent) = lax.scan(
            lambda c, b: key_block(c, start + b), carry, jnp.arange(blocks, dtype=jnp.uint32)
        )
        return carry, (kept[-1], acceptance.mean(0), divergent.sum(0, dtype=jnp.int32))

    carry, (kept, acceptance, divergent) = lax.scan(chunk, carry, jnp.arange(steps // per_chunk, dtype=jnp.uint32))
    kept = kept.reshape(-1, *kept.shape[2:])  # [draws, K, B]
    acceptance, divergent = acceptance.mean(0), divergent.sum(0, dtype=jnp.int32)
    finite = sampler.finite_lanes(carry)
    if stream:
        target = _lanes(truth, chains)
        shifted = kept - target[None]
        below = (shifted < 0).sum(0, dtype=jnp.int32)
        return carry, (shifted.mean(0), (shifted * shifted).mean(0), below, acceptance, divergent, finite)
    return carry, (kept, acceptance, divergent, finite)


def _spread(function: Callable, devices: int) -> Callable:
    """Map over blocks on each device, and over devices; the first argument is shared by all blocks."""

    def mapped(shared, *blocked):
        return lax.map(lambda x: function(shared, *x), blocked)

    if devices == 1:
        return mapped
    mesh = Mesh(np.array(jax.devices()[:devices]), ("blocks",))

    def spread(shared, *blocked):
        specs = (Spec(), *([Spec("blocks")] * len(blocked)))
        return jax.shard_map(mapped, mesh=mesh, in_specs=specs, out_specs=Spec("blocks"), check_vma=False)(
            shared, *blocked
        )

    return spread


def compiled(tag, function, args, donate: tuple[int, ...] = ()) -> tuple[Any, float]:
    """Compile once per (tag, shapes); returns the executable and the seconds spent compiling now."""
    leaves, tree = jax.tree.flatten(args)
    signature = (tag, tree, tuple((x.shape, str(x.dtype)) for x in leaves), jax.config.jax_enable_x64)  # type: ignore[attr-defined]
    if signature in _PROGRAMS:
        return _PROGRAMS[signature], 0.0
    start = time.perf_counter()
    _PROGRAMS[signature] = jax.jit(function, donate_argnums=donate).lower(*args).compile()
    return _PROGRAMS[signature], time.perf_counter() - start


def place(tree, devices: int):
    """Put block-major arrays onto the devices (blocks are the leading axis)."""
    if devices == 1:
        return jax.tree.map(jnp.asarray, tree)
    mesh = Mesh(np.array(jax.devices()[:devices]), ("blocks",))
    return jax.tree.map(lambda x: jax.device_put(x, NamedSharding(mesh, Spec("blocks"))), tree)


def run_group(sampler, plan, args, segment, thin, stream, warm_calls, sample_calls, per_batch, progress):
    """All segments of one group of blocks; returns seconds, compile seconds and what was kept.

    Stored draws are kept segment by segment; streamed sums are added up over `per_batch` segments, so that their
    number does not grow with the number of draws.
    """
    model, observed, truth, keys = args
    chains = plan.chains
    tag = (sampler, chains, plan.devices)
    zero = jnp.zeros((), jnp.uint32)
    init, spent_compiling = compiled(
        ("init", *tag),
        _spread(lambda _, m, o, k: _init_block(sampler, chains, m, o, k), plan.devices),
        (zero, model, observed, keys),
    )
    start = time.perf_counter()
    carry = jax.block_until_ready(init(zero, model, observed, keys))
    spent = time.perf_counter() - start
    program, more = compiled(
        ("segment", *tag, segment, thin, stream),
        _spread(
            lambda first, m, o, t, k, c: _segment_block(sampler, chains, segment, thin, stream, first, m, o, t, k, c),
            plan.devices,
        ),
        (zero, model, observed, truth, keys, carry),
        donate=(5,),
    )
    kept = []
    start = time.perf_counter()
    for call in range(warm_calls + sample_calls):
        first = jnp.asarray(call * (segment // KEY_BLOCK), jnp.uint32)
        carry, out = program(first, model, observed, truth, keys, carry)
        if call >= warm_calls:
            if stream and (call - warm_calls) % per_batch:
                kept[-1] = _add(kept[-1], out)
            else:
                kept.append(out)
        if progress is not None:
            jax.block_until_ready(carry)
            progress(call + 1)
    jax.block_until_ready((carry, kept))
    spent += time.perf_counter() - start
    return spent, spent_compiling + more, [jax.tree.map(np.asarray, out) for out in kept]


@jax.jit
def _add(total, out):
    """Sum of two segments' sums (the flags of finite lanes: both)."""
    return (*(a + b for a, b in zip(total[:-1], out[:-1], strict=True)), total[-1] & out[-1])
