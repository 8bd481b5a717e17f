"""Sensitivities of sums of monomials of one record under box bounds (docs/formulas.md#box-sensitivity,
#moment-sensitivity, #half-vectorised-norm).

A record is `u = (u_1, ..., u_m)` with `lo_i <= u_i <= hi_i`; entry j of its statistic is the monomial
`t_j(u) = prod_i u_i ** e_ji`, given by its exponents. The released vector is the sum of t over records.

- replace-one (n public, one record swapped): `sup_{u, v} ||t(u) - t(v)||`;
- add/remove (n private): `sup_u ||t(u)||`. Whoever uses this one must not publish n exactly.

Entries are distinct, so a symmetric matrix counts its off-diagonal entries once: the norms are the
half-vectorised ones, which is what is released (docs/formulas.md#half-vectorised-norm).

Every number is computed in rational arithmetic from the binary value of the bounds and rounded UP to a float, so it is
never below the true sensitivity. Where it is the supremum, and why, is said and proved in `dpjax.privacy.replacement`.
The rounding of the records' products and of their sum is a separate matter: `rounding_allowance`.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from dpjax.errors import InputError
from dpjax.privacy.rational import Exponents, checked, extremes, largest_corner, monomial, round_up, round_up_root
from dpjax.privacy.replacement import replaced_l1, replaced_l2, sum_of_ranges


def regression_exponents(p: Any, intercept: bool = True) -> Exponents:
    """Exponents of the regression statistic over the variables (x_1, ..., x_p, y).

    Args:
        p: number of features, at least 1.
        intercept: with it, also the sums of x_i and y (the unit feature times a variable); the unit feature
            squared is n, public under replace-one, and never an entry.

    Returns:
        D rows of p + 1 exponents in the order of the release file: x_i; x_i x_j for i <= j; y; x_i y; y^2
        (`dpjax.statistics.regression.RegressionStatistic`), D = p(p+1)/2 + p + 1, plus p + 1 with the intercept.
    """
    if isinstance(p, bool) or not isinstance(p, int) or p < 1:
        raise InputError(f"p must be an integer of at least 1, got {p!r}")
    first = 0 if intercept else 1  # index 0 is the unit feature
    pairs = [(a, b) for a in range(first, p + 1) for b in range(a, p + 1) if b > 0]
    pairs += [(a, p + 1) for a in range(first, p + 2)]
    return tuple(tuple((i == a) + (i == b) for i in range(1, p + 2)) for a, b in pairs)


def moment_exponents(variables: int, degree: int) -> Exponents:
    """All non-constant monomials of `variables` variables up to `degree`: C(variables + degree, degree) - 1
    rows.

    By degree, then with the larger power of the earlier variable first: `moment_exponents(1, 4)` is x, x^2, x^3, x^4
    (docs/formulas.md#moment-sensitivity), `moment_exponents(2, 2)` x, z, x^2, xz, z^2.
    """
    return _moments(variables, 1, degree)


def feature_moment_exponents(p: int) -> Exponents:
    """Third and fourth moments: the rows of `moment_exponents(p, 4)` of degree 3, then 4, C(p+2, 3) + C(p+3, 4) of
    them. With the sums of x and xx', which a regression has anyway, they are all that Bernstein and Sheldon 2019,
    section 3.4.4, ask for."""
    return _moments(p, 3, 4)


@lru_cache(maxsize=64)
def _moments(variables: int, lowest: int, highest: int) -> Exponents:
    indices = (
        row
        for degree in range(lowest, highest + 1)
        for row in itertools.combinations_with_replacement(range(variables), degree)
    )
    return tuple(tuple(row.count(i) for i in range(variables)) for row in indices)


def entry_extremes(exponents: Any, bounds: Any) -> np.ndarray:
    """Smallest and largest value of each entry over the box, float64 [D, 2].

    Args, raises: as `entry_ranges`.
    """
    return np.array([[float(low), float(high)] for low, high in extremes(*checked(exponents, bounds))])


def entry_ranges(exponents: Any, bounds: Any) -> np.ndarray:
    """Replace-one sensitivity of each entry alone: `max t_j - min t_j` over the box.

    Args:
        exponents: D rows of m non-negative integers.
        bounds: m pairs (lo, hi), finite, lo < hi, in the units of the variables.

    Returns:
        float64 [D], rounded up. docs/formulas.md#box-sensitivity: `u_i^2` has range `max(l^2, h^2)` less its minimum (0
        if the bounds hold 0), a product its largest corner minus its smallest.

    Raises:
        InputError: malformed exponents or bounds, or a result beyond the range of a float.
    """
    rows, box = checked(exponents, bounds)
    return np.array([round_up(high - low) for low, high in extremes(rows, box)])


def replace_one_l1(exponents: Any, bounds: Any, method: str = "auto") -> float:
    """Replace-one L1 sensitivity of the summed statistic.

    Args:
        exponents: D rows of m non-negative integers (`regression_exponents`, `moment_exponents`).
        bounds: m pairs (lo, hi), finite, lo < hi.
        method: "joint" is the supremum of all entries together, "ranges" the sum of `entry_ranges`, a safe bound.
            "auto" is "joint" where it is known (`replace_one_is_exact`), else "ranges".

    Returns:
        The sensitivity, never below the true one. For the sums of a regression on [-1, 1], d the number of features
        plus 1: d (d + 2)^2 / (2 (d + 1)) with an intercept, d (d + 1) / 2 without.

    Raises:
        InputError: as `entry_ranges`; method not known, or "joint" where it is not known.

    Source: docs/formulas.md#box-sensitivity, #moment-sensitivity (the papers' product of widths is wrong both ways);
    proofs in `dpjax.privacy.replacement`.
    """
    rows, box = checked(exponents, bounds)
    if method not in ("auto", "joint", "ranges"):
        raise InputError(f"method must be 'auto', 'joint' or 'ranges', got {method!r}")
    if method == "ranges":
        return round_up(sum_of_ranges(rows, box))
    value, exact = replaced_l1(rows, box)
    if method == "joint" and not exact:
        raise InputError(
            "method 'joint' is known for sums of degree up to 2 with all products, for bounds of one sign and for few"
            " variables: use 'ranges'"
        )
    return round_up(value)


def replace_one_l2(exponents: Any, bounds: Any) -> float:
    """Replace-one L2 sensitivity of the summed statistic: the supremum where `replace_one_is_exact`, else a safe bound.

    For the sums of a regression on [-1, 1], d the number of features plus 1: with an intercept the root of (d + 1)^2
    for odd d and of (d + 1)^2 - 1 for even d, without of d^2 for even d and of d^2 - 1 for odd d.

    Args, Raises: as `entry_ranges`.
    """
    return round_up_root(replaced_l2(*checked(exponents, bounds))[0])


def replace_one_is_exact(exponents: Any, bounds: Any, norm: str) -> bool:
    """Whether the replace-one sensitivity in this norm ("l1" or "l2") is the supremum (at most 2^-36 of it above),
    not only a safe bound: for the sums of a regression in L1 with any bounds, in L2 with the bounds [-1, 1] or up to 5
    variables; for bounds of one sign; for other sums of few variables.

    Args, Raises: as `entry_ranges`.
    """
    return (replaced_l1 if norm == "l1" else replaced_l2)(*checked(exponents, bounds))[1]


def add_remove_l1(exponents: Any, bounds: Any) -> float:
    """Add/remove L1 sensitivity: `sup_u sum_j |t_j(u)|`, exact for any number of variables.

    Each |t_j| grows with every |u_i|, so the supremum is at the corner of largest |u_i|. Under add/remove the
    number of records is private too and needs its own noise.

    Args, Raises: as `entry_ranges`.
    """
    rows, box = checked(exponents, bounds)
    return round_up(sum((abs(monomial(row, largest_corner(box))) for row in rows), Fraction(0)))


def add_remove_l2(exponents: Any, bounds: Any) -> float:
    """Add/remove L2 sensitivity `sup_u ||t(u)||_2`, exact (same corner as `add_remove_l1`)."""
    rows, box = checked(exponents, bounds)
    return round_up_root(sum((monomial(row, largest_corner(box)) ** 2 for row in rows), Fraction(0)))


def of_both(norm: str, first: float, second: float) -> float:
    """Safe bound on the sensitivity of two vectors released together, from that of each in the same norm: the sum of
    the two (L1) or the root of the sum of their squares (L2), rounded up."""
    if norm == "l1":
        return round_up(Fraction(first) + Fraction(second))
    return round_up_root(Fraction(first) ** 2 + Fraction(second) ** 2)


def rounding_allowance(entries: int, records: int, size: float = 1.0, degree: int = 2) -> float:
    """How much float64 arithmetic can add to the replace-one L1 sensitivity of a sum of monomials.

    A product of two numbers, at most `size` large, is off by half a unit in its last place (2^-54 for the unit
    box), so the difference of two records' products by a whole one per entry; the exactly rounded sum
    (`math.fsum`) of n of them by at most one unit in the last place of n * size, twice. n is public under
    replace-one, so this leaks nothing. About 6e-13 at five entries, 442 records and size 1.

    Args:
        entries: number of entries D.
        records: n.
        size: largest absolute value of an entry of one record.
        degree: largest degree of a monomial; every further factor is another rounding.

    Source: Casacuberta, Shoemate, Vadhan and Wagaman 2022, widespread underestimation of sensitivity.
    """
    products = 1 if degree <= 2 else 2 * (degree - 1)
    return entries * (products * math.ulp(math.nextafter(size, 0.0)) + 2.0 * math.ulp(float(records) * size))
