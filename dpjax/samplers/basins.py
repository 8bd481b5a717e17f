"""The separate basins of posteriors of one or two parameters: where chains start, and whether they got lost.

A redacted sum is not monotone in the parameters, so that two sets of them may explain it (docs/formulas.md#two-modes).
Chains that start in one basin agree with each other whatever lies in the other. So the density, with everything else
integrated out, is looked at on a coarse grid that reaches far beyond the prior; every local maximum, and the grid's
neighbours of it (two solutions may lie close together), is climbed from; tops with no valley between them are one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.mechanisms import mechanism_named
from dpjax.samplers._marginal import log_posterior_lanes

#: Chains start in the second basin if it holds this share of the posterior; a chain in a smaller one is lost.
SMALLEST_MASS = 0.01
#: A basin matters if without it a mean were this many sds off, or an sd off by this share.
_OFF_MEAN, _OFF_SD = 0.02, 0.05
#: Two tops are two modes if the valley between them is this much lower, in the log density.
_VALLEY = float(np.log(1.5))
#: Most basins told apart, and local maxima of the grid that are climbed from.
_MOST, _CLIMBED = 3, 4
#: Reach of the grid to either side of the prior's centre, in an unbounded coordinate (logarithm or logit).
_REACH = 25.0
#: Points of the coarse grid of one parameter; of two: location, logarithm of the variance.
_POINTS, _PLANE = 97, (17, 15)
_ROUNDS, _CHUNK = 24, 32

Density = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Basins:
    """Of T posteriors, the M highest basins, largest mass first: tops `[T, M, P]`; mass `[T, M]`, 0 where there are
    fewer; heights `[T, M]`, log density at the tops; metric `[T, M, P, P]` and valley `[T, M]`: phi lies in basin m,
    and not in the first, where (phi - top_0)' metric_m (top_m - top_0) is above the valley; matters `[T, M]`: without
    the basin, means or sds would be noticeably off."""

    tops: np.ndarray
    mass: np.ndarray
    heights: np.ndarray
    metric: np.ndarray
    valley: np.ndarray
    matters: np.ndarray

    def take(self, index: np.ndarray) -> Basins:
        """Those of some of the problems."""
        return Basins(*(getattr(self, f.name)[index] for f in fields(self)))

    def starts(self) -> np.ndarray:
        """Where even and odd chains start `[T, 2, P]`: in the two largest basins, if the second matters."""
        second = np.where((self.mass[:, 1] >= SMALLEST_MASS)[:, None], self.tops[:, 1], self.tops[:, 0])
        return np.stack([self.tops[:, 0], second], 1)


def can_find_basins(model: Any) -> bool:
    """Whether the posterior may have several modes and is of few enough parameters to look at."""
    return model.may_have_modes and model.dim == model.statistic_dim <= 2


@lru_cache(maxsize=16)
def _program(laplace: bool):
    """Log density `[G, T]` of G points of each of T problems, phi `[G, P, T]`."""
    return jax.jit(lambda model, seen, phi: jax.lax.map(lambda x: log_posterior_lanes(model, seen, x, laplace), phi))


def on_lanes(arrays: Any) -> Any:
    """Arrays with a leading axis of T problems, with problems last, in 64 bits; the first one again up to a power of
    two, so that programs serve many T."""

    def last(x):
        x = np.asarray(x)
        pad = int(2 ** np.ceil(np.log2(len(x)))) - len(x)
        return jnp.moveaxis(jnp.asarray(np.concatenate([x, np.repeat(x[:1], pad, 0)]), jnp.float64), 0, -1)

    return jax.tree.map(last, arrays)


def log_density(problems: Any) -> Density:
    """The log posterior density as a function of points `[T, G, P]`, `[T, G]`; to be called in 64 bits."""
    count = len(problems)
    model, observed = on_lanes((problems.batched_model(), problems.observed()))
    pad = observed.n.shape[-1] - count
    program = _program(mechanism_named(problems.mechanism).exponential)

    def values(points: np.ndarray) -> np.ndarray:
        points = np.asarray(points, np.float64)
        size = points.shape[1]
        full = np.concatenate([points, np.repeat(points[:, :1], -size % _CHUNK, 1)], 1)
        full = np.concatenate([full, np.repeat(full[:1], pad, 0)])
        lanes = np.ascontiguousarray(full.transpose(1, 2, 0))
        out = [program(model, observed, lanes[i : i + _CHUNK]) for i in range(0, len(lanes), _CHUNK)]
        return np.concatenate([np.asarray(x) for x in out])[:size, :count].T

    return values


def find_basins(problems: Any) -> Basins:
    """The basins of each of T posteriors (`can_find_basins`); to be called in 64 bits."""
    density = log_density(problems)
    grid, shape = _grid(problems)
    values = density(grid)
    start = _local_maxima(grid, values, shape)
    tops, heights, hessians = _climb(density, start)
    return _apart(density, tops, heights, hessians, problems.model_template().prior.constrain)


# ---- the coarse look -------------------------------------------------------------------------------------------------
def _grid(problems: Any) -> tuple[np.ndarray, tuple[int, ...]]:
    """Points `[T, G, P]` and their arrangement."""
    model = problems.batched_model()
    centre = np.asarray(jax.vmap(lambda m: m.prior_center())(model), np.float64)
    dense = lambda size: np.sinh(np.linspace(-3.0, 3.0, size)) / np.sinh(3.0)
    if model.dim == 1:
        return (centre[:, None] + _REACH * dense(_POINTS)[None, :, None]), (_POINTS,)
    low, high = (np.asarray(x, np.float64)[:, None] for x in (model.low, model.high))
    middle, half = (low + high) / 2, (high - low) / 2
    across, along = _PLANE
    place = middle + 30.0 * half * dense(across - 1)
    place = np.sort(np.concatenate([place, centre[:, :1]], 1), 1)
    spread = 2.0 * np.log(half) + np.linspace(-12.0, 8.0, along - 1)
    spread = np.sort(np.concatenate([spread, centre[:, 1:]], 1), 1)
    plane = [np.broadcast_to(place[:, :, None], (len(place), across, along)),
             np.broadcast_to(spread[:, None], (len(place), across, along))]  # fmt: skip
    return np.stack(plane, -1).reshape(len(place), -1, 2), _PLANE


def _local_maxima(grid: np.ndarray, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The highest local maxima and their neighbours along the axes, `[T, C, P]`."""
    count, dim = len(grid), len(shape)
    table = np.pad(values.reshape(count, *shape), [(0, 0), *[(1, 1)] * dim], constant_values=-np.inf)
    inner = lambda offset: table[(slice(None), *(slice(1 + o, s + 1 + o) for o, s in zip(offset, shape, strict=True)))]
    around = [offset for offset in product((-1, 0, 1), repeat=dim) if any(offset)]
    here = inner((0,) * dim)
    top = np.isfinite(here) & np.all([here >= inner(offset) for offset in around], 0)
    ranked = np.where(top, here, -np.inf).reshape(count, -1)
    best = np.argsort(-ranked, axis=1)[:, :_CLIMBED]
    # where there are fewer maxima the highest one is taken again
    best = np.where(np.take_along_axis(ranked, best, 1) > -np.inf, best, best[:, :1])
    place = np.stack(np.unravel_index(best, shape), -1)  # [T, _CLIMBED, dim]
    steps = [(0,) * dim, *[offset for offset in around if np.abs(offset).sum() == 1]]
    near = np.clip(place[:, :, None] + np.array(steps), 0, np.array(shape) - 1)
    index = np.ravel_multi_index(np.moveaxis(near, -1, 0), shape).reshape(count, -1)
    return np.take_along_axis(grid, index[..., None], 1)


# ---- up to the tops --------------------------------------------------------------------------------------------------
def _climb(density: Density, start: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Newton's method with differences from `start` `[T, C, P]`: tops, log densities `[T, C]` and precisions
    `[T, C, P, P]` there."""
    count, _, dim = start.shape
    ask = lambda points: density(points.reshape(count, -1, dim)).reshape(points.shape[:-1])
    x, step = start.copy(), np.full(start.shape, 1e-3)
    value = ask(x)
    precision = np.zeros((*x.shape, dim))
    stencil = np.array([o for o in product((-1, 0, 1), repeat=dim) if any(o)], np.float64)
    where = {tuple(o): i for i, o in enumerate(stencil.astype(int))}
    unit = np.eye(dim, dtype=int)
    for _ in range(_ROUNDS):
        around = ask(x[:, :, None] + stencil * step[:, :, None])
        at = lambda offset: around[..., where[tuple(offset)]]  # noqa: B023
        slope, hessian = np.empty(x.shape), np.empty(precision.shape)
        with np.errstate(all="ignore"):
            for i in range(dim):
                up, down = at(unit[i]), at(-unit[i])
                slope[..., i] = (up - down) / (2 * step[..., i])
                hessian[..., i, i] = (up - 2 * value + down) / step[..., i] ** 2
                for j in range(i):
                    e, f = unit[i] + unit[j], unit[i] - unit[j]
                    mixed = (at(e) - at(f) - at(-f) + at(-e)) / (4 * step[..., i] * step[..., j])
                    hessian[..., i, j] = hessian[..., j, i] = mixed
        good = np.asarray(np.isfinite(slope).all(-1) & np.isfinite(hessian).all((-1, -2)))
        slope = np.where(good[..., None], slope, 0.0)
        hessian = np.where(good[..., None, None], hessian, -np.eye(dim))
        roots, vectors = np.linalg.eigh(-hessian)
        roots = np.maximum(np.abs(roots), 1e-9 * np.abs(roots).max(-1, keepdims=True) + 1e-12)
        precision = np.einsum("tcik,tck,tcjk->tcij", vectors, roots, vectors)
        move = np.einsum("tcik,tck,tcjk,tcj->tci", vectors, 1 / roots, vectors, slope)
        move = move * np.minimum(1.0, 4.0 / np.maximum(np.abs(move).max(-1, keepdims=True), 1e-300))
        tried = x[:, :, None] + move[:, :, None] * np.array([1.0, 0.2, 0.02, 1e-3])[:, None]
        found = ask(tried)
        best = found.argmax(-1)
        higher = np.take_along_axis(found, best[..., None], -1)[..., 0]
        better = higher > value
        x = np.where(better[..., None], np.take_along_axis(tried, best[..., None, None], 2)[:, :, 0], x)
        value = np.where(better, higher, value)
        wanted = 0.05 / np.sqrt(np.maximum(np.diagonal(precision, axis1=-2, axis2=-1), 1e-300))
        step = np.clip(wanted, 1e-7 * (1.0 + np.abs(x)), 0.05)
    return x, value, precision


def _apart(
    density: Density, tops: np.ndarray, heights: np.ndarray, precision: np.ndarray, constrain: Callable
) -> Basins:
    """The tops that valleys keep apart, with their masses and where the valleys are."""
    count, number, dim = tops.shape
    rows = np.arange(count)
    left = np.isfinite(heights)
    chosen = np.zeros((count, _MOST), int)
    valid = np.zeros((count, _MOST), bool)
    share = np.linspace(0.0, 1.0, 18)[1:-1]
    for m in range(_MOST):
        best = np.where(left, heights, -np.inf).argmax(1)
        chosen[:, m], valid[:, m] = best, left.any(1)
        top = tops[rows, best]
        between = top[:, None, None] + (tops - top[:, None])[:, :, None] * share[:, None]
        lowest = density(between.reshape(count, -1, dim)).reshape(count, number, -1).min(-1)
        left &= lowest < np.minimum(heights, heights[rows, best][:, None]) - _VALLEY
    pick = lambda x: np.take_along_axis(x, chosen.reshape(count, _MOST, *[1] * (x.ndim - 2)), 1)
    tops, heights, precision = pick(tops), np.where(valid, pick(heights), -np.inf), pick(precision)
    log_mass = heights - 0.5 * np.linalg.slogdet(precision)[1]
    if dim == 1:
        log_mass = _integrate(density, tops, heights, precision)
    mass = np.exp(log_mass - log_mass.max(1, keepdims=True))
    mass = np.where(valid, mass / mass.sum(1, keepdims=True), 0.0)
    order = np.argsort(-mass, axis=1)
    turn = lambda x: np.take_along_axis(x, order.reshape(count, _MOST, *[1] * (x.ndim - 2)), 1)
    tops, heights, precision, mass = turn(tops), turn(heights), turn(precision), turn(mass)
    # the valley beside the first basin: the lowest point on the way, and a plane across the way in the metric of both
    way = tops - tops[:, :1]
    fine = np.linspace(0.0, 1.0, 33)
    line = density((tops[:, :1, None] + way[:, :, None] * fine[:, None]).reshape(count, -1, dim))
    lowest = fine[line.reshape(count, _MOST, -1).argmin(-1)]
    metric = np.linalg.inv(np.linalg.inv(precision[:, :1]) + np.linalg.inv(precision))
    length = np.einsum("tmi,tmij,tmj->tm", way, metric, way)
    sd = np.sqrt(np.diagonal(np.linalg.inv(precision[:, 0]), axis1=-2, axis2=-1))
    report = lambda phi: np.moveaxis(np.asarray(constrain(np.moveaxis(phi, -1, 0))), 0, -1)
    spread = 0.5 * np.abs(report(tops[:, 0] + sd) - report(tops[:, 0] - sd))
    apart = np.abs(report(tops) - report(tops[:, :1])) / np.maximum(spread, 1e-300)[:, None]
    share = mass[..., None]
    with np.errstate(over="ignore"):
        matters = (share * apart > _OFF_MEAN) | (share * apart * apart > 2.0 * _OFF_SD)
    return Basins(tops, mass, heights, metric, lowest * length, matters.any(-1) | (mass >= SMALLEST_MASS))


def _integrate(density: Density, tops: np.ndarray, heights: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """Log masses of the basins of one parameter, each up to the lowest point on the way to the others."""
    count, number, _ = tops.shape
    sd = 1.0 / np.sqrt(precision[..., 0])
    nodes = tops + sd * (np.sinh(np.linspace(-4.0, 4.0, 129)) * 1.2)  # [T, M, N], to 33 sd
    values = density(nodes.reshape(count, -1, 1)).reshape(nodes.shape) - heights[..., None]
    for other in range(number):
        way = tops[:, other : other + 1] - tops
        fine = np.linspace(0.0, 1.0, 33)
        points = tops + way * fine
        line = density(points.reshape(count, -1, 1)).reshape(points.shape)
        edge = np.take_along_axis(points, line.argmin(-1)[..., None], -1)
        beyond = (nodes - edge) * np.sign(way) > 0
        there = np.isfinite(heights[:, other])[:, None, None]
        values = np.where(beyond & there & (np.abs(way) > 0), -np.inf, values)
    y = np.exp(np.where(np.isfinite(values), values, -np.inf))
    area = (0.5 * (y[..., 1:] + y[..., :-1]) * np.diff(nodes)).sum(-1)
    with np.errstate(divide="ignore"):
        return heights + np.log(area)


def with_starts(problems: Any, basins: Basins) -> Any:
    """The problems with their chains starting in the basins."""
    return replace(problems, model=replace(problems.batched_model(), starts=basins.starts()))
