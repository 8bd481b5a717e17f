"""Studies of releases like one that was made, and studies whose truths do not come from the prior."""

import dataclasses
import json
import warnings

import numpy as np
import pytest

import dpjax
from dpjax.calibration.like import read_like
from dpjax.calibration.study_design import study_design
from dpjax.calibration.truth import truth_model
from dpjax.cli.app import main
from dpjax.errors import InputError
from dpjax.inference.fit import inferred_model
from dpjax.models import LinearRegression, OriginRegression, model_for
from dpjax.releases.guarantee import MomentsPrivacy, Privacy
from dpjax.releases.release import Release
from dpjax.statistics.kinds import make_statistic
from dpjax.statistics.units import from_user_units

BOUNDS = {"x": (15.0, 45.0), "y": (100.0, 450.0)}
ONE = make_statistic("linear-regression", target="y", features=["x"], bounds=BOUNDS)
TWO = make_statistic("linear-regression", target="y", features=["x", "w"], bounds=BOUNDS | {"w": (0.0, 1.0)})


def release_of(statistic, records=50, mechanism="laplace", scale=16.0 / 3 / 0.7, privacy=..., **changes):
    norm = "l2" if mechanism == "gaussian" else "l1"
    if privacy is ...:
        privacy = Privacy(0.7, 1e-5 if mechanism == "gaussian" else 0.0, "replace-one", norm, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Release(
            statistic, records, dict.fromkeys(statistic.names, 3.0), mechanism, scale, privacy, True, **changes
        )


@pytest.mark.parametrize(
    ("statistic", "mechanism"),
    [
        (ONE, "laplace"),
        (TWO, "gaussian"),
        (make_statistic("exponential", target="y", bounds=(0.5, 8.0), rule="redact"), "laplace"),
        (make_statistic("normal", target="y", bounds=(150.0, 190.0)), "gaussian"),
        (make_statistic("gamma", target="y", bounds=(0.0, 8.0), shape=2.5), "laplace"),
        (make_statistic("multinomial", target="y", labels=["a", "b", "c"]), "discrete-laplace"),
        (make_statistic("linear-regression", target="y", features=["x"], bounds=BOUNDS, intercept=False), "laplace"),
    ],
)
def test_a_study_is_like_its_release(statistic, mechanism):
    """Bounds, scaling, records and noise are those of the release, the prior that of fit."""
    release = release_of(statistic, mechanism=mechanism, scale=9.0)
    like = read_like(release)
    design = study_design(like=like)
    assert design.statistic == statistic and design.mechanism == mechanism and like.records == 50
    sums = np.ones((1, design.model.statistic_dim))
    problems = lambda epsilon: design._problems(sums, np.array([50.0]), np.array([epsilon]), sums)
    np.testing.assert_allclose(np.asarray(problems(like.epsilon).scale)[:, : len(statistic.names)], 9.0, rtol=1e-9)
    assert problems(0.7).model_template().as_dict() == inferred_model(statistic, None).as_dict()
    if mechanism == "laplace":  # half of the epsilon is twice the noise
        np.testing.assert_allclose(np.asarray(problems(0.35).scale)[:, : len(statistic.names)], 18.0, rtol=1e-9)


def test_moments_like_a_release():
    statistic = dataclasses.replace(ONE, moments=True)
    moments = statistic.parts[1].sensitivity("l1")
    privacy = Privacy(1.0, 0.0, "replace-one", "l1", 16.0 / 3, moments=MomentsPrivacy(0.25, moments))
    usual = set(ONE.names)
    scale = {name: 16 / 3 / 0.75 if name in usual else moments / 0.25 for name in statistic.names}
    release = release_of(statistic, scale=scale, privacy=privacy)
    design = study_design(like=read_like(release))
    np.testing.assert_allclose(design._scales(1.0), release.scale)
    wrong = release_of(statistic, scale=scale | {"x*x*x": 1.0}, privacy=privacy)
    with pytest.raises(InputError, match="noise of the moments"):
        study_design(like=read_like(wrong))


@pytest.mark.parametrize(
    ("like", "arguments", "match"),
    [
        (3, {}, "like must be a Release or the path"),
        ("none.json", {}, "none.json"),
        (release_of(ONE), {"features": 2}, "like: features is that of the release"),
        (release_of(ONE), {"model": "binomial"}, "like: model"),
        (release_of(ONE), {"mechanism": "gaussian"}, "like: mechanism"),
        (release_of(ONE), {"bounds": (0, 1)}, "like: bounds"),
        (release_of(ONE), {"intercept": False}, "like: intercept"),
        (release_of(ONE, privacy=None), {}, "epsilon is missing: the release does not state it"),
        (release_of(ONE, privacy=None, mechanism="gaussian"), {"epsilon": 1.0}, "does not state its guarantee"),
        (
            release_of(ONE, scale=dict(zip(ONE.names, range(1, 6), strict=True)), privacy=None),
            {"epsilon": 1.0},
            "of its own",
        ),
        (None, {}, "records must be a number or several"),
    ],
)
def test_what_no_study_can_be_like(like, arguments, match):
    with pytest.raises(InputError, match=match):
        dpjax.calibrate(**arguments, like=like)


def test_units_there_and_back():
    rng = np.random.default_rng(0)
    origin = make_statistic(
        "linear-regression", target="y", features=["x", "w"], bounds=BOUNDS | {"w": (0, 1)}, intercept=False
    )
    regressions = [(ONE, LinearRegression.weak(1)), (TWO, LinearRegression.weak(2)), (origin, OriginRegression.weak(2))]
    for statistic, model in regressions:
        phi = rng.normal(size=(model.dim,)) * 0.5
        reported = np.asarray(model.report(phi.astype(np.float32)), float)
        np.testing.assert_allclose(model.positions(reported[None])[0], phi, rtol=2e-4, atol=2e-5)
        back = from_user_units(statistic, statistic.to_user_units(reported[None]))
        np.testing.assert_allclose(back[0], reported, rtol=1e-9, atol=1e-12)
    for kind, more, values in (
        ("binomial", {}, [0.2]), ("gamma", {"bounds": (0, 9), "shape": 2.0}, [0.4]),
        ("normal", {"bounds": (0, 9)}, [0.3, 0.2]),
        ("multinomial", {"categories": 3}, [0.2, 0.3, 0.5]),
    ):  # fmt: skip
        statistic = make_statistic(kind, target="y", **more)
        phi = model_for(statistic).positions(np.array([values]))[0]
        np.testing.assert_allclose(np.asarray(model_for(statistic).report(phi.astype(np.float32))), values, rtol=1e-5)


FIXED = {"theta": [120.0, 5.0], "sigma2": 900.0, "mu_x": [28.0], "tau2": [16.0]}


@pytest.mark.slow
def test_fixed_truths_in_the_users_units():
    """Every data set has these parameters; its sums are those of records with them (closed form), whatever the
    prior."""
    like = read_like(release_of(ONE, records=400, scale=1e-6))
    design = study_design(like=like, truth={"units": "user", "fixed": FIXED}, prior={"sigma2_shape": 50})
    study = design.study([(400, 0.7)], 200, 0)
    truth = ONE.to_user_units(study.truth)
    np.testing.assert_allclose(truth, np.tile([120.0, 5.0, 900.0, 28.0, 16.0], (200, 1)), rtol=1e-9)
    assert float(np.asarray(study.problems.model_template().sigma2_shape)) == 50
    mean_x = 30 + 15 * study.problems.z[:, 0] / 400
    assert abs(mean_x.mean() - 28.0) < 4.5 * 4 / np.sqrt(400 * 200)
    assert mean_x.std() == pytest.approx(4 / 20, rel=0.2)
    mean_y = 275 + 175 * study.problems.z[:, 2] / 400
    assert abs(mean_y.mean() - (120 + 5 * 28)) < 4.5 * np.sqrt((900 + 25 * 16) / (400 * 200))
    assert "truths fixed" in design.describe()


@pytest.mark.slow
def test_truths_from_another_law_than_the_prior():
    """Binomial: coverage of a posterior whose prior is right and of one whose prior is wrong, exact references."""
    common = dict(records=20, epsilon=1.0, trials=400, draws=200, mmd=False)
    truth = {"alpha": 60.0, "beta": 20.0}
    right = dpjax.calibrate("binomial", **common, truth=truth, prior=truth)
    wrong = dpjax.calibrate("binomial", **common, truth=truth, prior={"alpha": 20.0, "beta": 60.0})
    coverage = lambda study: study.cells[0]["parameters"]["p"]["coverage"]["0.9"]
    assert coverage(right) == pytest.approx(0.9, abs=4.5 * np.sqrt(0.09 / 400))
    assert coverage(wrong) < 0.2
    assert "another law than the prior" in wrong.table() and "another law" not in study_design("binomial").describe()


@pytest.mark.parametrize(
    ("statistic", "truth", "match"),
    [
        (ONE, {"fixed": FIXED, "sigma2_shape": 3}, "fixed values leave nothing for 'sigma2_shape'"),
        (ONE, {"fixed": {"theta": [1.0, 2.0]}}, r"sigma2, mu_x\[1\], tau2\[1,1\] missing"),
        (ONE, {"fixed": FIXED | {"slope": 1.0}}, "unknown name 'slope'; allowed: theta"),
        (ONE, {"fixed": FIXED | {"theta": [1.0]}}, "theta must be 2 finite numbers"),
        (ONE, {"fixed": FIXED | {"theta[0]": 1.0}}, "given twice"),
        (ONE, {"fixed": FIXED | {"sigma2": -1.0}}, "sigma2 must be above 0"),
        (TWO, {"fixed": {"theta": [0, 0, 0], "sigma2": 1, "mu_x": [0, 0], "tau2": [1, 2, 1]}}, "positive definite"),
        (ONE, {"fixed": 3}, "values by name"),
        (ONE, {"fixed": FIXED, "units": "mine"}, "units must be"),
        (ONE, {"sigma2_shape": -1}, "sigma2_shape must be"),
        (ONE, "none.toml", "none.toml"),
        (make_statistic("binomial", target="y"), {"fixed": {"p": 1.5}}, "inside"),
        (make_statistic("multinomial", target="y", categories=2), {"fixed": {"p": [0.5, 0.6]}}, "sum to 1"),
    ],
)
def test_truths_that_cannot_be(statistic, truth, match):
    with pytest.raises(InputError, match=match) as caught:
        truth_model(statistic, truth, inferred_model(statistic))
    assert str(caught.value).startswith("truth: ") or truth == "none.toml"


@pytest.mark.slow
def test_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPJAX_CACHE", "off")
    statistic = make_statistic("binomial", target="y")
    release = release_of(statistic, records=33, mechanism="discrete-laplace", scale=1 / 0.7)
    release.save("release.json")
    (tmp_path / "truth.toml").write_text("[fixed]\np = 0.25\n")
    words = ["calibrate", "--like", "release.json", "--truth", "truth.toml", "--trials", "20", "--draws", "50"]
    words.append("--stream")  # without the draws behind the MMD
    code = main([*words, "--json", "study.json"])
    assert code in (0, 1), capsys.readouterr().err
    found = json.loads((tmp_path / "study.json").read_text())
    assert found["records"] == 33 and found["epsilon"] == 0.7 and found["settings"]["mechanism"] == "discrete-laplace"
    assert found["settings"]["prior"] == inferred_model(statistic).as_dict()
    assert "truths fixed" in capsys.readouterr().out
    for wrong, says in (
        (["calibrate"], "calibrate needs MODEL, or --like RELEASE.json"),
        (["calibrate", "binomial", "--epsilon", "1"], "calibrate needs --records"),
        (["calibrate", "binomial", "--like", "release.json"], "like: model is that of the release"),
        (["calibrate", "--like", "none.json"], "none.json"),
        (["calibrate", "--like", "release.json", "--truth", "none.toml"], "none.toml"),
        (["calibrate", "--like", "release.json", "--json", "release.json", "--force"], "is an input of this command"),
    ):
        assert main(wrong) == 2
        err = capsys.readouterr().err
        assert says in err and err.count("\n") == 1
