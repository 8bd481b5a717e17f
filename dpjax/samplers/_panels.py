"""Adaptive quadrature of many densities of one coordinate at once, on the host, with the compiled density of a sampler.

A posterior may be a millionth of its prior's width, lie far out in the prior's tail, or have a second peak elsewhere:
where it is must be found, and what is left out must be bounded. So every interval carries an upper bound of the density
in it, from the residual of the released sum, which is a smooth function of the coordinate at any number of records:
where the residual passes zero, or comes near it, between two nodes, the bound is that of a likelihood at its top.
Intervals are looked into in the order of their bounds until what is left holds less than `_NEGLECTED` of the mass and
of the second moment. An interval is done when no peak can hide between its nodes and its Legendre series has converged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.polynomial import legendre

from dpjax.samplers._intervals import TOGETHER, Intervals, Looked, children, first_intervals, gaps_of

#: Nodes of a panel (Gauss-Lobatto: both ends are nodes).
ORDER = 17
#: Share of the mass, and of the second moment about the mean, that may be left out, and the error of a panel's series
#: relative to its own mass or to all of it.
_NEGLECTED, _OWN_ERROR, _WHOLE_ERROR = 1e-9, 1e-6, 1e-8
#: Largest share of the mass and of the variance that is missing or in doubt in a posterior that counts as computed: the
#: mean and the sd then move by half of it at most.
LARGEST_ERROR = 1e-4
#: A series converges no further than this many rounding errors.
_ROUNDING = 8.0
#: Most panels looked at and most rounds for one density.
MOST_PANELS, _ROUNDS = 600, 200


def _lobatto(count: int) -> np.ndarray:
    """Gauss-Lobatto nodes on [-1, 1]."""
    inner = legendre.Legendre.basis(count - 1).deriv().roots()
    return np.concatenate([[-1.0], np.sort(inner.real), [1.0]])


NODES = _lobatto(ORDER)
_TO_SERIES = np.linalg.inv(legendre.legvander(NODES, ORDER - 1))
#: Weights of the integral over [-1, 1].
WEIGHTS = 2.0 * _TO_SERIES[0]
_TAIL = _TO_SERIES[-2:]


class Panels(NamedTuple):
    """Panels of T densities, sorted by density and place: density's number `[M]`, nodes, log density and parameter at
    the nodes `[G, M]`; mean and sd of the parameter, and whether the error is under its bound `[T]`."""

    owner: np.ndarray
    nodes: np.ndarray
    log_density: np.ndarray
    parameter: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    resolved: np.ndarray

    @classmethod
    def join(cls, parts: list[Panels], index: list[np.ndarray]) -> Panels:
        """The panels of several sets of densities, which are those at `index` of all."""
        owner = np.concatenate([i[p.owner] for p, i in zip(parts, index, strict=True)])
        order = np.argsort(owner, kind="stable")
        nodes, log_density, parameter = (
            np.concatenate(rows, 1)[:, order] for rows in zip(*(p[1:4] for p in parts), strict=True)
        )
        back = np.argsort(np.concatenate(index))
        each = (np.concatenate(rows)[back] for rows in zip(*(p[4:] for p in parts), strict=True))
        return cls(owner[order], nodes, log_density, parameter, *each)


@dataclass
class _Sums:
    """Running sums over finished panels of T densities: mass, first and second moment of the parameter about `pivot`,
    all in units of exp(top); pivot is the parameter at the highest node seen."""

    top: np.ndarray
    pivot: np.ndarray
    moments: np.ndarray  # [3, T]

    @classmethod
    def start(cls, count: int) -> _Sums:
        return cls(np.full(count, -np.inf), np.zeros(count), np.zeros((3, count)))

    def raise_top(self, owner: np.ndarray, log_density: np.ndarray, parameter: np.ndarray) -> None:
        """Take notice of nodes `[G, M]`."""
        best = np.argmax(log_density, 0)
        column = np.arange(len(owner))
        height, place = log_density[best, column], parameter[best, column]
        order = np.lexsort((height, owner))
        last = np.flatnonzero(np.append(owner[order][1:] != owner[order][:-1], True))
        chosen = order[last]
        who, height, place = owner[chosen], height[chosen], place[chosen]
        better = height > self.top[who]
        who, height, place = who[better], height[better], place[better]
        with np.errstate(invalid="ignore"):
            shrink = np.where(np.isfinite(self.top[who]), np.exp(self.top[who] - height), 0.0)
        shift = place - self.pivot[who]
        zero, one, two = self.moments[:, who] * shrink
        self.moments[:, who] = zero, one - shift * zero, np.maximum(two - 2 * shift * one + shift * shift * zero, 0.0)
        self.top[who], self.pivot[who] = height, place

    def spread(self, owner: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Largest squared distance of the parameter from the pivot between two ends."""
        pivot = self.pivot[owner]
        return np.maximum(np.abs(first - pivot), np.abs(last - pivot)) ** 2

    def small(self, owner: np.ndarray, log_mass: np.ndarray, spread: np.ndarray, share: float) -> np.ndarray:
        """Whether this much mass at this squared distance is under a share of the mass and of the second moment."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            mass = np.exp(np.minimum(log_mass - self.top[owner], 700.0))
            return (mass <= share * self.moments[0, owner]) & (mass * spread <= share * self.moments[2, owner])


def integrate(look: Callable[[np.ndarray, np.ndarray, np.ndarray], Looked], scan: Looked) -> Panels:
    """Panels of T densities.

    Args:
        look: (density's number, low end, high end) `[M]` -> those intervals at the Gauss-Lobatto nodes.
        scan: a first look at all T densities, from end to end, at any nodes.
    """
    count = scan.nodes.shape[1]
    sums = _Sums.start(count)
    numbers = np.arange(count)
    sums.raise_top(numbers, scan.log_density, scan.parameter)
    left = first_intervals(scan)
    done: list[tuple[np.ndarray, Looked]] = []
    looked_at = np.zeros(count, int)
    lost = np.zeros((2, count))  # in units of exp(top at the end): what is given up, mass and second moment
    given_up: list[Intervals] = []
    for _ in range(_ROUNDS):
        width = left.high - left.low
        spread = sums.spread(left.owner, left.first, left.last)
        with np.errstate(divide="ignore"):
            negligible = sums.small(left.owner, left.bound + np.log(width), spread, _NEGLECTED / 10)
        tired = (looked_at[left.owner] > MOST_PANELS) | (
            width < 1e-14 * np.maximum(1.0, np.maximum(np.abs(left.low), np.abs(left.high)))
        )
        given_up.append(left.take(np.flatnonzero(negligible | tired)))
        left = left.take(np.flatnonzero(~(negligible | tired)))
        if not len(left.owner):
            break
        # the best bounds, of the density or of its second moment
        with np.errstate(divide="ignore"):
            second = left.bound + np.log(np.maximum(sums.spread(left.owner, left.first, left.last), 1e-300))
        chosen = np.zeros(len(left.owner), bool)
        for value in (left.bound, second):
            best = np.full(count, -np.inf)
            np.maximum.at(best, left.owner, value)
            chosen |= value >= best[left.owner] - TOGETHER
        now, left = left.take(np.flatnonzero(chosen)), left.take(np.flatnonzero(~chosen))
        np.add.at(looked_at, now.owner, 1)
        seen = look(now.owner, now.low, now.high)
        sums.raise_top(now.owner, seen.log_density, seen.parameter)
        fine = _fine(sums, now, seen)
        chosen_now = np.flatnonzero(fine)
        if len(chosen_now):
            part = Looked(*(x[:, chosen_now] for x in seen))
            done.append((now.owner[chosen_now], part))
            _add(sums, now.owner[chosen_now], part)
        rest = np.flatnonzero(~fine)
        left = Intervals.join([left, *children(now.owner[rest], Looked(*(x[:, rest] for x in seen)))])
    given_up.append(left)
    return _collect(count, sums, done, Intervals.join(given_up), lost)


def _integrals(sums: _Sums, owner: np.ndarray, seen: Looked) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mass, first and second moment of each panel about the pivot `[3, M]`, errors of mass and second moment `[M]`."""
    half = 0.5 * (seen.nodes[-1] - seen.nodes[0])
    density = np.exp(seen.log_density - sums.top[owner])
    away = seen.parameter - sums.pivot[owner]
    second = density * away * away
    moments = np.stack([WEIGHTS @ density, WEIGHTS @ (density * away), WEIGHTS @ second]) * half
    errors = [2.0 * half * np.abs(_TAIL @ f).sum(0) for f in (density, second)]
    return moments, errors[0], errors[1]


def _fine(sums: _Sums, now: Intervals, seen: Looked) -> np.ndarray:
    """Whether a panel needs no more looking into."""
    moments, error, second_error = _integrals(sums, now.owner, seen)
    mass, second = (
        np.maximum(sums.moments[0, now.owner], moments[0]),
        np.maximum(sums.moments[2, now.owner], moments[2]),
    )
    own = np.maximum(_OWN_ERROR, np.minimum(_ROUNDING * seen.rounding[0], 0.1))
    converged = (error <= np.maximum(own * moments[0], _WHOLE_ERROR * mass)) & (
        second_error <= np.maximum(own * moments[2], _WHOLE_ERROR * second)
    )
    gaps = gaps_of(now.owner, seen)
    with np.errstate(divide="ignore"):
        log_mass = gaps.bound + np.log(np.maximum(gaps.high - gaps.low, 1e-300))
    small = sums.small(gaps.owner, log_mass, sums.spread(gaps.owner, gaps.first, gaps.last), _NEGLECTED)
    return converged & (seen.smooth | small.reshape(seen.smooth.shape)).all(0)


def _add(sums: _Sums, owner: np.ndarray, seen: Looked) -> None:
    moments = _integrals(sums, owner, seen)[0]
    for row, values in zip(sums.moments, moments, strict=True):
        np.add.at(row, owner, values)


def _collect(count: int, sums: _Sums, done: list, given_up: Intervals, lost: np.ndarray) -> Panels:
    """Panels in order, and whether errors and what was left out are small beside mass and variance."""
    if not done:
        empty = np.zeros((ORDER, 0))
        none = np.full(count, np.nan)
        return Panels(np.zeros(0, int), empty, empty, empty, none, none, np.zeros(count, bool))
    owner = np.concatenate([who for who, _ in done])
    seen = Looked(*(np.concatenate([getattr(part, name) for _, part in done], 1) for name in Looked._fields))
    order = np.lexsort((seen.nodes[0], owner))
    owner, seen = owner[order], Looked(*(x[:, order] for x in seen))
    fresh = _Sums(sums.top, sums.pivot, np.zeros((3, count)))
    for _ in range(2):  # the second time about the mean
        fresh.moments[:] = 0.0
        _add(fresh, owner, seen)
        with np.errstate(invalid="ignore", divide="ignore"):
            fresh.pivot = np.where(fresh.moments[0] > 0, fresh.pivot + fresh.moments[1] / fresh.moments[0], fresh.pivot)
    fresh.moments[:] = 0.0
    _add(fresh, owner, seen)
    _, error, second_error = _integrals(fresh, owner, seen)
    np.add.at(lost[0], owner, error)
    np.add.at(lost[1], owner, second_error)
    width = given_up.high - given_up.low
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        mass = np.where(width > 0, np.exp(np.minimum(given_up.bound - fresh.top[given_up.owner], 300.0)) * width, 0.0)
        np.add.at(lost[0], given_up.owner, mass)
        spread = fresh.spread(given_up.owner, given_up.first, given_up.last)
        np.add.at(lost[1], given_up.owner, mass * spread)
        small = lost <= LARGEST_ERROR * fresh.moments[[0, 2]]
        resolved = (fresh.moments[0] > 0) & small.all(0)
        mean = fresh.pivot + fresh.moments[1] / fresh.moments[0]
        sd = np.sqrt(fresh.moments[2] / fresh.moments[0])
    return Panels(owner, seen.nodes, seen.log_density, seen.parameter, mean, sd, resolved)
