"""Samplers of exponential families against posteriors on a dense grid (tests/oracles/quadrature.py)."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import quadrature

from dpjax.engine.problems import Problems
from dpjax.errors import InputError
from dpjax.families import family_named
from dpjax.inference.methods import METHODS, default_method
from dpjax.inference.modes import describe_modes, find_modes
from dpjax.inference.run_method import run_method
from dpjax.models import Multinomial, Observed
from dpjax.models import family_model as family_model_of
from dpjax.models.priors import PRIORS, DirichletPrior

MIDDLE = (-np.log(0.975), -np.log(0.025))
CELLS = list(itertools.product((10, 1000, 100_000), (0.01, 0.1, 1.0, 10.0)))
# kind, prior, bounds, rule, released mean per record
FAMILIES = {
    "binomial": ({"alpha": 2.0, "beta": 3.0}, (0, 1), "none", 0.4),
    "exponential": ({"shape": 10.0, "rate": 10.0}, MIDDLE, "clamp", 0.9),
    "poisson": ({"shape": 20.0, "rate": 4.0}, (2, 8), "clamp", 5.0),
    "geometric": ({"alpha": 10.0, "beta": 10.0}, (0, 4), "clamp", 0.9),
}
CHAINS = 24


def family_model(kind, prior, bounds, rule, **options):
    family = family_named(kind, **options)
    return family_model_of(family, PRIORS[family.prior].create(**prior), *bounds, rule)


def sensitivity(bounds, rule):
    low, high = bounds
    return high - low if rule != "redact" else max(abs(low), abs(high), high - low)


def problems_of(kind, cells=CELLS):
    """One problem per cell (n, epsilon), z near what the prior expects, and the oracle's mean and sd of each."""
    prior, bounds, rule, average = FAMILIES[kind]
    n = np.array([float(n) for n, _ in cells])
    scale = np.array([sensitivity(bounds, rule) / epsilon for _, epsilon in cells])
    z = np.round(n * average)
    problems = Problems(z[:, None], n, scale[:, None], family_model(kind, prior, bounds, rule), "laplace")
    truth = [quadrature.posterior(kind, *x, prior, *bounds, rule)[:2] for x in zip(z, n, scale, strict=True)]
    return problems, np.array(truth)


def deviations(draws, truth):
    """Standardised deviations of posterior mean and variance from the oracle's, by the spread of chains."""
    draws = np.asarray(draws[..., 0], np.float64)
    mean, sd = truth.T[..., None]
    off = [draws.mean(2) - mean, ((draws - mean[..., None]) ** 2).mean(2) - sd**2]
    floor = [1e-5 * sd, 1e-4 * sd**2]
    error = lambda x: x.std(1, ddof=1) / np.sqrt(x.shape[1])
    return [x.mean(1) / (error(x) + f[:, 0]) for x, f in zip(off, floor, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAMILIES)
def test_collapsed_and_gibbs_agree_with_quadrature_of_the_same_model(kind):
    # gibbs mixes slowly at 1,000 records with much noise: more chains there
    slow = [CELLS.index((1000, 0.01))] * 4
    problems, truth = problems_of(kind)
    for method, index, settings in (
        ("collapsed", range(len(CELLS)), {}),
        ("gibbs", [*range(len(CELLS)), *slow], {"burn_in": 1000}),
    ):
        run = run_method(method, problems.take(index), seed=13, chains=24, draws=250, settings=settings)
        ess, draws = run.diagnostics.min_ess, run.draws
        if method == "gibbs":
            ess[slow[0]] += ess[len(CELLS) :].sum()
        assert ess[: len(CELLS)].min() > 2000, (method, ess)
        mean, sd = deviations(draws[: len(CELLS)], truth)
        assert np.abs(mean).max() < 4 and np.abs(sd).max() < 4, (method, mean.round(1), sd.round(1))
        if method == "gibbs":
            pooled = draws[[slow[0], *range(len(CELLS), len(draws))]].reshape(1, -1, *draws.shape[2:])
            assert max(np.abs(deviations(pooled, truth[slow[:1]])).max(axis=0)) < 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("gibbs-literal", {}),  # line 10 as printed
        ("gibbs", {"metropolis": False, "independent": True}),  # regions as if independent
    ],
)
def test_the_planted_bugs_fail_the_same_test_at_epsilon_one(method, settings):
    problems, truth = problems_of("exponential", [(10, 1.0), (1000, 1.0)])
    run = run_method(method, problems, seed=11, chains=2 * CHAINS, draws=250, settings=settings)
    mean, sd = deviations(run.draws, truth)
    assert max(np.abs(mean).max(), np.abs(sd).max()) > 6, (mean, sd)


@pytest.mark.slow
def test_quadrature_draws_from_the_same_model():
    """Poisson and geometric sums of 10 records have the exact law instead: see below."""
    for kind in ("exponential", "poisson"):
        problems, truth = problems_of(kind)
        mean, sd = deviations(run_method("exact", problems, seed=3, chains=24, draws=500).draws, truth)
        assert np.abs(mean).max() < 4 and np.abs(sd).max() < 4, (kind, mean.round(1), sd.round(1))


@pytest.mark.slow
def test_two_modes_of_a_redacted_sum_are_found():
    """At 1,000 records and epsilon = 1, few records inside mean a small rate or a large one
    (docs/formulas.md#two-modes)."""
    model = family_model("exponential", {"shape": 2.0, "rate": 2.0}, MIDDLE, "redact")
    scale = sensitivity(MIDDLE, "redact")
    problems = Problems(np.array([[500.0], [870.0]]), np.full(2, 1000.0), np.full((2, 1), scale), model, "laplace")
    two, other = find_modes(problems)
    _, _, theta, weight = quadrature.posterior(
        "exponential", 500.0, 1000, scale, {"shape": 2.0, "rate": 2.0}, *MIDDLE, "redact"
    )
    assert len(two) == 2 and "2 modes" in describe_modes(two, "rate")
    small, large = sorted(two, key=lambda m: m.parameter)
    between = (small.parameter + large.parameter) / 2
    np.testing.assert_allclose(small.mass, weight[theta < between].sum(), atol=2e-3)
    # chains of the default sampler start on both sides, so that they disagree instead of missing one mode
    run = run_method("collapsed", problems.take([0]), seed=1, chains=4, draws=500, rerun=False)
    assert run.diagnostics.max_rhat[0] > 1.05
    assert len(other) >= 1


@pytest.mark.slow
def test_exact_binomial_is_the_enumerated_law():
    """A fixed release (docs/formulas.md#exact-binomial): Beta(10, 10), z = 600 of 1,000, epsilon = .1."""
    model = family_model("binomial", {"alpha": 2.0, "beta": 3.0}, (0, 1), "none")
    problems = Problems(np.array([[37.25], [-5.5]]), np.array([100.0, 10.0]), np.full((2, 1), 10.0), model, "laplace")
    truth = np.array([[0.372332971663, 0.112537252209], [0.361675419730, 0.192872634967]])
    mean, sd = deviations(run_method("exact", problems, seed=2, chains=24, draws=500).draws, truth)
    assert np.abs(mean).max() < 4 and np.abs(sd).max() < 4
    model = family_model("binomial", {"alpha": 10.0, "beta": 10.0}, (0, 1), "none")
    problems = Problems(np.array([[600.0]]), np.array([1000.0]), np.array([[10.0]]), model, "laplace")
    mean, sd = deviations(
        run_method("exact", problems, seed=2, chains=24, draws=500).draws, np.array([[0.59664, 0.02057]])
    )
    assert np.abs(mean).max() < 4 and np.abs(sd).max() < 4


@pytest.mark.slow
def test_exact_law_of_few_counts():
    """10 Poisson records: the posterior by convolution, which the normal law misses by far more than the tolerance."""
    prior, bounds, rule = {"shape": 1.0, "rate": 0.2}, (1, 10), "clamp"
    scale, z = sensitivity(bounds, rule) / 10.0, 3.0
    model = family_model("poisson", prior, bounds, rule)
    problems = Problems(np.array([[z]]), np.array([10.0]), np.array([[scale]]), model, "discrete-laplace")
    law = quadrature.exact_count_law("poisson", z, 10, scale, *bounds, rule)
    exact = np.array([quadrature.posterior("poisson", z, 10, scale, prior, *bounds, rule, law=law, points=4001)[:2]])
    normal = np.array([quadrature.posterior("poisson", z, 10, scale, prior, *bounds, rule)[:2]])
    run = run_method("exact", problems, seed=4, chains=24, draws=1000)
    assert max(np.abs(deviations(run.draws, exact)).max(axis=0)) < 4
    assert max(np.abs(deviations(run.draws, normal)).max(axis=0)) > 20


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "theta"), [("poisson", [0.5, 3.0, 9.0]), ("geometric", [0.2, 0.5, 0.9])])
@pytest.mark.parametrize("rule", ["clamp", "redact"])
def test_the_law_of_few_counts_is_the_convolution(kind, theta, rule):
    prior = {"shape": 1.0, "rate": 0.2} if kind == "poisson" else {"alpha": 1.0, "beta": 1.0}
    low, high, n, z, scale = 1.0, 6.0, 7.0, 11.3, 1.5
    with jax.enable_x64(True):
        model = family_model(kind, prior, (low, high), rule).astype(jnp.float64)
        one = jnp.ones(1)
        observed = Observed(one * z / scale, one * n / scale, one * np.sqrt(n) / scale, jnp.asarray(n))
        length = int(model.lattice_lengths(np.array([n]))[0])
        assert length == 128
        phi = np.log(theta) if kind == "poisson" else np.log(theta) - np.log1p(-np.array(theta))
        ours = [float(model.lattice_log_likelihood(jnp.asarray([x]), observed, length, True)) for x in phi]
    law = quadrature.exact_count_law(kind, z, int(n), scale, low, high, rule)(np.array(theta))
    np.testing.assert_allclose(ours, law, rtol=1e-9)


@pytest.mark.slow
def test_multinomial_release_of_two_counts_of_three():
    prior = DirichletPrior.create(concentration=[5.0] * 3)
    problems = Problems(
        np.array([[400.0, 250.0]]), np.array([1000.0]), np.full((1, 2), 10.0), Multinomial(prior, (0, 1)), "laplace"
    )
    for method in ("collapsed", "gibbs"):
        draws = run_method(method, problems, seed=1, chains=24, draws=1000).draws[0].astype(np.float64)
        mean, sd = draws.mean(1), draws.std(1)
        for values, truth in ((mean, [0.39873, 0.25209]), (sd, [0.02060, 0.01928])):
            error = values.std(0, ddof=1)[:2] / np.sqrt(24)
            assert (np.abs(values.mean(0)[:2] - truth) < 4 * error + 1e-5).all(), (method, values.mean(0), truth)
        np.testing.assert_allclose(draws.sum(-1), 1, atol=1e-5)


@pytest.mark.slow
def test_every_count_released_or_all_but_any_one():
    """All K counts (singular covariance) and K - 1 of them in any order give posteriors that fit together."""
    prior = DirichletPrior.create(concentration=[5.0] * 3)
    counts = np.array([400.0, 250.0, 350.0])
    means = []
    for released in ((2, 0, 1), (1, 2)):
        model = Multinomial(prior, released)
        size = len(released)
        problems = Problems(
            counts[list(released)][None], np.array([1000.0]), np.full((1, size), 1e-3), model, "laplace",
            counts[list(released)][None],
        )  # fmt: skip
        for method in ("gibbs", "non-private"):
            settings = {"burn_in": 200} if method == "gibbs" else None
            run = run_method(method, problems, seed=1, chains=24, draws=200, thin=1, settings=settings)
            means.append(run.draws[0].mean((0, 1)))
    # next to no noise: Dirichlet(5 + counts)
    np.testing.assert_allclose(np.array(means), np.tile((counts + 5) / 1015, (len(means), 1)), atol=1.5e-3)


def test_methods_say_what_they_are_not_for():
    problems, _ = problems_of("binomial", [(10, 1.0)])
    with pytest.raises(InputError, match=r"gibbs-literal.*clamped or redacted"):
        METHODS["gibbs-literal"].check(problems)
    for method in ("ops", "non-private", "naive-untruncated"):
        with pytest.raises(InputError, match="exact statistics"):
            METHODS[method].check(problems)
    many = Problems(
        np.zeros((1, 2)), np.array([9.0]), np.ones((1, 2)),
        Multinomial(DirichletPrior.create(concentration=[1.0] * 3), (0, 1)), "laplace",
    )  # fmt: skip
    with pytest.raises(InputError, match=r"exact.*one parameter"):
        METHODS["exact"].check(many)
    exponential, _ = problems_of("exponential", [(10, 1.0)])
    with pytest.raises(InputError, match=r"ops.*binomial"):
        METHODS["ops"].check(dataclasses.replace(exponential, exact=exponential.z))
    assert default_method(problems.model) == "exact" and default_method(many.model) == "collapsed"


@pytest.mark.slow
def test_one_posterior_sampling_is_the_tempered_truncated_beta():
    """docs/formulas.md#one-posterior-sampling: the law of a draw, by its distribution function at some points."""
    from scipy import stats

    model = family_model("binomial", {"alpha": 10.0, "beta": 10.0}, (0, 1), "none")
    n, s, epsilon = 1000.0, 700.0, 5.0
    problems = Problems(np.array([[s]]), np.array([n]), np.array([[1 / epsilon]]), model, "laplace", np.array([[s]]))
    rho = epsilon / 100 / (2 * np.log(9))
    np.testing.assert_allclose(2.2755980666e-4, 0.001 / (2 * np.log(9)), rtol=1e-9)
    law = stats.beta(rho * 9 + 1 + rho * s, rho * 9 + 1 + rho * (n - s))
    draws = run_method("ops", problems, seed=1, chains=2, draws=20_000).draws.ravel()
    points = np.array([0.2, 0.4, 0.6, 0.7, 0.8])
    want = (law.cdf(points) - law.cdf(0.1)) / (law.cdf(0.9) - law.cdf(0.1))
    got = (draws[:, None] < points).mean(0)
    assert (np.abs(got - want) < 4.5 * np.sqrt(want * (1 - want) / draws.size)).all(), (got, want)
    assert draws.min() >= 0.1 - 1e-6 and draws.max() <= 0.9 + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("z", [(300.0, 90.000001), (300.0, 80.0)])
def test_gibbs_refuses_what_it_cannot_compute(z):
    """A clamped normal with next to no noise and no spread: chains that stand still say so; they ended with numbers
    that are not finite."""
    prior = {"mean": 0.0, "kappa": 1.0, "shape": 3.0, "scale": 0.4}
    model = family_model("normal", prior, (-1.0, 1.0), "clamp")
    problems = Problems(np.array([z]), np.array([1000.0]), np.full((1, 2), 1e-3), model, "laplace")
    run = run_method("gibbs", problems, seed=1, chains=4, draws=20, settings={"burn_in": 100})
    assert run.settings["method"]["float64"] and np.isfinite(run.draws).all()
    assert run.diagnostics.unreliable().all()


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_streams_of_independent_draws_take_as_many_steps(stream):
    """Twenty steps were made for every draw kept, although the draws of `exact` owe nothing to each other."""
    problems, truth = problems_of("exponential", [(1000, 1.0)])
    options = {"stream": True, "truth": truth[:, :1]} if stream else {}
    run = run_method("exact", problems, seed=1, chains=2, draws=500, **options)
    assert run.settings["thin"] == 1
    if stream:
        assert (
            run.draws_per_chain < 2 * 500 and abs(run.streamed.mean.mean() - truth[0, 0]) < 5 * truth[0, 1] / 1000**0.5
        )
