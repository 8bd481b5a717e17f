"""The statistic given its release has the exact normal law, singular covariances included
(docs/formulas.md#distinct-entries, #singular-counts)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.checks import assert_means

from dpjax.kernels import suffstat

CHAINS, PER_CHAIN = 32, 4000


def draw_many(function, *args):
    keys = jax.random.split(jax.random.key(0), CHAINS * PER_CHAIN)
    args = [jnp.asarray(x, jnp.float32) for x in args]
    out = jax.jit(jax.vmap(function, (0, None, None, None, None)))(keys, *args)
    return [np.asarray(x, np.float64) for x in out]


def chains(x):
    return x.reshape(CHAINS, PER_CHAIN, *x.shape[1:]).mean(1)


def exact(mean, s, v, z):
    gain = s @ np.linalg.inv(s + np.diag(v))
    return mean + gain @ (z - mean), s - gain @ s


def problem(size=5, rank=5, seed=0):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(size, rank))
    return rng.normal(size=size), factor, rng.gamma(1.0, size=size) + 0.1, rng.normal(size=size) * 3


@pytest.mark.slow
@pytest.mark.parametrize("rank", [5, 3])
@pytest.mark.parametrize("form", ["factor", "covariance"])
def test_law(rank, form):
    mean, factor, v, z = problem(rank=rank)
    s = factor @ factor.T
    if form == "factor":
        draws, noise = draw_many(suffstat.draw_statistic, mean, factor, v, z)
    else:
        draws, noise = draw_many(suffstat.draw_statistic_covariance, mean, s, v, z)
    centre, spread = exact(mean, s, v, z)
    assert_means(chains(draws), centre, floor=1e-5)
    deviation = draws - centre
    assert_means(chains(np.einsum("ni,nj->nij", deviation, deviation)), spread, floor=1e-5)
    np.testing.assert_allclose(draws + noise, np.broadcast_to(z, draws.shape), atol=2e-5)


@pytest.mark.slow
def test_multinomial_counts_keep_their_sum():
    n, p = 60.0, np.array([0.2, 0.5, 0.3])
    s = n * (np.diag(p) - np.outer(p, p))
    v, z = np.full(3, 50.0), np.array([30.0, 20.0, 25.0])
    draws, _ = draw_many(suffstat.draw_statistic_covariance, n * p, s, v, z)
    np.testing.assert_allclose(draws.sum(1), n, atol=2e-4)
    centre, spread = exact(n * p, s, v, z)
    assert_means(chains(draws), centre, floor=1e-4)
    deviation = draws - centre
    assert_means(chains(np.einsum("ni,nj->nij", deviation, deviation)), spread, floor=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("size_of_noise", [1e-10, 1e10])
def test_float32_when_noise_and_statistic_differ_by_far(size_of_noise):
    mean, factor, v, z = problem(3, 3)
    v, z = v * size_of_noise, mean + (z - mean) * max(1.0, np.sqrt(size_of_noise))
    draws, noise = draw_many(suffstat.draw_statistic, mean, factor, v, z)
    centre, spread = exact(mean, factor @ factor.T, v, z)
    if size_of_noise > 1:
        # nothing is learnt: the statistic keeps its prior to rounding of the prior's own size
        assert_means(chains(draws), centre, floor=1e-5)
        assert_means(chains((draws - centre) ** 2), np.diag(spread), floor=1e-5)
    else:
        # the noise is far below the rounding of s, and still has its own spread
        assert_means(chains(noise**2 / v), np.ones(3), limit=4.5)


def test_moment_matrix_and_back():
    for p, size in ((1, 5), (2, 9), (4, 20), (9, 65)):
        assert suffstat.covariates(size) == p
        statistic = jnp.arange(1.0, size + 1.0, dtype=jnp.float32)
        matrix = suffstat.moment_matrix(statistic, jnp.float32(-7.0))
        assert matrix.shape == (p + 2, p + 2) and float(matrix[0, 0]) == -7.0
        assert np.array_equal(matrix, matrix.T)
        assert np.array_equal(suffstat.statistic_entries(matrix), statistic)


def test_moment_matrix_holds_the_products():
    record = np.array([1.0, 2.0, 3.0, 5.0])
    statistic = jnp.asarray([2, 3, 4, 6, 9, 5, 10, 15, 25], jnp.float32)
    assert np.array_equal(suffstat.moment_matrix(statistic, jnp.float32(1.0)), np.outer(record, record))


@pytest.mark.parametrize("entries", [1, 4, 6, 10, 0])
def test_a_wrong_number_of_entries_is_refused(entries):
    with pytest.raises(ValueError, match=f"{entries} entries"):
        suffstat.covariates(entries)
