"""Releases of families and the other mechanisms: noise, guarantee, files, and what is refused."""

import copy
import json
import math
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpjax
from dpjax.errors import InputError, PrivacyWarning
from dpjax.mechanisms import MECHANISMS
from dpjax.mechanisms.discrete_laplace import add_discrete_laplace_noise
from dpjax.mechanisms.gaussian import add_gaussian_noise
from dpjax.privacy.gaussian import analytic_gaussian_sigma, gaussian_delta
from dpjax.releases.guarantee import Privacy
from dpjax.releases.release import Release, describe_problems
from dpjax.statistics.kinds import make_statistic

BOUNDS = {"exponential": (0, 5), "gamma": (0, 5), "normal": (0, 5), "log-normal": (0.1, 5)}
BOUNDS |= {"poisson": (0, 5), "geometric": (0, 5)}
SECRET = "777"


def call(column=None, *, model="exponential", **changes):
    data = {"x": np.random.default_rng(0).poisson(1, 300) if column is None else column}
    bounds = {"bounds": {"x": BOUNDS[model]}} if model in BOUNDS else {}
    options = {"shape": 2} if model == "gamma" else {}
    arguments = {"model": model, "target": "x", "epsilon": 1.0} | bounds | options | changes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return dpjax.release(data, **arguments)


@pytest.fixture
def silent(monkeypatch):
    """No noise; a list of the exact statistics that were about to get some."""
    seen = []

    def keep(mechanism, values, sensitivity, epsilon, delta=0.0):
        seen.append(values)
        return values, mechanism.release_scale(sensitivity, epsilon, delta), epsilon

    for noise in MECHANISMS.values():
        monkeypatch.setattr(type(noise), "draw", keep)
    return seen


# --- mechanisms; unseeded by nature: thresholds that fail a correct build less than once in 10^6 runs ---


def test_discrete_noise_has_its_law():
    n, b = 40_000, 2.0
    noised, scale, spent = add_discrete_laplace_noise(np.full(n, 5.0), 1.0, 0.5)
    assert (scale, spent) == (b, 0.5)
    k = noised - 5
    assert (k == np.round(k)).all()
    seen = Counter(np.clip(k, -9, 9).astype(int).tolist())
    inner = np.tanh(1 / (2 * b)) * np.exp(-np.abs(np.arange(-8, 9)) / b)
    expected = np.array([(1 - inner.sum()) / 2, *inner, (1 - inner.sum()) / 2])
    assert stats.chisquare([seen[j] for j in range(-9, 10)], expected * n).pvalue > 1e-6


@pytest.mark.slow
def test_gaussian_noise_has_its_law():
    n = 40_000
    noised, sigma, spent = add_gaussian_noise(np.full(n, 3.0), 2.0, 0.7, 1e-5)
    e = (noised - 3) / sigma
    assert spent == 0.7 and gaussian_delta(sigma, 2.0, 0.7) <= 1e-5
    assert sigma == analytic_gaussian_sigma(2.0, 0.7, 1e-5)
    assert stats.kstest(e, stats.norm.cdf).pvalue > 1e-6
    assert abs(np.mean(e**2) - 1) < 7 * math.sqrt(2 / n)
    assert abs(np.corrcoef(e[1:], e[:-1])[0, 1]) < 7 / math.sqrt(n)


@pytest.mark.parametrize("function", [add_discrete_laplace_noise, lambda *a: add_gaussian_noise(*a, 1e-6)])
@pytest.mark.parametrize("values", [[math.nan, 1.0], [1.0, math.inf], []])
def test_noise_is_not_added_to_what_opendp_would_swallow(function, values):
    with pytest.raises(InputError, match="statistics"):
        function(np.array(values), 1.0, 1.0)


@pytest.mark.parametrize(
    ("values", "sensitivity", "epsilon"),
    [([0.5], 1.0, 1.0), ([1e17], 1.0, 1.0), ([1.0], 0.5, 1.0), ([1.0], 1.0, 1e-14)],
)
def test_discrete_noise_is_for_whole_numbers(values, sensitivity, epsilon):
    with pytest.raises(InputError):
        add_discrete_laplace_noise(np.array(values), sensitivity, epsilon)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1 / 3, 1, 7, 1e3])
@pytest.mark.parametrize(
    ("model", "mechanism"),
    [("exponential", "laplace"), ("exponential", "gaussian"), ("poisson", "discrete-laplace"), ("normal", "gaussian")],
)
def test_recorded_guarantee_is_that_of_the_recorded_noise(model, mechanism, epsilon):
    delta = {"delta": 1e-6} if mechanism == "gaussian" else {}
    r = call(model=model, mechanism=mechanism, epsilon=epsilon, **delta)
    privacy = r.privacy
    assert epsilon * (1 - 1e-12) <= privacy.epsilon <= epsilon and privacy.delta == delta.get("delta", 0.0)
    assert privacy.norm == ("l2" if mechanism == "gaussian" else "l1") and privacy.bounds_epsilon is None
    assert privacy.sensitivity >= r.statistic.sensitivity(privacy.norm)
    import opendp.prelude as dp

    number = "i64" if mechanism == "discrete-laplace" else float
    atoms = dp.atom_domain(T=number) if number == "i64" else dp.atom_domain(T=float, nan=False)
    if mechanism == "gaussian":
        assert gaussian_delta(r.noise_scale, privacy.sensitivity, privacy.epsilon) <= 1e-6
        measurement = dp.m.make_gaussian(dp.vector_domain(atoms), dp.l2_distance(T=float), r.noise_scale)
        rho = (privacy.sensitivity / r.noise_scale) ** 2 / 2
        assert measurement.map(privacy.sensitivity) == pytest.approx(rho, rel=1e-12)
    else:
        size = int(privacy.sensitivity) if number == "i64" else privacy.sensitivity
        measurement = dp.m.make_laplace(dp.vector_domain(atoms), dp.l1_distance(T=number), r.noise_scale)
        assert measurement.map(size) == privacy.epsilon


def test_regression_with_gaussian_noise():
    table = {"a": [0.0, 1.0, 0.5], "y": [1.0, 0.0, 0.5]}
    with pytest.warns(PrivacyWarning, match=r"epsilon = 0\.5, delta = 1e-06 under replace-one .* epsilon and delta"):
        r = dpjax.release(
            table,
            target="y",
            features=["a"],
            bounds={"a": (0, 1), "y": (0, 1)},
            epsilon=0.5,
            mechanism="gaussian",
            delta=1e-6,
        )
    # from (1, 1) to (1, -1): y and x y move by 2
    assert r.privacy.sensitivity == pytest.approx(math.sqrt(8), rel=1e-12)
    assert r.noise_scale == pytest.approx(analytic_gaussian_sigma(math.sqrt(8), 0.5, 1e-6), rel=1e-9)
    assert list(r.to_dict()["privacy"]) == ["epsilon", "delta", "adjacency", "norm", "sensitivity"]


# --- what is released ---


@pytest.mark.parametrize(
    ("model", "changes", "column", "sums", "sensitivity"),
    [
        ("binomial", {}, [1, 0, 1], {"successes": 2}, 1),
        ("poisson", {}, [0, 4, 9], {"x": 9}, 5),
        ("geometric", {"rule": "redact"}, [0, 4, 9], {"x": 4}, 5),
        ("exponential", {"bounds": (1, 3)}, [0.5, 2.5, 9], {"x": 6.5}, 2),
        ("exponential", {"bounds": (1, 3), "rule": "redact"}, [0.5, 2.5, 9], {"x": 2.5}, 3),
        ("gamma", {}, [0.5, 9], {"x": 5.5}, 5),
        ("normal", {"bounds": {"x": (0, 4)}}, [0, 3, 9], {"x": 0.5, "x*x": 2.25}, 2.25),
        ("log-normal", {"bounds": (1, math.e**2)}, [1, math.e, 99], {"x": 0, "x*x": 2}, 2.25),
        ("multinomial", {"categories": 3}, [2, 0, 2], {"count[0]": 1, "count[1]": 0, "count[2]": 2}, 2),
        ("multinomial", {"categories": 2, "released": [1]}, [0, 1, 1], {"count[1]": 2}, 1),
        ("multinomial", {"labels": ["b", "a"]}, ["a", "b", "a"], {"count[0]": 1, "count[1]": 2}, 2),
    ],
)
def test_statistics_and_sensitivities(silent, model, changes, column, sums, sensitivity):
    r = call(column, model=model, **changes)
    assert r.statistics == pytest.approx(sums, abs=1e-15)
    assert sensitivity <= r.privacy.sensitivity <= sensitivity * (1 + 1e-12)
    assert r.privacy.sensitivity == sensitivity or not r.statistic.integer
    assert r.scale.tolist() == [r.privacy.sensitivity] * len(sums)
    assert (r.kind, r.records, r.names) == (model, len(column), tuple(sums))
    assert Release.from_dict(json.loads(json.dumps(r.to_dict()))) == r
    with pytest.raises(AttributeError, match="no features"):
        _ = r.features


@pytest.mark.parametrize("model", [*BOUNDS, "binomial"])
def test_one_record_and_all_mechanisms(model):
    for mechanism in ("laplace", "gaussian", "discrete-laplace"):
        delta = {"delta": 1e-3} if mechanism == "gaussian" else {}
        if mechanism == "discrete-laplace" and model not in ("poisson", "geometric", "binomial"):
            with pytest.raises(InputError, match="for sums of whole numbers"):
                call([1], model=model, mechanism=mechanism)
            continue
        r = call([1], model=model, mechanism=mechanism, **delta)
        assert r.records == 1 and np.isfinite(r.z).all()
        assert mechanism != "discrete-laplace" or (r.z == np.round(r.z)).all()


def test_layout_of_the_file():
    r = call(model="exponential")
    data = r.to_dict()
    assert list(data) == [
        "format", "version", "model", "records", "scaling", "statistics", "mechanism", "truncation", "privacy",
    ]  # fmt: skip
    assert data["model"] == {"kind": "exponential"} and data["scaling"] is None
    assert data["truncation"] == {"rule": "clamp", "bounds": [0.0, 5.0]}
    assert call(model="gamma").to_dict()["model"] == {"kind": "gamma", "shape": 2.0}
    normal = call(model="normal").to_dict()
    assert normal["scaling"] == "bounds-to-[-1,1]" and "bounds" not in normal
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        named = dpjax.release(
            {"colour": ["red", "blue"]}, model="multinomial", target="colour", labels=["red", "blue"], epsilon=1
        )
    assert named.to_dict()["model"] == {
        "kind": "multinomial", "categories": 2, "labels": ["red", "blue"], "column": "colour",
    }  # fmt: skip
    assert "truncation" not in named.to_dict()


# --- refused, before noise, without a value ---


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, True, "1", None, [1.0]])
def test_bad_epsilon(epsilon, silent):
    with pytest.raises(InputError, match="epsilon must be a finite number > 0"):
        call(epsilon=epsilon)
    assert not silent


@pytest.mark.parametrize(
    ("column", "changes", "message"),
    [
        ([777.5], {"model": "poisson"}, "column 'x' does not hold whole numbers only"),
        ([0, 777], {"model": "binomial"}, "column 'x' does not hold values from 0 to 1"),
        ([0, 777], {"model": "multinomial", "categories": 3}, "column 'x' holds something else"),
        (["a", "777"], {"model": "multinomial", "labels": ["a", "b"]}, "something else than the labels"),
        ([0, 777], {"model": "multinomial", "labels": ["a", "b"]}, "column 'x' does not hold text only"),
        (["777", None], {"model": "multinomial", "labels": ["a", "b"]}, "column 'x' has missing values"),
        (["777", "b"], {"model": "multinomial", "categories": 3}, "column 'x' does not hold numbers only"),
        (["777"], {}, "column 'x' does not hold numbers only"),
        ([True, False], {"model": "poisson"}, "column 'x' does not hold numbers only"),
        ([777.0, math.nan], {}, "column 'x' has missing values"),
        ([777.0, math.inf], {}, "column 'x' has values that are missing or not finite"),
        ([777, None], {"model": "poisson"}, "column 'x' has missing values"),
        ([], {}, "no records"),
        ([777.0], {"target": "y", "bounds": (0, 1)}, "column 'y' is not in the table"),
        ([2.0**52] * 9, {"model": "geometric", "bounds": (0, 2**52), "mechanism": "discrete-laplace"}, "at most 2.52"),
        ([1], {"model": "poisson", "mechanism": "discrete-laplace", "epsilon": 1e-15}, "beyond"),
        ([777.0], {"epsilon": 5e-324}, "beyond the range"),
        ([777.0], {"bounds": (0, 1.7e308), "epsilon": 1e-3}, "two finite numbers lo < hi from"),
    ],
)
def test_bad_tables_and_budgets(column, changes, message, silent):
    with pytest.raises(InputError, match=message) as caught:
        call(column, **changes)
    error = caught.value
    assert SECRET not in str(error) and "\n" not in str(error) and not silent
    assert error.__cause__ is None and error.__context__ is None


def test_warning_as_error_stops_before_the_noise(silent):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PrivacyWarning, match=r"epsilon = 1, delta = 0\.001"):
            dpjax.release(
                {"x": [1.0]},
                model="exponential",
                target="x",
                bounds=(0, 1),
                epsilon=1,
                mechanism="gaussian",
                delta=1e-3,
            )
    assert not silent


def test_tables_with_text():
    for column in (["a", " b "], np.array(["a", "b"]), pd.Series(["a", "b"]), pd.Categorical(["a", "b"])):
        assert call(column, model="multinomial", labels=["a", "b"], epsilon=1e6).z == pytest.approx([1, 1], abs=1e-3)


def test_no_jax_and_no_generator():
    script = """
import sys, warnings
warnings.simplefilter("ignore")
import dpjax
q = dpjax.PrivateQuantile((0, 9), 0.5)
for kind, more in (("exponential", {"bounds": (0, 9)}), ("normal", {"bounds": q}), ("multinomial", {"categories": 3}),
                   ("poisson", {"bounds": q, "mechanism": "discrete-laplace"}),
                   ("gamma", {"bounds": (0, 9), "shape": 2, "mechanism": "gaussian", "delta": .1})):
    made = dpjax.release({"x": [0, 1, 2]}, model=kind, target="x", epsilon=1, **more)
    assert dpjax.Release.from_dict(made.to_dict()) == made
print("jax" in sys.modules)
"""
    root = Path(dpjax.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root)
    assert done.stdout.strip() == "False", done.stderr


# --- files written by hand ---

EXPONENTIAL = {
    "format": "dpjax-release",
    "version": 1,
    "model": {"kind": "exponential"},
    "records": 1000,
    "scaling": None,
    "statistics": {"x": 880.0},
    "mechanism": {"kind": "laplace", "scale": 36.9},
    "truncation": {"rule": "redact", "bounds": [0.025318, 3.688879]},
    "privacy": {"epsilon": 0.1, "delta": 0, "adjacency": "replace-one", "norm": "l1", "sensitivity": 3.69},
}
COUNTS = {f"count[{k}]": 300 for k in range(3)}


def written(tmp_path, **changes):
    data = {k: v for k, v in (copy.deepcopy(EXPONENTIAL) | changes).items() if v is not ...}
    path = tmp_path / "release.json"
    path.write_text(json.dumps(data))
    return path


def binomial(**changes):
    return {
        "model": {"kind": "binomial"},
        "statistics": {"successes": 600},
        "truncation": ...,
        "privacy": ...,
    } | changes


def multinomial(**changes):
    model = {"kind": "multinomial", "categories": 3}
    return {"model": model, "statistics": COUNTS, "truncation": ..., "privacy": ...} | changes


def normal(**changes):
    entries = {"statistics": {"x": 1.5, "x*x": 2}, "privacy": ..., "scaling": "bounds-to-[-1,1]"}
    return {"model": {"kind": "normal"}, **entries} | changes


DISCRETE = {"mechanism": {"kind": "discrete-laplace", "scale": 10}}
SHAPE = {"kind": "gamma", "shape": 2}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, make_statistic("exponential", bounds=(0.025318, 3.688879), rule="redact")),
        ({"model": SHAPE}, make_statistic("gamma", shape=2, bounds=(0.025318, 3.688879), rule="redact")),
        (
            {"model": {"kind": "exponential", "column": "wait"}},
            make_statistic("exponential", target="wait", bounds=(0.025318, 3.688879), rule="redact"),
        ),
        (binomial(), make_statistic("binomial")),
        (binomial(**DISCRETE), make_statistic("binomial")),
        (multinomial(), make_statistic("multinomial", categories=3)),
        (
            multinomial(statistics={"count[1]": 250, "count[0]": 400}),
            make_statistic("multinomial", categories=3, released=[0, 1]),
        ),
        (
            multinomial(model={"kind": "multinomial", "categories": 3, "labels": ["a", "b", "c"], "column": "k"}),
            make_statistic("multinomial", labels=["a", "b", "c"], target="k"),
        ),
        (normal(), make_statistic("normal", bounds=(0.025318, 3.688879), rule="redact")),
        (normal(scaling=None), make_statistic("normal", bounds=(0.025318, 3.688879), rule="redact", scaling=None)),
        (
            normal(model={"kind": "log-normal"}),
            make_statistic("log-normal", bounds=(0.025318, 3.688879), rule="redact"),
        ),
    ],
)
def test_valid_files(tmp_path, changes, expected):
    path = written(tmp_path, **changes)
    assert describe_problems(path) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        r = Release.load(path)
    assert r.statistic == expected
    assert Release.from_dict(r.to_dict()) == r


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"truncation": ...}, "'truncation' is missing"),
        ({"truncation": None}, "'truncation' is missing"),
        ({"truncation": {"rule": "clamp"}}, "'bounds'"),
        ({"truncation": {"rule": "none", "bounds": [0, 1]}}, "'truncation.rule' must be 'clamp' or 'redact'"),
        ({"truncation": {"rule": "clamp", "bounds": [1, 0]}}, "'truncation': bounds of 'x' must be"),
        ({"truncation": {"rule": "clamp", "bounds": [-1, 1]}}, "'truncation': bounds of 'x' must lie in the support"),
        ({"truncation": {"rule": "clamp", "bounds": [0, "1"]}}, "Expected 'float', got 'str'"),
        ({"truncation": {"rule": "clamp", "bounds": [0, 1], "more": 1}}, "unknown field 'more'"),
        ({"bounds": {"x": [0, 1]}}, "'bounds' has no place in a release of exponential"),
        ({"scaling": "bounds-to-[-1,1]"}, "not closed under affine maps"),
        ({"model": {"kind": "exponential", "shape": 2}}, "unknown field 'shape'"),
        ({"model": {"kind": "gamma"}}, "'shape'"),
        ({"model": {"kind": "gamma", "shape": 0}}, "'model': shape must be"),
        ({"model": {"kind": "gamma", "shape": "2"}}, "shape"),
        ({"model": {"kind": "exponential", "column": "a*b"}}, "'model': column name"),
        ({"model": {"kind": "poisson"}}, "whole numbers"),
        ({"statistics": {"y": 1}}, "'statistics' lacks 'x'"),
        ({"statistics": {"x": 1, "x*x": 1}}, "'statistics' has 'x*x'"),
        (DISCRETE, "is for counts: the sums of exponential are not whole numbers"),
        (binomial(**DISCRETE, statistics={"successes": 600.5}), "must be a whole number"),
        (binomial(**DISCRETE, statistics={"successes": 2**60}), "must be a whole number"),
        (binomial(truncation={"rule": "clamp", "bounds": [0, 1]}), "'truncation' has no place"),
        (binomial(scaling="bounds-to-[-1,1]"), "'model'"),
        (binomial(statistics={"x": 3}), "'statistics' lacks 'successes'"),
        (multinomial(statistics={"count[0]": 1}), "'statistics' must hold all of count[0] to count[2], or all but one"),
        (multinomial(statistics=COUNTS | {"count[3]": 1}), "'statistics' has 'count[3]'"),
        (multinomial(model={"kind": "multinomial"}), "'categories'"),
        (multinomial(model={"kind": "multinomial", "categories": 1}), "at least 2"),
        (multinomial(model={"kind": "multinomial", "categories": 10**9}), "'model': categories"),
        (multinomial(model={"kind": "multinomial", "categories": 3, "labels": ["a"]}), "labels must be as many"),
        (multinomial(scaling="bounds-to-[-1,1]"), "'scaling' has no place"),
        (normal(scaling="unit"), "'scaling' must be"),
    ],
)
def test_bad_files(tmp_path, changes, message):
    path = written(tmp_path, **changes)
    problems = describe_problems(path)
    assert problems and message in problems[0] and all("\n" not in problem for problem in problems)
    with pytest.raises(InputError, match="release file"):
        Release.load(path)


PRIVACY = EXPONENTIAL["privacy"]
CLAMPED = {"rule": "clamp", "bounds": [0, 5]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # the author code's sensitivities (docs/formulas.md#count-sensitivity, #truncated-sensitivity)
        ({"privacy": PRIVACY | {"sensitivity": 3.663562}}, "stated sensitivity 3.663562 is below 3.688879"),
        (multinomial(privacy=PRIVACY | {"sensitivity": 1}), "stated sensitivity 1 is below 2"),
        ({"truncation": CLAMPED, "privacy": PRIVACY | {"sensitivity": 5}}, "below sensitivity / epsilon"),
        # the part of epsilon that the bounds cost is not there for the noise
        ({"privacy": PRIVACY | {"bounds_epsilon": 0.05}}, "below sensitivity / epsilon = 73.8"),
        (
            {
                "mechanism": {"kind": "gaussian", "scale": 10},
                "privacy": PRIVACY | {"norm": "l2", "delta": 1e-6},
            },
            "Gaussian noise",
        ),
        (
            {
                "mechanism": {"kind": "gaussian", "scale": 1e4},
                "privacy": PRIVACY | {"norm": "l2", "delta": 1e-6, "sensitivity": 3.6},
            },
            "replace-one L2 sensitivity",
        ),
        (binomial(**DISCRETE, privacy=PRIVACY | {"sensitivity": 2, "epsilon": 0.15}), "below sensitivity / epsilon"),
    ],
)
def test_doubtful_guarantees_warn(tmp_path, changes, message):
    path = written(tmp_path, **changes)
    assert describe_problems(path) == []
    with pytest.warns(PrivacyWarning, match=message):
        Release.load(path)


def test_release_by_hand():
    statistic = make_statistic("multinomial", categories=3, released=[0, 1])
    arguments = {
        "statistic": statistic,
        "records": 1000,
        "statistics": {"count[0]": 400, "count[1]": 250},
        "mechanism": "discrete-laplace",
        "noise_scale": 10,
        "privacy": Privacy(0.2, 0.0, "replace-one", "l1", 2.0),
    }
    r = Release(**arguments)
    assert r.z.tolist() == [400, 250] and Release.from_dict(r.to_dict()) == r
    for changes in (
        {"statistics": {"count[0]": 400, "count[2]": 250}},
        {"statistics": {"count[0]": 400, "count[1]": 250, "count[2]": 350}},
        {"statistics": {"count[0]": 400.5, "count[1]": 250}},
        {"statistic": make_statistic("exponential", bounds=(0, 1))},
        {"statistic": "multinomial"},
    ):
        with pytest.raises(InputError):
            Release(**arguments | changes)
