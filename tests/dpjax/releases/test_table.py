"""Reading tables: every fault names the column and nothing private."""

import collections
import gzip
import re
import warnings

import numpy as np
import pandas as pd
import pytest

from dpjax._base.reading import Reading
from dpjax.errors import InputError, PrivacyWarning
from dpjax.releases.owner import release
from dpjax.releases.table import read_columns

NAMES = ("bmi", "progression")
GOOD = "bmi,progression,note\n20.5,100,a\n21,1e2,b\n"


def csv(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "patients.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return path


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "\ufeff" + GOOD,
        GOOD.replace("\n", "\r\n"),
        "note,progression,bmi\nx,100,20.5\n\n,100, 21 \n",
        '"bmi", progression ,"no,te"\n"20.5",100,"a\nb"\n21,1.0E+2,\n',
        "bmi,progression,note,note,\n20.5,100,,,\n21,100,,,",
    ],
)
def test_csv(tmp_path, text):
    columns = read_columns(csv(tmp_path, text), NAMES)
    assert columns["bmi"].tolist() == [20.5, 21] and columns["progression"].tolist() == [100, 100]
    assert read_columns(str(tmp_path / "patients.csv"), NAMES)["bmi"].dtype == np.float64


SECRET = "777"  # a private value that no message may hold

BAD_CSV = [
    (f"bmi,age\n{SECRET},1\n", "column 'progression' is not in the table"),
    (f"bmi,progression,bmi\n{SECRET},1,2\n", "column 'bmi' is in the table more than once"),
    (f"bmi,progression\n{SECRET},1\nabc,2\n", "column 'bmi' does not hold numbers only"),
    (f"bmi,progression\n1,2\n{SECRET}x,2\n", "column 'bmi' does not hold numbers only"),
    (f"bmi,progression\n{SECRET},1_0\n", "column 'progression' does not hold numbers only"),
    (f"bmi,progression\n{SECRET},\n", "column 'progression' has missing values"),
    (f"bmi,progression\n{SECRET},NaN\n", "column 'progression' has missing values"),
    (f"bmi,progression\n{SECRET},-inf\n", "column 'progression' has values that are missing or not finite"),
    (f"bmi,progression\n{SECRET},1e999\n", "column 'progression' has values that are missing or not finite"),
    (f"bmi,progression\n{SECRET},0x10\n", "column 'progression' does not hold numbers only"),
    (f"bmi,progression\n{SECRET}\n", "as many fields as its header"),
    (f"bmi,progression\n{SECRET},2,3\n", "as many fields as its header"),
    (f"bmi;progression\n{SECRET};2\n", "column 'bmi' is not in the table"),
    ("bmi,progression\n", "the table has no records"),
    ("bmi,progression", "the table has no records"),
    ("", "no header line"),
    ("\n\n", "no header line"),
    (f"{SECRET},2\n3,4\n", "column 'bmi' is not in the table"),
]


def no_context(error):
    return error.__cause__ is None and error.__context__ is None


@pytest.mark.parametrize(("text", "message"), BAD_CSV)
def test_bad_csv(tmp_path, text, message):
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_columns(csv(tmp_path, text), NAMES)
    # no value, no row number, no count: not a digit at all; and no other exception with a value travels along
    assert not re.search(r"\d", str(caught.value)) and "\n" not in str(caught.value)
    assert no_context(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"bmi,progression\n\xff\xfe777,2\n", "not UTF-8"),
        (b'bmi,progression\n"777,2\n', "not well-formed CSV"),
        (b'bmi,progression\n"777"x,2\n', "not well-formed CSV"),
        (b"bmi,progression\n777" + b"7" * 200_000 + b",2\n", "missing or not finite"),
    ],
)
def test_unreadable_csv(tmp_path, content, message):
    with pytest.raises(InputError, match=message) as caught:
        read_columns(csv(tmp_path, content), NAMES)
    assert SECRET not in str(caught.value) and no_context(caught.value)


ONE = ("bmi",)


@pytest.mark.parametrize(
    ("text", "names", "options"),
    [
        (f"bmi\n{SECRET}\n\n21\n", ONE, {}),
        (f"bmi\n\n{SECRET}\n", ONE, {}),
        (f"bmi\r\n{SECRET}\r\n\r\n21\r\n", ONE, {}),
        (f"bmi\r{SECRET}\r\r21\r", ONE, {}),
        (f"sep=;\nbmi\n{SECRET}\n\n21\n", ONE, {"separator": ";"}),
        (f"bmi\n{SECRET}\n  \n21\n", ONE, {"separator": "tab"}),
        # separated by blanks, a record of missing values looks like an empty line
        (f"bmi progression\n{SECRET} 1\n \n21 2\n", NAMES, {"separator": " "}),
        (f"bmi progression\n{SECRET} 1\n\n21 2\n", ONE, {"separator": " "}),
    ],
)
def test_empty_lines_that_may_be_records_are_refused(tmp_path, text, names, options):
    """They were dropped, and the exact number of the others was published."""
    with pytest.raises(InputError, match="empty line") as caught:
        read_columns(csv(tmp_path, text), names, (), Reading(**options))
    assert SECRET not in str(caught.value) and no_context(caught.value)


@pytest.mark.parametrize(
    "text", ["bmi\n20.5\n21\n\n", "bmi\n20.5\n21\n\n\r\n\n", "\n\nbmi\n20.5\n21", "bmi,z\n20.5,\n\n21,\n"]
)
def test_empty_lines_that_are_no_records_are_passed_over(tmp_path, text):
    assert read_columns(csv(tmp_path, text), ONE)["bmi"].tolist() == [20.5, 21]
    packed = tmp_path / "packed.csv.gz"
    packed.write_bytes(gzip.compress(text.encode(), mtime=0))
    assert read_columns(packed, ONE)["bmi"].tolist() == [20.5, 21]


@pytest.mark.parametrize("cell", ['""', " ", "NA", "nan"])
def test_cells_that_say_that_a_value_is_missing_are_records(tmp_path, cell):
    text = f"bmi\n20.5\n{cell}\n21\n"
    reading = Reading(missing="impute", impute={"bmi": 1.0})
    assert read_columns(csv(tmp_path, text), ONE, (), reading)["bmi"].tolist() == [20.5, 1, 21]
    with pytest.raises(InputError, match="missing values"):
        read_columns(csv(tmp_path, text), ONE)


def test_a_missing_value_does_not_change_the_public_number_of_records(tmp_path):
    """The number of records of a release is that of the table, or the table is refused."""
    options = {"target": "bmi", "model": "exponential", "bounds": (0, 50), "epsilon": 1.0, "accept": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        for cells in (["20.5", "", "21"], ["20.5", "22", "21"]):
            path = csv(tmp_path, "\n".join(["bmi", *cells, ""]))
            try:
                assert release(path, **options).records == 3
            except InputError as error:
                assert "" in cells and "empty line" in str(error)
            else:
                assert "" not in cells


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_columns(tmp_path / "none.csv", NAMES)
    with pytest.raises(InputError, match="cannot read the table"):
        read_columns(tmp_path, NAMES)


Nt = collections.namedtuple("Nt", "bmi progression")


@pytest.mark.parametrize(
    "table",
    [
        {"bmi": [1, 2], "progression": (3.0, 4), "note": ["a"]},
        {"bmi": np.array([1, 2], np.float32), "progression": np.array([3, 4], np.uint8)},
        {"bmi": np.array([1, 2.0], object), "progression": np.ma.array([3, 4])},
        pd.DataFrame({"bmi": [1, 2], "note": ["a", None], "progression": [3.0, 4.0]}),
        pd.DataFrame({"bmi": pd.array([1, 2], "Int64"), "progression": [3, 4]}),
        np.array([(1, 3.0), (2, 4.0)], dtype=[("bmi", int), ("progression", float)]),
    ],
)
def test_tables_in_memory(table):
    columns = read_columns(table, NAMES)
    assert columns["bmi"].tolist() == [1, 2] and columns["progression"].tolist() == [3, 4]
    assert all(column.dtype == np.float64 for column in columns.values())


NOT_NUMBERS = "column 'bmi' does not hold numbers only"
IS_MISSING = "column 'bmi' has missing values"
NOT_FINITE = "column 'bmi' has values that are missing or not finite"


@pytest.mark.parametrize(
    ("bmi", "message"),
    [
        (["777", "x"], NOT_NUMBERS),
        ([777, "x"], NOT_NUMBERS),
        ([777, 1j], NOT_NUMBERS),
        ([True, False], NOT_NUMBERS),
        ([777, [1, 2]], NOT_NUMBERS),
        ([[777, 1], [2, 3]], NOT_NUMBERS),
        (777, NOT_NUMBERS),
        (np.array(["2020-01-01", "2021-01-01"], "datetime64[D]"), NOT_NUMBERS),
        ([777, None], IS_MISSING),
        ([777, float("nan")], IS_MISSING),
        ([777, 10**400], NOT_FINITE),
        (pd.array([777, None], "Int64"), IS_MISSING),
        (pd.Categorical(["777", "x"]), NOT_NUMBERS),
        (np.ma.array([777, 1], mask=[0, 1]), "column 'bmi' has missing values"),
        ([777], "column 'progression' and column 'bmi' differ in length"),
    ],
)
def test_bad_columns_in_memory(bmi, message):
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_columns({"bmi": bmi, "progression": [1, 2]}, NAMES)
    assert not re.search(r"\d", str(caught.value)) and no_context(caught.value)


TEXT = "bmi,colour\n20,red\n21, dark blue \n"
NO_VALUE = "column 'colour' has missing values"
NO_TEXT = "column 'colour' does not hold text only"


def test_text_columns(tmp_path):
    names, texts = ("bmi", "colour"), ("colour",)
    column = ["red", " dark blue "]
    for table in (
        csv(tmp_path, TEXT),
        {"bmi": [20, 21], "colour": column},
        {"bmi": [20, 21], "colour": np.array(column)},
        pd.DataFrame({"bmi": [20, 21], "colour": column}),
        pd.DataFrame({"bmi": [20, 21], "colour": pd.Categorical(column)}),
        np.array([(20, "red"), (21, " dark blue")], dtype=[("bmi", int), ("colour", "U10")]),
    ):
        columns = read_columns(table, names, texts)
        assert columns["colour"].tolist() == ["red", "dark blue"] and columns["bmi"].tolist() == [20, 21]
    with pytest.raises(InputError, match="'colour' does not hold numbers only"):
        read_columns(csv(tmp_path, TEXT), names)


@pytest.mark.parametrize(
    ("colour", "message"),
    [
        (["777", None], NO_VALUE),
        (["777", float("nan")], NO_VALUE),
        (["777", 3], NO_TEXT),
        ([777, 3], NO_TEXT),
        ([b"777", b"a"], NO_TEXT),
        ("777", NO_TEXT),
        (777, NO_TEXT),
        ([["777"], ["a"]], NO_TEXT),
        (pd.Categorical(["777", None]), NO_VALUE),
        (np.ma.array(["777", "a"], mask=[0, 1]), "column 'colour' has missing values"),
        (["777"], "differ in length"),
        ([], "differ in length"),
    ],
)
def test_bad_text_columns(colour, message):
    with pytest.raises(InputError, match=message) as caught:
        read_columns({"bmi": [1, 2], "colour": colour}, ("bmi", "colour"), ("colour",))
    assert not re.search(r"\d", str(caught.value)) and no_context(caught.value)


def test_other_faults_in_memory():
    twice = pd.DataFrame([[1, 2, 3]], columns=["bmi", "progression", "bmi"])
    for table, message in [
        (twice, "'bmi' is in the table more than once"),
        (twice[["bmi"]], "'bmi' is in the table more than once"),
        (pd.DataFrame({"bmi": [1]}), "'progression' is not in the table"),
        ({"bmi": [], "progression": []}, "no records"),
        (pd.DataFrame({"bmi": [], "progression": []}, dtype=float), "no records"),
        (np.ones((3, 2)), "named columns"),
        ([1, 2], "table must be"),
        (None, "table must be"),
        (3, "table must be"),
    ]:
        with pytest.raises(InputError, match=message) as caught:
            read_columns(table, NAMES)
        assert no_context(caught.value)
