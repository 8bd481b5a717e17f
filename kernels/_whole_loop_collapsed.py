"""One iteration of the collapsed sampler with frozen parameters, written out on lane vectors (see `whole_loop`).

The regression with one covariate, as in `_whole_loop_gibbs`, whose pieces it shares. Metric M(w), HMC on phi | w with
s integrated out, e by Matheron's rule, w | e: `Collapsed.step_lanes` after warm-up. Gradients of the moments and of
the prior are pulled back by JAX through the written-out polynomials, which leaves elementwise operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ._whole_loop_gibbs import (
    DIM,
    SIZE,
    Hyper,
    Released,
    mixing_scales,
    noise_draw,
    product_covariance,
    product_mean,
    record,
)

#: Normals and uniforms of an iteration.
NORMALS, UNIFORMS = DIM + 3 * SIZE, 2 + SIZE
#: Entries of a symmetric 5 x 5 matrix, and rows of the frozen parameters.
TRIANGLE = DIM * (DIM + 1) // 2
FROZEN = 1 + SIZE * (SIZE + DIM) + (1 + SIZE) * TRIANGLE
_TINY = 1e-30
LowerTriangle = list[list[Any]]


def inverse(a: LowerTriangle) -> tuple[Any, LowerTriangle]:
    """Log determinant and inverse (lower triangle) of a positive definite matrix, by symmetric sweeps."""
    size = len(a)
    x = [list(row) for row in a]
    at = lambda i, j: x[i][j] if i >= j else x[j][i]
    log_det = None
    for k in range(size):
        log_d = jnp.log(x[k][k])
        log_det = log_d if log_det is None else log_det + log_d
        over = 1.0 / x[k][k]
        column = [at(i, k) for i in range(size)]
        for i in range(size):
            ratio = column[i] * over
            for j in range(i + 1):
                if i == k and j == k:
                    x[i][j] = -over
                elif i == k:
                    x[i][j] = column[j] * over
                elif j == k:
                    x[i][j] = ratio
                else:
                    x[i][j] = x[i][j] - ratio * column[j]
    return log_det, [[-v for v in row] for row in x]


def inverse_cholesky(a: LowerTriangle) -> LowerTriangle:
    """`L^{-1}` with a = L L', lower triangular; pivots under 1e-30 are raised to it."""
    size = len(a)
    factor: LowerTriangle = [list(row) for row in a]
    scale = []
    for j in range(size):
        pivot = factor[j][j]
        for k in range(j):
            pivot = pivot - factor[j][k] * factor[j][k]
        scale.append(lax.rsqrt(jnp.maximum(pivot, _TINY)))
        for i in range(j + 1, size):
            total = factor[i][j]
            for k in range(j):
                total = total - factor[i][k] * factor[j][k]
            factor[i][j] = total * scale[j]
    out: LowerTriangle = []
    for i in range(size):
        row = []
        for j in range(i):
            total = factor[i][j] * out[j][j]
            for k in range(j + 1, i):
                total = total + factor[i][k] * out[k][j]
            row.append(-total * scale[i])
        out.append([*row, scale[i]])
    return out


def metric(frozen: Callable[[int], Any], scales: list[Any]) -> LowerTriangle:
    """M(w), lower triangle; `frozen(row)` gives one row of the frozen parameters."""
    width = SIZE + DIM
    zero = jnp.zeros_like(scales[0])

    # loops with one copy of their loads, for the compiler's sake: see `whole_loop._load`
    def fetch(i: Any, rows: tuple[Any, ...]) -> tuple[Any, ...]:
        found = [frozen(1 + i * width + k) for k in range(width)]
        return tuple(jnp.where(i == k // width, found[k % width], old) for k, old in enumerate(rows))

    rows = lax.fori_loop(0, SIZE, fetch, (zero,) * (SIZE * width))
    a = [[rows[i * width + j] for j in range(i + 1)] for i in range(SIZE)]
    weights = [jnp.ones_like(zero)]  # of the prior's precision, then of each statistic's curvature
    for i in range(SIZE):
        a[i][i] = a[i][i] + scales[i]
        weights.append(1.0 / a[i][i])
    # Y = L^{-1} J with a = L D L', row by row; J' a^{-1} J = Y' D^{-1} Y
    y = [[rows[i * width + SIZE + k] for k in range(DIM)] for i in range(SIZE)]
    m = [[zero for _ in range(i + 1)] for i in range(DIM)]
    for k in range(SIZE):
        over = 1.0 / a[k][k]
        for i in range(k + 1, SIZE):
            ratio = a[i][k] * over
            for j in range(k + 1, i + 1):
                a[i][j] = a[i][j] - ratio * a[j][k]
            y[i] = [v - ratio * u for v, u in zip(y[i], y[k], strict=True)]
        for i in range(DIM):
            scaled = y[k][i] * over
            for j in range(i + 1):
                m[i][j] = m[i][j] + scaled * y[k][j]

    def curve(s: Any, m: tuple[Any, ...]) -> tuple[Any, ...]:
        weight = weights[0]
        for k, candidate in enumerate(weights[1:], 1):
            weight = jnp.where(s == k, candidate, weight)
        start = 1 + SIZE * width + s * TRIANGLE
        return tuple(x + frozen(start + k) * weight for k, x in enumerate(m))

    flat = lax.fori_loop(0, SIZE + 1, curve, tuple(x for row in m for x in row))
    return [[flat[i * (i + 1) // 2 + j] for j in range(i + 1)] for i in range(DIM)]


def log_prior(h: Hyper, position: list[Any]) -> Any:
    mu, alpha, beta, log_s2, ell = position
    precision = jnp.exp(-log_s2)
    offset_0, offset_1 = alpha - mu * beta - h.mean_0, beta - h.mean_1
    quadratic = h.precision_00 * offset_0 * offset_0 + 2.0 * h.precision_01 * offset_0 * offset_1
    quadratic = quadratic + h.precision_11 * offset_1 * offset_1
    shift = mu - h.x_mean
    trace = jnp.exp(-2.0 * ell) * (h.psi + h.kappa * shift * shift)
    value = -(1.0 + h.shape) * log_s2 - precision * (0.5 * quadratic + h.scale)
    return value - (h.nu + 1.0) * ell - 0.5 * trace


def log_density_and_grad(h: Hyper, released: Released, scales: list[Any], position: list[Any]) -> tuple[Any, list[Any]]:
    """log p(phi, z | w) up to a constant and its gradient, s integrated out."""

    def moments(position: tuple[Any, ...]) -> tuple[list[Any], LowerTriangle]:
        r = record(list(position))
        return product_mean(r), product_covariance(r)

    root, over_b, every = released.root_n_over_b, released.n_over_b, range(SIZE)
    (mean, covariance), pull = jax.vjp(moments, tuple(position))
    a = [[covariance[i][j] * (root[i] * root[j]) for j in range(i + 1)] for i in every]
    for i in every:
        a[i][i] = a[i][i] + scales[i]
    residual = [released.z[i] - over_b[i] * mean[i] for i in every]
    log_det, inv = inverse(a)
    solved = []
    for i in every:
        total = inv[i][0] * residual[0]
        for j in range(1, SIZE):
            total = total + (inv[i][j] if i >= j else inv[j][i]) * residual[j]
        solved.append(total)
    square = residual[0] * solved[0]
    for i in range(1, SIZE):
        square = square + residual[i] * solved[i]
    # an entry under the diagonal stands for two of the symmetric matrix
    by_covariance = [
        [(solved[i] * solved[j] - inv[i][j]) * (root[i] * root[j]) * (0.5 if i == j else 1.0) for j in range(i + 1)]
        for i in every
    ]
    (by_moments,) = pull(([solved[i] * over_b[i] for i in every], by_covariance))
    prior, pull_prior = jax.vjp(lambda x: log_prior(h, list(x)), tuple(position))
    (by_prior,) = pull_prior(jnp.ones_like(prior))
    gradient = [x + y for x, y in zip(by_moments, by_prior, strict=True)]
    return prior - 0.5 * (log_det + square), gradient


def _kick(factor: LowerTriangle, gradient: list[Any]) -> list[Any]:
    """`L^{-1}` times a vector."""
    out = []
    for i in range(DIM):
        total = factor[i][0] * gradient[0]
        for j in range(1, i + 1):
            total = total + factor[i][j] * gradient[j]
        out.append(total)
    return out


def _drift(factor: LowerTriangle, momentum: list[Any]) -> list[Any]:
    """`L^{-T}` times a vector."""
    out = []
    for j in range(DIM):
        total = factor[j][j] * momentum[j]
        for i in range(j + 1, DIM):
            total = total + factor[i][j] * momentum[i]
        out.append(total)
    return out


def step(
    h: Hyper,
    released: Released,
    frozen: Callable[[int], Any],
    position: list[Any],
    scales: list[Any],
    normals: list[Any],
    uniforms: list[Any],
    leapfrogs: int,
    jitter: float,
) -> tuple[list[Any], list[Any], Any]:
    """One transition of `Collapsed.step_lanes`.

    Args:
        h, released: prior and observation.
        frozen: `frozen(row)`, rows as packed by `whole_loop.pack_frozen`.
        position, scales: state, 5 lane vectors each.
        normals, uniforms: `NORMALS` and `UNIFORMS` lane vectors in the order in which `Collapsed.step_lanes` takes
            them.
        leapfrogs, jitter: static settings of the sampler.

    Returns:
        `(position, scales, acceptance probability)`.
    """
    momentum, rest = normals[:DIM], normals[DIM:]
    size = frozen(0) * (1.0 + jitter * (2.0 * uniforms[0] - 1.0))
    factor = inverse_cholesky(metric(frozen, scales))
    zero = jnp.zeros_like(size)

    def body(s: Any, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        # one copy of the gradient: step 0 moves nothing and only opens the half kick
        x, u, _, start = carry
        length = jnp.where(s == 0, zero, size)
        x = tuple(v + length * d for v, d in zip(x, _drift(factor, list(u)), strict=True))
        value, gradient = log_density_and_grad(h, released, scales, list(x))
        kick = jnp.where((s == 0) | (s == leapfrogs), 0.5 * size, size)
        u = tuple(v + kick * d for v, d in zip(u, _kick(factor, gradient), strict=True))
        return x, u, value, jnp.where(s == 0, value, start)

    x, u, end, start = lax.fori_loop(0, leapfrogs + 1, body, (tuple(position), tuple(momentum), zero, zero))
    energy = end - start
    for before, after in zip(momentum, u, strict=True):
        energy = energy - 0.5 * (after * after - before * before)
    finite = (energy > -jnp.inf) & (energy < jnp.inf)  # false for NaN
    acceptance = jnp.where(finite, jnp.exp(jnp.minimum(energy, zero)), zero)
    accepted = uniforms[1] < acceptance
    position = [jnp.where(accepted, new, old) for new, old in zip(x, position, strict=True)]
    noise = noise_draw(record(position), released, scales, rest[: 2 * SIZE])
    for_scales = rest[2 * SIZE :]
    scales = mixing_scales(noise, for_scales, uniforms[2:])
    return position, scales, acceptance
