"""The largest value of a polynomial in a few variables over a box, from above, by its Bernstein coefficients.

Over a box a polynomial lies between its smallest and its largest Bernstein coefficient, and those at the corners are
values of it. Boxes are halved until the largest coefficient that is left and the largest corner value agree. The
coefficients of the whole box are computed in rational arithmetic; those of halves are means of neighbours (de
Casteljau), a convex combination each, so that rounding never grows: what all of it can add is part of the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from dpjax.privacy.rational import Box

TOLERANCE = 2.0**-36
"""Relative distance at which the bound counts as the supremum."""
_HALVINGS = 120
_MOST_NUMBERS = 4_000_000  # 32 MB


def largest_value(polynomial: Mapping[tuple[int, ...], Fraction], box: Box) -> tuple[Fraction, bool]:
    """An upper bound on the largest value of a polynomial over a box, and whether it is within `TOLERANCE` of it.

    Args:
        polynomial: exponents of the variables -> coefficient.
        box: (lo, hi) of each variable, lo < hi.
    """
    whole = _bernstein(polynomial, box)
    size = max(map(abs, whole.ravel().tolist()))
    if size == 0:
        return Fraction(0), True
    degrees = [length - 1 for length in whole.shape]
    boxes = np.array([float(c / size) for c in whole.ravel()]).reshape(1, *whole.shape)
    corners = (slice(None), *(slice(None, None, n) if n else slice(None) for n in degrees))
    best, ceiling, steps = -math.inf, -math.inf, 1
    axes = [axis for axis, n in enumerate(degrees, start=1) if n]
    for turn in range(_HALVINGS):
        best = max(best, float(boxes[corners].max()))
        highest = boxes.reshape(len(boxes), -1).max(axis=1)
        done = highest <= best + TOLERANCE / 2 * abs(best)
        ceiling = max(ceiling, float(highest[done].max(initial=-math.inf)))
        boxes = boxes[~done]
        if not len(boxes) or 2 * boxes.size > _MOST_NUMBERS:
            break
        axis = axes[turn % len(axes)]
        steps += degrees[axis - 1]
        boxes = _halved(boxes, axis)
    left = float(boxes.max(initial=-math.inf))
    # each step rounds by at most half a unit in the last place of a number in [-1, 1], as did the conversion
    bound = Fraction(max(ceiling, left)) + steps * Fraction(2) ** -53
    return bound * size, float(bound) - best <= TOLERANCE * abs(best)


def _bernstein(polynomial: Mapping[tuple[int, ...], Fraction], box: Box) -> np.ndarray:
    """Bernstein coefficients over the box, an array of fractions with one axis per variable."""
    degrees = [max(row[i] for row in polynomial) for i in range(len(box))]
    coefficients = np.full([n + 1 for n in degrees], Fraction(0), dtype=object)
    for row, value in polynomial.items():
        coefficients[row] += value
    for axis, (n, (lo, hi)) in enumerate(zip(degrees, box, strict=True)):
        # x^k is the mean of products of k of n arguments; at coefficient j, j of them are hi and the others lo
        table = np.array(
            [
                [
                    sum(math.comb(j, i) * math.comb(n - j, k - i) * hi**i * lo ** (k - i) for i in range(k + 1))
                    / Fraction(math.comb(n, k))
                    for k in range(n + 1)
                ]
                for j in range(n + 1)
            ],
            dtype=object,
        )
        coefficients = np.moveaxis(np.tensordot(table, coefficients, axes=(1, axis)), 0, axis)
    return coefficients


def _halved(boxes: np.ndarray, axis: int) -> np.ndarray:
    """Coefficients of both halves of every box along an axis."""
    row = np.moveaxis(boxes, axis, 0).copy()
    left, right = np.empty_like(row), np.empty_like(row)
    last = len(row) - 1
    for step in range(last + 1):
        left[step], right[last - step] = row[0], row[last - step]
        row[: last - step] = (row[: last - step] + row[1 : last - step + 1]) / 2
    return np.concatenate([np.moveaxis(left, 0, axis), np.moveaxis(right, 0, axis)])
