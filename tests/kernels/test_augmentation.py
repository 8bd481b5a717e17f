"""The mixing variance given Laplace noise has its exact law, at every size of the noise
(docs/formulas.md#laplace-mixture)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.checks import assert_law, assert_means
from oracles.noise import mixing_cdf, normal_laplace_log_density, normal_laplace_posterior
from scipy import integrate, stats

from dpjax.kernels.augmentation import laplace_scales, laplace_scales_from
from dpjax.kernels.suffstat import draw_statistic


@pytest.mark.parametrize("e", [0.0, 1e-30, 1e-4, 0.35, -3.0, 50.0, 1e4])
def test_law(e):
    w = laplace_scales(jax.random.key(3), jnp.full((200_000,), e, jnp.float32))
    assert_law(w, mixing_cdf(e))


@pytest.mark.parametrize("e", [0.02, 0.7, 5.0, 1e4, 1e8])
def test_mean_and_inverse_mean(e):
    keys = jax.random.split(jax.random.key(1), 32)
    full = jnp.full((20_000,), e, jnp.float32)
    w = np.asarray(jax.vmap(laplace_scales, (0, None))(keys, full), np.float64)
    assert_means((w / (e + 1)).mean(1), 1.0, floor=1e-7)
    assert_means((e / w).mean(1), 1.0, floor=1e-7)
    spread = (w - (e + 1)) ** 2 / (e + 2)  # Var w = |e| + 2: inverse Gaussian |e|, chi-square 2
    assert_means(spread.mean(1), 1.0, floor=1e-7 * e)


def test_finite_and_positive_at_every_size():
    e = jnp.asarray(np.r_[0.0, np.logspace(-44, 8, 400), np.logspace(8, 18, 50)], jnp.float32)
    for seed in range(20):
        w = np.asarray(laplace_scales(jax.random.key(seed), e))
        assert np.isfinite(w).all() and (w > 0).all()


@pytest.mark.parametrize("extreme", [0.0, 1e-20, 1.0, 6.0])
def test_no_nan_from_extreme_numbers(extreme):
    e = jnp.asarray([0.0, 1e-40, 1e-10, 1.0, 1e8], jnp.float32)
    for u in (0.0, 0.5, 1 - 2**-24):
        n = jnp.full_like(e, extreme)
        w = np.asarray(laplace_scales_from(e, n, jnp.full_like(e, u)))
        assert np.isfinite(w).all() and (w > 0).all()


def test_oracle_normal_laplace_density():
    np.testing.assert_allclose(normal_laplace_log_density(1, 0, 1, 1), -1.596461601220, atol=1e-12)
    np.testing.assert_allclose(normal_laplace_log_density(0, 10, 4, 0.5), -12.141667193681, atol=1e-12)
    # the mixture: Laplace(b) is N(0, b^2 w) with w ~ Exponential(rate 1/2)
    mixed = integrate.quad(
        lambda w: stats.norm.pdf(1.0, 0, np.sqrt(1 + w)) * 0.5 * np.exp(-w / 2), 0, np.inf, epsabs=1e-12
    )[0]
    np.testing.assert_allclose(np.log(mixed), -1.596461601220, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("m, v, z", [(0.0, 1.0, 1.3), (-1.0, 4.0, 2.5)])
def test_gibbs_of_statistic_and_scales_has_the_exact_posterior(m, v, z):
    """Alternate s | w, z and w | z - s: together they must leave the skewed posterior of s | z unchanged."""
    mean, sd, skewness = normal_laplace_posterior(z, m, v, 1.0)
    one = lambda x: jnp.full((1,), x, jnp.float32)
    args = (one(m), jnp.full((1, 1), np.sqrt(v), jnp.float32), one(z))

    def step(carry, key):
        k1, k2 = jax.random.split(key)
        w = carry
        draw = draw_statistic(k1, args[0], args[1], w, args[2])
        return laplace_scales(k2, draw.noise), draw.statistic[0]

    def chain(key):
        return jax.lax.scan(step, one(2.0), jax.random.split(key, 4200))[1][200:]

    s = np.asarray(jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(0), 64)), np.float64)
    assert abs(skewness) > 0.05
    assert_means(s.mean(1), mean)
    assert_means(((s - mean) ** 2).mean(1), sd**2)
    assert_means(((s - mean) ** 3).mean(1), skewness * sd**3)
