"""Simulated noise, densities, the scale mixture, and privacy maps (SPEC H3)."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from dpjax._release_file import MECHANISMS as RELEASED
from dpjax.errors import InputError
from dpjax.mechanisms import (
    MECHANISMS,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    analytic_gaussian_sigma,
    gaussian_delta,
    gaussian_epsilon,
    mechanism,
)

SCALE = jnp.array([0.5, 2.0, 7.0])
LAWS = {"laplace": stats.laplace, "gaussian": stats.norm}

# SPEC H3: epsilon, delta, sigma at sensitivity 1
H3 = [
    (0.1, 1e-5, 30.7495661320),
    (0.1, 1e-6, 36.3046904262),
    (0.5, 1e-5, 7.0318266756),
    (1, 1e-5, 3.7306316348),
    (1, 1e-6, 4.2246788893),
    (1, 1e-2, 1.8778755609),
    (2, 1e-5, 1.9938124456),
    (5, 1e-5, 0.8918682650),
    (10, 1e-5, 0.4998886197),
    (0.1, 0.1, 2.8469244358),
    (1 / 3, 1e-5 / 3, 10.9706972976),
    (1 / 3, 1e-6 / 3, 12.4712287009),
]


@pytest.mark.parametrize(("epsilon", "delta", "sigma"), H3)
def test_analytic_gaussian_of_spec_h3(epsilon, delta, sigma):
    found = analytic_gaussian_sigma(1, epsilon, delta)
    assert found == pytest.approx(sigma, abs=1e-10)
    assert gaussian_delta(found, 1, epsilon) <= delta
    assert gaussian_delta(found * (1 - 1e-9), 1, epsilon) > delta
    assert gaussian_epsilon(found, 1, delta) == pytest.approx(epsilon, rel=1e-10)
    assert analytic_gaussian_sigma(2.5, epsilon, delta) == pytest.approx(2.5 * sigma, rel=1e-10)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1e-3, 1e-5), (1e3, 1e-5), (1e-6, 1e-9), (1, 1e-300), (100, 1e-12), (1e-4, 0.9)]
)
def test_analytic_gaussian_at_the_edges(epsilon, delta):
    sigma = analytic_gaussian_sigma(3, epsilon, delta)
    assert gaussian_delta(sigma, 3, epsilon) == pytest.approx(delta, rel=1e-5)
    assert gaussian_delta(sigma, 3, epsilon) <= delta


def test_gaussian_delta_against_the_privacy_loss():
    # delta = E max(0, 1 - exp(epsilon - loss)), loss = (mu^2 / 2 + mu u) with mu = sensitivity / sigma
    sigma, sensitivity, epsilon = 2.0, 1.5, 0.7
    mu = sensitivity / sigma
    loss = lambda u: max(0.0, -math.expm1(epsilon - mu * mu / 2 - mu * u)) * stats.norm.pdf(u)
    expected = integrate.quad(loss, (epsilon - mu * mu / 2) / mu, 12)[0]
    assert gaussian_delta(sigma, sensitivity, epsilon) == pytest.approx(expected, rel=1e-8)


def test_gaussian_epsilon_is_zero_where_delta_allows_it():
    assert gaussian_epsilon(1e6, 1, 0.1) == 0


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, True, "1", None])
def test_bad_privacy_arguments(bad):
    for arguments in ((bad, 1, 1e-5), (1, bad, 1e-5), (1, 1, bad)):
        with pytest.raises(InputError):
            analytic_gaussian_sigma(*arguments)
    with pytest.raises(InputError):
        analytic_gaussian_sigma(1, 1, 1.0)
    with pytest.raises(InputError):
        Laplace(SCALE).privacy_map(bad)


def test_laplace_privacy_map_never_understates():
    for sensitivity, scale in ((16 / 3, 16 / 3), (1, 0.1), (1 / 3, 0.7)):
        epsilon = Laplace(np.array([scale, 2 * scale])).privacy_map(sensitivity)
        assert sensitivity / scale < epsilon <= sensitivity / scale * (1 + 1e-15)
    assert Gaussian(np.array([3.7306316348, 9.0])).privacy_map(1, 1e-5) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("kind", MECHANISMS)
def test_statement_names_metric_map_and_source(kind):
    statement = mechanism(kind, SCALE).statement
    assert statement.norm == RELEASED[kind] == {"gaussian": "l2"}.get(kind, "l1")
    assert statement.norm.upper() in statement.input_metric
    assert statement.reference and statement.privacy_map and statement.output_measure
    assert statement.adjacency[0] == "replace-one"


@pytest.mark.parametrize("kind", LAWS)
def test_simulated_noise_has_its_law(kind):
    noise = mechanism(kind, SCALE)
    draws = np.asarray(noise.simulate(jax.random.key(1), (4000,)))
    assert draws.shape == (4000, 3) and draws.dtype == np.asarray(noise.scale).dtype
    for j in range(3):
        assert stats.kstest(draws[:, j], LAWS[kind](scale=float(SCALE[j])).cdf).pvalue > 1e-3
    assert abs(np.corrcoef(draws.T)[0, 1]) < 0.06
    np.testing.assert_allclose(draws.std(axis=0), noise.noise_sd(), rtol=0.08)
    assert noise.simulate(jax.random.key(2)).shape == (3,)
    assert noise.simulate(jax.random.key(2), dtype=jnp.float16).dtype == jnp.float16


@pytest.mark.parametrize("kind", LAWS)
def test_log_density(kind):
    noise = mechanism(kind, SCALE)
    z, s = jnp.array([[0.3, -4.0, 9.0], [1.0, 2.0, 3.0]]), jnp.array([[0.0, 1.0, -2.0], [1.0, 2.0, 3.0]])
    expected = LAWS[kind](scale=np.asarray(SCALE)).logpdf(np.asarray(z - s)).sum(axis=-1)
    np.testing.assert_allclose(noise.log_density(z, s), expected, rtol=1e-5)
    np.testing.assert_allclose(noise.log_density(z[0], s[0]), expected[0], rtol=1e-5)


def test_simulated_discrete_noise_has_its_law():
    noise = mechanism("discrete-laplace", SCALE)
    draws = np.asarray(noise.simulate(jax.random.key(1), (4000,)))
    assert draws.shape == (4000, 3) and draws.dtype == np.asarray(noise.scale).dtype
    assert (draws == np.round(draws)).all()
    for j, b in enumerate(np.asarray(SCALE, float)):
        k = np.arange(-int(2 * b) - 1, int(2 * b) + 2)
        inner = stats.dlaplace.pmf(k, 1 / b)
        seen = np.array([(draws[:, j] == i).sum() for i in k])
        observed, expected = [*seen, 4000 - seen.sum()], 4000 * np.array([*inner, 1 - inner.sum()])
        assert stats.chisquare(observed, expected).pvalue > 1e-3
    np.testing.assert_allclose(draws.std(axis=0), noise.noise_sd(), rtol=0.08)
    np.testing.assert_allclose(noise.noise_sd(), [stats.dlaplace.std(1 / b) for b in np.asarray(SCALE)], rtol=1e-5)
    assert noise.simulate(jax.random.key(2)).shape == (3,)


def test_density_of_discrete_noise():
    noise = mechanism("discrete-laplace", SCALE)
    z, s = jnp.array([[3.0, -4.0, 9.0], [1.0, 2.0, 3.0]]), jnp.array([[0.0, 1.0, -2.0], [1.0, 2.0, 3.0]])
    expected = stats.dlaplace.logpmf(np.asarray(z - s), 1 / np.asarray(SCALE)).sum(axis=-1)
    np.testing.assert_allclose(noise.log_density(z, s), expected, rtol=1e-5)
    # it sums to one, and as a function of s it is the density of Laplace noise up to a constant
    k = jnp.arange(-400.0, 401.0)[:, None]
    one = DiscreteLaplace(SCALE[2:])
    assert float(jnp.exp(one.log_density(k, jnp.zeros_like(k))).sum()) == pytest.approx(1, rel=1e-5)
    gap = noise.log_density(z, s) - mechanism("laplace", SCALE).log_density(z, s)
    np.testing.assert_allclose(gap[0], gap[1], rtol=1e-4)
    assert noise.unit_noise == Laplace.unit_noise and noise.random_scales and noise.whole_numbers
    assert noise.privacy_map(1) == Laplace(SCALE).privacy_map(1)


def test_laplace_is_the_stated_scale_mixture():
    # the interface's convention: in units of b, e | w ~ N(0, noise_variance(w)) and w ~ Exponential(rate 1/2)
    noise = Laplace(jnp.ones(1))
    for e in (0.2, 1.0, 3.5):
        mixed = integrate.quad(
            lambda w, e=e: stats.norm.pdf(e, scale=math.sqrt(w)) * 0.5 * math.exp(-w / 2), 0, np.inf
        )[0]
        density = math.exp(float(noise.log_density(jnp.array([e]), jnp.zeros(1))))
        assert mixed == pytest.approx(density, rel=1e-5)
    w = jnp.array([0.1, 5.0])
    np.testing.assert_array_equal(noise.noise_variance(w), w)


def test_scales_of_laplace():
    residual = jnp.array([0.0, -3.0, 0.7])
    noise = Laplace(SCALE)
    np.testing.assert_allclose(noise.init_scales(residual), [1.0, 4.0, 1.7], rtol=1e-6)
    keys = jax.random.split(jax.random.key(0), 4000)
    draws = np.asarray(jax.vmap(lambda key: noise.update_scales(key, residual))(keys))
    assert (draws > 0).all()
    # the start is the conditional mean (SPEC B10); 5 standard errors
    error = draws.std(axis=0) / math.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - noise.init_scales(residual)) < 5 * error).all()


def test_scales_of_gaussian_are_constant():
    noise, residual = Gaussian(SCALE), jnp.array([0.0, -3.0, 0.7])
    np.testing.assert_array_equal(noise.init_scales(residual), 1.0)
    np.testing.assert_array_equal(noise.update_scales(jax.random.key(0), residual), 1.0)
    assert Laplace.random_scales and not Gaussian.random_scales


@pytest.mark.parametrize("kind", MECHANISMS)
def test_mechanisms_are_pytrees(kind):
    noise = mechanism(kind, SCALE)
    assert len(jax.tree.leaves(noise)) == 1
    assert jax.tree.map(lambda _: object(), noise).kind == kind
    stacked = jax.tree.map(lambda a: jnp.stack([a, 2 * a]), noise)
    keys = jax.random.split(jax.random.key(0), 2)
    both = jax.jit(jax.vmap(lambda m, key: m.simulate(key)))(stacked, keys)
    np.testing.assert_allclose(both[1], mechanism(kind, 2 * SCALE).simulate(keys[1]), rtol=1e-6)
    with pytest.raises(AttributeError):
        noise.scale = SCALE


@pytest.mark.parametrize("scale", [[0.0], [-1.0], [math.nan], [math.inf], [True], ["1"]])
def test_refused_scales(scale):
    with pytest.raises(InputError, match="scales"):
        mechanism("laplace", scale)


def test_unknown_mechanism():
    with pytest.raises(InputError, match="laplace, gaussian"):
        mechanism("geometric", [1.0])
