"""What a study, a run and `precompile` have in common: the same options, with the same meaning."""

import pytest

import dpjax
from dpjax.calibration.precompilation import precompile
from dpjax.calibration.study_design import study_design
from dpjax.cli.app import main
from dpjax.errors import InputError
from dpjax.runner import config, fingerprint
from dpjax.runner.checks import Prepared
from dpjax.statistics.kinds import make_statistic

NORMS = {"features": 2.0, "target": 3.0}
FIXED = {"fixed": {"p": 0.2}}


def test_norms_and_averaged_rows_set_the_sensitivity_of_a_study():
    columns = {"target": "y", "features": ["x1", "x2"], "intercept": False, "scaling": None, "norms": NORMS}
    for averaged in (None, 5):
        design = study_design(
            features=2, intercept=False, norms=NORMS, averaged=averaged, mechanism="gaussian", delta=1e-6
        )
        alike = make_statistic("linear-regression", averaged=averaged or 1, **columns)
        assert design.statistic == alike and design.sensitivity == pytest.approx(alike.sensitivity("l2"))
        assert ("averages of 5" in design.describe()) == (averaged == 5)
        assert design.settings["model"]["norms"] == NORMS


@pytest.mark.parametrize(
    "options, match",
    [
        ({"norms": NORMS}, "norms is for a linear-regression without an intercept"),
        ({"model": "binomial", "averaged": 2}, "averaged is for a linear-regression without an intercept"),
        ({"norms": NORMS, "intercept": False, "bounds": (0, 1)}, "norms and bounds exclude each other"),
        ({"averaged": 2, "intercept": False}, "averaged needs norms"),
        ({"norms": NORMS, "intercept": False, "averaged": 2}, "use gaussian noise"),
        ({"options": {"norms": NORMS}}, "norms is not an option of a family"),
        ({"moments": 1}, "moments must be True or False"),
    ],
)
def test_what_no_study_has(options, match):
    with pytest.raises(InputError, match=match):
        study_design(**options)


def test_a_study_of_a_config_has_a_truth_and_may_be_like_a_release(tmp_path):
    release = dpjax.Release(make_statistic("binomial", target="y"), 50, {"successes": 20.0}, "laplace", 2.0)
    release.save(tmp_path / "release.json")
    (tmp_path / "truth.toml").write_text("[fixed]\np = 0.2\n")
    plain = {"records": 50, "epsilon": 1.0, "trials": 4, "methods": ["exact"]}
    path = tmp_path / "config.toml"

    def prepared(text):
        path.write_text('name = "study"\n[calibration]\nrecords = 50\nepsilon = 1.0\ntrials = 4\n' + text)
        typed, base = config.load(path)
        return Prepared(typed, base).design, fingerprint.fingerprint(typed, base).whole

    alike, first = prepared('like = "release.json"\ntruth = "truth.toml"\n')
    assert alike.statistic == release.statistic and alike.sensitivity == pytest.approx(2.0)
    assert "fixed" in alike.describe()
    (tmp_path / "truth.toml").write_text("[fixed]\np = 0.3\n")
    assert prepared('like = "release.json"\ntruth = "truth.toml"\n')[1] != first
    with pytest.raises(InputError, match="calibration: like: delta is that of the release"):
        prepared('like = "release.json"\ndelta = 0.1\n')
    typed, base = config.load({"name": "study", "calibration": plain | {"model": "binomial", "truth": FIXED}})
    assert "fixed" in Prepared(typed, base).design.describe()


def test_numbers_of_a_study_must_be_said_to_the_command(capsys):
    assert main(["calibrate", "binomial", "--records", "10"]) == 2
    assert "calibrate needs --epsilon" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    "options, method",
    [
        ({"intercept": False, "parties": 2, "squares": False}, "collapsed"),
        ({"parties": 2, "mechanism": "gaussian"}, "collapsed"),
        ({"moments": True}, "noisy"),
        ({"intercept": False, "norms": NORMS}, "collapsed"),
        ({"prior": {"sigma2_shape": 5.0}}, "collapsed"),
    ],
)
@pytest.mark.parametrize("trials", [None, 3])
def test_precompile_takes_what_a_study_takes(options, method, trials):
    assert precompile("linear-regression", trials=trials, chains=2, draws=20, **options).method == method


@pytest.mark.parametrize("options, match", [({"parties": 0}, "parties"), ({"moments_share": 0.5}, "moments_share")])
def test_precompile_refuses_what_a_study_refuses(options, match):
    with pytest.raises(InputError, match=match):
        precompile("linear-regression", **options)
