"""Reading the columns of a private table. No message here holds a value, a row number or a count."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpjax._base.reading import Reading
from dpjax.errors import InputError
from dpjax.releases.csv_file import encoding_hint, notation_hint, read_cells, undecodable

#: Texts that stand for a missing number, in small letters; of a column of text only the first does.
MISSING = ("", "na", "n/a", "#n/a", "nan", "<na>", "nat", "null", "none", "nil", "missing", "?", ".", "-", "--")
ADVICE = (
    ": state a constant for them with --missing impute --impute NAME=VALUE (missing='impute', impute={...}), or"
    " complete the table"
)
_BOOLEANS = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True)
class Wanted:
    """Columns of a table that are read; all others are not looked at.

    names: all of them; texts: those among them that hold text; booleans: those whose True and False count as 1 and 0.
    """

    names: Sequence[str]
    texts: Sequence[str] = ()
    booleans: Sequence[str] = ()

    @classmethod
    def of(cls, statistic: Any) -> Wanted:
        """The columns of a statistic."""
        return cls(statistic.variables, statistic.texts, statistic.booleans)


def read_columns(
    table: Any,
    names: Sequence[str] | Wanted,
    texts: Sequence[str] = (),
    reading: Reading | Any = None,
) -> dict[str, np.ndarray]:
    """The named columns as vectors of one length, of float64 or of text; other columns are not looked at.

    Args:
        table: path of a CSV file with one header line (it may be compressed with gzip), a mapping of column names to
            vectors, a NumPy structured array, or a data frame (anything with `columns` and `[name]`, such as pandas
            or polars).
        names: the columns wanted.
        texts: those among them that hold text.
        reading: what is said about the table; None: `Reading()`.

    Returns:
        Each column, [n], n at least 1, every value finite; texts are stripped of blanks around them. Blank lines
        of a CSV file are skipped, but refused between the records where one may be a record of missing values: in a
        file of one column, or separated by blanks.

    Raises:
        InputError: a file that cannot be read, a column that is missing or named twice, a value that is missing (and
            not imputed), not finite, not a number or (of a text column) not text, columns of unequal length, no
            records. The message names the column only.
    """
    wanted = names if isinstance(names, Wanted) else Wanted(names, texts)
    reading = Reading() if reading is None else reading
    return completed(raw_columns(table, wanted, reading), reading, "")


def raw_columns(table: Any, wanted: Wanted, reading: Reading) -> dict[str, np.ndarray]:
    """As `read_columns`, with missing values as they are: NaN, or None in columns of text (which are of objects)."""
    if isinstance(table, str | os.PathLike):
        cells = read_cells(table, wanted.names, reading)
        columns = {name: _parsed(values, name, wanted, reading) for name, values in cells.items()}
    else:
        columns = _from_memory(table, wanted, reading)
    first = wanted.names[0]
    for name in wanted.names:
        if len(columns[name]) != len(columns[first]):
            raise InputError(f"column {name!r} and column {first!r} differ in length")
    if len(columns[first]) == 0:
        raise InputError("the table has no records")
    return columns


def is_missing(column: np.ndarray) -> np.ndarray:
    """Where a column of `raw_columns` has no value [n]."""
    if column.dtype == object:
        return np.array([value is None for value in column], dtype=bool)
    return np.isnan(column)


def completed(columns: Mapping[str, np.ndarray], reading: Reading, advice: str = ADVICE) -> dict[str, np.ndarray]:
    """Columns of `raw_columns` with the constants of `reading.impute` in place of what is missing.

    Args:
        columns: as they were read.
        reading: what is said about the table.
        advice: what the error says besides; the default is that of a release.

    Raises:
        InputError: a column has missing values and no constant.
    """
    found = {}
    for name, column in columns.items():
        missing, constant = is_missing(column), (reading.impute or {}).get(name)
        if missing.any() and constant is None:
            raise InputError(f"column {name!r} has missing values{advice}")
        if column.dtype == object:
            found[name] = np.array([constant if value is None else value for value in column], dtype=str)
        else:
            found[name] = np.where(missing, np.nan if constant is None else float(constant), column)
    return found


# ---- in memory -----------------------------------------------------------------------------------------------
def _from_memory(table: Any, wanted: Wanted, reading: Reading) -> dict[str, np.ndarray]:
    if isinstance(table, np.ndarray):
        if not table.dtype.names:
            raise InputError("table: an array needs named columns (a structured array), or pass a mapping of columns")
        header = list(table.dtype.names)
    elif isinstance(table, Mapping):
        header = list(table)
    elif hasattr(table, "columns") and hasattr(table, "__getitem__"):
        header = list(table.columns)
    else:
        raise InputError(f"table must be a CSV path, a mapping of columns or a data frame, got {type(table).__name__}")
    if reading.of_file:
        raise InputError("separator, decimal and encoding are about a file, and the table is none")
    for name in wanted.names:
        times = sum(1 for column in header if isinstance(column, str) and column == name)
        if times == 0:
            raise InputError(f"column {name!r} is not in the table")
        if times > 1:
            raise InputError(f"column {name!r} is in the table more than once")
    return {name: _in_memory(table[name], name, wanted, reading) for name in wanted.names}


def _in_memory(values: Any, name: str, wanted: Wanted, reading: Reading) -> np.ndarray:
    """One column.

    Errors are raised outside the `except` blocks: an exception of NumPy or Python that holds a private value
    must not travel along as the context of ours.
    """
    masked = isinstance(values, np.ma.MaskedArray)
    mask = np.ma.getmaskarray(values) if masked else None
    try:
        array = np.asarray(values, dtype=object if name in wanted.texts else None)
    except Exception:
        array = np.empty((), dtype=object)
    if array.ndim != 1:
        raise InputError(f"column {name!r} does not hold {'text' if name in wanted.texts else 'numbers'} only")
    if mask is not None and mask.any():
        array = array.astype(object)
        array[mask] = None
    column = _texts(array, name) if name in wanted.texts else _numbers(array, name, name in wanted.booleans)
    return _without_codes(column, reading.codes(name))


def _is_none(value: Any) -> bool:
    missing = value is None or type(value).__name__ in ("NAType", "NaTType")
    return missing or (isinstance(value, float | np.floating) and bool(np.isnan(value)))


def _texts(array: np.ndarray, name: str) -> np.ndarray:
    found = np.empty(len(array), dtype=object)
    for i, value in enumerate(array):
        if isinstance(value, str):
            found[i] = value.strip() or None
        elif isinstance(value, bool | np.bool_):
            found[i] = str(bool(value))
        elif not _is_none(value):
            raise InputError(f"column {name!r} does not hold text only")
    return found


def _numbers(array: np.ndarray, name: str, boolean: bool) -> np.ndarray:
    """float64 [n], missing values as NaN."""
    if array.dtype.kind == "b" and boolean:
        array = array.astype(np.float64)
    if array.dtype == object:
        array = _from_objects(array, boolean)
    if array.dtype.kind not in "iuf":
        raise InputError(f"column {name!r} does not hold numbers only{_of_labels(boolean)}")
    with np.errstate(all="ignore"):
        array = array.astype(np.float64)
    if np.isinf(array).any():
        raise InputError(f"column {name!r} has values that are missing or not finite")
    return array


def _from_objects(array: np.ndarray, boolean: bool) -> np.ndarray:
    """Python numbers in an object array as float64, missing values as NaN; unchanged if it holds anything
    else."""
    numbers = np.empty(len(array))
    for i, value in enumerate(array):
        if _is_none(value):
            numbers[i] = np.nan
        elif isinstance(value, bool | np.bool_) and boolean:
            numbers[i] = float(value)
        elif isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
            try:
                numbers[i] = float(value)
            except OverflowError:
                numbers[i] = np.inf
        else:
            return array
    return numbers


def _of_labels(boolean: bool) -> str:
    return ": for text state its labels, the second is a success (--labels no,yes)" if boolean else ""


# ---- of a file -----------------------------------------------------------------------------------------------
def _parsed(cells: list[str], name: str, wanted: Wanted, reading: Reading) -> np.ndarray:
    if name in wanted.texts:
        if undecodable(cells):
            raise InputError(f"column {name!r} {encoding_hint(reading)}")
        column = np.array([cell.strip() or None for cell in cells], dtype=object)
        return _without_codes(column, reading.codes(name))
    return _without_codes(_parsed_numbers(cells, name, name in wanted.booleans, reading), reading.codes(name))


def _parsed_numbers(cells: list[str], name: str, boolean: bool, reading: Reading) -> np.ndarray:
    numbers, unread = np.empty(len(cells)), []
    known = dict.fromkeys(MISSING, np.nan) | {code.casefold(): np.nan for code in reading.codes(name)}
    known |= _BOOLEANS if boolean else {}
    point = reading.decimal == "."
    for i, cell in enumerate(cells):
        try:
            # Python reads 1_000 as a number; in a table it is more likely a slip
            if "_" not in cell and (point or "." not in cell):
                numbers[i] = float(cell if point else cell.replace(",", ".", 1))
                continue
        except ValueError:
            pass
        numbers[i] = known.get(cell.strip().casefold(), np.inf)
        if np.isinf(numbers[i]):
            unread.append(cell)
    if unread:
        if undecodable(unread):
            raise InputError(f"column {name!r} {encoding_hint(reading)}")
        hint = notation_hint(unread, reading) or _of_labels(boolean)
        raise InputError(f"column {name!r} does not hold numbers only{hint}")
    if np.isinf(numbers).any():
        raise InputError(f"column {name!r} has values that are missing or not finite")
    return numbers


def _without_codes(column: np.ndarray, codes: Sequence[str]) -> np.ndarray:
    """The column with a missing value wherever a code stands for one."""
    if not codes:
        return column
    if column.dtype == object:
        return np.array([None if value in codes else value for value in column], dtype=object)
    column = column.copy()
    for code in codes:
        try:
            column[column == float(code)] = np.nan
        except ValueError:
            pass  # a text, which no number equals
    return column
