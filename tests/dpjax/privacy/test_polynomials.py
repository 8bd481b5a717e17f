"""Largest values of polynomials over boxes: against grids and closed forms, never below, and close."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from dpjax.privacy.polynomials import TOLERANCE, largest_value


def box_of(*pairs):
    return tuple((Fraction(lo), Fraction(hi)) for lo, hi in pairs)


@pytest.mark.parametrize("seed", range(12))
def test_random_polynomials_against_a_grid(seed):
    rng = np.random.default_rng(seed)
    m, degree = 1 + seed % 3, 2 + seed % 4
    rows = [row for row in itertools.product(range(degree + 1), repeat=m) if sum(row) <= degree]
    polynomial = {row: Fraction(float(c)) for row, c in zip(rows, rng.normal(size=len(rows)), strict=True)}
    ends = np.sort(rng.normal(size=(m, 2)), axis=1)
    value, close = largest_value(polynomial, box_of(*ends.tolist()))
    axes = [np.linspace(lo, hi, {1: 20_001, 2: 201, 3: 31}[m]) for lo, hi in ends]
    u = np.stack([axis.ravel() for axis in np.meshgrid(*axes)], axis=-1)
    grid = sum(float(c) * np.prod(u ** np.array(row), axis=1) for row, c in polynomial.items()).max()
    assert close
    assert grid <= float(value) + 1e-13 * max(1, abs(grid))
    assert float(value) <= grid + {1: 1e-6, 2: 5e-3, 3: 0.1}[m] * sum(abs(float(c)) for c in polynomial.values())


@pytest.mark.parametrize("place", [0.3, 1e-5, 0.77, -0.5])
def test_maximum_inside(place):
    # 1 - (x - a)^2 - 2 (y - a)^2 + 3 (x - a)(y - a) / 2, at most 1
    a = Fraction(place)
    polynomial = {
        (0, 0): 1 - a * a * Fraction(3, 2),
        (1, 0): 2 * a - a * Fraction(3, 2),
        (0, 1): 4 * a - a * Fraction(3, 2),
        (2, 0): Fraction(-1),
        (0, 2): Fraction(-2),
        (1, 1): Fraction(3, 2),
    }
    value, close = largest_value(polynomial, box_of((-1, 1), (-1, 1)))
    assert close and 1 <= value <= 1 + 2 * TOLERANCE


def test_maximum_at_a_corner_is_nearly_exact_and_never_below():
    value, close = largest_value({(1, 1): Fraction(1), (2, 0): Fraction(1, 3)}, box_of((-2, 1), (-1, 3)))
    assert (
        close
        and Fraction(13, 3) - 1 < value
        and 0 <= value - max(Fraction(3) + Fraction(1, 3), Fraction(10, 3)) < 1e-12
    )


def test_zero_and_constant():
    assert largest_value({(0,): Fraction(0)}, box_of((0, 1))) == (0, True)
    value, close = largest_value({(0,): Fraction(-3)}, box_of((0, 1)))
    assert close and value == pytest.approx(-3)
