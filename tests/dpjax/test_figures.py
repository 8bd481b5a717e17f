"""Figures are drawn without pyplot, show every method and parameter, and reject what does not fit."""

import sys

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("arviz")

from dpjax import figures, figures_study
from dpjax.calibration import Calibration
from dpjax.calibration_statistics import Ranks
from dpjax.errors import InputError
from dpjax.posterior import Posterior
from dpjax.statistics import RegressionStatistic

NAMES = ("theta[0]", "theta[1]", "sigma2", "mu_x[1]", "tau2[1,1]")
PNG = b"\x89PNG\r\n\x1a\n"


def make(method, scale=1.0, constant=False):
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(2, 200, 5)) * scale
    if constant:
        draws[..., 2] = 0.5
    return Posterior(
        draws=draws,
        names=NAMES,
        statistic=RegressionStatistic(
            ("bmi",), "progression", {"bmi": (15.0, 45.0), "progression": (0.0, 350.0)}, "bounds-to-[-1,1]"
        ),
        records=442,
        epsilon=0.5,
        delta=0.0,
        mechanism="laplace",
        adjacency="replace-one",
        method=method,
        seconds=1.0,
        codes=np.zeros(2, dtype=int),
        prior={},
        prior_draws=rng.standard_cauchy(size=(1000, 5)),
    )


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def titles(figure):
    return [axis.get_title() for axis in figure.axes if axis.get_title()]


def test_posteriors_figure(tmp_path):
    methods = ("non-private", "naive", "gibbs", "collapsed", "my own")
    found = {m: make(m, scale=0.2 * (i + 1), constant=m == "naive") for i, m in enumerate(methods)}
    before = "matplotlib.pyplot" in sys.modules
    figure = figures.posteriors_figure(found)
    assert legend(figure) == [*methods, "prior"]
    assert titles(figure) == [
        "theta[0]  (intercept)", "theta[1]  (bmi)", "sigma2  (residual variance)", "mu_x[1]  (mean of bmi)",
        "tau2[1,1]  (variance of bmi)",
    ]  # fmt: skip
    title = figure.get_suptitle()
    assert "n = 442" in title and "epsilon = 0.5" in title and "90%" in title
    path = figures.save_figure(figure, tmp_path / "a.png")
    assert path.read_bytes().startswith(PNG)
    with pytest.raises(InputError, match="--force"):
        figures.save_figure(figure, path)
    assert ("matplotlib.pyplot" in sys.modules) == before
    # the interval that is drawn is the 5% to 95% quantile, in the user's units
    low, high = np.quantile(found["collapsed"].user_draws[..., 1], [0.05, 0.95])
    drawn = [line.get_xdata() for line in figure.axes[1].lines if len(line.get_xdata()) == 2]
    assert any(np.allclose(pair, [low, high]) for pair in drawn)
    small = figures.posteriors_figure(found, scaled=True, parameters=["sigma2"])
    assert titles(small) == ["sigma2  (residual variance)"]
    with pytest.raises(InputError, match="nothing is not one of"):
        figures.posteriors_figure(found, parameters=["nothing"])
    with pytest.raises(InputError):
        figures.posteriors_figure({})


def test_calibration_figure(tmp_path):
    rng = np.random.default_rng(1)
    pit = {"collapsed": rng.uniform(size=(300, 5)), "naive": rng.beta(0.4, 0.4, size=(300, 5))}
    figure = figures.calibration_figure(pit, NAMES, records=1000, epsilon=0.1)
    assert legend(figure) == ["collapsed", "naive", "95% simultaneous band"]
    assert titles(figure) == list(NAMES) and len(figure.axes) == 10
    assert "n = 1,000" in figure.get_suptitle() and "300 trials" in figure.get_suptitle()
    # nothing is cut off: the curve of the badly calibrated method lies inside the axes
    lower = figure.axes[5]
    assert max(np.abs(line.get_ydata()).max() for line in lower.lines) <= lower.get_ylim()[1]
    assert figures.save_figure(figure, tmp_path / "b.png").read_bytes().startswith(PNG)
    names = [f"p{k}" for k in range(7)]
    wide = figures.calibration_figure({"x": rng.uniform(size=(50, 7))}, names, records=1, epsilon=1.0)
    assert titles(wide) == names
    with pytest.raises(InputError, match="pit"):
        figures.calibration_figure({"x": np.zeros((3, 2))}, NAMES, records=1, epsilon=1.0)


def test_methods_have_different_colours():
    looks = figures.method_looks(["collapsed", "gibbs", "non-private", "naive", "a", "b", "c"])
    assert len(set(looks.values())) == 7 and looks["collapsed"][0] == figures.COLOURS[0]
    assert figures.method_looks(["naive", "collapsed"])["naive"] == looks["naive"]


def study(method, ks, mmd):
    """A calibration over two numbers of records and two epsilons with given KS of two parameters."""
    cells = [
        {
            "records": records, "epsilon": epsilon, "trials": 300, "mmd": mmd,
            "parameters": {name: {"ks": ks / records**0.5, "ks_critical": 0.0784} for name in ("p[0]", "p[1]")},
        }
        for records in (10, 1000) for epsilon in (0.01, 0.1)
    ]  # fmt: skip
    cells[1]["parameters"] = {}  # every trial of a cell may have failed
    empty = Ranks(("p[0]", "p[1]"), np.zeros((0, 2)), np.zeros((0, 2)), 100)
    return Calibration(method, cells, [empty] * 4, 1.0, 1.0, 0.0, 1.0, 600, {})


def test_study_figures(tmp_path):
    found = {"collapsed": study("collapsed", 0.1, 0.2), "naive": study("naive", 2.0, -1e-4)}
    found["non-private"] = study("non-private", 0.1, None)
    figure = figures_study.ks_figure(found)
    assert len(figure.axes) == 4 and titles(figure) == ["epsilon = 0.01", "epsilon = 0.1"]
    assert legend(figure) == [*found, "5% critical value"] and "300 trials" in figure.get_suptitle()
    lines = {line.get_color(): line for line in figure.axes[0].lines}
    np.testing.assert_allclose(lines[figures.method_looks(found)["naive"][0]].get_ydata(), [2 / 10**0.5, 2 / 1000**0.5])
    np.testing.assert_allclose(lines[figures.GREY].get_ydata(), 0.0784)
    assert [len(line.get_xdata()) for line in figure.axes[1].lines] == [1, 1, 1, 1]  # the failed cell is left out
    assert figures.save_figure(figure, tmp_path / "ks.png").read_bytes().startswith(PNG)
    figure = figures_study.mmd_figure(found)
    assert len(figure.axes) == 2 and legend(figure) == ["collapsed", "naive"]
    assert figures.save_figure(figure, tmp_path / "mmd.png").read_bytes().startswith(PNG)
    only = figures_study.ks_figure(found, parameters=["p[1]"])
    assert len(only.axes) == 2
    for bad in ({}, {"non-private": found["non-private"]}):
        with pytest.raises(InputError, match="at least one"):
            figures_study.mmd_figure(bad)
    found["naive"].cells[0]["records"] = 11
    with pytest.raises(InputError, match="same records"):
        figures_study.ks_figure(found)


def test_traces_figure():
    found = {"gibbs": make("gibbs"), "collapsed": make("collapsed")}
    figure = figures_study.traces_figure(found, parameters=["theta[1]", "sigma2"])
    assert titles(figure) == ["gibbs", "collapsed"] and len(figure.axes) == 4
    first = figure.axes[0].lines
    np.testing.assert_array_equal(first[1].get_ydata(), found["gibbs"].user_draws[1, :, 1])
    assert len(first) == 2 and "200 draws" in figure.get_suptitle()
    with pytest.raises(InputError):
        figures_study.traces_figure({})
