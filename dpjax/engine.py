"""Run many independent problems, several chains each, in one compiled call.

Work is cut three ways. Lanes: a block of `chains x problems` chains that fits the core's cache runs through all its
steps as one array program (batch last). Devices: blocks are spread over devices by `shard_map`; a problem's chains
stay together, since warm-up pools over them. Steps: the host calls a compiled segment of steps with donated state
again and again, and between calls reports progress and takes the draws away. Sizes are padded, so the number of
problems does not trigger compilation, and everything that varies over a study is a traced array.

Keys: problem i, chain c uses fold_in(fold_in(key, i), c); key block k of `KEY_BLOCK` steps is split from fold_in of
that key with k. What a chain draws depends on nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from ._layout import Layout, layout, segment_length
from ._programs import KEY_BLOCK, place, run_group
from .errors import InputError
from .mechanisms import MECHANISMS
from .models.base import Model, Observed
from .samplers.base import LaneSampler

#: Statistics beyond this many noise scales overflow when squared in float32.
MOST_NOISE_UNITS = 1e15
#: Largest n / b^2 with which a singular covariance plus the noise's is inverted in float32.
MOST_SPREAD = 1e4
#: Streaming keeps at most this many batches of draws per chain.
MOST_BATCHES = 32
#: Result codes per chain.
OK, NON_FINITE, NOT_MOVING = 0, 1, 2


@dataclass(frozen=True)
class Problems:
    """T independent inference problems of one kind.

    z: released statistics `[T, D]` in scaled units; n: numbers of records `[T]`; scale: noise scale per entry `[T, D]`
    (Laplace b, Gaussian standard deviation); model: prior, leaves with or without a leading axis T; mechanism:
    "laplace" or "gaussian"; exact: the exact statistics `[T, D]`, in simulations and for public data only.
    """

    z: np.ndarray
    n: np.ndarray
    scale: np.ndarray
    model: Model
    mechanism: str
    exact: np.ndarray | None = None
    untruncated: np.ndarray | None = None

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
        return jax.tree.map(lambda x: x[0], self.model) if self._batched() else self.model

    def _batched(self) -> bool:
        return min(leaf.ndim for leaf in jax.tree.leaves(self.model)) > self.model.smallest_rank

    def batched_model(self) -> Model:
        """The model with a leading axis T on every leaf."""
        count = self.z.shape[0]
        if self._batched():
            return self.model
        return jax.tree.map(lambda x: np.broadcast_to(np.asarray(x), (count, *x.shape)), self.model)

    def take(self, index: Sequence[int] | np.ndarray) -> Problems:
        """The problems at `index`."""
        index = np.asarray(index)
        exact, untruncated = (None if x is None else x[index] for x in (self.exact, self.untruncated))
        model = jax.tree.map(lambda x: np.asarray(x)[index], self.batched_model())
        return Problems(self.z[index], self.n[index], self.scale[index], model, self.mechanism, exact, untruncated)

    def __len__(self) -> int:
        return len(self.z)


@dataclass
class Run:
    """What a run produced.

    draws: reported parameters `[T, C, S, K]` in scaled units, or None when streaming; codes `[T, C]` (0 = ok, 1 = not
    finite, 2 = not moving); accept and divergences `[T, C]`; batch_means and batch_squares `[T, C, batches, K]` (mean
    and mean square of each segment's draws) and below `[T, C, K]` (draws below the truth) when streaming.
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
    batch_means: np.ndarray | Any = None
    batch_squares: np.ndarray | Any = None
    below: np.ndarray | Any = None
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
    progress: Callable[[int, int], None] | None = None,
) -> Run:
    """Run `chains` chains on every problem with one sampler; no rerun, no diagnosis.

    Args:
        sampler: a lane sampler (`dpjax.samplers`).
        problems: T problems.
        seed: seed of the run; problem i is keyed by `first_problem + i` (or by `first_problem[i]`).
        chains, draws: per problem and per chain; `draws` are kept after the sampler's own warm-up.
        thin: keep every thin-th step; a divisor or a multiple of 20.
        truth: `[T, K]` reported parameters to rank against (streaming).
        stream: keep segment sums instead of draws; memory does not grow with `draws`.
        chains_per_batch: lanes per block (default: cache-sized).
        devices: how many devices (default: all of the default backend).
        segment: steps per host call; a divisor of the warm-up (the draws do not depend on it).
        progress: called on the host with (steps done, steps in all), over all groups.

    Raises:
        InputError: sizes out of range.
    """
    count, statistics = problems.z.shape
    for name, value in (("chains", chains), ("draws", draws), ("thin", thin)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"{name} must be a whole number, at least 1; got {value!r}")
    if KEY_BLOCK % thin and thin % KEY_BLOCK:
        raise InputError(f"thin must be a divisor or a multiple of {KEY_BLOCK}; got {thin}")
    if count == 0:
        raise InputError("there must be at least one problem")
    if stream and truth is None:
        raise InputError("streaming needs the true parameters to rank against")
    available = len(jax.devices())
    devices = min(available, count) if devices is None else devices
    if not 1 <= devices <= available:
        raise InputError(f"devices must lie in 1..{available}; got {devices}")
    everything64 = getattr(sampler, "float64", False) or _ill_conditioned(problems)
    plan = layout(count, chains, statistics, devices, chains_per_batch, getattr(sampler, "widest_block", None))
    float64 = everything64 or bool(np.max(problems.n) > problems.model.float64_above)
    names = problems.model_template().parameter_names

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
    total = warm_calls + sample_calls
    x64 = jax.config.jax_enable_x64  # type: ignore[attr-defined]

    with precision(float64):
        state = jnp.float64 if float64 or x64 else jnp.float32
        work = jnp.float64 if x64 or everything64 else jnp.float32
        run = _Groups(problems, plan, seed, first_problem, truth, state, work)
        pieces: list[list[Any]] = []
        seconds = compile_seconds = 0.0
        for group in range(plan.calls):
            args = run.arguments(group)
            spent, compiled, kept = run_group(
                sampler,
                plan,
                args,
                segment,
                thin,
                stream,
                warm_calls,
                sample_calls,
                per_batch,
                (lambda done, g=group: progress(g * total + done, plan.calls * total)) if progress else None,
            )
            seconds, compile_seconds = seconds + spent, compile_seconds + compiled
            pieces.append(kept)
        return _collect(
            pieces,
            plan,
            count,
            names,
            sampler,
            draws,
            stream,
            truth,
            seconds,
            compile_seconds,
            {
                "thin": thin,
                "segment": segment,
                "segments_per_batch": per_batch,
                "seed": seed,
                "key_block": KEY_BLOCK,
                "lanes_per_block": plan.problems_per_block * chains,
                "devices": devices,
                "float64_positions": float64,
            },
        )


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

    def arguments(self, group: int):
        plan, problems = self.plan, self.problems
        size, count = plan.problems_per_call, len(problems)
        slots = np.arange(group * size, (group + 1) * size)
        index = np.where(slots < count, slots, 0)  # padding repeats problem 0 under its own keys
        numbers = (
            slots + self.first_problem
            if np.ndim(self.first_problem) == 0
            else np.where(slots < count, np.asarray(self.first_problem)[index], slots + 2**31)
        )

        def blocked(x, dtype):
            x = np.asarray(x)[index].astype(dtype)
            x = x.reshape(plan.blocks * plan.devices, plan.problems_per_block, *x.shape[1:])
            return np.moveaxis(x, 1, -1)

        dtypes = Observed(self.state, self.state, self.work, self.state)  # type: ignore[arg-type]
        observed = Observed(*map(blocked, problems.observed(), dtypes))
        model = jax.tree.map(lambda x: blocked(x, self.work), problems.batched_model())
        width = len(problems.model_template().parameter_names)
        truth = np.zeros((count, width)) if self.truth is None else np.asarray(self.truth)
        base = random.key(self.seed, impl="threefry2x32")
        chain_keys = jax.vmap(
            lambda i: jax.vmap(lambda c: random.fold_in(random.fold_in(base, i), c))(
                jnp.arange(plan.chains, dtype=jnp.uint32)
            )
        )(jnp.asarray(numbers.astype(np.uint32)))
        chain_keys = chain_keys.reshape(plan.blocks * plan.devices, plan.problems_per_block, plan.chains)
        chain_keys = jnp.swapaxes(chain_keys, 1, 2).reshape(plan.blocks * plan.devices, -1)
        return place((model, observed, blocked(truth, self.work), chain_keys), plan.devices)


def _collect(pieces, plan, count, names, sampler, draws, stream, truth, seconds, compile_seconds, settings) -> Run:
    """Undo the block layout: lanes back to [T, C]."""
    chains, per_block = plan.chains, plan.problems_per_block

    def unblock(x):  # [blocks, ..., C * T'] -> [T, C, ...]
        x = x.reshape(*x.shape[:-1], chains, per_block)
        x = np.moveaxis(x, (-1, -2), (1, 2))
        return x.reshape(-1, *x.shape[2:])

    def gather(position, stack_axis=None):
        groups = []
        for kept in pieces:
            parts = [unblock(out[position]) for out in kept]
            groups.append(np.concatenate(parts, 2) if stack_axis is None else np.stack(parts, stack_axis))
        return np.concatenate(groups)[:count]

    common = {
        "method": sampler.name,
        "names": names,
        "seconds": seconds,
        "compile_seconds": compile_seconds,
        "chains": chains,
        "settings": settings,
    }
    accept, divergences, finite = (gather(k, 2) for k in ((3, 4, 5) if stream else (1, 2, 3)))
    if stream:
        accept = accept / settings["segments_per_batch"]
    codes = np.where(finite.all(2), OK, NON_FINITE)
    codes = np.where((codes == OK) & (accept.mean(2) < 1e-3), NOT_MOVING, codes)
    common |= {"codes": codes, "accept": accept.mean(2), "divergences": divergences.sum(2)}
    if not stream:
        return Run(draws=gather(0)[:, :, :draws], draws_per_chain=draws, **common)
    shift = np.asarray(truth, np.float64)[:, None, None]
    joined = settings["segments_per_batch"]
    mean, square = (gather(k, 2).astype(np.float64) / joined for k in (0, 1))
    batches = mean.shape[2]
    per_batch = settings["segment"] // settings["thin"] * joined
    return Run(
        draws=None,
        draws_per_chain=batches * per_batch,
        below=gather(2, 2).sum(2),
        batch_means=mean + shift,
        batch_squares=square + 2 * shift * mean + shift**2,
        **common,
    )


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
