"""The command line without an intercept and with several parties: release, check, fit, predict, calibrate, run."""

import contextlib
import csv
import io
import json
import re

import numpy as np
import pytest

import dpjax
from dpjax.cli.app import main
from dpjax.inference.posterior_file import load_posterior

EPSILONS = (1e-3, 1.0, 30.0, 1e3)
pytestmark = pytest.mark.slow
WORDS = ["--target", "y", "--features", "x", "--no-intercept"]
SHAPE = ["--chains", "4", "--draws", "300", "--quiet"]
STUDY = ["calibrate", "linear-regression", "--no-intercept", "--parties", "3", "--records", "60,300", "--epsilon", "1",
         "--trials", "8", "--draws", "400", "--quiet"]  # fmt: skip
CONFIG = """
name = "parties"
[calibration]
records = [60, 300]
epsilon = 1
trials = 8
draws = 400
methods = ["collapsed"]
intercept = false
parties = 3
mmd = false
"""


@pytest.fixture(scope="module", autouse=True)
def no_cache():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPJAX_CACHE", "off")
        yield


def run(*words):
    """Exit code, standard output, lines of standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    return code, out.getvalue(), err.getvalue().splitlines()


def refused(*words):
    """The one line that says what is wrong."""
    code, out, err = run(*words)
    assert code == 2 and out == "" and len(err) == 1 and err[0].startswith("error: "), (code, out, err)
    return err[0]


def write_table(path, n=500, seed=0, a=0.8):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    rows = [f"{u:.6f},{a * u + e:.6f}" for u, e in zip(x, rng.normal(0, 0.5, n), strict=True)]
    path.write_text("\n".join(["x,y", *rows]) + "\n")
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A table, and releases of one record number with budgets far apart in `one`, of three parties in `many`."""
    folder = tmp_path_factory.mktemp("parties")
    write_table(folder / "table.csv")
    (folder / "many").mkdir()
    bounds = [["--bounds", f"x=-{top}:{top}", "--bounds", f"y=-{top}:3"] for top in (2, 3, 4)]
    noise = [[], ["--mechanism", "gaussian", "--delta", "1e-6"], ["--no-squares"]]
    for j, (limits, more) in enumerate(zip(bounds, noise, strict=True)):
        table = write_table(folder / f"table{j}.csv", 400 * (j + 1), j + 1)
        output = folder / "many" / f"{j}.json"
        assert run("release", table, *WORDS, *limits, *more, "--epsilon", "2", "--output", output)[0] == 0
    for epsilon in EPSILONS:
        code, out, err = run(
            "release", folder / "table.csv", *WORDS, "--norms", "3,3", "--epsilon", epsilon,
            "--output", folder / f"one{epsilon:g}.json",
        )  # fmt: skip
        assert code == 0 and "norms        |x| <= 3, |y| <= 3" in out and "spends epsilon" in "".join(err)
    return folder


def left(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# --- release ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more, message",
    [
        (["--norms", "3"], "--norms must be two numbers X,Y; got '3'"),
        (["--norms", "3,a"], "--norms must be two numbers X,Y"),
        (["--norms", "3,0"], "norms must be"),
        (["--norms", "inf,1"], "norms must be"),
        (["--norms", "3,3", "--bounds", "x=-1:1"], "norms and bounds exclude each other"),
        (["--norms", "3,3", "--averaged", "2"], "use gaussian noise"),
        (["--norms", "3,3", "--averaged", "7", "--mechanism", "gaussian", "--delta", "1e-5"], "averaged must divide"),
        (["--norms", "3,3", "--intercept"], "norms is for a linear-regression without an intercept"),
        (["--norms", "3,3", "--moments"], "moments are for regressions with an intercept"),
        (["--bounds", "x=1:-1", "--bounds", "y=0:1"], "bounds of 'x' must be two finite numbers lo < hi"),
        (["--bounds", "x=-1:1", "--bounds", "y=-1:1", "--epsilon", "0"], "epsilon must be a finite number > 0"),
        (["--bounds", "x=-1:1", "--bounds", "y=-1:1", "--averaged", "2"], "averaged needs norms"),
        ([], "bounds are missing for column 'x'"),
    ],
)
def test_bad_releases_are_one_line_and_write_nothing(place, more, message):
    before = left(place)
    words = [] if "--epsilon" in more else ["--epsilon", "1"]
    line = refused("release", place / "table.csv", *WORDS, *words, *more, "--output", place / "bad.json")
    assert message in line and "500" not in line and left(place) == before


def test_equal_norms_and_averaged_rows_are_released_and_checked(place, tmp_path):
    output = tmp_path / "averaged.json"
    code, out, err = run(
        "release", place / "table.csv", *WORDS, "--norms", "1,1", "--averaged", "5", "--no-squares", "--epsilon", "1",
        "--mechanism", "gaussian", "--delta", "1e-5", "--output", output,
    )  # fmt: skip
    assert code == 0 and "records      100, each 5 records of the table averaged" in out
    model = json.loads(output.read_text())["model"]
    assert model == {
        "kind": "linear-regression", "features": ["x"], "target": "y", "intercept": False, "squares": False,
        "averaged": 5, "norms": {"features": 1.0, "target": 1.0},
    }  # fmt: skip
    code, out, err = run("check", output)
    assert code == 0 and err == [] and "through the origin, without the square of the target" in out
    broken = json.loads(output.read_text())
    broken["privacy"]["sensitivity"] = 2**0.5  # Alparslan et al.'s, of neighbours with a record more
    output.write_text(json.dumps(broken))
    code, out, err = run("check", output)
    assert code == 0 and len(err) == 1 and "the stated epsilon does not hold" in err[0] and "averaged.json" in err[0]
    output.write_text(json.dumps(broken | {"bounds": {"x": [-1, 1], "y": [-1, 1]}}))
    assert "'bounds' has no place" in refused("check", output)


# --- fit ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted(place):
    """The three parties, fitted from the command line."""
    nc, summary = place / "posterior.nc", place / "summary.json"
    code, out, err = run("fit", place / "many", *SHAPE, "--output", nc, "--json", summary)
    assert code == 0 and err == [], err
    return out, nc, json.loads(summary.read_text())


def test_a_folder_of_parties_is_fitted(fitted):
    out, _, summary = fitted
    assert summary["parties"] == [
        {"records": 400, "mechanism": "laplace", "epsilon": pytest.approx(2), "delta": 0},
        {"records": 800, "mechanism": "gaussian", "epsilon": 2, "delta": 1e-6},
        {"records": 1200, "mechanism": "laplace", "epsilon": pytest.approx(2), "delta": 0},
    ]
    assert summary["records"] == 2400 and summary["delta"] == 1e-6 and summary["converged"]
    assert summary["bounds"] == {"x": [-4, 4], "y": [-4, 4]} and summary["adjacency"] == "replace-one"
    assert list(summary["parameters"]) == ["theta[1]", "sigma2", "tau2[1,1]"]
    assert "theta[1]" in out and "theta[0]" not in out and "n = 2400" in out


def test_predictions_of_a_line_through_zero(fitted, tmp_path):
    _, nc, summary = fitted
    (tmp_path / "new.csv").write_text("x\n0\n1.5\n-3\n")
    code, _, err = run("predict", nc, tmp_path / "new.csv", "--output", tmp_path / "predictions.csv")
    assert code == 0 and err == []
    rows = list(csv.DictReader((tmp_path / "predictions.csv").read_text().splitlines()))
    slope = summary["parameters"]["theta[1]"]["mean"]
    np.testing.assert_allclose([float(row["mean"]) for row in rows], [0, 1.5 * slope, -3 * slope], rtol=1e-6)
    assert float(rows[0]["line_low_90"]) == float(rows[0]["line_high_90"]) == 0
    assert "theta[0]" not in load_posterior(nc).names


def test_nothing_is_written_when_a_file_is_broken(place, tmp_path):
    for file in (place / "many").iterdir():
        (tmp_path / file.name).write_text(file.read_text())
    (tmp_path / "1.json").write_text((tmp_path / "1.json").read_text().replace("gaussian", "gausian"))
    out = tmp_path / "out"
    out.mkdir()
    before = left(tmp_path)
    line = refused("fit", tmp_path, "--output", out / "p.nc", "--json", out / "s.json", "--figure", out / "f.png")
    assert "1.json': 'mechanism.kind' must be one of" in line and left(tmp_path) == before
    line = refused("fit", place / "one1.json", tmp_path, "--json", out / "s.json")
    assert "1.json'" in line and left(tmp_path) == before


def test_what_cannot_be_fitted_together_is_said_in_one_line(place, tmp_path):
    many, one = place / "many", place / "one1.json"
    assert "holds no release file (*.json)" in refused("fit", tmp_path)
    assert "0.json' is named twice" in refused("fit", many, many / "0.json")
    assert "absent.json': cannot be read" in refused("fit", one, tmp_path / "absent.json")
    other = json.loads(one.read_text())
    other["model"]["target"] = "z"
    other["statistics"] = {name.replace("y", "z"): value for name, value in other["statistics"].items()}
    (tmp_path / "other.json").write_text(json.dumps(other))
    line = refused("fit", many, tmp_path / "other.json", "--json", tmp_path / "s.json")
    assert "parties 1 and 4 differ in target: 'y' and 'z'" in line and left(tmp_path) == ["other.json"]
    (tmp_path / "again.json").write_text(one.read_text())
    assert "parties 1 and 2 are one release given twice" in refused("fit", one, tmp_path / "again.json")
    assert "not for several parties or regressions without an intercept" in refused("fit", one, "--method", "gibbs")


def test_no_party_is_overwritten(place):
    """Not even with --force: an output that lies in a folder of releases is one of them."""
    party = place / "many" / "0.json"
    before = party.read_text()
    assert "is an input of this command" in refused("fit", place / "many", "--json", party, "--force")
    assert party.read_text() == before


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_budgets_far_apart(place, epsilon):
    """At .001 the posterior is the prior, at 30 that of the table; at 1000 there is no noise to speak of."""
    summary = place / f"summary{epsilon:g}.json"
    method = ["--method", "naive"] if epsilon > 100 else []  # collapsed does not mix there, and says so
    code, _, err = run("fit", place / f"one{epsilon:g}.json", *SHAPE, *method, "--json", summary)
    assert code == 0, err
    slope = json.loads(summary.read_text())["parameters"]["theta[1]"]
    assert np.isfinite(list(slope.values())).all()
    if epsilon < 1:
        assert slope["sd"] > 0.5 * slope["prior_sd"]
    if epsilon > 1:
        assert abs(slope["mean"] - 0.8) < 0.15 and slope["sd"] < 0.05


# --- studies --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def study(place):
    code, out, err = run(*STUDY, "--json", place / "study.json")
    assert code in (0, 1), err
    return out, json.loads((place / "study.json").read_text())


def test_a_study_of_parties(study):
    out, found = study
    assert [cell["records"] for cell in found["cells"]] == [60, 300]
    assert "3 parties with equal shares of the records" in out and "through the origin" in out
    assert set(found["cells"][0]["parameters"]) == {"theta[1]", "sigma2", "tau2[1,1]"}
    text = json.dumps(found)
    assert '"parties": 3' in text and '"intercept": false' in text
    assert "sensitivity 3 " in out  # docs/formulas.md#box-sensitivity


def test_a_config_with_the_same_keys_is_the_same_study(study, place):
    (place / "config.toml").write_text(CONFIG)
    code, _, err = run("run", place / "config.toml", "--output", place / "results", "--quiet")
    assert code in (0, 1), err
    found = json.loads((place / "results" / "results.json").read_text())["calibration"]["collapsed"]
    for cell, other in zip(found["cells"], study[1]["cells"], strict=True):
        assert cell["parameters"] == other["parameters"]


@pytest.mark.parametrize(
    "changes, message",
    [
        (["--records", "100"], "records must be a multiple of the 3 parties; got 100"),
        (["--records", "2"], "records must be a multiple of the 3 parties; got 2"),
        (["--parties", "0"], "parties must be a whole number, at least 1"),
        (["--intercept", "--no-squares"], "squares is for a linear-regression without an intercept"),
        (["--moments"], "moments are for regressions with an intercept"),
        (["--clip"], "simulated exactly"),
        (["--simulate", "clt"], "simulated exactly"),
        (["--method", "gibbs"], "not for several parties"),
        (["--method", "naive", "--no-squares"], "has not released"),
        (["--epsilon", "0"], "epsilon"),
    ],
)
def test_bad_studies_are_one_line(changes, message, tmp_path):
    line = refused(*STUDY, *changes, "--json", tmp_path / "study.json") if "--records" not in changes else refused(
        *[word if word != "60,300" else changes[1] for word in STUDY], "--json", tmp_path / "study.json"
    )  # fmt: skip
    assert re.search(message, line) and left(tmp_path) == []


def test_bad_configs_name_the_key(tmp_path):
    path = tmp_path / "config.toml"
    for old, new, message in (
        ("[60, 300]", "[60, 100]", "multiple of the 3 parties"),
        ("parties = 3", 'parties = "3"', "calibration.parties"),
        ("parties = 3", "parties = -1", "parties must be a whole number"),
        ("intercept = false", "intercept = true\nsquares = false", "squares is for"),
        ("parties = 3", "party = 3", "unknown key calibration.party"),
    ):
        path.write_text(CONFIG.replace(old, new))
        assert message in refused("run", path, "--output", tmp_path / "results"), new
        assert not (tmp_path / "results").exists(), new


def test_parties_are_for_regressions():
    line = refused("calibrate", "poisson", "--parties", "2", "--records", "10", "--epsilon", "1")
    assert "parties = 2 is for regressions" in line
    with pytest.raises(dpjax.errors.InputError, match="parties must be a whole number"):
        dpjax.calibrate("linear-regression", records=10, epsilon=1.0, parties=True)
