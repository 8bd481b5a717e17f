"""Intervals of adaptive quadrature: what a look at them says, the first ones, and the parts of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

#: Intervals are looked into together whose bounds are at most so far (in logs) below the best one's.
TOGETHER = 10.0


#: First intervals, in sds of a normal density.
_STRIDE = 4.5


class Looked(NamedTuple):
    """Intervals as the compiled density sees them: nodes, log density and parameter there `[G, M]`; between the nodes
    an upper bound of the log density, and whether nothing can hide there `[G - 1, M]`; the rounding error of the log
    density where it is highest `[1, M]`."""

    nodes: np.ndarray
    log_density: np.ndarray
    parameter: np.ndarray
    bound: np.ndarray
    smooth: np.ndarray
    rounding: np.ndarray


@dataclass
class Intervals:
    """Intervals not looked into yet: density's number, ends, bound of the log density, parameter at the ends `[M]`."""

    owner: np.ndarray
    low: np.ndarray
    high: np.ndarray
    bound: np.ndarray
    first: np.ndarray
    last: np.ndarray

    def take(self, index: np.ndarray) -> Intervals:
        return Intervals(*(getattr(self, name)[index] for name in self.__dataclass_fields__))

    @classmethod
    def join(cls, parts: list[Intervals]) -> Intervals:
        return cls(*(np.concatenate([getattr(p, name) for p in parts]) for name in cls.__dataclass_fields__))


def first_intervals(scan: Looked) -> Intervals:
    """Neighbouring gaps of the first look where nothing hides, joined to intervals over which a normal density would
    change by `_STRIDE` of its sds."""
    below = np.nan_to_num(scan.log_density.max(0) - scan.log_density, posinf=1e300)
    change = np.where(scan.smooth, np.abs(np.diff(np.sqrt(2.0 * below), axis=0)), 0.0)
    group = np.floor(np.cumsum(change, 0) / _STRIDE)
    rough = np.cumsum(~scan.smooth, 0)
    group = group + 1e6 * (rough + np.concatenate([0 * rough[:1], rough[:-1]]))  # each by itself
    gaps = gaps_of(np.arange(scan.nodes.shape[1]), scan)
    order = np.argsort(gaps.owner, kind="stable")
    gaps, group = gaps.take(order), group.reshape(-1)[order]
    start = np.flatnonzero(np.r_[True, (gaps.owner[1:] != gaps.owner[:-1]) | (group[1:] != group[:-1])])
    stop = np.r_[start[1:], len(group)] - 1
    made = Intervals(
        gaps.owner[start], gaps.low[start], gaps.high[stop], np.maximum.reduceat(gaps.bound, start),
        gaps.first[start], gaps.last[stop],
    )  # fmt: skip
    return made.take(np.flatnonzero(made.high > made.low))


def gaps_of(owner: np.ndarray, seen: Looked) -> Intervals:
    """The intervals between neighbouring nodes."""
    cells = seen.bound.shape[0]
    flat = lambda x: x.reshape(-1)
    return Intervals(
        np.tile(owner, cells), flat(seen.nodes[:-1]), flat(seen.nodes[1:]), flat(seen.bound),
        flat(seen.parameter[:-1]), flat(seen.parameter[1:]),
    )  # fmt: skip


def children(owner: np.ndarray, seen: Looked) -> list[Intervals]:
    """Two or three parts of each panel: where the bound is near its top and what is beside, else two halves."""
    if not len(owner):
        return []
    cells = seen.bound.shape[0]
    near = seen.bound >= seen.bound.max(0) - TOGETHER
    start = np.maximum(np.argmax(near, 0) - 1, 0)
    stop = np.minimum(cells - np.argmax(near[::-1], 0) + 1, cells)
    column = np.arange(len(owner))
    narrow = seen.nodes[stop, column] - seen.nodes[start, column] <= 0.6 * (seen.nodes[-1] - seen.nodes[0])
    start, stop = np.where(narrow, start, 0), np.where(narrow, stop, cells // 2)
    number = np.arange(cells)[:, None]
    parts = []
    for first, last in ((0 * start, start), (start, stop), (stop, 0 * stop + cells)):
        bound = np.where((number >= first) & (number < last), seen.bound, -np.inf).max(0)
        ends = [x[i, column] for i in (first, last) for x in (seen.nodes, seen.parameter)]
        part = Intervals(owner, ends[0], ends[2], bound, ends[1], ends[3])
        parts.append(part.take(np.flatnonzero(last > first)))
    return parts
