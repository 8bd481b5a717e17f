"""What the owner sees before noise is drawn: right counts, on the screen and nowhere else; disasters are stopped, and
absurd budgets are said from public numbers."""

import copy
import json
import pickle
import re
import traceback
import warnings

import numpy as np
import pytest

from dpjax._base.reading import Reading
from dpjax.cli.app import main
from dpjax.errors import InputError, PrivacyWarning
from dpjax.mechanisms import laplace as _noise
from dpjax.releases.owner import release
from dpjax.releases.owner_report import OwnerReport
from dpjax.releases.sentinels import sentinels
from dpjax.releases.table import Wanted, raw_columns
from dpjax.runner.run import run
from dpjax.statistics.kinds import make_statistic

N, CODES, LOW, HIGH, GONE = 457, 83, 11, 29, 37  # primes, so that no share or other number repeats one of them
BOUNDS = {"bmi": (15, 45), "progression": (0, 350)}
GIVEN = {"target": "progression", "features": ["bmi"], "bounds": BOUNDS, "epsilon": 1.0}
WORDS = ["release", "table.csv", "--target", "progression", "--features", "bmi", "--bounds", "bmi=15:45", "--bounds",
         "progression=0:350", "--epsilon", "1", "--output", "release.json"]  # fmt: skip


def columns(codes=0, low=0, high=0, missing=0, n=N, scale=1.0):
    rng = np.random.default_rng(0)
    bmi = 27 + scale * rng.uniform(-9, 9, n)
    bmi[:codes] = -200
    bmi[codes : codes + low] = 14
    bmi[codes + low : codes + low + high] = 46 + rng.uniform(0, 3, high)
    bmi[n - missing :] = np.nan
    return {"bmi": bmi, "progression": 150 + 80 * rng.uniform(-1, 1, n)}


def write(folder, table, name="table.csv"):
    rows = zip(*(["NA" if np.isnan(v) else repr(float(v)) for v in column] for column in table.values()), strict=True)
    (folder / name).write_text("\n".join([",".join(table), *map(",".join, rows)]) + "\n")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def drawn(monkeypatch):
    """How often noise was drawn; the sums are released as they are."""
    seen = []

    def capture(values, sensitivity, epsilon):
        seen.append(values)
        return values, sensitivity / epsilon, epsilon

    monkeypatch.setattr(_noise, "add_laplace_noise", capture)
    return seen


def numbers(text):
    """Numbers that stand alone."""
    return set(re.findall(r"(?<![\w.-])-?\d+(?:\.\d+)?(?![\w.])", text))


# --- counts ---


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        (np.r_[np.linspace(10, 30, 900), [-200] * 100], {-200: 100}),
        (np.r_[np.linspace(10, 30, 90), [-200] * 900], {-200: 900}),
        (np.r_[np.arange(500) % 100, [999] * 3], {999: 3}),
        (np.r_[np.arange(500) % 5 + 1, [-9] * 30], {-9: 30}),
        (np.r_[np.arange(500) % 5 + 1, [-1] * 30], {-1: 30}),
        (np.r_[np.arange(500) % 5 + 1, [-9] * 30, [-8] * 5, [-7] * 4], {-9: 30, -8: 5, -7: 4}),
        (np.r_[np.arange(500) % 10 + 1, [97] * 5, [98] * 5, [99] * 9], {97: 5, 98: 5, 99: 9}),
        (np.r_[np.linspace(30, 70, 500), [-99] * 9, [999] * 20], {-99: 9, 999: 20}),
        (np.r_[np.round(np.linspace(40, 110, 700)), [0] * 35], {0: 35}),
        (np.r_[np.linspace(18, 80, 500), [999]], {999: 1}),
        (np.r_[np.arange(500) % 2, [9] * 4], {9: 4}),
        (np.r_[np.arange(500) % 2, [-9] * 4], {-9: 4}),
        (np.r_[np.arange(500) % 2, [5] * 4], {}),
        (np.r_[np.linspace(18, 80, 500), [95]], {}),
        (np.linspace(-3, 3, 500), {}),
        (np.arange(500) % 2, {}),
        (np.arange(500) % 5 + 1, {}),
        (np.r_[np.linspace(0, 1, 500), [50]], {}),
        (np.r_[[0] * 900, np.linspace(1, 1e4, 100)], {}),
        (np.full(20, -9.0), {}),
        (np.array([3.0]), {}),
    ],
)
def test_codes_are_found(values, codes):
    assert sentinels(np.asarray(values, dtype=float)) == codes


def test_codes_are_not_found_in_ordinary_columns():
    rng = np.random.default_rng(1)
    false = 0
    for _ in range(100):
        for values in (
            rng.normal(12, 5, 300).round(), rng.normal(0, 1, 200).round(1), rng.poisson(4, 200), rng.poisson(0.3, 300),
            rng.exponential(30, 500).round(), rng.geometric(0.3, 300), rng.lognormal(3, 1, 500).round(),
            rng.integers(0, 3, 40), rng.standard_cauchy(500).round(), rng.integers(18, 100, 500),
        ):  # fmt: skip
            false += bool(sentinels(values.astype(float)))
    assert false <= 2  # of 1,000: the others are of the heavy tail


def test_report_counts_right(capsys):
    table = columns(CODES, LOW, HIGH, GONE)
    reading = Reading(missing="impute", impute={"bmi": 30})
    statistic = make_statistic("linear-regression", **{k: GIVEN[k] for k in ("target", "features", "bounds")})
    report = OwnerReport(raw_columns(table, Wanted.of(statistic), reading), statistic, reading)
    report.show()
    out, err = capsys.readouterr()
    line = next(line for line in err.splitlines() if line.startswith("  bmi"))
    known = N - GONE
    for words in (
        f"{GONE} ({GONE / N:.1%}) missing, counted as 30",
        f"{CODES + LOW} ({(CODES + LOW) / known:.1%}) below",
        f"{HIGH} ({HIGH / known:.1%}) above",
        f"{CODES} ({CODES / N:.1%}) are -200, which looks like a code for missing",
    ):
        assert words in line, line
    assert out == "" and "for your eyes only" in err and "do not publish" in err and str(N) in err
    assert "depends on the data" in err.splitlines()[-1]
    assert not numbers(repr(report)) and report.remarkable
    for store in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be stored"):
            store(report)
    with pytest.raises(TypeError):
        json.dumps(report)


@pytest.mark.parametrize(
    ("statistic", "table", "words"),
    [
        ({"kind": "exponential", "bounds": (0, 5), "rule": "redact"}, {"x": [1.0, 2, 7, 3, 8]},
         "left out: 0 below, 2 (40.0%) above"),
        ({"kind": "binomial"}, {"x": [0, 1, None]}, "1 (33.3%) missing"),
        ({"kind": "multinomial", "labels": ["a", "b"]}, {"x": ["a", "", "b"]}, "1 (33.3%) missing"),
        ({"kind": "log-normal", "bounds": (1e-3, 1e6)}, {"x": np.exp(np.linspace(-2, 2, 50))}, "0 above the bounds"),
        ({"kind": "normal", "bounds": (0, 1e6)}, {"x": np.linspace(1, 2, 50)}, "times as wide"),
        ({"kind": "linear-regression", "features": ["x", "w"], "target": "y", "intercept": False,
          "norms": {"features": 5, "target": 1}}, {"x": [3.0, 3], "w": [4.0, 4.1], "y": [0.5, -2]},
         "length of (x, w)  0 missing; shortened: 0 below, 1 (50.0%) above"),
    ],
)  # fmt: skip
def test_report_of_other_models(statistic, table, words, capsys):
    kind = statistic.pop("kind")
    made = make_statistic(kind, **statistic)
    reading = Reading()
    OwnerReport(raw_columns(table, Wanted.of(made), reading), made, reading).show()
    err = capsys.readouterr().err
    assert words in err
    assert ("times as wide" in err) == (kind == "normal")


# --- disasters ---

DISASTERS = [
    ({"codes": CODES}, "column 'bmi' has values that look like a code for missing"),
    ({"low": 200, "high": 190}, "column 'bmi' has most of its values outside of the bounds"),
    ({"scale": 1e-6}, "column 'bmi' has bounds that are absurdly wide"),
    ({"missing": 300}, "column 'bmi' is missing mostly"),
]


@pytest.mark.parametrize(("changes", "says"), DISASTERS)
def test_disasters_stop_before_the_noise(changes, says, folder, capsys, drawn):
    table = columns(**changes)
    write(folder, table)
    impute = ["--missing", "impute", "--impute", "bmi=30"]
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert main([*WORDS, *impute]) == 2
    out, err = capsys.readouterr()
    error = err.splitlines()[-1]
    assert out == "" and error.startswith("error: nothing was drawn: ") and says in error and "--accept" in error
    assert not re.search(r"\d", error)
    assert "for your eyes only" in err and str(N) in err
    assert not drawn and {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert main([*WORDS, *impute, "--accept"]) == 0
    out, err = capsys.readouterr()
    assert "for your eyes only" in err and len(drawn) == 1 and "for your eyes" not in out
    # in Python: the same, and the exception holds nothing
    more = {"missing": "impute", "impute": {"bmi": 30}}
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        release(table, **GIVEN, **more)
    text = "".join(traceback.format_exception_only(caught.value))
    assert not re.search(r"\d", text) and caught.value.__context__ is None and len(drawn) == 1
    with pytest.warns(PrivacyWarning):
        release(table, **GIVEN, **more, accept=True, report=False)
    assert len(drawn) == 2


def test_declared_codes_are_no_disaster(folder, capsys, drawn):
    write(folder, columns(CODES))
    assert main([*WORDS, "--missing-code", "-200", "--missing", "impute", "--impute", "bmi=30"]) == 0
    err = capsys.readouterr().err
    assert f"{CODES} ({CODES / N:.1%}) missing, counted as 30" in err and "looks like a code" not in err
    clipped = np.where(columns(CODES)["bmi"] == -200, 30.0, columns(CODES)["bmi"])
    assert drawn[0][0] == pytest.approx(((clipped - 15) / 15 - 1).sum())


def test_report_comes_before_the_noise(folder, capsys, monkeypatch):
    write(folder, columns(0, LOW, HIGH))
    seen = []
    monkeypatch.setattr(
        _noise, "add_laplace_noise", lambda v, s, e: (seen.append(capsys.readouterr().err), (v, s, e))[1]
    )
    assert main(WORDS) == 0
    assert f"{LOW} ({LOW / N:.1%}) below" in seen[0] and "adds its epsilon" in seen[0]


def test_report_has_no_influence(drawn):
    """The same table gives the same release, whatever is shown and accepted."""
    table = columns(0, LOW, HIGH)
    made = []
    for changes in ({}, {"report": True}, {"report": False}, {"accept": True}, {"accept": True, "report": False}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made.append(release(table, **GIVEN, **changes).to_dict())
    assert all(other == made[0] for other in made[1:])


@pytest.mark.parametrize(("name", "value"), [("report", "yes"), ("report", 1), ("accept", None), ("accept", "yes")])
def test_bad_arguments(name, value, drawn):
    with pytest.raises(InputError, match=f"{name} must be"):
        release(columns(), **GIVEN, **{name: value})
    assert not drawn


# --- on the screen and nowhere else ---


def test_python_prints_what_is_remarkable(capsys, drawn):
    with pytest.warns(PrivacyWarning) as seen:
        release(columns(), **GIVEN)
    assert capsys.readouterr() == ("", "")
    with pytest.warns(PrivacyWarning) as seen:
        release(columns(0, LOW, HIGH), **GIVEN)
    out, err = capsys.readouterr()
    assert out == "" and str(HIGH) in numbers(err)
    for warning in seen:
        assert not {str(LOW), str(HIGH), str(N)} & numbers(str(warning.message))


def test_no_count_or_value_gets_into_a_file(folder, capsys):
    """Everything that `release` and `run` write, and what they print but for the report."""
    write(folder, columns(CODES, LOW, HIGH, GONE))
    private = {str(k) for k in (CODES, LOW, HIGH, GONE, CODES + LOW, CODES + GONE, N - GONE, -200)}
    private |= {f"{k / n:.1%}"[:-1] for k in (CODES, LOW, HIGH, GONE, CODES + LOW) for n in (N, N - GONE)}
    impute = ["--missing", "impute", "--impute", "bmi=30"]
    assert main([*WORDS, *impute, "--accept"]) == 0
    out, err = capsys.readouterr()
    assert {str(CODES), str(HIGH), str(GONE), "-200"} <= numbers(err.replace("%", "")) and "for your eyes only" in err
    told = [out, *(line for line in err.splitlines() if line.startswith(("warning: ", "error: ")))]
    config = {
        "name": "look", "seed": 1,
        "data": {"csv": "table.csv", "missing": "impute", "impute": {"bmi": 30}, "accept": True},
        "release": {"target": "progression", "features": ["bmi"], "bounds": BOUNDS, "epsilon": 1.0},
    }  # fmt: skip
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        run(config, folder / "results")
    assert "for your eyes only" in capsys.readouterr().err
    told += [str(warning.message) for warning in seen]
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "table.csv"]
    assert {"release.json", "results.json", "results.txt", "run.json"} <= {path.name for path in files}
    for path in files:
        told += [path.read_bytes().decode("latin-1")] if path.suffix in (".json", ".txt", ".toml") else []
        content = path.read_bytes()
        assert b"eyes only" not in content and b"looks like a code" not in content, path
    for text in told:
        assert "eyes only" not in text and "missing, counted" not in text
        # draws and timings are numbers too, so that whole sentences and lone integers are looked at
        assert not {value for value in private & numbers(text) if "." not in value}, text[:2000]
    release_file = json.loads((folder / "results" / "release.json").read_text())
    assert release_file["imputed"] == {"bmi": 30.0} and release_file["records"] == N


def test_run_stops_at_a_disaster(folder, capsys):
    write(folder, columns(CODES))
    config = {
        "name": "look",
        "data": {"csv": "table.csv"},
        "release": {"target": "progression", "features": ["bmi"], "bounds": BOUNDS, "epsilon": 1.0},
    }
    with pytest.raises(InputError, match=r"looks? like a code") as caught:
        run(config, folder / "results")
    assert str(CODES) in numbers(capsys.readouterr().err) and not re.search(r"\d", str(caught.value))
    assert not (folder / "results").exists()


# --- public facts ---


def said(table=None, **changes):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        release(columns() if table is None else table, **GIVEN | {"report": False, "accept": True} | changes)
    return [str(warning.message) for warning in seen if issubclass(warning.category, PrivacyWarning)]


GAUSS = {"mechanism": "gaussian"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"epsilon": 1000.0}, ["epsilon = 1000 is no protection to speak of"]),
        ({"epsilon": 12.0}, ["epsilon = 12 is next to no protection"]),
        ({"epsilon": 10.0}, []),
        ({**GAUSS, "delta": 0.1}, ["delta = 0.1 is not below 1 / records = 0.00219"]),
        ({**GAUSS, "delta": 1 / N}, ["delta = 0.00218818 is not below"]),
        ({**GAUSS, "delta": 1e-5}, []),
        ({"table": columns(n=3)}, ["with 3 records and epsilon = 1 the noise (sd) is about 2.4 times"]),
        ({"epsilon": 0.01}, ["with 457 records and epsilon = 0.01 the noise"]),
        ({}, []),
    ],
)
def test_absurd_budgets_are_said(changes, says):
    doubts = [text for text in said(**changes) if "adds its epsilon" not in text]
    assert len(doubts) == len(says)
    for text, words in zip(doubts, says, strict=True):
        assert words in text


def test_what_is_said_comes_from_public_numbers():
    other = {"bmi": np.full(N, 20.0), "progression": np.full(N, 99.0)}
    for changes in ({"epsilon": 1000.0}, {"epsilon": 0.01}, {**GAUSS, "delta": 0.5}):
        assert said(**changes) == said(other, **changes)
