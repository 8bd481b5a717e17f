"""Multinomial counts of few records: the exact law against enumeration and importance sampling."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from dpjax.engine.problems import Problems
from dpjax.inference.run_method import run_method
from dpjax.models import Multinomial
from dpjax.models.priors import DirichletPrior
from dpjax.samplers.counts import Counts


def _problems(z, n, scale, alpha, released, mechanism="laplace"):
    z = np.atleast_2d(np.asarray(z, float))
    model = Multinomial(DirichletPrior(jnp.asarray(alpha, jnp.float32)), tuple(released))
    return Problems(z, np.asarray(n, float), np.full(z.shape, scale), model, mechanism)


def _enumerated(z, n, scale, alpha, released, mechanism):
    """Posterior mean and variance of p, by all tables of counts."""
    s = np.array([c for c in itertools.product(range(n + 1), repeat=len(alpha)) if sum(c) == n], float)
    logs = (gammaln(np.array(alpha) + s) - gammaln(s + 1)).sum(1)
    law = stats.laplace(scale=scale) if mechanism == "laplace" else stats.norm(scale=scale)
    logs += law.logpdf(np.asarray(z) - s[:, list(released)]).sum(1)
    return _moments(logs, s, np.array(alpha))


def _moments(logs, s, alpha):
    w = np.exp(logs - logs.max())
    w /= w.sum()
    a, total = alpha + s, (alpha + s).sum(1, keepdims=True)
    mean = w @ (a / total)
    second = w @ (a * (a + 1) / (total * (total + 1)))
    return mean, second - mean**2


def _errors(draws, mean, variance):
    """Deviations of mean and variance in Monte Carlo errors, from the spread of 24 chains."""
    draws = np.asarray(draws, float)
    off = np.stack([draws.mean(1) - mean, ((draws - mean) ** 2).mean(1) - variance])
    return off.mean(1) / (off.std(1, ddof=1) / np.sqrt(draws.shape[0]))


CASES = [
    ([4.2, 1.1, 6.0], 10, 1.5, [1.0, 1.0, 1.0], (0, 1, 2), "laplace"),
    # outside of what any table gives
    pytest.param(([-3.0, 14.0], 10, 2.0, [0.5, 2.0, 1.0], (0, 2), "laplace"), marks=pytest.mark.slow),
    pytest.param(([0.3, 0.2, 1.6], 2, 0.3, [0.2, 0.2, 0.2], (2, 0, 1), "gaussian"), marks=pytest.mark.slow),
    ([40.0, -7.0, 3.0], 10, 8.0, [3.0, 1.0, 1.0], (0, 1, 2), "laplace"),
    ([1.0, 0.0, 0.0], 1, 5.0, [1.0, 1.0, 1.0], (0, 1, 2), "laplace"),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_three_categories_against_enumeration(case):
    z, n, scale, alpha, released, mechanism = case
    run = run_method("collapsed", _problems(z, [n], scale, alpha, released, mechanism), seed=5, chains=24, draws=500)
    assert np.abs(_errors(run.draws[0], *_enumerated(*case))).max() < 4.5
    assert run.diagnostics.max_rhat[0] < 1.02 and not run.reruns and (run.codes == 0).all()


@pytest.mark.slow
def test_five_categories_of_few_people_against_importance_sampling():
    """K = 5 by importance sampling from the prior's counts."""
    rng = np.random.default_rng(8)
    alpha, scale = np.full(5, 1.0), 4.0
    n = [1, 3, 17, 60]
    z = [rng.multinomial(m, [0.6, 0.3, 0.1, 0.0, 0.0]) + rng.laplace(scale=scale, size=5) for m in n]
    run = run_method("collapsed", _problems(z, n, scale, alpha, range(5)), seed=6, chains=24, draws=500)
    for i, m in enumerate(n):
        p = rng.dirichlet(alpha, 300_000)
        s = rng.multinomial(m, p)
        logs = -np.abs(z[i] - s).sum(1) / scale
        mean, variance = _moments(logs, s, alpha)
        w = np.exp(logs - logs.max())
        size = w.sum() ** 2 / (w * w).sum()
        error = np.sqrt(variance / size + run.draws[i].mean(1).var(0, ddof=1) / 24)
        assert size > 1000 and (np.abs(run.draws[i].mean((0, 1)) - mean) < 4.5 * error).all()


@pytest.mark.slow
def test_twenty_categories_mix():
    """Forty people in 20 cells: it did not converge with the normal law (R-hat above 1.05)."""
    rng = np.random.default_rng(9)
    many = [rng.multinomial(40, rng.dirichlet(np.full(20, 0.3))) + rng.laplace(scale=4.0, size=20) for _ in range(8)]
    run = run_method("collapsed", _problems(many, [40] * 8, 4.0, np.full(20, 1.0), range(20)), seed=2, chains=4)
    assert run.diagnostics.max_rhat.max() < 1.03 and run.diagnostics.min_ess.min() > 300 and not run.reruns


def test_counts_are_drawn_only_where_there_are_few():
    from dpjax.inference.methods import METHODS

    few, more = (_problems([[3.0, 2.0]], [m], 1.0, [1.0, 1.0, 1.0], (0, 1)) for m in (10, 5000))
    assert isinstance(METHODS["collapsed"].sampler(few), Counts)
    assert not isinstance(METHODS["collapsed"].sampler(more), Counts)
