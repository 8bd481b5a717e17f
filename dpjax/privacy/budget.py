"""Splitting a privacy budget in two and adding what was spent: basic composition, rounded so that it never exceeds."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from dpjax._base.checks import check_number, shown
from dpjax.errors import InputError


def checked_epsilon(epsilon: Any) -> float:
    """The budget of a whole release.

    Raises:
        InputError: it is not a finite number > 0.
    """
    wanted = "epsilon must be a finite number > 0"
    budget = check_number(epsilon, wanted)
    if not budget > 0:
        raise InputError(f"{wanted}, got {shown(epsilon)}")
    return budget


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


def budgets_of(epsilon: float, delta: Any, share: float | None, name: str) -> list[tuple[float, Any]]:
    """(epsilon, delta) of every part of a release: of the usual sums, and with a share of what has it.

    Args:
        delta: None or 0 where there is none, and then of every part.
        share: of epsilon and delta that the second part gets, None where there is one part.
        name: of the share, for messages.

    Raises:
        InputError: one of them is nothing; the message begins with `name`.
    """
    if share is None:
        return [(epsilon, delta)]
    deltas = split(delta, share, name) if delta else (delta, delta)
    return list(zip(split(epsilon, share, name), deltas, strict=True))
