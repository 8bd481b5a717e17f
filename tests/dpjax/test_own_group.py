"""A group of models of one's own (own_group.py): release, file, fit, calibration and command line take it as it is."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import dpjax
from dpjax.cli.app import main
from dpjax.cli.loading import load_python
from dpjax.errors import InputError, PrivacyWarning
from dpjax.models import ModelGroup, making, register
from dpjax.statistics import kinds
from dpjax.statistics.base import Statistic
from dpjax.statistics.group import StatisticGroup

FILE = Path(__file__).with_name("own_group.py")
BOUNDS, RECORDS = (-5.0, 10.0), 400


@pytest.fixture(autouse=True)
def own_group():
    groups, models = list(kinds.GROUPS), list(making.GROUPS)
    load_python(FILE)
    yield
    kinds.GROUPS[:], making.GROUPS[:] = groups, models


def release(**changes):
    x = np.random.default_rng(0).normal(3.0, 1.0, RECORDS)
    given = {"model": "normal-mean", "target": "x", "bounds": {"x": BOUNDS}, "sd": 1.0, "epsilon": 1.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return dpjax.release({"x": x}, **(given | changes))


def reference(one):
    """Mean and sd of mu by quadrature over mu and the noise: z = n mu + sqrt(n) sd e + Laplace noise."""
    z, b = one.z[0], one.scale[0]
    mu = np.linspace(z / RECORDS - 1.0, z / RECORDS + 1.0, 1201)
    off = np.linspace(-12.0, 12.0, 2001) * np.sqrt(RECORDS)
    within = stats.norm.pdf(off, scale=np.sqrt(RECORDS))
    likelihood = np.array([np.trapezoid(within * stats.laplace.pdf(z - RECORDS * m - off, scale=b), off) for m in mu])
    weight = likelihood * stats.norm.pdf(mu, 2.5, 15.0)
    weight /= weight.sum()
    mean = (weight * mu).sum()
    return mean, np.sqrt((weight * (mu - mean) ** 2).sum())


@pytest.mark.slow
def test_fit_is_the_exact_posterior_and_files_keep_it(tmp_path):
    one = release()
    assert one.privacy.sensitivity == pytest.approx(15.0, rel=1e-9)
    one.save(tmp_path / "r.json")
    assert dpjax.Release.load(tmp_path / "r.json").to_dict() == one.to_dict()
    posterior = dpjax.fit(one)
    mean, sd = reference(one)
    row = posterior.summary()["parameters"]["mu"]
    assert row["mean"] == pytest.approx(mean, abs=1e-4) and row["sd"] == pytest.approx(sd, rel=1e-3)
    again = dpjax.load_posterior(posterior.save(tmp_path / "p.nc"))
    assert again.table() == posterior.table() and again.statistic == posterior.statistic


@pytest.mark.slow
def test_it_is_calibrated_and_sampled():
    study = dpjax.calibrate(
        model="normal-mean", bounds=BOUNDS, options={"sd": 1.0}, records=RECORDS, epsilon=1.0, trials=2000
    )
    assert "not rejected" in study.table() and study.cells[0]["parameters"]["mu"]["ks"] < 1.63 / np.sqrt(2000)
    one = release()
    mean, sd = reference(one)
    draws = dpjax.fit(one, method="collapsed", seed=1).draws[..., 0]
    assert draws.mean() == pytest.approx(mean, abs=5 * sd / np.sqrt(1000)) and draws.std() == pytest.approx(sd, rel=0.1)


def test_what_it_has_not_is_refused():
    with pytest.raises(InputError, match="'naive' is for models whose parameters can be drawn given the exact sums"):
        dpjax.fit(release(), method="naive")
    with pytest.raises(InputError, match=r"gibbs.*are not for it; collapsed is"):
        dpjax.fit(release(), method="gibbs")
    with pytest.raises(InputError, match="shape has no place in a release of normal-mean"):
        release(shape=2.0)
    with pytest.raises(InputError, match="features has no place in a release of normal-mean"):
        release(features=["x"])


def test_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("x\n" + "\n".join(map(repr, np.random.default_rng(1).normal(3, 1, 50).tolist())))
    own = ["--load", str(FILE)]
    words = ["--model", "normal-mean", "--target", "x", "--bounds", "x=-5:10", "--option", "sd=1", "--epsilon", "1"]
    assert main([*own, "release", "t.csv", *words, "--output", "r.json"]) == 0
    assert json.loads(Path("r.json").read_text())["model"] == {"kind": "normal-mean", "sd": 1.0, "column": "x"}
    assert main([*own, "check", "r.json"]) == 0 and "standard deviation 1" in capsys.readouterr().out
    assert main([*own, "fit", "r.json", "--json", "s.json"]) == 0
    assert "mu         mean of x" in capsys.readouterr().out


def test_names_are_taken_once():
    class Other(StatisticGroup):
        def kinds(self):
            return ("normal-mean",)

    with pytest.raises(InputError, match="there is a model called 'normal-mean' already"):
        kinds.register(Other())
    with pytest.raises(InputError, match=r"must be a dpjax\.statistics\.group\.StatisticGroup"):
        kinds.register.__wrapped__("normal-mean")
    of_regressions = type("Another", (making.ProductStatistic,), {})
    with pytest.raises(InputError, match="a Another has a model already"):
        register(ModelGroup(of_regressions, lambda *_: None))
    with pytest.raises(InputError, match="there is no model of a Unknown"):
        making.model_for(type("Unknown", (Statistic,), {})())
