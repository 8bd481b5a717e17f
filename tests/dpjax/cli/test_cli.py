"""The command line: exit codes, one clear line for every mistake, nothing written and nothing private shown."""

import contextlib
import dataclasses
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dpjax
from dpjax._base.private_frames import DEBUG_VARIABLE
from dpjax._base.text import show_number
from dpjax.cli.app import main
from dpjax.cli.progress import Bar
from dpjax.engine.loop import Progress
from dpjax.inference.describe import describe_release, describe_releases
from dpjax.mechanisms import MECHANISMS
from dpjax.mechanisms import laplace as _noise

#: What does the work of each command.
WORK = {
    "release": "dpjax.releases.owner.release",
    "fit": "dpjax.inference.fit.fit",
    "calibrate": "dpjax.calibration.study.calibrate",
    "run": "dpjax.runner.run.run",
    "precompile": "dpjax.calibration.precompilation.precompile",
}
SECRET = "27.391846"
RELEASE = {
    "format": "dpjax-release",
    "version": 1,
    "model": {"kind": "linear-regression", "features": ["bmi"], "target": "progression", "intercept": True},
    "records": 442,
    "scaling": "bounds-to-[-1,1]",
    "statistics": {
        "bmi": -98.2,
        "bmi*bmi": 67.1,
        "progression": -52.6,
        "bmi*progression": 45.2,
        "progression*progression": 98.0,
    },
    "mechanism": {"kind": "laplace", "scale": 5.333333333333904},
    "privacy": {
        "epsilon": 1.0,
        "delta": 0.0,
        "adjacency": "replace-one",
        "norm": "l1",
        "sensitivity": 5.333333333333904,
    },
    "bounds": {"bmi": [15, 45], "progression": [0, 350]},
}
GOOD = {
    "--target": "progression",
    "--features": "bmi",
    "--bounds": ["bmi=15:45", "progression=0:350"],
    "--mechanism": "laplace",
    "--epsilon": "1",
    "--output": "release.json",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a table and a release file, and no cache outside it."""
    rng = np.random.default_rng(0)
    bmi = rng.normal(27, 5, 60)
    rows = [f"{x:.6f},{150 + 9 * (x - 27) + rng.normal(0, 60):.6f},{i}" for i, x in enumerate(bmi)]
    rows[7] = f"{SECRET},151.25,7"
    (tmp_path / "table.csv").write_text("\n".join(["bmi,progression,row", *rows]) + "\n")
    (tmp_path / "given.json").write_text(json.dumps(RELEASE))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def release_command(**changes):
    words = ["release", changes.pop("table", "table.csv")]
    for name, value in (GOOD | {f"--{name}": value for name, value in changes.items()}).items():
        for item in value if isinstance(value, list) else [value]:
            words += [] if item is None else [name, item]
    return words


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def refused(capsys, folder, words, *, says="", lines=1):
    """The command answers 2 with `lines` clear lines, and leaves the folder as it was."""
    before = contents(folder)
    code = main(words)
    out, err = capsys.readouterr()
    assert code == 2, (code, out, err)
    assert out == ""
    assert err.count("\n") == lines and err.endswith("\n"), err
    assert all(line.startswith("error: ") for line in err.splitlines()), err
    assert "Traceback" not in err and SECRET not in err and "27.39" not in err
    assert says in err, err
    assert contents(folder) == before
    return err


# --- hostile inputs ---


@pytest.mark.parametrize("epsilon", ["0", "-1", "nan", "inf", "-inf", "1e-320", "one", ""])
def test_release_refuses_epsilon(folder, capsys, epsilon):
    refused(capsys, folder, release_command(epsilon=epsilon), says="psilon")


@pytest.mark.parametrize("option", ["target", "epsilon", "output"])
def test_release_options_that_have_no_default(folder, capsys, option):
    refused(capsys, folder, release_command(**{option: None}), says=f"Missing option '--{option}'")


def test_regressions_need_features_and_bounds(folder, capsys):
    refused(capsys, folder, release_command(features=None), says="features is missing")
    refused(capsys, folder, release_command(bounds=None), says="bounds are missing for column 'bmi'")


# --- families ---

FAMILY = {"--features": None, "--model": "exponential", "--target": "bmi", "--bounds": "bmi=0:60"}


def family_command(**changes):
    """As `release_command`, of an exponential family."""
    return release_command(**{name.lstrip("-"): value for name, value in FAMILY.items()} | changes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"bounds": None}, "bounds are missing for column 'bmi'"),
        ({"bounds": "bmi=-1:60"}, "support"),
        ({"bounds": "bmi=60:0"}, "lo < hi"),
        ({"bounds": "progression=0:60"}, "bmi"),
        ({"bounds": ["bmi=0:60", "progression=0:60"]}, "progression"),
        ({"features": "progression"}, "features has no place"),
        ({"rule": "none"}, "rule must be 'clamp' or 'redact'"),
        ({"option": "shape=2"}, "exponential has no option 'shape'; it has none"),
        ({"model": "gamma"}, "gamma needs the option 'shape'"),
        ({"model": "gamma", "option": "shape=-2"}, "shape must be"),
        ({"model": "gamma", "option": "shape=two"}, "--option shape must be"),
        ({"model": "gamma", "option": "shape"}, "NAME=VALUE"),
        ({"model": "gamma", "option": ["shape=1", "shape=2"]}, "twice"),
        ({"model": "gamma", "option": "epsilon=2"}, "epsilon is not an option of a family"),
        ({"model": "poisson"}, "whole numbers only"),
        ({"model": "poisson", "bounds": "bmi=0:2.5"}, "whole numbers"),
        ({"model": "log-normal"}, "above 0"),
        ({"model": "binomial", "bounds": None}, "whole numbers only"),
        ({"model": "binomial"}, "takes no bounds"),
        ({"model": "multinomial", "bounds": None}, "categories is missing"),
        ({"model": "multinomial", "bounds": None, "categories": "1"}, "at least 2"),
        ({"model": "multinomial", "bounds": None, "categories": "x"}, "--categories"),
        ({"model": "multinomial", "bounds": None, "categories": "3", "labels": "a,b"}, "labels must be as many"),
        ({"model": "multinomial", "bounds": None, "labels": "a,a"}, "differ"),
        ({"model": "multinomial", "bounds": None, "labels": "a,"}, "--labels"),
        ({"model": "multinomial", "bounds": None, "labels": "a,b"}, "something else than the labels"),
        ({"mechanism": "gaussian"}, "delta is missing"),
        ({"mechanism": "gaussian", "delta": "0"}, "inside (0, 1)"),
        ({"delta": "1e-6"}, "delta has no place"),
        ({"mechanism": "discrete-laplace"}, "whole numbers"),
        ({"private-bounds": "bmi=0:60", "bounds-share": "0.1"}, "exclude each other"),
        ({"bounds": None, "private-bounds": "bmi=0:60"}, "--bounds-share"),
        ({"bounds": None, "private-bounds": "bmi=0:60", "bounds-share": "1"}, "inside (0, 1)"),
        ({"bounds": None, "private-bounds": "bmi=0", "bounds-share": ".1"}, "lo:hi"),
        ({"bounds": None, "private-bounds": "bmi=-9:60", "bounds-share": ".1"}, "support"),
        ({"bounds": None, "private-bounds": "bmi=0:60", "bounds-share": ".1", "quantiles": "0.9,0.1"}, "quantiles"),
        ({"bounds": None, "private-bounds": "bmi=0:60", "bounds-share": ".1", "quantiles": "0.9"}, "quantiles"),
        ({"bounds-share": "0.1"}, "only with --private-bounds"),
        ({"quantiles": "0.1,0.9"}, "only with --private-bounds"),
    ],
)
def test_release_of_a_family_refuses(folder, capsys, monkeypatch, changes, says):
    for noise in MECHANISMS.values():
        monkeypatch.setattr(type(noise), "draw", lambda *_: pytest.fail("noise was drawn"))
    refused(capsys, folder, family_command(**changes), says=says)


def test_release_and_check_of_families(folder, capsys):
    text = (folder / "table.csv").read_text().splitlines()
    lines = [f"{line},{'colour' if i == 0 else ('red', 'blue')[i % 2]}" for i, line in enumerate(text)]
    (folder / "table.csv").write_text("\n".join(lines))
    private = {"bounds": None, "private-bounds": "bmi=0:60", "bounds-share": "0.5", "quantiles": "0.1,0.9"}
    colours = {"model": "multinomial", "target": "colour", "bounds": None}
    for changes, kind, entries in (
        ({"rule": "redact"}, "exponential", {"bmi 0:60", "redact: "}),
        ({"model": "gamma", "option": "shape=2", "mechanism": "gaussian", "delta": "1e-6"}, "gamma", {"delta = 1e-06"}),
        (private, "exponential", {"epsilon = 0.5 of it"}),
        ({**colours, "labels": "red,blue", "mechanism": "discrete-laplace"}, "multinomial", {"red, blue", "count[1]"}),
        ({**colours, "labels": "red,blue", "option": "released=0,"}, None, {"--option released must be"}),
    ):
        code = main([*family_command(**changes), "--force"])
        if kind is None:
            assert code == 2 and all(entry in capsys.readouterr().err for entry in entries)
            continue
        assert code == 0 and main(["check", "release.json"]) == 0
        shown = capsys.readouterr().out
        assert f"{kind}: " in shown and all(entry in shown for entry in entries), shown
        assert json.loads((folder / "release.json").read_text())["model"]["kind"] == kind


@pytest.mark.parametrize(
    ("bounds", "says"),
    [
        (["bmi=15:45"], "progression"),
        (["bmi=45:15", "progression=0:350"], "lo < hi"),
        (["bmi=15:15", "progression=0:350"], "lo < hi"),
        (["bmi=nan:45", "progression=0:350"], "finite"),
        (["bmi=15:inf", "progression=0:350"], "finite"),
        (["bmi=15", "progression=0:350"], "lo:hi"),
        (["bmi=15:45:60", "progression=0:350"], "lo:hi"),
        (["bmi=a:b", "progression=0:350"], "lo:hi"),
        (["15:45", "progression=0:350"], "NAME=lo:hi"),
        (["bmi=15:45", "bmi=15:45", "progression=0:350"], "twice"),
        (["bmi=15:45", "progression=0:350", "age=0:100"], "age"),
    ],
)
def test_release_refuses_bounds(folder, capsys, bounds, says):
    refused(capsys, folder, release_command(bounds=bounds), says=says)


@pytest.mark.parametrize("cell", ["nan", "NaN", "inf", "", " ", "high", "1_0", "27,5,9", '"27', "0x10", "\x00", "=1+1"])
def test_release_refuses_cells_and_shows_none(folder, capsys, cell):
    text = (folder / "table.csv").read_text()
    (folder / "table.csv").write_text(text.replace(f"{SECRET},", f"{cell},", 1))
    err = refused(capsys, folder, release_command())
    assert "high" not in err and "151.25" not in err and not re.search(r"\b(row|line) \d", err)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("bmi,progression\n", "no records"),
        ("", "header"),
        ("bmi,bmi,progression\n20,21,100\n", "more than once"),
        ("bmi,age\n20,100\n", "progression"),
        ("bmi;progression\n20;100\n", "bmi"),
    ],
)
def test_release_refuses_tables(folder, capsys, table, says):
    (folder / "table.csv").write_text(table)
    refused(capsys, folder, release_command(), says=says)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"table": "nothing.csv"}, "nothing.csv"),
        ({"table": "."}, "table"),
        ({"features": "bmi,age", "bounds": ["bmi=1:2", "age=0:9", "progression=0:350"]}, "'age' is not in the table"),
        ({"features": "bmi,"}, "--features"),
        ({"features": "bmi,bmi"}, "bmi"),
        ({"target": "bmi"}, "bmi"),
        ({"mechanism": "gaussian"}, "gaussian"),
        ({"mechanism": "exponential"}, "exponential"),
        ({"model": "lasso"}, "lasso"),
        ({"adjacency": "add-remove"}, "add-remove"),
        ({"adjacency": "neighbours"}, "neighbours"),
        ({"output": "no/such/folder/release.json"}, "does not exist"),
        ({"output": "."}, "folder"),
        ({"output": "table.csv"}, "is an input"),
    ],
)
def test_release_refuses_the_rest(folder, capsys, changes, says):
    refused(capsys, folder, release_command(**changes), says=says)


def test_release_with_a_seed(folder, capsys):
    refused(capsys, folder, [*release_command(), "--seed", "1"], says="--seed")


def test_nothing_is_drawn_when_the_output_exists(folder, capsys, monkeypatch):
    (folder / "release.json").write_text("kept")
    monkeypatch.setattr(_noise, "add_laplace_noise", lambda *_: pytest.fail("noise was drawn"))
    refused(capsys, folder, release_command(), says="--force")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.pop("records"), "records"),
        (lambda d: d.pop("statistics"), "statistics"),
        (lambda d: d.pop("mechanism"), "mechanism"),
        (lambda d: d.pop("format"), "format"),
        (lambda d: d["statistics"].pop("bmi*bmi"), "bmi*bmi"),
        (lambda d: d.update(version=2), "version"),
        (lambda d: d.update(records="many"), "records"),
        (lambda d: d.update(records=0), "records"),
        (lambda d: d.update(surprise=1), "surprise"),
        (lambda d: d["mechanism"].update(scale=0), "scale"),
        (lambda d: d["mechanism"].update(scale="five"), "scale"),
        (lambda d: d["mechanism"].update(kind="wishart"), "wishart"),
        (lambda d: d["model"].update(intercept=False), "does not have"),
        (lambda d: d["privacy"].update(adjacency="add-remove"), "add-remove"),
        (lambda d: d.update(bounds={"bmi": [45, 15], "progression": [0, 350]}), "bounds"),
    ],
)
def test_fit_and_check_refuse_release_files(folder, capsys, change, says):
    data = json.loads(json.dumps(RELEASE))
    change(data)
    (folder / "bad.json").write_text(json.dumps(data))
    refused(capsys, folder, ["fit", "bad.json", "--output", "posterior.nc", "--json", "s.json"], says=says)
    refused(capsys, folder, ["check", "bad.json"], says=says)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "other"}', "\x00\x01", '{"a": NaN}', '{"a":1,"a":2}'])
def test_fit_refuses_what_is_no_release(folder, capsys, text):
    (folder / "bad.json").write_text(text)
    refused(capsys, folder, ["fit", "bad.json", "--output", "posterior.nc"], says="bad.json")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "Missing command"),
        (["refit"], "refit"),
        (["fit"], "Missing argument"),
        (["fit", "none.json"], "none.json"),
        (["fit", "given.json", "given.json"], "one release"),
        (["fit", "given.json", "--method", "magic"], "magic"),
        (["fit", "given.json", "--method", "non-private"], "exact statistics"),
        (["fit", "given.json", "--chains", "0"], "chains"),
        (["fit", "given.json", "--chains", "two"], "--chains"),
        (["fit", "given.json", "--draws", "-5"], "draws"),
        (["fit", "given.json", "--thin", "3"], "thin"),
        (["fit", "given.json", "--seed", "-1"], "--seed"),
        (["fit", "given.json", "--seed", "99999999999"], "--seed"),
        (["fit", "given.json", "--prior", "none.toml"], "none.toml"),
        (["fit", "given.json", "--output", "given.json", "--force"], "is an input"),
        (["fit", "given.json", "--output", "a.nc", "--json", "./a.nc"], "twice"),
        (["fit", "given.json", "--output", "no/a.nc"], "does not exist"),
        (["fit", "given.json", "--json", "table.csv"], "--force"),
        (["fit", "given.json", "--nonsense"], "--nonsense"),
        (["calibrate", "linear-regression", "--epsilon", "1"], "--records"),
        (["calibrate", "linear-regression", "--records", "10"], "--epsilon"),
        (["calibrate", "ridge", "--records", "10", "--epsilon", "1"], "ridge"),
        (["calibrate", "linear-regression", "--records", "ten", "--epsilon", "1"], "--records"),
        (["calibrate", "linear-regression", "--records", "1.5", "--epsilon", "1"], "--records"),
        (["calibrate", "linear-regression", "--records", "0", "--epsilon", "1"], "records"),
        (["calibrate", "linear-regression", "--records", "10,10", "--epsilon", "1"], "twice"),
        (["calibrate", "linear-regression", "--records", "10", "--epsilon", "nan"], "epsilon"),
        (["calibrate", "linear-regression", "--records", "10", "--epsilon", "0"], "epsilon"),
        (["calibrate", "linear-regression", "--records", "10", "--epsilon", "1", "--trials", "0"], "trials"),
        (["calibrate", "linear-regression", "--records", "10", "--epsilon", "1", "--method", "x"], "method"),
        (["calibrate", "linear-regression", "--records", "10", "--epsilon", "1", "--bounds", "1:-1"], "bounds"),
        (["calibrate", "linear-regression", "--records", "10", "--epsilon", "1", "--bounds", "1"], "--bounds"),
        (["calibrate", "linear-regression", "--records", "10", "--epsilon", "1", "--sensitivity", "0"], "sensitivity"),
        (["calibrate", "linear-regression", "--records", "10", "--epsilon", "1", "--features", "0"], "features"),
        (["calibrate", "linear-regression", "--records", "10", "--epsilon", "1", "--simulate", "x"], "simulate"),
        (["calibrate", "linear-regression", "--records", "10", "--epsilon", "1", "--json", "no/x.json"], "no"),
        (["calibrate", "binomial", "--records", "10", "--epsilon", "1", "--bounds", "0:1"], "bounds"),
        (["calibrate", "binomial", "--records", "10", "--epsilon", "1", "--features", "2"], "features"),
        (["calibrate", "binomial", "--records", "10", "--epsilon", "1", "--method", "gibbs-literal"], "gibbs-literal"),
        (["calibrate", "multinomial", "--records", "10", "--epsilon", "1"], "categories"),
        (["calibrate", "multinomial", "--records", "10", "--epsilon", "1", "--categories", "1"], "categories"),
        (["calibrate", "exponential", "--records", "10", "--epsilon", "1", "--rule", "drop"], "rule"),
        (["calibrate", "exponential", "--records", "10", "--epsilon", "1", "--bounds", "-1:1"], "support"),
        (["calibrate", "exponential", "--records", "10", "--epsilon", "1", "--option", "shape=2"], "shape"),
        (["calibrate", "exponential", "--records", "10", "--epsilon", "1", "--delta", "1e-5"], "delta"),
        (["calibrate", "exponential", "--records", "10", "--epsilon", "1", "--mechanism", "gaussian"], "delta"),
        (["calibrate", "exponential", "--records", "10", "--epsilon", "1", "--mechanism", "x"], "mechanism"),
        (["calibrate", "gamma", "--records", "10", "--epsilon", "1"], "shape"),
        (["calibrate", "gamma", "--records", "10", "--epsilon", "1", "--option", "shape"], "NAME=VALUE"),
        (["calibrate", "gamma", "--records", "10", "--epsilon", "1", "--option", "shape=0"], "shape"),
        (["run", "none.toml", "--output", "out"], "none.toml"),
        (["run", "table.csv", "--output", "out"], "TOML"),
        (["run", "given.json"], "--output"),
        (["check", "table.csv"], "JSON"),
    ],
)
def test_bad_usage(folder, capsys, words, says):
    refused(capsys, folder, words, says=says)


def test_prior_files_are_checked(folder, capsys):
    for text, says in (
        ("theta_mean = [0, 0, 0]", "theta_mean"),
        ("theta_precison = 1", "theta_precison"),
        ("sigma2_shape = -1", "sigma2_shape"),
        ("[covariates]\nnu = 'x'", "nu"),
        ("not toml", "TOML"),
    ):
        (folder / "prior.toml").write_text(text)
        refused(capsys, folder, ["fit", "given.json", "--prior", "prior.toml"], says=says)


# --- what works ---


def test_release_and_check(folder, capsys):
    assert main(release_command()) == 0
    out, err = capsys.readouterr()
    assert err.count("warning: ") == 1 and "adds its epsilon" in err.splitlines()[-1]
    for word in ("replace-one", "5.33333", "epsilon", "laplace", "bmi 15:45"):
        assert word in out
    assert SECRET not in out
    made = json.loads((folder / "release.json").read_text())
    assert made["records"] == 60 and made["privacy"]["epsilon"] <= 1
    first = (folder / "release.json").read_bytes()
    assert main(["check", "release.json", "--json", "checked.json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads((folder / "checked.json").read_text()) == made
    for name, value in made["statistics"].items():
        assert re.search(rf"{re.escape(name)} +{re.escape(f'{value:.6g}')}", out)
    refused(capsys, folder, release_command(), says="--force")
    assert main([*release_command(), "--force"]) == 0
    assert (folder / "release.json").read_bytes() != first
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_check_warns_of_a_guarantee_that_does_not_hold(folder, capsys):
    (folder / "weak.json").write_text(json.dumps({**RELEASE, "mechanism": {"kind": "laplace", "scale": 1.0}}))
    assert main(["check", "weak.json"]) == 0
    err = capsys.readouterr().err
    assert err.startswith("warning: ") and "does not hold" in err and err.count("\n") == 1


def test_check_lists_every_problem(folder, capsys):
    bad = {**RELEASE, "records": 0, "statistics": {**RELEASE["statistics"], "age": 1.0}}
    (folder / "bad.json").write_text(json.dumps(bad))
    refused(capsys, folder, ["check", "bad.json"], lines=2)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """One fit with all its files (naive: independent draws, quick to compile)."""
    folder = tmp_path_factory.mktemp("fit")
    (folder / "given.json").write_text(json.dumps(RELEASE))
    names = ("posterior.nc", "summary.json", "picture.png")
    paths = [str(folder / name) for name in names]
    words = ["fit", str(folder / "given.json"), "--method", "naive", "--chains", "4", "--draws", "400", "--seed", "3"]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*words, "--output", paths[0], "--json", paths[1], "--figure", paths[2]])
    return folder, code, out.getvalue(), err.getvalue()


def test_fit_prints_what_it_writes(fitted):
    folder, code, out, err = fitted
    assert code == 0 and err == ""
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["converged"] is True and summary["warnings"] == []
    user, scaled = out.split("user's units, 90%")[1].split("scaled units, 90%")
    for block, rows in ((user, summary["parameters"]), (scaled, summary["scaled"])):
        for name, row in rows.items():
            line = next(line for line in block.splitlines() if line.startswith(name))
            for key in ("mean", "sd", "prior_sd", "q05", "q95"):
                assert f" {show_number(row[key])}" in line, (name, key)
            assert f"{row['rhat']:.3f}" in line and f"{row['ess_bulk']:.0f}" in line
    for word in ("prior sd", "theta_precision", "the default, change it", "nu = 6"):
        assert word in out
    facts, _, _ = out.partition("prior (")  # of the release, as `dpjax run` and `dpjax check` print them
    assert facts == f"release\n{describe_release(dpjax.Release.from_dict(RELEASE))}\n\n"
    for word in ("progression on bmi", "442", "replace-one", "laplace noise, scale 5.33333", "bmi 15:45"):
        assert word in facts
    assert summary["releases"] == [RELEASE | {"bounds": {k: [*map(float, v)] for k, v in RELEASE["bounds"].items()}}]
    assert summary["prior"]["covariates"]["nu"] == 6
    assert f"{summary['seconds']:.2f} s" in out


def test_releases_of_parties_are_described_line_by_line():
    one = dpjax.Release.from_dict(RELEASE)
    text = describe_releases([one, dataclasses.replace(one, records=99, privacy=None)])
    lines = text.splitlines()
    assert lines[0] == "releases of 2 parties" and "progression on bmi" in lines[1] and len(lines) == 4
    assert "442 records" in lines[2] and "epsilon = 1," in lines[2] and "99 records" in lines[3]
    assert "privacy not stated" in lines[3] and "bmi 15:45" in lines[3]


def test_fit_writes_files_that_open(fitted):
    arviz = pytest.importorskip("arviz")
    folder = fitted[0]
    data = arviz.from_netcdf(str(folder / "posterior.nc"))
    summary = json.loads((folder / "summary.json").read_text())
    theta = np.asarray(data["posterior"]["theta"])
    assert theta.shape == (4, 400, 2)
    assert theta[..., 1].mean() == pytest.approx(summary["parameters"]["theta[1]"]["mean"])
    assert (folder / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in folder.iterdir()) == [
        "given.json",
        "picture.png",
        "posterior.nc",
        "summary.json",
    ]


@pytest.mark.slow
def test_fit_that_did_not_converge_is_written_marked_and_answers_1(folder, capsys):
    words = ["fit", "given.json", "--method", "naive", "--chains", "2", "--draws", "20", "--json", "s.json"]
    assert main(words) == 1
    out, err = capsys.readouterr()
    summary = json.loads((folder / "s.json").read_text())
    assert summary["converged"] is False and summary["warnings"]
    assert [f"warning: {text}" for text in summary["warnings"]] == err.splitlines()
    assert "theta[1]" in out
    refused(capsys, folder, words, says="--force")


@pytest.mark.slow
def test_calibrate(folder, capsys):
    words = ["calibrate", "linear-regression", "--records", "50,200", "--epsilon", "1", "--epsilon", "10"]
    words += ["--trials", "20", "--method", "naive", "--draws", "60", "--bounds", "-1:1", "--seed", "4"]
    assert main([*words, "--json", "c.json", "--figure", "c.png"]) == 0
    out, _ = capsys.readouterr()
    data = json.loads((folder / "c.json").read_text())
    assert [(c["records"], c["epsilon"]) for c in data["cells"]] == [(50, 1), (50, 10), (200, 1), (200, 10)]
    for cell in data["cells"]:
        assert cell["trials"] == 20
        for name, row in cell["parameters"].items():
            shown = rf"{cell['records']} +{cell['epsilon']:g} +{re.escape(name)} +{row['ks']:.4f}"
            assert re.search(shown, out), shown
    assert data["settings"]["sensitivity"] == pytest.approx(16 / 3)
    pictures = sorted(path.name for path in folder.glob("*.png"))
    assert pictures == ["c_n200_eps1.png", "c_n200_eps10.png", "c_n50_eps1.png", "c_n50_eps10.png"]
    refused(capsys, folder, [*words, "--figure", "c.png"], says="--force")


@pytest.mark.slow
def test_fit_of_a_family(folder, capsys):
    model = {"kind": "multinomial", "categories": 3, "labels": ["low", "middle", "high"], "column": "bmi"}
    data = {
        **{name: RELEASE[name] for name in ("format", "version")}, "model": model, "records": 1000, "scaling": None,
        "statistics": {"count[0]": 400.0, "count[1]": 250.0}, "mechanism": {"kind": "laplace", "scale": 10.0},
    }  # fmt: skip
    (folder / "counts.json").write_text(json.dumps(data))
    (folder / "prior.toml").write_text("concentration = 5\n")
    words = ["fit", "counts.json", "--method", "naive", "--draws", "300", "--prior", "prior.toml", "--json", "s.json"]
    assert main([*words, "--output", "p.nc"]) == 0
    out, _ = capsys.readouterr()
    summary = json.loads((folder / "s.json").read_text())
    assert summary["model"] == "multinomial" and summary["prior"] == {"concentration": [5, 5, 5]}
    assert summary["parameters"]["p[0]"]["mean"] == pytest.approx(405 / 1015, abs=0.005)
    assert "share of bmi = middle" in out and "concentration = [5, 5, 5]" in out and "scaled units" not in out
    arviz = pytest.importorskip("arviz")
    p = arviz.from_netcdf(str(folder / "p.nc"))["posterior"]["p"]
    assert p.shape == (4, 300, 3) and p["category"].values.tolist() == ["low", "middle", "high"]
    (folder / "prior.toml").write_text("alpha = 5\n")
    refused(capsys, folder, ["fit", "counts.json", "--prior", "prior.toml"], says="concentration")


def test_help_has_an_example_for_every_command(capsys):
    assert main(["--help"]) == 0
    assert "Exit codes" in capsys.readouterr().out
    for command in ("release", "check", "fit", "calibrate", "run"):
        assert main([command, "--help"]) == 0
        out = capsys.readouterr().out
        assert f"Example:\n    dpjax {command} " in out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"dpjax {dpjax.__version__}\n"


# --- errors of our own, interruptions ---


def test_internal_errors_show_no_data(folder, capsys, monkeypatch):
    def broken(*_):
        raise RuntimeError(f"value {SECRET}")

    monkeypatch.setattr(_noise, "add_laplace_noise", broken)
    assert main(release_command()) == 3
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if not line.startswith("warning: ")]
    assert lines[-1].startswith("internal error: RuntimeError in laplace.py")
    assert SECRET not in err + out and "Traceback" not in err
    assert main([*release_command(), "--debug"]) == 3
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setenv(DEBUG_VARIABLE, "1")
    assert main(release_command()) == 3
    assert "Traceback" in capsys.readouterr().err
    assert not (folder / "release.json").exists()


def test_interruption_and_full_disk(folder, capsys, monkeypatch):
    def stop(error):
        def act(*_):
            raise error

        monkeypatch.setattr(_noise, "add_laplace_noise", act)

    stop(KeyboardInterrupt())
    assert main(release_command()) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "interrupted: nothing half-written is left behind"
    stop(OSError(28, "No space left on device", "release.json"))
    assert main(release_command()) == 2
    assert "No space left" in capsys.readouterr().err
    assert not (folder / "release.json").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["fit", "given.json"], "behind; fit starts from the beginning (a [fit] of dpjax run can be resumed)"),
        (["calibrate", "binomial", "--records", "9", "--epsilon", "1"], "calibrate starts from the beginning"),
        (["run", "quick.toml", "--output", "out"], "dpjax run goes on with --resume"),
    ],
)
def test_what_is_said_of_interruptions_is_true_of_the_command(folder, capsys, monkeypatch, words, says):
    def stop(*_, **__):
        raise KeyboardInterrupt

    (folder / "given.json").write_text(json.dumps(RELEASE))
    monkeypatch.setattr(WORK[words[0]], stop)
    assert main(words) == 130
    err = capsys.readouterr().err
    assert err.startswith("interrupted: nothing half-written is left behind") and says in err
    assert ("--resume" in err) == (words[0] == "run")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_bar_is_for_terminals_only():
    terminal, pipe = Terminal(), io.StringIO()
    for screen in (terminal, pipe):
        bar = Bar(screen)
        bar.labelled("fit collapsed")(Progress(3, 6))
        bar.clear()
    assert "fit collapsed" in terminal.getvalue() and "50%" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r")
    assert pipe.getvalue() == ""


@pytest.mark.slow
def test_as_a_process(folder):
    """The real thing, once: code and streams of a process, and no JAX for help, release and check."""
    environment = {**os.environ, "PYTHONPATH": str(Path(dpjax.__file__).parents[1])}
    call = lambda *words: subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=environment, timeout=120
    )
    done = call("-m", "dpjax", "check", "none.json")
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.count("\n") == 1
    script = "import sys; from dpjax.cli.app import main; code = main(sys.argv[1:]); print('jax' in sys.modules, code)"
    family = family_command(output="family.json")
    for words in (
        ["--help"],
        ["fit", "--help"],
        ["check", "given.json"],
        release_command(),
        family,
        ["check", "family.json"],
        ["fit", "none.json"],
    ):
        done = call("-c", script, *words)
        assert done.stdout.splitlines()[-1] == f"False {2 if words[-1] == 'none.json' else 0}", done


@pytest.mark.parametrize("name", ["picture.xyz", "picture", "picture.jpg"])
@pytest.mark.parametrize("command", ["fit", "calibrate"])
def test_unknown_picture_formats_are_refused_before_any_work(folder, capsys, monkeypatch, name, command):
    monkeypatch.setattr(WORK[command], lambda *_, **__: pytest.fail("work was done"))
    words = {
        "fit": ["fit", "given.json"],
        "calibrate": ["calibrate", "linear-regression", "--records", "10,20", "--epsilon", "1"],
    }
    refused(capsys, folder, [*words[command], "--figure", name], says=".png, .pdf or .svg")


def test_cache_in_the_home_of_nobody(folder):
    root = str(Path(dpjax.__file__).parents[1])
    env = {**os.environ, "DPJAX_CACHE": "~nosuchuser/x", "PYTHONPATH": root}
    words = [sys.executable, "-m", "dpjax", "fit", "given.json"]
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: DPJAX_CACHE") and done.stderr.count("\n") == 1
