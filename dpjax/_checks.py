"""Checks of arguments that a release, a statistic and a file have in common. Messages here show the value: none of
these is ever given a private one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpjax.errors import InputError

Bounds = dict[str, tuple[float, float]]


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
        raise InputError(f"a column name must be non-empty text, got {name!r}")
    for sign in "*,":
        if sign in name:
            raise InputError(f"column name {name!r} holds {sign!r}, which separates names here: rename the column")
    if name != name.strip() or not name.isprintable():
        raise InputError(f"column name {name!r} has blanks around it or control characters: rename the column")


def check_bounds(bounds: Any, variables: Sequence[str]) -> Bounds:
    """Bounds of each variable as floats, in the order of `variables`.

    Bounds are stated a priori: taken from the data they leak it (SPEC A7), so there is no default.

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
    """Two finite numbers lo < hi as floats.

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
    if not lo < hi or not math.isfinite(hi - lo):
        raise InputError(f"{wanted} with a finite width, got ({lo!r}, {hi!r})")
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


def shown(value: Any) -> str:
    """Short text of a value for an error message."""
    try:
        text = repr(value)
    except Exception:  # such as an integer too long for Python to print
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."
