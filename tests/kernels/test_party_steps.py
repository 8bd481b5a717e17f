"""Transitions of Alparslan et al.'s samplers in plain arrays, against NumPy and SciPy
(docs/formulas.md#party-likelihood, #wishart-proposal, #party-triangle, #party-clt)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.kernels import party_steps, wishart
from dpjax.kernels.order import origin_places


def definite(p, seed=0, shift=1.0):
    root = np.random.default_rng(seed).normal(size=(p, p))
    return root @ root.T + shift * np.eye(p)


# ---- transitions in plain arrays -----------------------------------------------------------------------------
@pytest.fixture
def party():
    """One party with three features of which the last product with y was not released, in float64."""
    p, rng = 3, np.random.default_rng(1)
    gram, sigma2, variance = 10 * definite(p, 1), 0.7, np.array([2.0, 0.5, 3.0])
    return gram, sigma2, variance, rng.normal(size=p), 5 * rng.normal(size=p), np.array([1.0, 1.0, 0.0])


def arrays(*values):
    return [jnp.asarray(x, jnp.float64) for x in values]


def test_density_of_cross_products(party):
    gram, sigma2, variance, theta, cross, seen = party
    with jax.enable_x64(True):
        root = party_steps.cross_root(*arrays(gram, sigma2, variance, seen))
        value = party_steps.cross_log_density(root, *arrays(gram, theta, cross, seen))
        whole = party_steps.cross_root(*arrays(gram, sigma2, variance, np.ones(3)))
        all_three = party_steps.cross_log_density(whole, *arrays(gram, theta, cross, np.ones(3)))
    covariance = sigma2 * gram + np.diag(variance)  # docs/formulas.md#party-likelihood
    exact = stats.multivariate_normal.logpdf(cross[:2], (gram @ theta)[:2], covariance[:2, :2]) + np.log(2 * np.pi)
    assert abs(float(value) - exact) < 1e-10
    exact = stats.multivariate_normal.logpdf(cross, gram @ theta, covariance) + 1.5 * np.log(2 * np.pi)
    assert abs(float(all_three) - exact) < 1e-10


def test_law_of_theta(party):
    """Mean and covariance of (12)."""
    gram, sigma2, variance, _, cross, seen = party
    mean, precision = np.array([0.1, -0.2, 0.3]), definite(3, 2)
    with jax.enable_x64(True):
        root = party_steps.cross_root(*arrays(gram, sigma2, variance, seen))
        about = party_steps.coefficient_information(root, *arrays(gram, cross, seen))
        centre, factor = party_steps.coefficient_law(*arrays(mean, precision), *about)
    h = gram[:2]  # rows of the released entries
    inverse = np.linalg.inv((sigma2 * gram + np.diag(variance))[:2, :2])
    covariance = np.linalg.inv(h.T @ inverse @ h + precision)
    np.testing.assert_allclose(centre, covariance @ (h.T @ inverse @ cross[:2] + precision @ mean), rtol=1e-9)
    np.testing.assert_allclose(np.asarray(factor).T @ np.asarray(factor), covariance, rtol=1e-9)


@pytest.mark.parametrize("tied", [0.0, 1.0])
def test_prior_of_sigma2(tied, party):
    theta, mean, precision = party[3], np.array([0.1, -0.2, 0.3]), definite(3, 2)
    values = []
    for s2 in (0.5, 1.3):
        exact = stats.invgamma.logpdf(s2, 3.0, scale=0.4)
        exact += tied * stats.multivariate_normal.logpdf(theta, mean, s2 * np.linalg.inv(precision))
        with jax.enable_x64(True):
            ours = party_steps.log_prior_variance(*arrays(s2, 3.0, 0.4, theta, mean, precision, tied))
        values.append(float(ours) - exact)
    assert abs(values[0] - values[1]) < 1e-10


@pytest.mark.parametrize("laplace", [0.0, 1.0])
def test_density_of_released_gram(laplace):
    gram, released, scale = definite(3, 1), definite(3, 2), definite(3, 4, 3.0) ** 2
    seen = np.triu(np.ones((3, 3)))
    seen[0, 2] = 0
    law = stats.laplace if laplace else stats.norm
    with jax.enable_x64(True):
        noise = [np.asarray(party_steps.gram_noise(*arrays(s, released, scale, seen))) for s in (gram, 2 * gram)]
    ours = [(-np.abs(e) if laplace else -0.5 * e**2).sum() for e in noise]
    exact = [(law.logpdf(released, s, scale) * seen).sum() for s in (gram, 2 * gram)]
    assert abs(float(ours[0] - ours[1]) - (exact[0] - exact[1])) < 1e-10


@pytest.mark.slow
def test_ratio_of_the_move():
    """W(S; Sigma_x, n) and the proposal of D3 and D4, by scipy."""
    gram, sigma, n, alpha = definite(3, 1), definite(3, 2), 9.0, 11.0
    with jax.enable_x64(True):
        proposal = wishart.propose(jax.random.key(0), jnp.linalg.cholesky(jnp.asarray(gram)), jnp.asarray(alpha))
        ours = party_steps.gram_log_ratio(proposal, *arrays(gram, np.linalg.inv(sigma), n))
        there = np.asarray(proposal.matrix)
    exact = stats.wishart.logpdf(there, n, sigma) - stats.wishart.logpdf(gram, n, sigma)
    exact += stats.wishart.logpdf(gram, alpha, there / alpha) - stats.wishart.logpdf(there, alpha, gram / alpha)
    assert abs(float(ours) - exact) < 1e-9


def test_ratio_of_the_joint_move():
    """InvWishart(psi, nu) and the proposal, by scipy."""
    sigma, psi, nu, alpha = definite(3, 1), definite(3, 2), 8.0, 11.0
    with jax.enable_x64(True):
        proposal = wishart.propose(jax.random.key(0), jnp.linalg.cholesky(jnp.asarray(sigma)), jnp.asarray(alpha))
        there = np.asarray(proposal.matrix)
        ours = party_steps.covariance_log_ratio(proposal, *arrays(np.linalg.inv(sigma), np.linalg.inv(there), psi, nu))
    exact = stats.invwishart.logpdf(there, nu, psi) - stats.invwishart.logpdf(sigma, nu, psi)
    exact += stats.wishart.logpdf(sigma, alpha, there / alpha) - stats.wishart.logpdf(there, alpha, sigma / alpha)
    assert abs(float(ours) - exact) < 1e-9


@pytest.mark.slow
def test_sums_under_the_normal_approximation():
    """The conditional law of one party's sums given their release, y'y not released, by Gaussian algebra."""
    p, n, theta, sigma2, cov = 2, 50.0, np.array([0.5, -1.0]), 0.3, definite(2, 3)
    a, b = origin_places(p)
    c = np.block([[cov, (cov @ theta)[:, None]], [(cov @ theta)[None], theta @ cov @ theta + sigma2]])
    mean = n * c[a, b]
    moments = n * (c[np.ix_(a, a)] * c[np.ix_(b, b)] + c[np.ix_(a, b)] * c[np.ix_(b, a)])
    variance = np.array([4.0, 1.0, 2.0, 9.0, 3.0, 1.0])
    seen, z = np.array([1.0, 1, 1, 1, 1, 0]), mean + 3.0
    with jax.enable_x64(True):
        got_c, g = party_steps.clt_moments(*arrays(theta, sigma2, cov, np.linalg.cholesky(cov)))
        np.testing.assert_allclose(got_c, c, atol=1e-12)
        np.testing.assert_allclose(g @ g.T, c, atol=1e-12)
        draw = lambda x: np.asarray(party_steps.clt_draw(got_c, g, *arrays(n, variance, seen, z, x)))
        centre, spread = draw(np.zeros(12)), np.stack([draw(x) for x in np.eye(12)])
    gain = moments[:, :5] @ np.linalg.inv(moments[:5, :5] + np.diag(variance[:5]))
    np.testing.assert_allclose(centre, mean + gain @ (z - mean)[:5], rtol=1e-9)
    spread = spread - centre
    np.testing.assert_allclose(spread.T @ spread, moments - gain @ moments[:5], rtol=1e-8, atol=1e-8)


def test_projected_sums_belong_to_a_table():
    a, b = origin_places(2)
    c = np.array([[1.0, 0.2, 2.0], [0.2, 1.0, 0.0], [2.0, 0.0, 1.0]])
    with jax.enable_x64(True):
        s = np.asarray(party_steps.project_sums(jnp.asarray(c[a, b])))
    back = np.zeros((3, 3))
    back[a, b] = back[b, a] = s
    assert np.linalg.eigvalsh(back).min() > -1e-12
    values, vectors = np.linalg.eigh(c)
    np.testing.assert_allclose(back, (vectors * np.maximum(values, 0)) @ vectors.T, atol=1e-12)
