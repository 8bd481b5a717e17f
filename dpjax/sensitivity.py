"""Sensitivities of sums of monomials of one record under box bounds (SPEC A1, A2, A4).

A record is `u = (u_1, ..., u_m)` with `lo_i <= u_i <= hi_i`; entry j of its statistic is the monomial
`t_j(u) = prod_i u_i ** e_ji`, given by its exponents. The released vector is the sum of t over records.

- replace-one (n public, one record swapped): `sup_{u, v} ||t(u) - t(v)||`;
- add/remove (n private): `sup_u ||t(u)||`. Whoever uses this one must not publish n exactly.

Entries are distinct, so a symmetric matrix counts its off-diagonal entries once: the norms are the
half-vectorised ones, which is what is released (SPEC A4).

Every number is computed in exact rational arithmetic from the binary value of the bounds and rounded UP to
the next float, so it is never below the true sensitivity. The rounding of the records' products and of their
sum is a separate matter: `rounding_allowance`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

import numpy as np

from dpjax.errors import InputError

Exponents = tuple[tuple[int, ...], ...]
_Box = tuple[tuple[Fraction, Fraction], ...]

JOINT_VARIABLES = 3
"""Up to this many variables `method="auto"` uses the exact joint L1 sensitivity of quadratic statistics."""
_JOINT_ENTRIES = 12  # 2 ** (D - 1) sign patterns are enumerated


def regression_exponents(p: Any, intercept: bool = True) -> Exponents:
    """Exponents of the regression statistic over the variables (x_1, ..., x_p, y).

    Args:
        p: number of features, at least 1.
        intercept: with it, also the sums of x_i and y (the unit feature times a variable); the unit feature
            squared is n, public under replace-one, and never an entry.

    Returns:
        D rows of p + 1 exponents in the order of the release file: x_i; x_i x_j for i <= j; y; x_i y; y^2
        (`dpjax.statistics.RegressionStatistic`), D = p(p+1)/2 + p + 1, plus p + 1 with the intercept.
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
    (SPEC A2), `moment_exponents(2, 2)` x, z, x^2, xz, z^2.
    """
    return _moments(variables, 1, degree)


def feature_moment_exponents(p: int) -> Exponents:
    """Third and fourth moments: the rows of `moment_exponents(p, 4)` of degree 3, then 4, C(p+2, 3) + C(p+3, 4) of
    them. With the sums of x and xx', which a regression has anyway, they are all that S0 3.4.4 asks for."""
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
    return np.array([[float(low), float(high)] for low, high in _extremes(*_checked(exponents, bounds))])


def entry_ranges(exponents: Any, bounds: Any) -> np.ndarray:
    """Replace-one sensitivity of each entry alone: `max t_j - min t_j` over the box.

    Args:
        exponents: D rows of m non-negative integers.
        bounds: m pairs (lo, hi), finite, lo < hi, in the units of the variables.

    Returns:
        float64 [D], rounded up. SPEC A1: `u_i^2` has range `max(l^2, h^2)` less its minimum (0 if the bounds
        hold 0), a product its largest corner minus its smallest.

    Raises:
        InputError: malformed exponents or bounds, or a result beyond the range of a float.
    """
    rows, box = _checked(exponents, bounds)
    return np.array([_round_up(high - low) for low, high in _extremes(rows, box)])


def replace_one_l1(exponents: Any, bounds: Any, method: str = "auto") -> float:
    """Replace-one L1 sensitivity of the summed statistic.

    Args:
        exponents: D rows of m non-negative integers (`regression_exponents`, `moment_exponents`).
        bounds: m pairs (lo, hi), finite, lo < hi.
        method: "joint" is the exact supremum, `max_S [max_u q_S(u) - min_u q_S(u)]` over sign patterns S with
            `q_S = sum_j S_j t_j`: for degree <= 2 by enumerating the faces of the box, for one variable of
            any degree by the critical points of a polynomial. "ranges" is the sum of `entry_ranges`, a safe
            bound.
            "auto" is "joint" where it is offered (degree <= 2 in up to 3 variables; one variable), else
            "ranges".

    Returns:
        The sensitivity, never below the true one.

    Raises:
        InputError: as `entry_ranges`; method not known, or "joint" where it is not offered.

    Source: SPEC A1, A2 (the papers' product of widths is wrong both ways).
    """
    rows, box = _checked(exponents, bounds)
    if method not in ("auto", "joint", "ranges"):
        raise InputError(f"method must be 'auto', 'joint' or 'ranges', got {method!r}")
    quadratic = _is_quadratic(rows, len(box))
    offered = joint_offered(rows, len(box))
    if method == "joint" and not offered:
        raise InputError(
            f"method 'joint' is offered for degree up to 2 in up to {JOINT_VARIABLES} variables and for one"
            f" variable, with up to {_JOINT_ENTRIES} entries: use 'ranges'"
        )
    if method == "ranges" or not offered:
        return _round_up(sum((high - low for low, high in _extremes(rows, box)), Fraction(0)))
    return _round_up(_joint_quadratic(rows, box) if quadratic else _joint_polynomial(rows, box))


def joint_offered(exponents: Exponents, variables: int) -> bool:
    """Whether `replace_one_l1` offers the method "joint": its value is then the supremum, not only a safe bound."""
    return (_is_quadratic(exponents, variables) or variables == 1) and len(exponents) <= _JOINT_ENTRIES


def _is_quadratic(exponents: Exponents, variables: int) -> bool:
    return variables <= JOINT_VARIABLES and max(map(sum, exponents)) <= 2


def add_remove_l1(exponents: Any, bounds: Any) -> float:
    """Add/remove L1 sensitivity: `sup_u sum_j |t_j(u)|`, exact for any number of variables.

    Each |t_j| grows with every |u_i|, so the supremum is at the corner of largest |u_i|. Under add/remove the
    number of records is private too and needs its own noise.

    Args, Raises: as `entry_ranges`.
    """
    rows, box = _checked(exponents, bounds)
    return _round_up(sum(_largest(rows, box), Fraction(0)))


def replace_one_l2(exponents: Any, bounds: Any) -> float:
    """Safe bound on the replace-one L2 sensitivity: the smaller of the root of the sum of squared ranges and
    twice the add/remove value. Not the exact supremum.

    Args, Raises: as `entry_ranges`.
    """
    rows, box = _checked(exponents, bounds)
    by_range = sum(((high - low) ** 2 for low, high in _extremes(rows, box)), Fraction(0))
    by_norm = 4 * sum((v**2 for v in _largest(rows, box)), Fraction(0))
    return _round_up_root(min(by_range, by_norm))


def add_remove_l2(exponents: Any, bounds: Any) -> float:
    """Add/remove L2 sensitivity `sup_u ||t(u)||_2`, exact (same corner as `add_remove_l1`)."""
    rows, box = _checked(exponents, bounds)
    return _round_up_root(sum((v**2 for v in _largest(rows, box)), Fraction(0)))


def of_both(norm: str, first: float, second: float) -> float:
    """Safe bound on the sensitivity of two vectors released together, from that of each in the same norm: the sum of
    the two (L1) or the root of the sum of their squares (L2), rounded up."""
    if norm == "l1":
        return _round_up(Fraction(first) + Fraction(second))
    return _round_up_root(Fraction(first) ** 2 + Fraction(second) ** 2)


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


# --- exact rational arithmetic
# -------------------------------------------------------------------------------------


def _checked(exponents: Any, bounds: Any) -> tuple[Exponents, _Box]:
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


def _round_up(value: Fraction) -> float:
    """The smallest float that is not below `value`."""
    try:
        rounded = float(value)
    except OverflowError:
        rounded = math.inf
    if math.isinf(rounded):
        raise InputError("bounds too wide: the sensitivity is beyond the range of a float")
    return math.nextafter(rounded, math.inf) if Fraction(rounded) < value else rounded


def _round_up_root(value: Fraction) -> float:
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


def _power_range(lo: Fraction, hi: Fraction, exponent: int) -> tuple[Fraction, Fraction]:
    ends = sorted((lo**exponent, hi**exponent))
    if exponent and exponent % 2 == 0 and lo <= 0 <= hi:
        return Fraction(0), ends[1]
    return ends[0], ends[1]


def _extremes(rows: Exponents, box: _Box) -> Iterator[tuple[Fraction, Fraction]]:
    """Smallest and largest value of each monomial: the variables are free of each other, so corners
    suffice."""
    for row in rows:
        low = high = Fraction(1)
        for (lo, hi), exponent in zip(box, row, strict=True):
            if not exponent:
                continue
            corners = [a * b for a in (low, high) for b in _power_range(lo, hi, exponent)]
            low, high = min(corners), max(corners)
        yield low, high


def _largest(rows: Exponents, box: _Box) -> list[Fraction]:
    """`max |t_j|`, all attained at the same corner."""
    sizes = [max(abs(lo), abs(hi)) for lo, hi in box]
    return [math.prod((s**e for s, e in zip(sizes, row, strict=True) if e), start=Fraction(1)) for row in rows]


def _sign_patterns(entries: int) -> Iterator[tuple[int, ...]]:
    """S and -S give the same spread, so the first sign is +1."""
    for rest in itertools.product((1, -1), repeat=entries - 1):
        yield (1, *rest)


@lru_cache(maxsize=256)
def _joint_quadratic(rows: Exponents, box: _Box) -> Fraction:
    """Exact joint sensitivity for degree <= 2: faces of the box, one stationary point in each (SPEC A1).

    A face whose Hessian is singular is skipped: its stationary points, if any, form a flat on which q is
    constant and which reaches the boundary of the face, so a smaller face has the same value. In units of 1 /
    L, L the common denominator of the bounds, everything is an integer: U = L u and 2 L^2 q = 2 L slope'U +
    U'hessian U.
    """
    m = len(box)
    unit = math.lcm(*(end.denominator for pair in box for end in pair))
    ends = [(int(lo * unit), int(hi * unit)) for lo, hi in box]
    faces = [tuple(i for i in range(m) if mask >> i & 1) for mask in range(2**m)]
    best = Fraction(0)
    for signs in _sign_patterns(len(rows)):
        hessian = [[0] * m for _ in range(m)]
        slope = [0] * m
        for sign, row in zip(signs, rows, strict=True):
            used = [i for i, e in enumerate(row) for _ in range(e)]
            if len(used) == 1:
                slope[used[0]] += sign * unit
            else:
                hessian[used[0]][used[1]] += sign
                hessian[used[1]][used[0]] += sign
        values = [value for free in faces for value in _stationary_values(hessian, slope, free, ends)]
        best = max(best, max(values) - min(values))
    return best / (2 * unit**2)


def _stationary_values(
    hessian: list[list[int]], slope: list[int], free: tuple[int, ...], ends: list[tuple[int, int]]
) -> list[Fraction]:
    """2 slope'U + U'hessian U at the stationary point of each face with these free coordinates, if it is
    inside."""
    inverse = _integer_inverse(tuple(tuple(hessian[i][j] for j in free) for i in free))
    if inverse is None:
        return []
    adjugate, determinant = inverse
    fixed = [i for i in range(len(ends)) if i not in free]
    values = []
    for corner in itertools.product(*(ends[i] for i in fixed)):
        at = list(zip(fixed, corner, strict=True))
        pull = [slope[i] + sum(hessian[i][j] * v for j, v in at) for i in free]
        point = [-sum(a * b for a, b in zip(row, pull, strict=True)) for row in adjugate]  # times determinant
        inside = all(
            min(lo * determinant, hi * determinant) <= v <= max(lo * determinant, hi * determinant)
            for v, (lo, hi) in zip(point, (ends[i] for i in free), strict=True)
        )
        if inside:
            fixed_part = sum(v * (2 * slope[i] + sum(hessian[i][j] * w for j, w in at)) for i, v in at)
            free_part = sum(a * b for a, b in zip(pull, point, strict=True))
            values.append(fixed_part + Fraction(free_part, determinant))
    return values


@cache
def _integer_inverse(matrix: tuple[tuple[int, ...], ...]) -> tuple[list[list[int]], int] | None:
    """Adjugate and determinant of an integer matrix of size up to 3; None if it is singular."""
    size = len(matrix)
    if size == 0:
        return [], 1

    def minor(i: int, j: int) -> int:
        rest = [[v for c, v in enumerate(row) if c != j] for r, row in enumerate(matrix) if r != i]
        if not rest:
            return 1
        return rest[0][0] if len(rest) == 1 else rest[0][0] * rest[1][1] - rest[0][1] * rest[1][0]

    adjugate = [[(-1) ** (i + j) * minor(j, i) for j in range(size)] for i in range(size)]
    determinant = sum(matrix[0][j] * adjugate[j][0] for j in range(size))
    return None if determinant == 0 else (adjugate, determinant)


@lru_cache(maxsize=256)
def _joint_polynomial(rows: Exponents, box: _Box) -> Fraction:
    """Joint sensitivity of the powers of one variable: an upper bound, above the exact value by about 2^-65
    of the polynomial's size (SPEC A2)."""
    ((lo, hi),) = box
    best = Fraction(0)
    for signs in _sign_patterns(len(rows)):
        q = [Fraction(0)] * (max(row[0] for row in rows) + 1)
        for sign, row in zip(signs, rows, strict=True):
            q[row[0]] += sign
        size = max(abs(lo), abs(hi))
        steepest = sum((k * abs(c) * size ** (k - 1) for k, c in enumerate(q) if k), Fraction(0))
        high, low = max(_value(q, lo), _value(q, hi)), min(_value(q, lo), _value(q, hi))
        for a, b in _root_brackets(_derivative(q), lo, hi):
            # q moves by at most steepest * (b - a) inside a bracket
            high = max(high, _value(q, a) + steepest * (b - a))
            low = min(low, _value(q, a) - steepest * (b - a))
        best = max(best, high - low)
    return best


def _value(coefficients: Sequence[Fraction], x: Fraction) -> Fraction:
    result = Fraction(0)
    for c in reversed(coefficients):
        result = result * x + c
    return result


def _derivative(coefficients: Sequence[Fraction]) -> list[Fraction]:
    return [k * c for k, c in enumerate(coefficients)][1:]


def _root_brackets(coefficients: list[Fraction], lo: Fraction, hi: Fraction) -> list[tuple[Fraction, Fraction]]:
    """Intervals about (hi - lo) / 2^70 wide that together hold every root in [lo, hi].

    Outside the brackets of its derivative a polynomial is monotone, so a sign change there is one root, found
    by bisection; inside them anything may happen, so they are kept.
    """
    if len(coefficients) <= 1:
        return []
    brackets: list[tuple[Fraction, Fraction]] = []
    for a, b in sorted(_root_brackets(_derivative(coefficients), lo, hi)):
        if brackets and a <= brackets[-1][1]:
            a, b = brackets[-1][0], max(b, brackets.pop()[1])
        brackets.append((a, b))
    edges = [lo, *(end for bracket in brackets for end in bracket), hi]
    for a, b in zip(edges[::2], edges[1::2], strict=True):
        if a >= b:
            continue
        at_a, at_b = _value(coefficients, a), _value(coefficients, b)
        if at_a * at_b > 0:
            continue
        while (b - a) * 2**70 > hi - lo:
            middle = (a + b) / 2
            at_middle = _value(coefficients, middle)
            if at_a * at_middle > 0:
                a, at_a = middle, at_middle
            else:
                b = middle
        brackets.append((a, b))
    return brackets
