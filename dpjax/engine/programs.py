"""The compiled programs of the engine: start a block, run a segment of steps, spread blocks over devices."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from dpjax.engine import hosts, reducers
from dpjax.engine.sampler import KEY_BLOCK, LaneSampler, first_keys, step_keys
from dpjax.kernels.batching import repeat_lanes

KEY_KIND = "threefry2x32"
_PROGRAMS: dict[Any, Any] = {}
#: Memory maps of this process above which programs are forgotten: a large program has hundreds, Linux allows 65,530
#: (`vm.max_map_count`), and XLA crashes when it gets no more.
MOST_MAPS = 20_000
#: The start of a run is a twentieth of its time and a third of its compilation: compiled with less effort on CPU.
_LIGHTLY: Any = {"xla_backend_optimization_level": 1}
#: Number of times a program was traced (tests count them).
TRACES = {"init": 0, "segment": 0}


class Inputs(NamedTuple):
    """What a block of problems is: model, observed statistics, true parameters (zeros if unknown), one threefry key
    per chain as two words `[2, lanes]`; all with blocks as the leading axis."""

    model: Any
    observed: Any
    truth: Any
    keys: Any


@dataclass(frozen=True)
class Schedule:
    """How many steps: segments of `segment` steps, `warm` of them before `sample` that count; draws kept every `thin`
    steps; streaming (`stream`) sums draws over `per_batch` segments instead of keeping them."""

    segment: int
    thin: int
    stream: bool
    warm: int
    sample: int
    per_batch: int

    @property
    def calls(self) -> int:
        return self.warm + self.sample


class Programs(NamedTuple):
    """Compiled start and segment, and the seconds that compiling took just now."""

    init: Any
    segment: Any
    seconds: float


def make_room() -> None:
    """Forget compiled programs, JAX's too, where they hold so many memory maps that a process could run out of them."""
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        _PROGRAMS.clear()
        jax.clear_caches()
        gc.collect()


def _typed(words):
    return random.wrap_key_data(jnp.moveaxis(words, 0, -1), impl=KEY_KIND)


def _init_block(sampler: LaneSampler, chains: int, model, observed, truth, words):
    TRACES["init"] += 1
    model, observed = jax.tree.map(lambda x: repeat_lanes(x, chains), (model, observed))
    return sampler.init_lanes(model, observed, first_keys(_typed(words)), chains)


def _segment_block(
    sampler: LaneSampler, chains: int, plan: Schedule, first, model, observed, truth, words, carry, bins
):
    """Run one segment of one block; returns the carry and a `_reducers.Segment`."""
    TRACES["segment"] += 1
    model, observed = jax.tree.map(lambda x: repeat_lanes(x, chains), (model, observed))
    keys = _typed(words)
    thin = plan.thin
    per_chunk = max(thin, KEY_BLOCK)
    adapt = getattr(sampler, "adapt_lanes", None)

    def key_block(carry, block):
        # words apart, lanes last: interleaved, as keys lie, they make every draw load them one by one
        words = jnp.moveaxis(random.key_data(step_keys(keys, block)), -1, 1)
        index = (block * KEY_BLOCK).astype(jnp.int32) + jnp.arange(KEY_BLOCK, dtype=jnp.int32)

        def step(carry, x):
            carry, draw = sampler.iterate_lanes(model, observed, carry, _typed(x[0]), x[1], chains)
            return carry, (draw, sampler.position_lanes(carry) if adapt else ())  # type: ignore[attr-defined]

        carry, (draws, positions) = lax.scan(step, carry, (words, index))
        if adapt:
            carry = adapt(model, observed, carry, positions, index[-1] + 1, chains)
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

    chunks = jnp.arange(plan.segment // per_chunk, dtype=jnp.uint32)
    carry, (kept, acceptance, divergent) = lax.scan(chunk, carry, chunks)
    kept = kept.reshape(-1, *kept.shape[2:])  # [draws, K, B]
    counts = (acceptance.mean(0), divergent.sum(0, dtype=jnp.int32), sampler.finite_lanes(carry))
    target, bins = jax.tree.map(lambda x: repeat_lanes(x, chains), (truth, bins))
    return carry, reducers.reduce(kept, target, bins, counts, plan.stream)


def _spread(function: Callable, devices: int) -> Callable:
    """Map over blocks on each device, and over devices; the first argument is shared by all blocks."""

    def mapped(shared, *blocked):
        return lax.map(lambda x: function(shared, *x), blocked)

    if devices == 1:
        return mapped
    mesh = _mesh(devices)

    def spread(shared, *blocked):
        specs = (Spec(), *([Spec("blocks")] * len(blocked)))
        return jax.shard_map(mapped, mesh=mesh, in_specs=specs, out_specs=Spec("blocks"), check_vma=False)(
            shared, *blocked
        )

    return spread


def _mesh(devices: int) -> Mesh:
    return Mesh(np.array(jax.devices()[:devices]), ("blocks",))


def place(tree, devices: int):
    """Put block-major arrays onto the devices, those of other processes included (blocks are the leading axis)."""
    if devices == 1:
        return jax.tree.map(jnp.asarray, tree)
    sharding = NamedSharding(_mesh(devices), Spec("blocks"))
    if hosts.count() == 1:
        return jax.tree.map(lambda x: jax.device_put(x, sharding), tree)

    def one(x):
        x = np.asarray(x)
        return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])

    return jax.tree.map(one, tree)


def shared(value, devices: int):
    """A number that every device, of every process, has."""
    if hosts.count() == 1:
        return value
    return jax.device_put(value, NamedSharding(_mesh(devices), Spec()))


def _abstract(tree, devices: int):
    """Shapes of block-major arrays with where they will lie."""
    if devices == 1:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)
    sharding = NamedSharding(_mesh(devices), Spec("blocks"))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)


def compiled(sampler: LaneSampler, chains: int, devices: int, plan: Schedule, inputs: Inputs, bins) -> Programs:
    """Both programs, compiled side by side, once per (sampler, layout, shapes).

    Args:
        inputs, bins: arrays, or their shapes (`jax.ShapeDtypeStruct`): nothing is run.
    """
    start = time.perf_counter()
    inputs, bins = _abstract((inputs, bins), devices)
    leaves, tree = jax.tree.flatten((inputs, bins))
    shapes = tuple((x.shape, str(x.dtype)) for x in leaves)
    tag = (sampler, chains, devices, tree, shapes, jax.config.jax_enable_x64)  # type: ignore[attr-defined]
    first = jax.ShapeDtypeStruct((), jnp.uint32)
    if devices > 1:
        first = jax.ShapeDtypeStruct((), jnp.uint32, sharding=NamedSharding(_mesh(devices), Spec()))
    begun, segment = _PROGRAMS.get(("init", *tag)), _PROGRAMS.get(("segment", plan, *tag))
    if begun is not None and segment is not None:
        return Programs(begun[0], segment, 0.0)
    make_room()
    jobs = []
    with ThreadPoolExecutor(2) as pool:  # XLA compiles outside of the interpreter's lock
        if begun is None:
            low = jax.jit(_spread(lambda _, *block: _init_block(sampler, chains, *block), devices)).lower(
                first, *inputs
            )
            shape = low.out_info
            jobs.append(pool.submit(low.compile, _LIGHTLY if jax.default_backend() == "cpu" else None))
        else:
            shape = begun[1]
        if segment is None:
            low = jax.jit(
                _spread(lambda number, *block: _segment_block(sampler, chains, plan, number, *block), devices),
                donate_argnums=(5,),
            ).lower(first, *inputs, _abstract(shape, devices), bins)
            segment = pool.submit(low.compile).result()
        if begun is None:
            begun = (jobs[0].result(), shape)
    _PROGRAMS[("init", *tag)], _PROGRAMS[("segment", plan, *tag)] = begun, segment
    return Programs(begun[0], segment, time.perf_counter() - start)
