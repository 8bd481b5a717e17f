"""Conjugate update and Bartlett draw of a normal mean and covariance, any dimension
(docs/formulas.md#normal-inverse-wishart)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.checks import assert_law, assert_means
from scipy import special, stats

from dpjax.kernels import niw, random

CHAINS, PER_CHAIN = 32, 4000


def make(mean, kappa, psi, nu, dtype=jnp.float32):
    return niw.NIW(*(jnp.asarray(x, dtype) for x in (mean, kappa, psi, nu)))


def example(p, seed=0):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(p, p))
    return rng.normal(size=p), 2.5, root @ root.T + np.eye(p), p + 9.0


def draw(key, law):
    for_squares, for_normals = jax.random.split(key)
    p = law.mean.shape[0]
    normals = jax.random.normal(for_normals, (p + p * (p - 1) // 2,), law.mean.dtype)
    return niw.draw_from(law, random.chi_square(for_squares, niw.degrees_of_freedom(law)), normals)


def many(law):
    keys = jax.random.split(jax.random.key(1), CHAINS * PER_CHAIN)
    draws = jax.jit(jax.vmap(draw, (0, None)))(keys, law)
    return [np.asarray(x, np.float64) for x in draws]


def chains(x):
    return x.reshape(CHAINS, PER_CHAIN, *x.shape[1:]).mean(1)


def test_h9(x64):
    start = make([0.0], 1.0, [[1.0]], 50.0, jnp.float64)
    post = niw.update(start, *(jnp.asarray(x) for x in ([0.3], [[0.5 / 10 + 0.09]], 10.0)))
    np.testing.assert_allclose(post.mean, [0.272727272727], atol=1e-12)
    np.testing.assert_allclose(post.psi, [[1.581818181818]], atol=1e-12)
    assert float(post.kappa) == 11.0 and float(post.nu) == 60.0


@pytest.mark.parametrize("p", [1, 2, 4, 9])
def test_update_equals_one_record_at_a_time(p, x64):
    rng = np.random.default_rng(p)
    x = rng.normal(size=(12, p)) + 1.0
    start = make(*example(p), jnp.float64)
    whole = niw.update(start, *map(jnp.asarray, (x.mean(0), x.T @ x / 12, 12.0)))
    single, step = start, jax.jit(niw.update)
    for row in x:
        single = step(single, jnp.asarray(row), jnp.asarray(np.outer(row, row)), jnp.asarray(1.0))
    for a, b in zip(whole, single, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.slow
def test_one_dimension_is_inverse_gamma():
    _, covariance, _ = many(make([0.4], 3.0, [[1.7]], 11.0))
    assert_law(covariance[:, 0, 0], stats.invgamma(11.0 / 2, scale=1.7 / 2).cdf)


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_draw_law(p):
    mean, kappa, psi, nu = example(p)
    mu, covariance, factor = many(make(mean, kappa, psi, nu))
    # marginals of every coordinate: the first and the last differ if the degrees of freedom are reversed
    for i in range(p):
        assert_law(covariance[:, i, i], stats.invgamma((nu - p + 1) / 2, scale=psi[i, i] / 2).cdf)
        scale = np.sqrt(psi[i, i] / kappa / (nu - p + 1))
        assert_law(mu[:, i], stats.t(nu - p + 1, loc=mean[i], scale=scale).cdf)
    assert_means(chains(covariance), psi / (nu - p - 1), floor=1e-6)
    assert_means(chains(np.linalg.inv(covariance)), nu * np.linalg.inv(psi), limit=4.5, floor=1e-4)
    # |psi| / |Sigma| is a product of independent chi-squares: mean of its logarithm
    log_ratio = np.linalg.slogdet(psi)[1] - np.linalg.slogdet(covariance)[1]
    expected = sum(np.log(2) + special.digamma((nu - i) / 2) for i in range(p))
    assert_means(chains(log_ratio), expected, floor=1e-5)
    # mu given Sigma: the whitened deviation is standard normal and independent of Sigma
    white = np.linalg.solve(factor, (mu - mean)[..., None])[..., 0] * np.sqrt(kappa)
    assert_means(chains(np.einsum("ni,nj->nij", white, white)), np.eye(p), limit=4.5, floor=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 3, 9])
def test_factor_is_the_cholesky_factor(p):
    law = make(*example(p))
    found = jax.jit(draw)(jax.random.key(3), law)
    factor = np.asarray(found.factor)
    assert np.array_equal(factor, np.tril(factor)) and (np.diag(factor) > 0).all()
    np.testing.assert_allclose(factor @ factor.T, found.covariance, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_joint_law_of_data_and_parameters():
    """Draw parameters from the prior, data given them, then the posterior: the prior must come back.

    Checks update and draw together, on a scale that is skewed and a mean that is not.
    """
    start = make([0.5, -0.2], 2.0, [[1.0, 0.3], [0.3, 0.8]], 12.0)
    n = 6

    def once(key):
        k1, k2, k3 = jax.random.split(key, 3)
        prior = draw(k1, start)
        x = prior.mean[None] + jax.random.normal(k2, (n, 2), jnp.float32) @ prior.factor.T
        post = niw.update(start, x.mean(0), x.T @ x / n, jnp.float32(n))
        return draw(k3, post)

    keys = jax.random.split(jax.random.key(4), CHAINS * PER_CHAIN)
    mu, covariance, _ = (np.asarray(x, np.float64) for x in jax.jit(jax.vmap(once))(keys))
    assert_means(chains(mu), np.array([0.5, -0.2]))
    for i, psi in enumerate((1.0, 0.8)):
        assert_law(covariance[:, i, i], stats.invgamma(11 / 2, scale=psi / 2).cdf)


def test_float32_at_a_billion_records():
    n, m, v = 1e9, 0.3, 0.04
    start = make([0.0], 1.0, [[1.0]], 50.0)
    inputs = [np.float32(x) for x in ([m], [[v + m * m]], n)]
    post = niw.update(start, *map(jnp.asarray, inputs))
    x, xx = np.float64(inputs[0][0]), np.float64(inputs[1][0, 0])
    exact = 1.0 + n * (xx - x * x) + n / (1 + n) * x * x
    assert abs(float(post.psi[0, 0]) / exact - 1) < 0.5 * np.sqrt(2 / n)
    assert abs(float(post.mean[0]) - m) < 0.5 * np.sqrt(v / n)
