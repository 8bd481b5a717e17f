"""The compiled density behind `_panels`: values at nodes of intervals, and an upper bound between the nodes."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpjax.engine.model import Model, Observed, over_lanes
from dpjax.samplers._intervals import Looked
from dpjax.samplers._panels import ORDER

#: Log density that counts as none.
_NOTHING = -1e300
#: How far the residual may change between two nodes, in sds of the released sum, without a peak hiding there.
_LARGEST_CHANGE = 3.0
#: The first look reaches to where the prior alone is this far (in logs) below the density of the best of its nodes.
_REACH = 80.0
#: Widest gap between nodes of the density of few records, unless it is straight there.
_WIDEST = 0.5
#: Curvature between two nodes is at most this many times what second differences around them say.
_SAFETY = 3.0


class Values(NamedTuple):
    """At one coordinate per lane `[B]`: log prior, log likelihood, residual and variance of the released sum in units
    of the noise (without the noise's own), reported parameter."""

    prior: Any
    likelihood: Any
    residual: Any
    variance: Any
    parameter: Any


def _ceiling(laplace: bool, residual, variance):
    """An upper bound, hardly above it, of the log likelihood at this size of residual and this variance."""
    if not laplace:
        total = variance + 1.0
        return -0.5 * (jnp.log(total) + residual**2 / total)
    variance = jnp.maximum(variance, 1e-12)
    root, over = jnp.sqrt(variance), variance - residual
    inside = -0.5 * residual**2 / variance - 0.9189385332046727
    mills = jnp.minimum(math.log(1.2533141373155003), jnp.log(root) - jnp.log(jnp.maximum(over, 1e-300)))
    return jnp.where(over >= 0, inside + mills, 0.5 * variance - residual)


def _between(x, values):
    """What a smooth function may reach beyond the straight line between neighbouring nodes: `[G - 1, B]`."""
    h = x[1:] - x[:-1]
    slope = (values[1:] - values[:-1]) / jnp.where(h > 0, h, 1.0)
    across = jnp.maximum(h[1:] + h[:-1], 1e-300)
    bend = jnp.abs(slope[1:] - slope[:-1]) * 2.0 / across
    bend = jnp.concatenate([bend[:1], jnp.maximum(bend[1:], bend[:-1]), bend[-1:]])
    return _SAFETY * bend * h * h / 8.0


def bounds(laplace: bool, x, values: Values, center, center_prior):
    """Upper bound of the log density between neighbouring nodes, and whether nothing can hide there `[G - 1, B]`."""
    log_density = values.prior + values.likelihood
    ends = jnp.maximum(log_density[1:], log_density[:-1])
    pair = lambda f, v: f(v[1:], v[:-1])
    r, v = values.residual, values.variance
    slack_r, slack_v = _between(x, r), _between(x, v)
    low, high = pair(jnp.minimum, r) - slack_r, pair(jnp.maximum, r) + slack_r
    nearest = jnp.maximum(jnp.maximum(low, -high), 0.0)
    least = jnp.maximum(pair(jnp.minimum, v) - slack_v, 0.0)
    most = pair(jnp.maximum, v) + slack_v
    at = [least, most, jnp.clip(nearest**2, least, most), jnp.clip(nearest, least, most)]
    likelihood = jnp.stack([_ceiling(laplace, nearest, one) for one in at]).max(0) + 0.5
    between = (center[None] > x[:-1]) & (center[None] < x[1:])
    prior = jnp.where(between, center_prior[None], pair(jnp.maximum, values.prior))
    sd = jnp.sqrt(v + (2.0 if laplace else 1.0))
    standard = r / sd
    change = jnp.abs(standard[1:] - standard[:-1])
    smooth = (change + _between(x, standard) < _LARGEST_CHANGE) & (jnp.abs(jnp.log(sd[1:] / sd[:-1])) < 0.7)
    smooth = smooth & (_between(x, values.prior) < 2.0)
    bound = jnp.where(smooth, ends + 1.0, jnp.maximum(prior + likelihood, ends))
    lost = jnp.isnan(values.likelihood + r + v)  # then anything is possible there that the prior allows
    lost = lost[1:] | lost[:-1]
    lost = lost | jnp.isnan(bound)
    bound, smooth = jnp.where(lost, prior + 1.0, bound), smooth & ~lost
    return jnp.where(x[1:] > x[:-1], bound, _NOTHING), smooth | (x[1:] <= x[:-1])


def bounds_of_few(x, values: Values, center, center_prior):
    """As `bounds` for the exact law of few records, far out in whose tails the normal law bounds nothing: such a
    density has no scale smaller than its second differences show."""
    log_density = jnp.maximum(jnp.nan_to_num(values.prior + values.likelihood, nan=_NOTHING), _NOTHING)
    ends = jnp.maximum(log_density[1:], log_density[:-1])
    slack, h = _between(x, log_density), x[1:] - x[:-1]
    smooth = (slack < 2.0) & ((h < _WIDEST) | (slack < 0.05))
    between = (center[None] > x[:-1]) & (center[None] < x[1:])
    prior = jnp.where(between, center_prior[None], jnp.maximum(values.prior[1:], values.prior[:-1]))
    bound = ends + jnp.where(smooth, 1.0, slack + 5.0)
    bound = jnp.where(bound < prior + 1.0, bound, prior + 1.0)  # where it is no number, too
    return jnp.where(h > 0, bound, _NOTHING), smooth | (h <= 0)


def _look(sampler, model: Model, observed: Observed, x) -> Looked:
    """Everything at the nodes `[G, B]` and between them."""
    values = lax.map(lambda phi: sampler.values_lanes(model, observed, phi), x)
    top = sampler.center_lanes(model)
    if sampler.lattice:
        bound, smooth = bounds_of_few(x, values, *top)
    else:
        bound, smooth = bounds(sampler.noise.exponential, x, values, *top)
    log_density = jnp.maximum(jnp.nan_to_num(values.prior + values.likelihood, nan=_NOTHING), _NOTHING)
    # the sum's residual is a difference of numbers of the size of z
    slope = jnp.abs(values.residual) / (values.variance + 1.0)
    slope = jnp.minimum(slope, 1.0) if sampler.noise.exponential else slope
    rounding = jnp.finfo(x.dtype).eps * (jnp.abs(log_density) + slope * jnp.abs(observed.z[:1]))
    rounding = jnp.take_along_axis(rounding, jnp.argmax(log_density, 0)[None], 0)
    return Looked(x, log_density, values.parameter, bound, smooth, rounding)  # type: ignore[arg-type]


def _places(sampler, model, observed):
    """Centre of the prior, its landmarks and those of the model, and within what distance of them to look `[L, B]`."""
    center = over_lanes(lambda m: m.prior_center())(model)
    sd = 1.0 / jnp.sqrt(over_lanes(lambda m: m.prior_precision())(model)[0])
    place, width = model.landmarks_lanes(observed)
    return jnp.concatenate([center, place]), jnp.concatenate([sd, width])


def _end(height, center, floor, sign):
    """Where a function that falls away from the centre has fallen below the floor, by doubling and halving."""
    far = lambda step: height(center + sign * step) > floor
    step = lax.fori_loop(0, 60, lambda _, s: jnp.where(far(s), 2.0 * s, s), jnp.full_like(center, 1e-3))

    def halve(_, ends):
        low, high = ends
        middle = 0.5 * (low + high)
        above = far(middle)
        return jnp.where(above, middle, low), jnp.where(above, high, middle)

    return center + sign * lax.fori_loop(0, 12, halve, (jnp.zeros_like(step), step))[1]


def _reach(sampler, model, top):
    """Where the prior, times the parameter's square where that grows, is far below a height that was seen `[B]`."""
    center = over_lanes(lambda m: m.prior_center())(model)[0]
    size = lambda phi: jnp.log(jnp.maximum(jnp.abs(model.report_lanes(phi[None])[0]), 1e-300))

    def height(phi):
        return model.log_prior_lanes(phi[None]) + 2.0 * jnp.maximum(size(phi) - size(center), 0.0)

    floor = jnp.minimum(top, model.log_prior_lanes(center[None])) - _REACH
    return sampler.ends_lanes(_end(height, center, floor, -1.0), _end(height, center, floor, 1.0))


def first_nodes(place: np.ndarray, width: np.ndarray, low: np.ndarray, high: np.ndarray, bends: bool) -> np.ndarray:
    """Nodes of the first look `[16 k + 1, B]`: all over the reach, and closer around the landmarks.

    Args:
        bends: the mean of the statistic may bend, so that two places could hide between two nodes.
    """
    center = np.clip(place[0], low, high)
    share = ((np.arange(13.0) / 12.0) ** 3)[:, None]
    parts = [center - (center - low) * share, center + (high - center) * share[1:]]
    few, many = np.array([0.0, 1.5, 6.0]), np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 9, 14, 24, 50])
    for one, w in zip(place, width, strict=True):
        around = many if bends else few
        steps = np.concatenate([-around[:0:-1], around])[:, None]
        parts.append(one + w * steps)
    x = np.sort(np.clip(np.concatenate(parts), low, high), 0)
    room = -(len(x) - 1) % (ORDER - 1)
    return np.concatenate([x, np.repeat(x[-1:], room, 0)])


@lru_cache(maxsize=16)
def programs(sampler: Any) -> tuple[Any, Any, Any]:
    """Compiled, lanes last: places `(model, observed)`, reach `(model, observed, top)` and a look at nodes `(model,
    observed, nodes)`."""
    return (
        jax.jit(lambda model, observed: _places(sampler, model, observed)),
        jax.jit(lambda model, observed, top: _reach(sampler, model, top)),
        jax.jit(lambda model, observed, nodes: _look(sampler, model, observed, nodes)),
    )
