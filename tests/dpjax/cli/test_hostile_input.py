"""Input that was made to break a reader ends in one line and exit code 2."""

from __future__ import annotations

import copy
import io
import json
import os
import subprocess
import sys
import warnings

import pytest

import dpjax
from dpjax._base.pipes import tolerant_output
from dpjax.cli.app import main
from dpjax.cli.failures import failed
from dpjax.cli.messages import shown_warnings
from dpjax.cli.progress import Bar
from dpjax.errors import ConvergenceWarning, InputError, ModelWarning, PrivacyWarning
from dpjax.releases.release import describe_problems

RELEASE = {
    "format": "dpjax-release",
    "version": 1,
    "model": {"kind": "linear-regression", "features": ["x"], "target": "y", "intercept": True},
    "records": 80,
    "scaling": "bounds-to-[-1,1]",
    "statistics": {"x": -9.5, "x*x": 67.0, "y": -5.5, "x*y": 45.0, "y*y": 60.0},
    "mechanism": {"kind": "laplace", "scale": 5.34},
    "privacy": {"epsilon": 1.0, "delta": 0.0, "adjacency": "replace-one", "norm": "l1", "sensitivity": 5.34},
    "bounds": {"x": [15, 45], "y": [0, 350]},
    "imputed": {"x": 25},
}
FAMILY = {
    "format": "dpjax-release",
    "version": 1,
    "model": {"kind": "multinomial", "categories": 2, "labels": ["a", "b"], "column": "z"},
    "records": 80,
    "scaling": None,
    "statistics": {"count[0]": 3.0, "count[1]": 77.0},
    "mechanism": {"kind": "laplace", "scale": 2.0},
}


def places(value, path=()):
    """Every text in nested mappings and lists: its path, and whether it is a key."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*path, key), True
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from places(item, (*path, i))
    elif isinstance(value, str):
        yield path, False


def changed(content, path, key, value):
    content = copy.deepcopy(content)
    inner = content
    for step in path[:-1]:
        inner = inner[step]
    if key:
        inner[value] = inner.pop(path[-1])
    else:
        inner[path[-1]] = value
    return content


def complaint(capsys, *arguments):
    """What the command says on standard error, which is one line of an error in the input."""
    code, said = main([str(a) for a in arguments]), capsys.readouterr()
    assert code == 2, said.err
    lines = [line for line in said.err.splitlines() if line.startswith("error: ")]
    assert len(lines) >= 1 and "internal" not in said.err and all(len(line) < 2100 for line in lines)
    said.err.encode()  # can be written
    return said.err


TEXTS = [(RELEASE, *place) for place in places(RELEASE)] + [(FAMILY, *place) for place in places(FAMILY)]


@pytest.mark.parametrize("sign", ["\ud800", "x\udfffx"])
@pytest.mark.parametrize(("content", "path", "key"), TEXTS, ids=lambda v: str(v)[:40])
def test_half_characters(content, path, key, sign, tmp_path, capsys):
    hostile = changed(content, path, key, sign)
    file = tmp_path / "release.json"
    file.write_text(json.dumps(hostile))
    complaint(capsys, "check", file)
    for call in (lambda: dpjax.Release.load(file), lambda: dpjax.Release.from_dict(hostile)):
        with pytest.raises(InputError) as caught:
            call()
        str(caught.value).encode()


def test_the_documents_themselves_are_read(tmp_path):
    file = tmp_path / "release.json"
    for content in (RELEASE, FAMILY):
        file.write_text(json.dumps(content))
        assert describe_problems(file) == []


@pytest.mark.parametrize("text", ["[" * 20_000, '{"a":' * 20_000, "1" * 5_000, "-1e999999", "NaN", '"\\ud800"'])
def test_json_beyond_all_limits(text, tmp_path, capsys):
    file = tmp_path / "release.json"
    for whole in (text, '{"format": "dpjax-release", "version": 1, "model": ' + text + "}"):
        file.write_text(whole)
        complaint(capsys, "check", file)


@pytest.mark.parametrize("text", ["a = " + "[" * 20_000, "a = " + "{b = " * 20_000, "a = " + "1" * 5_000, "\ud800"])
def test_toml_beyond_all_limits(text, tmp_path, capsys):
    config = tmp_path / "config.toml"
    config.write_bytes(text.encode("utf-8", "surrogatepass"))
    complaint(capsys, "run", config, "--output", tmp_path / "out")
    release = tmp_path / "release.json"
    release.write_text(json.dumps(RELEASE))
    complaint(capsys, "fit", release, "--prior", config)


@pytest.mark.parametrize("number", [10**400, -(10**400), 1e308, 5e-324, -0.0])
def test_numbers_of_any_size_in_a_release(number, tmp_path):
    """They are read or refused: nothing else."""
    numbers = [
        ("records",), ("version",), ("statistics", "x"), ("mechanism", "scale"), ("bounds", "x"), ("imputed", "x"),
        ("privacy", "epsilon"), ("privacy", "delta"), ("privacy", "sensitivity"),
    ]  # fmt: skip
    for path in numbers:
        value = [0, number] if path == ("bounds", "x") else number
        for kind in ("laplace", "gaussian"):
            content = changed(RELEASE, path, False, value)
            content["mechanism"]["kind"] = kind
            content["privacy"] |= {"norm": "l2", "delta": 1e-6} if kind == "gaussian" and path[-1] != "delta" else {}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    dpjax.Release.from_dict(content)
                except InputError as error:
                    assert "\n" not in str(error)
    for kind, field in (("gamma", "shape"), ("multinomial", "categories")):
        content = FAMILY | {"model": {"kind": kind, field: number}}
        with pytest.raises(InputError):
            dpjax.Release.from_dict(content)


def test_smallest_sensitivity_of_gaussian_noise(tmp_path, capsys):
    content = copy.deepcopy(RELEASE)
    content["mechanism"] = {"kind": "gaussian", "scale": 1e300}
    content["privacy"] |= {"norm": "l2", "sensitivity": 5e-324, "delta": 1e-6}
    file = tmp_path / "release.json"
    file.write_text(json.dumps(content))
    for scale in (1e300, 5.0, 1e-7):
        content["mechanism"]["scale"] = scale
        file.write_text(json.dumps(content))
        assert main(["check", str(file)]) in (0, 1)
        assert "sensitivity 4.940656458e-324 is below" in capsys.readouterr().err


def test_many_missing_names_are_not_listed(tmp_path, capsys):
    content = copy.deepcopy(RELEASE)
    content["model"]["features"] = [f"feature{i}" for i in range(300)]
    content["bounds"] = {name: [0, 1] for name in (*content["model"]["features"], "y")}
    file = tmp_path / "release.json"
    file.write_text(json.dumps(content))
    said = complaint(capsys, "check", file)
    assert "and 45745 more, which the model needs" in said and len(said) < 2000
    with pytest.raises(InputError) as caught:
        dpjax.Release.load(file)
    assert len(str(caught.value)) < 1000


def test_long_names_are_cut(tmp_path, capsys):
    content = changed(RELEASE, ("model", "target"), False, "y" * 1_000_000 + "*")
    file = tmp_path / "release.json"
    file.write_text(json.dumps(content))
    assert len(complaint(capsys, "check", file)) < 2100
    with pytest.raises(InputError) as caught:
        dpjax.Release.load(file)
    assert len(str(caught.value)) < 2200


def test_names_that_a_terminal_cannot_show(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    with tolerant_output():
        print("größe \udcff")
    assert raw.getvalue() == b"gr\\xf6\\xdfe \\udcff\n"


# ---- python -W error -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("category", [PrivacyWarning, ConvergenceWarning, ModelWarning])
def test_our_warning_as_an_error_is_one_line(category, capsys):
    assert failed(category("epsilon is spent"), False) == 2
    assert capsys.readouterr().err.startswith("error: epsilon is spent (a warning, which python -W error")


@pytest.mark.parametrize(
    ("option", "ours"), [("error", "error"), ("error::UserWarning", "error"), ("default", "shown")]
)
def test_warnings_of_other_packages_are_no_errors(option, ours, monkeypatch):
    monkeypatch.setattr(sys, "warnoptions", [option])
    with warnings.catch_warnings():
        warnings.resetwarnings()
        warnings._processoptions([option])
        with shown_warnings(Bar()):
            warnings.warn("another package's", DeprecationWarning, stacklevel=1)
            warnings.warn("another package's", UserWarning, stacklevel=1)
            if ours == "error":
                with pytest.raises(PrivacyWarning):
                    warnings.warn("ours", PrivacyWarning, stacklevel=1)
            else:
                warnings.warn("ours", PrivacyWarning, stacklevel=1)


def test_release_where_warnings_are_errors(tmp_path):
    table, output = tmp_path / "table.csv", tmp_path / "release.json"
    table.write_text("x\n777\n778\n")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "dpjax", "release", str(table), "--model", "exponential", "--target", "x",
         "--bounds", "x=0:900", "--epsilon", "1", "--output", str(output)],
        capture_output=True, text=True, env=os.environ, check=False, timeout=120,
    )  # fmt: skip
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 2 and last.startswith("error: this release spends epsilon") and "777" not in last
    assert not output.exists()


def test_memory_that_is_not_there(capsys):
    assert failed(MemoryError(), False) == 2
    assert capsys.readouterr().err == "error: the sizes asked for need more memory than there is\n"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "a\ud800"}, "half a character"),
        ({"data": {"csv": "\ud800.csv"}}, "half a character"),
        ({"fit": {"methods": ["collapsed"], "method": {"collapsed": {"settings": {"\ud800": 1}}}}}, "half a character"),
        ({"fit": {"method": {"collapsed": {"settings": {"leapfrogs": 10**400}}}}}, "leapfrogs must be a finite number"),
    ],
)
def test_hostile_configs(change, words):
    with pytest.raises(InputError, match=words) as caught:
        dpjax.run({"name": "a", "release": {"file": "release.json"}} | change)
    str(caught.value).encode()
