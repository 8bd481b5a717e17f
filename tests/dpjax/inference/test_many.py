"""`fit_many`: many releases in one call, each as if fitted alone."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import dpjax
import dpjax.inference.many
import dpjax.inference.posteriors
from dpjax.errors import ConvergenceWarning, InputError
from dpjax.inference.posterior import Posterior
from dpjax.inference.prediction_at import PredictionAt
from dpjax.statistics.kinds import make_statistic

BOUNDS = ({"x": (0, 10), "y": (0, 1)}, {"x": (-5, 5), "y": (100, 300)}, {"x": (0, 1), "y": (0, 1)})
RECORDS, EPSILON = (50, 400, 2000), (0.5, 1.0, 4.0)
OTHER = {"theta_mean": [0.3, -0.4], "theta_precision": [[0.5, 0], [0, 0.5]], "sigma2_shape": 5, "sigma2_scale": 0.4}


def _release(i, *, features=("x",), kind="laplace", scale=None, **changes):
    """A release whose noise is left out: sums of records on a line, in scaled units."""
    n, bounds = RECORDS[i], {**BOUNDS[i], **{name: (0, 1) for name in features if name != "x"}}
    rng = np.random.default_rng(i)
    x = rng.uniform(-1, 1, (n, len(features)))
    y = 0.1 + 0.5 * x[:, 0] + 0.3 * rng.standard_normal(n)
    statistic = make_statistic("linear-regression", target="y", features=list(features), bounds=bounds)
    fields = {
        "statistic": statistic, "records": n, "mechanism": kind,
        "statistics": dict(zip(statistic.names, statistic.from_records(x, y).tolist(), strict=True)),
        "noise_scale": 16 / 3 / EPSILON[i] if scale is None else scale,
        "privacy": dpjax.Privacy(EPSILON[i], 0.0, "replace-one", "l1", 16 / 3) if kind == "laplace" else None,
        "simulated": True,
    }  # fmt: skip
    return dpjax.Release(**(fields | changes))


@pytest.fixture(scope="module")
def releases():
    return [_release(i) for i in range(3)]


@pytest.fixture(scope="module")
def many(releases):
    return dpjax.fit_many(releases, prior=[None, OTHER, None], chains=4, draws=1000, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("i", [0, 1, 2])
def test_each_release_as_if_fitted_alone(many, releases, i):
    """Records, bounds, noise and prior are its own: the same posterior as `fit` gives, up to Monte Carlo error."""
    alone = dpjax.fit(releases[i], prior=OTHER if i == 1 else {"kind": "conjugate"}, seed=11)
    one = many[i]
    # 5 joint Monte Carlo errors, of the mean and of the middle 80% (sds of heavy tails vary a lot), whose width has a
    # relative error of about sqrt(.18 / E) / (.175 x 2.56) with E effective draws, as of a normal law
    error = np.hypot(alone.diagnostics.mcse_mean[0], one.diagnostics.mcse_mean[0])
    relative = np.sqrt(0.9 / alone.diagnostics.capped_tail[0] + 0.9 / one.diagnostics.capped_tail[0])
    assert (np.abs(alone.user_draws.mean((0, 1)) - one.user_draws.mean((0, 1))) < 5 * error).all()
    width = lambda posterior: np.subtract(*np.quantile(posterior.user_draws, [0.9, 0.1], axis=(0, 1)))
    assert (np.abs(np.log(width(one) / width(alone))) < 5 * relative).all() and (relative < 0.08).all()
    assert one.prior == alone.prior and one.statistic == alone.statistic
    assert (one.records, one.epsilon, one.method) == (RECORDS[i], EPSILON[i], "collapsed")
    np.testing.assert_allclose(one.prior_sd_scaled, alone.prior_sd_scaled, rtol=0.1)
    assert many.converged.all() and not many.warnings() and not one.warnings()


@pytest.mark.slow
def test_priors_are_their_own(releases):
    """The same release under two priors in one call; the noise hides all, so that each gives back its prior."""
    hidden = _release(0, scale=1e5, privacy=None)
    two = dpjax.fit_many([hidden, hidden, hidden], prior=[None, OTHER, None], chains=4, draws=1000, seed=2)
    means = two.draws.mean((1, 2))[:2]
    error = two.draws[:2, ..., :2].std((1, 2)) / 1000**0.5
    assert (np.abs(means[:, :2] - [[0, 0], [0.3, -0.4]]) < 5 * error).all()
    assert two[0].prior["sigma2_shape"] == 3 and two[1].prior["sigma2_shape"] == 5


@pytest.mark.slow
def test_sequence(many):
    assert len(many) == 3 and [p.records for p in many] == list(RECORDS)
    assert many[-1].records == RECORDS[-1]
    np.testing.assert_array_equal(many[1].draws, many.draws[1])
    np.testing.assert_allclose(many[1].user_draws, many.user_draws[1])
    with pytest.raises(IndexError):
        many[3]
    for bad in (True, "0", 1.0, slice(2)):
        with pytest.raises(InputError, match="whole number"):
            many[bad]
    assert "3 releases" in repr(many)


@pytest.mark.slow
def test_summary_is_that_of_each(many):
    summary, one = many.summary(), many[1].summary()
    for name, row in one["parameters"].items():
        for key in ("mean", "sd", "q05", "q95", "rhat", "ess_bulk", "ess_tail"):
            assert summary["parameters"][name][key][1] == pytest.approx(row[key], rel=1e-6)
        assert summary["scaled"][name]["mean"][1] == pytest.approx(one["scaled"][name]["mean"], rel=1e-5)
    assert summary["records"] == list(RECORDS) and summary["epsilon"] == list(EPSILON)
    assert summary["converged"] == [True] * 3 and summary["seconds"] > 0


@pytest.mark.slow
def test_prediction_in_the_users_units(many):
    at = many.predict_at(2.0, seed=1)
    theta = many.user_draws.reshape(3, -1, 5)
    np.testing.assert_allclose(at.line, theta[..., 0] + 2.0 * theta[..., 1])
    np.testing.assert_allclose(at.mean, at.line.mean(1))
    np.testing.assert_allclose(at.sd**2, theta[..., 2])
    assert 100 < at.mean[1] < 300  # the second release's own units
    y, line = at.interval(0.9), at.interval(0.9, of="line")
    assert y.shape == (3, 2) and (y[:, 0] < line[:, 0]).all() and (line[:, 1] < y[:, 1]).all()
    # an interval holds its level; the residual is drawn in one and integrated out in the other: sd of 4,000 draws .005
    np.testing.assert_allclose(at.cdf(y[:, 1]) - at.cdf(y[:, 0]), 0.9, atol=0.025)
    np.testing.assert_allclose(at.cdf(line[:, 1], of="line") - at.cdf(line[:, 0], of="line"), 0.9, atol=2e-3)
    by_name = many.predict_at({"x": 2.0}, seed=1)
    np.testing.assert_array_equal(by_name.y, at.y)
    assert (many.predict_at(2.0, seed=2).y != at.y).any()


def test_prediction_of_known_draws():
    """One draw of the parameters: the predictive law is normal."""
    at = PredictionAt(np.array([1.0]), np.full((1, 40_000), 3.0), np.full((1, 40_000), 2.0))
    np.testing.assert_allclose(at.interval(0.5)[0], 3 + 2 * stats.norm.ppf([0.25, 0.75]), atol=0.06)
    assert at.cdf(5.0)[0] == pytest.approx(stats.norm.cdf(1.0))
    assert at.cdf(3.0, of="line")[0] == 0.5


@pytest.mark.parametrize("intercept", [True, False])
def test_prediction_with_and_without_an_intercept(intercept):
    """Fixed parameters, so that the law is known: the line at (.5, .5) is .15 (and 2 more with an intercept)."""
    statistic = make_statistic(
        "linear-regression", target="y", features=["x", "w"], bounds={"x": (-1, 1), "w": (-1, 1), "y": (-1, 1)},
        intercept=intercept,
    )  # fmt: skip
    given = {"theta[0]": 2.0, "theta[1]": 0.7, "theta[2]": -0.4, "sigma2": 0.01}
    draws = np.tile([given.get(name, 0.5) for name in statistic.parameter_names], (2, 2, 2000, 1))
    one = dpjax.Release(statistic, 50, dict.fromkeys(statistic.names, 1.0), "laplace", 1.0, simulated=True)
    fitted = object.__new__(dpjax.inference.posteriors.Posteriors)  # a result of these draws, without a run behind it
    vars(fitted).update(
        releases=(one, one), method="collapsed", names=statistic.parameter_names, run=SimpleNamespace(draws=draws)
    )
    mean = 0.15 + 2.0 * intercept
    at = fitted.predict_at((0.5, 0.5))
    np.testing.assert_allclose(at.mean, [mean, mean])
    np.testing.assert_allclose(at.predictive_sd, 0.1)
    np.testing.assert_allclose(at.y.std(axis=1), 0.1, rtol=4 / np.sqrt(2 * 4000))
    # one posterior says the same, in numbers, by either way of asking
    alone = Posterior(
        draws=draws[0], names=statistic.parameter_names, statistic=statistic, records=50, epsilon=1.0, delta=0.0,
        mechanism="laplace", adjacency="replace-one", method="collapsed", seconds=0.0, codes=np.zeros(2, int), prior={},
    )  # fmt: skip
    with pytest.warns(ConvergenceWarning, match="had not converged"):  # constant draws
        point = alone.predict_at({"w": 0.5, "x": 0.5})
    with pytest.warns(ConvergenceWarning):
        row = alone.predict({"x": 0.5, "w": 0.5})
    assert point.mean == pytest.approx(mean) and row.mean == pytest.approx([mean])
    assert point.predictive_sd == pytest.approx(0.1) and row.sd == pytest.approx([0.1])
    assert point.cdf(mean + 0.1) == pytest.approx(stats.norm.cdf(1.0)) and point.interval(0.9).shape == (2,)
    with pytest.raises(InputError, match=r"value must be a number$"):
        point.cdf("a")


@pytest.mark.parametrize("intercept", [True, False])
def test_a_prediction_of_many_is_that_of_each(intercept):
    """In the user's units, where every release has bounds of its own."""
    rng = np.random.default_rng(4)
    bounds = ({"x": (-2, 4), "w": (0, 10), "y": (-30, 20)}, {"x": (1, 3), "w": (-7, 7), "y": (100, 300)})
    kind, columns = "linear-regression", {"target": "y", "features": ["x", "w"], "intercept": intercept}
    statistics = [make_statistic(kind, **columns, bounds=of) for of in bounds]
    names = statistics[0].parameter_names
    draws = rng.normal(size=(2, 2, 500, len(names)))
    draws[..., names.index("sigma2")] = rng.gamma(4.0, 0.05, size=draws.shape[:3])
    fitted = object.__new__(dpjax.inference.posteriors.Posteriors)  # a result of these draws, without a run behind it
    vars(fitted).update(
        releases=[
            dpjax.Release(one, 50, dict.fromkeys(one.names, 1.0), "laplace", 1.0, simulated=True) for one in statistics
        ],
        method="collapsed", names=names, run=SimpleNamespace(draws=draws),
    )  # fmt: skip
    at = fitted.predict_at({"x": 1.5, "w": 2.0})
    for i, statistic in enumerate(statistics):
        alone = Posterior(
            draws=draws[i], names=names, statistic=statistic, records=50, epsilon=1.0, delta=0.0, mechanism="laplace",
            adjacency="replace-one", method="collapsed", seconds=0.0, codes=np.zeros(2, int), prior={},
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            row, point = alone.predict({"x": 1.5, "w": 2.0}), alone.predict_at((1.5, 2.0))
        by_name = {name: alone.user_draws[..., k] for k, name in enumerate(names)}
        line = by_name["theta[1]"] * 1.5 + by_name["theta[2]"] * 2.0
        line = line + by_name["theta[0]"] if intercept else line
        for mean, sd in (
            (row.mean[0], row.sd[0]),
            (point.mean, point.predictive_sd),
            (at.mean[i], at.predictive_sd[i]),
        ):
            assert mean == pytest.approx(line.mean(), rel=1e-12)
            assert sd == pytest.approx(np.sqrt(line.var() + by_name["sigma2"].mean()), rel=1e-12)
        ends = [point.interval(0.9, of="line"), at.interval(0.9, of="line")[i]]
        np.testing.assert_allclose(ends, [np.quantile(line, [0.05, 0.95])] * 2, rtol=1e-12)


@pytest.mark.slow
def test_several_features_and_gaussian_noise():
    two = [_release(i, features=("x", "w"), kind="gaussian", scale=2.0) for i in (1, 2)]
    fitted = dpjax.fit_many(two, method="naive", draws=200)
    at = fitted.predict_at([1.0, 0.5])
    theta = fitted.user_draws[1].reshape(-1, 9)
    np.testing.assert_allclose(at.line[1], theta[:, 0] + theta[:, 1] + 0.5 * theta[:, 2])
    swapped = fitted.predict_at({"w": 0.5, "x": 1.0})
    np.testing.assert_array_equal(swapped.line, at.line)
    for bad in (1.0, [1.0], [1.0, 2.0, 3.0], ["a", "b"], [1.0, np.nan], {"x": 1.0}, {"x": 1, "v": 2}, [[1.0, 2.0]]):
        with pytest.raises(InputError, match="x must"):
            fitted.predict_at(bad)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, method, statistics, arguments",
    [
        ("binomial", None, ["successes"], {}),  # "exact"
        ("poisson", "naive", ["x"], {"bounds": (0, 9)}),
        ("multinomial", "naive", ["count[0]", "count[1]"], {"categories": 3, "released": [0, 1]}),
    ],
)
def test_families(kind, method, statistics, arguments):
    statistic = make_statistic(kind, **arguments)
    sizes = (100, 1000)
    found = [
        dpjax.Release(statistic, n, dict.fromkeys(statistics, 0.3 * n), "laplace", 5.0, simulated=True) for n in sizes
    ]
    many = dpjax.fit_many(found, method=method, draws=300)
    alone = dpjax.fit(found[1], method=method, draws=300, chains=2, seed=4)
    error = np.hypot(alone.diagnostics.mcse_mean[0], many[1].diagnostics.mcse_mean[0])
    assert (np.abs(many[1].user_draws.mean((0, 1)) - alone.user_draws.mean((0, 1))) < 5 * error).all()
    assert many[1].notes == alone.notes and many.method == alone.method
    with pytest.raises(InputError, match=kind):
        many.predict_at(1.0)


@pytest.mark.slow
def test_paths_and_exact_statistics(releases, tmp_path):
    path = tmp_path / "one.json"
    releases[0].save(path)
    exact = np.stack([release.z for release in releases[:2]])
    fitted = dpjax.fit_many([path, releases[1]], method="non-private", exact=exact, draws=500)
    alone = dpjax.fit(releases[1], method="non-private", exact=exact[1], draws=500)
    np.testing.assert_allclose(fitted.draws.mean((1, 2))[1], alone.draws.mean((0, 1)), atol=0.01)
    for bad in (exact[:1], exact[:, :3], np.full_like(exact, np.nan)):
        with pytest.raises(InputError, match="exact must"):
            dpjax.fit_many(releases[:2], method="non-private", exact=bad)


@pytest.mark.slow
def test_releases_that_did_not_converge_are_named(releases):
    # one short chain of the papers' sampler at large noise, beside two releases that need no more
    loud = _release(1, scale=500.0, privacy=None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = dpjax.fit_many([releases[2], loud, releases[2]], method="gibbs", draws=200, thin=1, seed=1)
    (warning,) = [w for w in caught if issubclass(w.category, ConvergenceWarning)]
    assert not fitted.converged[1] and str(warning.message).startswith("release") and "1" in str(warning.message)
    assert fitted.summary()["warnings"] == fitted.warnings() == [str(warning.message)]
    assert [bool(posterior.warnings()) for posterior in fitted] == (~fitted.converged).tolist()


def test_a_failed_chain_is_named(many):
    run = many.run
    codes = run.codes.copy()
    codes[2, 0] = 1
    broken = dpjax.inference.posteriors.Posteriors(
        releases=many.releases, method=many.method, names=many.names, problems=many.problems, models=many.models,
        run=type(run)(**{**vars(run), "codes": codes}),
    )  # fmt: skip
    assert broken.converged.tolist() == [True, True, False]
    assert broken.warnings()[0].startswith("release 2 of 3") and "must not be used" in broken.warnings()[0]


@pytest.mark.parametrize(
    "change, match",
    [
        (lambda r: None, "releases must be a list"),
        (lambda r: r[0], "releases must be a list"),
        (lambda r: "release.json", "releases must be a list"),
        (lambda r: [], "at least one"),
        (lambda r: [r[0], 5], r"releases\[1\] must be a Release"),
        (lambda r: [r[0], "nowhere.json"], r"releases\[1\]: release file"),
        (lambda r: [r[0], r[1], _release(2, features=("x", "w"))], r"releases\[2\] has number of statistics 9"),
        (lambda r: [r[0], _release(1, kind="gaussian", scale=1.0)], r"releases\[1\] has mechanism gaussian"),
        (
            lambda r: [r[0], dpjax.Release(make_statistic("binomial"), 9, {"successes": 3}, "laplace", 1.0)],
            r"releases\[1\] has model binomial",
        ),
    ],
)
def test_bad_releases_are_refused(releases, change, match):
    with pytest.raises(InputError, match=match):
        dpjax.fit_many(change(releases))


def test_bad_arguments_are_refused(releases, many):
    raw = _release(
        1, privacy=None,
        statistic=make_statistic("linear-regression", target="y", features=["x"], bounds=BOUNDS[1], scaling=None),
    )  # fmt: skip
    for kwargs, match in (
        ({"prior": [None]}, "prior must be one prior, or a list of 3"),
        ({"prior": [None, {"sigma2_shape": -1}, None]}, r"releases\[1\]: prior: sigma2_shape"),
        ({"prior": {"sigma_shape": 1}}, r"releases\[0\]: prior: unknown name"),
        ({"method": "magic"}, "method must be one of"),
        ({"method": "exact"}, "exact"),
        ({"method": "non-private"}, "exact statistics"),
        ({"seed": -1}, "seed"),
        ({"settings": {"nothing": 1}}, "nothing"),
        ({"chains": 0}, "chains"),
    ):
        with pytest.raises(InputError, match=match):
            dpjax.fit_many(releases, **kwargs)
    with pytest.raises(InputError, match=r"releases\[1\]: prior is missing: the release is in raw units"):
        dpjax.fit_many([releases[0], raw], method="gibbs")
    for level in (0, 1, 1.5, "a", True, None):
        with pytest.raises(InputError, match="level"):
            many.predict_at(1.0).interval(level)
    with pytest.raises(InputError, match="of must be"):
        many.predict_at(1.0).interval(0.5, of="mean")
    with pytest.raises(InputError, match="seed"):
        many.predict_at(1.0, seed=-1)


def test_redacting_models_of_another_form_are_refused():
    """A counted family with few counts is summed one by one, one with many by its normal law: two programs."""
    few = make_statistic("poisson", bounds=(0, 9))
    more = make_statistic("poisson", bounds=(0, 12))
    found = [dpjax.Release(s, 50, {"x": 100.0}, "laplace", 5.0, simulated=True) for s in (few, more)]
    with pytest.raises(InputError, match=r"releases\[1\] has another form"):
        dpjax.fit_many(found)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dpjax.errors.ConvergenceWarning")  # few draws
def test_releases_with_moments():
    """Each posterior is of the problem as the method saw it: plug-in has no parameters of the covariates."""
    statistic = make_statistic(
        "linear-regression", target="y", features=["x"], bounds=BOUNDS[2], scaling=None, moments=True
    )
    rng = np.random.default_rng(5)
    found = []
    for n in (100, 300):
        x = rng.uniform(size=n)
        sums = statistic.from_columns({"x": x, "y": 0.2 + 0.5 * x + 0.1 * rng.standard_normal(n)})
        values = dict(zip(statistic.names, sums.tolist(), strict=True))
        found.append(dpjax.Release(statistic, n, values, "laplace", 2.0, simulated=True))
    prior = {"sigma2_scale": 0.1, "covariates": {"mean": [0.5]}}
    usual, cut = (dpjax.fit_many(found, method=m, prior=prior, draws=100) for m in ("naive", "plug-in"))
    assert usual.names[-1] == "tau2[1,1]" and cut.names == ("theta[0]", "theta[1]", "sigma2")
    for fitted in (usual, cut):
        one = fitted[1]
        assert one.draws.shape[2] == one.prior_draws.shape[1] == len(fitted.names)
        assert abs(fitted.predict_at(0.5).mean - 0.45).max() < 0.1
