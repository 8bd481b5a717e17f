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

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax._base.checks import check_run
from dpjax.engine import hosts
from dpjax.engine.checkpoint import Checkpoint
from dpjax.engine.cutting import Groups
from dpjax.engine.layout import layout, segment_length
from dpjax.engine.loop import GroupLoop, Progress, Streamed, join
from dpjax.engine.problems import Problems, precision
from dpjax.engine.programs import Schedule, compiled, settings_of
from dpjax.engine.result_codes import NON_FINITE, NOT_MOVING, OK
from dpjax.engine.results import Chains, Run, replace_problems
from dpjax.engine.sampler import KEY_BLOCK, LaneSampler
from dpjax.errors import InputError

#: Largest n / b^2 with which a singular covariance plus the noise's is inverted in float32.
MOST_SPREAD = 1e4
#: Streaming keeps at most this many batches of draws per chain.
MOST_BATCHES = 32
__all__ = [
    "NON_FINITE",
    "NOT_MOVING",
    "OK",
    "Chains",
    "Problems",
    "Progress",
    "Run",
    "precision",
    "replace_problems",
    "run_chains",
]


def _ill_conditioned(problems: Problems) -> bool:
    """Whether a singular covariance plus the noise's is beyond float32."""
    largest = (problems.n[:, None] / problems.scale**2).max()
    return bool(problems.model_template().singular and largest > MOST_SPREAD)


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
    only: np.ndarray | None = None,
    replicates: int = 1,
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
        only: numbers of the problems to run, by the very programs of a run of all of them with the same `segment`;
            their warm-up is then lengthened to whole segments.
        replicates: run this many times the chains, `chains` of them at a time; only those learn from each other in
            warm-up. Not for streaming.

    Returns:
        The run, of the problems `only`, with `replicates * chains` chains each.

    Raises:
        InputError: sizes out of range, or a checkpoint of another run.
    """
    count, statistics = problems.z.shape
    check_run(chains, draws, thin, count, stream)
    if KEY_BLOCK % thin and thin % KEY_BLOCK:
        raise InputError(f"thin must be a divisor or a multiple of {KEY_BLOCK}; got {thin}")
    if count == 0:
        raise InputError("there must be at least one problem")
    if stream and replicates > 1:
        raise InputError("replicates are not for streaming")
    available = len(jax.devices())
    if devices is not None and not 1 <= devices <= available:
        raise InputError(f"devices must lie in 1..{available}; got {devices}")
    everything64 = getattr(sampler, "float64", False) or _ill_conditioned(problems)
    widest = getattr(sampler, "widest_block", None)
    wanted = getattr(sampler, "block_lanes", None)
    lanes = None if wanted is None else wanted(problems.model_template(), chains)
    plan = layout(count, chains, statistics, devices or available, chains_per_batch, widest, lanes)
    if plan.devices < hosts.count():
        raise InputError(f"{count} problems make {plan.devices} blocks, too few for {hosts.count()} processes")
    chosen = np.arange(count) if only is None else np.asarray(only, np.int64)
    entries = len(chosen) * replicates
    plan = plan.for_count(entries)
    float64 = everything64 or bool(np.max(problems.n) > problems.model.float64_above)
    names = problems.model_template().parameter_names
    schedule = _schedule(sampler, draws, thin, stream, segment, only is not None)
    x64 = jax.config.jax_enable_x64  # type: ignore[attr-defined]
    settings = {
        "thin": thin,
        "segment": schedule.segment,
        "segments_per_batch": schedule.per_batch,
        "seed": seed,
        "key_block": KEY_BLOCK,
        "lanes_per_block": plan.problems_per_block * chains,
        "devices": plan.devices,
        "processes": hosts.count(),
        "float64_positions": float64,
    }

    with precision(float64):
        state = jnp.float64 if float64 or x64 else jnp.float32
        work = jnp.float64 if x64 or everything64 else jnp.float32
        cut = Groups(problems, chosen, replicates, plan, seed, first_problem, truth, state, work)
        inputs, bins = cut.arguments(0)
        numbers = settings_of(sampler, problems.model_template(), work)
        programs = compiled(sampler, chains, plan.devices, schedule.piece, numbers, inputs, bins)
        loop = GroupLoop(programs, numbers, plan, schedule, names, truth is not None, progress, entries, checkpoint)
        if checkpoint is not None:
            identity = {"sampler": repr(sampler), "draws": draws, "stream": stream, "layout": repr(plan), **settings}
            identity |= {"only": None if only is None else chosen.tolist(), "replicates": replicates}
            checkpoint.open(identity, (problems.z, problems.n, problems.scale, truth, problems.model))
        pieces = []
        for group in range(0 if compile_only else plan.calls):
            pieces.append(loop.run(group, lambda g=group: cut.arguments(g) if g else (inputs, bins)))  # type: ignore[misc]
    width = len(names)
    if compile_only:
        shape = (entries, chains)
        pieces = [{"draws": np.zeros((*shape, 0, width)), "codes": np.zeros(shape, np.int32),
                   "accept": np.zeros(shape), "divergences": np.zeros(shape, np.int32)}]  # fmt: skip
    whole = join(pieces, replicates)
    common: dict[str, Any] = {
        "method": sampler.name, "names": names, "chains": chains * replicates, "settings": settings,
        "seconds": loop.seconds, "compile_seconds": programs.seconds,
        **{k: whole[k] for k in ("codes", "accept", "divergences")},
    }  # fmt: skip
    if not stream or compile_only:
        return Run(draws=whole["draws"][:, :, :draws], draws_per_chain=draws, **common)
    per_chain = schedule.sample * schedule.segment // thin
    return Run(draws=None, draws_per_chain=per_chain, streamed=Streamed.read(whole), **common)


def _schedule(
    sampler: LaneSampler, draws: int, thin: int, stream: bool, segment: int | None, lengthen: bool
) -> Schedule:
    chunk = max(thin, KEY_BLOCK)
    warm = -(-sampler.warmup_iterations // chunk) * chunk
    sampling = -(-draws * thin // chunk) * chunk
    segment = segment_length(warm, sampling, chunk) if segment is None else segment
    warm = -(-warm // segment) * segment if lengthen else warm
    if segment % chunk or warm % segment:
        raise InputError(
            f"segment must be a multiple of {chunk} that divides the warm-up of {warm} steps; got {segment}"
        )
    warm_calls, sample_calls = -(-warm // segment), -(-sampling // segment)
    per_batch = -(-sample_calls // MOST_BATCHES) if stream else 1
    sample_calls = -(-sample_calls // per_batch) * per_batch
    return Schedule(segment, thin, stream, warm_calls, sample_calls, per_batch)
