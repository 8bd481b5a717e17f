"""`individual` against prior draws weighted by the noise's density (exact, records drawn in NumPy) and `collapsed`."""

import dataclasses
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro import handlers
from numpyro.distributions.transforms import AffineTransform
from scipy import stats

from dpjax.diagnostics.ranks import diagnose
from dpjax.engine.problems import Problems, precision
from dpjax.engine.result_codes import NON_FINITE, OK
from dpjax.errors import InputError
from dpjax.families import family_named
from dpjax.inference import individual_model as records_model
from dpjax.inference import individual_programs
from dpjax.inference.individual import run_individual
from dpjax.inference.run_method import run_method
from dpjax.kernels.order import index_pairs
from dpjax.models import LinearRegression, family_model
from dpjax.models.priors import PRIORS
from dpjax.statistics.regression import (
    regression_parameters,
)

# light tails: variances of reference and chains must themselves have a variance
PRIOR = {"theta_mean": 0.2, "theta_precision": [[0.4, 0.1, 0.0], [0.1, 0.8, 0.2], [0.0, 0.2, 0.9]],
         "sigma2_shape": 12.0, "sigma2_scale": 1.6, "x_mean": [0.1, -0.2], "kappa": 2.0,
         "psi": [[4.0, 2.0], [2.0, 6.0]], "nu": 18.0}  # fmt: skip

COVARIANCE = np.array([[1.0, 0.6], [0.6, 0.5]])


def _theta(rng, model, count):
    """Draws of theta `[N, q]` and sigma2 `[N]` from the prior."""
    precision_matrix = np.asarray(model.theta_precision, np.float64)
    sigma2 = stats.invgamma(float(model.sigma2_shape), scale=float(model.sigma2_scale)).rvs(count, random_state=rng)
    unit = rng.multivariate_normal(np.zeros(len(precision_matrix)), np.linalg.inv(precision_matrix), count)
    return np.asarray(model.theta_mean, np.float64) + np.sqrt(sigma2)[:, None] * unit, sigma2


def _weighted(rng, problems, t, features, clip=False, count=400_000, chunk=50_000):
    """Posterior mean and variance of parameters by weighted prior draws, and their standard errors.

    features: (rng, count, n) -> X `[N, n, p]` and further reported parameters `[N, k]`.
    """
    model, n = problems.take([t]).model_template(), int(problems.n[t])
    a, b = np.array(index_pairs(model.p)).T
    law = stats.laplace if problems.mechanism == "laplace" else stats.norm
    parameters, logs = [], []
    for _ in range(count // chunk):
        theta, sigma2 = _theta(rng, model, chunk)
        x, more = features(rng, chunk, n)
        y = theta[:, :1] + np.einsum("knp,kp->kn", x, theta[:, 1:])
        y = y + np.sqrt(sigma2)[:, None] * rng.standard_normal((chunk, n))
        rows = np.concatenate([x, y[..., None]], 2)
        rows = np.concatenate([np.ones((chunk, n, 1)), np.clip(rows, -1, 1) if clip else rows], 2)
        sums = np.einsum("kni,knj->kij", rows, rows)[:, a, b]
        logs.append(law(problems.z[t], problems.scale[t]).logpdf(sums).sum(1))
        parameters.append(np.concatenate([theta, sigma2[:, None], more], 1))
    weight = np.exp(np.concatenate(logs) - np.max(logs))
    weight, parameters = weight / weight.sum(), np.concatenate(parameters)
    assert 1 / (weight**2).sum() > 4000
    mean = weight @ parameters
    centred = (parameters - mean) ** 2
    variance = weight @ centred
    errors = [
        np.sqrt((weight[:, None] * (x - m)).__pow__(2).sum(0)) for x, m in ((parameters, mean), (centred, variance))
    ]
    return (mean, errors[0]), (variance, errors[1])


def _moments(draws, names):
    """The same from draws `[C, S, K]`."""
    draws = draws.astype(np.float64)
    mean = draws.mean((0, 1))
    out = []
    for x in (draws, (draws - mean) ** 2):
        ess = diagnose(x[None], names).ess_bulk[0]
        out.append((x.mean((0, 1)), x.std((0, 1)) / np.sqrt(ess)))
    return out


def _assert_agree(found, expected):
    for (a, error_a), (b, error_b) in zip(found, expected, strict=True):
        off = (a - b) / np.hypot(error_a, error_b)
        assert (np.abs(off) < 4).all(), off


@pytest.mark.slow
def test_two_features_and_their_hierarchical_normal():
    """Every problem has its own prior, sums and noise; they share one program."""
    other = {**PRIOR, "theta_mean": -0.3, "psi": [[8.0, -3.2], [-3.2, 4.0]], "nu": 20.0, "kappa": 0.5}
    priors = [LinearRegression.create(2, **x) for x in (PRIOR, other)]
    priors.append(dataclasses.replace(priors[0], nu=np.float32(np.nan)))
    model = LinearRegression(*(np.stack(x) for x in zip(*(vars(p).values() for p in priors), strict=True)))
    z = np.array([[1.0, -3.0, 3.0, 1.5, 4.0, 2.0, 1.0, -2.0, 3.0], [-2.0, 2.0, 1.0, -2.0, 2.0, -4.0, 2.0, 0.0, 5.0]])
    scale = np.array([np.full(9, 2.5), np.linspace(3.0, 2.0, 9)])[[0, 1, 0]]
    problems = Problems(z[[0, 1, 0]], np.full(3, 8.0), scale, model, "laplace")
    before = individual_programs.compiled_programs.cache_info().misses
    run = run_individual(problems, seed=1, chains=4, draws=1000, warmup=500)
    assert individual_programs.compiled_programs.cache_info().misses == before + 1
    assert run.names == regression_parameters(2) and run.draws.shape == (3, 4, 1000, 9)
    assert (run.codes[:2] == OK).all() and not run.divergences[:2].any() and (run.accept[:2] > 0.6).all()
    assert (run.codes[2] == NON_FINITE).all()
    rng = np.random.default_rng(2)
    for t, prior in enumerate(priors[:2]):

        def features(rng, count, n, prior=prior):
            covariance = stats.invwishart(float(prior.nu), np.asarray(prior.psi, np.float64)).rvs(
                count, random_state=rng
            )
            root = np.linalg.cholesky(covariance)
            units = rng.standard_normal((count, n + 1, 2))
            mean = np.asarray(prior.x_mean) + np.einsum("kij,kj->ki", root, units[:, 0]) / np.sqrt(float(prior.kappa))
            x = mean[:, None] + np.einsum("kij,knj->kni", root, units[:, 1:])
            i, j = np.tril_indices(2)
            return x, np.concatenate([mean, covariance[:, i, j]], 1)

        _assert_agree(_moments(run.draws[t], run.names), _weighted(rng, problems, t, features))


@pytest.mark.slow
def test_bounded_features_in_64_bits_and_gaussian_noise():
    laws = [dist.Uniform(-1.0, 0.5), dist.TransformedDistribution(dist.Beta(2.0, 3.0), AffineTransform(-1.0, 2.0))]
    z = np.array([[-4.0, -3.0, 4.0, 2.0, 3.0, -2.0, 4.0, 1.0, 6.0]])
    with precision(True):
        model = LinearRegression.create(2, **PRIOR)
        problems = Problems(z, np.array([9.0]), np.full((1, 9), 2.0), model, "gaussian")
        run = run_individual(problems, seed=3, chains=4, draws=1000, warmup=500, covariates=laws)
    assert run.names == regression_parameters(2)[:4] and run.draws.dtype == np.float64 and (run.codes == OK).all()

    def features(rng, count, n):
        x = np.stack([rng.uniform(-1, 0.5, (count, n)), 2 * rng.beta(2, 3, (count, n)) - 1], 2)
        return x, np.zeros((count, 0))

    _assert_agree(_moments(run.draws[0], run.names), _weighted(np.random.default_rng(4), problems, 0, features))


@pytest.mark.slow
def test_hyperparameters_of_the_features_and_clipped_records():
    traced = 0

    def laws():
        nonlocal traced
        traced += 1
        centre = numpyro.sample("centre", dist.Normal(0.5, 0.5))
        width = numpyro.sample("width", dist.Uniform(0.5, 1.5))
        return [dist.Normal(centre, 0.7), dist.TruncatedNormal(0.5, width, low=0.0, high=2.0)]

    model = LinearRegression.create(2, **PRIOR)
    z = np.array([[4.0, 5.0, 3.0, 2.0, 4.0, 1.0, 2.0, 2.0, 5.0], [-1.0, 4.0, 4.0, 2.0, 3.0, -3.0, 2.0, -2.0, 3.0]])
    box = np.tile([-1.0, 1.0], (3, 1))
    problems = Problems(z, np.array([7.0, 7.0]), np.full((2, 9), 2.0), model, "laplace", box=box)
    settings = {"seed": 5, "chains": 4, "draws": 1000, "warmup": 500, "covariates": laws, "bounded": True}
    run = run_individual(problems.take([0]), **settings)
    once = traced
    seen = []
    both = run_individual(problems, **settings, progress=seen.append)
    assert traced == once + 1  # looked at, not traced: the program is there
    assert both.compile_seconds == 0 < run.compile_seconds and run.names == regression_parameters(2)[:4]
    np.testing.assert_array_equal(both.draws[0], run.draws[0])
    assert len(seen) == 30 and seen[-1].done == seen[-1].total == 2 * 4 * 1500
    second = run_individual(problems.take([1]), **settings, first_problem=1)
    np.testing.assert_array_equal(both.draws[1], second.draws[0])

    def features(rng, count, n):
        centre, width = rng.normal(0.5, 0.5, (count, 1)), rng.uniform(0.5, 1.5, (count, 1))
        second = stats.truncnorm(-0.5 / width, 1.5 / width, 0.5, width).rvs((count, n), random_state=rng)
        return np.stack([rng.normal(centre, 0.7, (count, n)), second], 2), np.zeros((count, 0))

    expected = _weighted(np.random.default_rng(6), problems, 0, features, clip=True)
    _assert_agree(_moments(run.draws[0], run.names), expected)


@pytest.mark.slow
def test_agrees_with_collapsed_at_200_records():
    """The collapsed model is the normal law of the sums: at this n it is the same to .05 sd."""
    z = np.array([[-14.8, 26.6, 10.2, 27.5, 8.1], [-10.5, 6.7, 15.6, 1.7, 6.7]])
    scale = (16 / 3) / np.array([0.3, 3.0])
    problems = Problems(z, np.full(2, 200.0), scale, LinearRegression.s0(1), "laplace")
    run = run_individual(problems, seed=1, chains=4, draws=500, warmup=300)
    collapsed = run_method("collapsed", problems, seed=1, chains=4, draws=1000)
    for t in range(2):
        (mean, error), (variance, spread) = _moments(run.draws[t], run.names)
        (other, error_b), (other_variance, spread_b) = _moments(collapsed.draws[t], run.names)
        sd = np.sqrt(other_variance)
        assert (np.abs(mean - other) / sd < 0.05 + 3 * np.hypot(error, error_b) / sd).all()
        of_sd = np.hypot(spread, spread_b) / (2 * other_variance)
        assert (np.abs(np.sqrt(variance) / sd - 1) < 0.05 + 3 * of_sd).all()


@pytest.mark.parametrize(
    "law, mean, covariance",
    [
        (dist.Normal(0.3, 0.5), [0.3], [[0.25]]),
        (dist.MultivariateNormal(np.array([1.0, 2.0]), COVARIANCE), [1, 2], COVARIANCE),
        (dist.Uniform(np.zeros(2), np.array([1.0, 2.0])).to_event(1), [0.5, 1], [[1 / 12, 0], [0, 1 / 3]]),
    ],
)  # fmt: skip
def test_records_follow_their_law(law, mean, covariance):
    n = 100_000
    rows = np.asarray(handlers.seed(records_model._rows, 0)("x", law, n, np.dtype(np.float32))).reshape(n, -1)
    error = np.sqrt(np.diag(covariance) / n)
    assert (np.abs(rows.mean(0) - mean) < 4 * error).all()
    assert (np.abs(np.atleast_2d(np.cov(rows.T)) - covariance) < 8 * np.outer(error, error) * np.sqrt(n)).all()


def _problems(n=20.0, p=1, **changes):
    model = changes.pop("model", LinearRegression.s0(p))
    d = model.statistic_dim
    return Problems(np.zeros((1, d)), np.array([n]), np.ones((1, d)), model, "laplace")


@pytest.mark.parametrize(
    "problems, settings, message",
    [
        (_problems(n=10_001.0), {}, r"at most 20,000 latent numbers n \(p \+ 1\); got 20,002"),
        (_problems(n=20.5), {}, "whole numbers of records"),
        (_problems(), {"chains": 0}, "chains must be a whole number"),
        (_problems(), {"warmup": 5}, "warmup must be a whole number, at least 10"),
        (_problems(), {"target": 1.0}, "target must be an acceptance probability"),
        (_problems(), {"stream": True}, "stream"),
        (_problems(), {"covariates": 3}, "covariates must be None, a NumPyro distribution"),
        (_problems(), {"covariates": dist.Normal}, "covariates must be None, a NumPyro distribution"),
        (_problems(), {"covariates": lambda: 3.0}, "what the covariates callable returns must be a NumPyro"),
        (_problems(), {"covariates": dist.Poisson(1.0)}, "must be continuous"),
        (_problems(p=2), {"covariates": dist.Normal(0.0, 1.0)}, r"event shape \(2,\); got batch shape \(\)"),
        (_problems(p=2), {"covariates": dist.Normal(np.zeros(2), 1.0)}, r"got batch shape \(2,\)"),
        (_problems(p=2), {"covariates": [dist.Normal(0.0, 1.0)]}, "a list must hold 2 distributions"),
        (_problems(p=1), {"covariates": [3]}, "entry 1 must be a NumPyro distribution; got 3"),
    ],
)
def test_refused(problems, settings, message):
    with pytest.raises(InputError, match=message) as error:
        run_individual(problems, seed=1, **settings)
    assert "\n" not in str(error.value)


def test_refuses_discrete_hyperparameters_and_other_models():
    def laws():
        return dist.Normal(numpyro.sample("k", dist.Bernoulli(0.5)).astype(np.float32), 1.0)

    with pytest.raises(InputError, match="hyperparameter 'k' must be continuous"):
        run_individual(_problems(), seed=1, covariates=laws)
    prior = PRIORS["beta"].create(alpha=2.0, beta=3.0)
    model = family_model(family_named("binomial"), prior, 0.0, 1.0, "none")
    with pytest.raises(InputError, match=r"for linear-regression, without law.*got binomial"):
        run_individual(_problems(model=model), seed=1)


def test_chains_without_a_density_start_again_and_are_given_up_in_the_end():
    seen = []

    def start(keys, inputs):
        seen.append(np.asarray(random.key_data(keys)))
        return SimpleNamespace(potential_energy=jnp.array([1.0, np.nan if len(seen) < 3 else 2.0, np.inf]))

    _, lost = individual_programs.find_start(start, random.split(random.key(0), 3), None)
    assert lost.tolist() == [False, False, True] and len(seen) == individual_programs.STARTS
    assert all((x[0] == seen[0][0]).all() for x in seen)  # what the others do changes nothing for a good chain
    assert len({tuple(x[1]) for x in seen[:3]}) == 3 and (seen[3][1] == seen[2][1]).all()
