"""Draws reduced on the device: sums that make up a posterior without its draws, merged segment by segment.

Rank counts, means and variances of batches (what batch-means ESS and split R-hat are made of), and a histogram per
problem and parameter for quantiles. Everything has a fixed size, so that memory does not grow with the draws.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

#: Cells of the quantile sketch and how many standard deviations it reaches to either side of its centre.
CELLS, REACH = 64, 8.0


class Bins(NamedTuple):
    """Centre and standard deviation that the sketch's cells are laid around `[..., K, T]`; sd 0: do not count."""

    center: Any
    sd: Any


class Segment(NamedTuple):
    """What one segment of steps gives, per lane.

    kept: draws `[S, K, B]`, only the last one when streaming; mean and variance (biased) of the segment's draws
    `[K, B]`; below: draws below the truth `[K, B]`; sketch: counts `[CELLS, K, B]` (no cells when not streaming);
    acceptance and finite `[B]`, divergent `[B]`.
    """

    kept: Any
    mean: Any
    variance: Any
    below: Any
    sketch: Any
    acceptance: Any
    divergent: Any
    finite: Any


def reduce(kept, target, bins: Bins, counts, stream: bool) -> Segment:
    """Reduce the draws `[S, K, B]` of one block's segment; `target` `[K, B]`: the truth."""
    mean = kept.mean(0)
    offset = kept - mean[None]
    variance = (offset * offset).mean(0)
    below = (kept < target[None]).sum(0, dtype=jnp.int32)
    if not stream:
        return Segment(kept, mean, variance, below, jnp.zeros((0, *mean.shape), jnp.int32), *counts)
    cells = jnp.arange(CELLS, dtype=jnp.int32)[:, None, None]
    use = bins.sd > 0
    scale = jnp.where(use, CELLS / (2.0 * REACH) / jnp.where(use, bins.sd, jnp.ones_like(bins.sd)), 0.0)

    def count(total, draw):
        cell = jnp.floor((draw - bins.center) * scale + 0.5 * CELLS)
        cell = jnp.clip(cell, 0.0, CELLS - 1.0).astype(jnp.int32)
        return total + ((cell[None] == cells) & use[None]).astype(jnp.int32), None

    sketch = jax.lax.scan(count, jnp.zeros((CELLS, *mean.shape), jnp.int32), kept)[0]
    return Segment(kept[-1:], mean, variance, below, sketch, *counts)


@jax.jit
def merge(total: Segment, new: Segment, count) -> Segment:
    """Join a segment to `count` equally long ones before it."""
    share = 1.0 / (count + 1.0)
    step = new.mean - total.mean
    variance = total.variance + (new.variance - total.variance) * share + step * step * share * (1.0 - share)
    return Segment(
        new.kept,
        total.mean + step * share,
        variance,
        total.below + new.below,
        total.sketch + new.sketch,
        total.acceptance + (new.acceptance - total.acceptance) * share,
        total.divergent + new.divergent,
        total.finite & new.finite,
    )


def quantiles(sketch: np.ndarray, bins: Bins, levels: tuple[float, ...]) -> np.ndarray:
    """Quantiles `[T, K, levels]` from counts `[T, CELLS, K]`: within .03 of the sd that the cells were laid by.

    NaN where nothing was counted, and where a quantile lies in an outermost cell: the chains have moved on since the
    cells were laid.
    """
    total = sketch.sum(1)
    below = np.cumsum(sketch, 1)
    edges = (np.arange(CELLS + 1) / CELLS * 2.0 - 1.0) * REACH
    out = np.full((*total.shape, len(levels)), np.nan)
    for number, level in enumerate(levels):
        aim = level * total
        cell = (below < aim[:, None]).sum(1).clip(0, CELLS - 1)
        inside = np.take_along_axis(sketch, cell[:, None], 1)[:, 0]
        before = np.take_along_axis(below, cell[:, None], 1)[:, 0] - inside
        share = (aim - before) / np.maximum(inside, 1)
        place = edges[cell] + share * (edges[cell + 1] - edges[cell])
        known = (total > 0) & (cell > 0) & (cell < CELLS - 1)
        out[..., number] = np.where(known, bins.center + place * bins.sd, np.nan)
    return out


@jax.jit
def locate(segment: Segment, like: Bins) -> Bins:
    """Where to lay the sketch: mean and standard deviation over a problem's chains in the second half of warm-up.

    A chain that stands still far from the others counts as far: the cells then are wide.
    """
    chains = segment.mean.shape[-1] // like.center.shape[-1]
    mean = segment.mean.reshape(*segment.mean.shape[:-1], chains, -1)
    variance = segment.variance.reshape(mean.shape)
    center = mean.mean(-2)
    spread = variance.mean(-2) + ((mean - center[..., None, :]) ** 2).mean(-2)
    good = jnp.isfinite(center) & jnp.isfinite(spread)
    return Bins(jnp.where(good, center, 0.0), jnp.where(good, jnp.sqrt(spread), 0.0))
