"""One Gibbs step of the regression with one covariate, written out on lane vectors (see `whole_loop`).

A quantity is a list of lane vectors and every product of small matrices is spelled out, so that a compiler of GPU
kernels sees elementwise operations only. The arithmetic is that of `suffstat`, `psd`, `nig`, `niw`, `random` and
`augmentation` at p = 1 (D = 5 statistics x, x^2, y, x y, y^2), where the formulas are explained.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from .random import _propose

#: Statistics, parameters, parallel gamma proposals.
SIZE, DIM, PROPOSALS = 5, 5, 2
#: Normals and uniforms of a step.
NORMALS, UNIFORMS = 3 * SIZE + 3 + 2 * PROPOSALS, SIZE + 2 * (PROPOSALS + 1)
_TINY = 1e-30
#: Smallest mixing scale (that of `LaplaceNoise`), and attempts after which a gamma draw is NaN instead of a hang.
_LEAST_SCALE, _ATTEMPTS = 1e-10, 100
_SQRT2 = 2.0**0.5


class Hyper(NamedTuple):
    """Prior: theta_mean, theta_precision (00, 01, 11), sigma2's shape and scale, x's mean, kappa, psi, nu."""

    mean_0: Any
    mean_1: Any
    precision_00: Any
    precision_01: Any
    precision_11: Any
    shape: Any
    scale: Any
    x_mean: Any
    kappa: Any
    psi: Any
    nu: Any


class Released(NamedTuple):
    """What was observed, lists of D lane vectors: z / b, n / b and sqrt(n) / b; and n."""

    z: Any
    n_over_b: Any
    root_n_over_b: Any
    n: Any


class Record(NamedTuple):
    """Mean, factor [[l, 0], [g10, g11]] and covariance of a record (x, y)."""

    mu: Any
    alpha: Any
    l: Any  # noqa: E741
    g10: Any
    g11: Any
    xx: Any
    xy: Any
    yy: Any


def record(position: list[Any]) -> Record:
    mu, alpha, beta, log_s2, ell = position
    l, sigma = jnp.exp(ell), jnp.exp(0.5 * log_s2)  # noqa: E741
    g10 = beta * l
    return Record(mu, alpha, l, g10, sigma, l * l, l * g10, g10 * g10 + sigma * sigma)


def product_mean(r: Record) -> list[Any]:
    """Means of x, x^2, y, x y, y^2."""
    return [r.mu, r.mu * r.mu + r.xx, r.alpha, r.mu * r.alpha + r.xy, r.alpha * r.alpha + r.yy]


def product_covariance(r: Record) -> list[list[Any]]:
    """Lower triangle of their covariance, row by row."""
    mu, alpha, xx, xy, yy = r.mu, r.alpha, r.xx, r.xy, r.yy
    m_xx, m_xy, m_yy = mu * mu, mu * alpha, alpha * alpha
    e_xy, e_yy = xy + m_xy, yy + m_yy
    return [
        [xx],
        [2.0 * mu * xx, 2.0 * xx * xx + 4.0 * m_xx * xx],
        [xy, 2.0 * mu * xy, yy],
        [mu * xy + alpha * xx, 2.0 * xx * xy + 2.0 * m_xx * xy + 2.0 * m_xy * xx, mu * yy + alpha * xy,
         xx * e_yy + m_xx * yy + xy * e_xy + m_xy * xy],
        [2.0 * alpha * xy, 2.0 * xy * e_xy + 2.0 * m_xy * xy, 2.0 * alpha * yy, 2.0 * xy * e_yy + 2.0 * m_xy * yy,
         2.0 * yy * yy + 4.0 * m_yy * yy],
    ]  # fmt: skip


def product_deviation(r: Record, normals: list[Any]) -> list[Any]:
    """Draw from N(0, covariance): entries of m u' + u m' + G H G', u = G v."""
    u0 = r.l * normals[0]
    u1 = r.g10 * normals[0] + r.g11 * normals[1]
    h00, h01, h11 = _SQRT2 * normals[2], normals[3], _SQRT2 * normals[4]
    row_0 = r.g10 * h00 + r.g11 * h01  # row 1 of G H
    row_1 = r.g10 * h01 + r.g11 * h11
    g00 = r.l * r.l * h00
    g01 = r.l * row_0
    g11 = row_0 * r.g10 + row_1 * r.g11
    return [u0, 2.0 * r.mu * u0 + g00, u1, r.mu * u1 + u0 * r.alpha + g01, 2.0 * r.alpha * u1 + g11]


def solve(a: list[list[Any]], b: list[Any]) -> list[Any]:
    """Solve with a positive definite matrix given by its lower triangle, by elimination without pivoting."""
    size = len(b)
    a, b = [list(row) for row in a], list(b)
    inverse = []
    for k in range(size):
        inverse.append(1.0 / a[k][k])
        for i in range(k + 1, size):
            ratio = a[i][k] * inverse[k]
            for j in range(k + 1, i + 1):
                a[i][j] = a[i][j] - ratio * a[j][k]
            b[i] = b[i] - ratio * b[k]
    for k in reversed(range(size)):
        total = b[k]
        for i in range(k + 1, size):
            total = total - a[i][k] * b[i]
        b[k] = total * inverse[k]
    return b


def noise_draw(r: Record, released: Released, scales: list[Any], normals: list[Any]) -> list[Any]:
    """e = (z - s) / b with s | phi, w, z by Matheron's rule, from 2 D normals."""
    root, mean, covariance = released.root_n_over_b, product_mean(r), product_covariance(r)
    deviation = product_deviation(r, normals[:SIZE])
    noise = [jnp.sqrt(w) * x for w, x in zip(scales, normals[SIZE:], strict=True)]
    every = range(SIZE)
    misfit = [
        released.z[i] - released.n_over_b[i] * mean[i] - deviation[i] * root[i] - noise[i] for i in every
    ]  # fmt: skip
    total = [[covariance[i][j] * root[i] * root[j] for j in range(i + 1)] for i in every]
    for i in every:
        total[i][i] = total[i][i] + scales[i]
    gain = solve(total, misfit)
    return [noise[i] + scales[i] * gain[i] for i in every]


def project(s: list[Any]) -> list[Any]:
    """Nearest statistic per record whose centred 2 x 2 scatter is positive semi-definite, first sums kept."""
    x, xx, y, xy, yy = s
    low, off, high = xx - x * x, xy - x * y, yy - y * y
    pivot = high - off * off / jnp.where(low > 0, low, jnp.ones_like(low))
    broken = ~((low > 0) & (pivot > 0))
    nonzero = off != 0
    tau = (high - low) / (2.0 * jnp.where(nonzero, off, jnp.ones_like(off)))
    size = 1.0 / (jnp.abs(tau) + jnp.sqrt(1.0 + tau * tau))
    tangent = jnp.where(nonzero, jnp.where(tau < 0, -size, size), jnp.zeros_like(off))
    cosine = lax.rsqrt(1.0 + tangent * tangent)
    sine = tangent * cosine
    zero = jnp.zeros_like(low)
    lift_0 = jnp.where(broken, jnp.maximum(tangent * off - low, zero), zero)
    lift_1 = jnp.where(broken, jnp.maximum(-tangent * off - high, zero), zero)
    change_xx = lift_0 * cosine * cosine + lift_1 * sine * sine
    change_xy = (lift_1 - lift_0) * sine * cosine
    change_yy = lift_0 * sine * sine + lift_1 * cosine * cosine
    return [x, xx + change_xx, y, xy + change_xy, yy + change_yy]


def conjugate_draw(
    h: Hyper, n: Any, valid: list[Any], gammas: list[Any], normals: list[Any]
) -> list[Any]:  # fmt: skip
    """phi | s from two gamma draws (of sigma^2 and of the covariate's variance) and three normals."""
    x, xx, y, xy, yy = valid
    kappa = h.kappa + n
    weight = n / kappa
    gap = x - h.x_mean
    psi = h.psi + n * (xx - x * x) + h.kappa * weight * gap * gap
    factor = psi * lax.rsqrt(jnp.maximum(psi, _TINY)) / jnp.sqrt(2.0 * gammas[1])
    mu = h.x_mean + weight * gap + factor * normals[2] / jnp.sqrt(kappa)

    unit = jnp.maximum(n, jnp.ones_like(n))
    share = n / unit
    prior_0 = h.precision_00 * h.mean_0 + h.precision_01 * h.mean_1
    prior_1 = h.precision_01 * h.mean_0 + h.precision_11 * h.mean_1
    p00 = h.precision_00 / unit + share
    p01 = h.precision_01 / unit + share * x
    p11 = h.precision_11 / unit + share * xx
    right_0, right_1 = prior_0 / unit + share * y, prior_1 / unit + share * xy
    square = (h.mean_0 * prior_0 + h.mean_1 * prior_1) / unit + share * yy
    i00 = lax.rsqrt(jnp.maximum(p00, _TINY))
    below = p01 * i00
    i11 = lax.rsqrt(jnp.maximum(p11 - below * below, _TINY))
    i10 = -below * i00 * i11
    f0 = i00 * right_0
    f1 = i10 * right_0 + i11 * right_1
    gain = square - (f0 * f0 + f1 * f1)
    rounding = 24.0 * float(jnp.finfo(gain.dtype).eps) * jnp.abs(square)
    gain = jnp.where((gain < 0) & (gain >= -rounding), jnp.zeros_like(gain), gain)
    sigma2 = (h.scale + 0.5 * unit * gain) / gammas[0]
    spread = jnp.sqrt(sigma2 / unit)
    theta_0 = i00 * f0 + i10 * f1 + spread * (i00 * normals[0] + i10 * normals[1])
    theta_1 = i11 * f1 + spread * (i11 * normals[1])
    return [mu, theta_0 + mu * theta_1, theta_1, jnp.log(sigma2), jnp.log(factor)]


def mixing_scales(noise: list[Any], normals: list[Any], uniforms: list[Any]) -> list[Any]:
    """w | e: the reciprocal of an inverse Gaussian."""
    out = []
    for e, normal, u in zip(noise, normals, uniforms, strict=True):
        m, y = jnp.abs(e), normal * normal
        large = m + 0.5 * y + 0.5 * jnp.sqrt(y * (4.0 * m + y))
        positive = large > 0
        small = jnp.where(positive, m * (m / jnp.where(positive, large, jnp.ones_like(large))), jnp.zeros_like(m))
        w = jnp.where(u * (large + m) < large, large, small)
        out.append(jnp.maximum(w, jnp.full_like(m, _LEAST_SCALE)))
    return out


def gammas(shapes: list[Any], normals: list[Any], uniforms: list[Any], again: Callable[[Any], Any]) -> list[Any]:
    """Gamma(shape, 1) by Marsaglia and Tsang, exact; the numbers are `random.gamma_from`'s, proposals outermost.

    Args:
        shapes: positive shapes.
        normals, uniforms: `PROPOSALS` and `PROPOSALS + 1` per shape.
        again: `again(attempt)` with a uint32 scalar gives (normals, uniforms), one per shape, for another attempt.
    """
    count = len(shapes)
    boosted = [jnp.where(shape < 1.0, shape + 1.0, shape) for shape in shapes]
    values = [jnp.full_like(shape, jnp.nan) for shape in shapes]
    # a shape that is not positive and finite waits for nothing and stays NaN
    left = [jnp.where((s > 0) & (s < jnp.inf), jnp.ones_like(s), jnp.zeros_like(s)) for s in shapes]

    def propose(values, left, normals, uniforms):
        for k in range(count):
            proposal, accepted = _propose(boosted[k], normals[k], uniforms[k])
            taken = accepted & (left[k] > 0)
            values[k] = jnp.where(taken, proposal, values[k])
            left[k] = jnp.where(accepted, jnp.zeros_like(left[k]), left[k])
        return values, left

    for attempt in range(PROPOSALS):
        chosen = slice(attempt * count, (attempt + 1) * count)
        values, left = propose(list(values), list(left), normals[chosen], uniforms[chosen])

    def body(carry):
        attempt, values, left = carry
        values, left = propose(list(values), list(left), *again(attempt))
        return attempt + np.uint32(1), tuple(values), tuple(left)

    def waiting(carry):
        rest = carry[2][0]
        for more in carry[2][1:]:
            rest = jnp.maximum(rest, more)
        return (jnp.max(rest) > 0) & (carry[0] < np.uint32(_ATTEMPTS))

    start = (np.uint32(0), tuple(values), tuple(left))
    drawn = lax.while_loop(waiting, body, start)[1]
    small = [jnp.exp(jnp.log(1.0 - u) / shape) for u, shape in zip(uniforms[-count:], shapes, strict=True)]
    power = [jnp.where(shape < 1.0, x, jnp.ones_like(x)) for x, shape in zip(small, shapes, strict=True)]
    return [value * x for value, x in zip(drawn, power, strict=True)]


def report(position: list[Any]) -> list[Any]:
    """theta_0, theta_1, sigma^2, mu, tau^2."""
    mu, alpha, beta, log_s2, ell = position
    l = jnp.exp(ell)  # noqa: E741
    return [alpha - mu * beta, beta, jnp.exp(log_s2), mu, l * l]


def step(
    h: Hyper,
    released: Released,
    position: list[Any],
    scales: list[Any],
    normals: list[Any],
    uniforms: list[Any],
    again: Callable[[Any], Any],
) -> tuple[list[Any], list[Any]]:
    """One transition of `Gibbs.step_lanes`: s | phi, w, z; projection; phi | s; w | e.

    Args:
        h, released: prior and observation.
        position, scales: state, 5 lane vectors each.
        normals, uniforms: `NORMALS` and `UNIFORMS` lane vectors in the order in which `Gibbs.step_lanes` takes them.
        again: see `gammas`.
    """
    n, over_b, every = released.n, released.n_over_b, range(SIZE)
    noise = noise_draw(record(position), released, scales, normals[: 2 * SIZE])
    drawn = [(released.z[i] - noise[i]) / over_b[i] for i in every]
    valid = project(drawn)
    rest = normals[3 * SIZE :]
    shapes = [h.shape + 0.5 * n, 0.5 * (h.nu + n)]
    made = gammas(shapes, rest[3:], uniforms[SIZE:], again)
    position = conjugate_draw(h, n, valid, made, rest[:3])
    noise = [noise[i] - over_b[i] * (valid[i] - drawn[i]) for i in every]
    for_scales = normals[2 * SIZE : 3 * SIZE]
    return position, mixing_scales(noise, for_scales, uniforms[:SIZE])
