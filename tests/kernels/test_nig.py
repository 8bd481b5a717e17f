"""Conjugate regression update: docs/formulas.md#conjugate-regression, closed form in float64, rounding at a billion
records, draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.checks import assert_law, assert_means
from scipy import stats

from dpjax.kernels import nig, random

PRIOR = ([0.2, -0.1], [[0.5, 0.1], [0.1, 0.8]], 20.0, 0.5)
XX, XY, YY, N = np.array([[10, 1.5], [1.5, 4.2]]), np.array([3.0, -1.0]), 5.5, 10.0


def prior(dtype=jnp.float32):
    return nig.NIG(*(jnp.asarray(x, dtype) for x in PRIOR))


def records(dtype=jnp.float32):
    return tuple(jnp.asarray(x, dtype) for x in (XX / N, XY / N, YY / N, N))


def closed_form(mean, precision, shape, scale, xx, xy, yy, n):
    """Bernstein and Sheldon 2019, eq (1) from sums."""
    total = precision + xx
    new = np.linalg.solve(total, precision @ mean + xy)
    return new, total, shape + n / 2, scale + 0.5 * (yy + mean @ precision @ mean - new @ total @ new)


def test_h8(x64):
    post = nig.update(prior(jnp.float64), *records(jnp.float64))
    np.testing.assert_allclose(post.mean, [0.343331998398, -0.321866239487], atol=1e-12)
    np.testing.assert_allclose(post.precision, np.array(PRIOR[1]) + XX, atol=1e-12)
    assert float(post.shape) == 25.0
    np.testing.assert_allclose(float(post.scale), 2.560962955547, atol=1e-12)


@pytest.mark.parametrize("p", [1, 2, 5, 9])
def test_closed_form_from_records(p, x64):
    rng = np.random.default_rng(p)
    x = np.c_[np.ones(40), rng.normal(size=(40, p))]
    y = x @ rng.normal(size=p + 1) + rng.normal(size=40)
    root = rng.normal(size=(p + 1, p + 1))
    start = (rng.normal(size=p + 1), root @ root.T + np.eye(p + 1), 3.0, 0.7)
    expected = closed_form(*start, x.T @ x, x.T @ y, y @ y, 40)
    post = nig.update(
        nig.NIG(*map(jnp.asarray, start)), *map(jnp.asarray, (x.T @ x / 40, x.T @ y / 40, y @ y / 40, 40.0))
    )
    for actual, wanted in zip(post, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-10)


def test_no_records_gives_the_prior(x64):
    start = prior(jnp.float64)
    zero = lambda *s: jnp.zeros(s, jnp.float64)
    for actual, wanted in zip(nig.update(start, zero(2, 2), zero(2), zero(), zero()), start, strict=True):
        np.testing.assert_allclose(actual, wanted, atol=1e-14)


def test_float32_at_a_billion_records():
    """Rounding stays under half a posterior standard deviation (1e-5 relative) for R^2 up to 0.9."""
    rng = np.random.default_rng(0)
    n = 1e9
    update = jax.jit(nig.update)
    for _ in range(50):
        m, theta = rng.normal() * 0.3, rng.normal(size=2)
        xx = np.array([[1, m], [m, m * m + 0.3]])
        explained = theta @ xx @ theta
        inputs = [np.float32(v) for v in (xx, xx @ theta, explained / 0.9, n)]
        post = update(prior(), *map(jnp.asarray, inputs))
        exact = closed_form(*map(np.asarray, PRIOR), *(np.float64(v) * n for v in inputs[:3]), n)
        sd = np.sqrt(exact[3] / exact[2] * np.diag(np.linalg.inv(exact[1])))
        assert np.all(np.abs(np.asarray(post.mean, np.float64) - exact[0]) < 0.5 * sd)
        assert abs(float(post.scale) / exact[3] - 1) < 0.5 * np.sqrt(2 / n)


@pytest.mark.slow
def test_scale_never_falls_for_a_consistent_statistic_and_shows_an_inconsistent_one():
    # exact fits: y'y explained to the last digit, so that rounding decides the sign
    rng = np.random.default_rng(1)
    weak = nig.NIG(*(jnp.asarray(v, jnp.float32) for v in ([0, 0], 1e-6 * np.eye(2), 20.0, 0.5)))
    theta = rng.normal(size=(500, 2)).astype(np.float32)
    xx = np.array([[1, 0.3], [0.3, 0.5]], np.float32)
    yy = np.einsum("ni,ij,nj->n", theta, xx, theta)
    update = jax.jit(jax.vmap(nig.update, (None, None, 0, 0, None)))
    post = update(weak, jnp.asarray(xx), jnp.asarray(theta @ xx), jnp.asarray(yy), jnp.float32(1e6))
    assert float(post.scale.min()) >= 0.5
    # an inconsistent statistic is not repaired here, and its draws say so
    bad = nig.update(prior(), records()[0], records()[1], jnp.float32(0.0), jnp.float32(1000.0))
    assert float(bad.scale) < 0.5
    numbers = (jnp.float32(520.0), jnp.ones(2, jnp.float32))
    worse = nig.update_draw_from(prior(), *records()[:2], jnp.float32(-1.0), jnp.float32(1000.0), *numbers)
    assert bool(jnp.isnan(worse[0]).all())


@pytest.mark.slow
def test_draw_law():
    post = nig.update(prior(), *records())
    keys = jax.random.split(jax.random.key(2), 32 * 5000)

    def draw(key):
        for_gamma, for_normals = jax.random.split(key)
        gamma = random.gamma(for_gamma, post.shape)
        normals = jax.random.normal(for_normals, (2,), jnp.float32)
        return nig.update_draw_from(prior(), *records(), gamma, normals)

    theta, sigma2 = (np.asarray(x, np.float64) for x in jax.jit(jax.vmap(draw))(keys))
    a, b, mean = float(post.shape), float(post.scale), np.asarray(post.mean, np.float64)
    covariance = np.linalg.inv(np.asarray(post.precision, np.float64))
    assert_law(sigma2, stats.invgamma(a, scale=b).cdf)
    for i in range(2):
        scale = np.sqrt(b / a * covariance[i, i])
        assert_law(theta[:, i], stats.t(2 * a, loc=mean[i], scale=scale).cdf)
    # given sigma2 the coefficients are normal with covariance sigma2 Lambda^{-1}: correlation and dependence
    scaled = (theta - mean) / np.sqrt(sigma2)[:, None]
    outer = np.einsum("ni,nj->nij", scaled, scaled).reshape(32, 5000, 2, 2)
    assert_means(outer.mean(1), covariance)
    assert_means((scaled[:, 0] ** 2 * sigma2).reshape(32, -1).mean(1), covariance[0, 0] * b / (a - 1))


def test_draw_is_that_of_the_update():
    gamma, normals = jnp.float32(24.0), jnp.asarray([0.3, -1.2], jnp.float32)
    theta, sigma2 = nig.update_draw_from(prior(), *records(), gamma, normals)
    post = nig.update(prior(), *records())
    np.testing.assert_allclose(sigma2, post.scale / gamma, rtol=2e-6)
    white = np.linalg.cholesky(post.precision).T @ np.asarray(theta - post.mean) / np.sqrt(sigma2)
    np.testing.assert_allclose(white, normals, rtol=2e-5)
