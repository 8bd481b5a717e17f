"""Reading the columns of a private table. No message here holds a value, a row number or a count."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

import numpy as np

from dpjax.errors import InputError


def read_columns(table: Any, names: Sequence[str], texts: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """The named columns as vectors of one length, of float64 or of text; other columns are not looked at.

    Args:
        table: path of a CSV file (UTF-8, comma, one header line), a mapping of column names to vectors, a
            NumPy structured array, or a data frame (anything with `columns` and `[name]`, such as pandas or
            polars).
        names: the columns wanted.
        texts: those among them that hold text.

    Returns:
        Each column, [n], n at least 1, every value finite; texts are stripped of blanks around them. Blank lines
        of a CSV file are skipped.

    Raises:
        InputError: a file that cannot be read, a column that is missing or named twice, a value that is missing,
            not finite, not a number or (of a text column) not text, columns of unequal length, no records. The
            message names the column only.
    """
    if isinstance(table, str | os.PathLike):
        columns = _read_csv(table, names, texts)
    elif isinstance(table, np.ndarray):
        if not table.dtype.names:
            raise InputError("table: an array needs named columns (a structured array), or pass a mapping of columns")
        columns = _from_memory(table, table.dtype.names, names, texts)
    elif isinstance(table, Mapping):
        columns = _from_memory(table, list(table), names, texts)
    elif hasattr(table, "columns") and hasattr(table, "__getitem__"):
        columns = _from_memory(table, list(table.columns), names, texts)
    else:
        raise InputError(f"table must be a CSV path, a mapping of columns or a data frame, got {type(table).__name__}")
    first = names[0]
    for name in names:
        if len(columns[name]) != len(columns[first]):
            raise InputError(f"column {name!r} and column {first!r} differ in length")
    if len(columns[first]) == 0:
        raise InputError("the table has no records")
    return columns


def _from_memory(
    table: Any, header: Sequence[Any], names: Sequence[str], texts: Sequence[str]
) -> dict[str, np.ndarray]:
    return {name: (_text_vector if name in texts else _vector)(table[name], name) for name in _present(names, header)}


def _present(names: Sequence[str], header: Sequence[Any]) -> Sequence[str]:
    for name in names:
        times = sum(1 for column in header if isinstance(column, str) and column == name)
        if times == 0:
            raise InputError(f"column {name!r} is not in the table")
        if times > 1:
            raise InputError(f"column {name!r} is in the table more than once")
    return names


def _vector(values: Any, name: str) -> np.ndarray:
    """One column as finite float64 [n].

    Errors are raised outside the `except` blocks: an exception of NumPy or Python that holds a private value
    must not travel along as the context of ours.
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        raise InputError(f"column {name!r} has missing values")
    try:
        array = np.asarray(values)
    except Exception:
        array = np.empty(0, dtype="U1")
    if array.ndim == 1 and array.dtype == object:
        array = _from_objects(array)
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise InputError(f"column {name!r} does not hold numbers only")
    with np.errstate(all="ignore"):
        array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise InputError(f"column {name!r} has values that are missing or not finite")
    return array


def _text_vector(values: Any, name: str) -> np.ndarray:
    """One column of text [n]; as careful about exceptions as `_vector`."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        raise InputError(f"column {name!r} has missing values")
    try:
        array = np.asarray(values, dtype=object)
    except Exception:
        array = np.empty((), dtype=object)
    if array.ndim != 1 or not all(isinstance(value, str) for value in array):
        raise InputError(f"column {name!r} does not hold text only")
    return np.array([value.strip() for value in array], dtype=str)


def _from_objects(array: np.ndarray) -> np.ndarray:
    """Python numbers in an object array as float64, missing values as NaN; unchanged if it holds anything
    else."""
    numbers = np.empty(len(array))
    for i, value in enumerate(array):
        if value is None or type(value).__name__ in ("NAType", "NaTType"):
            numbers[i] = np.nan
        elif isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
            try:
                numbers[i] = float(value)
            except OverflowError:
                numbers[i] = np.inf
        else:
            return array
    return numbers


def _read_csv(path: str | os.PathLike, names: Sequence[str], texts: Sequence[str]) -> dict[str, np.ndarray]:
    problem = ""
    columns: dict[str, np.ndarray] = {}
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            columns = _parse_csv(file, names, texts)
    except InputError:
        raise
    except OSError as error:
        problem = error.strerror or "it cannot be opened"
    except UnicodeDecodeError:
        problem = "it is not UTF-8 text"
    except (csv.Error, ValueError):
        problem = "it is not well-formed CSV"
    if problem:  # outside the handlers, so that no context with file content comes along
        raise InputError(f"cannot read the table {os.fspath(path)!r}: {problem}")
    return columns


def _parse_csv(file: TextIO, names: Sequence[str], texts: Sequence[str]) -> dict[str, np.ndarray]:
    rows = csv.reader(file, strict=True, skipinitialspace=True)
    header = [column.strip() for column in next(_filled(rows), [])]
    if not header:
        raise InputError("the table has no header line")
    places = {name: header.index(name) for name in _present(names, header)}
    cells: dict[str, list[str]] = {name: [] for name in names}
    width = len(header)
    for row in _filled(rows):
        if len(row) != width:
            raise InputError("the table's lines do not all have as many fields as its header")
        for name, place in places.items():
            cells[name].append(row[place])
    return {name: (_text_vector if name in texts else _numbers)(values, name) for name, values in cells.items()}


def _filled(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    return (row for row in rows if row)


def _numbers(values: list[str], name: str) -> np.ndarray:
    problem = ""
    numbers = np.empty(len(values))
    try:
        for i, text in enumerate(values):
            # Python reads 1_000 as a number; in a table it is more likely a slip
            numbers[i] = float(text) if "_" not in text else float("text")
    except ValueError:
        blank = any(not text.strip() for text in values)
        problem = "has missing values" if blank else "does not hold numbers only"
    if problem:
        raise InputError(f"column {name!r} {problem}")
    return _vector(numbers, name)
