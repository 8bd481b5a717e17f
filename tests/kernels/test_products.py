"""Moments of products of a normal record: against simulated records, numerical derivatives and each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.kernels.order import pairs
from dpjax.kernels.products import (
    product_covariance,
    product_deviation,
    product_mean,
    product_pullback,
)

SIZES = [1, 2, 3, 4, 5]


def record(p, dtype=jnp.float64, seed=0):
    rng = np.random.default_rng(seed)
    g = np.tril(rng.normal(size=(p + 1, p + 1))) * 0.5 + np.eye(p + 1)
    return jnp.asarray(rng.normal(size=p + 1), dtype), jnp.asarray(g, dtype)


def test_entries_in_order():
    a, b = pairs(2)
    assert list(zip(a.tolist(), b.tolist(), strict=True)) == [
        *[(0, 1), (0, 2)],
        *[(1, 1), (1, 2), (2, 2)],
        *[(0, 3), (1, 3), (2, 3), (3, 3)],
    ]
    assert [len(pairs(p)[0]) for p in (1, 2, 3, 4, 9)] == [5, 9, 14, 20, 65]


@pytest.mark.parametrize("p", SIZES)
def test_moments_equal_quadrature_over_the_record(p, x64):
    """Products of degree 4 of a normal vector are integrated exactly by a three-point rule in every direction."""
    m, g = record(p)
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    grids = np.meshgrid(*[nodes] * (p + 1), indexing="ij")
    mass = np.prod(np.meshgrid(*[weights / weights.sum()] * (p + 1), indexing="ij"), axis=0).ravel()
    r = np.asarray(m) + np.stack([x.ravel() for x in grids], 1) @ np.asarray(g).T
    r = np.c_[np.ones(len(r)), r]
    a, b = pairs(p)
    t = r[:, a] * r[:, b]
    mean = mass @ t
    c = g @ g.T
    np.testing.assert_allclose(product_mean(m, c), mean, atol=1e-11)
    np.testing.assert_allclose(product_covariance(m, c), (t - mean).T @ ((t - mean) * mass[:, None]), atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("p", SIZES)
def test_pullback_equals_automatic_differentiation(p, x64):
    m, g = record(p)
    c = g @ g.T
    d = len(pairs(p)[0])
    rng = np.random.default_rng(3)
    u, v = jnp.asarray(rng.normal(size=d)), jnp.asarray(rng.normal(size=(d, d)))
    v = v + v.T
    f = lambda m, c: u @ product_mean(m, c) + (v * product_covariance(m, c)).sum()
    by_m, by_c = jax.grad(f, argnums=(0, 1))(m, c)
    d_m, d_c = product_pullback(m, c, u, v)
    np.testing.assert_allclose(d_m, by_m, rtol=1e-10, atol=1e-9)
    # derivatives are compared along symmetric directions: C has no others
    np.testing.assert_allclose(d_c, 0.5 * (by_c + by_c.T), rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("p", SIZES)
def test_deviation_is_a_factor_of_the_covariance(p, x64):
    """The draw is linear in its normals, so its matrix times its transpose is the covariance, exactly."""
    m, g = record(p)
    d = len(pairs(p)[0])
    factor = jax.vmap(lambda z: product_deviation(m, g, z))(jnp.eye(d)).T
    np.testing.assert_allclose(factor @ factor.T, product_covariance(m, g @ g.T), atol=1e-10)


def test_float32_agrees_with_float64(x64):
    m, g = record(3)
    low = [x.astype(jnp.float32) for x in (m, g @ g.T)]
    for f in (product_mean, product_covariance):
        out = f(*low)
        assert out.dtype == jnp.float32
        np.testing.assert_allclose(out, f(m, g @ g.T), rtol=1e-5, atol=1e-4)
