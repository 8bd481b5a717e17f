"""The marginal normal density and its derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.kernels.marginal import gaussian_marginal


def problem(size, seed=0):
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(size, size))
    return jnp.asarray(rng.normal(size=size)), jnp.asarray(half @ half.T), jnp.asarray(rng.uniform(0.1, 3, size))


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 5, 65])
def test_density_and_derivatives(size, x64):
    r, s, w = problem(size)
    value, by_mean, by_covariance = gaussian_marginal(r, s, w)
    exact = stats.multivariate_normal(np.zeros(size), np.asarray(s) + np.diag(w)).logpdf(r)
    np.testing.assert_allclose(value - 0.5 * size * np.log(2 * np.pi), exact, rtol=1e-10)

    def density(mean, covariance):
        a, x = covariance + jnp.diag(w), r - mean
        return -0.5 * (jnp.linalg.slogdet(a)[1] + x @ jnp.linalg.solve(a, x))

    mean, covariance = jax.grad(density, argnums=(0, 1))(jnp.zeros(size), s)
    np.testing.assert_allclose(by_mean, mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(by_covariance, covariance, rtol=1e-9, atol=1e-10)


def test_batch_in_float32():
    r, s, w = (jnp.stack([x.astype(jnp.float32)] * 4) for x in problem(5))
    value, _, _ = jax.vmap(gaussian_marginal)(r, s, w)
    with jax.enable_x64(True):
        exact = gaussian_marginal(*(x.astype(jnp.float64) for x in (r[0], s[0], w[0])))[0]
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, np.full(4, exact), rtol=1e-5)
