"""`fit` from release to posterior: units, priors, refusals, warnings."""

import warnings

import numpy as np
import pytest

import dpjax
from dpjax.errors import ConvergenceWarning, InputError
from dpjax.inference.fit import inferred_model
from dpjax.models import LinearRegression, regression_prior
from dpjax.statistics.kinds import make_statistic

STATISTICS = {
    "bmi": -38.1, "bmi*bmi": 61.5, "progression": -57.2, "bmi*progression": 21.3, "progression*progression": 106.9,
}  # fmt: skip


REGRESSION = make_statistic(
    "linear-regression", target="progression", features=["bmi"], bounds={"bmi": (15, 45), "progression": (0, 350)}
)


def _release(**changes):
    fields = {
        "statistic": REGRESSION, "records": 442, "statistics": STATISTICS, "mechanism": "laplace",
        "noise_scale": 16 / 3, "privacy": dpjax.Privacy(1.0, 0.0, "replace-one", "l1", 16 / 3), "simulated": True,
    }  # fmt: skip
    return dpjax.Release(**(fields | changes))


@pytest.fixture(scope="module")
def posterior():
    return dpjax.fit(_release(), seed=1)


@pytest.mark.slow
def test_fit_gives_a_posterior_wider_than_the_naive_one(posterior):
    naive = dpjax.fit(_release(), method="naive", seed=1)
    assert posterior.draws.shape == (4, 1000, 5)
    assert (posterior.user_draws.std((0, 1)) > naive.user_draws.std((0, 1))).all()
    summary = posterior.summary()
    assert set(summary) >= {"parameters", "scaled", "prior", "seconds"}
    row = summary["parameters"]["theta[1]"]
    assert row["rhat"] < 1.02 and row["ess_bulk"] > 400 and row["sd"] < row["prior_sd"]


@pytest.mark.slow
def test_tiny_epsilon_gives_back_the_prior():
    tiny = dpjax.fit(_release(noise_scale=16 / 3 / 1e-3, records=10, privacy=None), seed=1)
    spread = lambda draws: np.subtract(*np.quantile(draws.reshape(-1, 5), [0.75, 0.25], axis=0))
    np.testing.assert_allclose(spread(tiny.draws)[:2], spread(tiny.prior_draws)[:2], rtol=0.15)


@pytest.mark.slow
def test_huge_epsilon_gives_the_conjugate_posterior():
    """eps = 1e3: the noise is negligible, and naive is right."""
    kwargs = {"noise_scale": 16 / 3 / 1e3, "privacy": None}
    a = dpjax.fit(_release(**kwargs), prior={"kind": "conjugate"}, seed=1).draws
    b = dpjax.fit(_release(**kwargs), method="naive", seed=1).draws
    gap = np.abs(a.mean((0, 1)) - b.mean((0, 1))) / b.std((0, 1))
    # 442 records: the normal approximation of the statistics is felt, by less than a third of an sd
    assert gap.max() < 0.35 and np.abs(np.log(a.std((0, 1)) / b.std((0, 1)))).max() < 0.15


def test_one_record():
    one = dpjax.fit(_release(records=1, statistics=dict.fromkeys(STATISTICS, 0.5)), seed=1)
    assert np.isfinite(one.draws).all()


def test_priors(tmp_path):
    default = regression_prior(2, default="conjugate")
    assert regression_prior(2).as_dict()["kind"] == "weak" and default.as_dict() == LinearRegression.weak(2).as_dict()
    path = tmp_path / "prior.toml"
    path.write_text("theta_mean = [0.5, 0.0, 0.0]\nsigma2_shape = 7.0\n[covariates]\nnu = 9.0\n")
    changed = regression_prior(2, path).as_dict()
    assert changed["theta_mean"] == [0.5, 0.0, 0.0] and changed["sigma2_shape"] == 7.0
    assert (
        changed["covariates"]["nu"] == 9.0
        and changed["covariates"]["kappa"] == default.as_dict()["covariates"]["kappa"]
    )


@pytest.mark.parametrize(
    "text, match",
    [
        ("theta_mena = [0.0, 0.0]", "theta_mena"),
        ("theta_mean = [0.0]", "theta_mean"),
        ('theta_mean = ["a", "b"]', "prior"),
        ("theta_precision = [[1.0, 2.0], [2.0, 1.0]]", "positive definite"),
        ("sigma2_shape = -1.0", "sigma2_shape"),
        ("sigma2_scale = nan", "sigma2_scale"),
        ("[covariates]\nnu = 0.0", "nu"),
        ("[covariates]\nkapa = 1.0", "kapa"),
        ("covariates = 3", "covariates"),
        ("not toml", "TOML"),
    ],
)
def test_bad_priors_are_refused(tmp_path, text, match):
    path = tmp_path / "prior.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=match):
        regression_prior(1, path)


def test_missing_prior_file():
    with pytest.raises(InputError, match="cannot be read"):
        regression_prior(1, "nowhere.toml")


@pytest.mark.slow
def test_a_raw_release_needs_a_prior_in_its_units():
    raw = _release(
        statistic=make_statistic("linear-regression", target="progression", features=["bmi"], scaling=None),
        privacy=None,
    )
    with pytest.raises(InputError, match="raw units"):
        dpjax.fit(raw)
    posterior = dpjax.fit(raw, method="naive", prior={"sigma2_scale": 1.0}, draws=20)
    assert "epsilon not stated" in posterior.table() and "scaled units" not in posterior.table()


@pytest.mark.parametrize("seed", [-1, 2.5, "x", None, True])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(InputError, match="seed"):
        dpjax.fit(_release(), seed=seed)


@pytest.mark.parametrize(
    "prior, match",
    [
        ({"theta_mean": ["a", "b"]}, "2 finite numbers"),
        ({"theta_mean": [0, [1]]}, "2 finite numbers"),
        ({"theta_mean": True}, "2 finite numbers"),
        ({"sigma2_scale": 1e-320}, "1e-12"),
        ({"sigma2_scale": 1e39}, "1e\\+12"),
    ],
)
def test_priors_that_overflow_or_are_no_numbers(prior, match):
    with pytest.raises(InputError, match=match):
        regression_prior(1, prior)


@pytest.mark.slow
def test_a_rerun_is_said():
    again = dpjax.fit(_release(), draws=5, chains=1, seed=1)
    assert again.rerun and again.draws.shape[0] > 1
    assert "harder" in again.table() and again.summary()["rerun"] and again.summary()["rerun_seconds"] > 0


def test_refusals():
    for bad in (None, 5, {"format": "dpjax-release"}):
        with pytest.raises(InputError, match="release"):
            dpjax.fit(bad)
    with pytest.raises(InputError, match="one release"):
        dpjax.fit([_release(), _release()])
    with pytest.raises(InputError, match="exact statistics"):
        dpjax.fit(_release(), method="non-private")
    with pytest.raises(InputError, match="method"):
        dpjax.fit(_release(), method="magic")
    for method in ("exact", "gibbs-literal", "ops"):
        with pytest.raises(InputError, match=method):
            dpjax.fit(_release(), method=method)


# --- families ---


def _family(kind, statistics, scale=10.0, records=1000, **arguments):
    return dpjax.Release(make_statistic(kind, **arguments), records, statistics, "laplace", scale)


@pytest.mark.slow
def test_binomial_by_its_exact_law():
    """The fixed case: z = 600, n = 1000, epsilon = .1, Beta(10, 10)."""
    posterior = dpjax.fit(_family("binomial", {"successes": 600.0}), prior={"alpha": 10, "beta": 10}, seed=1)
    row = posterior.summary()["parameters"]["p"]
    assert posterior.method == "exact" and row["ess_bulk"] > 3000
    assert row["mean"] == pytest.approx(0.59664, abs=4 * 0.02057 / 3000**0.5)
    assert row["sd"] == pytest.approx(0.02057, rel=0.05)
    assert "exact law" in posterior.table() and posterior.summary()["notes"] == list(posterior.notes)


@pytest.mark.slow
def test_a_redacted_sum_with_two_modes_is_said():
    """docs/formulas.md#two-modes: the mean of what is inside the bounds is not monotone in the rate."""
    release = _family("exponential", {"x": 350.0}, scale=3.0, rule="redact", bounds=(0.0, 3.0))
    posterior = dpjax.fit(release, prior={"shape": 1, "rate": 0.5}, seed=1, draws=200)
    assert any("2 modes" in note for note in posterior.notes) and posterior.statistic.truncation["rule"] == "redact"


def test_priors_of_families(tmp_path):
    path = tmp_path / "prior.toml"
    path.write_text("concentration = [1, 2, 3]\n")
    counts = make_statistic("multinomial", categories=3)
    assert inferred_model(counts, path).as_dict() == {"concentration": [1, 2, 3]}
    for text in ("concentration = [1, 2]", "alpha = 1", "concentration = [1, 2, -1]"):
        path.write_text(text)
        with pytest.raises(InputError, match="concentration"):
            inferred_model(counts, path)
    # made for values scaled to [-1, 1]; a rate or a probability has no such units
    with pytest.raises(InputError, match="raw units"):
        inferred_model(make_statistic("normal", bounds=(0, 9), scaling=None))
    assert inferred_model(make_statistic("normal", bounds=(0, 9))).as_dict().keys() == {
        "mean", "kappa", "shape", "scale",
    }  # fmt: skip
    assert inferred_model(make_statistic("poisson", bounds=(0, 9))).as_dict().keys() == {"shape", "rate"}


@pytest.mark.slow
def test_a_chain_that_did_not_converge_is_said():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dpjax.fit(_release(noise_scale=200.0, privacy=None), method="gibbs", draws=20, thin=1, seed=1)
    assert any(issubclass(w.category, ConvergenceWarning) for w in caught)
