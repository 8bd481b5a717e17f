"""The posterior of a binomial count given its noisy release, as a table of blocks of counts.

p(s | z) is proportional to C(n, s) B(alpha + s, beta + n - s) p(z | s). Which counts matter is found from this
product, not from z: the prior may hold the count many noise scales away from z. With both exponents of the prior at
least 1 its logarithm is concave, so that its top and the ends of what matters are found by bisection, and what lies
beyond an end is less than a geometric series. Smaller exponents are bounded by those at 1; the counts 0 and n, where
such a prior has its peaks, always belong to the table. Counts beyond the number of terms are summed in blocks, in each
of which the logarithm is a parabola; no block reaches over z.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy import special as scipy_special

from dpjax.kernels.special import log_sinhc
from dpjax.samplers._panel_tables import Tables
from dpjax.samplers._panels import LARGEST_ERROR

#: Log weight, relative to its top, below which counts are left out.
_FALL = 36.0
#: Problems whose tables are made in one call, the largest of these that is filled.
_SIZES = (2048, 128, 1)
#: Gamma functions of arguments from here on by Stirling's series.
_STIRLING_FROM = 64.0


def _rest(x):
    inverse = 1.0 / x
    square = inverse * inverse
    return inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680)))


def _rise(x, t):
    """log Gamma(x + t) - log Gamma(x) without the cancellation of two large numbers."""
    y = x + t
    large = (x >= _STIRLING_FROM) & (y >= _STIRLING_FROM)
    a, b = jnp.where(large, x, _STIRLING_FROM), jnp.where(large, y, _STIRLING_FROM)
    d = jnp.where(large, t, 0.0)
    series = d * jnp.log(a) + (b - 0.5) * jnp.log1p(d / a) - d + _rest(b) - _rest(a)
    direct = jax.scipy.special.gammaln(jnp.where(large, 1.0, y)) - jax.scipy.special.gammaln(jnp.where(large, 1.0, x))
    return jnp.where(large, series, direct)


def _log_weight(s, start, n, alpha, beta):
    """log of C(n, s) B(alpha + s, beta + n - s), relative to its value at `start`."""
    t = s - start
    rest = n - start
    return _rise(start + alpha, t) - _rise(start + 1.0, t) + _rise(rest + beta, -t) - _rise(rest + 1.0, -t)


def _slope(s, n, alpha, beta):
    """How much that logarithm rises from s - 1/2 to s + 1/2, 1/2 <= s <= n - 1/2."""
    k = s + 0.5
    left = n - k
    return jnp.log((left + 1.0) / (left + beta)) + jnp.log((k - 1.0 + alpha) / k)


def _noise(laplace: bool, s, z, b):
    away = (s - z) / b
    return -jnp.abs(away) if laplace else -0.5 * away**2


def _noise_slope(laplace: bool, s, z, b):
    return jnp.where(s > z, -1.0, 1.0) / b if laplace else -(s - z) / b**2


def _steps_from_an_end(largest: float) -> np.ndarray:
    """0, 1, ..., 8 and on in steps of an eighth."""
    steps = [float(k) for k in range(9)]
    while steps[-1] < largest:
        steps.append(np.ceil(steps[-1] * 1.125))
    return np.array(steps)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _table(laplace: bool, terms: int, ends: float, n, z, b, alpha, beta):
    """Boundaries of the blocks `[G, T]`, mass of each block and rise of the log weight over it `[G - 1, T]`, share of
    the counts that are left out, `[T]`."""
    n, z, b, alpha, beta = (x[None] for x in (n, z, b, alpha, beta))
    least = lambda x: jnp.maximum(x, 1.0)
    start = jnp.round(jnp.clip(z, 0.0, n))
    weight = lambda s, a=alpha, c=beta: _log_weight(s, start, n, a, c) + _noise(laplace, s, z, b)
    slope = lambda s, at, a=alpha, c=beta: _slope(s, n, a, c) + _noise_slope(laplace, at, z, b)
    above = lambda s: weight(s, least(alpha), least(beta))  # concave, and no smaller up to `slack`

    def halve(up):
        def body(_, ends):
            low, high = ends
            middle = 0.5 * (low + high)
            yes = up(middle)
            return jnp.where(yes, middle, low), jnp.where(yes, high, middle)

        return body

    half = jnp.full_like(n, 0.5)
    inner = jnp.maximum(n - 0.5, 0.5)
    rises = lambda s: slope(s, s, least(alpha), least(beta)) > 0.0
    mode = jnp.clip(jnp.round(0.5 * sum(lax.fori_loop(0, 64, halve(rises), (half, inner)))), 0.0, n)
    near = jnp.concatenate([jnp.clip(mode + d, 0.0, n) for d in (-1.0, 0.0, 1.0)])
    slack = (jnp.maximum(1.0 - alpha, 0.0) + jnp.maximum(1.0 - beta, 0.0)) * jnp.log(n + 1.0)
    heights = above(near)
    mode = jnp.take_along_axis(near, jnp.argmax(heights, 0, keepdims=True), 0)
    floor = heights.max(0, keepdims=True) - _FALL - slack - 1.0
    down = lax.fori_loop(0, 64, halve(lambda s: above(s) < floor), (jnp.zeros_like(n), mode))[0]
    up = lax.fori_loop(0, 64, halve(lambda s: above(s) >= floor), (mode, n))[1]
    first, last = jnp.floor(down), jnp.ceil(up)
    share = jnp.linspace(0.0, 1.0, terms + 1, dtype=n.dtype)[:, None]
    span = last + 1.0 - first
    cuts = [first + jnp.round(span * share), jnp.clip(jnp.floor(z) + 1.0, first, last + 1.0)]
    cuts += [jnp.zeros_like(n), jnp.ones_like(n), n, n + 1.0]
    if ends:
        steps = jnp.asarray(_steps_from_an_end(ends), n.dtype)[:, None]
        cuts += [jnp.minimum(first + steps, last + 1.0), jnp.maximum(last + 1.0 - steps, first)]
    bound = jnp.sort(jnp.concatenate(cuts), 0)
    low, width = bound[:-1], bound[1:] - bound[:-1]
    high = bound[1:] - 1.0
    center = 0.5 * (low + high)
    used = (width > 0) & (((low >= first) & (high <= last)) | (high == 0.0) | (low == n))
    at = jnp.clip(center, 0.5, inner)
    rise = jnp.where(width > 1, slope(at, center), 0.0)
    quarter = jnp.where(width > 1, 0.25 * width, 1.0)
    near_by = lambda d: slope(jnp.clip(center + d, 0.5, inner), center if laplace else center + d)
    slopes = near_by(quarter), near_by(-quarter)
    bend = jnp.where(width > 1, (slopes[0] - slopes[1]) / (2.0 * quarter), 0.0)
    logs = weight(center) + jnp.log(jnp.maximum(width, 1.0)) + log_sinhc(0.5 * width * rise) - log_sinhc(0.5 * rise)
    logs = logs + jnp.log1p(jnp.clip(bend * (width * width - 1.0) / 24.0, -0.5, 0.5))
    logs = jnp.where(used, logs, -jnp.inf)
    top = logs.max(0, keepdims=True)
    mass = jnp.exp(logs - top)
    total = mass.sum(0, keepdims=True)

    def beyond(s, sign, some):
        fall = -sign * slope(jnp.clip(s, 0.5, inner), s, least(alpha), least(beta))
        series = jnp.exp(above(s) + slack - top) / -jnp.expm1(-jnp.maximum(fall, 1e-300))
        return jnp.where(some, series / total, 0.0)

    missing = beyond(first, -1.0, first > 0) + beyond(last, 1.0, last < n)
    return bound, mass / total, jnp.where(used, rise * width, 0.0), missing[0]


def tables(problems: Any, laplace: bool, terms: int) -> Tables:
    """Tables of the count of T problems; mean and sd are those of the probability."""
    model = problems.batched_model()
    alpha, beta = (np.asarray(x, np.float64) for x in (model.prior.alpha, model.prior.beta))
    n = problems.n
    most = float(n.max())
    terms = int(min(terms, 2 ** np.ceil(np.log2(most + 2))))
    ends = float(2.0 ** np.ceil(np.log2(most + 2))) if min(alpha.min(), beta.min()) < 1.0 else 0.0
    columns = (n, problems.z[:, 0], problems.scale[:, 0], alpha, beta)
    pieces, start = [], 0
    with jax.enable_x64(True):
        while start < len(n):
            size = next(s for s in _SIZES if s <= len(n) - start)
            part = (x[start : start + size] for x in columns)
            pieces.append([np.asarray(x) for x in _table(laplace, terms, ends, *part)])
            start += size
    bound, mass, rise, missing = (np.concatenate(x, -1).T for x in zip(*pieces, strict=True))
    cdf = np.concatenate([np.zeros((len(n), 1)), np.cumsum(mass, 1)], 1)
    cdf = np.minimum(cdf / cdf[:, -1:], 1.0)
    mean, sd, _ = _mixture(bound, mass, rise, n, alpha, beta)
    step = np.concatenate([rise, np.zeros((len(n), 1))], 1)
    none = np.zeros((len(n), 0))  # the table is of counts
    return Tables(bound - 0.5, none, none, cdf, step, mean, sd, np.isfinite(mean) & (missing < LARGEST_ERROR))


def _mixture(bound, mass, rise, n, alpha, beta):
    """Mean and sd of the probability, and the mean count of each block."""
    width = np.diff(bound, axis=1)
    x = 0.5 * rise
    small = np.abs(x) < 1e-2
    safe = np.where(small, 1.0, x)
    lean = np.where(small, x / 3.0, 1.0 / np.tanh(safe) - 1.0 / safe)
    with np.errstate(over="ignore"):
        spread = np.where(small, 1.0 / 3.0 - x * x / 15.0, 1.0 / safe**2 - 1.0 / np.sinh(safe) ** 2)
    count = 0.5 * (bound[:, :-1] + bound[:, 1:] - 1.0) + 0.5 * width * lean
    within = np.maximum(0.25 * width**2 * spread - 1.0 / 12.0, 0.0)
    size = (alpha + beta + n)[:, None]
    middle = (mass * count).sum(1, keepdims=True)
    away = (count - middle) / size
    some, other = (alpha[:, None] + count) / size, (beta[:, None] + n[:, None] - count) / size
    variance = mass * (some * other / (size + 1.0) + away**2 + within / size**2)
    return (alpha + middle[:, 0]) / size[:, 0], np.sqrt(variance.sum(1)), count


def probability_quantiles(table: Tables, n, alpha, beta, levels=(0.05, 0.95)) -> np.ndarray:
    """Quantiles of the probability `[T, levels]`: the mixture's distribution function is inverted by bisection and the
    secant in turn."""
    out = np.empty((len(n), len(levels)))
    bound, mass = table.nodes + 0.5, np.diff(table.cdf, axis=1)
    count = _mixture(bound, mass, table.step[:, :-1], n, alpha, beta)[2]
    for i in range(len(n)):
        keep = mass[i] > 1e-9
        weight, s = mass[i][keep], count[i][keep]
        some, other = alpha[i] + s, beta[i] + n[i] - s
        cdf = lambda p, w=weight, a=some, b=other: float((w * scipy_special.betainc(a, b, p)).sum())
        for k, level in enumerate(levels):
            out[i, k] = _solve(cdf, level * weight.sum(), table.mean[i], table.sd[i])
    return out


def _solve(cdf, level: float, mean: float, sd: float) -> float:
    low, high = max(mean - 2.0 * sd, 0.0), min(mean + 2.0 * sd, 1.0)
    while low > 0.0 and cdf(low) > level:
        low = max(low - 2.0 * sd, 0.0) if low > 2.0 * sd else (low / 8.0 if low > 1e-290 else 0.0)
    while high < 1.0 and cdf(high) < level:
        high = min(high + 2.0 * sd, 1.0)
    at = [cdf(low) - level, cdf(high) - level]
    for step in range(60):
        if high - low <= 1e-5 * sd:
            break
        middle = 0.5 * (low + high)
        if step % 2 == 0 and at[1] > at[0]:
            middle = min(max(low - at[0] * (high - low) / (at[1] - at[0]), low + 1e-3 * (high - low)), high)
        value = cdf(middle) - level
        if value < 0:
            low, at[0] = middle, value
        else:
            high, at[1] = middle, value
    return 0.5 * (low + high)
