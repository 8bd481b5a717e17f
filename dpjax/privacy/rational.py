"""Exact rational arithmetic of monomials over a box, and rounding UP to a float: what sensitivities are made of."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from dpjax.errors import InputError

Exponents = tuple[tuple[int, ...], ...]
Box = tuple[tuple[Fraction, Fraction], ...]


def checked(exponents: Any, bounds: Any) -> tuple[Exponents, Box]:
    """Exponents as tuples and bounds as fractions.

    Raises:
        InputError: rows of different length, negative or constant ones, entries twice; bounds not finite with lo < hi.
    """
    try:
        rows = tuple(tuple(int(e) for e in row) for row in exponents)
        pairs = tuple((float(lo), float(hi)) for lo, hi in bounds)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError("exponents must be rows of integers and bounds pairs of numbers") from error
    if not rows or not pairs or any(len(row) != len(pairs) or min(row) < 0 or sum(row) < 1 for row in rows):
        raise InputError("each entry needs one non-negative exponent per variable and must not be constant")
    if len(set(rows)) != len(rows):
        raise InputError("entries must be distinct")
    for lo, hi in pairs:
        if not (math.isfinite(lo) and math.isfinite(hi) and lo < hi):
            raise InputError(f"bounds must be finite with lo < hi, got ({lo!r}, {hi!r})")
    return rows, tuple((Fraction(lo), Fraction(hi)) for lo, hi in pairs)


def round_up(value: Fraction) -> float:
    """The smallest float that is not below `value`."""
    try:
        rounded = float(value)
    except OverflowError:
        rounded = math.inf
    if math.isinf(rounded):
        raise InputError("bounds too wide: the sensitivity is beyond the range of a float")
    return math.nextafter(rounded, math.inf) if Fraction(rounded) < value else rounded


def round_up_root(value: Fraction) -> float:
    """A float at most a few units in the last place above the root of `value`, never below it."""
    shift = (value.numerator.bit_length() - value.denominator.bit_length()) // 2 * 2
    root = math.sqrt(float(value / Fraction(2) ** shift))
    try:
        root = math.ldexp(root, shift // 2)
    except OverflowError as error:
        raise InputError("bounds too wide: the sensitivity is beyond the range of a float") from error
    while Fraction(root) ** 2 < value:
        root = math.nextafter(root, math.inf)
    return root


def extremes(rows: Exponents, box: Box) -> Iterator[tuple[Fraction, Fraction]]:
    """Smallest and largest value of each monomial: the variables are free of each other, so corners suffice."""
    for row in rows:
        low = high = Fraction(1)
        for (lo, hi), exponent in zip(box, row, strict=True):
            if not exponent:
                continue
            corners = [a * b for a in (low, high) for b in _power_range(lo, hi, exponent)]
            low, high = min(corners), max(corners)
        yield low, high


def monomial(row: tuple[int, ...], point: tuple[Fraction, ...]) -> Fraction:
    """Value of a monomial at a point."""
    return math.prod((x**e for x, e in zip(point, row, strict=True) if e), start=Fraction(1))


def largest_corner(box: Box) -> tuple[Fraction, ...]:
    """The corner of the largest absolute values, where every |monomial| is largest."""
    return tuple(hi if hi >= -lo else lo for lo, hi in box)


def _power_range(lo: Fraction, hi: Fraction, exponent: int) -> tuple[Fraction, Fraction]:
    ends = sorted((lo**exponent, hi**exponent))
    if exponent and exponent % 2 == 0 and lo <= 0 <= hi:
        return Fraction(0), ends[1]
    return ends[0], ends[1]
