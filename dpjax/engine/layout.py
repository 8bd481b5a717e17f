"""How problems are cut into cache-sized blocks, and steps into segments."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import numpy as np

from dpjax.errors import InputError

#: Lanes per block that keep a block's matrices in the L2 cache, by number of statistics (measured on CPU).
_LANES_BY_STATISTICS = ((5, 512), (9, 320), (14, 192), (20, 128), (35, 64))
#: Lanes per block on an accelerator: few, large blocks, since each step is launched once per block.
_LANES_ELSEWHERE = 65536
_BLOCKS_PER_CALL = 8
#: Blocks are cut for at least this many devices, so that up to as many give the same bits; not into blocks of fewer
#: lanes than the second number, which would leave vector units idle.
_AT_LEAST_DEVICES, _FEWEST_LANES = 4, 128
#: What one host call costs, in steps (used to weigh few calls against steps thrown away).
_CALL_COST = 2


@dataclass(frozen=True)
class Layout:
    """How T problems are cut: `problems_per_block` x chains lanes per block, `blocks` per call and device."""

    chains: int
    problems_per_block: int
    blocks: int
    devices: int
    calls: int

    @property
    def problems_per_call(self) -> int:
        return self.problems_per_block * self.blocks * self.devices

    def for_count(self, count: int) -> Layout:
        """The same programs called as often as another number of problems needs."""
        return replace(self, calls=-(-count // self.problems_per_call))

    def filled(self, group: int, count: int) -> tuple[int, np.ndarray, int]:
        """How call number `group` is filled when there are `count` problems: blocks in use on each device, the numbers
        of these blocks in the order in which problems fill them, and how many problems there are.

        The others cost nothing: the number in use is an input of the programs.
        """
        here = min(self.problems_per_call, count - group * self.problems_per_call)
        live = -(-here // (self.problems_per_block * self.devices))
        return live, (np.arange(self.devices)[:, None] * self.blocks + np.arange(live)).reshape(-1), here


def layout(
    count: int, chains: int, statistics: int, devices: int, chains_per_batch: int | None, most: int | None = None,
    wanted: int | None = None,
) -> Layout:  # fmt: skip
    """Choose block sizes: cache-sized blocks of at most `most` lanes, little padding, few distinct shapes; blocks of
    about `wanted` lanes on CPU, where a sampler knows better.

    The width of a block does not depend on the number of devices (up to four), and neither do the draws: XLA may round
    differently for another width, though it hardly ever does at multiples of 16 lanes.
    """
    on_cpu = jax.default_backend() == "cpu"
    if chains_per_batch is not None:
        if chains_per_batch < chains:
            raise InputError(f"chains_per_batch must be at least chains = {chains}; got {chains_per_batch}")
        per_block = chains_per_batch // chains
    elif wanted is not None and on_cpu:
        per_block = -(-count // -(-count // max(1, wanted // chains)))
    else:
        lanes = next((w for d, w in _LANES_BY_STATISTICS if statistics <= d), 64) if on_cpu else _LANES_ELSEWHERE
        widest = max(1, min(lanes, most or lanes) // chains)
        blocks = -(-count // widest)
        spread = _AT_LEAST_DEVICES if on_cpu and devices <= _AT_LEAST_DEVICES else devices
        while on_cpu and spread > 2 and count * chains < spread * _FEWEST_LANES:
            spread //= 2
        if count >= spread:
            blocks = -(-blocks // spread) * spread
        per_block = -(-count // blocks)
        step = 16 if per_block > 16 else (4 if per_block > 4 else 1)
        per_block = -(-per_block // step) * step
    total = -(-count // per_block)
    devices = min(devices, total)
    calls = -(-total // (devices * _BLOCKS_PER_CALL))
    blocks = -(-total // (devices * calls))
    return Layout(chains, per_block, blocks, devices, calls)


def segment_length(warm: int, sampling: int, chunk: int) -> int:
    """Steps per host call: a divisor of the warm-up, so that the draws begin exactly where it ends.

    Args:
        warm, sampling, chunk: steps of warm-up (a multiple of chunk, may be 0), of sampling, and the granule.
    """
    granules = warm // chunk if warm else -(-sampling // chunk)

    def cost(size: int) -> int:
        calls = warm // size + -(-sampling // size)
        return -(-sampling // size) * size + _CALL_COST * calls

    at_least = max(1, granules // 64)
    sizes = [chunk * d for d in range(1, granules + 1) if granules % d == 0 and d >= at_least]
    # progress wants a few calls whatever the cost
    few = [s for s in sizes if -(-sampling // s) >= 4] or sizes[:1]
    return min(few, key=cost)
