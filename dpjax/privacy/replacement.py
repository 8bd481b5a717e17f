"""How far replacing one record moves a sum of monomials under box bounds: the supremum, in rational arithmetic.

**One record at a corner.** Turn the signs of variables until hi_i >= |lo_i| for all of them (entries only change
signs). Write two records as u = a + h, v = a - h. Both are in the box if and only if |a_i - c_i| + |h_i| <= w_i, with
middle c_i >= 0 and half width w_i, so |a_i| <= hi_i - |h_i|. Every monomial has
t(a + h) - t(a - h) = 2 sum of products of entries of a and h with positive coefficients, so its absolute value is at
most the same with |h_i| for h_i and hi_i - |h_i| for a_i: that of the records u = (hi_1, ..., hi_m) and v = u - 2 |h|,
which are in the box. All entries are at this bound together, so in any norm of absolute values, with M the corner of
the largest absolute values,

    sup over u, v of |t(u) - t(v)|  =  max over v of |t(M) - t(v)|,   and sign(t_j(M)) (t_j(M) - t_j(v)) >= 0.

What is left is the maximum of one polynomial in v. It is known in closed form or by a finite search for

- **bounds of one sign** (lo_i hi_i >= 0 for all i), any monomials: v is the other corner, and every entry moves by its
  whole range;
- **L1 of sums of degree up to 2** with all products u_i u_j, i < j, any number of variables: with H = sum h_i,
  A = sum M_i it is `sum h_i (2 l_i + 2 A - 2 M_i + 4 s_i M_i) + sum (2 - 4 s_i) h_i^2 - 2 H^2`, h_i in [0, w_i]
  (l_i, s_i: whether u_i, u_i^2 is an entry). With all s_i = 1 it is concave and h_i = clip(g_i / 4 - H, 0, w_i); where
  one s_i = 0, it is linear in that h_i, which is 0 or w_i. On [-1, 1]^d this is d (d + 2)^2 / (2 (d + 1)) with the
  sums of u_i and d (d + 1) / 2 without (at equal h_i it is 2 H (d + 2 - H (d + 1) / d), H = d (d + 2) / (2 (d + 1)));
- **L2 on a cube [-b, b]^d**, same sums, b <= 1 if they hold the u_i (all), at most one square missing: with w_0 = 1 in
  front of v where they do, N entries and b = 1, twice the square is
  N^2 + N - 2 S^2 + Q^2 - 2 Q + sum w_i^4, S = sum w_i, Q = sum w_i^2. In one w_i it is 2 w_i^4 + 2 (P - 2) w_i^2 plus a
  linear term, P = Q - w_i^2. As a function of w_i^2 the even part is convex, 0 at 0 and 2 (P - 1) at 1: for P >= 1 an
  end is best, the one with the sign of the linear term. With w_0 = 1, or once one |w_i| = 1, that holds in turn for all
  the others, so the maximum is at a corner: N^2 - S^2, which is N^2 for even N and N^2 - 1 for odd N. (Else, without
  w_0, P < 1 for all i, so Q <= N / (N - 1) and the square is at most (N^2 + N + N / (N - 1)^2) / 2, no more than that
  for N >= 2.) Without one square the difference is convex in that variable, which is thus at an end and plays w_0. For
  other b the same steps hold with M_i = b, N^2 replaced by (1 + d b^2)^2 and S by 1 + b^2 (sum of signs);
- **up to 5 variables**, any box: by bounds on the polynomial over smaller and smaller boxes
  (`dpjax.privacy.polynomials`), above the supremum by at most 2^-36 of it.

Elsewhere a safe bound: the sum of ranges; for L2 the smallest of the root of the sum of squared ranges, twice the
norm of one record, and, for degree up to 2, (1 if the u_i are entries) + sum M_i^2. The last: with w as above and m
likewise of M, the square is at most half of |m|^4 + |w|^4 + sum (m_i^2 - w_i^2)^2, convex in the w_i^2, and at
w_i^2 in {0, m_i^2} at most |m|^4.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from fractions import Fraction
from functools import lru_cache

from dpjax.privacy.polynomials import largest_value
from dpjax.privacy.rational import Box, Exponents, extremes, largest_corner, monomial

VARIABLES = 5
"""Up to this many variables the polynomial is searched."""
_MOST_COEFFICIENTS = 4000  # of the polynomial: 5 variables to the power of 4


@lru_cache(maxsize=256)
def replaced_l1(rows: Exponents, box: Box) -> tuple[Fraction, bool]:
    """The L1 supremum or a bound above it, and whether it is the supremum (within 2^-36 of it)."""
    ranges = sum_of_ranges(rows, box)
    if _of_one_sign(rows, box):
        return ranges, True
    squares = _missing_squares(rows, len(box))
    if squares is not None and len(squares) <= 1:
        return _quadratic_l1(rows, box, squares), True
    if not _can_be_searched(rows, len(box), 1):
        return ranges, False
    corner = largest_corner(box)
    moved: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for row in rows:
        top = monomial(row, corner)
        moved[(0,) * len(box)] += abs(top)
        moved[row] -= 1 if top > 0 else -1
    value, close = largest_value(moved, box)
    return min(value, ranges), close


@lru_cache(maxsize=256)
def replaced_l2(rows: Exponents, box: Box) -> tuple[Fraction, bool]:
    """The square of the L2 supremum or a bound above it, and whether it is the supremum (within 2^-36 of it)."""
    ranges = sum(((high - low) ** 2 for low, high in extremes(rows, box)), Fraction(0))
    if _of_one_sign(rows, box):
        return ranges, True
    if (cube := _cube_l2(rows, box)) is not None:
        return cube, True
    corner = largest_corner(box)
    tops = [monomial(row, corner) for row in rows]
    bounds = [ranges, 4 * sum((top**2 for top in tops), Fraction(0))]
    if max(map(sum, rows)) <= 2:
        linear = any(sum(row) == 1 for row in rows)
        bounds.append((linear + sum((m**2 for m in corner), Fraction(0))) ** 2)
    if not _can_be_searched(rows, len(box), 2):
        return min(bounds), False
    moved: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for row, top in zip(rows, tops, strict=True):
        moved[(0,) * len(box)] += top**2
        moved[row] -= 2 * top
        moved[tuple(2 * e for e in row)] += 1
    value, close = largest_value(moved, box)
    return min(value, *bounds), close


def sum_of_ranges(rows: Exponents, box: Box) -> Fraction:
    """The sum of the ranges of the entries, each by itself: never below the L1 supremum."""
    return sum((high - low for low, high in extremes(rows, box)), Fraction(0))


def _of_one_sign(rows: Exponents, box: Box) -> bool:
    """One record can move every entry by its whole range."""
    return len(rows) == 1 or all(lo * hi >= 0 for lo, hi in box)


def _can_be_searched(rows: Exponents, variables: int, power: int) -> bool:
    size = 1
    for i in range(variables):
        size *= power * max(row[i] for row in rows) + 1
    return variables <= VARIABLES and size <= _MOST_COEFFICIENTS


def _missing_squares(rows: Exponents, variables: int) -> list[int] | None:
    """Variables whose square is no entry, if the entries are of degree up to 2 with all products of two variables."""
    present = set(rows)
    if max(map(sum, rows)) > 2:
        return None
    products = sum(1 for row in present if sum(row) == 2 and max(row) == 1)
    if products < variables * (variables - 1) // 2:
        return None
    return [i for i in range(variables) if _unit(i, variables, 2) not in present]


def _unit(i: int, variables: int, power: int) -> tuple[int, ...]:
    return tuple(power * (k == i) for k in range(variables))


def _quadratic_l1(rows: Exponents, box: Box, unsquared: list[int]) -> Fraction:
    """The largest value over 0 <= h_i <= w_i, in the module's words."""
    m, present = len(box), set(rows)
    tops = [abs(x) for x in largest_corner(box)]
    widths = [(hi - lo) / 2 for lo, hi in box]
    total = sum(tops, Fraction(0))
    slopes = [
        2 * (_unit(i, m, 1) in present) + 2 * total - 2 * tops[i] + (0 if i in unsquared else 4 * tops[i])
        for i in range(m)
    ]
    rest = [i for i in range(m) if i not in unsquared]
    best = Fraction(0)
    for fixed in itertools.product(*((Fraction(0), widths[i]) for i in unsquared)):
        shift = sum(fixed, Fraction(0))
        value = sum((slopes[i] * c for i, c in zip(unsquared, fixed, strict=True)), Fraction(0))
        steps = _concave_maximum([slopes[i] / 4 - shift for i in rest], [widths[i] for i in rest])
        level = sum(steps, Fraction(0))
        value += sum(((slopes[i] - 4 * shift - 2 * h) * h for i, h in zip(rest, steps, strict=True)), Fraction(0))
        best = max(best, value - 2 * level**2)
    return best


def _concave_maximum(slopes: list[Fraction], widths: list[Fraction]) -> list[Fraction]:
    """The h_i in [0, w_i] with the largest `sum (4 g_i h_i - 2 h_i^2) - 2 (sum h_i)^2`: h_i = clip(g_i - H, 0, w_i)
    with H = sum h_i, where the sum falls with H, linearly between the places where one of the h_i meets a bound."""

    def at(level: Fraction) -> list[Fraction]:
        return [min(max(g - level, Fraction(0)), w) for g, w in zip(slopes, widths, strict=True)]

    def excess(level: Fraction) -> Fraction:
        return sum(at(level), Fraction(0)) - level

    ends = sorted({Fraction(0), *(p for g, w in zip(slopes, widths, strict=True) for p in (g, g - w) if p > 0)})
    low, high = 0, len(ends) - 1  # excess is >= 0 at the first and <= 0 at the last
    if excess(ends[high]) > 0 or high == 0:
        return at(ends[high])
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if excess(ends[middle]) >= 0 else (low, middle)
    above, below = excess(ends[low]), excess(ends[high])
    return at(ends[low] + (ends[high] - ends[low]) * above / (above - below) if above > below else ends[low])


def _cube_l2(rows: Exponents, box: Box) -> Fraction | None:
    """The squared L2 supremum on a cube [-b, b]^d; None where the proof does not hold."""
    b, d = box[0][1], len(box)
    missing = _missing_squares(rows, d)
    if missing is None or any((lo, hi) != (-b, b) for lo, hi in box):
        return None
    linear = sum(1 for row in rows if sum(row) == 1)
    if linear not in (0, d) or (linear and (b > 1 or missing)) or (not linear and (d < 2 or len(missing) > 1)):
        return None
    first = 1 if linear else 0
    return (first + d * b**2) ** 2 - min((first + b**2 * (d - 2 * k)) ** 2 for k in range(d + 1))
