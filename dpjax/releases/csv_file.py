"""Cells of the wanted columns of a CSV file, and what a file looks like that cannot be read as it was said to be.

Columns that are not wanted are not judged. No message holds a value, a row number, a count or a name from the header:
only what the file looks like, and the option that says so.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import IO

from dpjax._base.reading import Reading
from dpjax.errors import InputError

EMPTY_LINE = (
    "the table has an empty line between its records, which may stand for missing values: write NA in the place of a"
    " missing value, or remove the line if it is no record"
)
_SIGNS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars", " ": "blanks"}
_OPTION = {"\t": "tab", " ": "space"}
_GZIP = b"\x1f\x8b"
#: Beginnings of files that are no text.
_BINARY = {
    b"PK\x03\x04": "a spreadsheet or a zip archive: save the table as CSV",
    b"\xd0\xcf\x11\xe0": "an old spreadsheet: save the table as CSV",
    b"PAR1": "a Parquet file: pass a data frame, or save it as CSV",
    b"ARROW1": "an Arrow file: pass a data frame, or save it as CSV",
    b"\x89HDF": "an HDF5 file: pass a data frame, or save it as CSV",
    b"BZh": "compressed with bzip2: unpack it, or compress it with gzip",
    b"\xfd7zXZ": "compressed with xz: unpack it, or compress it with gzip",
    b"\x28\xb5\x2f\xfd": "compressed with zstd: unpack it, or compress it with gzip",
}
_MARKS = (  # the longer ones first
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
_HEAD = 4096
_OTHER_NOTATION = re.compile(r"[+-]?(?=.*[.,])[\d.,' ]*\d[\d.,' ]*(?:[eE][+-]?\d+)?")
_SEP_LINE = re.compile(r"sep=(.?)", re.IGNORECASE)


def read_cells(path: str | os.PathLike, names: Sequence[str], reading: Reading) -> dict[str, list[str]]:
    """Cells of the named columns, as text; blank lines are skipped. The file may be compressed with gzip.

    Raises:
        InputError: it cannot be read, or a column is not in it, or more than once; a blank line that may be a record
            whose values are missing, so that skipping it would make the public number of records depend on them.
    """
    problem = ""
    cells: dict[str, list[str]] = {}
    try:
        problem = _unreadable(_head(path), reading)
        if not problem:
            with _open(path, reading) as file:
                cells = _parse(file, path, names, reading)
    except InputError:
        raise
    except (gzip.BadGzipFile, EOFError, zlib.error):
        problem = "it is not a whole gzip file"
    except OSError as error:
        problem = error.strerror or "it cannot be opened"
    except UnicodeError:
        problem = f"it is not {reading.encoding} text: say its encoding with --encoding (encoding=...)"
    except (csv.Error, ValueError):
        problem = "it is not well-formed CSV"
    if problem:  # outside the handlers, so that no context with file content comes along
        raise InputError(f"cannot read the table {os.fspath(path)!r}: {problem}")
    return cells


def undecodable(cells: Sequence[str]) -> bool:
    """Whether a cell holds bytes that are no text in the file's encoding."""
    return any("\udc80" <= sign <= "\udcff" for cell in cells if not cell.isascii() for sign in cell)


def encoding_hint(reading: Reading) -> str:
    """What to do about bytes that are no text."""
    return (
        f"is not {reading.encoding.upper()} text: say the encoding of the file, such as --encoding latin-1 or cp1252"
        " (encoding='latin-1')"
    )


def notation_hint(unread: Sequence[str], reading: Reading) -> str:
    """What to do about cells that are no numbers, if they look like numbers in another notation; else nothing."""
    if not all(_OTHER_NOTATION.fullmatch(cell.strip()) for cell in unread):
        return ""
    if reading.decimal == ",":
        return ": with decimal commas points are not read, nor are signs between thousands"
    also = " with --separator ';' or tab" if reading.separator == "," else ""
    return f": if its commas are decimal commas, use --decimal ','{also} (decimal=','); thousands signs are not read"


def _head(path: str | os.PathLike) -> bytes:
    with open(path, "rb") as file:
        packed = file.read(2) == _GZIP
    with gzip.open(path, "rb") if packed else open(path, "rb") as file:
        return file.read(_HEAD)


def _open(path: str | os.PathLike, reading: Reading) -> io.TextIOBase:
    """The file as text; bytes that are no text in its encoding become signs that `undecodable` finds."""
    with open(path, "rb") as file:
        packed = file.read(2) == _GZIP
    raw: IO[bytes] = gzip.open(path, "rb") if packed else open(path, "rb")  # type: ignore[assignment]
    encoding = "utf-8-sig" if reading.encoding == "utf-8" else reading.encoding
    return io.TextIOWrapper(raw, encoding=encoding, errors="surrogateescape", newline="")


def _unreadable(head: bytes, reading: Reading) -> str:
    """Why a file that begins like this is not read at all; nothing if it is."""
    for start, kind in _BINARY.items():
        if head.startswith(start):
            return f"it looks like {kind}"
    stated = reading.encoding.replace("_", "-")
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            if stated.startswith(encoding):
                return ""
            known = "UTF-8 text" if encoding == "utf-8" else f"{encoding.upper()} text"
            return f"it looks like {known}: use --encoding {encoding} (encoding='{encoding}')"
    odd, even = head[1::2].count(0), head[0::2].count(0)
    if max(odd, even) * 4 > len(head) > 1 and not stated.startswith(("utf-16", "utf-32")):
        guess = "utf-16-le" if odd > even else "utf-16-be"
        return f"it looks like UTF-16 text: use --encoding {guess} (encoding='{guess}')"
    return ""


def _parse(
    file: io.TextIOBase, path: str | os.PathLike, names: Sequence[str], reading: Reading
) -> dict[str, list[str]]:
    rows = _rows(file, reading)
    header = _header(rows)
    if not header:
        raise InputError("the table has no header line")
    for name in names:
        times = header.count(name)
        if times == 0:
            raise InputError(f"column {name!r} is not in the table{_header_hint(path, header, names, reading)}")
        if times > 1:
            raise InputError(f"column {name!r} is in the table more than once")
    places = [(header.index(name), []) for name in names]  # type: list[tuple[int, list[str]]]
    width = len(header)
    limit = csv.field_size_limit()
    try:
        csv.field_size_limit(max(limit, 2**31 - 1))  # a long text in a column that is not used is no fault
        blank = False
        for row in rows:
            if not row:
                blank = True
                continue
            if blank and (width == 1 or reading.separator == " "):
                raise InputError(EMPTY_LINE)
            if len(row) != width:
                commas = "; a comma inside of a field needs quotes around it" if reading.separator == "," else ""
                raise InputError(f"the table's lines do not all have as many fields as its header{commas}")
            for place, cells in places:
                cells.append(row[place])
    finally:
        csv.field_size_limit(limit)
    return {name: cells for name, (_, cells) in zip(names, places, strict=True)}


def _rows(file: io.TextIOBase, reading: Reading) -> Iterator[list[str]]:
    """Lines as fields, blank ones as none."""
    lines: Iterator[str] = iter(file)
    if reading.separator in " \t":  # blanks at the end would be one more field
        lines = (line.strip(" \r\n") + "\n" for line in lines)
    return csv.reader(lines, strict=True, skipinitialspace=True, delimiter=reading.separator)


def _header(rows: Iterator[list[str]]) -> list[str]:
    """Names of the columns; a line such as `sep=;`, which spreadsheets write before them, is passed over."""
    names = ([column.strip() for column in row] for row in rows if row)
    header = next(names, [])
    if header and _SEP_LINE.fullmatch(header[0]) and not any(header[1:]):
        header = next(names, [])
    return header


def _header_hint(path: str | os.PathLike, header: list[str], names: Sequence[str], reading: Reading) -> str:
    """What the file looks like, if a wanted name is not in its header."""
    with _open(path, reading) as file:
        lines = [line for _, line in zip(range(50), file, strict=False) if line.strip()]
    if lines and _SEP_LINE.fullmatch(lines[0].strip()):
        lines = lines[1:]
    found: dict[str, list[str]] = {}
    for sign in _SIGNS:
        if sign != reading.separator and sign in lines[0]:
            found[sign] = [field.strip() for field in _fields(lines[0], sign)]
    broken = undecodable(header) and not all(name.isascii() for name in names)
    known = {name for name in names if name.isascii() or not broken}
    hints = [f"its header {encoding_hint(reading)}"] if broken else []
    certain = [sign for sign, fields in found.items() if known and known <= set(fields)]
    likely = [sign for sign, fields in found.items() if len(header) == 1 and sign != " " and len(fields) > 1]
    if separators := [*certain, *likely]:
        sign = separators[0]
        option = _OPTION.get(sign, sign)
        hints.append(
            f"the file looks separated by {_SIGNS[sign]}, not {_SIGNS.get(reading.separator, 'that')}; use"
            f" --separator {option!r} (separator={option!r})"
        )
        if sign != "," and len(lines) > 1 and re.search(r"\d,\d", lines[1]) and reading.decimal == ".":
            hints.append("use --decimal ',' if its numbers have decimal commas")
    elif all(_is_number(field) for field in header):
        hints.append("its first line holds numbers only, where the names of the columns should stand")
    elif {name.casefold() for name in names if name not in header} & {field.casefold() for field in header}:
        hints.append("small and capital letters differ")
    return f": {'; '.join(hints)}" if hints else ""


def _fields(line: str, sign: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=sign, skipinitialspace=True), [])
    except csv.Error:
        return []


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
