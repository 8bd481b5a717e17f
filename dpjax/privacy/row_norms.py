"""Sensitivities of sums over records whose rows are bounded in norm, and the clipping that makes them true.

A record is a row x of d features and a target y with `|x|_2 <= X` and `|y| <= Y`. Released are sums over records:

- S = sum xx' [d, d], symmetric: its entries i <= j, each with the same noise;
- z = sum xy [d];
- optionally sum y^2.

"replace-one" (n public, one record swapped) is the default; "add-remove" (n private) is what the paper's own formula
belongs to (docs/formulas.md#row-norm-sensitivity), and whoever uses it must not publish n.

**Norm** (docs/formulas.md#half-vectorised-norm). What is released are the entries i <= j, so the norm that counts is
the half-vectorised one, with off-diagonal entries counted once. Over Euclidean balls its supremum equals the Frobenius
one for d >= 2: turning x and x' together leaves `|z|` and every Frobenius norm as they are, and can make the difference
of the two xx' diagonal, where both norms agree. So one number serves both.

Every number is computed in rational arithmetic from the binary value of the bounds and rounded UP to a float: never
below the true supremum. The rounding of the records' products and of their sum is a separate matter
(`dpjax.privacy.sensitivity.rounding_allowance`). Nothing here loads JAX.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from dpjax._base.checks import check_choice, check_number, shown
from dpjax.errors import InputError
from dpjax.privacy.rational import round_up, round_up_root
from dpjax.privacy.sensitivity import replace_one_l1

ADJACENCIES = ("replace-one", "add-remove")


def l2_sensitivity(d: Any, X: Any, Y: Any, *, squares: bool = False, adjacency: str = "replace-one") -> float:
    """L2 sensitivity of (S, z), or of (S, z, sum y^2), released together; exact.

    With A = X^2, B = Y^2 and c = x'v for two records (x, y), (v, w), the squared distance without sum y^2 is
    `|x|^4 + |v|^4 - 2 c^2 + |x|^2 y^2 + |v|^2 w^2 - 2 y w c`, largest at c = -yw/2 where `|c| <= |x||v|` allows it.

    - replace-one, d >= 2 (docs/formulas.md#row-norm-sensitivity): squared, 2 (A + B/2)^2 if B <= 2 A, else 4 A B; with
      sum y^2 (docs/formulas.md#row-norm-sensitivity) the larger of 2 (A + B/2)^2 (if B <= 2 A) and 2 A^2 + A B + B^2
      (orthogonal x, one y = 0): at the best c the distance grows with |x| and |v| and is convex in y^2 and in w^2, so
      these are at 0 or B; where |c| is at its bound the cases of d = 1 apply, and lie below.
    - replace-one, d = 1: the largest over t in [0, 1] of (1 - t^2)^2 A^2 + A B (1 + t)^2, records (X, Y) and (tX, -Y);
      with sum y^2 the larger of 4 A B and A^2 + A B + B^2. (The distance is convex in the square of a record's length,
      so each record is 0 or has a coordinate at its bound. If it is x of one and y of the other, the second derivatives
      exclude an inner maximum. If it is the same of both, an inner maximum has 4 t (1 - t) = 2 r for r = B/A or A/B,
      and (1 - t) (1 + t)^3 there is below 1 + r + r^2.)
    - add-remove: A^2 + A B, with sum y^2 plus B^2.

    Args:
        d: number of features, at least 1.
        X: bound on |x|_2, > 0.
        Y: bound on |y|, > 0.
        squares: whether sum y^2 is released too.
        adjacency: "replace-one" or "add-remove".

    Returns:
        The sensitivity, at most a few units in the last place above the supremum (2.1213203436 for X = Y = 1, d >= 2).

    Raises:
        InputError: an argument outside its range; a result beyond the range of a float.
    """
    d, A, B = check_count(d, "d"), _square(X, "X"), _square(Y, "Y")
    if _is_add_remove(adjacency):
        return round_up_root(_record(A, B, squares))
    return round_up_root(_replaced(d, A, B, squares))


def matrix_l2_sensitivity(d: Any, X: Any, *, adjacency: str = "replace-one") -> float:
    """L2 sensitivity of S alone, exact: replace-one sqrt(2) X^2 (X^2 for d = 1), add-remove X^2
    (docs/formulas.md#row-norm-sensitivity).

    Args, Raises: as `l2_sensitivity`.
    """
    d, A = check_count(d, "d"), _square(X, "X")
    return round_up_root(A * A if _is_add_remove(adjacency) or d == 1 else 2 * A * A)


def cross_l2_sensitivity(X: Any, Y: Any, *, adjacency: str = "replace-one") -> float:
    """L2 sensitivity of z alone, exact for every d: replace-one 2 X Y, add-remove X Y
    (docs/formulas.md#row-norm-sensitivity).

    Args, Raises: as `l2_sensitivity`.
    """
    A, B = _square(X, "X"), _square(Y, "Y")
    return round_up_root(A * B if _is_add_remove(adjacency) else 4 * A * B)


def smallest_eigenvalue_sensitivity(X: Any) -> float:
    """Sensitivity of the smallest eigenvalue of S, X^2 under both adjacencies (docs/formulas.md#row-norm-sensitivity).

    Weyl: adding xx' moves no eigenvalue down and none up by more than |x|^2; replacing a record is a step up and one
    down.

    Args, Raises: as `l2_sensitivity`.
    """
    return round_up(_square(X, "X"))


def l1_sensitivity(d: Any, X: Any, Y: Any, *, squares: bool = False, adjacency: str = "replace-one") -> float:
    """L1 sensitivity of (S, z), or (S, z, sum y^2), for Laplace noise: entries i <= j of S, each counted once.

    - add-remove, exact: sum over i <= j of |x_i x_j| is ((sum |x_i|)^2 + |x|^2) / 2 <= (d + 1) X^2 / 2, and
      sum |x_i| <= sqrt(d) X; both are attained at equal |x_i|, so (d + 1) X^2 / 2 + sqrt(d) X Y (+ Y^2).
    - replace-one, d = 1, exact: `dpjax.privacy.sensitivity.replace_one_l1` on [-X, X] x [-Y, Y].
    - replace-one, d >= 2, a SAFE BOUND, not the supremum: the smaller of

      1. (d / sqrt(2) + 1) X^2 + 2 sqrt(d) X Y (+ Y^2). M = xx' - vv' has Frobenius norm up to sqrt(2) X^2 and trace
         norm up to 2 X^2; the sum over i <= j is half of (sum of all |M_ij|) + (sum of |M_ii|), the first at most d
         times the Frobenius norm, the second at most the trace norm. The L1 norm of z's change is at most sqrt(d) 2 X
         Y, y^2 changes by at most Y^2;
      2. sqrt(D) times the L2 sensitivity, D = d (d + 1) / 2 + d (+ 1) entries (Cauchy-Schwarz).

    Args, Raises: as `l2_sensitivity`.

    Returns:
        The sensitivity or a bound above it.
    """
    d, A, B = check_count(d, "d"), _square(X, "X"), _square(Y, "Y")
    last = B if squares else Fraction(0)
    if _is_add_remove(adjacency):
        return round_up(Fraction(d + 1, 2) * A + _root(d * A * B)[1] + last)
    if d == 1:
        rows = ((2, 0), (1, 1), (0, 2)) if squares else ((2, 0), (1, 1))
        return replace_one_l1(rows, ((-float(X), float(X)), (-float(Y), float(Y))), "joint")
    by_part = d * _root(A * A / 2)[1] + A + 2 * _root(d * A * B)[1] + last
    entries = d * (d + 1) // 2 + d + bool(squares)
    return round_up(min(by_part, _root(entries * _replaced(d, A, B, squares))[1]))


def averaged_l2_sensitivity(d: Any, X: Any, Y: Any, k: Any, *, squares: bool = False) -> float:
    """Replace-one L2 sensitivity of (S, z), or (S, z, sum y^2), of rows averaged as in Alparslan et al. 2023, section
    B.1; exact.

    A row is then the sum of k records over sqrt(k) (`average_rows`). The paper says that the sensitivities stay what
    they were; they do not (docs/formulas.md#averaged-rows), since the record that changes is multiplied with the others
    of its group. With the sum m of the other k - 1 records' features, the change of S is `(uu' - ww') / k`, u = m + x,
    w = m + v; with p = (u + w) / 2, q = (u - w) / 2 its squared Frobenius norm is 8 (|p|^2 |q|^2 + (p'q)^2) / k^2. It
    is convex in m, so |m| = (k - 1) X; for d >= 2 an inner x is no local maximum (the second derivative across w is
    positive), so |x| = |v| = X. Then h = (x + v) / 2 is orthogonal to q, |h|^2 + |q|^2 = X^2, and the largest value
    over the angle is 16 (X^2 - |h|^2) ((k-1)^2 X^2 + |h|^2) / k^2, which for k >= 2 falls with |h|. So

        |change of S| <= f X^2,   |change of z| <= f X Y,   |change of sum y^2| <= f Y^2,   f = 4 (k - 1) / k

    (d = 1 directly); the second by the triangle inequality on m (y - w) + x (e + y) - v (e + w), e the sum of the
    others' y; all three are attained together, at x = -v along m, y = -w, everything at its bound and of one sign.
    Together, for k >= 2: 4 (k - 1) / k times the add-remove value of one record. Tighter by sqrt(2) X^2 / k in S than
    bounding the change of x x' apart from that of the cross products.

    Args:
        d, X, Y, squares: as `l2_sensitivity`.
        k: records in a group, at least 1 (1: `l2_sensitivity`).

    Returns:
        The sensitivity, rounded up; half-vectorised and Frobenius norm agree. The number of records is public.

    Raises:
        InputError: as `l2_sensitivity`; k is not a whole number of at least 1.
    """
    d, A, B, k = check_count(d, "d"), _square(X, "X"), _square(Y, "Y"), check_count(k, "k")
    if k == 1:
        return round_up_root(_replaced(d, A, B, squares))
    return round_up_root(_mixing(k) * _record(A, B, squares))


def averaged_matrix_l2_sensitivity(d: Any, X: Any, k: Any) -> float:
    """Replace-one L2 sensitivity of S of averaged rows alone: 4 (k - 1) / k X^2 for k >= 2
    (`averaged_l2_sensitivity`)."""
    d, A, k = check_count(d, "d"), _square(X, "X"), check_count(k, "k")
    return matrix_l2_sensitivity(d, X) if k == 1 else round_up_root(_mixing(k) * A * A)


def averaged_cross_l2_sensitivity(X: Any, Y: Any, k: Any) -> float:
    """Replace-one L2 sensitivity of z of averaged rows alone: 4 (k - 1) / k X Y for k >= 2
    (`averaged_l2_sensitivity`)."""
    A, B, k = _square(X, "X"), _square(Y, "Y"), check_count(k, "k")
    return cross_l2_sensitivity(X, Y) if k == 1 else round_up_root(_mixing(k) * A * B)


# --- exact rational arithmetic on A = X^2 and B = Y^2


def _record(A: Fraction, B: Fraction, squares: bool) -> Fraction:
    """Largest squared length of one record's statistic: the add-remove value."""
    return A * A + A * B + (B * B if squares else 0)


def _replaced(d: Any, A: Fraction, B: Fraction, squares: bool) -> Fraction:
    """Largest squared distance of two records' statistics (rounded up where d = 1)."""
    if d == 1:
        return max(4 * A * B, _record(A, B, True)) if squares else _opposed(A, B)
    bent = 2 * (A + B / 2) ** 2 if B <= 2 * A else 4 * A * B
    return max(bent, 2 * A * A + A * B + B * B) if squares else bent


def _opposed(A: Fraction, B: Fraction) -> Fraction:
    """max over t in [0, 1] of (1 - t^2)^2 A^2 + A B (1 + t)^2, rounded up.

    The derivative has the sign of B - 2 A t (1 - t): the function rises throughout if 2 B >= A, else first to
    t = (1 - sqrt(1 - 2 B / A)) / 2. There the root lies between two rationals, and each term is taken at the end where
    it is larger.
    """
    straight = 4 * A * B
    if 2 * B >= A:
        return straight
    low, high = _root(1 - 2 * B / A)
    first, last = (1 - high) / 2, (1 - low) / 2
    return max(straight, (1 - first**2) ** 2 * A * A + A * B * (1 + last) ** 2)


def _mixing(k: Any) -> Fraction:
    return Fraction(4 * (k - 1), k) ** 2


def _root(value: Fraction) -> tuple[Fraction, Fraction]:
    """Rationals below and above the root of a positive rational, 2^-100 apart, relatively."""
    shift = 110 + (value.denominator.bit_length() - value.numerator.bit_length()) // 2
    scale = Fraction(2) ** shift
    whole = math.isqrt(math.floor(value * scale * scale))
    return whole / scale, (whole + 1) / scale


# --- arguments


def check_count(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{name} must be an integer of at least 1, got {shown(value)}")
    return int(value)


def _square(value: Any, name: str) -> Fraction:
    wanted = f"{name} must be a finite number > 0"
    number = check_number(value, wanted)
    if not number > 0:
        raise InputError(f"{wanted}, got {value!r}")
    return Fraction(number) ** 2


def _is_add_remove(adjacency: Any) -> bool:
    check_choice("adjacency", adjacency, ADJACENCIES)
    return adjacency == "add-remove"
