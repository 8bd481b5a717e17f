"""Statistics of one column: what is summed, how far a record moves it (docs/formulas.md#count-sensitivity,
#truncated-sensitivity), and in whose units."""

import itertools
import math
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import dpjax.errors
from dpjax.errors import InputError
from dpjax.families import FAMILIES, family_named
from dpjax.statistics.base import SCALING
from dpjax.statistics.family import FamilyStatistic
from dpjax.statistics.kinds import check_kind, kinds, make_statistic
from dpjax.statistics.multinomial import MultinomialStatistic
from dpjax.statistics.regression import RegressionStatistic

ROOT = Path(dpjax.errors.__file__).parent
A, B = -math.log(0.975), -math.log(0.025)  # the middle 95% of an exponential of rate 1
UNBOUNDED = {
    "poisson": (1, 6),
    "geometric": (0, 4),
    "exponential": (A, B),
    "gamma": (0.5, 3),
    "normal": (-2, 3),
    "log-normal": (0.1, 5),
}
OPTIONS = {"gamma": {"shape": 2.5}}


def statistic(kind, **changes):
    return make_statistic(kind, **{"bounds": UNBOUNDED.get(kind)} | OPTIONS.get(kind, {}) | changes)


# --- sensitivities ---


def test_sensitivities_of_spec_a10():
    exponential = statistic("exponential")
    assert exponential.sensitivity() == pytest.approx(3.663562, abs=5e-7)
    redacted = replace(exponential, rule="redact")
    assert redacted.sensitivity() == pytest.approx(3.688879, abs=5e-7)
    assert redacted.sensitivity() >= B >= redacted.sensitivity() * (1 - 1e-15)
    for rule in ("clamp", "redact"):  # t = (x, x^2) on [-1, 1]
        for scaling, bounds in ((SCALING, (3, 7)), (None, (-1, 1))):
            assert statistic("normal", rule=rule, scaling=scaling, bounds=bounds).sensitivity() == 2.25


def test_redaction_far_from_zero_costs_the_value_itself():
    far = statistic("normal", scaling=None, bounds=(100, 101))
    assert far.sensitivity() == 1 + 201
    assert replace(far, rule="redact").sensitivity() == 101 + 101**2


@pytest.mark.parametrize("scaling", [None, SCALING])
@pytest.mark.parametrize("rule", ["clamp", "redact"])
@pytest.mark.parametrize("kind", UNBOUNDED)
def test_sensitivity_against_all_pairs_of_neighbours(kind, rule, scaling):
    """Every pair of records on a grid that goes beyond the bounds on both sides."""
    if scaling is not None and not FAMILIES[kind].affine:
        pytest.skip("not closed under affine maps")
    s = statistic(kind, rule=rule, scaling=scaling)
    a, b = s.bounds
    low = 0.0 if FAMILIES[kind].support[0] == 0 and not FAMILIES[kind].log else a - 3
    values = np.arange(low, b + 4) if s.integer else np.concatenate([np.linspace(a, b, 81), [a - 1, b + 2]])
    other = [(a + b) / 2] if not s.integer else [2.0]
    sums = [s.from_columns({"x": [*other, x]}) for x in values]
    for norm, order in (("l1", 1), ("l2", 2)):
        worst = max(np.linalg.norm(u - v, order) for u, v in itertools.combinations(sums, 2))
        bound = s.sensitivity(norm)
        assert worst <= bound * (1 + 1e-12)
        assert s.is_exact(norm) and worst >= bound * (1 - 1e-3)
    alone = [s.from_columns({"x": [x]}) for x in values]
    worst = max(np.abs(t).sum() for t in alone)
    assert worst == pytest.approx(s.sensitivity("l1", "add-remove"), rel=1e-3)


@pytest.mark.parametrize(
    ("categories", "released", "l1", "l2"),
    [
        (2, (0,), 1, 1),
        (2, (1,), 1, 1),
        (2, None, 2, math.sqrt(2)),
        (3, (0, 2), 2, math.sqrt(2)),
        (3, None, 2, math.sqrt(2)),
        (7, None, 2, math.sqrt(2)),
    ],
)
def test_multinomial_sensitivity_against_enumeration(categories, released, l1, l2):
    s = MultinomialStatistic(categories, released)
    sums = [s.from_columns({"x": [0, k]}) for k in range(categories)]
    for norm, order, expected in (("l1", 1, l1), ("l2", 2, l2)):
        worst = max(np.linalg.norm(u - v, order) for u, v in itertools.combinations(sums, 2))
        assert worst == pytest.approx(s.sensitivity(norm), rel=1e-15) == expected
    assert s.sensitivity("l1", "add-remove") == s.sensitivity("l2", "add-remove") == 1
    assert MultinomialStatistic(2).sensitivity("l2") ** 2 >= 2


def test_binomial_sensitivity():
    s = statistic("binomial")
    assert [s.sensitivity(norm, how) for norm in ("l1", "l2") for how in ("replace-one", "add-remove")] == [1] * 4


@pytest.mark.parametrize("bad", [{"norm": "linf"}, {"adjacency": "bounded"}])
def test_unknown_norm_and_adjacency(bad):
    for s in (statistic("exponential"), MultinomialStatistic(3)):
        with pytest.raises(InputError, match="must be"):
            s.sensitivity(**bad)


def test_rounding_is_allowed_for_where_there_is_any():
    assert statistic("poisson").rounding_allowance(10**6) == 0
    assert MultinomialStatistic(3).rounding_allowance(10**6) == 0
    assert statistic("poisson", bounds=(0, 2**50)).rounding_allowance(100) > 0  # beyond 2^53
    small, large = (statistic("exponential", bounds=(0, b)).rounding_allowance(100) for b in (1, 1024))
    assert 0 < small < 1e-12 and large == 1024 * small


# --- sums ---


@pytest.mark.parametrize(
    ("kind", "changes", "column", "sums"),
    [
        ("binomial", {}, [0, 1, 1], [2]),
        ("poisson", {}, [0, 1, 3, 9], [1 + 1 + 3 + 6]),
        ("poisson", {"rule": "redact"}, [0, 1, 3, 9], [4]),
        ("geometric", {}, [0, 4, 5, 1e15], [12]),
        ("exponential", {"bounds": (0.5, 2)}, [-7, 0.25, 1.5, 1e300], [0.5 + 0.5 + 1.5 + 2]),
        ("exponential", {"bounds": (0.5, 2), "rule": "redact"}, [-7, 0.25, 1.5, 2, 1e300], [3.5]),
        ("normal", {"scaling": None}, [-9, 1, 2], [1, 9]),
        ("normal", {"bounds": (0, 4)}, [0, 2, 3, 9], [-1 + 0 + 0.5 + 1, 1 + 0 + 0.25 + 1]),
        ("normal", {"bounds": (0, 4), "rule": "redact"}, [-0.1, 3, 9], [0.5, 0.25]),
        ("log-normal", {"bounds": (1, math.e), "scaling": None}, [-3, 0, math.exp(0.5), 9], [1.5, 1.25]),
        ("log-normal", {"bounds": (1, math.e**2)}, [1, math.e, 99], [0, 2]),
        ("gamma", {"bounds": (0, 2)}, [5], [2]),
    ],
)
def test_sums(kind, changes, column, sums):
    s = statistic(kind, **changes)
    found = s.from_columns({"x": column})
    np.testing.assert_allclose(found, sums, rtol=1e-14, atol=1e-15)
    assert found.dtype == np.float64 and found.shape == (s.dim,) == (len(s.names),)


def test_redacting_every_record_gives_zero():
    assert statistic("normal", rule="redact").from_columns({"x": [99.0]}).tolist() == [0, 0]


def test_counts():
    assert MultinomialStatistic(3).from_columns({"x": [0.0, 2.0, 2.0]}).tolist() == [1, 0, 2]
    assert MultinomialStatistic(3, (2, 0)).from_columns({"x": [0, 2, 2]}).tolist() == [1, 2]
    coloured = MultinomialStatistic(labels=["red", "blue"], column="colour")
    assert coloured.categories == 2 and coloured.texts == ("colour",)
    assert coloured.from_columns({"colour": np.array(["blue", "blue", "red"])}).tolist() == [1, 2]


SECRET = "777"


@pytest.mark.parametrize(
    ("s", "column", "message"),
    [
        (statistic("binomial"), [0, 777], "column 'x' does not hold values from 0 to 1 only"),
        (statistic("binomial"), [0, 777.5], "column 'x' does not hold whole numbers only"),
        (statistic("poisson"), [777.5], "column 'x' does not hold whole numbers only"),
        (MultinomialStatistic(3), [0, 777], "column 'x' holds something else than"),
        (MultinomialStatistic(3), [0.777], "column 'x' holds something else than"),
        (MultinomialStatistic(3), [-1.0], "column 'x' holds something else than"),
        (MultinomialStatistic(labels=("a", "b")), ["a", "777"], "column 'x' holds something else than the labels"),
    ],
)
def test_values_that_the_model_cannot_have_are_not_shown(s, column, message):
    with pytest.raises(InputError, match=message) as caught:
        s.from_columns({"x": column})
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


# --- arguments ---


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("exponential", {"bounds": None}, "bounds are missing for column 'x'"),
        ("exponential", {"bounds": {}}, "bounds are missing for column 'x'"),
        ("exponential", {"bounds": {"x": (0, 1), "y": (0, 1)}}, "'y', which the model does not use"),
        ("exponential", {"bounds": (1, 1)}, "lo < hi"),
        ("exponential", {"bounds": (2, 1)}, "lo < hi"),
        ("exponential", {"bounds": (0, math.inf)}, "finite"),
        ("exponential", {"bounds": (math.nan, 1)}, "finite"),
        ("exponential", {"bounds": "01"}, "two finite numbers"),
        ("exponential", {"bounds": (-0.1, 1)}, "support"),
        ("exponential", {"rule": "none"}, "rule must be 'clamp' or 'redact'"),
        ("exponential", {"rule": 3}, "rule must be"),
        ("exponential", {"scaling": SCALING}, "not closed under affine maps"),
        ("exponential", {"shape": 2}, "has no option .shape."),
        ("exponential", {"features": ["x"]}, "features has no place"),
        ("exponential", {"categories": 2}, "categories has no place"),
        ("exponential", {"target": "a*b"}, "rename the column"),
        ("exponential", {"target": 3}, "column name"),
        ("poisson", {"bounds": (0.5, 3)}, "whole numbers"),
        ("poisson", {"bounds": (-1, 3)}, "support"),
        ("log-normal", {"bounds": (0, 3)}, "above 0"),
        ("log-normal", {"bounds": (3, math.nextafter(3, 4))}, "too close"),
        ("normal", {"scaling": "unit"}, "scaling must be"),
        ("gamma", {"shape": 0}, "shape must be"),
        ("gamma", {"shape": math.nan}, "shape must be"),
        ("gamma", {"shape": "2"}, "shape must be"),
        ("binomial", {"bounds": (0, 1)}, "no bounds and no rule"),
        ("binomial", {"rule": "clamp"}, "no bounds and no rule"),
        ("multinomial", {}, "categories is missing"),
        ("multinomial", {"categories": 1}, "at least 2"),
        ("multinomial", {"categories": True}, "at least 2"),
        ("multinomial", {"categories": 2.0}, "at least 2"),
        ("multinomial", {"categories": 3, "labels": ["a", "b"]}, "labels must be as many"),
        ("multinomial", {"labels": ["a"]}, "at least 2"),
        ("multinomial", {"labels": "ab"}, "labels must be a list"),
        ("multinomial", {"labels": ["a", "a"]}, "differ"),
        ("multinomial", {"labels": ["a", " b"]}, "a label must be"),
        ("multinomial", {"labels": ["a", 2]}, "a label must be"),
        ("multinomial", {"categories": 3, "released": [0]}, "released must be"),
        ("multinomial", {"categories": 3, "released": [0, 0, 1]}, "released must be"),
        ("multinomial", {"categories": 3, "released": [0, 3]}, "released must be"),
        ("multinomial", {"categories": 3, "bounds": (0, 1)}, "bounds has no place"),
        ("multinomial", {"categories": 3, "rule": "clamp"}, "rule has no place"),
        ("multinomial", {"categories": 3, "scaling": SCALING}, "scaling must be None"),
        ("multinomial", {"categories": 3, "shape": 2}, "shape has no place"),
        ("linear-regression", {"target": "y"}, "features is missing"),
        ("linear-regression", {"features": ["x"]}, "target is missing"),
        ("wishart", {}, "model 'wishart' is not known"),
        (None, {}, "model None is not known"),
    ],
)
def test_refused_arguments(kind, changes, message):
    with pytest.raises(InputError, match=message) as caught:
        statistic(kind, **changes)
    assert "\n" not in str(caught.value)


def test_family_must_be_one():
    with pytest.raises(InputError, match="family must be"):
        FamilyStatistic("exponential", "clamp", (0, 1))


def test_kinds_and_defaults():
    assert set(kinds()) == {"linear-regression", "multinomial", *FAMILIES} and kinds()[0] == "linear-regression"
    for kind in kinds():
        check_kind(kind)
    s = statistic("normal")
    assert (s.rule, s.scaling, s.column, s.value_bounds) == ("clamp", SCALING, "x", (-1, 1))
    s = statistic("exponential", target="wait", bounds={"wait": (0, 5)}, rule="redact")
    assert (s.rule, s.scaling, s.variables, s.value_bounds) == ("redact", None, ("wait",), (0, 5))
    assert statistic("log-normal", scaling=None).value_bounds == (math.log(0.1), math.log(5))
    assert (statistic("binomial").rule, statistic("binomial").value_bounds) == ("none", None)
    assert make_statistic("linear-regression", target="y", features=["x"], scaling=None) == RegressionStatistic(
        ("x",), "y"
    )


@pytest.mark.parametrize("kind", [*UNBOUNDED, "binomial"])
def test_statistics_are_values(kind):
    assert statistic(kind) == statistic(kind) and hash(statistic(kind)) == hash(statistic(kind))
    s = statistic(kind)
    assert s.kind == kind and s.dim == len(s.names) and s.integer == FAMILIES[kind].discrete
    assert s.block() == {"kind": kind} | OPTIONS.get(kind, {})
    assert s.family == family_named(kind, **OPTIONS.get(kind, {}))
    assert (s.truncation is None) == (kind == "binomial") == (s.column_bounds is None)


# --- words and units ---


def test_words():
    assert statistic("log-normal", target="wage").describe("mean") == "mean of log wage"
    assert statistic("exponential", target="wait").describe("rate") == "rate of wait"
    coloured = MultinomialStatistic(labels=["red", "blue"], column="colour")
    assert [coloured.describe(name) for name in coloured.parameter_names] == [
        "share of colour = red",
        "share of colour = blue",
    ]
    assert MultinomialStatistic(2).describe("p[1]") == "share of x = 1"
    assert statistic("gamma").title == "gamma: x, shape = 2.5"


def test_units_of_scaled_families():
    rng = np.random.default_rng(0)
    for kind in ("normal", "log-normal"):
        s = statistic(kind)
        x = rng.uniform(*s.bounds, 4000)
        scaled = s.from_columns({"x": x}) / len(x)
        found = s.to_user_units(np.array([[scaled[0], scaled[1] - scaled[0] ** 2]]))
        v = np.log(x) if kind == "log-normal" else x
        np.testing.assert_allclose(found, [[v.mean(), v.var()]], rtol=1e-10)
        raw = statistic(kind, scaling=None)
        np.testing.assert_array_equal(raw.to_user_units(found), found)
    np.testing.assert_array_equal(statistic("exponential").to_user_units([[2.0]]), [[2.0]])


def test_jax_is_not_loaded():
    code = (
        "import sys; from dpjax.statistics.kinds import make_statistic as m;"
        "s = [m('exponential', bounds=(0, 1)), m('normal', bounds=(0, 1)), m('multinomial', categories=3)];"
        "[(t.sensitivity(), t.sensitivity('l2'), t.from_columns({'x': [0.0, 1.0]})) for t in s];"
        "print('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT.parent)
    assert done.stdout.strip() == "False", done.stderr


def test_rounding_allowance_covers_sums_in_raw_units():
    """Neighbouring tables of large values: the computed sums differ by no more than allowed, rounding included."""
    rng = np.random.default_rng(5)
    s, n = statistic("normal", scaling=None, bounds=(90.3, 110.7)), 5000
    exact = Fraction(s.sensitivity())
    for _ in range(8):
        x, sums = rng.uniform(80, 120, n), []
        for value in s.bounds:
            x[0] = value
            sums.append([Fraction(v) for v in s.from_columns({"x": x})])
        gap = sum(abs(a - b) for a, b in zip(*sums, strict=True))
        assert gap <= exact + Fraction(s.rounding_allowance(n))
    assert s.rounding_allowance(n) < 1e-6
