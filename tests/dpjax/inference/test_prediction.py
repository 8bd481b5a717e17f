"""Predictions: closed forms, units, row order, files, the command, and every mistake."""

import csv
import json
import subprocess
import sys
import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import dpjax
from dpjax.cli.app import main
from dpjax.errors import ConvergenceWarning, InputError
from dpjax.inference import predictive
from dpjax.inference.posterior import Posterior
from dpjax.inference.posterior_file import load_posterior
from dpjax.inference.predictive import RegressionPosterior
from dpjax.statistics.multinomial import MultinomialStatistic
from dpjax.statistics.regression import RegressionStatistic

SCALING = "bounds-to-[-1,1]"
BOUNDS = {"bmi": (15.0, 45.0), "blood pressure": (-3.0, 1.0), "progression": (0.0, 350.0)}
STATISTIC = RegressionStatistic(("bmi", "blood pressure"), "progression", BOUNDS, SCALING)
SECRET = "27.391846"
NEW = {"bmi": np.array([20.0, 30.0, 40.0]), "blood pressure": np.array([0.5, -1.0, 0.0])}


def made(theta, sigma2, features):
    """A posterior of these draws, theta [C, S, p + 1] and sigma2 [C, S], in raw units without bounds."""
    statistic = RegressionStatistic(features, "y")
    return RegressionPosterior(theta=theta, sigma2=sigma2, statistic=statistic, method="collapsed", converged=True)


def fitted(statistic=STATISTIC, chains=4, length=300, seed=0, **changes):
    """The result of a fit: scaled draws of two features."""
    rng = np.random.default_rng(seed)
    p = statistic.p
    shape = (chains, length)
    theta = np.array([0.05, 0.8, -0.3])[: p + 1] + 0.1 * rng.normal(size=(*shape, p + 1))
    rest = rng.gamma(4.0, 0.25, size=(*shape, p + p * (p + 1) // 2))
    fields = dict(
        draws=np.concatenate([theta, rng.gamma(30.0, 0.005, size=(*shape, 1)), rest], axis=-1),
        names=statistic.parameter_names,
        statistic=statistic,
        records=442,
        epsilon=1.0,
        delta=0.0,
        mechanism="laplace",
        adjacency="replace-one",
        method="collapsed",
        seconds=1.25,
        codes=np.zeros(chains, dtype=int),
        prior={},
    )
    return Posterior(**{**fields, **changes})


def quantile_error(law, q, draws):
    """Monte Carlo standard error of a quantile of independent draws."""
    return np.sqrt(q * (1 - q) / draws) / law.pdf(law.ppf(q))


# --- closed forms ---


def test_fixed_parameters_give_normal_quantiles():
    theta, sigma = np.array([2.0, -1.0, 0.5]), 1.7
    posterior = made(np.tile(theta, (4, 2000, 1)), np.full((4, 2000), sigma**2), ("x1", "x2"))
    x = np.random.default_rng(0).normal(size=(100, 2)) * 5
    found = posterior.predict({"x1": x[:, 0], "x2": x[:, 1]}, level=[0.5, 0.9, 0.99], seed=1)
    line = theta[0] + x @ theta[1:]
    np.testing.assert_allclose(found.mean, line, rtol=1e-12)
    np.testing.assert_allclose(found.sd, sigma, rtol=1e-12)
    np.testing.assert_allclose(found.line_sd, 0.0, atol=1e-12)
    for level, ends in found.quantiles.items():
        np.testing.assert_allclose(ends.line_low, line, rtol=1e-12)
        np.testing.assert_allclose(ends.line_high, line, rtol=1e-12)
        for q, values in (((1 - level) / 2, ends.low), ((1 + level) / 2, ends.high)):
            law = stats.norm(0, sigma)
            z = (values - line - law.ppf(q)) / quantile_error(law, q, 8000)
            assert np.abs(z).max() < 4.5  # of 100 independent rows
            assert abs(z.mean()) < 0.45 and 0.7 < z.std() < 1.3


def test_conjugate_posterior_gives_student_t():
    """Normal-inverse-gamma with intercept and slope: y at x is Student t with 2a degrees of freedom, scale^2
    b / a (1 + (1, x) V (1, x)'), and so is the line without the 1."""
    rng = np.random.default_rng(2)
    a, b, m, chains, length = 3.0, 2.0, np.array([1.0, -2.0]), 40, 1000
    v = np.array([[0.5, -0.2], [-0.2, 0.3]])
    sigma2 = b / rng.gamma(a, size=(chains, length))
    theta = m + np.sqrt(sigma2)[..., None] * (rng.normal(size=(chains, length, 2)) @ np.linalg.cholesky(v).T)
    x = np.array([-3.0, 0.0, 0.7, 10.0])
    found = made(theta, sigma2, ("x1",)).predict({"x1": x}, level=[0.5, 0.9], seed=3)
    design = np.stack([np.ones(4), x], axis=1)
    spread = np.einsum("ri,ij,rj->r", design, v, design)
    for level, ends in found.quantiles.items():
        tails = (1 - level) / 2, (1 + level) / 2
        for extra, low, high in ((1.0, ends.low, ends.high), (0.0, ends.line_low, ends.line_high)):
            law = stats.t(2 * a, design @ m, np.sqrt(b / a * (extra + spread)))
            for q, values in zip(tails, (low, high), strict=True):
                z = (values - law.ppf(q)) / quantile_error(law, q, chains * length)
                assert np.abs(z).max() < 4, (level, extra, q, z)
    sd = np.sqrt(b / (a - 1) * (1 + spread))  # errors from the spread of the chains
    by_chain = (found.draws.reshape(chains, length, 4) - design @ m) ** 2
    error = by_chain.mean(axis=1).std(axis=0, ddof=1) / np.sqrt(chains) / (2 * sd)
    assert (np.abs(found.sd - sd) < 4 * error).all()
    error = found.draws.reshape(chains, length, 4).mean(axis=1).std(axis=0, ddof=1) / np.sqrt(chains)
    assert (np.abs(found.mean - design @ m) < 4 * error).all()


def test_residuals_are_independent_over_rows_and_parameters_are_shared():
    rng = np.random.default_rng(4)
    theta = np.concatenate([rng.normal(size=(1, 20_000, 1)), np.zeros((1, 20_000, 1))], axis=-1)
    draws = made(theta, np.full((1, 20_000), 3.0), ("x1",)).predict({"x1": np.arange(30.0)}).draws
    assert predictive.BLOCK_NUMBERS // 20_000 < 15  # and so in several blocks
    correlation = np.corrcoef(draws.T)[np.triu_indices(30, 1)]
    np.testing.assert_allclose(correlation, 0.25, atol=4.5 / np.sqrt(20_000))


# --- blocks, rows, seeds ---


def test_intervals_are_quantiles_of_the_draws():
    posterior = RegressionPosterior.of(fitted(length=500))
    x = np.random.default_rng(5).uniform(-1, 1, size=(300, 2))  # several blocks
    assert predictive.BLOCK_NUMBERS // 2000 < 150
    rows = {"bmi": 30 + 15 * x[:, 0], "blood pressure": -1 + 2 * x[:, 1]}
    found = posterior.predict(rows, level=[0.9, 0.3], seed=6)
    assert found.draws.shape == (2000, 300)
    theta = posterior.theta.reshape(-1, 3)
    line = theta[:, :1] + theta[:, 1:] @ np.stack([*rows.values()])
    np.testing.assert_allclose(found.mean, line.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.line_sd, line.std(axis=0), rtol=1e-9)
    for level in (0.9, 0.3, 0.995):  # the last was not asked for
        tails = [(1 - level) / 2, (1 + level) / 2]
        ends = found.intervals(level)
        np.testing.assert_allclose([ends.low, ends.high], np.quantile(found.draws, tails, axis=0), rtol=1e-12)
        np.testing.assert_allclose([ends.line_low, ends.line_high], np.quantile(line, tails, axis=0), rtol=1e-12)
    assert found.intervals(0.9) is found.quantiles[0.9] and list(found.quantiles) == [0.9, 0.3]
    np.testing.assert_array_equal(posterior.predict(rows, level=0.995, seed=6).quantiles[0.995], ends)
    # a row's draws depend on neither the rows after it nor, but for their number, on those before
    fewer = posterior.predict({name: values[:200] for name, values in rows.items()}, seed=6)
    np.testing.assert_array_equal(fewer.draws, found.draws[:, :200])
    np.testing.assert_array_equal(posterior.predict(rows, seed=6).draws, found.draws)
    assert (posterior.predict(rows, seed=7).draws != found.draws).all()


def test_rows_keep_their_order():
    posterior = fitted()
    x = np.random.default_rng(7).uniform(-1, 1, size=(500, 2))
    order = np.random.default_rng(8).permutation(500)
    rows = {"bmi": 30 + 15 * x[:, 0], "blood pressure": -1 + 2 * x[:, 1]}
    found = posterior.predict(rows)
    moved = posterior.predict({name: values[order] for name, values in rows.items()})
    np.testing.assert_array_equal(moved.mean, found.mean[order])
    np.testing.assert_array_equal(moved.sd, found.sd[order])
    np.testing.assert_array_equal(moved.intervals().line_low, found.intervals().line_low[order])
    np.testing.assert_array_equal(moved.columns()["bmi"], rows["bmi"][order])
    # residuals belong to places: intervals of y are those of the rows up to Monte Carlo error
    width = found.intervals().high - found.intervals().low
    assert (np.abs(moved.intervals().high - found.intervals().high[order]) / width).max() < 0.2


def test_memory_does_not_hold_rows_times_draws(monkeypatch):
    monkeypatch.setattr(predictive, "BLOCK_NUMBERS", 2**14)
    posterior = RegressionPosterior.of(fitted(length=250))
    rows = {"bmi": np.full(4000, 20.0), "blood pressure": np.zeros(4000)}
    tracemalloc.start()
    posterior.predict(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e6 < 4000 * 1000 * 8


# --- units ---


def test_scaled_release_is_predicted_in_the_users_units():
    """The same draws predict in scaled units at scaled features; the target is mapped back."""
    user = fitted()
    raw = fitted(statistic=RegressionStatistic(("bmi", "blood pressure"), "progression"))
    np.testing.assert_array_equal(user.draws, raw.draws)
    scaled = {name: 2 * (v - BOUNDS[name][0]) / (BOUNDS[name][1] - BOUNDS[name][0]) - 1 for name, v in NEW.items()}
    found, unit = user.predict(NEW, seed=9), raw.predict(scaled, seed=9)
    np.testing.assert_allclose(found.draws, 175 + 175 * unit.draws, rtol=1e-9)
    np.testing.assert_allclose(found.mean, 175 + 175 * unit.mean, rtol=1e-9)
    np.testing.assert_allclose(found.sd, 175 * unit.sd, rtol=1e-9)
    np.testing.assert_allclose(found.intervals(), 175 + 175 * np.array(unit.intervals()), rtol=1e-9)
    assert found.notes() == unit.notes() == []


# --- tables of new rows ---


def test_forms_of_tables(tmp_path):
    pandas = pytest.importorskip("pandas")
    posterior = fitted()
    expected = posterior.predict(NEW)
    frame = pandas.DataFrame({"who": ["a", "b", "c"], "blood pressure": NEW["blood pressure"], "bmi": NEW["bmi"]})
    frame.to_csv(tmp_path / "new.csv", index=False)
    for table in (frame, tmp_path / "new.csv", frame.to_records(), {**NEW, "other": [None, "x"]}):
        np.testing.assert_array_equal(posterior.predict(table).draws, expected.draws)


def test_rows_without_a_table():
    """A number, a vector, a dict of numbers: what people try first."""
    pandas = pytest.importorskip("pandas")
    one = fitted(statistic=RegressionStatistic(("bmi",), "y"))
    expected = one.predict({"bmi": [20.0, 30.0]})
    for new in ([20.0, 30], np.array([20, 30]), pandas.Series([20.0, 30.0]), (20, 30)):
        np.testing.assert_array_equal(one.predict(new).draws, expected.draws)
    for new in (20, 20.0, np.float32(20), np.array(20.0), {"bmi": 20}, [20.0], pandas.Series({"bmi": 20.0})):
        np.testing.assert_array_equal(one.predict(new).mean, expected.mean[:1])
    two = fitted()
    for new in ({"bmi": 20.0, "blood pressure": 0.5}, pandas.Series({"bmi": 20.0, "blood pressure": 0.5})):
        np.testing.assert_array_equal(two.predict(new).mean, two.predict(NEW).mean[:1])
    constant = two.predict({"bmi": [20.0, 30.0], "blood pressure": -1})
    np.testing.assert_array_equal(constant.x, [[20.0, -1.0], [30.0, -1.0]])
    for bad in (True, "nowhere.csv", [True], [[20.0, 30.0]], [], {"bmi": True}, {"other": 3.0}, np.nan, ["a"]):
        with pytest.raises(InputError, match="new rows: "):
            one.predict(bad)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"bmi": None}, "new rows: column 'bmi' is not in the table"),
        ({"bmi": [1.0, np.nan, 2.0]}, "column 'bmi' has missing values"),
        ({"bmi": ["a", "b", "c"]}, "column 'bmi' does not hold numbers only"),
        ({"bmi": [1.0, 2.0]}, "differ in length"),
        ({"bmi": [1e308, 1.0, 1.0]}, "so large"),
        ({"bmi": [], "blood pressure": []}, "no records"),
    ],
)
def test_rows_that_cannot_be_used(change, match):
    table = {name: values for name, values in {**NEW, **change}.items() if values is not None}
    with warnings.catch_warnings(), pytest.raises(InputError, match=match):
        warnings.simplefilter("error")
        fitted().predict(table)


@pytest.mark.parametrize("level", [0, 1, -0.5, 1.5, np.nan, "0.9", [], [0.5, 0.5], [0.5, "a"], None, True, 90])
def test_levels_that_cannot_be(level):
    with pytest.raises(InputError, match=r"^level"):
        fitted().predict(NEW, level=level)


def test_other_arguments_that_cannot_be():
    with pytest.raises(InputError, match=r"^level"):
        fitted().predict(NEW).intervals(2.0)
    for seed in (-1, 2**31, 0.5, True, None):
        with pytest.raises(InputError, match=r"^seed"):
            fitted().predict(NEW, seed=seed)
    with pytest.raises(InputError, match="new rows: a number is for one feature; name all 2"):
        fitted().predict(3)
    with pytest.raises(InputError, match="new rows: table must be"):
        fitted().predict([3.0, 4.0])
    theta, sigma2 = np.zeros((1, 5, 2)), np.ones((1, 5))
    for bad, match in (
        ({"theta": theta[0]}, "theta"),
        ({"sigma2": sigma2[:, :4]}, "theta"),
        ({"theta": theta[:, :0], "sigma2": sigma2[:, :0]}, "no draws"),
        ({"theta": theta + np.nan}, "not finite"),
        ({"sigma2": -sigma2}, "negative variances"),
    ):
        with pytest.raises(InputError, match=match):
            made(**({"theta": theta, "sigma2": sigma2} | bad), features=("x",))


def test_posterior_of_another_model():
    counts = MultinomialStatistic(labels=("red", "green", "blue"), column="colour")
    shares = np.random.default_rng(0).dirichlet(np.ones(3), size=(4, 50))
    posterior = replace(fitted(), draws=shares, names=counts.parameter_names, statistic=counts)
    with pytest.raises(InputError, match="predictions are for linear-regression; this posterior is of multinomial"):
        posterior.predict(NEW)


# --- what a reader is told ---


def test_notes():
    posterior = fitted()
    (note,) = posterior.predict({**NEW, "bmi": [20.0, 45.1, 30.0]}).notes()
    assert "outside of the release's bounds of bmi:" in note and "extrapolated" in note and "45.1" not in note
    (note,) = posterior.predict({"bmi": [14.9], "blood pressure": [1.5]}).notes()
    assert "bounds of bmi, blood pressure:" in note
    assert posterior.predict({"bmi": [15.0, 45.0], "blood pressure": [-3.0, 1.0]}).notes() == []
    assert fitted(statistic=RegressionStatistic(("a", "b"), "y")).predict({"a": [1e6], "b": [1e6]}).notes() == []
    (note,) = posterior.predict(NEW, level=[0.9, 0.99, 0.975]).notes()  # 1,200 draws
    assert "99% interval rest on fewer than 10 draws" in note
    assert note in posterior.predict(NEW, level=[0.9, 0.99]).table()


def test_predictions_of_chains_that_had_not_converged():
    draws = fitted().draws.copy()
    draws[0, :, 1] += 5
    posterior = fitted(draws=draws)
    with pytest.warns(ConvergenceWarning, match="had not converged"):
        found = posterior.predict(NEW)
    assert len(found.warnings()) == 1 and found.to_dict()["converged"] is False
    assert fitted().predict(NEW).warnings() == []


def test_table_shows_the_first_rows():
    found = fitted().predict({"bmi": np.linspace(15, 45, 25), "blood pressure": np.zeros(25)}, level=[0.9, 0.975])
    lines = found.table(rows=4).splitlines()
    assert "progression" in lines[0] and "25 rows, 1200 draws" in lines[0] and "90%, 97.5% intervals" in lines[0]
    heads = "mean sd low_90 high_90 line_low_90 line_high_90 low_97.5 high_97.5 line_low_97.5 line_high_97.5"
    assert lines[1].split() == ["bmi", "blood", "pressure", *heads.split()]
    assert lines[3].split()[0] == "15.00" and len(lines) == 3 + 4 + 1 and lines[-1] == "... and 21 more"
    assert len({len(line) for line in lines[1:7]}) == 1
    assert "more" not in found.table(rows=25).splitlines()[-1]


# --- files ---


def test_csv_round_trip(tmp_path):
    rng = np.random.default_rng(11)
    rows = {"bmi": rng.uniform(15, 45, 12_345), "blood pressure": rng.uniform(-3, 1, 12_345)}
    posterior = RegressionPosterior.of(fitted(length=300))
    posterior = replace(posterior, theta=posterior.theta[:, :5], sigma2=posterior.sigma2[:, :5])
    found = posterior.predict(rows, level=[0.5, 0.9])
    path = found.save(tmp_path / "predictions.csv")
    with open(path, newline="") as file:
        header, *lines = csv.reader(file)
    assert header[:4] == ["bmi", "blood pressure", "mean", "sd"]
    assert header[4:8] == ["low_50", "high_50", "line_low_50", "line_high_50"] and len(header) == 12
    back = dict(zip(header, np.array(lines, dtype=float).T, strict=True))
    for name, values in found.columns().items():
        np.testing.assert_array_equal(back[name], values)
    np.testing.assert_array_equal(back["bmi"], rows["bmi"])
    np.testing.assert_array_equal(back["high_90"], found.quantiles[0.9].high)
    with pytest.raises(InputError, match="--force"):
        found.save(path)
    found.save(path, force=True)
    # the file holds the features under their names, so that it can be predicted again
    np.testing.assert_array_equal(posterior.predict(path, level=[0.5, 0.9]).draws, found.draws)


@pytest.mark.parametrize("taken", [("mean", "low_90"), ("line_sd", "x"), ("predicted_sd", "sd")])
def test_features_named_like_results(taken):
    found = made(np.ones((1, 500, 3)), np.ones((1, 500)), taken).predict({taken[0]: [5.0, 6.0], taken[1]: [7.0, 8.0]})
    columns = found.columns()
    prefix = "predicted_predicted_" if "predicted_sd" in taken else "predicted_"
    assert list(columns)[:4] == [*taken, f"{prefix}mean", f"{prefix}sd"] and len(columns) == 2 + 2 + 4
    np.testing.assert_array_equal(columns[taken[0]], [5.0, 6.0])
    np.testing.assert_array_equal(columns[f"{prefix}mean"], found.mean)
    assert len(found.to_dict()["columns"]) == 9
    assert any("named like" in note and prefix in note for note in found.notes())


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    pytest.importorskip("arviz")
    pytest.importorskip("h5netcdf")
    posterior = fitted()
    return posterior, posterior.save(tmp_path_factory.mktemp("saved") / "posterior.nc")


def test_loaded_posterior_predicts_the_same(saved, tmp_path):
    posterior, path = saved
    loaded = load_posterior(path)
    assert loaded.statistic == STATISTIC and not loaded.warnings() and loaded.method == "collapsed"
    np.testing.assert_array_equal(RegressionPosterior.of(loaded).theta, posterior.user_draws[..., :3])
    np.testing.assert_array_equal(loaded.predict(NEW, seed=4).draws, posterior.predict(NEW, seed=4).draws)
    assert dpjax.load_posterior is load_posterior
    # raw units; and a feature whose name is that of the other coefficient
    raw = fitted(statistic=RegressionStatistic(("intercept", "b"), "y"))
    again = load_posterior(raw.save(tmp_path / "raw.nc"))
    assert again.statistic.bounds is None
    rows = {"intercept": [1.0, 2.0], "b": [3.0, 4.0]}
    np.testing.assert_array_equal(again.predict(rows).mean, raw.predict(rows).mean)


def damaged(path, target, change):
    """A copy of a file of draws as the version before wrote it, with a change made by `change(group)`."""
    import h5py

    target.write_bytes(path.read_bytes())
    with h5py.File(target, "r+") as file:
        for name in set(file) - {"posterior"}:
            del file[name]
        file.attrs.pop("dpjax_digest", None)
        change(file["posterior"])
    return target


def drop(name):
    return lambda group: group.attrs.__delitem__(name)


def put(name, value):
    return lambda group: group.attrs.__setitem__(name, value)


def unfinite(group):
    group["theta"][0, 0, 0] = np.nan


def renamed(group):
    group["coefficient"][1] = "other"


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (put("model", "binomial"), "scaling must be null"),
        (put("model", "ridge"), "model 'ridge' is not known"),
        (drop("model"), "no attribute 'model'"),
        (drop("bounds"), "no attribute 'bounds'"),
        (put("features", "["), "not a whole file"),
        (put("features", '["bmi"]'), "bounds are given for 'blood pressure'"),
        (put("bounds", '{"bmi": [3, 1]}'), "bounds are missing|lo < hi"),
        (put("scaling", "other"), "scaling must be"),
        (put("intercept", 0), "coefficients"),
        (unfinite, "not finite"),
        (renamed, "coefficients"),
        (lambda group: [group.__delitem__(name) for name in set(group) - {"theta"}], "not a whole file"),
    ],
)
def test_files_that_hold_something_else(saved, tmp_path, change, match):
    path = damaged(saved[1], tmp_path / "changed.nc", change)
    with pytest.raises(InputError, match=match) as caught:
        load_posterior(path)
    assert str(caught.value).startswith(f"posterior {path}: ") and "\n" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_broken_files(saved, tmp_path):
    with pytest.raises(InputError, match=r"cannot be read \(No such file"):
        load_posterior(tmp_path / "none.nc")
    with pytest.raises(InputError, match="is not a regular file"):
        load_posterior(tmp_path)
    whole = saved[1].read_bytes()
    for content in (b"", b"bmi,y\n1,2\n", whole[: len(whole) // 2], whole[:2000] + bytes(20000) + whole[22000:]):
        (tmp_path / "broken.nc").write_bytes(content)
        with pytest.raises(InputError, match=r"is not a whole HDF5 file|has lost its digest|digest does not fit"):
            load_posterior(tmp_path / "broken.nc")


def test_loading_needs_h5netcdf(saved, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5netcdf", None)
    with pytest.raises(dpjax.errors.MissingExtraError, match="pip install h5netcdf"):
        load_posterior(saved[1])


# --- the command ---


@pytest.fixture
def folder(saved, tmp_path, monkeypatch):
    (tmp_path / "posterior.nc").write_bytes(saved[1].read_bytes())
    rows = "\n".join(f"{i},{-1.5 + 0.1 * i:.1f},{15 + 2 * i}" for i in range(12))
    (tmp_path / "new.csv").write_text(f"id,blood pressure,bmi\n{rows}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_command(folder, saved, capsys):
    words = ["predict", "posterior.nc", "new.csv", "--level", "0.9", "--level", "0.5", "--seed", "3"]
    assert main([*words, "--output", "predictions.csv", "--json", "all.json"]) == 0
    out, err = capsys.readouterr()
    expected = saved[0].predict("new.csv", level=[0.9, 0.5], seed=3)
    assert out == expected.table() + "\n" and err == "" and "... and 2 more" in out
    expected.save("expected.csv")
    assert (folder / "predictions.csv").read_bytes() == (folder / "expected.csv").read_bytes()
    found = json.loads((folder / "all.json").read_text())
    assert found["levels"] == [0.9, 0.5] and found["seed"] == 3 and found["rows"] == 12 and found["draws"] == 1200
    np.testing.assert_array_equal(found["columns"]["line_high_50"], expected.quantiles[0.5].line_high)
    assert main(["predict", "posterior.nc", "new.csv", "--output", "predictions.csv", "--force"]) == 0
    assert "low_90" in (folder / "predictions.csv").read_text().splitlines()[0]


def test_command_reads_other_files(folder, capsys):
    text = (folder / "new.csv").read_text()
    (folder / "german.csv").write_bytes(text.replace(",", ";").replace(".", ",").encode("utf-16"))
    words = ["predict", "posterior.nc", "german.csv"]
    assert main(words) == 2 and "--encoding utf-16" in capsys.readouterr().err
    assert main([*words, "--encoding", "utf-16"]) == 2 and "--separator ';'" in capsys.readouterr().err
    assert main([*words, "--encoding", "utf-16", "--separator", ";", "--decimal", ",", "--json", "a.json"]) == 0
    assert main(["predict", "posterior.nc", "new.csv", "--json", "b.json"]) == 0
    assert (folder / "a.json").read_bytes() == (folder / "b.json").read_bytes()


def test_command_says_that_rows_are_outside(folder, capsys):
    (folder / "far.csv").write_text("bmi,blood pressure\n20,0\n47.125,0.5\n")
    assert main(["predict", "posterior.nc", "far.csv", "--json", "far.json"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert "outside of the release's bounds of bmi" in line and "47" not in line
    assert json.loads((folder / "far.json").read_text())["notes"] == [line]


def test_command_marks_what_had_not_converged(folder, capsys):
    damaged(folder / "posterior.nc", folder / "doubtful.nc", put("converged", 0))
    assert main(["predict", "doubtful.nc", "new.csv", "--output", "p.csv", "--json", "p.json"]) == 1
    out, err = capsys.readouterr()
    assert err.startswith("warning: the chains of this posterior had not converged") and err.count("\n") == 1
    assert out and (folder / "p.csv").exists()
    assert json.loads((folder / "p.json").read_text())["warnings"] == [err.removeprefix("warning: ").strip()]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["posterior.nc"], "NEW.csv"),
        (["none.nc", "new.csv"], "none.nc: cannot be read (No such file or directory)"),
        (["new.csv", "new.csv"], "not a whole HDF5 file"),
        (["posterior.nc", "none.csv"], "cannot read the table 'none.csv'"),
        (["posterior.nc", "missing.csv"], "column 'blood pressure' is not in the table"),
        (["posterior.nc", "words.csv"], "column 'bmi' does not hold numbers only"),
        (["posterior.nc", "gaps.csv"], "column 'bmi' has missing values"),
        (["posterior.nc", "nan.csv"], "column 'bmi' has missing values"),
        (["posterior.nc", "new.csv", "--level", "1"], "level must be a number inside (0, 1), got 1.0"),
        (["posterior.nc", "new.csv", "--level", "high"], "--level must be"),
        (["posterior.nc", "new.csv", "--level", "0.9,0.9"], "twice"),
        (["posterior.nc", "new.csv", "--seed", "-1"], "seed"),
        (["posterior.nc", "new.csv", "--json", "there.csv"], "exists"),
        (["posterior.nc", "new.csv", "--output", "no/p.csv"], "does not exist"),
        (["posterior.nc", "new.csv", "--output", "new.csv", "--force"], "is an input of this command"),
        (["posterior.nc", "new.csv", "--output", "p.csv", "--json", "p.csv"], "named twice"),
    ],
)
def test_command_refuses(folder, capsys, words, says):
    (folder / "missing.csv").write_text(f"bmi\n{SECRET}\n")
    (folder / "words.csv").write_text(f"bmi,blood pressure\n{SECRET}x,1\n")
    (folder / "gaps.csv").write_text(f"bmi,blood pressure\n,{SECRET}\n")
    (folder / "nan.csv").write_text(f"bmi,blood pressure\nnan,{SECRET}\n")
    (folder / "there.csv").write_text("")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert main(["predict", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1 and says in err and SECRET not in err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_command_does_not_load_jax(folder):
    script = (
        "import sys; from dpjax.cli.app import main; code = main(['predict', 'posterior.nc', 'new.csv']); "
        "sys.exit(code or sum(name in sys.modules for name in ('jax', 'arviz', 'pandas')))"
    )
    path = [str(item) for item in (dpjax.__path__[0] + "/..", *sys.path)]
    script = f"import sys; sys.path[:0] = {path!r}; " + script
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "12 rows" in done.stdout, done.stderr
