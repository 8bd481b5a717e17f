"""Release files: what is valid, and one clear line for everything that is not."""

import copy
import json
import warnings

import pytest

from dpjax.errors import InputError, PrivacyWarning
from dpjax.privacy.gaussian import analytic_gaussian_sigma
from dpjax.releases.guarantee import Privacy
from dpjax.releases.release import Release, describe_problems
from dpjax.statistics.base import SCALING
from dpjax.statistics.regression import RegressionStatistic

# as in the documentation of the format
EXAMPLE = {
    "format": "dpjax-release",
    "version": 1,
    "model": {
        "kind": "linear-regression",
        "features": ["bmi"],
        "target": "progression",
        "intercept": True,
    },
    "records": 442,
    "scaling": "bounds-to-[-1,1]",
    "statistics": {
        "bmi": 12.3,
        "bmi*bmi": 88.1,
        "progression": -40.2,
        "bmi*progression": 31.0,
        "progression*progression": 120.5,
    },
    "mechanism": {"kind": "laplace", "scale": 5.333333333},
    "privacy": {
        "epsilon": 1.0,
        "delta": 0.0,
        "adjacency": "replace-one",
        "norm": "l1",
        "sensitivity": 5.333333333,
    },
    "bounds": {"bmi": [15, 45], "progression": [0, 350]},
}
ABSENT = object()


def changed(*changes):
    data = copy.deepcopy(EXAMPLE)
    for path, value in changes:
        *parents, last = path.split("/")
        block = data
        for parent in parents:
            block = block[parent]
        if value is ABSENT:
            del block[last]
        else:
            block[last] = value
    return data


def write(tmp_path, content):
    path = tmp_path / "release.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


VALID = [
    [],
    [("records", 1)],
    [("mechanism/scale", 6)],
    [("mechanism/scale", dict.fromkeys(EXAMPLE["statistics"], 7.5))],
    [("privacy", ABSENT)],
    [("privacy", None)],
    [("scaling", None), ("bounds", ABSENT), ("privacy", ABSENT)],
    [("scaling", None), ("privacy", ABSENT)],
    [("simulated", True)],
    [("statistics", dict(reversed(EXAMPLE["statistics"].items())))],
    [
        ("mechanism", {"kind": "gaussian", "scale": 20}),
        (
            "privacy",
            {"epsilon": 1, "delta": 1e-5, "adjacency": "replace-one", "norm": "l2", "sensitivity": 4},
        ),
    ],
]


@pytest.mark.parametrize("changes", VALID)
def test_valid_files(tmp_path, changes):
    path = write(tmp_path, changed(*changes))
    assert describe_problems(path) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        r = Release.load(path)
    assert r.z.tolist() == list(EXAMPLE["statistics"].values())
    assert Release.from_dict(r.to_dict()) == r


def test_accessors(tmp_path):
    scales = {name: i + 1 for i, name in enumerate(reversed(EXAMPLE["statistics"]))}
    r = Release.load(write(tmp_path, changed(("mechanism/scale", scales), ("simulated", True))))
    assert r.scale.tolist() == [5, 4, 3, 2, 1]
    assert (r.records, r.p, r.simulated, r.privacy.epsilon) == (442, 1, True, 1.0)
    assert r.bounds == {"bmi": (15.0, 45.0), "progression": (0.0, 350.0)}


BAD = [
    ("format", ABSENT, "'format' must be"),
    ("format", "csv", "'format' must be 'dpjax-release', got 'csv'"),
    ("version", ABSENT, "'version' must be 1, got nothing"),
    ("version", 2, "'version' must be 1, got 2"),
    ("version", "1", "'version' must be 1"),
    ("version", True, "'version' must be 1"),
    ("version", 1.5, "'version' must be 1"),
    ("model", ABSENT, "'model'"),
    ("model", "linear-regression", "'model'"),
    ("model/kind", ABSENT, "'kind'"),
    ("model/kind", "binomial", "unknown field 'features'"),
    ("model/kind", "lasso", "'model.kind' must be one of linear-regression, multinomial, "),
    ("model/kind", ["binomial"], "'model.kind' must be one of"),
    ("model/features", ABSENT, "'features'"),
    ("model/features", [], "features"),
    ("model/features", ["age"], "bounds are missing for column 'age'"),
    ("model/features", ["bmi", "bmi"], "more than once"),
    ("model/features", "bmi", "Expected 'array', got 'str'"),
    ("model/features", [1], "Expected 'str', got 'int'"),
    ("model/target", ABSENT, "'target'"),
    ("model/target", "bmi", "also among the features"),
    ("model/target", "a*b", "rename the column"),
    ("model/intercept", ABSENT, "'intercept'"),
    ("model/intercept", False, "does not have"),
    ("model/intercept", 1, "Expected 'bool', got 'int'"),
    ("model/degree", 2, "unknown field 'degree'"),
    ("records", ABSENT, "missing required field 'records'"),
    ("records", 0, "'records' must be an integer from 1"),
    ("records", -3, "'records' must be"),
    ("records", 442.5, "Expected 'int', got 'float'"),
    ("records", True, "Expected 'int', got 'bool'"),
    ("records", "442", "Expected 'int', got 'str'"),
    ("records", 10**30, "'records' must be"),
    ("scaling", ABSENT, "'scaling'"),
    ("scaling", "none", "'scaling' must be"),
    ("scaling", 1, "scaling"),
    ("statistics", ABSENT, "'statistics'"),
    ("statistics", [1, 2, 3, 4, 5], "statistics"),
    ("statistics/bmi", ABSENT, "'statistics' lacks 'bmi', which the model needs"),
    ("statistics/age", 1.0, "'statistics' has 'age', which the model does not have"),
    ("statistics/bmi", "12", "Expected 'float', got 'str'"),
    ("statistics/bmi", None, "got 'null'"),
    ("statistics/bmi", True, "got 'bool'"),
    ("mechanism", ABSENT, "'mechanism'"),
    ("mechanism/kind", ABSENT, "'kind'"),
    ("mechanism/kind", "wishart", "'mechanism.kind' must be one of laplace, gaussian, discrete-laplace, got 'wishart'"),
    ("mechanism/kind", "discrete-laplace", "is for counts: the sums of linear-regression are not whole numbers"),
    ("mechanism/scale", ABSENT, "'scale'"),
    ("mechanism/scale", 0, "'mechanism.scale' must be finite and > 0"),
    ("mechanism/scale", -1, "'mechanism.scale' must be finite and > 0"),
    ("mechanism/scale", None, "scale"),
    ("mechanism/scale", [1, 1, 1, 1, 1], "scale"),
    ("mechanism/scale", {"bmi": 1.0}, "'mechanism.scale' lacks"),
    ("mechanism/scale", dict.fromkeys(EXAMPLE["statistics"], 0.0), "must be finite and > 0"),
    ("mechanism/seed", 3, "unknown field 'seed'"),
    ("privacy/epsilon", ABSENT, "'epsilon'"),
    ("privacy/epsilon", 0, "'privacy.epsilon' must be finite and > 0"),
    ("privacy/epsilon", -1, "'privacy.epsilon'"),
    ("privacy/delta", ABSENT, "'delta'"),
    ("privacy/delta", 1, r"'privacy.delta' must lie in [0, 1)"),
    ("privacy/delta", -0.1, "'privacy.delta'"),
    ("privacy/adjacency", ABSENT, "'adjacency'"),
    ("privacy/adjacency", "add-remove", "'add-remove' is refused"),
    ("privacy/adjacency", "bounded", "'privacy.adjacency' must be 'replace-one'"),
    ("privacy/norm", ABSENT, "'norm'"),
    ("privacy/norm", "l2", "'privacy.norm' must be 'l1' for laplace noise"),
    ("privacy/sensitivity", ABSENT, "'sensitivity'"),
    ("privacy/sensitivity", 0, "'privacy.sensitivity'"),
    ("privacy/bounds_epsilon", 0, "'privacy.bounds_epsilon' must be > 0"),
    ("privacy/bounds_epsilon", 1, "a part of 'privacy.epsilon'"),
    ("truncation", {"rule": "clamp", "bounds": [0, 1]}, "'truncation' has no place in a release of linear-regression"),
    ("bounds", ABSENT, "'bounds' are needed"),
    ("bounds", None, "'bounds' are needed"),
    ("bounds/bmi", ABSENT, "bounds are missing for column 'bmi'"),
    ("bounds/age", [0, 1], "'age', which the model does not use"),
    ("bounds/bmi", [45, 15], "lo < hi"),
    ("bounds/bmi", [15, 15], "lo < hi"),
    ("bounds/bmi", [15], "length 2"),
    ("bounds/bmi", [15, "45"], "Expected 'float', got 'str'"),
    ("bounds/bmi", 15, "bounds"),
    ("simulated", "yes", "Expected 'bool', got 'str'"),
    ("comment", "hello", "unknown field 'comment'"),
]


@pytest.mark.parametrize(("path", "value", "message"), BAD)
def test_bad_fields(tmp_path, path, value, message):
    file = write(tmp_path, changed((path, value)))
    problems = describe_problems(file)
    assert problems and message in problems[0]
    assert all("\n" not in problem for problem in problems)
    with pytest.raises(InputError) as caught:
        Release.load(file)
    assert problems[0] in str(caught.value) and str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[]", "must be a JSON object"),
        ("null", "must be a JSON object"),
        ("3", "must be a JSON object"),
        (json.dumps(EXAMPLE).replace("12.3", "NaN"), "holds NaN"),
        (json.dumps(EXAMPLE).replace("12.3", "-Infinity"), "holds -Infinity"),
        (json.dumps(EXAMPLE).replace("12.3", "1e999"), "'statistics' of 'bmi' must be finite"),
        (json.dumps(EXAMPLE).replace("12.3", "1" * 400), "out of range"),
        (json.dumps(EXAMPLE).replace("12.3", "1" * 9000), "beyond all limits"),
        (json.dumps(EXAMPLE).replace('"bmi": 12.3', '"bmi": 12.3, "bmi": 1'), "repeats the key 'bmi'"),
        (json.dumps(EXAMPLE)[:-1] + ', "records": 3}', "repeats the key 'records'"),
        ("[" * 100_000, "beyond all limits"),
        ("cos\nsystem\n(S'exit'\ntR.", "is not JSON"),
    ],
)
def test_bad_text(tmp_path, text, message):
    file = write(tmp_path, text)
    problems = describe_problems(file)
    assert len(problems) == 1 and message in problems[0]
    with pytest.raises(InputError, match="release file"):
        Release.load(file)


def test_unreadable(tmp_path):
    assert "No such file" in describe_problems(tmp_path / "none.json")[0]
    assert "cannot be read" in describe_problems(tmp_path)[0]
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in describe_problems(tmp_path / "binary.json")[0]


def test_all_problems_of_values_are_listed(tmp_path):
    file = write(tmp_path, changed(("records", 0), ("mechanism/scale", -1), ("bounds/bmi", [3, 2])))
    assert len(describe_problems(file)) == 3
    with pytest.raises(InputError, match="and 2 more"):
        Release.load(file)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([("mechanism/scale", 5.3)], "below sensitivity / epsilon"),
        ([("privacy/epsilon", 0.9)], "below sensitivity / epsilon"),
        ([("privacy/sensitivity", 5.0)], "stated sensitivity 5 is below 5.333333333"),
        (
            [
                ("mechanism", {"kind": "gaussian", "scale": 3.7}),
                (
                    "privacy",
                    {
                        "epsilon": 1,
                        "delta": 1e-5,
                        "adjacency": "replace-one",
                        "norm": "l2",
                        "sensitivity": 1,
                    },
                ),
            ],
            "does not give the stated",
        ),
    ],
)
def test_doubtful_guarantees_warn(tmp_path, changes, message):
    file = write(tmp_path, changed(*changes))
    assert describe_problems(file) == []
    with pytest.warns(PrivacyWarning) as said:
        Release.load(file)
    assert any(message in str(warning.message) for warning in said)


@pytest.mark.parametrize(
    ("kind", "p", "stated"),
    [("gaussian", 1, 14**0.5), ("gaussian", 2, 27**0.5), ("laplace", 3, 24.0), ("laplace", 5, 48.0)],
)
def test_releases_made_with_larger_sensitivities_are_not_doubted(kind, p, stated):
    # what was stated before the suprema were known: root of the squared ranges, sum of ranges
    names = [f"x{i}" for i in range(p)]
    statistic = RegressionStatistic(tuple(names), "y", dict.fromkeys([*names, "y"], (0, 1)), SCALING)
    norm, delta = ("l2", 1e-6) if kind == "gaussian" else ("l1", 0.0)
    scale = analytic_gaussian_sigma(stated, 1.0, delta) if delta else stated
    privacy = Privacy(1.0, delta, "replace-one", norm, stated)
    made = Release(statistic, 50, dict.fromkeys(statistic.names, 1.0), kind, scale, privacy)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Release.from_dict(made.to_dict()) == made
    exact = statistic.sensitivity(norm)
    assert exact < stated and statistic.is_exact(norm)
    small = made.to_dict()
    small["privacy"]["sensitivity"] = exact * 0.999
    with pytest.warns(PrivacyWarning, match=f"below {exact:.10g}, the replace-one {norm.upper()} sensitivity"):
        Release.from_dict(small)


def test_whole_numbers_may_be_written_with_a_point():
    data = json.loads(json.dumps(changed(("records", 442.0), ("version", 1.0))))
    assert Release.from_dict(data) == Release.from_dict(EXAMPLE)
    counts = {
        "format": "dpjax-release",
        "version": 1,
        "model": {"kind": "multinomial", "categories": 3.0},
        "records": 10,
        "scaling": None,
        "statistics": {"count[0]": 5, "count[1]": 3, "count[2]": 2},
        "mechanism": {"kind": "laplace", "scale": 2},
    }
    assert Release.from_dict(counts).statistic.categories == 3
    with pytest.raises(InputError, match="Expected 'int', got 'float'"):
        Release.from_dict(counts | {"model": {"kind": "multinomial", "categories": 3.5}})
