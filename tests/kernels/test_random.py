"""Fixed-work draws have exactly the law they claim."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.checks import assert_law
from scipy import special, stats

from dpjax.kernels import random as draws

SIZE = 200_000


def full(value):
    return jnp.full((SIZE,), value, jnp.float32)


def gamma_all_rejected(key, shape):
    """Every proposal handed in is impossible (t < -1), so that every element comes out of the fallback loop."""
    uniforms = jax.random.uniform(jax.random.key(77), (3, *shape.shape), shape.dtype)
    return draws.gamma_from(key, shape, jnp.full((2, *shape.shape), -1e4, shape.dtype), uniforms)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [0.3, 0.9, 1.0, 1.5, 20.0, 2.5e3])
@pytest.mark.parametrize("function", [draws.gamma, gamma_all_rejected])
def test_gamma_law(function, shape):
    assert_law(jax.jit(function)(jax.random.key(11), full(shape)), stats.gamma(shape).cdf)


@pytest.mark.slow
def test_gamma_small_shape_is_right_down_to_underflow():
    x = np.asarray(draws.gamma(jax.random.key(5), full(0.05)), np.float64)
    below = stats.gamma(0.05).cdf(1e-30)
    np.testing.assert_allclose(np.mean(x < 1e-30), below, atol=4 * np.sqrt(below / SIZE))
    large = x[x > 1e-30]
    assert_law(large, lambda t: (stats.gamma(0.05).cdf(t) - below) / (1 - below))


def test_gamma_float32_at_the_shape_of_a_billion_records():
    shape = 5e8
    x = np.asarray(draws.gamma(jax.random.key(7), full(shape)), np.float64)
    # float32 numbers of this size are 32 apart, 0.0014 standard deviations: spread them over their cells
    x = x + np.random.default_rng(0).uniform(-16, 16, size=x.shape)
    assert_law(x, stats.gamma(shape).cdf)


def test_gamma_acceptance_test_does_not_lose_its_digits_in_float32(x64):
    # the textbook form d (1 - v + log v) + x^2/2 in float32 is rounding noise of size 30 here
    normal = np.linspace(-5, 5, 2001)
    for shape in (1.0, 1.4, 30.0, 334.0, 1e4, 1e6, 5e8):
        d = shape - 1 / 3
        t = normal / np.sqrt(9 * d)
        exact = 3 * d * np.array([float(log1p_minus(x)) for x in t]) - d * t**3
        for log_u in (-1e-3, -1e-1, -1.0):
            accept32 = draws._propose(jnp.float32(shape), jnp.asarray(normal, jnp.float32), jnp.float32(np.exp(log_u)))[
                1
            ]
            clear = (t > -0.999) & (np.abs(exact - log_u) > 1e-4 * (1 + np.abs(exact)))
            assert np.array_equal(np.asarray(accept32)[clear], (log_u < exact)[clear])


def log1p_minus(t):
    """log(1 + t) - t + t^2/2 without cancellation."""
    if abs(t) < 0.01:
        return sum((-1) ** (k + 1) * t**k / k for k in range(3, 12))
    return special.log1p(t) - t + t * t / 2 if t > -1 else -np.inf


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_gamma_of_an_invalid_shape_is_nan_and_ends(bad):
    x = draws.gamma(jax.random.key(0), jnp.array([bad, 2.0], jnp.float32))
    assert bool(jnp.isnan(x[0])) and bool(jnp.isfinite(x[1]))


@pytest.mark.slow
def test_gamma_elements_and_chains_are_independent():
    keys = jax.random.split(jax.random.key(3), 20_000)
    x = np.asarray(jax.vmap(draws.gamma, (0, None))(keys, jnp.full((3,), 1.2, jnp.float32)))
    r = np.corrcoef(np.c_[x[:-1], x[1:]].T)
    assert np.abs(r - np.eye(6)).max() < 4.5 / np.sqrt(len(x))


@pytest.mark.slow
def test_chi_square_law():
    assert_law(draws.chi_square(jax.random.key(2), full(3.0)), stats.chi2(3).cdf)


def test_given_numbers_gamma_equals_its_formula():
    # accepted at the first proposal: Marsaglia and Tsang's value d (1 + c x)^3
    d = 2.5 - 1 / 3
    x = draws.gamma_from(
        jax.random.key(0),
        jnp.float32(2.5),
        jnp.array([0.4, 9.0], jnp.float32),
        jnp.array([0.3, 0.3, 0.3], jnp.float32),
    )
    np.testing.assert_allclose(float(x), d * (1 + 0.4 / np.sqrt(9 * d)) ** 3, rtol=1e-6)
