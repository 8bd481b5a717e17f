"""Computed posteriors where they are hard to find: conflicts, second modes, edges (reference: oracles/adaptive.py)."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from oracles import adaptive

import dpjax
from dpjax.engine.problems import Problems
from dpjax.engine.result_codes import NOT_RESOLVED
from dpjax.families import family_named
from dpjax.inference.methods import METHODS
from dpjax.inference.run_method import run_method
from dpjax.models import family_model
from dpjax.models.priors import PRIORS
from dpjax.samplers import _panels
from dpjax.statistics.kinds import make_statistic

MIDDLE = (0.0253178, 3.6888795)
BETA = lambda a, b: {"alpha": float(a), "beta": float(b)}
GAMMA = lambda a, b: {"shape": float(a), "rate": float(b)}
RATE_TWO = float(1e6 * adaptive.moments("exponential", np.array([2.0]), *MIDDLE, "clamp")[0][0])

#: kind, z, n, scale, prior, bounds, rule, options and, where it was published, mean and sd.
BINOMIAL = [
    (50, 50, 0.25, BETA(1, 1), 1 - 0.01959, 0.01922),
    (127, 127, 1.0, BETA(1, 1), 1 - 0.01226, None),
    (126, 126, 1.0, BETA(1, 1), None, None),
    (9000, 10_000, 1.0, BETA(5000, 5000), 0.67466, 0.003936),
    (1, 10_000, 1.0, BETA(5000, 5000), None, None),
    (9e11, 1e12, 500.0, BETA(5e9, 5e9), None, None),  # 43 million counts matter
    (-3, 2000, 2.0, BETA(0.01, 0.01), None, None),  # peaks at no and at all successes
    (1990.5, 2000, 1e4, BETA(0.5, 0.5), None, None),
]
OTHERS = [
    # two modes, of 63 and 37%
    ("exponential", 900_000, 1e6, MIDDLE[1], GAMMA(1, 1), MIDDLE, "redact", {}, 0.6908, 0.3588),
    ("exponential", 9e8, 1e9, MIDDLE[1], GAMMA(10, 10), MIDDLE, "redact", {}, None, None),
    ("exponential", 3, 1000, 0.037, GAMMA(10, 10), MIDDLE, "redact", {}, 0.00682, 0.0022),
    ("exponential", 900, 1000, MIDDLE[1], GAMMA(10, 10), MIDDLE, "redact", {}, None, 0.0546),
    # the prior holds the posterior 68 of its sds away, and the posterior is a fifth as wide
    ("exponential", RATE_TWO, 1e6, 3.66, GAMMA(10_000, 10_000), MIDDLE, "clamp", {}, 1.980, 0.0020),
    ("exponential", 9, 10, 3.66, GAMMA(1, 1), MIDDLE, "clamp", {}, None, None),  # a heavy tail
    ("exponential", 1e12 + 3e9, 1e12, 1e6, GAMMA(0.5, 0.5), (0, 1), "clamp", {}, None, None),
    ("gamma", 9000, 1000, 10.0, GAMMA(1, 1), (0, 10), "redact", {"shape": 100.0}, None, None),
    ("gamma", 9e6, 1e6, 10.0, GAMMA(1000, 100), (0, 10), "redact", {"shape": 100.0}, None, None),
]
#: Few whole numbers: the exact law of the sum, which the normal law misses by a twelfth of an sd in the first.
COUNTS = [
    (40, 20, 1.0, (2, 4), 0.393157, 0.309824),
    (70, 5, 1.0, (0, 12), 12.04517, 1.96925),
    (-30, 9, 0.5, (2, 12), None, None),
]


def problems_of(kind, z, n, scale, prior, bounds=(0, 1), rule="none", options=None, mechanism="laplace"):
    family = family_named(kind, **(options or {}))
    with jax.enable_x64(True):
        model = family_model(family, PRIORS[family.prior].create(np.float64, **prior), *bounds, rule)
        model = jax.tree.map(lambda x: np.asarray(x, np.float64), model)
    return Problems(np.array([[float(z)]]), np.array([float(n)]), np.array([[float(scale)]]), model, mechanism)


def tables_of(problems):
    return METHODS["exact"].check(problems).tables(problems)


def check(made, truth, published=(None, None), tolerance=1e-3):
    mean, sd = truth[:2]
    assert made.resolved[0]
    assert abs(made.mean[0] - mean) < tolerance * sd and abs(made.sd[0] / sd - 1) < tolerance, (
        made.mean,
        made.sd,
        truth,
    )
    for ours, number in zip((mean, sd), published, strict=True):  # the reference itself
        assert number is None or abs(ours - number) < 6e-4 * max(abs(number), sd) + 1e-5, (ours, number)


@pytest.mark.slow
@pytest.mark.parametrize(("z", "n", "scale", "prior", "mean", "sd"), BINOMIAL)
def test_binomial_counts_that_matter_are_those_of_the_posterior(z, n, scale, prior, mean, sd):
    check(tables_of(problems_of("binomial", z, n, scale, prior)), adaptive.binomial(z, n, scale, prior), (mean, sd))


@pytest.mark.slow
@pytest.mark.parametrize("case", OTHERS, ids=lambda c: f"{c[0]}-{c[6]}-{c[1]:g}")
def test_every_mode_is_found_and_resolved(case):
    kind, z, n, scale, prior, bounds, rule, options, mean, sd = case
    problems = problems_of(kind, z, n, scale, prior, bounds, rule, options)
    truth = adaptive.posterior(kind, z, n, scale, prior, *bounds, rule, **options)
    check(tables_of(problems), truth, (mean, sd))


@pytest.mark.slow
@pytest.mark.parametrize(("z", "n", "scale", "bounds", "mean", "sd"), COUNTS)
def test_few_whole_numbers_have_the_exact_law(z, n, scale, bounds, mean, sd):
    prior = GAMMA(1, 1)
    truth = adaptive.posterior("poisson", z, n, scale, prior, *bounds, "clamp", exact=True)
    check(tables_of(problems_of("poisson", z, n, scale, prior, bounds, "clamp")), truth, (mean, sd))


@pytest.mark.slow
def test_quantiles_and_draws_are_those_of_the_density():
    for case in (OTHERS[0], OTHERS[4]):
        kind, z, n, scale, prior, bounds, rule, _, _, _ = case
        truth = adaptive.posterior(kind, z, n, scale, prior, *bounds, rule)
        run = run_method("exact", problems_of(kind, z, n, scale, prior, bounds, rule), seed=3, chains=4, draws=2000)
        rows = run.computed.rows()
        for ours, wanted in zip((rows["q05"], rows["q95"]), truth[2:], strict=True):
            assert abs(ours[0, 0] - wanted) < 2e-3 * truth[1]
        draws = run.draws.ravel()
        assert abs(draws.mean() - truth[0]) < 4.5 * truth[1] / np.sqrt(draws.size)
        share = (draws < truth[2]).mean(), (draws < truth[3]).mean()
        assert np.abs(np.array(share) - (0.05, 0.95)).max() < 4.5 * np.sqrt(0.05 * 0.95 / draws.size)
    # of a probability: a mixture of beta distributions
    z, n, scale, prior = 9000, 10_000, 1.0, BETA(5000, 5000)
    rows = run_method("exact", problems_of("binomial", z, n, scale, prior), seed=3, chains=2, draws=20).computed.rows()
    mean, sd = adaptive.binomial(z, n, scale, prior)[:2]
    for key, sign in (("q05", -1), ("q95", 1)):  # next to a normal distribution
        assert abs(rows[key][0, 0] - (mean + sign * 1.6449 * sd)) < 0.02 * sd


@pytest.mark.slow
def test_a_fit_reports_the_density_and_not_its_draws():
    statistic = make_statistic("exponential", bounds=MIDDLE)
    release = dpjax.Release(statistic, 10, {"x": 9.0}, "laplace", MIDDLE[1], simulated=True)
    posterior = dpjax.fit(release, prior=GAMMA(1, 1), chains=2, draws=200, seed=1)
    mean, sd, low, high = adaptive.posterior("exponential", 9.0, 10, MIDDLE[1], GAMMA(1, 1), *MIDDLE, "clamp")
    row = posterior.summary()["parameters"]["rate"]
    for key, wanted in (("mean", mean), ("sd", sd), ("q05", low), ("q95", high)):
        assert abs(row[key] - wanted) < 2e-3 * sd, key
        assert row[key] == pytest.approx(posterior.summary()["scaled"]["rate"][key], rel=1e-12)
    assert row["sd"] != posterior.draws.std(ddof=1)
    many = dpjax.fit_many([release] * 3, prior=GAMMA(1, 1), draws=50)
    assert abs(many.summary()["parameters"]["rate"]["sd"][2] - sd) < 1e-3 * sd
    assert many[1].summary()["parameters"]["rate"]["q95"] == pytest.approx(row["q95"], rel=1e-9)


@pytest.mark.slow
def test_each_of_several_problems_has_the_law_of_its_own_number_of_records():
    few = problems_of("poisson", 40, 20, 1.0, GAMMA(1, 1), (2, 4), "clamp")
    many = problems_of("poisson", 250_000, 1e5, 1.0, GAMMA(1, 1), (2, 4), "clamp")
    both = Problems(np.concatenate([few.z, many.z]), np.array([20.0, 1e5]), np.ones((2, 1)), few.model, "laplace")
    together, alone = tables_of(both), tables_of(few)
    assert together.mean[0] == pytest.approx(alone.mean[0], rel=1e-9)
    assert together.mean[1] == pytest.approx(tables_of(many).mean[0], rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["clamp", "redact"])
def test_moments_of_counts_too_many_to_sum_one_by_one(rule):
    """Sums over Gauss-Legendre points and a few beyond the bounds, where the summand must go on smoothly."""
    rates = np.array([50.0, 150.0, 195.0, 212.0])
    with jax.enable_x64(True):
        model = family_model(family_named("poisson"), PRIORS["gamma"].create(np.float64, **GAMMA(1, 1)), 80, 200, rule)
        lanes = jax.tree.map(lambda x: np.broadcast_to(np.asarray(x, np.float64), rates.shape), model)
        mean, variance = (np.asarray(x).ravel() for x in lanes.moments_lanes(np.log(rates)[None]))
    truth = adaptive.moments("poisson", rates, 80.0, 200.0, rule)
    np.testing.assert_allclose(mean, truth[0], rtol=1e-10)
    np.testing.assert_allclose(variance, truth[1], rtol=1e-8)


@pytest.mark.slow
def test_more_nodes_change_nothing(monkeypatch):
    kind, z, n, scale, prior, bounds, rule, _, _, _ = OTHERS[0]
    problems = problems_of(kind, z, n, scale, prior, bounds, rule)
    made = tables_of(problems)
    monkeypatch.setattr(_panels, "_OWN_ERROR", 1e-12)
    monkeypatch.setattr(_panels, "_WHOLE_ERROR", 1e-13)
    finer = tables_of(problems)
    assert len(np.unique(finer.nodes)) > 1.5 * len(np.unique(made.nodes))
    assert abs(made.mean[0] - finer.mean[0]) < 1e-4 * finer.sd[0]
    assert abs(made.sd[0] / finer.sd[0] - 1) < 1e-4


@pytest.mark.slow
def test_what_cannot_be_resolved_is_marked(monkeypatch):
    kind, z, n, scale, prior, bounds, rule, _, _, _ = OTHERS[0]
    problems = problems_of(kind, z, n, scale, prior, bounds, rule)
    monkeypatch.setattr(_panels, "MOST_PANELS", 3)
    run = run_method("exact", problems, seed=1, chains=2, draws=20)
    assert (run.codes == NOT_RESOLVED).all()


@pytest.mark.slow
def test_a_small_sweep_has_no_silent_deviation():
    sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "benchmarks"))
    import sweep_families

    rng = np.random.default_rng(8)
    for cell in [c for c in sweep_families.cells() if c[0] in ("binomial", "exponential") and c[5] == "laplace"]:
        releases = [sweep_families.draw(cell, rng) for _ in range(14)]
        made = tables_of(sweep_families.problems_of(cell, releases))
        for k, release in enumerate(releases):
            mean, sd = sweep_families.reference(release)[:2]
            if made.resolved[k]:
                assert abs(made.mean[k] - mean) < 2e-3 * sd and abs(made.sd[k] / sd - 1) < 2e-3, release
        assert made.resolved.mean() > 0.9
