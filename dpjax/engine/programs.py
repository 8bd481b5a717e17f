"""The compiled programs of the engine: start a block, run a segment of steps, spread blocks over devices."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from dpjax.engine import hosts, reducers
from dpjax.engine.sampler import KEY_BLOCK, LaneSampler, Numbered, first_keys, step_keys
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


class Shared(NamedTuple):
    """What all blocks of a call have in common: blocks in use on each device, number of the first key block of the
    segment (0 for the start), and the sampler's settings that are numbers."""

    live: Any
    first: Any
    numbers: Any


class Piece(NamedTuple):
    """What the program of a segment is compiled for; see `Schedule`."""

    segment: int
    thin: int
    stream: bool


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

    @property
    def piece(self) -> Piece:
        return Piece(self.segment, self.thin, self.stream)


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


def _given(sampler: LaneSampler, numbers) -> Any:
    return sampler.with_numbers(numbers) if isinstance(sampler, Numbered) else sampler


def _init_block(sampler: LaneSampler, chains: int, shared: Shared, model, observed, truth, words):
    TRACES["init"] += 1
    sampler = _given(sampler, shared.numbers)
    model, observed = jax.tree.map(lambda x: repeat_lanes(x, chains), (model, observed))
    return sampler.init_lanes(model, observed, first_keys(_typed(words)), chains)


def _segment_block(
    sampler: LaneSampler, chains: int, plan: Piece, shared: Shared, model, observed, truth, words, carry, bins
):
    """Run one segment of one block; returns the carry and a `_reducers.Segment`."""
    TRACES["segment"] += 1
    sampler, first = _given(sampler, shared.numbers), shared.first
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
    """Map over the blocks in use on each device, and over devices; the first argument is shared by all blocks.

    Blocks that are not in use cost nothing, and zeros stand in their place.
    """

    def mapped(shared, *blocked):
        count = jax.tree.leaves(blocked)[0].shape[0]
        if count == 1:
            return lax.map(lambda x: function(shared, *x), blocked)
        traced = jax.jit(function)  # once, for its shapes and for the loop
        one = lambda x, i: lax.dynamic_index_in_dim(x, i, keepdims=False)
        shapes = jax.eval_shape(traced, shared, *jax.tree.map(lambda x: x[0], blocked))

        def block(i, done):
            found = traced(shared, *jax.tree.map(lambda x: one(x, i), blocked))
            return jax.tree.map(lambda all_, x: lax.dynamic_update_index_in_dim(all_, x, i, 0), done, found)

        empty = jax.tree.map(lambda x: jnp.zeros((count, *x.shape), x.dtype), shapes)
        return lax.fori_loop(np.int32(0), shared.live, block, empty)

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


def everywhere(tree, devices: int):
    """Numbers that every device, of every process, has."""
    tree = jax.tree.map(jnp.asarray, tree)
    if hosts.count() == 1:
        return tree
    return jax.device_put(tree, NamedSharding(_mesh(devices), Spec()))


def settings_of(sampler: LaneSampler, model: Any, dtype: Any) -> Any:
    """The settings that programs take as numbers: ints in 32 bits, floats of the dtype of the algebra; `model`: of one
    problem."""
    if not isinstance(sampler, Numbered):
        return ()
    kind = lambda x: np.asarray(x, np.int32 if isinstance(x, int | np.integer) else dtype)
    return jax.tree.map(kind, sampler.numbers(model))


def _abstract(tree, devices: int):
    """Shapes of block-major arrays with where they will lie."""
    if devices == 1:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)
    sharding = NamedSharding(_mesh(devices), Spec("blocks"))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)


def compiled(
    sampler: LaneSampler, chains: int, devices: int, plan: Piece, numbers: Any, inputs: Inputs, bins: Any
) -> Programs:
    """Both programs, compiled side by side, once per (sampler but for its numbers, layout, shapes).

    Args:
        numbers: `settings_of` the sampler.
        inputs, bins: arrays, or their shapes (`jax.ShapeDtypeStruct`): nothing is run.
    """
    start = time.perf_counter()
    sampler = sampler.general() if isinstance(sampler, Numbered) else sampler
    inputs, bins = _abstract((inputs, bins), devices)
    leaves, tree = jax.tree.flatten((numbers, inputs, bins))
    shapes = tuple((x.shape, str(x.dtype)) for x in leaves)
    tag = (sampler, chains, devices, tree, shapes, jax.config.jax_enable_x64)  # type: ignore[attr-defined]
    everyone = None if devices == 1 else NamedSharding(_mesh(devices), Spec())
    common = Shared(np.int32(0), np.uint32(0), numbers)
    common = jax.tree.map(lambda x: jax.ShapeDtypeStruct((), x.dtype, sharding=everyone), common)
    begun, segment = _PROGRAMS.get(("init", *tag)), _PROGRAMS.get(("segment", plan, *tag))
    if begun is not None and segment is not None:
        return Programs(begun[0], segment, 0.0)
    make_room()
    jobs = []
    with ThreadPoolExecutor(2) as pool:  # XLA compiles outside of the interpreter's lock
        if begun is None:
            low = jax.jit(_spread(partial(_init_block, sampler, chains), devices)).lower(common, *inputs)
            shape = low.out_info
            jobs.append(pool.submit(low.compile, _LIGHTLY if jax.default_backend() == "cpu" else None))
        else:
            shape = begun[1]
        if segment is None:
            low = jax.jit(_spread(partial(_segment_block, sampler, chains, plan), devices), donate_argnums=(5,)).lower(
                common, *inputs, _abstract(shape, devices), bins
            )
            segment = pool.submit(low.compile).result()
        if begun is None:
            begun = (jobs[0].result(), shape)
    _PROGRAMS[("init", *tag)], _PROGRAMS[("segment", plan, *tag)] = begun, segment
    return Programs(begun[0], segment, time.perf_counter() - start)
