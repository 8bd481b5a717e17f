"""Methods that see a regression through another model or with other released sums, end to end."""

import dataclasses

import numpy as np
import pytest

import dpjax
from dpjax.calibration.scales import noise_scales
from dpjax.calibration.study import calibrate_study
from dpjax.calibration.study_design import study_design
from dpjax.engine.problems import Problems
from dpjax.errors import InputError, ModelWarning
from dpjax.inference.methods import METHODS, default_method
from dpjax.inference.run_method import run_method
from dpjax.models import ExactSums, FreeMoments, KnownCovariates, LinearRegression, model_for
from dpjax.models.regression import laws as covariate_laws
from dpjax.models.regression.problems import make_problems
from dpjax.models.regression.views import released_moments
from dpjax.releases.guarantee import MomentsPrivacy, Privacy
from dpjax.statistics.regression import RegressionStatistic


def statistic(p=1, moments=True, bounds=(-1.0, 1.0), scaling=None):
    names = tuple(f"x{i}" for i in range(1, p + 1))
    return RegressionStatistic(names, "y", dict.fromkeys((*names, "y"), bounds), scaling, moments)


def sums_of(records, y, stat):
    return stat.from_records(records, y)


# ---- released moments taken for exact ------------------------------------------------------------------------
@pytest.mark.parametrize("p", [1, 2, 3])
def test_moments_without_noise_are_those_of_the_records(p):
    rng = np.random.default_rng(p)
    x = rng.uniform(-1, 1, (400, p)) ** 3
    z = sums_of(x, rng.uniform(-1, 1, 400), statistic(p))
    eta, xi = released_moments(z[None], np.array([400.0]), p, [(-1, 1)] * (p + 1))
    wanted = covariate_laws.sampled_moments(x)
    np.testing.assert_allclose(eta[0], wanted[0], atol=1e-9)
    np.testing.assert_allclose(xi[0], wanted[1], atol=1e-9)


def test_noisy_moments_become_those_of_some_law():
    rng = np.random.default_rng(0)
    stat = statistic(2)
    z = 30 * rng.standard_cauchy((200, stat.dim))
    eta, xi = released_moments(z, np.full(200, 50.0), 2, [(-1, 1)] * 3)
    assert (np.linalg.eigvalsh(eta) >= -1e-9).all() and np.abs(eta).max() < 6
    assert (np.linalg.eigvalsh(xi.reshape(200, 9, 9)) >= -1e-9).all()
    assert (xi[:, 0, 0] == 0).all()


# ---- which problems a method gets ----------------------------------------------------------------------------
def made(p=1, trials=3, prior=None, **options):
    return study_design(features=p, moments=True, simulate="normal", prior=prior, **options).study(
        [(50, 1.0)], trials, 0
    )


@pytest.mark.slow
def test_views_of_a_study_share_data_and_noise():
    study = made(trials=4)
    base, whole = study.problems, METHODS["noisy"].seen(study.problems)
    size = base.z.shape[1]
    np.testing.assert_allclose(base.exact, whole.exact[:, :size])
    # the whole epsilon for the usual sums, or half of it: the same noise on twice the scale
    np.testing.assert_allclose(whole.scale[:, :size], 2 * base.scale)
    np.testing.assert_allclose(whole.scale[:, size:], 2 * 2.10546875)
    np.testing.assert_allclose((whole.z - whole.exact)[:, :size], 2 * (base.z - base.exact), rtol=1e-9)
    plugged = METHODS["plug-in"].seen(base)
    assert isinstance(plugged.model, KnownCovariates) and len(plugged) == 4
    np.testing.assert_allclose(plugged.z, whole.z[:, :size])
    np.testing.assert_allclose(plugged.model.eta[:, 0, 1], np.clip(whole.z[:, 0] / 50, -1, 1), rtol=1e-5)
    exact = METHODS["wishart"].seen(base)
    assert isinstance(exact.model, ExactSums) and not exact.model.bounded
    assert METHODS["wishart-bounded"].seen(base).model.bounded
    with pytest.warns(ModelWarning, match="hierarchical"):
        assert isinstance(METHODS["prior"].seen(base).model, KnownCovariates)


@pytest.mark.slow
def test_share_of_the_moments():
    study = made(trials=1, moments_share=0.25)
    whole = METHODS["noisy"].seen(study.problems)
    size = study.problems.z.shape[1]
    np.testing.assert_allclose(whole.scale[0, [0, size]], [(16 / 3) / 0.75, 2.10546875 / 0.25])
    with pytest.raises(InputError, match="moments_share"):
        study_design(moments_share=0.5)
    with pytest.raises(InputError, match="moments_share"):
        study_design(moments=True, moments_share=1.5)


@pytest.mark.parametrize(
    "method, message",
    [
        ("noisy", "third and fourth moments"),
        ("plug-in", "third and fourth moments"),
        ("prior", "fixed law"),
        ("wishart-bounded", "bounds"),
    ],
)
def test_what_a_method_lacks_is_named(method, message):
    problems = Problems(np.ones((1, 5)), np.array([10.0]), np.ones(1), LinearRegression.s0(1), "laplace")
    with pytest.raises(InputError, match=f"method '{method}' .*{message}"):
        run_method(method, problems, seed=0)


def test_few_records_and_many_features_are_refused():
    problems = Problems(np.ones((1, 5)), np.array([2.0]), np.ones(1), LinearRegression.s0(1), "laplace")
    with pytest.raises(InputError, match=r"'wishart' does not fit: .*at least p \+ 2 = 3 records; got 2"):
        run_method("wishart", problems, seed=0)
    stat = statistic(4)
    many = make_problems(
        np.ones((1, stat.dim)), np.array([10.0]), np.ones(stat.dim), model_for(stat), "laplace", statistic=stat
    )
    with pytest.raises(InputError, match="at most 3 features"):
        run_method("noisy", many, seed=0)
    assert isinstance(METHODS["plug-in"].seen(many).model, KnownCovariates)
    assert default_method(model_for(stat)) == "collapsed"


def test_the_exact_law_names_collapsed_where_its_chains_do_not_mix():
    """R-hat was 1.2 to 3 from 10,000 records on at sqrt(n) / b above 1,000; with more noise it mixes there."""
    problems = lambda n, b: Problems(np.ones((1, 5)), np.array([n]), np.full(1, b), LinearRegression.s0(1), "laplace")
    with pytest.raises(InputError, match=r"'wishart' does not mix at 10,000 records .*: use collapsed"):
        METHODS["wishart"].check(problems(1e5, 0.05))
    for n, b in ((1e5, 5.0), (1000.0, 0.01)):
        assert METHODS["wishart"].check(problems(n, b)).name == "wishart"


def test_simulating_covariates_of_a_law_needs_moments():
    with pytest.raises(InputError, match="regressions with moments"):
        study_design(simulate="skewed")
    with pytest.raises(InputError, match="moments"):
        study_design("binomial", moments=True)


# ---- the methods against each other and against the truth ------------------------------------------------------
@pytest.mark.slow
def test_a_known_law_agrees_with_a_tight_prior_on_it():
    """Hierarchical normal covariates whose mean and covariance are known to a percent."""
    base = LinearRegression.create(1, theta_precision=0.5 / 19, x_mean=0.1, kappa=1e4, psi=0.04 * 1e4, nu=1e4)
    known = KnownCovariates.create(
        *covariate_laws.normal_moments([0.1], [[0.04]]), theta_precision=0.5 / 19, law="normal"
    )
    z, n, scale = np.array([[60.0, 30.0, 20.0, 25.0, 160.0]]), np.array([500.0]), np.full((1, 5), 20.0)
    runs = [
        run_method("collapsed", Problems(z, n, scale, model, "laplace"), seed=1, chains=24, draws=500)
        for model in (base, known)
    ]
    for name in ("theta[0]", "theta[1]", "sigma2"):
        one, two = (r.draws[0, :, :, r.names.index(name)].astype(np.float64) for r in runs)
        for function in (lambda x: x.mean(1), lambda x: x.std(1)):
            a, b = function(one), function(two)
            error = np.hypot(a.std(ddof=1), b.std(ddof=1)) / np.sqrt(len(a))
            assert abs(a.mean() - b.mean()) < 4 * error + 1e-4, name


@pytest.mark.slow
def test_exact_sums_and_the_normal_law_agree_under_noise():
    """At 10 records and epsilon = 1 what is not normal in the sums is hidden: means and sds agree (12 problems)."""
    study = study_design().study([(10, 1.0)], 12, 3)
    exact, normal = (
        run_method(m, study.problems, seed=1, chains=8, rerun=False).draws for m in ("wishart", "collapsed")
    )
    sd = exact.std((1, 2))
    assert (np.abs(exact.mean((1, 2)) - normal.mean((1, 2))) / sd).mean() < 0.06
    assert np.abs(normal.std((1, 2)) / sd - 1).mean() < 0.06


@pytest.mark.slow
def test_bounds_narrow_the_posterior_and_are_kept():
    prior = {"theta_precision": [[0.15, 0], [0, 0.15]], "sigma2_shape": 3.0, "sigma2_scale": 0.3, "theta_mean": [0, 0]}
    study = study_design(clip=True, prior=prior).study([(10, 1.0)], 40, 1)
    runs = {m: run_method(m, study.problems, seed=3, rerun=False) for m in ("wishart", "wishart-bounded")}
    sd = {m: r.draws.std((1, 2)).mean(0) for m, r in runs.items()}
    assert np.isfinite(runs["wishart-bounded"].draws).all()
    assert sd["wishart-bounded"][0] < 0.95 * sd["wishart"][0]


@pytest.mark.slow
def test_noisy_passes_where_plug_in_fails():
    """100 records, epsilon = .1: released moments with noise as large as themselves (M = 400, one cell)."""
    study = study_design(moments=True, simulate="normal").study([(100, 0.1)], 400, 1)
    coverage, truth = {}, study.truth_of(["theta[1]"])[:, 0]
    for method in ("noisy", "plug-in"):
        run = run_method(method, study.problems, seed=2, draws=200, rerun=False)
        draws = run.draws[..., run.names.index("theta[1]")].reshape(400, -1)
        low, high = np.quantile(draws, [0.025, 0.975], axis=1)
        coverage[method] = ((low < truth) & (truth < high)).mean()
    error = np.sqrt(0.95 * 0.05 / 400)
    assert abs(coverage["noisy"] - 0.95) < 3.3 * error
    assert coverage["plug-in"] < 0.95 - 3.3 * error


@pytest.mark.slow
def test_calibration_reports_what_a_method_has():
    study = made(trials=6)
    cell = calibrate_study(study, "plug-in", draws=100).cells[0]
    assert list(cell["parameters"]) == ["theta[0]", "theta[1]", "sigma2"] and cell["mmd"] is not None


# ---- fits ----------------------------------------------------------------------------------------------------
def release_with_moments(scaling="bounds-to-[-1,1]", bounds=(0.0, 4.0)):
    rng = np.random.default_rng(0)
    x = np.clip(rng.normal(2.0, 0.8, 500), *bounds)
    y = np.clip(0.5 + 0.6 * x + rng.normal(0, 0.4, 500), *bounds)
    stat = statistic(1, True, bounds, scaling)
    scale = noise_scales(stat, "laplace", 4.0)
    sums = stat.from_columns({"x1": x, "y": y}) + scale * rng.laplace(size=stat.dim)
    return dpjax.Release(
        stat,
        500,
        dict(zip(stat.names, sums.tolist(), strict=True)),
        "laplace",
        dict(zip(stat.names, scale.tolist(), strict=True)),
        Privacy(4.0, 0.0, "replace-one", "l1", 16 / 3, moments=MomentsPrivacy(2.0, 2.10546875)),
        simulated=True,
    )


@pytest.mark.slow
def test_fit_of_a_release_with_moments_uses_them(tmp_path):
    release = release_with_moments()
    release.save(tmp_path / "release.json")
    noisy = dpjax.fit(tmp_path / "release.json", draws=300)
    assert noisy.method == "noisy" and noisy.names[-1] == "tau2[1,1]"
    assert "tilt_scale" in noisy.prior["covariates"]
    usual = dpjax.fit(release, method="collapsed", draws=300)
    for posterior in (noisy, usual):
        slope = posterior.summary()["parameters"]["theta[1]"]
        assert abs(slope["mean"] - 0.6) < 4 * slope["sd"] and slope["sd"] < 0.2


@pytest.mark.slow
def test_fit_with_a_known_law_reports_coefficients_in_the_users_units():
    release = release_with_moments()
    law = {"law": "normal", "mean": [0.0], "covariance": [[0.16]]}  # scaled: (2 - 2) / 2, (.8 / 2)^2
    posterior = dpjax.fit(release, prior={"covariates": law}, draws=300)
    assert posterior.method == "collapsed" and posterior.names == ("theta[0]", "theta[1]", "sigma2")
    rows = posterior.summary()["parameters"]
    for name, truth in (("theta[0]", 0.5), ("theta[1]", 0.6), ("sigma2", 0.16)):
        assert abs(rows[name]["mean"] - truth) < 4 * rows[name]["sd"], name
    assert dpjax.fit(release, method="prior", prior={"covariates": law}, draws=100).names == posterior.names
    with pytest.raises(InputError, match="prior"):
        dpjax.fit(release, method="prior")


@pytest.mark.slow
def test_problems_keep_views_when_taken():
    study = made(trials=5)
    taken = study.problems.take([3, 1])
    np.testing.assert_allclose(METHODS["noisy"].seen(taken).z, METHODS["noisy"].seen(study.problems).z[[3, 1]])
    assert isinstance(taken.views["moments"].model, FreeMoments)
    assert dataclasses.replace(taken, views={}).views == {}


def test_a_law_in_the_prior_and_moments_exclude_each_other():
    law = {"covariates": {"law": "normal", "mean": [0.0], "covariance": [[0.16]]}}
    for method in ("noisy", "plug-in"):
        with pytest.raises(InputError, match="leave law out"):
            dpjax.fit(release_with_moments(), method=method, prior=law)
    with pytest.raises(InputError, match="its setting covariates"):
        dpjax.fit(release_with_moments(), method="individual", prior=law)


def test_individual_with_bounds_needs_them():
    problems = Problems(np.ones((1, 5)), np.array([10.0]), np.ones(1), LinearRegression.s0(1), "laplace")
    with pytest.raises(InputError, match="bounded needs bounds"):
        run_method("individual", problems, seed=0, settings={"bounded": True})
