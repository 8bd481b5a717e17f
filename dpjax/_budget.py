"""Splitting a privacy budget in two and adding what was spent: basic composition, rounded so that it never exceeds."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from dpjax._checks import check_number, shown
from dpjax.errors import InputError


def checked_share(share: Any, name: str) -> float:
    """A share of a budget.

    Raises:
        InputError: it does not lie inside (0, 1); the message begins with `name`.
    """
    wanted = f"{name} must lie inside (0, 1)"
    number = check_number(share, wanted)
    if not 0 < number < 1:
        raise InputError(f"{wanted}, got {shown(share)}")
    return number


def split(total: float, share: float, name: str) -> tuple[float, float]:
    """(rest, part): part is share * total, and rest + part is at most the total, as real numbers.

    Raises:
        InputError: one of them is nothing, as the share is too close to 0 or 1; the message begins with `name`.
    """
    part = share * total
    rest = total - part
    if Fraction(rest) + Fraction(part) > Fraction(total):
        rest = math.nextafter(rest, 0.0)
    if not (part > 0 and rest > 0):
        raise InputError(f"{name} = {share!r} leaves nothing for one of the two")
    return rest, part


def spent_together(first: float, second: float) -> float:
    """The sum of two numbers, rounded up."""
    total = first + second
    return math.nextafter(total, math.inf) if Fraction(first) + Fraction(second) > Fraction(total) else total
