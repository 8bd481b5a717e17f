"""Moments over regions: identities that hold for any region, and regions without mass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.kernels import truncated


def compiled(function):
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


@pytest.fixture
def points(x64):
    rng = np.random.default_rng(0)
    arrays = rng.uniform(0.1, 1.0, 7), rng.normal(size=(2, 7)), rng.normal(size=2), rng.normal(size=2)
    return jax.tree.map(jnp.asarray, arrays)


@pytest.mark.slow
def test_log_sum_has_four_derivatives(points):
    """Those of the plain logarithm of the sum, differentiated through."""
    base, t, center, eta = points

    def summed(eta, center):
        shifts = t - center[:, None]
        return eta @ center, base * jnp.exp(eta @ shifts), center, shifts

    def all_derivatives(function, eta):
        rows = [function]
        for _ in range(4):
            rows.append(jax.jacfwd(rows[-1]))
        return [row(eta) for row in rows]

    mine = lambda e: truncated.log_sum(summed, e, center)
    plain = lambda e: jax.nn.logsumexp(e @ t, b=base)
    for got, expected in zip(
        *(compiled(lambda e, f=f: all_derivatives(f, e))(eta) for f in (mine, plain)), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)
    with pytest.raises(NotImplementedError):
        all_derivatives(jax.grad(mine), eta)


def test_truncated_moments_are_those_of_the_tilted_law(points):
    base, t, _, eta = points
    p = base * np.exp(eta @ t)
    p /= p.sum()
    mean, covariance = compiled(lambda e: truncated.truncated_moments(lambda e: jax.nn.logsumexp(e @ t, b=base), e))(
        eta
    )
    np.testing.assert_allclose(mean, t @ p, rtol=1e-12)
    np.testing.assert_allclose(covariance, np.cov(t, aweights=p, ddof=0), rtol=1e-12)


def test_regions_add_up(x64):
    """Records in three groups: moments of the whole, and across two statistics."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 60, 2)) + 1e3
    group = np.repeat(np.arange(3), [10, 20, 30])
    parts = [np.cov(a[group == r].T, b[group == r].T, ddof=0) for r in range(3)]
    masses = jnp.asarray([1 / 6, 1 / 3, 1 / 2])
    means_a, means_b = (jnp.stack([x[group == r].mean(0) for r in range(3)]) for x in (a, b))
    mean, covariance = truncated.mixture_moments(masses, means_a, jnp.stack([c[:2, :2] for c in parts]))
    np.testing.assert_allclose(mean, a.mean(0), rtol=1e-13)
    np.testing.assert_allclose(covariance, np.cov(a.T, ddof=0), rtol=1e-10, atol=1e-10)
    within = jnp.stack([c[:2, 2:] for c in parts])
    cross = truncated.mixture_cross_covariance(masses, means_a, means_b, within)
    np.testing.assert_allclose(cross, np.cov(a.T, b.T, ddof=0)[:2, 2:], rtol=1e-10, atol=1e-10)


def test_a_region_without_mass_may_have_any_moments():
    bad, masses = jnp.asarray([[jnp.nan, jnp.inf], [1.0, 2.0]]), jnp.asarray([0.0, 1.0])
    covariances = jnp.stack([jnp.full((2, 2), jnp.nan), jnp.eye(2)])
    one = (bad[1], covariances[1])
    for got, expected in zip(truncated.mixture_moments(masses, bad, covariances), one, strict=True):
        np.testing.assert_allclose(got, expected)
    slope = jax.grad(lambda m: truncated.mixture_moments(masses, m, covariances)[1].sum())(bad)
    assert np.isfinite(slope).all()
