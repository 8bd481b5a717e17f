"""Run many independent problems, several chains each, in one compiled call.

Work is cut three ways. Lanes: a block of `chains x problems` chains that fits the core's cache runs through all its
steps as one array program (batch last). Devices: blocks are spread over devices, of all processes, by `shard_map`; a
problem's chains stay together, since warm-up pools over them. Steps: the host calls a compiled segment of steps with
donated state again and again, and between calls reports progress, keeps checkpoints and takes the draws away. Sizes are
padded, so the number of problems does not trigger compilation, and everything that varies over a study is a traced
array.

Keys: problem i, chain c uses fold_in(fold_in(key, i), c); key block k of `KEY_BLOCK` steps is split from fold_in of
that key with k. What a chain draws depends on nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from . import _hosts
from ._checkpoint import Checkpoint
from ._groups import NON_FINITE, NOT_MOVING, OK, GroupLoop, Progress, Streamed, join
from ._layout import Layout, layout, segment_length
from ._programs import KEY_KIND, Inputs, Schedule, compiled, place
from ._reducers import Bins
from .errors import InputError
from .mechanisms import MECHANISMS
from .models.base import Model, Observed, is_batched
from .samplers.base import KEY_BLOCK, LaneSampler

#: Statistics beyond this many noise scales overflow when squared in float32.
MOST_NOISE_UNITS = 1e15
#: Largest n / b^2 with which a singular covariance plus the noise's is inverted in float32.
MOST_SPREAD = 1e4
#: Streaming keeps at most this many batches of draws per chain.
MOST_BATCHES = 32
__all__ = [
    "NON_FINITE",
    "NOT_MOVING",
    "OK",
    "Problems",
    "Progress",
    "Run",
    "precision",
    "replace_problems",
    "run_chains",
]


@dataclass(frozen=True)
class Problems:
    """T independent inference problems of one kind.

    z: released statistics `[T, D]` in scaled units; n: numbers of records `[T]`; scale: noise scale per entry `[T, D]`
    (Laplace b, Gaussian standard deviation); model: prior, leaves with or without a leading axis T; mechanism:
    "laplace" or "gaussian"; exact: the exact statistics `[T, D]`, in simulations and for public data only; box: bounds
    (lo, hi) of each variable as it enters the statistic `[variables, 2]`, where the records were clipped to them;
    views: the same problems as other methods see them, by name: with more released entries or another model.
    """

    z: np.ndarray
    n: np.ndarray
    scale: np.ndarray
    model: Model
    mechanism: str
    exact: np.ndarray | None = None
    untruncated: np.ndarray | None = None
    box: np.ndarray | None = None
    views: Mapping[str, Problems] = field(default_factory=dict)

    def __post_init__(self):
        z = np.asarray(self.z, np.float64)
        if z.ndim != 2 or z.shape[1] != self.model_template().statistic_dim:
            expected = self.model_template().statistic_dim
            raise InputError(f"z must have shape [problems, {expected}]; got {z.shape}")
        if self.mechanism not in MECHANISMS:
            raise InputError(f"mechanism must be one of {', '.join(MECHANISMS)}; got {self.mechanism!r}")
        count = z.shape[0]
        n = np.broadcast_to(np.asarray(self.n, np.float64), (count,))
        scale = np.asarray(self.scale, np.float64)
        scale = np.broadcast_to(scale[:, None] if scale.ndim == 1 else scale, z.shape)
        if not np.isfinite(z).all():
            raise InputError("z must be finite")
        if not (np.isfinite(n).all() and (n >= 1).all()):
            raise InputError("n must be at least 1 record in every problem")
        if not (np.isfinite(scale).all() and (scale > 0).all()):
            raise InputError("scale must be positive and finite in every problem")
        with np.errstate(over="ignore"):
            largest = max((np.abs(z) / scale).max(initial=0.0), (n[:, None] / scale).max(initial=0.0))
        if len(z) and largest > MOST_NOISE_UNITS:
            raise InputError(
                f"z and n must be at most {MOST_NOISE_UNITS:g} noise scales; got {largest:g}: look at the noise scale"
            )
        object.__setattr__(self, "z", z)
        object.__setattr__(self, "n", n)
        object.__setattr__(self, "scale", scale)

    def observed(self) -> Observed:
        """What samplers condition on, on the host in float64, problems first."""
        n = self.n[:, None]
        return Observed(self.z / self.scale, n / self.scale, np.sqrt(n) / self.scale, self.n)  # type: ignore[arg-type]

    def model_template(self) -> Model:
        """The model of one problem (leaves without the leading axis T)."""
        return jax.tree.map(lambda x: x[0], self.model) if is_batched(self.model) else self.model

    def batched_model(self) -> Model:
        """The model with a leading axis T on every leaf."""
        count = self.z.shape[0]
        if is_batched(self.model):
            return self.model
        return jax.tree.map(lambda x: np.broadcast_to(np.asarray(x), (count, *x.shape)), self.model)

    def take(self, index: Sequence[int] | np.ndarray) -> Problems:
        """The problems at `index`."""
        index = np.asarray(index)
        exact, untruncated = (None if x is None else x[index] for x in (self.exact, self.untruncated))
        model = jax.tree.map(lambda x: np.asarray(x)[index], self.batched_model())
        views = {name: view.take(index) for name, view in self.views.items()}
        return Problems(
            self.z[index], self.n[index], self.scale[index], model, self.mechanism, exact, untruncated, self.box, views
        )

    def __len__(self) -> int:
        return len(self.z)


@dataclass
class Run:
    """What a run produced.

    draws: reported parameters `[T, C, S, K]` in scaled units, or None when streaming; codes `[T, C]` (0 = ok, 1 = not
    finite, 2 = not moving); accept and divergences `[T, C]`; streamed: sums instead of draws, when streaming.
    """

    method: str
    names: tuple[str, ...]
    draws: np.ndarray | Any
    codes: np.ndarray
    accept: np.ndarray
    divergences: np.ndarray
    seconds: float
    compile_seconds: float
    chains: int
    draws_per_chain: int
    streamed: Streamed | None = None
    settings: dict = field(default_factory=dict)
    rerun_mask: np.ndarray | Any = None
    rerun_seconds: float = 0.0
    diagnostics: Any = None

    def __post_init__(self) -> None:
        if self.rerun_mask is None:
            self.rerun_mask = np.zeros(len(self.codes), bool)

    @property
    def reruns(self) -> int:
        """Number of problems that were run again."""
        return int(self.rerun_mask.sum())


def _ill_conditioned(problems: Problems) -> bool:
    """Whether a singular covariance plus the noise's is beyond float32."""
    largest = (problems.n[:, None] / problems.scale**2).max()
    return bool(problems.model_template().singular and largest > MOST_SPREAD)


@contextlib.contextmanager
def precision(float64: bool):
    """64-bit arrays inside the context if asked for; otherwise leave the user's setting alone."""
    if float64 and not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        with jax.enable_x64(True):
            yield
    else:
        yield


# ---- the run -------------------------------------------------------------------------------------------------
def run_chains(
    sampler: LaneSampler,
    problems: Problems,
    *,
    seed: int,
    chains: int = 2,
    draws: int = 500,
    thin: int = 1,
    truth: np.ndarray | None = None,
    stream: bool = False,
    chains_per_batch: int | None = None,
    devices: int | None = None,
    segment: int | None = None,
    first_problem: int | np.ndarray = 0,
    progress: Callable[[Progress], None] | None = None,
    checkpoint: Checkpoint | None = None,
    compile_only: bool = False,
) -> Run:
    """Run `chains` chains on every problem with one sampler; no rerun, no diagnosis.

    Args:
        sampler: a lane sampler (`dpjax.samplers`).
        problems: T problems.
        seed: seed of the run; problem i is keyed by `first_problem + i` (or by `first_problem[i]`).
        chains, draws: per problem and per chain; `draws` are kept after the sampler's own warm-up.
        thin: keep every thin-th step; a divisor or a multiple of 20.
        truth: `[T, K]` reported parameters to rank against (streaming).
        stream: keep sums instead of draws; memory does not grow with `draws`.
        chains_per_batch: lanes per block (default: cache-sized).
        devices: how many devices (default: all of the default backend, of all processes).
        segment: steps per host call; a divisor of the warm-up (the draws do not depend on it).
        progress: called on the host between segments, in the first process.
        checkpoint: where to keep the state between segments, and to go on from.
        compile_only: compile the programs (into the persistent cache, where there is one) and run nothing; the Run
            then holds no draws.

    Raises:
        InputError: sizes out of range, or a checkpoint of another run.
    """
    count, statistics = problems.z.shape
    for name, value in (("chains", chains), ("draws", draws), ("thin", thin)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"{name} must be a whole number, at least 1; got {value!r}")
    if KEY_BLOCK % thin and thin % KEY_BLOCK:
        raise InputError(f"thin must be a divisor or a multiple of {KEY_BLOCK}; got {thin}")
    if count == 0:
        raise InputError("there must be at least one problem")
    available = len(jax.devices())
    if devices is not None and not 1 <= devices <= available:
        raise InputError(f"devices must lie in 1..{available}; got {devices}")
    everything64 = getattr(sampler, "float64", False) or _ill_conditioned(problems)
    widest = getattr(sampler, "widest_block", None)
    wanted = getattr(sampler, "block_lanes", None)
    lanes = None if wanted is None else wanted(problems.model_template(), chains)
    plan = layout(count, chains, statistics, devices or available, chains_per_batch, widest, lanes)
    if plan.devices < _hosts.count():
        raise InputError(f"{count} problems make {plan.devices} blocks, too few for {_hosts.count()} processes")
    float64 = everything64 or bool(np.max(problems.n) > problems.model.float64_above)
    names = problems.model_template().parameter_names
    schedule = _schedule(sampler, draws, thin, stream, segment)
    x64 = jax.config.jax_enable_x64  # type: ignore[attr-defined]
    settings = {
        "thin": thin,
        "segment": schedule.segment,
        "segments_per_batch": schedule.per_batch,
        "seed": seed,
        "key_block": KEY_BLOCK,
        "lanes_per_block": plan.problems_per_block * chains,
        "devices": plan.devices,
        "processes": _hosts.count(),
        "float64_positions": float64,
    }

    with precision(float64):
        state = jnp.float64 if float64 or x64 else jnp.float32
        work = jnp.float64 if x64 or everything64 else jnp.float32
        cut = _Groups(problems, plan, seed, first_problem, truth, state, work)
        inputs, bins = cut.arguments(0)
        programs = compiled(sampler, chains, plan.devices, schedule, inputs, bins)
        loop = GroupLoop(programs, plan, schedule, names, truth is not None, progress, count, checkpoint)
        if checkpoint is not None:
            identity = {"sampler": repr(sampler), "draws": draws, "stream": stream, "layout": repr(plan), **settings}
            checkpoint.open(identity, (problems.z, problems.n, problems.scale, truth, problems.model))
        pieces = []
        for group in range(0 if compile_only else plan.calls):
            pieces.append(loop.run(group, lambda g=group: cut.arguments(g) if g else (inputs, bins)))  # type: ignore[misc]
    width = len(names)
    if compile_only:
        shape = (count, chains)
        pieces = [{"draws": np.zeros((*shape, 0, width)), "codes": np.zeros(shape, np.int32),
                   "accept": np.zeros(shape), "divergences": np.zeros(shape, np.int32)}]  # fmt: skip
    whole = join(pieces, count)
    common: dict[str, Any] = {
        "method": sampler.name, "names": names, "chains": chains, "settings": settings, "seconds": loop.seconds,
        "compile_seconds": programs.seconds, **{k: whole[k] for k in ("codes", "accept", "divergences")},
    }  # fmt: skip
    if not stream or compile_only:
        return Run(draws=whole["draws"][:, :, :draws], draws_per_chain=draws, **common)
    per_chain = schedule.sample * schedule.segment // thin
    return Run(draws=None, draws_per_chain=per_chain, streamed=Streamed.read(whole), **common)


def _schedule(sampler: LaneSampler, draws: int, thin: int, stream: bool, segment: int | None) -> Schedule:
    chunk = max(thin, KEY_BLOCK)
    warm = -(-sampler.warmup_iterations // chunk) * chunk
    sampling = -(-draws * thin // chunk) * chunk
    segment = segment_length(warm, sampling, chunk) if segment is None else segment
    if segment % chunk or warm % segment:
        raise InputError(
            f"segment must be a multiple of {chunk} that divides the warm-up of {warm} steps; got {segment}"
        )
    warm_calls, sample_calls = -(-warm // segment), -(-sampling // segment)
    per_batch = -(-sample_calls // MOST_BATCHES) if stream else 1
    sample_calls = -(-sample_calls // per_batch) * per_batch
    return Schedule(segment, thin, stream, warm_calls, sample_calls, per_batch)


@dataclass
class _Groups:
    """Cuts the problems into the block-major arrays of each call."""

    problems: Problems
    plan: Layout
    seed: int
    first_problem: int | np.ndarray
    truth: np.ndarray | None
    state: Any
    work: Any

    def arguments(self, group: int) -> tuple[Inputs, Bins]:
        plan, problems = self.plan, self.problems
        size, count = plan.problems_per_call, len(problems)
        slots = np.arange(group * size, (group + 1) * size)
        index = np.where(slots < count, slots, 0)  # padding repeats problem 0 under its own keys
        numbers = (
            slots + self.first_problem
            if np.ndim(self.first_problem) == 0
            else np.where(slots < count, np.asarray(self.first_problem)[index], slots + 2**31)
        )
        blocks = plan.blocks * plan.devices

        def blocked(x, dtype):
            x = np.asarray(x).astype(dtype)
            x = x.reshape(blocks, plan.problems_per_block, *x.shape[1:])
            return np.ascontiguousarray(np.moveaxis(x, 1, -1))

        here = problems.take(index)
        dtypes = Observed(self.state, self.state, self.work, self.state)  # type: ignore[arg-type]
        observed = Observed(*map(blocked, here.observed(), dtypes))
        model = jax.tree.map(lambda x: blocked(x, self.work), here.model)
        width = len(problems.model_template().parameter_names)
        truth = np.zeros((len(index), width)) if self.truth is None else np.asarray(self.truth)[index]
        words = np.asarray(_chain_keys(self.seed, numbers.astype(np.uint32), plan.chains))  # [T', C, 2]
        words = words.reshape(blocks, plan.problems_per_block, plan.chains, 2)
        words = np.ascontiguousarray(words.transpose(0, 3, 2, 1)).reshape(blocks, 2, -1)
        empty = np.zeros((blocks, width, plan.problems_per_block), self.work)
        inputs = Inputs(model, observed, blocked(truth, self.work), words)
        return place((inputs, Bins(empty, empty.copy())), plan.devices)


@partial(jax.jit, static_argnums=2)
def _chain_keys(seed, numbers, chains: int):
    """Key words `[T, C, 2]` of chain c of problem i: fold_in(fold_in(key(seed), i), c)."""
    base = random.key(seed, impl=KEY_KIND)
    number = jnp.arange(chains, dtype=jnp.uint32)
    one = lambda i, c: random.key_data(random.fold_in(random.fold_in(base, i), c))
    return jax.vmap(lambda i: jax.vmap(lambda c: one(i, c))(number))(numbers)


def replace_problems(run: Run, index: np.ndarray, other: Run) -> Run:
    """Put the draws of `other` (same problems, more chains) into places `index` of `run`.

    Extra chains are interleaved, draw by draw, into the slots of the first run, so that shapes stay equal.
    """
    ratio = other.chains // run.chains
    if len(index) == len(run.codes):
        return replace(
            other,
            seconds=run.seconds + other.seconds,
            compile_seconds=run.compile_seconds + other.compile_seconds,
        )
    step = np.arange(run.draws.shape[2])
    chain = np.arange(run.chains)[:, None] + run.chains * (step % ratio)[None]
    run.draws[index] = other.draws[:, chain, step[None]]
    first = slice(0, run.chains)
    run.codes[index] = other.codes.max(1)[:, None]
    run.accept[index], run.divergences[index] = other.accept[:, first], other.divergences[:, first]
    run.seconds += other.seconds
    run.compile_seconds += other.compile_seconds
    return run
