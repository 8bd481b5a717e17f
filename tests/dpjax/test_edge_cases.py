"""Regressions of awkward tables: a right posterior in the right units, or one clear line. Not a value leaks."""

import decimal
import re
import warnings

import numpy as np
import pandas as pd
import pytest

import dpjax
from dpjax.errors import InputError, PrivacyWarning
from dpjax.mechanisms import laplace as _noise

BOUNDS = {"x": (0, 10), "y": (-10, 40)}
TRUE = {"theta[0]": 3.0, "theta[1]": 2.0, "sigma2": 4.0, "mu_x[1]": 5.0, "tau2[1,1]": 100 / 12}


def columns(n=2000):
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 10, n)
    return {"x": x, "y": 3 + 2 * x + rng.normal(0, 2, n)}


@pytest.fixture
def seeded(monkeypatch):
    """Laplace noise from a seed, so that posteriors can be compared."""

    def draw(values, sensitivity, epsilon):
        scale = sensitivity / epsilon
        return values + np.random.default_rng(7).laplace(0, scale, values.shape), scale, epsilon

    monkeypatch.setattr(_noise, "add_laplace_noise", draw)


def publish(table, bounds=BOUNDS, epsilon=5.0, **more):
    features = [name for name in bounds if name != "y"]
    more.setdefault("accept", True)  # also what looks wrong
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return dpjax.release(table, target="y", features=features, bounds=bounds, epsilon=epsilon, **more)


def posterior(table, bounds=BOUNDS, epsilon=5.0):
    """Posterior with few draws; all numbers of its summary are finite."""
    fitted = dpjax.fit(publish(table, bounds, epsilon), chains=4, draws=250)
    summary = fitted.summary()["parameters"]
    for name, row in summary.items():
        for key in ("mean", "sd", "prior_sd", "q05", "q95"):
            assert np.isfinite(row[key]), (name, key)
        assert row["sd"] > 0 and row["q05"] < row["q95"], name
    return fitted, summary


def close(row, value, sds=5.0):
    return abs(row["mean"] - value) < sds * row["sd"]


# --- awkward columns ---


@pytest.mark.slow
def test_an_ordinary_table(seeded):
    """The yardstick of the others: with 2000 records and epsilon 5 much is known."""
    _, summary = posterior(columns())
    for name, value in TRUE.items():
        assert close(summary[name], value), name
        assert summary[name]["sd"] < 0.3 * summary[name]["prior_sd"], name


@pytest.mark.slow
def test_constant_feature(seeded):
    """Its mean is found, its variance is small, and nothing is made of a slope that cannot be seen."""
    fitted, summary = posterior(columns() | {"x": np.full(2000, 5.0)})
    assert close(summary["mu_x[1]"], 5.0) and summary["tau2[1,1]"]["mean"] < 1.0
    _, ordinary = posterior(columns())
    assert summary["theta[1]"]["sd"] > 3 * ordinary["theta[1]"]["sd"] and close(summary["theta[1]"], 0.0)
    _, theta, slope = _user(fitted)
    at = theta + 5.0 * slope
    low, middle, high = np.quantile(at, [0.1, 0.5, 0.9])  # a slope of any size belongs to a feature that never moves
    assert low < columns()["y"].mean() < high and high - low < 1.5 and abs(middle - columns()["y"].mean()) < 0.5


@pytest.mark.slow
def test_equal_responses(seeded):
    _, summary = posterior(columns() | {"y": np.full(2000, 7.0)})
    assert close(summary["theta[0]"], 7.0) and close(summary["theta[1]"], 0.0)
    assert summary["theta[0]"]["sd"] < 1.0 and summary["sigma2"]["mean"] < 10.0  # its bounds allow 156


@pytest.mark.slow
def test_two_equal_features(seeded):
    """Only the sum of the two slopes can be known."""
    table = columns()
    fitted, _ = posterior(table | {"z": table["x"]}, {"x": (0, 10), "z": (0, 10), "y": (-10, 40)})
    first, second = _user(fitted)[0][:, 1:3].T
    total = first + second
    assert abs(total.mean() - 2.0) < 5 * total.std()
    assert total.std() < 0.25 * first.std() and np.corrcoef(first, second)[0, 1] < -0.9


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 1e6])
def test_one_record(seeded, epsilon):
    """It says next to nothing: the posterior of the slope is its prior. Without noise the normal law of the sums takes
    the record for a population without spread, which is said."""
    fitted, summary = posterior({"x": [2.0], "y": [30.0]}, epsilon=epsilon)
    slope, prior = summary["theta[1]"], fitted.user_prior_draws[:, 1]
    if epsilon == 1.0:
        width = np.subtract(*np.quantile(prior, [0.95, 0.05]))
        assert 0.4 < (slope["q95"] - slope["q05"]) / width < 1.5 and slope["q05"] < 0 < slope["q95"]
    assert any("wishart" in doubt for doubt in fitted.doubts) == (epsilon == 1e6)
    assert publish({"x": [2.0], "y": [30.0]}).records == 1


@pytest.mark.slow
def test_everything_outside_of_the_bounds(seeded):
    """Clipped to the bounds, all records are alike; what is published is about them, not about the bounds' inside."""
    _, summary = posterior(columns() | {"x": columns()["x"] - 100})
    assert close(summary["mu_x[1]"], 0.0) and summary["mu_x[1]"]["mean"] < 0.5


@pytest.mark.slow
@pytest.mark.parametrize(("x_unit", "y_unit"), [(1e-6, 1e9), (1e9, 1e-6), (1e-6, 1e-6), (1e9, 1e9)])
def test_units_are_the_users(seeded, x_unit, y_unit):
    table = columns()
    _, plain = posterior(table)
    bounds = {"x": (0, 10 * x_unit), "y": (-10 * y_unit, 40 * y_unit)}
    _, other = posterior({"x": table["x"] * x_unit, "y": table["y"] * y_unit}, bounds)
    units = {
        "theta[0]": y_unit,
        "theta[1]": y_unit / x_unit,
        "sigma2": y_unit**2,
        "mu_x[1]": x_unit,
        "tau2[1,1]": x_unit**2,
    }
    for name, unit in units.items():
        assert other[name]["mean"] / unit == pytest.approx(plain[name]["mean"], abs=0.5 * plain[name]["sd"]), name
        assert other[name]["sd"] / unit == pytest.approx(plain[name]["sd"], rel=0.3), name
        assert other[name]["prior_sd"] / unit == pytest.approx(plain[name]["prior_sd"], rel=0.01), name


@pytest.mark.slow
def test_values_far_from_zero(seeded):
    """A year, or a time stamp: the intercept is far away, the line is where the records are."""
    table, shift = columns(), 1e9
    fitted, summary = posterior({"x": table["x"] + shift, "y": table["y"]}, {"x": (shift, shift + 10), "y": (-10, 40)})
    assert close(summary["theta[1]"], 2.0) and close(summary["sigma2"], 4.0)
    assert summary["mu_x[1]"]["mean"] - shift == pytest.approx(5.0, abs=0.5)
    _, theta, slope = _user(fitted)
    assert (theta + slope * (shift + 5)).mean() == pytest.approx(13.0, abs=1.0)


def test_names_with_blanks_and_other_letters(seeded, tmp_path):
    table = columns(100)
    release = publish({"body mass": table["x"], "y": table["y"]}, {"body mass": (0, 10), "y": (-10, 40)})
    assert "body mass*body mass" in release.names
    release.save(tmp_path / "release.json")
    assert dpjax.Release.load(tmp_path / "release.json") == release
    fitted = dpjax.fit(tmp_path / "release.json", chains=4, draws=250)
    assert "body mass" in fitted.table()
    fitted.save(tmp_path / "posterior.nc")
    path = tmp_path / "größe.csv"
    path.write_text('"größe in cm",y\n170,1\n180,2\n', encoding="utf-8")
    names = publish(str(path), {"größe in cm": (100, 250), "y": (0, 10)}).names
    assert names[0] == "größe in cm"


def _user(fitted):
    draws = fitted.statistic.to_user_units(np.asarray(fitted.draws, np.float64))
    draws = draws.reshape(-1, draws.shape[-1])
    return draws, draws[:, 0], draws[:, 1]


# --- what a column may hold ---


@pytest.fixture
def sums(monkeypatch):
    """The exact sums that would be noised, instead of noise."""
    monkeypatch.setattr(_noise, "add_laplace_noise", lambda values, size, epsilon: (values, size / epsilon, epsilon))


@pytest.mark.parametrize(
    "x",
    [
        [0, 10],
        np.array([0, 10], np.uint8),
        np.array([0, 10], np.float16),
        np.array([0, 10], np.longdouble),
        np.array([0.0, 10.0], object),
        pd.array([0, 10], dtype="Int64"),
        pd.Series([0, 10], index=["b", "a"]),
        pd.Categorical([0, 10]),
        [-(10**30), 10**30],  # clipped
        [-1e308, 1e308],
    ],
    ids=lambda x: f"{type(x).__name__} {getattr(x, 'dtype', '')}",
)
def test_all_kinds_of_numbers_are_the_same(x, sums):
    """(0, 10) is (-1, 1) on the scale of the release, and y = (15, 15) is (0, 0)."""
    assert publish({"x": x, "y": [15, 15]}).z.tolist() == [0, 2, 0, 0, 0]


BAD = [
    ([7, None], "has missing values"),
    ([7, float("nan")], "has missing values"),
    ([7, float("inf")], "missing or not finite"),
    ([7, 10**400], "missing or not finite"),
    (pd.array([7, None], dtype="Int64"), "has missing values"),
    (np.ma.array([7, 7], mask=[0, 1]), "missing values"),
    ([True, False], "numbers only"),
    (np.array([True, False], object), "numbers only"),
    (pd.array([True, False], dtype="boolean"), "numbers only"),
    (["7", "7"], "numbers only"),
    ([7, 7j], "numbers only"),
    ([decimal.Decimal(7), 7], "numbers only"),
    (pd.to_datetime(["2007-07-07", "2007-07-07"]), "numbers only"),
    (np.full((2, 1), 7.0), "numbers only"),
    ([[7], [7, 7]], "numbers only"),
    (7, "numbers only"),
    ([7], "differ in length"),
    ([], "differ in length"),
]


@pytest.mark.parametrize(("x", "message"), BAD, ids=[str(i) for i in range(len(BAD))])
@pytest.mark.parametrize("moments", [False, True])
def test_what_is_no_number_is_refused_in_one_line(x, message, moments, sums):
    with pytest.raises(InputError, match=message) as caught:
        publish({"x": x, "y": [15, 15]}, moments=moments)
    text = str(caught.value)
    assert "'x'" in text and not re.search(r"\d", text) and "\n" not in text
    assert caught.value.__cause__ is None and caught.value.__context__ is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,y\n7,\n7,7\n", "column 'y' has missing values"),
        ("x,y\n,7\n7,7\n", "column 'x' has missing values"),
        ("x,y\n7,7\n  ,7\n", "column 'x' has missing values"),
        ("x,y\n7,NA\n7,7\n", "column 'y' has missing values"),
        ("x,y\n7,nan\n", "column 'y' has missing values"),
        ("x,y\n7,true\n", "column 'y' does not hold numbers only"),
        ('x,y\n"7,777",7\n', "column 'x' does not hold numbers only"),
        ("x;y\n7,7;7\n", "column 'x' is not in the table"),
        ("x,y,x\n7,7,7\n", "column 'x' is in the table more than once"),
        ("X,y\n7,7\n", "column 'x' is not in the table"),
        ("x,y\n", "the table has no records"),
    ],
)
def test_csv_cells_that_are_no_numbers(text, message, tmp_path, sums):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        publish(path)
    assert str(caught.value).partition(": ")[0] == message and "777" not in str(caught.value)


@pytest.mark.parametrize("moments", [False, True])
def test_a_long_table(moments):
    """2^20 records: no sum loses digits."""
    n = 2**20
    release = publish({"x": np.tile([0.0, 2.5], n // 2), "y": np.full(n, 2.5)}, epsilon=1e6, moments=moments)
    # on [-1, 1]: x is -1 and -1/2, y is -1/2
    expected = [-0.75, 0.625, -0.5, 0.375, 0.25, -0.5625, 0.53125][: 7 if moments else 5]
    assert release.records == n
    np.testing.assert_allclose(release.z, n * np.array(expected), atol=40 * release.scale.max())
