"""Files that are not comma, point and UTF-8: what they look like is said, with the option, and options read them."""

import gzip
import re
import warnings

import numpy as np
import pandas as pd
import pytest

from dpjax._base.reading import Reading
from dpjax.cli.app import main
from dpjax.errors import InputError
from dpjax.releases.owner import release
from dpjax.releases.table import read_columns
from dpjax.runner.config import load
from dpjax.runner.fingerprint import fingerprint
from dpjax.runner.run import run

OLD = "fa900812a16e203250b8efb4da5304a9c269cd8cb7fb102af74d4bfe7db729be"
NAMES = ("bmi", "größe")
SECRET = "777.25"
PLAIN = f"bmi,größe,note\n20.5,{SECRET},Zoë\n21,1e2,b\n"
SIZE = "größe".encode()
GERMAN = PLAIN.replace(",", ";").replace(".", ",")


def write(tmp_path, content, name="table.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def good(columns):
    assert columns["bmi"].tolist() == [20.5, 21] and columns["größe"].tolist() == [777.25, 100]


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (PLAIN.replace(",", ";"), {"separator": ";"}),
        (PLAIN.replace(",", ";"), {"separator": "semicolon"}),
        (PLAIN.replace(",", "\t"), {"separator": "\t"}),
        (PLAIN.replace(",", "\t"), {"separator": "tab"}),
        (PLAIN.replace(",", "\t"), {"separator": "\\t"}),
        (PLAIN.replace(",", "|"), {"separator": "|"}),
        (PLAIN.replace(",", "  ").replace("\n", " \n"), {"separator": "space"}),
        (GERMAN, {"separator": ";", "decimal": ","}),
        (GERMAN.replace(";", "\t"), {"separator": "tab", "decimal": ","}),
        ("sep=;\n" + GERMAN, {"separator": ";", "decimal": ","}),
        ("sep=,\n" + PLAIN, {}),
        (PLAIN.encode("utf-16"), {"encoding": "utf-16"}),
        (GERMAN.encode("utf-16"), {"encoding": "utf-16", "separator": ";", "decimal": ","}),
        (PLAIN.encode("utf-16-le"), {"encoding": "utf-16-le"}),
        (PLAIN.encode("latin-1"), {"encoding": "latin-1"}),
        (PLAIN.encode("cp1252"), {"encoding": "windows-1252"}),
        (PLAIN.encode("utf-32"), {"encoding": "utf-32"}),
        (gzip.compress(PLAIN.encode(), mtime=0), {}),
        (gzip.compress(GERMAN.encode("latin-1"), mtime=0), {"encoding": "latin-1", "separator": ";", "decimal": ","}),
    ],
)
def test_options_read_the_file(tmp_path, content, options):
    good(read_columns(write(tmp_path, content), NAMES, (), Reading(**options)))
    good(read_columns(write(tmp_path, content, "table.csv.gz"), NAMES, (), Reading(**options)))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (PLAIN.replace(",", ";"), ["separated by semicolons", "--separator ';'", "separator=';'"]),
        (PLAIN.replace(",", "\t"), ["separated by tabs", "--separator 'tab'"]),
        (PLAIN.replace(",", "|"), ["separated by vertical bars", "--separator '|'"]),
        (PLAIN.replace(",", " "), ["separated by blanks", "--separator 'space'"]),
        ("sep=;\n" + PLAIN.replace(",", ";"), ["separated by semicolons"]),
        (GERMAN, ["separated by semicolons", "--decimal ','"]),
        ("größe;bmi\n1,5;2\n".replace("bmi", "age"), ["column 'bmi' is not in the table", "semicolons"]),
        (PLAIN.encode("utf-16"), ["UTF-16", "--encoding utf-16", "encoding='utf-16'"]),
        (PLAIN.encode("utf-16-le"), ["UTF-16", "--encoding utf-16-le"]),
        (PLAIN.encode("utf-16-be"), ["UTF-16", "--encoding utf-16-be"]),
        (PLAIN.encode("utf-32"), ["UTF-32"]),
        (PLAIN.encode("latin-1"), ["column 'größe' is not in the table", "not UTF-8", "--encoding latin-1"]),
        (PLAIN.replace("21,1e2", "21,100\u00a0kg").encode("latin-1").replace(b"gr\xf6\xdfe", "größe".encode()),
         ["column 'größe'", "not UTF-8", "latin-1"]),
        (PLAIN.replace("20.5", '"20,5"'), ["column 'bmi' does not hold numbers only", "--decimal ','"]),
        (PLAIN.replace("20.5", '"1,020.5"'), ["does not hold numbers only", "thousands signs are not read"]),
        (PLAIN.replace("1e2,b", "1,5,b"), ["as many fields as its header", "needs quotes"]),
        (f"20.5,{SECRET},1\n21,1e2,2\n", ["its first line holds numbers only"]),
        (PLAIN.replace("bmi", "BMI"), ["column 'bmi' is not in the table", "capital letters differ"]),
        (b"PK\x03\x04" + PLAIN.encode(), ["spreadsheet", "CSV"]),
        (b"PAR1" + PLAIN.encode(), ["Parquet"]),
        (b"BZh9" + PLAIN.encode(), ["bzip2"]),
        (gzip.compress(PLAIN.encode(), mtime=0)[:-12], ["not a whole gzip file"]),
        (b"\x1f\x8b" + PLAIN.encode(), ["gzip"]),
        (gzip.compress(PLAIN.replace(",", ";").encode(), mtime=0), ["separated by semicolons"]),
        (PLAIN.replace("20.5", "yes"), ["column 'bmi' does not hold numbers only"]),
    ],
)  # fmt: skip
def test_what_the_file_looks_like_is_said(tmp_path, content, says):
    with pytest.raises(InputError) as caught:
        read_columns(write(tmp_path, content), NAMES)
    message = str(caught.value)
    for words in says:
        assert words in message, message
    assert "\n" not in message and caught.value.__cause__ is None and caught.value.__context__ is None
    for private in ("777", "20.5", "20,5", "1e2", "Zo", "note", "kg"):  # values, and names that were not asked for
        assert private not in message.replace(str(tmp_path), "")


@pytest.mark.parametrize(
    ("content", "options", "says"),
    [
        (GERMAN, {"separator": ";"}, "--decimal ','"),
        (GERMAN.replace("20,5", "1.020,5"), {"separator": ";", "decimal": ","}, "points are not read"),
        (GERMAN.replace("20,5", "20.5"), {"separator": ";", "decimal": ","}, "points are not read"),
        (PLAIN, {"separator": ";"}, "separated by commas, not semicolons"),
        (PLAIN, {"encoding": "utf-16"}, "table"),
        (PLAIN.encode("utf-8-sig"), {"encoding": "latin-1"}, "it looks like UTF-8 text"),
        (PLAIN.encode("utf-16"), {"encoding": "latin-1"}, "UTF-16"),
    ],
)
def test_wrong_options_are_said(tmp_path, content, options, says):
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        read_columns(write(tmp_path, content), NAMES, (), Reading(**options))
    assert "777" not in str(caught.value).replace(str(tmp_path), "") and caught.value.__context__ is None


@pytest.mark.parametrize(
    "content",
    [
        "bmi,größe,note\n20.5,777.25,Zo\xeb\n21,100,\xff\xfe\n".encode("latin-1").replace(b"gr\xf6\xdfe", SIZE),
        "bmi,größe,n\xf6te\n20.5,777.25,\n21,100,b\n".encode("latin-1").replace(b"gr\xf6\xdfe", SIZE),
        f"bmi,größe,note\n20.5,777.25,{'x' * 300_000}\n21,100,\n".encode(),
        'bmi,größe,note\n20.5,777.25,6" pipe\n21,100,"a, b\nc"\n'.encode(),
        "bmi,größe,note,note\n20.5,777.25,NA,-200\n21,100,,\n".encode(),
    ],
)  # fmt: skip
def test_columns_that_are_not_used_are_not_judged(tmp_path, content):
    good(read_columns(write(tmp_path, content), NAMES))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"separator": ""}, "separator must be one sign"),
        ({"separator": ";;"}, "separator must be one sign"),
        ({"separator": "a"}, "separator must be one sign"),
        ({"separator": "\n"}, "separator must be one sign"),
        ({"separator": '"'}, "separator must be one sign"),
        ({"separator": 3}, "separator must be one sign"),
        ({"decimal": ","}, "separator and decimal must differ"),
        ({"decimal": ";"}, "decimal must be '.' or ','"),
        ({"encoding": "klingon"}, "encoding must be"),
        ({"encoding": "rot13"}, "encoding must be"),
        ({"encoding": 8}, "encoding must be"),
        ({"missing": "ignore"}, "missing must be 'refuse' or 'impute'"),
        ({"missing": "drop"}, "number of records is public"),
        ({"missing": "impute"}, "impute is missing"),
        ({"impute": {"bmi": 2}}, "only with missing = 'impute'"),
        ({"missing": "impute", "impute": 3}, "impute must map"),
        ({"missing_codes": [None]}, "missing_codes must be"),
        ({"missing_codes": True}, "missing_codes must be"),
        ({"missing_codes": [""]}, "missing_codes must be"),
    ],
)
def test_bad_options(options, says):
    with pytest.raises(InputError, match=re.escape(says)):
        Reading(**options)


def test_options_of_a_file_have_no_place_beside_a_table_in_memory():
    with pytest.raises(InputError, match="about a file"):
        read_columns({"bmi": [1], "größe": [2]}, NAMES, (), Reading(separator=";"))


# --- missing values ---

IMPUTE = {"missing": "impute", "impute": {"bmi": 25, "größe": 50.0}}


@pytest.mark.parametrize("text", ["", "NA", "n/a", "NaN", "null", "None", "?", ".", "-", " ", "<NA>", "-200", "-200.0"])
def test_missing_numbers_are_refused_or_imputed(tmp_path, text):
    path = write(tmp_path, PLAIN.replace("20.5", text))
    codes = {"missing_codes": [-200]}
    with pytest.raises(InputError, match=r"column 'bmi' has missing values") as caught:
        read_columns(path, NAMES, (), Reading(**codes))
    assert not re.search(r"\d", str(caught.value))
    columns = read_columns(path, NAMES, (), Reading(**codes, **IMPUTE))
    assert columns["bmi"].tolist() == [25, 21] and columns["größe"].tolist() == [777.25, 100]


@pytest.mark.parametrize("codes", [["-99"], -99, [-99.0, "refused"], {"bmi": [-99]}, {"bmi": "-99", "größe": [5]}])
def test_codes_that_stand_for_missing_values(tmp_path, codes):
    reading = Reading(missing_codes=codes, **IMPUTE)
    path = write(tmp_path, PLAIN.replace("20.5", "-99"))
    in_memory = {"bmi": [-99, 21], "größe": np.array([777.25, 100])}
    for table in (path, in_memory, pd.DataFrame(in_memory)):
        columns = read_columns(table, NAMES, (), reading)
        assert columns["bmi"].tolist() == [25, 21] and columns["größe"].tolist() == [777.25, 100]
    other = read_columns({"bmi": [1], "größe": [-99]}, NAMES, (), reading)
    assert other["größe"].tolist() == ([-99] if isinstance(codes, dict) else [50])


@pytest.mark.parametrize(
    "bmi",
    [
        [None, 21], [float("nan"), 21], pd.array([None, 21], "Int64"), np.ma.array([1, 21], mask=[1, 0]),
        pd.Series([np.nan, 21]), np.array([pd.NA, 21], object),
    ],
)  # fmt: skip
def test_missing_in_memory(bmi):
    table = {"bmi": bmi, "größe": [1, 2]}
    with pytest.raises(InputError, match="column 'bmi' has missing values"):
        read_columns(table, NAMES)
    assert read_columns(table, NAMES, (), Reading(**IMPUTE))["bmi"].tolist() == [25, 21]


def test_missing_texts(tmp_path):
    names = texts = ("colour",)
    reading = Reading(missing="impute", impute={"colour": "red"}, missing_codes=["unknown"])
    for table in (write(tmp_path, 'colour\nblue\nunknown\n ""\n'), {"colour": ["blue", "unknown", None]}):
        assert read_columns(table, names, texts, reading)["colour"].tolist() == ["blue", "red", "red"]
        with pytest.raises(InputError, match="column 'colour' has missing values"):
            read_columns(table, names, texts, Reading(missing_codes=["unknown"]))
    path = write(tmp_path, "colour,x\ngr\xfcn,1\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"column 'colour' is not UTF-8 text.*latin-1"):
        read_columns(path, names, texts)
    assert read_columns(path, names, texts, Reading(encoding="latin-1"))["colour"].tolist() == ["grün"]


BOUNDS = {"x": (0.0, 10.0), "y": (-5.0, 5.0)}


def make(table, **changes):
    given = {"target": "y", "features": ["x"], "bounds": BOUNDS, "epsilon": 1.0, "accept": True, "report": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return release(table, **given | changes)


@pytest.fixture
def exact(monkeypatch):
    """The exact sums and their sensitivity in place of noise."""
    seen = []

    def capture(values, sensitivity, epsilon):
        seen.append((values, sensitivity))
        return values, sensitivity / epsilon, epsilon

    monkeypatch.setattr("dpjax.mechanisms.laplace.add_laplace_noise", capture)
    return seen


def test_imputing_keeps_sensitivity_and_is_part_of_the_release(tmp_path, exact):
    """Whatever is missing in whose record: the sums move by no more than the sensitivity that is used."""
    rng = np.random.default_rng(0)
    given = {"missing": "impute", "impute": {"x": 4.0, "y": 0.0}, "missing_codes": [-200]}
    base = {"x": rng.uniform(0, 10, 8), "y": rng.uniform(-5, 5, 8)}
    worst = 0.0
    corners = [(a, b) for a in (0.0, 10.0, np.nan, -200.0) for b in (-5.0, 5.0, np.nan, 0.0)]
    sums = []
    for a, b in corners:
        table = {"x": np.r_[base["x"], a], "y": np.r_[base["y"], b]}
        made = make(table, **given)
        sums.append(made.z)
        assert made.imputed == {"x": 4.0, "y": 0.0} and made.records == 9
    for first in sums:
        for second in sums:
            worst = max(worst, np.abs(first - second).sum())
    assert worst <= exact[0][1] and exact[0][1] == pytest.approx(16 / 3)
    # as if the constants had stood in the table; what is missing leaves no other trace
    plain = make({"x": np.r_[base["x"], 4.0], "y": np.r_[base["y"], 0.0]})
    hidden = make({"x": np.r_[base["x"], -200], "y": np.r_[base["y"], np.nan]}, **given)
    assert hidden.z.tolist() == plain.z.tolist() and hidden.to_dict() == {**plain.to_dict(), "imputed": hidden.imputed}
    hidden.save(tmp_path / "release.json")
    assert type(hidden).load(tmp_path / "release.json") == hidden and plain.imputed is None


@pytest.mark.parametrize(
    ("impute", "changes", "says"),
    [
        ({"x": 11}, {}, "impute of 'x' must lie within its bounds [0, 10], got 11"),
        ({"z": 1}, {}, "impute is given for 'z', which the model does not use"),
        ({"x": "a"}, {}, "impute of 'x' must be a finite number"),
        ({"x": float("nan")}, {}, "impute of 'x' must be a finite number"),
        ({"x": 5}, {"intercept": False, "norms": {"features": 4, "target": 1}, "bounds": None}, "bounds [-4, 4]"),
        ({"y": 2}, {"intercept": False, "norms": {"features": 4, "target": 1}, "bounds": None}, "bounds [-1, 1]"),
        ({"y": 6}, {"model": "exponential", "bounds": (0, 5), "features": None}, "bounds [0, 5]"),
        ({"y": 1.5}, {"model": "poisson", "bounds": (0, 5), "features": None}, "whole numbers"),
        ({"y": 2}, {"model": "binomial", "bounds": None, "features": None}, "values from 0 to 1 only"),
        ({"y": "x"}, {"model": "binomial", "bounds": None, "features": None, "labels": ["n", "y"]}, "of the labels"),
        ({"y": 3}, {"model": "multinomial", "bounds": None, "features": None, "categories": 3}, "whole numbers from 0"),
    ],
)  # fmt: skip
def test_constants_outside_of_the_bounds_are_refused(impute, changes, says, exact):
    with pytest.raises(InputError, match=re.escape(says)):
        make({"x": [1.0, None], "y": [1.0, None]}, missing="impute", impute=impute, **changes)
    assert not exact


# --- labels ---


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        (["no", "yes", " yes ", "yes"], ["no", "yes"]),
        ([False, True, True, True], None),
        (np.array([False, True, True, True]), None),
        (pd.Series([False, True, True, True]), None),
        (["True", "False", "False", "False"], ["True", "False"]),
        ([True, False, False, False], ["True", "False"]),
        (["well, no", "yes", "yes", "yes"], ["well, no", "yes"]),
        ([0, 1, 1, 1], None),
    ],
)
def test_binomial_with_labels(column, labels, exact, tmp_path):
    made = make({"y": column}, model="binomial", features=None, bounds=None, labels=labels)
    assert made.z.tolist() == [3] and exact[0][1] == 1.0  # a multinomial has sensitivity 2
    made.save(tmp_path / "release.json")
    again = type(made).load(tmp_path / "release.json")
    assert again == made and again.statistic.labels == (None if labels is None else tuple(labels))
    if labels:
        assert labels[1] in made.statistic.title and labels[1] in made.statistic.describe("p")


@pytest.mark.parametrize("text", ["True", "TRUE", "true"])
def test_true_and_false_in_a_file(tmp_path, text, exact):
    no = {"True": "False", "TRUE": "FALSE", "true": "false"}[text]
    path = write(tmp_path, f"y\n{text}\n{no}\n{text}\n")
    assert make(path, model="binomial", features=None, bounds=None).z.tolist() == [2]
    assert make(path, model="binomial", features=None, bounds=None, labels=[text, no]).z.tolist() == [1]
    with pytest.raises(InputError, match="numbers only"):
        make(path, model="poisson", features=None, bounds=(0, 5))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "column 'y' does not hold numbers only: for text state its labels.*--labels no,yes"),
        ({"labels": ["no", "yep"]}, "column 'y' holds something else than the labels.*--missing-code"),
        ({"labels": ["no"]}, "must be two"),
        ({"labels": ["no", "yes", "x"]}, "must be two"),
        ({"labels": ["no", "no"]}, "differ"),
        ({"labels": "no,yes"}, "list of texts"),
        ({"model": "poisson", "bounds": (0, 2), "labels": ["no", "yes"]}, "labels has no place"),
    ],
)
def test_binomial_labels_refuse(changes, says, exact):
    given = {"model": "binomial", "features": None, "bounds": None} | changes
    with pytest.raises(InputError, match=says) as caught:
        make({"y": ["no", "yes", "maybe777"]}, **given)
    assert "777" not in str(caught.value) and not exact


def test_labels_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, 'y;z\n"a, b";no\nc;yes\n"a, b";yes\n')
    common = ["release", "table.csv", "--separator", ";", "--epsilon", "5", "--force", "--output"]
    for labels in (["--labels", '"a, b",c'], ["--labels", "a, b", "--labels", "c"]):
        assert main([*common, "m.json", "--model", "multinomial", "--target", "y", *labels]) == 0
        assert "categories 'a, b', c" in capsys.readouterr().out
    assert main([*common, "b.json", "--model", "binomial", "--target", "z", "--labels", "no,yes"]) == 0
    assert "a success is yes" in capsys.readouterr().out
    assert main([*common, "b.json", "--model", "multinomial", "--target", "y", "--labels", '"a']) == 2
    assert main(["check", "b.json"]) == 0 and "a success is yes" in capsys.readouterr().out


# --- the command line and `run` ---


def test_reading_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{20 + i / 10:.1f};{100 + i};Zoë\n".replace(".", ",") for i in range(60))
    write(tmp_path, f"bmi;größe;name\nNA;-200;x\n{rows}".encode("latin-1"))
    words = ["release", "table.csv", "--target", "größe", "--features", "bmi", "--bounds", "bmi=15:45", "--bounds",
             "größe=0:350", "--epsilon", "1", "--output", "release.json"]  # fmt: skip
    more = ["--separator", ";", "--decimal", ",", "--encoding", "latin-1", "--missing", "impute", "--impute", "bmi=25"]
    assert main(words) == 2 and "--separator ';'" in capsys.readouterr().err
    assert main([*words, *more[:4]]) == 2 and "latin-1" in capsys.readouterr().err
    assert main([*words, *more[:6]]) == 2 and "'bmi' has missing values: state a constant" in capsys.readouterr().err
    assert main([*words, *more, "--missing-code", "größe=-200"]) == 2  # no constant for it
    assert "column 'größe' has missing values" in capsys.readouterr().err
    assert main([*words, *more, "--missing-code", "-200", "--impute", "größe=150"]) == 0
    out, err = capsys.readouterr()
    assert "counted as bmi = 25, größe = 150" in out and "1 (1.6%) missing, counted as 25" in err
    assert main(["check", "release.json"]) == 0 and "missing values" in capsys.readouterr().out
    assert main([*words, "--force", "--missing", "drop"]) == 2
    assert "number of records is public" in capsys.readouterr().err
    assert main([*words, "--force", "--missing-code", "a=1", "--missing-code", "2"]) == 2
    assert "throughout" in capsys.readouterr().err


def test_reading_in_a_config(tmp_path, capsys):
    rows = "".join(f"{i / 10:.1f};{i % 2}\n".replace(".", ",") for i in range(60))
    write(tmp_path, gzip.compress(f"x;größe\n-9;1\n;0\n{rows}".encode("cp1252"), mtime=0), "table.csv.gz")
    data = {"csv": str(tmp_path / "table.csv.gz"), "separator": ";", "decimal": ",", "encoding": "cp1252",
            "missing": "impute", "impute": {"x": 2}, "missing_codes": [-9]}  # fmt: skip
    section = {"model": "exponential", "target": "x", "bounds": [0, 6], "epsilon": 1.0}
    config = {"name": "other", "data": data, "release": section}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = run(config).release
    assert made.records == 62 and made.imputed == {"x": 2.0}
    assert "2 (3.2%) missing, counted as 2" in capsys.readouterr().err
    for change, says in (
        ({"separator": ",", "decimal": None}, "separator ';'"),
        ({"decimal": "."}, "--decimal ','"),
        ({"separator": "xx"}, "data.separator must be"),
        ({"missing": "drop"}, "number of records is public"),
        ({"impute": {"x": 7}}, "data.impute of 'x' must lie within its bounds"),
        ({"missing": None, "impute": None}, "column 'x' has missing values"),
        ({"impute": {"x": [1]}}, "data.impute"),
    ):
        with pytest.raises(InputError, match=re.escape(says)):
            run({**config, "data": data | change})


def test_keys_that_came_later_leave_folders_known(tmp_path):
    """The hash of a config that does not use them is the one of the version before."""
    config = {
        "name": "kept",
        "data": {"csv": "a.csv"},
        "release": {"target": "y", "features": ["x"], "bounds": {"x": [0, 1], "y": [0, 1]}, "epsilon": 1.0},
    }
    assert fingerprint(load(config)[0], tmp_path).release == OLD
    changed = {**config, "data": {"csv": "a.csv", "separator": ";"}}
    assert fingerprint(load(changed)[0], tmp_path).release != OLD
