"""How a table is read: what separates its fields, its decimal sign and encoding, and what is done about missing values.
All of it is said by the user; nothing is guessed from the table.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec
import numpy as np

from dpjax._base.checks import check_choice, check_number, shown
from dpjax._base.options import option
from dpjax._base.signatures import no_field_check
from dpjax.errors import InputError

#: Separators that are awkward to type, by name.
NAMED = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}
DROP = (
    "missing = 'drop' is refused: how many records would be left is private, and the number of records is public under"
    " replace-one adjacency (it would need noise of its own, which is not supported yet); state a constant instead:"
    " --missing impute --impute NAME=VALUE (missing='impute', impute={...})"
)


class ReadingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user may say about a table; `Reading` explains it. None: nothing is said."""

    separator: Annotated[
        str | None, option("Between the fields of a table's lines: ',' if left out, ';', tab, ...", metavar="SIGN")
    ] = None
    decimal: Annotated[str | None, option("Decimal sign of a table's numbers: '.' or ','.", metavar="SIGN")] = None
    encoding: Annotated[str | None, option("Of a table: utf-8 if left out, latin-1, utf-16, ...", metavar="NAME")] = (
        None
    )
    missing: Annotated[str | None, option("Missing values: refuse the table (the default), or impute a constant.")] = (
        None
    )
    missing_codes: Annotated[
        list[float | str] | dict[str, list[float | str]] | None,
        option("Value that stands for a missing one, or A=VALUE of a column; repeat.", metavar="VALUE"),
    ] = None
    impute: Annotated[
        dict[str, float | str] | None,
        option("With --missing impute: what counts instead, within bounds, public.", metavar="A=VALUE"),
    ] = None

    @property
    def given(self) -> dict[str, Any]:
        """What is said, by name."""
        return {name: value for name in READING if (value := getattr(self, name)) is not None}

    @property
    def reading(self) -> Reading:
        """The same, checked.

        Raises:
            InputError: as `Reading`.
        """
        return Reading(**self.given)


#: Keywords of `dpjax.release` that say how its table is read.
READING = ReadingOptions.__struct_fields__


@no_field_check
@dataclass(frozen=True)
class Reading:
    """What a user says about a table.

    Args:
        separator: of a file's fields: one character, or a name of `NAMED`.
        decimal: "." or ",", the decimal sign of a file's numbers.
        encoding: of a file, a name that Python knows.
        missing: "refuse" a table with missing values, or "impute" a constant for each. ("drop" is refused with the
            reason.)
        missing_codes: values that stand for a missing one, numbers or texts: a list for all columns, or a mapping of
            columns to lists. Blank cells, NaN, None and texts such as NA are missing anyway.
        impute: column -> the constant that counts in the place of a missing value, inside the column's bounds. It is
            part of the release. With it a record still contributes one bounded value, whatever is missing in whose
            record: sensitivity and number of records stay as they are.

    Raises:
        InputError: any of these does not fit.
    """

    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    missing: str = "refuse"
    missing_codes: Mapping[str, Any] | Sequence[Any] = ()
    impute: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        separator = NAMED.get(self.separator, self.separator) if isinstance(self.separator, str) else None
        if separator is None or len(separator) != 1 or separator.isalnum() or separator in "\r\n\"'.+-_\0":
            raise InputError(
                f"separator must be one sign such as ',', ';', '|', or one of tab, space; got {shown(self.separator)}"
            )
        object.__setattr__(self, "separator", separator)
        check_choice("decimal", self.decimal, (".", ","))
        if self.decimal == separator:
            raise InputError("separator and decimal must differ: a file with decimal commas has separator ';' or tab")
        object.__setattr__(self, "encoding", _checked_encoding(self.encoding))
        if self.missing == "drop":
            raise InputError(DROP)
        check_choice("missing", self.missing, ("refuse", "impute"))
        if self.impute is not None and not isinstance(self.impute, Mapping):
            raise InputError(f"impute must map columns to constants, got {shown(self.impute)}")
        if self.missing == "impute" and not self.impute:
            raise InputError("impute is missing: state a constant for each column, --impute NAME=VALUE (impute={...})")
        if self.missing == "refuse" and self.impute:
            raise InputError("impute is of use only with missing = 'impute'")
        object.__setattr__(self, "missing_codes", _checked_codes(self.missing_codes))

    @property
    def of_file(self) -> bool:
        """Whether something is said that only a file can have."""
        return (self.separator, self.decimal, self.encoding) != (",", ".", "utf-8")

    def checked(self, statistic: Any) -> Reading:
        """The same, with constants that the statistic can have.

        Raises:
            InputError: as `checked_imputed`.
        """
        return replace(self, impute=checked_imputed(self.impute, statistic))

    def codes(self, name: str) -> list[str]:
        """What stands for a missing value in a column, as text."""
        codes = self.missing_codes
        return list(codes.get(name, ()) if isinstance(codes, dict) else codes)


def checked_imputed(imputed: Mapping[str, Any] | None, statistic: Any) -> dict[str, Any] | None:
    """The constants in place of missing values, by column; public, so that messages show them.

    Raises:
        InputError: a column that the model does not use; a value outside of its bounds, or that the model cannot have.
    """
    if not imputed:
        return None
    bounds = statistic.column_bounds or {}
    norms = statistic.norms
    found: dict[str, Any] = {}
    for name, value in imputed.items():
        if name not in statistic.variables:
            raise InputError(f"impute is given for {name!r}, which the model does not use")
        if name in statistic.texts:
            label = value if isinstance(value, str) or isinstance(value, bool) else f"{value:g}"
            if label not in statistic.labels:
                raise InputError(f"impute of {name!r} must be one of the labels, got {shown(value)}")
            found[name] = label
            continue
        number = check_number(value, f"impute of {name!r} must be a finite number")
        low, high = bounds.get(name, (-math.inf, math.inf))
        if norms is not None:
            high = norms["target" if name == statistic.target else "features"]
            low = -high
        if not low <= number <= high:
            raise InputError(f"impute of {name!r} must lie within its bounds [{low:g}, {high:g}], got {shown(value)}")
        if len(statistic.variables) == 1:
            _check_possible(statistic, name, number, value)
        found[name] = number
    return found


def _check_possible(statistic: Any, name: str, number: float, value: Any) -> None:
    try:
        statistic.from_columns({name: np.array([number])})
    except InputError as error:
        reason = str(error).removeprefix(f"column {name!r} ")
        raise InputError(
            f"impute of {name!r}, {shown(value)}, is a value that the model cannot have: {reason}"
        ) from None


def _checked_encoding(encoding: Any) -> str:
    wanted = f"encoding must be a text encoding such as utf-8, utf-16 or latin-1, got {shown(encoding)}"
    try:
        info = codecs.lookup(encoding)
    except (LookupError, TypeError, ValueError):
        info = None
    if info is None or not getattr(info, "_is_text_encoding", True):
        raise InputError(wanted)
    return info.name


def _checked_codes(codes: Any) -> Any:
    if isinstance(codes, Mapping):
        return {name: _code_list(values) for name, values in codes.items()}
    return _code_list(codes)


def _code_list(codes: Any) -> tuple[str, ...]:
    listed = [codes] if isinstance(codes, str | int | float) and not isinstance(codes, bool) else codes
    if isinstance(listed, Mapping) or not isinstance(listed, Sequence):
        raise InputError(f"missing_codes must be numbers or texts, or a mapping of columns to them; got {shown(codes)}")
    for code in listed:
        if isinstance(code, bool) or not isinstance(code, str | int | float) or not str(code).strip():
            raise InputError(f"missing_codes must be numbers or texts, got {shown(code)}")
    whole = [int(code) if isinstance(code, float) and code.is_integer() else code for code in listed]
    return tuple(str(code).strip() for code in whole)
