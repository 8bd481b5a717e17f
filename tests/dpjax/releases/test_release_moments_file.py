"""Files of releases that also hold third and fourth moments: what is valid, what is said about the rest, commands."""

import copy
import json
import math
import warnings

import numpy as np
import pytest

from dpjax.cli.app import main
from dpjax.errors import InputError, PrivacyWarning
from dpjax.inference.describe import describe_release
from dpjax.releases.guarantee import MomentsPrivacy, Privacy
from dpjax.releases.owner import release
from dpjax.releases.release import Release, describe_problems
from dpjax.statistics.base import SCALING
from dpjax.statistics.regression import RegressionStatistic

BOUNDS = {"a": (0.0, 4.0), "b b": (-3.0, 1.0), "y": (-1.0, 5.0)}


def table(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return {"a": rng.exponential(1, n), "b b": rng.normal(-1, 1, n), "y": rng.normal(2, 2, n)}


def call(features=("a", "b b"), **changes):
    bounds = {name: BOUNDS[name] for name in (*features, "y")}
    arguments = {"target": "y", "features": features, "bounds": bounds, "epsilon": 1.0, "moments": True} | changes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return release(table(), **arguments)


EXAMPLE = {
    "format": "dpjax-release",
    "version": 1,
    "model": {"kind": "linear-regression", "features": ["x"], "target": "y", "intercept": True, "moments": True},
    "records": 100,
    "scaling": SCALING,
    "statistics": {"x": 1.0, "x*x": 30.0, "y": 2.0, "x*y": 3.0, "y*y": 20.0, "x*x*x": 4.0, "x*x*x*x": 15.0},
    "mechanism": {
        "kind": "laplace",
        "scale": dict.fromkeys(["x", "x*x", "y", "x*y", "y*y"], 10.67) | dict.fromkeys(["x*x*x", "x*x*x*x"], 4.22),
    },
    "privacy": {
        "epsilon": 1.0,
        "delta": 0.0,
        "adjacency": "replace-one",
        "norm": "l1",
        "sensitivity": 5.3333333334,
        "moments": {"epsilon": 0.5, "sensitivity": 2.10546875},
    },
    "bounds": {"x": [0.0, 1.0], "y": [0.0, 1.0]},
}


def changed(**changes):
    """EXAMPLE with values at dotted paths replaced; `...` takes a field away."""
    data = copy.deepcopy(EXAMPLE)
    for path, value in changes.items():
        *above, last = path.split("__")
        block = data
        for key in above:
            block = block[key]
        if value is ...:
            del block[last]
        else:
            block[last] = value
    return data


def quiet(data):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return Release.from_dict(data)


def test_a_file_written_by_hand():
    r = quiet(EXAMPLE)
    assert r.statistic == RegressionStatistic(("x",), "y", {"x": (0, 1), "y": (0, 1)}, SCALING, True)
    assert r.privacy.moments == MomentsPrivacy(0.5, 2.10546875, 0.0)
    assert r.scale.tolist() == [10.67] * 5 + [4.22] * 2 and r.z.tolist() == [1, 30, 2, 3, 20, 4, 15]
    assert quiet(r.to_dict()) == r and r.to_dict() == EXAMPLE
    # one scale for everything is fine if it is large enough, and the guarantee may be unknown
    assert quiet(changed(mechanism__scale=10.67)).scale.tolist() == [10.67] * 7
    assert quiet(changed(privacy=...)).privacy is None
    assert quiet(changed(scaling=None, bounds=..., privacy=...)).statistic.moments


def test_files_without_moments_are_as_they_were(tmp_path):
    r = call(moments=False)
    assert "moments" not in r.to_dict()["model"] and "moments" not in r.to_dict()["privacy"]
    assert not r.statistic.moments and r.privacy.moments is None
    spelt = r.to_dict()
    spelt["model"]["moments"] = False
    assert quiet(spelt) == r


def test_round_trip_through_a_file(tmp_path):
    for r in (call(), call(mechanism="gaussian", delta=1e-6), call(features=("a",), moments_share=0.1)):
        path = tmp_path / f"{r.mechanism}{r.p}.json"
        r.save(path)
        assert describe_problems(path) == [] and Release.load(path) == r
        assert json.loads(path.read_text()) == r.to_dict()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"model__moments": False}, "'privacy.moments' has no place"),
        ({"model__moments": ..., "privacy__moments": ...}, "'statistics' has 'x*x*x', 'x*x*x*x'"),
        ({"model__moments": 1}, "model.moments"),
        ({"statistics__x*x*x": ...}, "'statistics' lacks 'x*x*x'"),
        ({"mechanism__scale__x*x*x*x": ...}, "'mechanism.scale' lacks 'x*x*x*x'"),
        ({"privacy__moments": ...}, "'privacy.moments' is missing"),
        ({"privacy__moments__epsilon": ...}, "missing required field 'epsilon' - at 'privacy.moments'"),
        ({"privacy__moments__share": 0.5}, "unknown field 'share'"),
        ({"privacy__moments__epsilon": 1.0}, "'privacy.moments.epsilon' must be > 0 and a part of"),
        ({"privacy__moments__epsilon": 0.0}, "'privacy.moments.epsilon' must be > 0"),
        ({"privacy__moments__epsilon": math.nan}, "'privacy.moments.epsilon' must be > 0"),
        ({"privacy__moments__sensitivity": 0.0}, "'privacy.moments.sensitivity' must be finite and > 0"),
        ({"privacy__moments__sensitivity": math.inf}, "'privacy.moments.sensitivity' must be finite"),
        ({"privacy__moments__delta": 1e-6}, "'privacy.moments.delta' must be a part of"),
        ({"privacy__moments__delta": -1e-6}, "'privacy.moments.delta' must be a part of"),
    ],
)
def test_problems_of_a_file(changes, problem, tmp_path):
    path = tmp_path / "release.json"
    path.write_text(json.dumps(changed(**changes)).replace("NaN", "1e999").replace("Infinity", "1e999"))
    problems = describe_problems(path)
    assert any(problem in line for line in problems), problems
    with pytest.raises(InputError):
        Release.from_dict(changed(**changes))


def test_python_arguments_are_checked_like_a_file():
    r = quiet(EXAMPLE)
    fields = {name: getattr(r, name) for name in ("statistic", "records", "statistics", "mechanism", "noise_scale")}
    assert Release(**fields, privacy=r.privacy) == r
    for privacy in (
        Privacy(1.0, 0.0, "replace-one", "l1", 5.34),
        Privacy(1.0, 0.0, "replace-one", "l1", 5.34, moments=MomentsPrivacy(1.0, 2.2)),
        Privacy(1.0, 0.0, "replace-one", "l1", 5.34, moments=MomentsPrivacy("half", 2.2)),
        Privacy(1.0, 0.0, "replace-one", "l1", 5.34, moments={"epsilon": 0.5}),
        Privacy(1.0, 0.0, "replace-one", "l1", 5.34, moments=0.5),
    ):
        with pytest.raises(InputError):
            Release(**fields, privacy=privacy)


MOMENT_NAMES, USUAL_NAMES = ["x*x*x", "x*x*x*x"], ["x", "x*x", "y", "x*y", "y*y"]


@pytest.mark.parametrize(
    ("changes", "doubt"),
    [
        ({"mechanism__scale": 5.34}, "noise scale 5.34 of the usual sums is below"),
        (
            {"mechanism__scale": dict.fromkeys(USUAL_NAMES, 10.67) | dict.fromkeys(MOMENT_NAMES, 2.2)},
            "of the moments is",
        ),
        ({"privacy__moments__epsilon": 0.6}, "stated epsilon = 0.4 of the usual sums does not hold"),
        ({"privacy__moments__epsilon": 0.4}, "stated epsilon = 0.4 of the moments does not hold"),
        ({"privacy__sensitivity": 5.0}, "sensitivity 5 of the usual sums is below 5.333333333"),
        ({"privacy__moments__sensitivity": 2.0}, "sensitivity 2 of the moments is below 2.10546875"),
    ],
)
def test_doubtful_guarantees_warn(changes, doubt):
    with pytest.warns(PrivacyWarning) as caught:
        Release.from_dict(changed(**changes))
    assert len(caught) == 1 and doubt in str(caught[0].message), [str(w.message) for w in caught]


def test_doubts_about_gaussian_noise_know_both_parts():
    data = call(mechanism="gaussian", delta=1e-6).to_dict()
    for delta, part in ((9e-7, "of the usual sums"), (1e-7, "of the moments")):
        data["privacy"]["moments"]["delta"] = delta
        with pytest.warns(PrivacyWarning) as caught:
            Release.from_dict(data)
        assert len(caught) == 1 and f"Gaussian noise {part}" in str(caught[0].message)


def test_descriptions_name_the_split():
    text = describe_release(quiet(EXAMPLE), statistics=True)
    assert "with third and fourth moments of the features" in text
    assert "of the moments 2.10547" in text and "scale 10.67 per entry; 4.22 of the moments" in text
    assert "epsilon = 0.5 of it; the usual sums the rest" in text and "x*x*x*x" in text
    uneven = changed(**{"mechanism__scale__x": 11.0})
    assert "x 11, x*x 10.67" in describe_release(quiet(uneven))
    assert "scale 12 per entry" in describe_release(quiet(changed(mechanism__scale=12.0)))
    assert "delta = 5e-07 of it" in describe_release(call(mechanism="gaussian", delta=1e-6))


def test_command_line(tmp_path, capsys):
    columns = table(30)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    command = ["release", str(tmp_path / "t.csv"), "--target", "y", "--features", "a,b b", "--epsilon", "1"]
    command += [part for name, (lo, hi) in BOUNDS.items() for part in ("--bounds", f"{name}={lo}:{hi}")]
    path = tmp_path / "release.json"

    run = lambda *extra: main([*command, "--output", str(path), *extra])
    assert run("--moments", "--moments-share", "0.2") == 0
    assert "epsilon = 0.2 of it" in capsys.readouterr().out
    assert Release.load(path).privacy.moments.epsilon == pytest.approx(0.2)
    assert run("--moments-share", "0.2", "--force") == 2
    assert "moments_share is of use only with moments" in capsys.readouterr().err
    assert Release.load(path).statistic.moments  # what was there stays
