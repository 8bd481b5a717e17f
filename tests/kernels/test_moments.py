"""Moments of the regression statistic: docs/formulas.md#sum-moments and #normal-moments, enumeration, simulation,
products of a normal record (docs/formulas.md#sum-moments, #distinct-entries, #normal-moments)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.checks import assert_means
from oracles.regression import discrete_law, enumerated_moments, simulated_statistics

from dpjax.kernels import moments, products
from dpjax.models.regression import laws

POINTS = np.array([[-0.7, 0.2], [0.4, 0.9], [0.1, -0.5], [0.8, -0.3]])
WEIGHTS = np.array([0.1, 0.4, 0.3, 0.2])


def arrays(*xs):
    return tuple(jnp.asarray(x) for x in xs)


def random_model(p, seed):
    rng = np.random.default_rng(1000 * p + seed)
    root = rng.normal(size=(p, p)) * 0.5
    factor = np.linalg.cholesky(root @ root.T + 0.1 * np.eye(p))
    return rng.normal(size=p) * 0.4, factor, rng.normal(size=p + 1), 0.1 + rng.uniform()


def joint_record(mean, factor, theta, sigma2):
    """Mean of the record (x, y), and a factor of its covariance."""
    g = np.block([[factor, np.zeros((len(mean), 1))], [factor.T @ theta[1:], np.sqrt(sigma2)]])
    return np.r_[mean, theta[0] + mean @ theta[1:]], g


regression_moments = jax.jit(moments.regression_moments)


def normal_moments(mean, factor, theta, sigma2):
    return regression_moments(*arrays(theta, sigma2, *laws.normal_moments(mean, factor @ factor.T)))


def test_h1_normal_covariate(x64):
    mean, covariance = normal_moments(np.array([0.1]), np.array([[0.2]]), np.array([0.5, -1.0]), 0.25)
    np.testing.assert_allclose(mean, [0.1, 0.05, 0.4, 0, 0.45], atol=1e-15)
    np.testing.assert_allclose(
        covariance,
        [
            [0.04, 0.008, -0.04, 0.012, -0.032],
            [0.008, 0.0048, -0.008, -0.0008, -0.0032],
            [-0.04, -0.008, 0.29, 0.013, 0.232],
            [0.012, -0.0008, 0.013, 0.0193, -0.0128],
            [-0.032, -0.0032, 0.232, -0.0128, 0.3538],
        ],
        atol=1e-15,
    )


def test_h1_discrete_covariates_without_intercept(x64):
    """A regression through the origin is one whose intercept is 0, without the sums of x and y."""
    eta, xi = discrete_law(POINTS, WEIGHTS)
    mean, covariance = moments.regression_moments(*arrays([0.0, 0.5, -1.3], 0.25, eta, xi))
    kept = np.array([2, 3, 4, 6, 7, 8])
    mean, covariance = mean[kept], covariance[kept][:, kept]
    np.testing.assert_allclose(mean, [0.244, 0.067, 0.421, 0.0349, -0.5138, 0.93539], atol=1e-14)
    # the main text of Bernstein and Sheldon 2019 gives [[.0536, .0638], [.0638, .1710]] here
    # (docs/formulas.md#sum-moments)
    np.testing.assert_allclose(covariance[3:5, 3:5], [[0.21958729, 0.12765502], [0.12765502, 0.19558336]], atol=5e-9)
    np.testing.assert_allclose(covariance[5, 5], 0.8585236749, atol=5e-11)
    np.testing.assert_allclose(covariance[3, 5], -0.047432881, atol=5e-10)
    np.testing.assert_allclose(covariance[4, 5], -0.318880858, atol=5e-10)
    np.testing.assert_allclose(covariance[0, 5], -0.00742986, atol=5e-9)
    assert np.linalg.eigvalsh(covariance)[0] > 0


def test_h2_fourth_moments(x64):
    eta, xi = laws.normal_moments([0.3, -0.2], [[0.5, 0.1], [0.1, 0.4]])
    raw = (xi + np.einsum("ij,kl->ijkl", eta, eta))[1:, 1:, 1:, 1:]
    np.testing.assert_allclose(raw[0, 0, 0, 0], 1.0281, atol=1e-14)
    np.testing.assert_allclose(raw[0, 0, 0, 1], 0.0816, atol=1e-14)
    np.testing.assert_allclose(raw[0, 0, 1, 1], 0.2556, atol=1e-14)
    for axes in ((1, 0, 2, 3), (2, 3, 0, 1), (0, 1, 3, 2), (0, 2, 1, 3)):
        np.testing.assert_allclose(raw, np.transpose(raw, axes), atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 2, 3])
def test_any_covariate_law_against_enumeration(p, x64):
    rng = np.random.default_rng(p)
    points, weights = rng.normal(size=(5, p)), rng.dirichlet(np.ones(5))
    theta, sigma2 = rng.normal(size=p + 1), 0.3
    mean, covariance = moments.regression_moments(*arrays(theta, sigma2, *discrete_law(points, weights)))
    exact = enumerated_moments(points, weights, theta, sigma2)
    np.testing.assert_allclose(mean, exact[0], atol=1e-13)
    np.testing.assert_allclose(covariance, exact[1], atol=1e-12)


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5])
def test_normal_covariates_two_ways(p, x64):
    """The general formula and the products of a joint normal record agree."""

    @jax.jit
    def joint_moments(record, g):
        joint = (record, g @ g.T)
        return products.product_mean(*joint), products.product_covariance(*joint)

    for seed in range(3):
        model = random_model(p, seed)
        general, joint = normal_moments(*model), joint_moments(*arrays(*joint_record(*model)))
        np.testing.assert_allclose(general[0], joint[0], atol=1e-13)
        np.testing.assert_allclose(general[1], joint[1], atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 2, 3, 4, 5])
def test_simulated_records(p, x64):
    mean, factor, theta, sigma2 = random_model(p, 7)
    mu, covariance = (np.asarray(x) for x in normal_moments(mean, factor, theta, sigma2))
    rng = np.random.default_rng(p)
    batches = [simulated_statistics(rng, 8000, mean, factor, theta, sigma2) - mu for _ in range(32)]
    assert_means([t.mean(0) for t in batches], np.zeros_like(mu), limit=4.5)
    # fourth moments of y^2 are heavy: judge on batch means, with a limit for 230 comparisons
    assert_means([t.T @ t / len(t) for t in batches], covariance, limit=5.0)


def test_nine_covariates_in_one_call():
    mean, factor, theta, sigma2 = random_model(9, 0)
    numbers = (theta, sigma2, *laws.normal_moments(mean, factor @ factor.T))
    record, g, *numbers = (jnp.asarray(x, jnp.float32) for x in (*joint_record(mean, factor, theta, sigma2), *numbers))
    a = regression_moments(*numbers)[1]
    b = jax.jit(products.product_covariance)(record, g @ g.T)
    assert a.shape == (65, 65)
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * float(jnp.abs(a).max()))
