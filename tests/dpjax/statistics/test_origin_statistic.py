"""Releases of regressions through the origin: what is summed, sensitivity, arguments, file and guarantee."""

import copy
import itertools
import json
import math
import warnings

import numpy as np
import pytest

from dpjax.errors import InputError, PrivacyWarning
from dpjax.inference.describe import describe_release
from dpjax.mechanisms import MECHANISMS
from dpjax.privacy.gaussian import gaussian_delta
from dpjax.privacy.row_norms import l2_sensitivity
from dpjax.releases import drawing
from dpjax.releases.owner import release
from dpjax.releases.release import Release, describe_problems
from dpjax.statistics.base import SCALING
from dpjax.statistics.kinds import make_statistic
from dpjax.statistics.origin import OriginStatistic

N = 60
BOUNDS = {"a": (-3, 3), "b": (0, 2), "y": (-5, 4)}
NORMS = {"features": 3.0, "target": 5.0}
GAUSS = {"mechanism": "gaussian", "delta": 1e-5}
SECRET = 2.391846


def table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, n)) * 2
    a[0] = SECRET
    return {"a": a, "b": b, "y": 1.5 * a - b + rng.normal(size=n)}


def call(data=None, **changes):
    given = {"target": "y", "features": ["a", "b"], "bounds": BOUNDS, "epsilon": 1.0, "intercept": False}
    given |= {"accept": True} | changes  # many records lie outside of the bounds
    if given.get("norms") is not None and "bounds" not in changes:
        given["bounds"] = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return release(table() if data is None else data, **given)


@pytest.fixture
def exact(monkeypatch):
    """The sums that would be noised, in the place of noise, and their sensitivity."""
    seen = []

    def capture(mechanism, values, sensitivity, epsilon, delta):
        seen.append((np.array(values), sensitivity))
        return values, sensitivity / epsilon, epsilon

    for noise in MECHANISMS.values():
        monkeypatch.setattr(type(noise), "draw", capture)
    return seen


# --- what is summed -----------------------------------------------------------------------------------------------


def test_records_are_clipped_and_divided_and_never_moved(exact):
    call()
    t = table()
    a, b, y = np.clip(t["a"], -3, 3) / 3, np.clip(t["b"], 0, 2) / 2, np.clip(t["y"], -5, 4) / 5
    pairs = [(a, a), (a, b), (b, b), (a, y), (b, y), (y, y)]
    np.testing.assert_allclose(exact[0][0], [u @ v for u, v in pairs], rtol=1e-12)
    assert call().names == ("a*a", "a*b", "b*b", "a*y", "b*y", "y*y")


def test_long_rows_are_shortened_to_the_norm(exact):
    call({"a": [3.0, 6.0], "b": [4.0, 0.0], "y": [9.0, -1.0]}, norms={"features": 2.0, "target": 4.0})
    np.testing.assert_allclose(exact[0][0], [0.36 + 1, 0.48, 0.64, 0.6 - 0.25, 0.8, 1 + 1 / 16], rtol=1e-12)


def test_without_squares_there_is_no_sum_of_squares(exact):
    made = call(squares=False)
    call()
    assert made.names == ("a*a", "a*b", "b*b", "a*y", "b*y")
    np.testing.assert_array_equal(exact[0][0], exact[1][0][:-1])
    assert exact[0][1] < exact[1][1]


def test_averaged_rows_are_sums_over_the_root_of_their_number(exact, monkeypatch):
    monkeypatch.setattr(drawing, "_permutation", np.arange)
    made = call(norms=NORMS, averaged=4, **GAUSS)
    x = np.stack([table()["a"], table()["b"]], 1)
    x *= np.minimum(1, 3 / np.linalg.norm(x, axis=1))[:, None]
    y = np.clip(table()["y"], -5, 5)
    rows = np.column_stack([x / 3, y / 5]).reshape(N // 4, 4, 3).sum(1) / 2
    gram = rows.T @ rows
    np.testing.assert_allclose(exact[0][0], gram[[0, 0, 1, 0, 1, 2], [0, 1, 1, 2, 2, 2]], rtol=1e-12)
    assert made.records == N // 4


def test_draws_return_to_the_users_units():
    statistic = call().statistic
    assert statistic.parameter_names == ("theta[1]", "theta[2]", "sigma2", "tau2[1,1]", "tau2[2,1]", "tau2[2,2]")
    draws = np.ones(6)
    np.testing.assert_allclose(statistic.to_user_units(draws), [5 / 3, 5 / 2, 25, 9, 6, 4])
    np.testing.assert_allclose(statistic.to_user_units(draws[:3]), [5 / 3, 5 / 2, 25])


# --- sensitivity ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p, size", [(1, 3.0), (2, 6.0)])
def test_box_sensitivity_is_the_exact_joint_one(p, size):
    """docs/formulas.md#box-sensitivity, rows without an intercept; the paper states 12 and 24."""
    names = [f"x{i}" for i in range(p)]
    made = call({k: np.ones(5) for k in [*names, "y"]}, features=names, bounds=dict.fromkeys([*names, "y"], (-7, 7)))
    assert size <= made.privacy.sensitivity <= size * (1 + 1e-12)
    assert made.noise_scale == pytest.approx(size, rel=1e-12)


def test_box_away_from_zero_has_the_sensitivity_of_spec_a1():
    statistic = OriginStatistic(["x"], "y", {"x": (1, 2), "y": (1, 2)})
    assert statistic.sensitivity("l1") == pytest.approx(9, rel=1e-12)
    statistic = OriginStatistic(["a", "b"], "y", {"a": (-1, 1), "b": (2, 5), "y": (-3, 4)})
    assert statistic.sensitivity("l1") == pytest.approx(68.3333333, rel=1e-8)


@pytest.mark.parametrize(
    "norms, squares, size",
    [((1, 1), False, 2.1213203436), ((1, 2), False, 4.0), ((2, 1), False, 6.3639610307), ((1, 1), True, 2.1213203436),
     ((1, 2), True, 4.6904157598), ((2, 1), True, 6.3639610307)],
)  # fmt: skip
def test_norm_sensitivity_is_that_of_spec_a3_and_a5(norms, squares, size):
    limits = dict(zip(("features", "target"), norms, strict=True))
    raw = OriginStatistic(["a", "b"], "y", norms=limits, squares=squares)
    assert raw.sensitivity("l2") == pytest.approx(size, rel=1e-9)
    scaled = call(norms=limits, squares=squares, **GAUSS)
    assert scaled.privacy.sensitivity == pytest.approx(2.1213203436, rel=1e-9)  # X = Y = 1 there
    assert gaussian_delta(scaled.noise_scale, scaled.privacy.sensitivity, 1.0) <= 1e-5 * (1 + 1e-6)


@pytest.mark.parametrize("k, squares", [(2, True), (4, False), (10, True)])
def test_averaged_sensitivity_is_that_of_spec_a6(k, squares):
    made = call(norms=NORMS, averaged=k, squares=squares, **GAUSS)
    each = 4 * (k - 1) / k
    assert made.privacy.sensitivity == pytest.approx(each * math.sqrt(3 if squares else 2), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{}, {"squares": False}, {"norms": NORMS, **GAUSS}, {"norms": NORMS}, {"norms": NORMS, "squares": False, **GAUSS},
     {"norms": NORMS, "averaged": 3, **GAUSS}],
    ids=["box", "box, no squares", "norms", "norms l1", "norms, no squares", "averaged"],
)  # fmt: skip
def test_no_neighbours_are_farther_apart_than_the_sensitivity(exact, changes, monkeypatch):
    """Tables of 6 records that differ in one, wild and extreme ones among them; averaged records are grouped alike in
    both, since the guarantee holds for each permutation and so for a random one."""
    monkeypatch.setattr(drawing, "_permutation", np.arange)
    rng, order = np.random.default_rng(0), 2 if "mechanism" in changes else 1
    worst = 0.0
    directions = [np.array(v, float) for v in itertools.product((-1, 0, 1), repeat=3)]
    for trial in range(150):
        direction = directions[rng.integers(27)] if trial % 2 else rng.normal(size=3)
        base = np.tile(10.0 * direction, (6, 1)) if trial % 3 else rng.normal(size=(6, 3)) * 4
        other = base.copy()
        other[2] = rng.choice([-10.0, -1.0, 0.0, 1.0, 10.0], 3) if trial % 2 else rng.normal(size=3) * 5
        exact.clear()
        for rows in (base, other):
            call(dict(zip("aby", rows.T, strict=True)), **changes)
        (s, sensitivity), (t, _) = exact
        worst = max(worst, np.linalg.norm(s - t, ord=order) / sensitivity)
    assert 0.5 < worst <= 1, worst


# --- arguments ------------------------------------------------------------------------------------------------------

BAD = {
    "no bounds": ({"bounds": None}, "bounds are missing for column 'a'"),
    "a column without bounds": ({"bounds": {"a": (-1, 1), "y": (0, 1)}}, "bounds are missing for column 'b'"),
    "reversed bounds": ({"bounds": BOUNDS | {"b": (2, 0)}}, "bounds of 'b' must be two finite numbers lo < hi"),
    "nan bounds": ({"bounds": BOUNDS | {"y": (math.nan, 1)}}, "bounds of 'y'"),
    "epsilon 0": ({"epsilon": 0}, "epsilon must be a finite number > 0, got 0"),
    "epsilon below 0": ({"epsilon": -1}, "epsilon must be a finite number > 0, got -1"),
    "epsilon nan": ({"epsilon": math.nan}, "epsilon"),
    "delta without gaussian": ({"delta": 1e-5}, "delta has no place"),
    "gaussian without delta": ({"mechanism": "gaussian"}, "delta is missing"),
    "discrete": ({"mechanism": "discrete-laplace"}, "whole numbers"),
    "norms beside bounds": ({"norms": NORMS, "bounds": BOUNDS}, "norms and bounds exclude each other"),
    "norm 0": ({"norms": {"features": 0, "target": 1}}, "norms must be"),
    "norm below 0": ({"norms": {"features": 1, "target": -1}}, "norms must be"),
    "norm nan": ({"norms": {"features": math.nan, "target": 1}}, "norms must be"),
    "norm text": ({"norms": {"features": "1", "target": 1}}, "norms must be"),
    "norm of a column": ({"norms": {"a": 1, "y": 1}}, "norms must be"),
    "norms a pair": ({"norms": (1, 1)}, "norms must be"),
    "norms with an intercept": ({"intercept": True, "norms": NORMS}, "norms is for a linear-regression without"),
    "squares with an intercept": ({"intercept": True, "squares": False}, "squares is for a linear-regression without"),
    "averaged with an intercept": ({"intercept": True, "averaged": 2}, "averaged is for a linear-regression without"),
    "squares text": ({"squares": "no"}, "squares must be True or False"),
    "averaged without norms": ({"averaged": 2}, "averaged needs norms"),
    "averaged 0": ({"norms": NORMS, "averaged": 0, **GAUSS}, "averaged must be a whole number"),
    "averaged 1.5": ({"norms": NORMS, "averaged": 1.5, **GAUSS}, "averaged must be a whole number"),
    "averaged true": ({"norms": NORMS, "averaged": True, **GAUSS}, "averaged must be a whole number"),
    "averaged no divisor": ({"norms": NORMS, "averaged": 7, **GAUSS}, "averaged must divide the number of records"),
    "averaged beyond": ({"norms": NORMS, "averaged": 10**9, **GAUSS}, "averaged must divide the number of records"),
    "averaged and laplace": ({"norms": NORMS, "averaged": 2}, "use gaussian noise"),
    "moments": ({"moments": True}, "moments are for regressions with an intercept"),
    "add-remove": ({"adjacency": "add-remove"}, "add-remove"),
    "intercept text": ({"intercept": "no"}, "intercept must be True or False"),
    "of a family": ({"model": "poisson", "features": None, "bounds": (0, 1)}, "intercept has no place in .* poisson"),
    "target among features": ({"features": ["a", "y"]}, "'y' is also among the features"),
    "unknown option": ({"shape": 2}, "shape"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_a_bad_argument_is_one_clear_line_without_data(what, monkeypatch):
    changes, message = BAD[what]
    for noise in MECHANISMS.values():
        monkeypatch.setattr(type(noise), "draw", lambda *_: pytest.fail("noise was drawn"))
    with pytest.raises((InputError, TypeError), match=message) as error:
        call(**changes)
    text = str(error.value)
    assert error.type is InputError and "\n" not in text and len(text) < 250
    assert str(SECRET) not in text and str(N) not in text


@pytest.mark.parametrize("value", [math.nan, math.inf, "x"])
def test_a_bad_table_shows_the_column_and_no_value(value):
    data = table() | {"b": [*table()["b"][:-1], value]}
    for changes in ({}, {"norms": NORMS}):
        with pytest.raises(InputError, match="'b'") as error:
            call(data, **changes)
        assert str(SECRET) not in str(error.value) and str(N) not in str(error.value)


def test_release_of_one_record_and_of_extreme_budgets():
    for epsilon in (1e-3, 1e3):
        for changes in ({}, {"norms": NORMS, **GAUSS}):
            made = call({"a": [1.0], "b": [2.0], "y": [3.0]}, epsilon=epsilon, **changes)
            assert made.records == 1 and made.privacy.epsilon == pytest.approx(epsilon, rel=1e-9)
            assert Release.from_dict(made.to_dict()) == made
    assert call({"a": [9.0] * 2, "b": [0.0] * 2, "y": [0.0] * 2}, norms=NORMS, averaged=2, **GAUSS).records == 1


# --- the file -------------------------------------------------------------------------------------------------------

WAYS = {
    "bounds": {}, "no squares": {"squares": False}, "gaussian": GAUSS, "norms": {"norms": NORMS},
    "norms, gaussian, no squares": {"norms": NORMS, "squares": False, **GAUSS},
    "averaged": {"norms": NORMS, "averaged": 5, **GAUSS},
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_file_gives_the_same_release_back(way, tmp_path):
    made, path = call(**WAYS[way]), tmp_path / "release.json"
    made.save(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = Release.load(path)
    assert again == made and again.statistic == made.statistic and hash(again.statistic) == hash(made.statistic)
    assert again.to_dict() == made.to_dict() and describe_problems(path) == []
    content = json.loads(path.read_text())
    assert content["model"]["intercept"] is False and ("bounds" in content) == ("norms" not in WAYS[way])
    assert str(SECRET) not in path.read_text()


def test_description_says_all_that_the_release_promises():
    text = describe_release(call(norms=NORMS, averaged=5, squares=False, **GAUSS))
    assert "y on a, b through the origin, without the square of the target" in text
    assert "norms        |a, b| <= 3, |y| <= 5" in text and "each 5 records of the table averaged" in text
    assert "divided by the norms" in text and "bounds" not in text
    assert "bounds       a -3:3, b 0:2, y -5:4" in describe_release(call())


def by_hand(**changes):
    """What someone would write who got noisy sums from elsewhere."""
    data = {
        "format": "dpjax-release", "version": 1,
        "model": {"kind": "linear-regression", "features": ["a"], "target": "y", "intercept": False},
        "records": 100, "scaling": SCALING, "statistics": {"a*a": 20.0, "a*y": 5, "y*y": 30.5},
        "mechanism": {"kind": "laplace", "scale": 3}, "bounds": {"a": [-1, 2], "y": [-4, 4]},
    }  # fmt: skip
    data = copy.deepcopy(data)
    for key, value in changes.items():
        block, _, name = key.rpartition("__")
        place = data[block] if block else data
        if value is None:
            del place[name]
        else:
            place[name] = value
    return data


def test_files_by_hand_are_read():
    made = Release.from_dict(by_hand())
    assert made.z.tolist() == [20, 5, 30.5] and made.privacy is None and isinstance(made.statistic, OriginStatistic)
    np.testing.assert_array_equal(made.statistic.half, [2, 4])
    assert Release.from_dict(by_hand(mechanism__scale={"a*a": 1, "a*y": 2, "y*y": 3})).scale.tolist() == [1, 2, 3]
    assert Release.from_dict(by_hand(scaling=..., bounds=None) | {"scaling": None}).statistic.half.tolist() == [1, 1]
    norms = Release.from_dict(by_hand(bounds=None, model__norms={"features": 2, "target": 4}))
    np.testing.assert_array_equal(norms.statistic.half, [2, 4])


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"model__norms": {"features": 2, "target": 4}}, "'bounds' has no place .* with norms"),
        ({"bounds": None}, "'bounds' are needed"),
        ({"statistics__a": 4.0}, "'statistics' has 'a', which the model does not have"),
        ({"statistics__y*y": None}, r"'statistics' lacks 'y\*y'"),
        ({"model__squares": False}, r"'statistics' has 'y\*y'"),
        ({"model__intercept": True}, "'statistics' lacks 'a'"),
        ({"model__intercept": True, "model__squares": True}, "'model.squares' has no place"),
        ({"model__moments": True}, "moments are for regressions with an intercept"),
        ({"model__averaged": 2}, "averaged needs norms"),
        ({"model__averaged": 0, "bounds": None, "model__norms": {"features": 2, "target": 4}}, "averaged must be"),
        ({"model__norms": {"features": 2}, "bounds": None}, "norms must be"),
        ({"model__norms": {"features": 2, "target": 0}, "bounds": None}, "norms must be"),
        ({"model__norms": [2, 4], "bounds": None}, "model.norms"),
        ({"records": 0}, "'records'"),
        ({"records": 2.5}, "records"),
        ({"mechanism__scale": 0}, "'mechanism.scale' must be finite and > 0"),
        ({"mechanism__kind": "discrete-laplace"}, "counts"),
        ({"bounds": {"a": [2, -1], "y": [-4, 4]}}, "bounds of 'a'"),
        ({"truncation": {"rule": "clamp", "bounds": [0, 1]}}, "'truncation' has no place"),
        ({"model__intercpt": True}, "intercpt"),
    ],
)
def test_broken_files_are_described(changes, message, tmp_path):
    path = tmp_path / "release.json"
    path.write_text(json.dumps(by_hand(**changes)))
    problems = describe_problems(path)
    assert problems and all("\n" not in problem for problem in problems)
    with pytest.raises(InputError, match=message) as error:
        Release.load(path)
    assert str(path) in str(error.value)


def doubts(made, **privacy):
    data = made.to_dict()
    data["privacy"] |= privacy
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Release.from_dict(data)
    return [str(item.message) for item in caught if item.category is PrivacyWarning]


@pytest.mark.parametrize("squares", [True, False])
def test_the_papers_add_remove_sensitivity_is_doubted(squares, tmp_path):
    """Alparslan et al.'s value holds for neighbours that differ in a record more
    (docs/formulas.md#row-norm-sensitivity): stated here, it promises too much."""
    made = call(norms=NORMS, squares=squares, **GAUSS)
    assert doubts(made) == []
    paper = l2_sensitivity(2, 1, 1, squares=squares, adjacency="add-remove")
    (doubt,) = doubts(made, sensitivity=paper)
    assert f"{paper:.10g} is below 2.121320344, the replace-one L2 sensitivity" in doubt
    wrong = made.to_dict()
    wrong["privacy"]["sensitivity"] = paper
    path = tmp_path / "paper.json"
    path.write_text(json.dumps(wrong))
    with pytest.warns(PrivacyWarning, match=r"release file '.*paper\.json': the stated sensitivity"):
        Release.load(path)


def test_the_sensitivity_of_single_records_is_doubted_for_averaged_ones():
    made = call(norms=NORMS, averaged=5, squares=False, **GAUSS)
    assert doubts(made) == []
    # docs/formulas.md#averaged-rows: not what it was
    assert "below 4.5254834," in doubts(made, sensitivity=2.1213203437)[0]


def test_box_guarantees_are_doubted_where_they_are_too_small():
    made = call({"a": [1.0], "y": [1.0]}, features=["a"], bounds={"a": (-1, 1), "y": (-1, 1)})
    assert doubts(made) == [] and "is below 3," in doubts(made, sensitivity=2.0, epsilon=0.7)[0]
    assert any("below sensitivity / epsilon" in doubt for doubt in doubts(made, epsilon=0.5))
    (doubt,) = doubts(call(norms=NORMS, features=["a"]), sensitivity=2.9)  # L1, one feature: exact too
    assert "is below 3," in doubt


def test_statistic_refuses_what_a_statistic_cannot_be():
    good = {"features": ["a"], "target": "y", "bounds": {"a": (0, 1), "y": (0, 1)}, "intercept": False}
    for changes in ({"features": []}, {"features": "ab"}, {"target": None}, {"scaling": "unit"}):
        with pytest.raises(InputError):
            make_statistic("linear-regression", **good | changes)
    with pytest.raises(InputError, match="no add-remove sensitivity"):
        OriginStatistic(["a"], "y", norms=NORMS, averaged=2).sensitivity("l2", "add-remove")
