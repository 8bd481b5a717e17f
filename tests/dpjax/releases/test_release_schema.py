"""The page about release files and the JSON schema that ships: examples pass, wrong files do not."""

import copy
import importlib.resources
import json
import re
from pathlib import Path

import pytest
from oracles.json_schema import valid

from dpjax.cli.app import main
from dpjax.releases.schema import release_schema
from dpjax.statistics.kinds import block_fields, kinds

PAGE = (Path(__file__).parents[3] / "docs" / "release_files.md").read_text()
EXAMPLES = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, flags=re.S)]
SCHEMA = json.loads(importlib.resources.files("dpjax").joinpath("release.schema.json").read_text())
BUILT_IN = [kind for kind in SCHEMA["properties"]["model"]["properties"]["kind"]["enum"]]


def test_schema_that_ships_is_that_of_the_types():
    # families that other tests register come on top
    own = release_schema()
    if set(kinds()) == set(BUILT_IN):
        assert own == SCHEMA
    for kind in BUILT_IN:
        assert own["$defs"][kind] == SCHEMA["$defs"][kind]


def test_page_has_every_model_and_every_field():
    assert {example["model"]["kind"] for example in EXAMPLES} == set(BUILT_IN)
    fields = set(SCHEMA["properties"]) | set(SCHEMA["$defs"]["Privacy"]["properties"])
    fields |= {name for kind in BUILT_IN for name, *_ in block_fields(kind)} | {"rule", "kind", "scale"}
    for name in fields:
        assert f"`{name}`" in PAGE or f'"{name}"' in PAGE, name


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["model"]["kind"])
def test_examples_pass_check_without_a_doubt_and_have_the_schema(example, tmp_path, capsys):
    path = tmp_path / "release.json"
    path.write_text(json.dumps(example))
    assert main(["check", str(path)]) == 0
    out, err = capsys.readouterr()
    assert err == "" and "can be used" in out
    assert valid(example, SCHEMA)


BINOMIAL = next(example for example in EXAMPLES if example["model"]["kind"] == "binomial")
WAIT = next(example for example in EXAMPLES if example["model"]["kind"] == "exponential")
GAMMA = next(example for example in EXAMPLES if example["model"]["kind"] == "gamma")
LINE = EXAMPLES[0]
ABSENT = object()
WRONG = [
    (LINE, "format", "csv"),
    (LINE, "version", 2),
    (LINE, "version", ABSENT),
    (LINE, "model", ABSENT),
    (LINE, "model/kind", "lasso"),
    (LINE, "model/kind", ABSENT),
    (LINE, "model/features", "bmi"),
    (LINE, "model/intercept", ABSENT),
    (LINE, "model/degree", 2),
    (LINE, "records", 0),
    (LINE, "records", "57"),
    (LINE, "records", 57.5),
    (LINE, "records", ABSENT),
    (LINE, "scaling", "none"),
    (LINE, "scaling", ABSENT),
    (LINE, "statistics/bmi", "12"),
    (LINE, "statistics", [1, 2]),
    (LINE, "mechanism/kind", "exponential"),
    (LINE, "mechanism/scale", 0),
    (LINE, "mechanism/scale", {"bmi": -1}),
    (LINE, "mechanism/sd", 2),
    (LINE, "privacy/epsilon", 0),
    (LINE, "privacy/delta", 1),
    (LINE, "privacy/adjacency", "add-remove"),
    (LINE, "privacy/norm", "l2"),
    (LINE, "privacy/sensitivity", ABSENT),
    (LINE, "bounds/bmi", [15]),
    (LINE, "bounds/bmi", [15, 20, 45]),
    (LINE, "truncation", {"rule": "clamp", "bounds": [0, 1]}),
    (LINE, "simulated", "yes"),
    (LINE, "imputed", {"bmi": None}),
    (LINE, "note", "x"),
    (BINOMIAL, "bounds", {"smoker": [0, 1]}),
    (BINOMIAL, "truncation", {"rule": "clamp", "bounds": [0, 1]}),
    (BINOMIAL, "model/labels", "no"),
    (BINOMIAL, "mechanism/kind", "gaussian"),
    (WAIT, "truncation", ABSENT),
    (WAIT, "truncation", None),
    (WAIT, "truncation/rule", "none"),
    (WAIT, "truncation/bounds", [0]),
    (WAIT, "model/labels", ["a", "b"]),
    (GAMMA, "model/shape", ABSENT),
    (GAMMA, "model/shape", "2"),
]


@pytest.mark.parametrize(("example", "path", "value"), WRONG, ids=lambda part: part if isinstance(part, str) else "")
def test_what_check_refuses_has_not_the_schema(example, path, value, tmp_path, capsys):
    data = copy.deepcopy(example)
    *parents, last = path.split("/")
    block = data
    for parent in parents:
        block = block[parent]
    if value is ABSENT:
        del block[last]
    else:
        block[last] = value
    assert not valid(data, SCHEMA)
    file = tmp_path / "release.json"
    file.write_text(json.dumps(data))
    assert main(["check", str(file)]) == 2


# what types and limits do not say; `check` does
@pytest.mark.parametrize(
    ("example", "imputed", "says"),
    [
        (LINE, {"bmi": 50}, "within its bounds [15, 45]"),
        (LINE, {"age": 50}, "which the model does not use"),
        (LINE, {"bmi": "high"}, "must be a finite number"),
        (BINOMIAL, {"smoker": "maybe"}, "one of the labels"),
        (BINOMIAL, {"smoker": 1}, "one of the labels"),
        (WAIT, {"wait": 4}, "within its bounds [0.025, 3.7]"),
    ],
)
def test_constants_for_missing_values_are_checked(example, imputed, says, tmp_path, capsys):
    file = tmp_path / "release.json"
    file.write_text(json.dumps({**example, "imputed": imputed}))
    assert main(["check", str(file)]) == 2
    err = capsys.readouterr().err
    assert "'imputed': " in err and says in err and err.count("\n") == 1


def test_schema_is_printed(capsys):
    assert main(["check", "--schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["title"] == SCHEMA["title"] and set(BUILT_IN) <= set(printed["$defs"])
    assert main(["check"]) == 2 and "a release file is missing" in capsys.readouterr().err
    assert main(["check", "release.json", "--schema"]) == 2 and "give no file" in capsys.readouterr().err
