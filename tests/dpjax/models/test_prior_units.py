"""Priors in the user's units and by means and standard deviations, against what the user wrote."""

import numpy as np
import pytest
from scipy import stats

from dpjax.errors import InputError
from dpjax.inference.fit import inferred_model
from dpjax.inference.prior_predictive import sample_prior_report
from dpjax.models import model_for
from dpjax.statistics.kinds import make_statistic

BOUNDS = {"x": (15.0, 45.0), "w": (-3.0, 1.0), "y": (100.0, 450.0)}
TWO = make_statistic("linear-regression", target="y", features=["x", "w"], bounds=BOUNDS)
ORIGIN = make_statistic("linear-regression", target="y", features=["x", "w"], bounds=BOUNDS, intercept=False)
HEIGHT = make_statistic("normal", target="y", bounds=(150.0, 190.0))
LOG = make_statistic("log-normal", target="y", bounds=(1.0, 100.0))


def moments(model, statistic):
    """Mean and covariance of theta and mean of sigma2 a priori, in the user's units, from the model's leaves."""
    leaf = lambda name: np.asarray(getattr(model, name), np.float64)
    s2 = leaf("sigma2_scale") / (leaf("sigma2_shape") - 1)
    covariance = np.linalg.inv(leaf("theta_precision")) * (1.0 if getattr(model, "independent", False) else s2)
    mean, root = leaf("theta_mean"), np.linalg.cholesky(covariance)
    size = len(mean)
    points = np.concatenate([mean[None], mean + root.T])  # an affine map is known by these
    user = statistic.to_user_units(np.concatenate([points, np.full((size + 1, 1), s2)], axis=1))
    spread = user[1:, :size] - user[0, :size]
    return user[0, :size], spread.T @ spread, user[0, size]


def test_conjugate_prior_of_a_regression():
    """theta | sigma2 ~ N(m, sigma2 P^-1), sigma2 ~ InvGamma(4, 900), features by mean and psi: all as the user
    wrote."""
    precision = np.array([[1e-2, 2e-1, 0.0], [2e-1, 9.0, 0.3], [0.0, 0.3, 2.0]])
    prior = {
        "units": "user", "theta_mean": [50.0, 3.0, -20.0], "theta_precision": precision.tolist(), "sigma2_shape": 4,
        "sigma2_scale": 900.0, 
        "covariates": {"mean": [28.0, -1.5], "psi": [[30.0, 2.0], [2.0, 1.5]], "nu": 9, "kappa": 2},
    }  # fmt: skip
    model = model_for(TWO, prior)
    mean, covariance, s2 = moments(model, TWO)
    np.testing.assert_allclose(mean, [50.0, 3.0, -20.0], rtol=1e-5)
    np.testing.assert_allclose(covariance, 300.0 * np.linalg.inv(precision), rtol=2e-4)
    assert s2 == pytest.approx(300.0) and float(model.kappa) == 2 and float(model.nu) == 9
    np.testing.assert_allclose(np.asarray(model.x_mean), [(28 - 30) / 15, (-1.5 + 1) / 2], rtol=1e-6)
    np.testing.assert_allclose(np.asarray(model.psi), [[30 / 225, 2 / 30], [2 / 30, 1.5 / 4]], rtol=1e-6)


@pytest.mark.parametrize("statistic", [TWO, ORIGIN])
@pytest.mark.parametrize("independent", [False, True])
def test_standard_deviations_of_coefficients(statistic, independent):
    if statistic.intercept and independent:
        return
    size = 3 if statistic.intercept else 2
    more = {"independent": True} if independent else {}
    for units in ("user", "scaled"):
        for sd in (2.5, [2.5, 0.7, 11.0][:size]):
            prior = {"units": units, "theta_sd": sd, "theta_mean": [40.0, 2.0, -7.0][:size], "sigma2_shape": 5} | more
            model = model_for(statistic, prior)
            if units == "user":
                mean, covariance, _ = moments(model, statistic)
            else:
                mean = np.asarray(model.theta_mean)
                s2 = 1.0 if independent else float(model.sigma2_scale) / 4
                covariance = s2 * np.linalg.inv(np.asarray(model.theta_precision, float))
            np.testing.assert_allclose(mean, prior["theta_mean"], rtol=1e-5)
            np.testing.assert_allclose(covariance, np.diag(np.broadcast_to(sd, size) ** 2), rtol=1e-4, atol=1e-3)


def test_coefficients_by_name():
    """One normal per coefficient; those that are not named keep mean and sd of the default."""
    default = moments(model_for(TWO, {}), TWO)
    assert default[0] == pytest.approx([275.0, 0.0, 0.0])
    prior = {"units": "user", "theta_mean": {"x": 5.0}, "theta_sd": {"x": 1.5, "intercept": 80.0}}
    mean, covariance, s2 = moments(model_for(TWO, prior), TWO)
    assert mean == pytest.approx([275.0, 5.0, 0.0], rel=1e-4, abs=1e-4) and s2 == pytest.approx(default[2])
    expected = [80.0, 1.5, np.sqrt(default[1][2, 2])]
    np.testing.assert_allclose(covariance, np.diag(np.square(expected)), rtol=1e-3, atol=0.2)


@pytest.mark.slow
def test_draws_from_the_prior_are_in_the_users_units():
    """End to end: what `fit` reports as the prior sd. Errors of 20,000 draws; t with 10 degrees of freedom."""
    prior = {"units": "user", "theta_sd": [60.0, 2.0, 9.0], "theta_mean": [10.0, 4.0, 0.0], "sigma2_shape": 5,
             "sigma2_scale": 3600.0}  # fmt: skip
    draws = TWO.to_user_units(sample_prior_report(inferred_model(TWO, prior), 0))
    np.testing.assert_allclose(draws[:, :3].std(axis=0), [60.0, 2.0, 9.0], rtol=0.04)
    np.testing.assert_allclose(draws[:, :3].mean(axis=0), [10.0, 4.0, 0.0], atol=4 * 60 / np.sqrt(20_000))
    law = stats.invgamma(5, scale=3600.0)
    assert stats.kstest(draws[:, 3], law.cdf).pvalue > 1e-3


def test_known_laws_and_weak_names():
    model = model_for(
        TWO, {"units": "user", "covariates": {"law": "normal", "mean": [30.0, 0.0], "covariance": [[9.0, 0], [0, 4.0]]}}
    )
    np.testing.assert_allclose(np.asarray(model.eta)[0, 1:], [0.0, 0.5])
    np.testing.assert_allclose(np.diag(np.asarray(model.eta)[1:, 1:]), [9 / 225, 1 + 0.25])
    model = model_for(TWO, {"units": "user", "covariates": {"law": "uniform", "low": [15.0, -3], "high": [45.0, 1]}})
    np.testing.assert_allclose(np.diag(np.asarray(model.eta)[1:, 1:]), 1 / 3, rtol=1e-6)
    stated = {"mean": [20.0, -2.0, 200.0], "mean_sd": [3.0, 2.0, 35.0], "sd_scale": [6.0, 1.0, 70.0]}
    weak = model_for(TWO, {"kind": "weak", "units": "user", **stated})
    np.testing.assert_allclose(np.asarray(weak.mean), [-10 / 15, -0.5, (200.0 - 275.0) / 175], rtol=1e-6)
    np.testing.assert_allclose(np.asarray(weak.mean_sd), [3 / 15, 1.0, 35 / 175], rtol=1e-6)
    np.testing.assert_allclose(np.asarray(weak.sd_scale), [6 / 15, 0.5, 70 / 175], rtol=1e-6)


def test_normals():
    """mean | variance ~ N(172, variance / kappa), variance ~ InvGamma(4, 150): mean 50, and sd 2 of the mean."""
    model = model_for(HEIGHT, {"units": "user", "mean": 172.0, "mean_sd": 2.0, "shape": 4, "scale": 150.0})
    found = model.as_dict()
    user = HEIGHT.to_user_units(np.array([found["mean"], found["scale"] / (found["shape"] - 1)]))
    assert user == pytest.approx([172.0, 50.0]) and 50.0 / found["kappa"] == pytest.approx(4.0)
    log = model_for(LOG, {"units": "user", "mean": 3.0, "scale": 2.0, "kappa": 0.5}).as_dict()
    back = LOG.to_user_units(np.array([log["mean"], log["scale"]]))
    assert back == pytest.approx([3.0, 2.0]) and log["kappa"] == 0.5
    same = model_for(HEIGHT, {"mean": 0.25, "scale": 2.0}).as_dict()
    assert same["mean"] == 0.25 and same["scale"] == 2.0


def test_means_and_standard_deviations_of_variances():
    found = model_for(TWO, {"units": "user", "sigma2_mean": 900.0, "sigma2_sd": 300.0}).as_dict()
    law = stats.invgamma(found["sigma2_shape"], scale=found["sigma2_scale"] * 175.0**2)
    assert (law.mean(), law.std()) == pytest.approx((900.0, 300.0), rel=1e-5)
    found = model_for(HEIGHT, {"units": "user", "variance_mean": 50.0, "variance_sd": 20.0, "mean_sd": 2.0}).as_dict()
    law = stats.invgamma(found["shape"], scale=found["scale"] * 20.0**2)
    assert (law.mean(), law.std()) == pytest.approx((50.0, 20.0), rel=1e-5)
    assert 50.0 / found["kappa"] == pytest.approx(4.0)


def test_means_and_standard_deviations_of_one_parameter():
    waits = make_statistic("exponential", target="y", bounds=(0, 20))
    found = model_for(waits, {"units": "user", "rate_mean": 0.5, "rate_sd": 0.1}).as_dict()
    law = stats.gamma(found["shape"], scale=1 / found["rate"])
    assert (law.mean(), law.std()) == pytest.approx((0.5, 0.1))
    found = model_for(make_statistic("binomial", target="y"), {"p_mean": 0.2, "p_sd": 0.05}).as_dict()
    law = stats.beta(found["alpha"], found["beta"])
    assert (law.mean(), law.std()) == pytest.approx((0.2, 0.05), rel=1e-5)
    votes = make_statistic("multinomial", target="y", categories=3)
    assert model_for(votes, {"units": "user", "concentration": 2.0}).as_dict()["concentration"] == [2.0] * 3


def test_raw_units_are_the_users():
    raw = make_statistic(
        "linear-regression", target="y", features=["x"], bounds={"x": (0, 9), "y": (0, 9)}, scaling=None
    )
    given = {"theta_mean": [1.0, 2.0], "theta_precision": [[2.0, 0.5], [0.5, 3.0]], "sigma2_scale": 4.0}
    for one, other in zip(
        *(model_for(raw, given | more).as_dict().items() for more in ({}, {"units": "user"})), strict=True
    ):
        assert one == other


@pytest.mark.parametrize(
    ("statistic", "prior", "match"),
    [
        (TWO, {"units": "mine"}, "units must be 'user' or 'scaled'; got 'mine'"),
        (TWO, {"theta_sd": -1.0}, "theta_sd must be above 0"),
        (TWO, {"theta_sd": [1.0, 2.0]}, "theta_sd must be 3 finite numbers"),
        (TWO, {"theta_sd": {"z": 1.0}}, "theta_sd: unknown name 'z'; allowed: intercept, x, w"),
        (ORIGIN, {"theta_sd": {"intercept": 1.0}}, "allowed: x, w"),
        (TWO, {"theta_sd": {"x": "a"}}, "theta_sd of x must be a finite number"),
        (TWO, {"theta_sd": 1.0, "theta_precision": 1.0}, "exclude each other"),
        (TWO, {"theta_sd": 1.0, "sigma2_shape": 1.0}, "sigma2_shape above 1"),
        (TWO, {"units": "user", "theta_mean": "a"}, "theta_mean must be"),
        (TWO, {"units": "user", "sigma2_scale": -1}, "sigma2_scale must be"),
        (TWO, {"units": "user", "covariates": {"mean": [1.0]}}, "mean must be 2"),
        (TWO, {"units": "user", "theta_sds": 1}, "unknown name 'theta_sds'"),
        (TWO, {"sigma2_mean": 1.0}, "sigma2_sd is missing"),
        (TWO, {"sigma2_mean": 1.0, "sigma2_sd": 1.0, "sigma2_shape": 3.0}, "exclude each other"),
        (HEIGHT, {"mean_sd": 1.0, "kappa": 1.0}, "exclude each other"),
        (make_statistic("binomial", target="y"), {"p_mean": 0.5}, "p_sd is missing"),
        (make_statistic("binomial", target="y"), {"p_mean": 0.5, "p_sd": 0.5}, "p_sd"),
        (make_statistic("binomial", target="y"), {"p_mean": 0.5, "p_sd": 0.1, "alpha": 1}, "exclude"),
        (make_statistic("binomial", target="y"), {"rate_mean": 0.5}, "unknown name 'rate_mean'"),
    ],
)
def test_what_is_refused(statistic, prior, match):
    with pytest.raises(InputError, match=match) as caught:
        model_for(statistic, prior)
    assert str(caught.value).startswith("prior: ") and "\n" not in str(caught.value)
