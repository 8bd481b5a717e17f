"""Figures are drawn without pyplot, show every method and parameter, and reject what does not fit."""

import dataclasses
import sys

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("arviz")

from dpjax.calibration.ranks import Ranks
from dpjax.calibration.result import Calibration
from dpjax.calibration.uniformity import binomial_band
from dpjax.errors import InputError
from dpjax.figures import posteriors as figures
from dpjax.figures import ranks, style, traces
from dpjax.figures import study as figures_study
from dpjax.figures.text import wrapped
from dpjax.inference.posterior import Posterior
from dpjax.runner import pictures as experiment
from dpjax.statistics.multinomial import MultinomialStatistic
from dpjax.statistics.regression import RegressionStatistic

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
    path = style.save_figure(figure, tmp_path / "a.png")
    assert path.read_bytes().startswith(PNG)
    with pytest.raises(InputError, match="--force"):
        style.save_figure(figure, path)
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
    figure = ranks.calibration_figure(pit, NAMES, records=1000, epsilon=0.1)
    assert legend(figure) == ["collapsed", "naive", "95% simultaneous band"]
    assert titles(figure) == list(NAMES) and len(figure.axes) == 10
    assert "n = 1,000" in figure.get_suptitle() and "300 trials" in figure.get_suptitle()
    # nothing is cut off: the curve of the badly calibrated method lies inside the axes
    lower = figure.axes[5]
    assert max(np.abs(line.get_ydata()).max() for line in lower.lines) <= lower.get_ylim()[1]
    assert style.save_figure(figure, tmp_path / "b.png").read_bytes().startswith(PNG)
    names = [f"p{k}" for k in range(7)]
    wide = ranks.calibration_figure({"x": rng.uniform(size=(50, 7))}, names, records=1, epsilon=1.0)
    assert titles(wide) == names
    with pytest.raises(InputError, match="pit"):
        ranks.calibration_figure({"x": np.zeros((3, 2))}, NAMES, records=1, epsilon=1.0)


def test_methods_have_different_colours():
    looks = style.method_looks(["collapsed", "gibbs", "non-private", "naive", "a", "b", "c"])
    assert len(set(looks.values())) == 7 and looks["collapsed"][0] == style.COLOURS[0]
    assert style.method_looks(["naive", "collapsed"])["naive"] == looks["naive"]


def study(method, ks, mmd, names=("p[0]", "p[1]"), rank=None):
    """A calibration over two numbers of records and two epsilons with given KS of its parameters."""
    row = {"ks_critical": 0.0784, "coverage": {"0.5": 0.4, "0.95": 0.8}}
    cells = [
        {
            "records": records, "epsilon": epsilon, "mmd": mmd,
            "trials": 299, "failed": 1, "reruns": int(records == 10),
            "parameters": {name: {"ks": ks / records**0.5, **row} for name in names},
        }
        for records in (10, 1000) for epsilon in (0.01, 0.1)
    ]  # fmt: skip
    cells[1]["parameters"] = {}  # every trial of a cell may have failed
    trials = 0 if rank is None else 20
    pit = np.full((trials, len(names)), rank)
    return Calibration(method, cells, [Ranks(names, pit, pit, 100)] * 4, 9.0, 1.0, 3.0, 1.0, 600, {})


def test_study_figures(tmp_path):
    found = {"collapsed": study("collapsed", 0.1, 0.2), "naive": study("naive", 2.0, -1e-4)}
    found["non-private"] = study("non-private", 0.1, None)
    figure = figures_study.ks_figure(found)
    assert len(figure.axes) == 4 and titles(figure) == ["epsilon = 0.01", "epsilon = 0.1"]
    assert legend(figure) == [*found, "5% critical value"] and "299 trials" in figure.get_suptitle()
    lines = {line.get_color(): line for line in figure.axes[0].lines}
    np.testing.assert_allclose(lines[style.method_looks(found)["naive"][0]].get_ydata(), [2 / 10**0.5, 2 / 1000**0.5])
    np.testing.assert_allclose(lines[style.GREY].get_ydata(), 0.0784)
    assert [len(line.get_xdata()) for line in figure.axes[1].lines] == [1, 1, 1, 1]  # the failed cell is left out
    assert style.save_figure(figure, tmp_path / "ks.png").read_bytes().startswith(PNG)
    figure = figures_study.mmd_figure(found)
    assert len(figure.axes) == 2 and legend(figure) == ["collapsed", "naive"]
    assert style.save_figure(figure, tmp_path / "mmd.png").read_bytes().startswith(PNG)
    only = figures_study.ks_figure(found, parameters=["p[1]"])
    assert len(only.axes) == 2
    for bad in ({}, {"non-private": found["non-private"]}):
        with pytest.raises(InputError, match="at least one"):
            figures_study.mmd_figure(bad)
    found["naive"].cells[0]["records"] = 11
    with pytest.raises(InputError, match="same records"):
        figures_study.ks_figure(found)


def test_coverage_figure(tmp_path):
    found = {"naive": study("naive", 2.0, 0.0), "collapsed": study("collapsed", 0.1, 0.2)}
    figure = figures_study.coverage_figure(found)
    assert legend(figure) == [*found, "99% band of a point"] and "95% intervals: 299 trials" in figure.get_suptitle()
    assert len(figure.axes) == 4 and figure.axes[0].get_ylabel() == "p[0]"
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), [0.8, 0.8])
    band = figure.axes[0].patches[0].get_extents().transformed(figure.axes[0].transData.inverted())
    np.testing.assert_allclose([band.y0, band.y1], binomial_band(299, 0.95, 0.99))
    half = figures_study.coverage_figure(found, level="0.5", parameters=["p[1]"])
    np.testing.assert_allclose(half.axes[0].lines[0].get_ydata(), [0.4, 0.4])
    assert style.save_figure(figure, tmp_path / "coverage.png").read_bytes().startswith(PNG)
    with pytest.raises(InputError, match="level must be one of"):
        figures_study.coverage_figure(found, level="0.99")


def test_methods_that_report_other_parameters():
    """Every parameter is shown, with the methods that report it."""
    found = {
        "prior": study("prior", 1.0, None, names=("p[0]",), rank=0.25),
        "naive": study("naive", 2.0, None, rank=0.5),
    }
    for drawn in (figures_study.ks_figure(found), figures_study.coverage_figure(found)):
        assert [axis.get_ylabel().removeprefix("KS of ") for axis in drawn.axes[::2]] == ["p[0]", "p[1]"]
        colours = [{line.get_color() for line in axis.lines} for axis in drawn.axes[::2]]
        looks = style.method_looks(found)
        assert looks["prior"][0] in colours[0] - colours[1] and looks["naive"][0] in colours[1]
    pictures = dict(experiment.calibration_figures(found))
    upper = pictures["n10_eps0.01"].axes[:2]
    assert [axis.get_title() for axis in upper] == ["p[0]", "p[1]"]
    assert [[line.get_ydata()[0] for line in axis.lines[1:]] for axis in upper] == [[0.25, 0.5], [0.5]]


def test_seconds_figure():
    item = study("collapsed", 0.1, 0.2)
    assert figures_study.seconds_by_records(item) == {}
    # one compiled call: 6 s over 1,200 problems, and 3 s of reruns, all of them at 10 records
    item.settings["run"] = {"lanes_per_block": 512}
    assert figures_study.seconds_by_records(item) == pytest.approx({10: 0.005 + 3 / 600, 1000: 0.005})
    loop = study("individual", 0.1, 0.2)
    loop.settings["run"] = {"problem_seconds": [1.0] * 600 + [2.0] * 600}
    assert figures_study.seconds_by_records(loop) == pytest.approx({10: 1.0, 1000: 2.0})
    figure = figures_study.seconds_figure(
        {"individual": {10: 1.0, 1000: 2.0}, "a": {}, "collapsed": {10: 0.1, 1000: 0.1}}
    )
    assert legend(figure) == ["individual", "collapsed"]
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_ydata(), [1.0, 2.0])
    assert [name for name, _ in experiment.study_figures({"collapsed": item})] == ["ks", "coverage", "mmd", "seconds"]
    with pytest.raises(InputError, match="at least one method"):
        figures_study.seconds_figure({"a": {}})


def test_traces_figure():
    found = {"gibbs": make("gibbs"), "collapsed": make("collapsed")}
    figure = traces.traces_figure(found, parameters=["theta[1]", "sigma2"])
    assert titles(figure) == ["gibbs", "collapsed"] and len(figure.axes) == 4
    first = figure.axes[0].lines
    np.testing.assert_array_equal(first[1].get_ydata(), found["gibbs"].user_draws[1, :, 1])
    assert len(first) == 2 and "200 draws" in figure.get_suptitle()
    with pytest.raises(InputError):
        traces.traces_figure({})


def inside(figure):
    """Whether every text of the figure lies inside of it, drawn."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    texts = [figure._suptitle, *(axis.title for axis in figure.axes)]
    texts += [text for one in figure.legends for text in one.get_texts()]
    boxes = [text.get_window_extent(renderer) for text in texts if text.get_text()]
    width = figure.get_figwidth() * figure.dpi
    return all(box.x0 >= 0 and box.x1 <= width and box.y1 <= figure.get_figheight() * figure.dpi for box in boxes)


LONG = "number of hours that a person in the household spent at work in the last full week before the interview"


@pytest.mark.slow
def test_titles_fit_the_figure():
    statistic = RegressionStatistic((LONG,), "y" * 130, {LONG: (0.0, 80.0), "y" * 130: (0.0, 1.0)}, "bounds-to-[-1,1]")
    found = {m: dataclasses.replace(make(m), statistic=statistic, epsilon=0.01234567) for m in ("collapsed", "gibbs")}
    found["gibbs"] = dataclasses.replace(found["gibbs"], mechanism="discrete-laplace, gaussian, laplace", records=10**9)
    for shown in (found, {"collapsed": found["collapsed"]}):
        for parameters in (None, ["theta[1]"], ["sigma2"]):
            assert inside(figures.posteriors_figure(shown, parameters=parameters))
            assert inside(traces.traces_figure(shown, parameters=parameters))
    rng = np.random.default_rng(0)
    one = ranks.calibration_figure({"x": rng.uniform(size=(50, 1))}, ["p"], records=10**12, epsilon=1.23456e-5)
    assert inside(one) and "\n" in one.get_suptitle()
    plain = figures.posteriors_figure({"collapsed": make("collapsed")})
    assert "\n" not in plain.get_suptitle()  # what fits stays on one line
    assert "".join(wrapped(plain, LONG, 11.0, 2.0).split()) == LONG.replace(" ", "")
    assert wrapped(plain, "a $b$ c", 11.0, 2.0) == r"a \$b\$ c"


def test_two_releases_are_not_titled_by_the_first():
    one, other = make("collapsed"), dataclasses.replace(make("collapsed"), epsilon=3.0)
    for draw in (figures.posteriors_figure, traces.traces_figure):
        figure = draw({"a": one, "b": other})
        assert "epsilon" not in figure.get_suptitle() and "n = 442" in figure.get_suptitle()
    names = legend(figures.posteriors_figure({"a": one, "b": other}))
    assert names == ["a (epsilon = 0.5)", "b (epsilon = 3)", "prior"]
    assert titles(figure) == ["a (epsilon = 0.5)", "b (epsilon = 3)"]
    unknown = figures.posteriors_figure({"a": dataclasses.replace(one, epsilon=float("nan"))})
    assert "epsilon not stated" in unknown.get_suptitle()


def test_shares_of_categories_are_on_one_axis():
    statistic = MultinomialStatistic(labels=("red", "green", "$", "a" * 60, "e", "f"), column="party")
    draws = np.random.default_rng(0).dirichlet(np.array([30, 50, 10, 5, 2, 1.0]), size=(2, 200))
    one = dataclasses.replace(make("collapsed"), statistic=statistic, names=statistic.parameter_names, draws=draws,
                              prior_draws=None)  # fmt: skip
    figure = figures.posteriors_figure({"collapsed": one, "gibbs": one})
    (axis,) = figure.axes
    assert axis.get_title() == "p  (shares of party)"
    labels = [text.get_text() for text in axis.get_yticklabels()]
    assert labels == ["red", "green", r"\$", "a" * 29 + "…", "e", "f"] and np.all(np.diff(axis.get_yticks()) < 0)
    medians = [line.get_xdata()[0] for line in axis.lines if len(line.get_xdata()) == 1]
    np.testing.assert_allclose(medians[::2], np.median(draws.reshape(-1, 6), axis=0))
    assert titles(figures.posteriors_figure({"a": one}, parameters=["p[1]"])) == ["p[1]  (share of party = green)"]
    many = MultinomialStatistic(categories=80, column="c")
    shares = np.random.default_rng(0).dirichlet(np.arange(1.0, 81), size=(2, 50))
    one = dataclasses.replace(one, statistic=many, names=many.parameter_names, draws=shares)
    (title,) = titles(figures.posteriors_figure({"a": one}))
    assert title == "p  (shares of c), the largest 30 of 80"
    assert len(traces.traces_figure({"a": one}).axes) == 30


def prior_line(posterior):
    (axis,) = figures.posteriors_figure({"collapsed": posterior}, parameters=["mu_x[1]"]).axes
    (line,) = [line for line in axis.lines if line.get_color() == style.GREY]
    return line.get_ydata()


def test_a_wide_prior_is_low():
    """The prior is on the scale of the posterior: both densities are known here, normal with sd 1 and 10 (or .2)."""
    posterior = make("collapsed")
    rng = np.random.default_rng(0)
    statistic = RegressionStatistic(("bmi",), "progression")
    of = lambda sd: dataclasses.replace(posterior, statistic=statistic, prior_draws=rng.normal(size=(5000, 5)) * sd)
    assert prior_line(of(10.0)).max() == pytest.approx(0.72 / 10, rel=0.15)
    assert prior_line(of(1000.0)).max() < 0.01
    assert prior_line(of(0.2)).max() == pytest.approx(0.72 * 1.15)  # cut off at the height of the row
