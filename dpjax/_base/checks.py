"""Checks of arguments that a release, a statistic and a file have in common. Messages here show the value: none of
these is ever given a private one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from dpjax.errors import InputError

Bounds = dict[str, tuple[float, float]]

#: Bounds are at most this large, and the two of a column at least that far apart: beyond, their fourth powers, of which
#: variances of variances are made, have no place in the range of a float, and rounding is no longer small beside them.
LARGEST_BOUND, SMALLEST_WIDTH = 1e70, 1e-70
#: Sums of a release and scales of their noise are at most this large: together they are still floats.
LARGEST_RELEASED = 1e300
#: Sums and numbers of records beyond this many noise scales are not computed with.
MOST_NOISE_UNITS = 1e15
#: Counts of chains, draws, trials and the like, which index arrays of 32-bit programs.
LARGEST_SIZE = 2**31 - 1
LARGEST_RECORDS = 2**53  # as a float still exact
MOST_PARTIES = 100_000  # each has sums of its own in every chain
#: Draws that all chains of a call keep together: of one number each, 40 GB.
MOST_DRAWS = 10**10


def check_choice(name: str, value: Any, allowed: Sequence[str]) -> None:
    """Refuse a value that is not among the allowed ones.

    Raises:
        InputError: it is not; the message names the argument.
    """
    if not isinstance(value, str) or value not in allowed:
        raise InputError(f"{name} must be {' or '.join(map(repr, allowed))}, got {shown(value)}")


def check_name(name: Any) -> None:
    """Refuse a column name that a release file cannot hold.

    Raises:
        InputError: not text, empty, with '*' or ',', or with blanks or control characters around or inside
        it.
    """
    if not isinstance(name, str) or not name:
        raise InputError(f"a column name must be non-empty text, got {shown(name)}")
    for sign in "*,":
        if sign in name:
            raise InputError(f"column name {shown(name)} holds {sign!r}, which separates names here: rename the column")
    if name != name.strip() or not name.isprintable():
        raise InputError(f"column name {shown(name)} has blanks around it or control characters: rename the column")


def check_bounds(bounds: Any, variables: Sequence[str]) -> Bounds:
    """Bounds of each variable as floats, in the order of `variables`.

    Bounds are stated a priori: taken from the data they leak it (docs/formulas.md#stated-bounds), so there is no
    default.

    Args:
        bounds: mapping of each variable, and no other, to a pair (lo, hi) in the user's units.
        variables: names of the variables.

    Raises:
        InputError: not a mapping; a variable without bounds; bounds for another name; not two finite numbers
            with lo < hi and a finite width.
    """
    if not isinstance(bounds, Mapping):
        raise InputError(f"bounds must map each column to (lo, hi), got {type(bounds).__name__}")
    for name in variables:
        if name not in bounds:
            raise InputError(f"bounds are missing for column {name!r}: state them a priori, never from the data")
    for name in bounds:
        if name not in variables:
            raise InputError(f"bounds are given for {name!r}, which the model does not use")
    return {name: check_pair(bounds[name], f"bounds of {name!r}") for name in variables}


def check_pair(pair: Any, name: str) -> tuple[float, float]:
    """Two finite numbers lo < hi as floats, at most `LARGEST_BOUND` large and at least `SMALLEST_WIDTH` apart.

    Raises:
        InputError: they are not; the message begins with `name`.
    """
    wanted = f"{name} must be two finite numbers lo < hi"
    if isinstance(pair, str) or not isinstance(pair, Sequence | np.ndarray) or len(pair) != 2:
        raise InputError(f"{wanted}, got {shown(pair)}")
    try:
        lo, hi = (check_number(value, wanted) for value in pair)
    except InputError as error:
        raise InputError(f"{wanted}, got {shown(pair)}") from error
    if not lo < hi:
        raise InputError(f"{wanted} with a finite width, got ({lo!r}, {hi!r})")
    if max(abs(lo), abs(hi)) > LARGEST_BOUND or hi - lo < SMALLEST_WIDTH:
        raise InputError(
            f"{wanted} from {-LARGEST_BOUND:g} to {LARGEST_BOUND:g} with a finite width of at least"
            f" {SMALLEST_WIDTH:g}, got ({lo!r}, {hi!r})"
        )
    return lo, hi


def check_number(value: Any, wanted: str) -> float:
    """A finite number as a float; text, bool and complex are refused.

    Raises:
        InputError: `wanted`, then what was given.
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise InputError(f"{wanted}, got {shown(value)}")


def check_length(value: Any, wanted: str) -> float:
    """A bound on a length or a size as a float: neither so large nor so small that its powers leave the range of a
    float or are only roughly rounded, which the sensitivity would not know.

    Raises:
        InputError: `wanted`, then what was given.
    """
    number = check_number(value, wanted)
    if not SMALLEST_WIDTH <= number <= LARGEST_BOUND:
        raise InputError(f"{wanted}, from {SMALLEST_WIDTH:g} to {LARGEST_BOUND:g}, got {shown(value)}")
    return number


def check_size(name: str, value: Any, least: int = 1, most: int = LARGEST_SIZE) -> int:
    """A whole number from `least` to `most`.

    Raises:
        InputError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name} must be a whole number, at least {least}; got {shown(value)}")
    if value > most:
        raise InputError(f"{name} must be a whole number, at most {most}; got {shown(value)}")
    return int(value)


def check_run(chains: Any, draws: Any, thin: Any = None, problems: int = 1, stream: bool = False, place: str = ""):
    """The sizes of a run.

    Args:
        chains, draws, thin: of every problem; a thin of None is the method's.
        problems: how many there are.
        stream: draws are not kept.
        place: put before the names.

    Raises:
        InputError: one of them is out of range, or there are more draws than any machine keeps.
    """
    for name, value in (("chains", chains), ("draws", draws), *(() if thin is None else (("thin", thin),))):
        check_size(place + name, value)
    if draws * (thin or 1) > LARGEST_SIZE:
        raise InputError(
            f"{place}draws times thin must be at most {LARGEST_SIZE} steps; got {shown(draws)} times {shown(thin)}"
        )
    kept = int(problems) * int(chains) * (1 if stream else int(draws))
    if kept > MOST_DRAWS:
        trials = f" for {problems} problems" if problems > 1 else ""
        raise InputError(
            f"{place}chains and {place}draws must be at most {MOST_DRAWS:.0e} draws together; got {shown(chains)}"
            f" chains of {shown(draws)} draws{trials}"
        )


def has_half_character(value: Any) -> bool:
    """Whether a text in nested mappings and lists is none that can be written: JSON lets half a character through,
    as "\\ud800"."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            if not item.isascii() and any("\ud800" <= sign <= "\udfff" for sign in item):
                return True
        elif isinstance(item, Mapping):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple):
            waiting += item
    return False


def listed(names: Collection[Any], most: int = 5) -> str:
    """Names for a message, in quotes; of many only the first."""
    first = [shown(name) for _, name in zip(range(most), names, strict=False)]
    return ", ".join(first) + (f" and {len(names) - most} more" if len(names) > most else "")


def shown(value: Any) -> str:
    """Short text of a value for an error message."""
    try:
        text = repr(value)
    except Exception:  # such as an integer too long for Python to print
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."
