"""The leapfrog trajectory: reversible, of second order, and valid inside a Metropolis step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.checks import assert_means

from dpjax.kernels.hmc import leapfrog_lanes
from dpjax.kernels.symmetric import inverse_cholesky


def skewed(x):
    """log density of independent log-gamma(2) variables and its gradient, per lane."""
    return (2.0 * x - jnp.exp(x)).sum(0), 2.0 - jnp.exp(x)


def factor(lanes, dim=3):
    rng = np.random.default_rng(0)
    half = rng.normal(size=(dim, dim))
    one = inverse_cholesky(jnp.asarray(half @ half.T + np.eye(dim)))
    return jnp.broadcast_to(one[..., None], (dim, dim, lanes))


def start(lanes, dim=3, seed=1):
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.normal(size=(dim, lanes))), jnp.asarray(rng.normal(size=(dim, lanes)))


@pytest.mark.slow
def test_reversible(x64):
    """Running back from the end with the opposite momentum returns to the start, step by step."""
    x, u = start(4)
    f, h = factor(4), jnp.full(4, 0.2)
    there = leapfrog_lanes(skewed, x, u, f, h, 7)
    # momentum at the end from energy: recover it by a trajectory of the same length with its sign changed
    velocity = (there.position - leapfrog_lanes(skewed, x, u, f, h, 6).position) / h[None]
    gradient = skewed(there.position)[1]
    half_kick = 0.5 * h[None] * jnp.einsum("ijb,jb->ib", f, gradient)
    end = jnp.einsum("jib,jb->ib", jnp.linalg.inv(f.transpose(2, 0, 1)).transpose(1, 2, 0), velocity) + half_kick
    back = leapfrog_lanes(skewed, there.position, -end, f, h, 7)
    np.testing.assert_allclose(back.position, x, atol=1e-10)
    np.testing.assert_allclose(back.log_ratio, -there.log_ratio, atol=1e-10)


def test_energy_error_is_of_second_order(x64):
    x, u = start(8)
    errors = []
    for steps in (8, 16, 32):
        end = leapfrog_lanes(skewed, x, u, factor(8), jnp.full(8, 1.6 / steps), steps)
        errors.append(np.abs(np.asarray(end.log_ratio)))
    ratio = np.median(errors[0] / errors[1]), np.median(errors[1] / errors[2])
    assert all(3.5 < r < 4.5 for r in ratio), ratio


def test_ends_and_not_finite(x64):
    x, u = start(2)
    end = leapfrog_lanes(skewed, x, u, factor(2), jnp.full(2, 0.1), 3)
    np.testing.assert_allclose(end.log_density_start, skewed(x)[0])
    np.testing.assert_allclose(end.log_density_end, skewed(end.position)[0])
    wild = leapfrog_lanes(skewed, x, u, factor(2), jnp.full(2, 1e4), 3)
    assert np.all(np.asarray(wild.log_ratio) == -np.inf)


@pytest.mark.slow
def test_metropolis_step_keeps_a_skewed_law():
    """Log of gamma(2): mean digamma(2) = 1 - Euler's constant, E exp = 2."""
    chains = 2048
    f = factor(chains).astype(jnp.float32)

    def step(x, key):
        k_u, k_a = jax.random.split(key)
        end = leapfrog_lanes(
            skewed, x, jax.random.normal(k_u, x.shape, x.dtype), f, jnp.full(chains, 0.7, jnp.float32), 3
        )
        accept = jax.random.uniform(k_a, (chains,), x.dtype) < jnp.exp(jnp.minimum(end.log_ratio, 0.0))
        x = jnp.where(accept[None], end.position, x)
        return x, x

    keys = jax.random.split(jax.random.key(0), 400)
    x = jax.lax.scan(step, jnp.zeros((3, chains), jnp.float32), keys)[1][100:]
    x = np.asarray(x, np.float64)
    assert_means(x.mean((0, 1)), 1 - np.euler_gamma)
    assert_means(np.exp(x).mean((0, 1)), 2.0)
