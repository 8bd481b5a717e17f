"""Special functions and their derivatives against mpmath, and the ends of their domains."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from dpjax.kernels import special


def derivatives(function, argument, highest=3):
    """The function and its derivatives in one argument, compiled, on arrays."""
    rows = [function]
    for _ in range(highest):
        rows.append(jax.grad(rows[-1], argnums=argument))
    many = jax.vmap(lambda *x: jnp.stack([row(*x) for row in rows]))
    return jax.jit(many, compiler_options={"xla_backend_optimization_level": 0})


def compare(function, exact, points, dtype, argument=0, tolerance=(1e-12, 1e-12, 1e-10, 1e-8), digits=60, scale=None):
    """Relative to the exact derivative plus `scale(order, *point)` (default: nothing)."""
    points = np.asarray(points, dtype)
    values = np.asarray(derivatives(function, argument)(*jnp.asarray(points.T)), np.float64)
    with mp.workdps(digits):
        for point, row in zip(points, values, strict=True):
            x = [mp.mpf(float(p)) for p in point]
            partial = lambda t, x=x: exact(*x[:argument], t, *x[argument + 1 :])
            for order, value in enumerate(row):
                truth = mp.diff(partial, x[argument], order) if order else partial(x[argument])
                allowed = tolerance[order] * (abs(truth) + (scale(order, *x) if scale else 0)) + float(
                    jnp.finfo(dtype).tiny
                )
                assert abs(mp.mpf(float(value)) - truth) <= allowed, (point, order, value, mp.nstr(truth, 12))


SINGLE = (1e-5, 1e-4, 1e-3, 1e-2)


def log_sinhc(u):
    return mp.log(mp.sinh(u) / u)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log_sinhc(dtype, x64):
    points = [[x] for x in (1e-3, 0.3, 0.99, 1.01, 3.0, -20.0, 1e3, -1e4)]
    compare(special.log_sinhc, log_sinhc, points, dtype, tolerance=SINGLE if dtype is np.float32 else (1e-12,) * 4)
    at_zero = derivatives(special.log_sinhc, 0)(jnp.zeros(1, dtype))
    np.testing.assert_allclose(at_zero, [[0.0, 0.0, 1 / 3, 0.0]], rtol=1e-6)
    assert np.isfinite(derivatives(special.log_sinhc, 0)(jnp.asarray([1e6, -1e8], dtype))).all()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log1mexp_and_log_difference(dtype, x64):
    tolerance = SINGLE if dtype is np.float32 else (1e-12,) * 4
    points = [[x] for x in (1e-8, 0.1, 0.693, 0.694, 3.0, 50.0)]
    compare(special.log1mexp, lambda d: mp.log(-mp.expm1(-d)), points, dtype, tolerance=tolerance)
    pairs = [(0.0, -0.5), (-3.0, -4.0), (-700.0, -705.0), (5.0, -40.0)]
    for argument in (0, 1):
        exact = lambda x, y: x + mp.log(-mp.expm1(y - x))
        compare(special.log_difference, exact, pairs, dtype, argument, tolerance)
    ends = derivatives(special.log1mexp, 0)(jnp.asarray([0.0, np.inf], dtype))
    np.testing.assert_array_equal(ends, [[-np.inf, 0, 0, 0], [0, 0, 0, 0]])
    x, y = jnp.asarray([[-1.0, -2.0, -np.inf], [-np.inf, -2.0, -np.inf]], dtype)
    np.testing.assert_array_equal(
        derivatives(special.log_difference, 0)(x, y)[:, :3], [[-1, 1, 0]] + 2 * [[-np.inf, 0, 0]]
    )
    np.testing.assert_array_equal(derivatives(special.log_difference, 1)(x, y)[:, 1:], np.zeros((3, 3)))


def lower(a, x):
    """log P(a, x) by its series, which has no trouble with tails."""
    total = term = mp.mpf(1)
    k = 0
    while term > mp.eps * total:
        k += 1
        term *= x / (a + k)
        total += term
    return a * mp.log(x) - x - mp.loggamma(a + 1) + mp.log(total)


def upper(a, x):
    return mp.log(-mp.expm1(lower(a, x)))


SHAPES = [0.3, 1.0, 5.0, 7.9, 8.1, 40.0, 1000.0]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_incomplete_gamma(dtype, x64):
    # the second and third derivatives cancel in the tails by powers of x / a or of a
    points = [(a, a * r) for a in SHAPES for r in (0.6, 0.97, 1.0, 1.02, 1.5)] + [
        (0.3, 1e-3),
        (2.0, 30.0),
        (40.0, 200.0),
    ]
    tolerance = (1e-5, 1e-4, 1e-2, 0.1) if dtype is np.float32 else (1e-12, 1e-11, 1e-10, 1e-8)
    scale = lambda order, a, x: (1 + a / x) ** order if order > 1 else (0 if order else mp.mpf("1e-2"))
    for function, exact in ((special.log_gamma_cdf, lower), (special.log_gamma_survival, upper)):
        compare(function, exact, points, dtype, 1, tolerance, digits=110, scale=scale)


def test_incomplete_gamma_deep_in_the_tails(x64):
    """Where the value is far below the smallest number of its dtype."""
    points = [(0.3, 1e-40), (40.0, 1e-20), (1000.0, 300.0), (40.0, 900.0), (1000.0, 3000.0), (2.5, 2000.0)]
    for a, x in points:
        with mp.workdps(1000 if x > a else 50):
            function, exact = (special.log_gamma_cdf, lower) if x < a else (special.log_gamma_survival, upper)
            truth = float(exact(mp.mpf(a), mp.mpf(x)))
        np.testing.assert_allclose(function(jnp.float64(a), jnp.float64(x)), truth, rtol=1e-13)
        if x > 1e-30:
            np.testing.assert_allclose(function(jnp.float32(a), jnp.float32(x)), truth, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ends_of_incomplete_gamma(dtype, x64):
    a, x = jnp.asarray([[0.3, 1.0, 50.0] * 3, [0.0] * 3 + [np.inf] * 3 + [1e20] * 3], dtype)
    for function, empty in ((special.log_gamma_cdf, slice(0, 3)), (special.log_gamma_survival, slice(3, 9))):
        rows = np.asarray(derivatives(function, 1)(a, x))
        np.testing.assert_array_equal(rows[empty, 0], -np.inf)
        np.testing.assert_array_equal(np.delete(rows, empty, 0)[:, 0], 0.0)
        np.testing.assert_array_equal(rows[:, 1:], 0.0)


def test_poisson_probabilities(x64):
    """Terms and ratios, far out and at negative counts."""
    for rate in (0.2, 30.0, 2e4):
        for k in (0, 1, 7, 9, 60, 20100):
            with mp.workdps(50):
                log_p = lambda v, r=rate: v * mp.log(r) - r - mp.loggamma(v + 1)
                term, ratio = float(log_p(mp.mpf(k))), float(log_p(mp.mpf(k) + 2.5) - log_p(mp.mpf(k)))
            k64, r64 = jnp.float64(k), jnp.float64(rate)
            np.testing.assert_allclose(special.log_gamma_term(k64, r64), term, rtol=1e-13, atol=1e-12)
            np.testing.assert_allclose(
                special.log_poisson_ratio(jnp.float64(2.5), k64, r64), ratio, rtol=1e-11, atol=1e-12
            )
            single = special.log_poisson_ratio(*(jnp.asarray(x, jnp.float32) for x in (2.5, k, rate)))
            np.testing.assert_allclose(single, ratio, rtol=1e-5, atol=1e-5)
    below = special.log_poisson_ratio(jnp.asarray([-4.0, -5.0, -6.0]), jnp.full(3, 3.0), jnp.full(3, 2.0))
    assert (np.exp(below) < 1e-12).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log_mills(dtype, x64):
    exact = lambda u: mp.log(mp.erfc(u / mp.sqrt(2)) * mp.exp(u * u / 2) * mp.sqrt(mp.pi / 2))
    tolerance = (1e-5, 1e-5, 1e-4, 1e-3) if dtype is np.float32 else (1e-12, 1e-12, 1e-11, 1e-10)
    compare(special.log_mills, exact, [[x] for x in (1e-3, 0.5, 3.0, 30.0, 1e3)], dtype, tolerance=tolerance)


def normal_laplace(r, v):
    s = mp.sqrt(v)
    side = lambda r: mp.log(mp.erfc((v - r) / s / mp.sqrt(2)) / 2) - r
    a, b = side(r), side(-r)
    return v / 2 - mp.log(2) + max(a, b) + mp.log1p(mp.exp(-abs(a - b)))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("argument", [0, 1])
def test_normal_laplace(dtype, argument, x64):
    variances = (1e-6, 0.01, 1.0, 30.0, 1e8)
    points = [(z * v**0.5 + shift * v, v) for v in variances for z in (-8.0, 0.5) for shift in (0, 1)]
    points += [(7.0, 1e-6), (-40.0, 1.0), (2e3, 1.0)]
    tolerance = (1e-5, 1e-3, 1e-2, 0.1) if dtype is np.float32 else (1e-12, 1e-9, 1e-8, 1e-6)

    def scale(order, r, v):
        """Size of the derivative somewhere near: a kink smoothed over sqrt(v), or a normal density."""
        if argument == 1:
            return min(v ** mp.mpf(-0.5), 1 / v) ** order
        return v ** (-mp.mpf(order - 1) / 2) if v < 1 and order else v ** (-mp.mpf(order) / 2)

    compare(special.normal_laplace_log_density, normal_laplace, points, dtype, argument, tolerance, 110, scale)


@pytest.mark.slow
def test_normal_laplace_is_finite():
    r, v = (
        np.ravel(x) for x in np.meshgrid([-1e9, -1e3, -1.0, 0.0, 1e-6, 5.0, 1e6], [0.0, 1e-12, 1e-6, 1.0, 1e6, 1e12])
    )
    for argument, highest in ((0, 3), (1, 2)):
        rows = derivatives(special.normal_laplace_log_density, argument, highest)(*jnp.asarray([r, v], jnp.float32))
        assert np.isfinite(rows).all()
