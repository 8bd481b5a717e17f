"""Elementwise special functions that stay accurate in logs, in both precisions and to the third derivative.

Samplers differentiate densities that hold the Hessian of a truncated log-partition, so third derivatives are taken.
Arguments are arrays of one shape and dtype. At the ends of a domain, where a logarithm is -inf, derivatives are given
as zero: such a value stands for an empty region.

The integrals (incomplete gamma functions, Mills ratio) are Gauss-Legendre sums: the integrand, scaled to 1 at its
largest end, is entire and log-concave, and the window ends where it has fallen below rounding. Cost and accuracy
then hardly depend on the arguments, no loop waits for the slowest lane, and a sum of positive terms cancels nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
#: Coefficients of 1/a, 1/a^3, ... in `_stirling_rest`.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
#: Least a for which the Stirling series is used.
_STIRLING_FROM = 8
#: Least second argument of the lower incomplete gamma integral; below it the recurrence raises a
_RECURRENCE = 3
#: Second arguments above this are taken as infinite: squares stay representable in float32.
_INFINITE = 1e15


def _sinhc_coefficients(terms: int) -> list[float]:
    """c_k in log(sinh(u) / u) = sum over k >= 1 of c_k u^(2k)."""
    a = [Fraction(1, math.factorial(2 * k + 1)) for k in range(terms + 1)]
    c = [Fraction(0)]
    for k in range(1, terms + 1):
        c.append(a[k] - sum((j * c[j] * a[k - j] for j in range(1, k)), Fraction(0)) / k)
    return [float(x) for x in c]


#: Enough below |u| = 1 for four derivatives: the terms fall as pi^(-2k).
_SINHC = _sinhc_coefficients(24)


def _sinhc_derivative(order: int, u: Any) -> Any:
    """Derivative of this order, at most 4, of log(sinh(u) / u)."""
    small = jnp.abs(u) < 1.0
    near = jnp.where(small, u, 0.0)
    first = max(1, (order + 1) // 2)
    terms = range(12 if jnp.finfo(u.dtype).bits <= 32 else 24, first - 1, -1)
    series = jnp.zeros_like(u)
    for k in terms:
        series = series * (near * near) + _SINHC[k] * math.perm(2 * k, order)
    series = series * near ** (2 * first - order)
    x = jnp.where(small, 1.0, jnp.abs(u))
    e = jnp.exp(-2.0 * x)
    if order == 0:
        return jnp.where(small, series, x - jnp.log(2.0 * x) + jnp.log1p(-e))
    coth, csch2 = (1.0 + e) / (1.0 - e), 4.0 * e / (1.0 - e) ** 2
    inverse = 1.0 / x
    far = (
        coth - inverse,
        inverse**2 - csch2,
        2.0 * (coth * csch2 - inverse**3),
        6.0 * (inverse**4 - csch2 * csch2) - 4.0 * csch2,
    )[order - 1]
    return jnp.where(small, series, far * jnp.sign(u) if order % 2 else far)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _log_sinhc(order: int, u: Any) -> Any:
    return _sinhc_derivative(order, u)


@_log_sinhc.defjvp
def _(order: int, primals: Any, tangents: Any) -> Any:
    slope = _log_sinhc(order + 1, *primals) if order < 3 else _sinhc_derivative(order + 1, *primals)
    return _log_sinhc(order, *primals), slope * tangents[0]


def log_sinhc(u: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """log(sinh(u) / u), an even function; log_sinhc(0) = 0. Its derivatives are formulas of their own: composed
    automatically, they are slow to compile and cancel."""
    return _log_sinhc(0, u)


def log1mexp(d: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """log(1 - exp(-d)) for d >= 0; -inf with zero derivatives at d <= 0."""
    empty = d <= 0.0
    d = jnp.where(empty, 1.0, d)
    small = d < math.log(2.0)
    near, far = jnp.where(small, d, 0.5), jnp.where(small, 1.0, d)
    value = jnp.where(small, jnp.log(-jnp.expm1(-near)), jnp.log1p(-jnp.exp(-far)))
    return jnp.where(empty, -jnp.inf, value)


def log_difference(x: Float[Array, "*s"], y: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """log(exp(x) - exp(y)) for x >= y; x where y = -inf, and -inf with zero derivatives where x <= y."""
    nothing = y == -jnp.inf
    empty = x <= y
    safe_x = jnp.where(empty, 0.0, x)
    gap = safe_x - jnp.where(nothing | empty, -1.0, y)
    return jnp.where(empty, -jnp.inf, jnp.where(nothing, safe_x, safe_x + log1mexp(gap)))


def legendre(dtype: Any, single: int = 16, double: int = 36) -> tuple[np.ndarray, np.ndarray, float]:
    """Gauss-Legendre nodes and weights on [0, 1], `single` of them in float32 and `double` in float64, and the fall
    of the integrand's logarithm below its largest value after which it can be left out, moments of order 6 included."""
    in_single = jnp.finfo(dtype).bits <= 32
    x, w = np.polynomial.legendre.leggauss(single if in_single else double)
    return 0.5 * (x + 1.0), 0.5 * w, 24.0 if in_single else 46.0


def _integrate(log_integrand: Callable[[Any], Any], width: Any) -> Any:
    """Integral of exp(log_integrand(s)) over 0 <= s <= width, elementwise."""
    nodes, weights, _ = legendre(width.dtype)
    total = jnp.zeros_like(width)
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        total = total + weight * jnp.exp(log_integrand(node * width))
    return total * width


def _stirling_rest(a: Any) -> Any:
    """log Gamma(a + 1) - (a + 1/2) log a + a - log(2 pi) / 2 for a >= 8."""
    inverse = 1.0 / a
    square = inverse * inverse
    series = jnp.full_like(a, _STIRLING[-1])
    for coefficient in reversed(_STIRLING[:-1]):
        series = series * square + coefficient
    return series * inverse


def log_gamma_term(a: Float[Array, "*s"], x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """log(x^a exp(-x) / Gamma(a + 1)) for x > 0 and a > -1, without cancellation at large a; -inf at a = -1, -2, -3."""
    large = a > _STIRLING_FROM
    big = jnp.where(large, a, a + float(_STIRLING_FROM))
    inverse = 1.0 / big
    rest = _stirling_rest(big) + _HALF_LOG_2PI
    log_big = jnp.log(big)
    # log1p near 1 keeps the digits of x - a; far from 1 log loses nothing
    shift = (x - big) * inverse
    log_x = jnp.log(jnp.where(large, x * inverse, x))
    log_ratio = jnp.where(jnp.abs(shift) < 0.5, jnp.log1p(jnp.clip(shift, -0.5, 0.5)), log_x)
    stirling = big * (log_ratio - shift) - 0.5 * log_big - rest
    little = jnp.where(large, 1.0, a)
    rising = little + 1.0  # (a + 1) ... (a + 8)
    for k in range(2, _STIRLING_FROM + 1):
        rising = rising * (little + float(k))
    direct = little * log_x - x + jnp.log(rising) - (big + 0.5) * log_big + big - rest
    return jnp.where(large, stirling, direct)


def log_poisson_ratio(d: Float[Array, "*s"], c: Float[Array, "*s"], rate: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """log of P(X = c + d) / P(X = c) for X ~ Poisson(rate), c >= 0: accurate where both are tiny and d small.

    It is d log rate - log(Gamma(c + d + 1) / Gamma(c + 1)), d and c real; -inf where c + d is -1, -2, -3.
    """
    shift = float(_STIRLING_FROM)
    size = c + shift
    raised = size + d
    change = jnp.log1p(d / size) * (raised + 0.5) - d + _stirling_rest(raised) - _stirling_rest(size)
    ratio = jnp.ones_like(d)  # of (v + 1) ... (v + 8) at v = c + d and at v = c
    for k in range(1, _STIRLING_FROM + 1):
        ratio = ratio * (1.0 + d * (1.0 / (c + float(k))))
    return d * jnp.log(rate / size) - change + jnp.log(jnp.maximum(ratio, 0.0))  # rounding of a factor that is 0


def gamma_window(a: Any, x: Any, fall: float) -> tuple[Any, Any]:
    """How far log t can go below and above log x before a log t - t has fallen by `fall`.

    Upper bounds, not far from the truth, from a s - x (1 - exp(-s)) >= excess s + x s^2 / (2 + s) downwards (which is
    meant for x <= a) and x (exp(s) - 1) - a s >= excess s + x s^2 / 2 or x (exp(s) - 1 - s) upwards (x >= a).
    """
    excess = jnp.abs(x - a)
    lead = 2.0 * excess - fall
    down = 4.0 * fall / (lead + jnp.sqrt(lead * lead + 8.0 * fall * a))
    scaled = fall / x
    up = jnp.minimum(
        2.0 * fall / (excess + jnp.sqrt(excess * excess + 2.0 * fall * x)),
        jnp.log1p(scaled + jnp.sqrt(2.0 * scaled)),
    )
    return down, up


def _log_incomplete_gamma(a: Any, x: Any) -> tuple[Any, Any]:
    """`(log P(a, x), log Q(a, x))`: the one that is a tail by quadrature, the other from it.

    With term = x^a exp(-x) / Gamma(a + 1), and x the end of the tail,
    P(b, x) = term(b, x) b (integral over s > 0 of exp(-b s + x (1 - exp(-s)))) for x <= b, and
    Q(a, x) = term(a, x) a (integral over s > 0 of exp(a s - x (exp(s) - 1))) for x >= a; then
    P(a) = term(a) R(a) with R(a) = 1 + x / (a + 1) R(a + 1), which keeps b away from 0, where the window is long.
    """
    at_zero, at_infinity = x <= 0.0, x > _INFINITE
    lower = x < jnp.maximum(a, 1.0)
    x = jnp.where(at_zero | at_infinity, 0.5 * jnp.maximum(a, 1.0), x)
    b = jnp.where(lower, a + float(_RECURRENCE), a)
    sign, excess = jnp.where(lower, -1.0, 1.0), jnp.abs(x - b)
    down, up = gamma_window(b, x, legendre(a.dtype)[2])
    width = jnp.where(lower, down, up)
    ratio = b * _integrate(lambda s: -excess * s - x * (jnp.expm1(sign * s) - sign * s), width)
    raised = ratio
    for k in range(_RECURRENCE, 0, -1):
        raised = 1.0 + x / (a + float(k)) * raised
    tail = jnp.minimum(log_gamma_term(a, x) + jnp.log(jnp.where(lower, raised, ratio)), 0.0)
    tail = jnp.where(at_zero | at_infinity, -jnp.inf, tail)
    other = log1mexp(-tail)
    return jnp.where(lower, tail, other), jnp.where(lower, other, tail)


def _hazard(a: Any, x: Any, log_value: Any) -> Any:
    """Gamma density over exp(log_value), zero at the ends."""
    inside = (x > 0.0) & (x <= _INFINITE) & (log_value > -jnp.inf)
    x, log_value = jnp.where(inside, x, 1.0), jnp.where(inside, log_value, 0.0)
    return jnp.where(inside, jnp.exp(log_gamma_term(a, x) + jnp.log(a / x) - log_value), 0.0)


@jax.custom_jvp
def log_gamma_cdf(a: Float[Array, "*s"], x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """log P(a, x), the regularised lower incomplete gamma function; -inf at x = 0.

    Derivatives in x are closed forms; a (the shape, above 0) is a constant to differentiation.
    """
    return _log_incomplete_gamma(a, x)[0]


@jax.custom_jvp
def log_gamma_survival(a: Float[Array, "*s"], x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """log Q(a, x) = log(1 - P(a, x)), accurate in the upper tail; see `log_gamma_cdf`."""
    return _log_incomplete_gamma(a, x)[1]


@log_gamma_cdf.defjvp
def _(primals: Any, tangents: Any) -> Any:
    a, x = primals
    value = log_gamma_cdf(a, x)
    return value, _hazard(a, x, value) * tangents[1]


@log_gamma_survival.defjvp
def _(primals: Any, tangents: Any) -> Any:
    a, x = primals
    value = log_gamma_survival(a, x)
    return value, -_hazard(a, x, value) * tangents[1]


def log_mills(u: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """log of the Mills ratio (1 - Phi(u)) / phi(u) = integral over t > 0 of exp(-u t - t^2/2), for u >= 0."""
    fall = legendre(u.dtype)[2]
    # fixed nodes: derivatives are moments of t, sums of positive terms
    fixed = jax.lax.stop_gradient(u)
    width = 2.0 * fall / (fixed + jnp.sqrt(fixed * fixed + 2.0 * fall))
    return jnp.log(_integrate(lambda t: -u * t - 0.5 * t * t, width))


def normal_laplace_log_density(residual: Float[Array, "*s"], variance: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Log density at `residual` of N(0, variance) + Laplace(0, 1) (docs/formulas.md#normal-laplace in units of the
    Laplace scale).

    Args:
        residual: any size.
        variance: at least 1e-12 (smaller ones are taken as that); its third derivative exceeds float32 below 1e-10.
    """
    cut = 15.0 if jnp.finfo(residual.dtype).bits <= 32 else 40.0
    variance = jnp.where(variance >= 1e-12, variance, 1e-12)
    root = jnp.sqrt(variance)
    # far outside the normal's reach the density is exp(variance / 2 - |residual|) / 2
    far = jnp.abs(residual) > variance + cut * root
    tail = 0.5 * variance - jnp.abs(residual)
    r = jnp.where(far, 0.0, residual)
    # it is phi(0) exp(-r^2 / (2 V)) (Mills(u) + Mills(w)) / 2, with exp(V / 2 - r) Phi(-u) for the first term (or
    # its mirror image) where u < 0 and the exponents would cancel; at most one of u and w is negative
    u, w = (variance - r) / root, (variance + r) / root
    mills_u = log_mills(jnp.where(r <= variance, u, 0.0))
    mills_w = log_mills(jnp.where(-r <= variance, w, 0.0))
    outer = jnp.abs(r) > variance
    reach = jnp.where(outer, (jnp.abs(r) - variance) / root, 0.0)
    log_phi = jax.scipy.special.log_ndtr(reach)
    larger = jnp.where(outer, 0.5 * reach * reach + log_phi + _HALF_LOG_2PI, mills_u)
    smaller = jnp.where(outer & (r < 0.0), mills_u, mills_w)
    base = jnp.where(outer, 0.5 * variance - jnp.abs(r) + log_phi, -0.5 * r * r / variance - _HALF_LOG_2PI + mills_u)
    return jnp.where(far, tail, base + jax.nn.softplus(smaller - larger)) - math.log(2.0)
