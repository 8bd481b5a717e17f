"""What the owner of a table sees on the screen before noise is drawn: counts of missing, of code-like and of clipped
values. It is private. Nothing here is stored, written to a file, put into an exception or a warning, or used by what
is released; the owner's decision to go on or not is all that may follow from it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TextIO

import numpy as np

from dpjax._base.reading import Reading
from dpjax.errors import InputError
from dpjax.releases.sentinels import sentinels
from dpjax.releases.table import is_missing

#: Shares of a column's values outside of its bounds that are remarked, and that stop a release.
REMARKED, STOPPED = 0.05, 0.5
#: Width of the bounds in units of the values' spread (5% to 95% quantile): remarked, and stops a release.
WIDE, ABSURD = 100.0, 10_000.0
_FEW = 10  # records below which shares and spreads say nothing

HEAD = (
    "for your eyes only: what the table looks like, before noise. These numbers are private: do not publish, save or"
    " send them"
)
FOOT = (
    "none of this is in the release. To stop here, or to choose bounds by what you see, depends on the data, which the"
    " guarantee does not cover"
)


@dataclass(frozen=True, repr=False)
class _Column:
    """What is counted in one column: of n records, `missing` (a constant stands for each if `imputed`); `codes` by
    value; below and above the bounds; `clipped`: what becomes of those; spread and width of the bounds."""

    name: str
    n: int
    missing: int = 0
    imputed: str = ""
    codes: Mapping[float, int] | None = None
    below: int | None = None
    above: int | None = None
    what: str = "clipped"
    spread: float = 0.0
    width: float = 0.0
    constant: bool = False

    @property
    def outside(self) -> float:
        return ((self.below or 0) + (self.above or 0)) / max(self.n - self.missing, 1)

    @property
    def stops(self) -> list[str]:
        """Why the release is not made, without a number."""
        found = []
        if self.codes:
            found.append("has values that look like a code for missing")
        if self.n >= _FEW and self.outside > STOPPED:
            found.append("has most of its values outside of the bounds")
        if self.n >= _FEW and self.spread * ABSURD < self.width and not self.constant:
            found.append("has bounds that are absurdly wide")
        if self.missing > self.n / 2:
            found.append("is missing mostly")
        return found

    @property
    def remarked(self) -> bool:
        wide = self.n >= _FEW and self.spread * WIDE < self.width
        return bool(self.stops or self.missing or self.outside > REMARKED or wide)

    def line(self) -> str:
        parts = [f"{_share(self.missing, self.n)} missing" + (f", counted as {self.imputed}" if self.missing else "")]
        if self.below is not None and self.above is not None:
            known = self.n - self.missing
            parts.append(
                f"{self.what}: {_share(self.below, known)} below, {_share(self.above, known)} above the bounds"
            )
        for value, count in (self.codes or {}).items():
            parts.append(f"{_share(count, self.n)} are {value:g}, which looks like a code for missing")
        if self.constant:
            parts.append("all values are the same")
        elif self.n >= _FEW and self.spread * WIDE < self.width:
            times = self.width / self.spread if self.spread else np.inf
            parts.append(f"the bounds are {times:.3g} times as wide as the middle 90% of the values")
        return "; ".join(parts)


def _share(count: int, n: int) -> str:
    return f"{count} ({count / n:.1%})" if count else "0"


class OwnerReport:
    """Counts about a private table, to be looked at on a screen. It cannot be copied, stored or serialised, and its
    `repr` says nothing."""

    def __init__(self, columns: Mapping[str, np.ndarray], statistic: Any, reading: Reading, searched: bool = False):
        """Count.

        Args:
            columns: of the table, as of `dpjax.releases.table.raw_columns`.
            statistic: what is summed.
            reading: what is said about the table.
            searched: its bounds are only the range in which private ones are found, and may be wide.
        """
        self._columns = _counted(columns, statistic, reading, searched)

    def __repr__(self) -> str:
        return "<private report about a table: show() prints it, do not publish it>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private report about a table cannot be stored or copied")

    @property
    def remarkable(self) -> bool:
        """Whether there is something that the owner should know."""
        return any(column.remarked for column in self._columns)

    def show(self, stream: TextIO | Any = None) -> None:
        """Print it, to standard error if no stream is given."""
        rows = [(column.name, column.line()) for column in self._columns]
        width = max(len(name) for name, _ in rows)
        records = self._columns[0].n
        lines = [HEAD, f"  {'records'.ljust(max(width, 7))}  {records}"]
        lines += [f"  {name.ljust(max(width, 7))}  {text}" for name, text in rows]
        print("\n".join([*lines, FOOT]), file=sys.stderr if stream is None else stream, flush=True)

    def refuse(self) -> None:
        """Refuse a table that looks wrong.

        Raises:
            InputError: it does; the columns are named, with no number.
        """
        found = [f"column {column.name!r} {' and '.join(column.stops)}" for column in self._columns if column.stops]
        if found:
            raise InputError(
                f"nothing was drawn: {'; '.join(found)}. Say which values are missing (--missing-code VALUE,"
                " missing_codes=[...]), state other bounds from what is known without the table, or, if all is as it"
                " should be, go on with --accept (accept=True)"
            )


def _counted(columns: Mapping[str, np.ndarray], statistic: Any, reading: Reading, searched: bool) -> list[_Column]:
    bounds = statistic.column_bounds or {}
    norms = statistic.norms
    what = "left out" if (statistic.truncation or {}).get("rule") == "redact" else "clipped"
    found = []
    for name in statistic.variables:
        column = columns[name]
        missing = is_missing(column)
        common: Any = {"name": name, "n": len(column), "missing": int(missing.sum())}
        constant = (reading.impute or {}).get(name, "")
        common["imputed"] = constant if isinstance(constant, str) else f"{constant:g}"
        if column.dtype == object or (statistic.integer and not bounds):  # categories: their counts are the statistic
            found.append(_Column(**common))
            continue
        values = column[~missing]
        limits = bounds.get(name)
        if norms is not None and name == statistic.target:
            limits = (-norms["target"], norms["target"])
        log = getattr(getattr(statistic, "family", None), "log", False)
        found.append(_Column(**common, codes=sentinels(values), **_outside(values, limits, log, searched), what=what))
    if norms is not None:
        found.append(_lengths(columns, statistic.features, norms["features"]))
    return found


def _outside(values: np.ndarray, limits: tuple[float, float] | None, log: bool, searched: bool) -> dict[str, Any]:
    if limits is None or not len(values):
        return {}
    low, high = limits
    found = {"below": int((values < low).sum()), "above": int((values > high).sum())}
    if searched:
        return found
    if log:  # what is summed are logarithms
        values = np.log(np.maximum(values, low))
        low, high = np.log((low, high))
    middle = np.quantile(values, (0.05, 0.95))
    constant = bool((values == values[0]).all())
    return found | {"spread": float(middle[1] - middle[0]), "width": float(high - low), "constant": constant}


def _lengths(columns: Mapping[str, np.ndarray], features: tuple[str, ...], longest: float) -> _Column:
    """The lengths of the feature vectors as one more column; records with a missing feature are not counted."""
    x = np.stack([columns[name] for name in features], axis=1)
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(x[~np.isnan(x).any(axis=1)], axis=1)
    name = f"length of ({', '.join(features)})"
    above = int((lengths > longest).sum())
    missing = len(x) - len(lengths)
    return _Column(name, len(x), missing, "with a constant", below=0, above=above, what="shortened")
