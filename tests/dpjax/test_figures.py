"""Figures are drawn without pyplot, show every method and parameter, and reject what does not fit."""

import sys

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("arviz")

from dpjax import figures
from dpjax.errors import InputError
from dpjax.posterior import Posterior

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
        features=("bmi",),
        target="progression",
        bounds={"bmi": (15.0, 45.0), "progression": (0.0, 350.0)},
        scaling="bounds-to-[-1,1]",
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
    looks = figures._looks(["collapsed", "gibbs", "non-private", "naive", "a", "b", "c"])
    assert len(set(looks.values())) == 7 and looks["collapsed"][0] == figures.COLOURS[0]
    assert figures._looks(["naive", "collapsed"])["naive"] == looks["naive"]
