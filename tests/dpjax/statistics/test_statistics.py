"""Entries, names and sums of the regression statistic; bounds and scaling."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dpjax._base.checks import check_bounds
from dpjax.errors import InputError
from dpjax.statistics.base import SCALING, from_unit, split_name, to_unit
from dpjax.statistics.regression import RegressionStatistic


def test_order_and_names_for_one_and_two_features():
    one = RegressionStatistic(("bmi",), "progression")
    assert one.names == (
        "bmi",
        "bmi*bmi",
        "progression",
        "bmi*progression",
        "progression*progression",
    )
    two = RegressionStatistic(("a", "b"), "y")
    assert two.names == ("a", "b", "a*a", "a*b", "b*b", "y", "a*y", "b*y", "y*y")
    assert two.pairs == ((0, 1), (0, 2), (1, 1), (1, 2), (2, 2), (0, 3), (1, 3), (2, 3), (3, 3))


@pytest.mark.parametrize("p", [1, 2, 4, 9])
def test_dimension_and_distinct_entries(p):
    statistic = RegressionStatistic(tuple(f"x{i}" for i in range(p)), "y")
    assert statistic.dim == len(statistic.names) == p + p * (p + 1) // 2 + 1 + p + 1
    assert len(set(statistic.names)) == statistic.dim
    a, b = statistic.indices
    assert (a <= b).all() and (b > 0).all()


@pytest.mark.parametrize("p", [1, 2, 4])
def test_sum_of_records(p):
    rng = np.random.default_rng(p)
    X, y = rng.normal(size=(50, p)), rng.normal(size=50)
    statistic = RegressionStatistic(tuple("abcd"[:p]), "y")
    s = dict(zip(statistic.names, statistic.from_records(X, y), strict=True))
    gram = np.column_stack([X, y]).T @ np.column_stack([X, y])
    total = np.column_stack([X, y]).sum(axis=0)
    for i, first in enumerate(statistic.variables):
        assert s[first] == pytest.approx(total[i])
        for j, second in list(enumerate(statistic.variables))[i:]:
            assert s[f"{first}*{second}"] == pytest.approx(gram[i, j])


def test_sum_is_exactly_rounded_and_free_of_order():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (1001, 1)), rng.uniform(-1, 1, 1001)
    statistic = RegressionStatistic(("x",), "y")
    s = statistic.from_records(X, y)
    assert s[0] == float(sum(Fraction(v) for v in X[:, 0]))
    order = rng.permutation(1001)
    np.testing.assert_array_equal(s, statistic.from_records(X[order], y[order]))


def test_one_record_and_integers():
    s = RegressionStatistic(("x",), "y").from_records([[2]], [3])
    assert s.tolist() == [2, 4, 3, 6, 9] and s.dtype == np.float64


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.zeros((3, 2)), np.zeros(3)),
        (np.zeros((3, 1)), np.zeros(2)),
        (np.zeros(3), np.zeros(3)),
        (np.zeros((0, 1)), np.zeros(0)),
        (np.array([[987.5], [math.nan]]), np.zeros(2)),
        (np.array([[987.5], [1.0]]), np.array([math.inf, 0])),
    ],
)
def test_bad_records(X, y):
    with pytest.raises(InputError) as caught:
        RegressionStatistic(("x",), "y").from_records(X, y)
    assert "987" not in str(caught.value)


@pytest.mark.parametrize("name", ["a*b", "a,b", "", " a", "a ", "a\nb", "a\x00", 3, None, True, b"a"])
def test_refused_names(name):
    with pytest.raises(InputError, match="column name"):
        RegressionStatistic((name,), "y")
    with pytest.raises(InputError, match="column name"):
        RegressionStatistic(("x",), name)


@pytest.mark.parametrize("features", [(), [], "x", None, 3, ("a", "a"), ("y",), ("a", "y")])
def test_refused_features(features):
    with pytest.raises(InputError):
        RegressionStatistic(features, "y")


def test_names_may_hold_blanks_and_other_letters():
    assert RegressionStatistic(["body mass", "größe"], "y").features == ("body mass", "größe")


def test_bounds():
    assert check_bounds({"y": [0, 350], "x": (np.float32(1.5), np.int64(2))}, ("x", "y")) == {
        "x": (1.5, 2.0),
        "y": (0.0, 350.0),
    }
    assert list(check_bounds({"y": (0, 1), "x": (0, 1)}, ("x", "y"))) == ["x", "y"]


@pytest.mark.parametrize(
    "pair",
    [
        (1, 1),
        (2, 1),
        (math.nan, 1),
        (0, math.nan),
        (0, math.inf),
        (-math.inf, 0),
        (0,),
        (0, 1, 2),
        "01",
        ("0", "1"),
        (False, True),
        (0, 10**400),
        (0, 10**5000),
        (-1.7e308, 1.7e308),
        (0, 1j),
        None,
        3,
        {0: 0, 1: 1},
    ],
)
def test_bad_bounds(pair):
    with pytest.raises(InputError, match="bounds of 'x' must be two finite numbers lo < hi"):
        check_bounds({"x": pair, "y": (0, 1)}, ("x", "y"))


def test_bounds_for_exactly_the_variables():
    with pytest.raises(InputError, match="missing for column 'y'"):
        check_bounds({"x": (0, 1)}, ("x", "y"))
    with pytest.raises(InputError, match="'z', which the model does not use"):
        check_bounds({"x": (0, 1), "y": (0, 1), "z": (0, 1)}, ("x", "y"))
    with pytest.raises(InputError, match="must map"):
        check_bounds([(0, 1), (0, 1)], ("x", "y"))


@pytest.mark.parametrize(
    ("lo", "hi"), [(15, 45), (0, 350), (-3, 1e-9), (1e300, 1.1e300), (-8e307, 8e307), (0.1, 0.3), (0, 5e-324)]
)
def test_scaling_clips_and_stays_inside(lo, hi):
    rng = np.random.default_rng(0)
    with np.errstate(over="ignore"):
        values = np.concatenate([rng.uniform(0, 1, 1000) * (hi - lo) + lo, [lo, hi, -1.7e308, 1.7e308]])
    u = to_unit(values, lo, hi)
    assert np.abs(u).max() <= 1
    assert u[-4:].tolist() == [-1, 1, -1, 1]
    if hi - lo > 1e-300:
        np.testing.assert_allclose(from_unit(u[:-2], lo, hi), values[:-2], rtol=1e-12, atol=1e-12 * (hi - lo))


def test_scaling_maps_the_middle_to_zero_and_clips_first():
    np.testing.assert_allclose(to_unit([15, 30, 45, 50, -2], 15, 45), [-1, 0, 1, 1, -1])
    np.testing.assert_allclose(from_unit([-1, 0, 2], 15, 45), [15, 30, 60])


# --- the regression statistic as a release uses it ---

BOUNDS = {"a": (0, 4), "b": (-2, 2), "y": (10, 30)}


def table(n=40, seed=0):
    rng = np.random.default_rng(seed)
    return {"a": rng.normal(2, 2, n), "b": rng.normal(0, 2, n), "y": rng.normal(20, 9, n)}


@pytest.mark.parametrize("scaling", [SCALING, None])
def test_sum_over_the_columns_of_a_table(scaling):
    columns = table()
    statistic = RegressionStatistic(("a", "b"), "y", BOUNDS, scaling)
    entering = [
        to_unit(columns[name], *pair) if scaling else np.clip(columns[name], *pair) for name, pair in BOUNDS.items()
    ]
    np.testing.assert_array_equal(
        statistic.from_columns(columns), statistic.from_records(np.stack(entering[:2], axis=1), entering[2])
    )
    without = RegressionStatistic(("a", "b"), "y")
    np.testing.assert_array_equal(
        without.from_columns(columns),
        without.from_records(np.stack([columns["a"], columns["b"]], axis=1), columns["y"]),
    )


def test_sensitivities_of_a_regression():
    scaled = RegressionStatistic(("a",), "y", {"a": (0, 4), "y": (10, 30)}, SCALING)
    assert scaled.sensitivity() == pytest.approx(16 / 3) and scaled.is_exact("l1") and scaled.is_exact("l2")
    assert scaled.sensitivity("l2") == pytest.approx(math.sqrt(8), rel=1e-15)  # the squared ranges add up to 14
    assert scaled.sensitivity("l1", "add-remove") == 5 and scaled.sensitivity("l2", "add-remove") >= math.sqrt(5)
    raw = RegressionStatistic(("a",), "y", {"a": (1, 2), "y": (1, 2)})
    assert raw.sensitivity() == 11  # docs/formulas.md#box-sensitivity
    with pytest.raises(InputError, match="bounds are missing"):
        RegressionStatistic(("a",), "y").sensitivity()
    with pytest.raises(InputError, match="bounds must map"):
        RegressionStatistic(("a",), "y", None, SCALING)
    with pytest.raises(InputError, match="scaling must be"):
        RegressionStatistic(("a",), "y", None, "unit")


def test_parameters_in_the_units_of_the_user():
    """Least squares in scaled units, mapped back, is least squares in the user's units."""
    columns = table(500)
    statistic = RegressionStatistic(("a", "b"), "y", BOUNDS, SCALING)

    def fitted(a, b, y):
        design = np.column_stack([np.ones_like(a), a, b])
        theta, residual, *_ = np.linalg.lstsq(design, y, rcond=None)
        covariance = np.cov(a, b, bias=True)
        return np.array([*theta, residual[0] / len(y), a.mean(), b.mean(), *covariance[np.tril_indices(2)]])

    clipped = [np.clip(columns[name], *pair) for name, pair in BOUNDS.items()]
    scaled = [to_unit(columns[name], *pair) for name, pair in BOUNDS.items()]
    found = statistic.to_user_units(np.stack([fitted(*scaled)] * 2)[None])
    np.testing.assert_allclose(found[0], [fitted(*clipped)] * 2, rtol=1e-9)
    assert found.shape == (1, 2, len(statistic.parameter_names))
    assert statistic.describe("tau2[2,1]") == "covariance of b, a" and statistic.describe("theta[2]") == "b"
    assert [statistic.describe(name) for name in ("theta[0]", "sigma2", "mu_x[1]", "tau2[1,1]")] == [
        "intercept",
        "residual variance",
        "mean of a",
        "variance of a",
    ]
    raw = RegressionStatistic(("a", "b"), "y", BOUNDS)
    np.testing.assert_array_equal(raw.to_user_units(found), found)


def test_split_name():
    assert [split_name(name) for name in ("rate", "p[3]", "tau2[2,1]")] == [("rate", ()), ("p", (3,)), ("tau2", (2, 1))]
