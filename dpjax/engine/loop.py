"""The host's loop over one group of blocks: segments, progress, checkpoints, and what is kept of the results."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from dpjax.diagnostics.batch_means import batch_means_ess, split_rhat
from dpjax.engine import hosts
from dpjax.engine.checkpoint import Checkpoint
from dpjax.engine.layout import Layout
from dpjax.engine.programs import Programs, Schedule, Shared, everywhere, place
from dpjax.engine.reducers import Bins, Segment, locate, merge, quantiles
from dpjax.engine.result_codes import NON_FINITE, NOT_MOVING, OK
from dpjax.engine.sampler import KEY_BLOCK

#: Levels of the quantiles that streaming keeps.
LEVELS = (0.05, 0.5, 0.95)
#: Seconds between looks at convergence for the progress line.
_LOOK_EVERY = 1.0


class Progress(NamedTuple):
    """How far a run is: chain-steps done and in all, and the largest split R-hat and the smallest batch-means ESS over
    the problems of the group at work (None before there are two batches)."""

    done: int
    total: int
    rhat: float | None = None
    ess: float | None = None


@dataclass(frozen=True)
class Streamed:
    """Sums over draws, per problem.

    ess: batch-means ESS and rhat: plain split R-hat `[T, K]`; mean and variance (biased) of each chain's draws
    `[T, C, K]`; below: draws below the truth `[T, C, K]`; quantiles `[T, K, 3]` at 5, 50 and 95% (`_reducers`);
    thinned: the last draw of every batch `[T, C, batches, K]`.
    """

    ess: np.ndarray
    rhat: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    below: np.ndarray
    quantiles: np.ndarray
    thinned: np.ndarray

    @classmethod
    def read(cls, arrays: dict[str, np.ndarray]) -> Streamed:
        return cls(**{name: arrays[name] for name in cls.__dataclass_fields__})


def join(pieces: list[dict[str, np.ndarray]], replicates: int) -> dict[str, np.ndarray]:
    """The groups' arrays behind each other, the chains of a problem's replicates as chains of one problem."""
    whole = pieces[0]
    if len(pieces) > 1:
        whole = {name: np.concatenate([piece.pop(name) for piece in pieces]) for name in list(pieces[0])}
    if replicates == 1:
        return whole
    return {name: x.reshape(-1, replicates * x.shape[1], *x.shape[2:]) for name, x in whole.items()}


class GroupLoop:
    """Runs the groups of a run one after the other; `seconds` adds up the time in compiled programs."""

    def __init__(
        self,
        programs: Programs,
        numbers: Any,
        plan: Layout,
        schedule: Schedule,
        names: tuple[str, ...],
        ranked: bool,
        progress: Callable[[Progress], None] | None,
        count: int,
        checkpoint: Checkpoint | None,
    ):
        self.programs, self.plan, self.schedule, self.names = programs, plan, schedule, names
        self.numbers = numbers
        self.ranked = ranked
        self.progress = progress if hosts.first() else None
        self.checkpoint = checkpoint
        self.count = count
        self.used = np.arange(0)
        self.lanes = count * plan.chains / plan.calls  # chains of a group without its padding, on average
        self.seconds = 0.0
        self._looked = 0.0
        self._state: tuple[float | None, float | None] = (None, None)

    def run(self, group: int, arguments: Callable[[], tuple[Any, Any]]) -> dict[str, np.ndarray]:
        """All segments of one group, or what a checkpoint holds of it."""
        if self.checkpoint is not None:
            found = self.checkpoint.group(group)
            if found is not None:
                return found
        inputs, bins = arguments()
        schedule, devices = self.schedule, self.plan.devices
        live, self.used, here = self.plan.filled(group, self.count)
        common = everywhere(Shared(np.int32(live), np.uint32(0), self.numbers), devices)
        start = time.perf_counter()
        done, carry, kept = 0, None, []
        if self.checkpoint is not None:
            resumed = self.checkpoint.state(group)
            if resumed is not None:
                done, carry, bins, kept = self._restore(resumed, bins)
        if carry is None:
            carry = self.programs.init(common, *inputs)
        for call in range(done, schedule.calls):
            first = everywhere(np.uint32(call * (schedule.segment // KEY_BLOCK)), devices)
            carry, out = self.programs.segment(common._replace(first=first), *inputs, carry, bins)
            number = call - schedule.warm
            if number < 0:
                if schedule.stream and 2 * call >= schedule.warm:  # where the sketch's cells are laid
                    kept = [merge(kept[0], out, call - -(-schedule.warm // 2)) if kept else out]
                    bins = locate(kept[0], bins)
            else:
                kept = [] if number == 0 else kept
                if schedule.stream and not schedule.warm and number == 0:
                    bins = locate(out, bins)
                joined = number % schedule.per_batch
                kept = [*kept[:-1], merge(kept[-1], out, joined)] if joined else [*kept, out]
            if self.progress is not None:
                jax.block_until_ready(carry)
                self._report(group, call + 1, kept)
            if self.checkpoint is not None and self.checkpoint.due():
                jax.block_until_ready(carry)
                self.checkpoint.keep_state(group, self._dump(call + 1, carry, bins, kept))
        jax.block_until_ready((carry, kept))
        self.seconds += time.perf_counter() - start
        result = self._finish(hosts.fetch(kept), hosts.fetch(bins))
        result = {name: x[:here] for name, x in result.items()}
        if self.checkpoint is not None and self.plan.calls > 1:
            self.checkpoint.keep_group(group, result)
        return result

    # ---- results ---------------------------------------------------------------------------------------------
    def _unblock(self, x):
        """`[blocks, ..., C * T']` -> `[T, C, ...]`, of the blocks in use."""
        x = np.asarray(x)
        x = x[self.used] if len(self.used) < len(x) else x
        x = x.reshape(*x.shape[:-1], self.plan.chains, self.plan.problems_per_block)
        x = np.moveaxis(x, (-1, -2), (1, 2))
        return x.reshape(-1, *x.shape[2:])

    def _stack(self, kept: list[Segment], name: str) -> np.ndarray:
        return np.stack([self._unblock(np.asarray(getattr(out, name))) for out in kept], 2)

    def _finish(self, kept: list[Segment], bins: Bins) -> dict[str, np.ndarray]:
        accept = self._stack(kept, "acceptance").mean(2)
        codes = np.where(self._stack(kept, "finite").all(2), OK, NON_FINITE)
        codes = np.where((codes == OK) & (accept < 1e-3), NOT_MOVING, codes)
        result = {"codes": codes, "accept": accept, "divergences": self._stack(kept, "divergent").sum(2)}
        if not self.schedule.stream:
            return result | {"draws": np.concatenate([self._unblock(out.kept) for out in kept], 2)}
        means, variances = self._batches(kept)
        ess, rhat = _convergence(means, variances, self._batch_length)
        sketch = sum(np.asarray(out.sketch, np.int64) for out in kept)  # [blocks, CELLS, K, C * T']
        counts = self._unblock(sketch).sum(1)
        flat = Bins(*(np.moveaxis(x[self.used], -1, 1).reshape(-1, len(self.names)).astype(np.float64) for x in bins))
        within = variances.mean(2) + means.var(2)
        below = self._stack(kept, "below").sum(2)
        return result | {
            "ess": ess, "rhat": rhat, "mean": means.mean(2), "variance": within,
            "below": below if self.ranked else np.zeros_like(below), "quantiles": quantiles(counts, flat, LEVELS),
            "thinned": np.concatenate([self._unblock(out.kept) for out in kept], 2),
        }  # fmt: skip

    @property
    def _batch_length(self) -> int:
        return self.schedule.segment // self.schedule.thin * self.schedule.per_batch

    def _batches(self, kept) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances `[T, C, batches, K]`."""
        return self._stack(kept, "mean").astype(np.float64), self._stack(kept, "variance").astype(np.float64)

    # ---- progress --------------------------------------------------------------------------------------------
    def _report(self, group: int, calls: int, kept: list[Segment]) -> None:
        assert self.progress is not None
        per_call = self.schedule.segment * self.lanes
        now = time.perf_counter()
        whole = kept[:-1] if self.schedule.per_batch > 1 else kept
        if len(whole) >= 2 and hosts.count() == 1 and now - self._looked > _LOOK_EVERY:
            means, variances = self._batches(whole)
            ess, rhat = _convergence(means, variances, self._batch_length)
            self._state = (_worst(rhat, np.nanmax), _worst(ess, np.nanmin))
            self._looked = time.perf_counter()
        done = (group * self.schedule.calls + calls) * per_call
        self.progress(Progress(round(done), round(self.plan.calls * self.schedule.calls * per_call), *self._state))

    # ---- checkpoints -----------------------------------------------------------------------------------------
    def _dump(self, calls: int, carry, bins, kept) -> dict[str, np.ndarray]:
        leaves = jax.tree.leaves(hosts.fetch((carry, bins, kept)))
        counts = {"calls": np.array(calls), "kept": np.array(len(kept))}
        return counts | {f"leaf_{i}": np.asarray(x) for i, x in enumerate(leaves)}

    def _restore(self, arrays: dict[str, np.ndarray], bins):
        one = Segment(*([0] * len(Segment._fields)))
        shape: Any = self.programs.init.out_tree
        carry = jax.tree.unflatten(shape, [0] * shape.num_leaves)
        tree: Any = jax.tree.structure((carry, bins, [one] * int(arrays["kept"])))
        leaves = [arrays[f"leaf_{i}"] for i in range(tree.num_leaves)]
        carry, bins, kept = jax.tree.unflatten(tree, place(leaves, self.plan.devices))
        return int(arrays["calls"]), carry, bins, kept


def _convergence(means, variances, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Batch-means ESS and split R-hat `[T, K]`; NaN where there are too few batches."""
    with np.errstate(all="ignore"):
        ess = batch_means_ess(means, variances, length) if means.shape[1] * means.shape[2] > 1 else None
        rhat = split_rhat(means, variances, length) if means.shape[2] > 1 else None
    empty = np.full((means.shape[0], means.shape[3]), np.nan)
    return empty if ess is None else ess, empty if rhat is None else rhat


def _worst(values: np.ndarray, choose: Callable) -> float | None:
    return float(choose(values)) if np.isfinite(values).any() else None
