"""Privacy of the additive and the inverse Wishart mechanism, exact for one record more or less
(docs/formulas.md#wishart-mechanism).

Both release a noisy version of the Gram matrix G [d, d] of n whole rows (x, y), d = p + 1, whose norm is at most B. A
record more or less is G + uu' against G with `|u| <= B`, and in both cases everything reduces to one chi-square:

- **additive**, G + W, W ~ Wishart(B^2 I, k). In coordinates that end with u, uu' changes only the Schur complement of
  the last entry of W, which is B^2 times a chi-square with q = k - d + 1 degrees of freedom and independent of the
  rest. So the two laws differ as c and c + a do, c ~ chi2_q, a = |u|^2 / B^2 <= 1. For q >= 2 the density is
  log-concave: the worst set is a half-line, whose two terms show that delta grows with a; a = 1 is the worst record.
- **inverse**, InvWishart(G + psi I, nu). Its density ratio depends on u'M^{-1}u alone, which is a multiple of a
  chi-square with nu degrees of freedom, and the two laws differ as c and c / r do, r = 1 + u'(G + psi I)^{-1}u <=
  1 + B^2 / psi. The worst set is again a half-line, and delta grows with r. nu must be public: under "add-remove" it
  must not be computed from the number of records.

delta(epsilon) is then a difference of two tail probabilities. Enlarged by `_ALLOWED_ERROR` of the larger one, so that
rounding does not understate it.

**Replace-one** goes through the table without either record, or with both: for every split e of epsilon
`delta(P, R; epsilon) <= delta(P, Q; e) + exp(e) delta(Q, R; epsilon - e)`. What is returned is the smallest of these
over both ways and a grid of splits: a proven bound, not the exact value; never above the usual group privacy,
(2 e, (1 + exp(e)) delta), which is the split in the middle.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import chdtr, chdtrc

from dpjax._base.checks import check_choice, check_number, shown
from dpjax.errors import InputError
from dpjax.privacy.row_norms import ADJACENCIES

Number = float | int
Delta = Callable[[Any], Any]
"""delta as a function of epsilon >= 0, number or array."""

_ALLOWED_ERROR = (
    1e-10  # of the larger tail probability: SciPy's is good to about 1e-12 here (tests compare with mpmath)
)
_SPLITS = 64  # of epsilon, for replace-one
_LARGEST = 700.0  # beyond, exp(epsilon) overflows; delta there is given as delta here, which is not below it


# --- one record more or less


def wishart_deltas(dim: int, dof: Number, size: Number = 1.0) -> tuple[Delta, Delta]:
    """delta(epsilon) of the additive mechanism in both directions.

    Args:
        dim: d.
        dof: k, at least d + 1.
        size: |u|^2 / B^2 of the record, > 0; 1 is the worst of those allowed, above 1 the bound was not kept.

    Returns:
        Functions of epsilon >= 0 (arrays): the first for the table without the record against the one with it, the
        second the other way.
    """
    q = dof - dim + 1
    half = (q - 2) / 2

    def without(epsilon: Any) -> Any:  # c against c + a: worst are small values
        edge = _edge(half, epsilon + size / 2, size)
        return _difference(chdtr(q, edge), np.exp(epsilon) * chdtr(q, edge - size))

    def within(epsilon: Any) -> Any:  # c + a against c: worst are large values, loss below a / 2
        edge = _edge(half, np.maximum(size / 2 - epsilon, 0), size)
        found = _difference(chdtrc(q, edge - size), np.exp(epsilon) * chdtrc(q, edge))
        return np.where(epsilon < size / 2, found, 0.0)

    return without, within


def _edge(half: float, slope: Any, size: Number) -> Any:
    """x with half * log(x / (x - size)) = slope, from where x = size (half = 0) up to infinity (slope = 0)."""
    if half == 0:
        return np.where(slope > 0, size, np.inf)
    with np.errstate(divide="ignore"):
        return -size / np.expm1(-slope / half)


def inverse_wishart_deltas(dof: Number, ratio: Number) -> tuple[Delta, Delta]:
    """delta(epsilon) of the inverse mechanism in both directions, at the worst Gram matrix.

    Args:
        dof: nu > 0.
        ratio: B^2 / psi.

    Returns:
        As `wishart_deltas`.
    """
    grown = dof * math.log1p(ratio)

    def without(epsilon: Any) -> Any:  # c against c / r: worst are large values
        edge = (grown + 2 * epsilon) / ratio
        return _difference(chdtrc(dof, edge), np.exp(epsilon) * chdtrc(dof, (1 + ratio) * edge))

    def within(epsilon: Any) -> Any:
        edge = np.maximum((grown - 2 * epsilon) / ratio, 0)
        return _difference(chdtr(dof, (1 + ratio) * edge), np.exp(epsilon) * chdtr(dof, edge))

    return without, within


def _difference(first: Any, second: Any) -> Any:
    return np.clip(first - np.where(first > 0, second, 0) + _ALLOWED_ERROR * first, 0, 1)


# --- what follows for an adjacency


def delta_at(deltas: tuple[Delta, Delta], epsilon: Any, adjacency: Any) -> float:
    """Smallest delta that is known for this epsilon: exact for "add-remove", a proven bound for "replace-one".

    Raises:
        InputError: epsilon is not a finite number of at least 0; adjacency not known.
    """
    wanted = "epsilon must be a finite number of at least 0"
    number = check_number(epsilon, wanted)
    if number < 0:
        raise InputError(f"{wanted}, got {epsilon!r}")
    check_choice("adjacency", adjacency, ADJACENCIES)
    number = min(number, _LARGEST)
    if adjacency == "add-remove":
        return float(max(direction(number) for direction in deltas))
    spent = number * np.arange(_SPLITS + 1) / _SPLITS
    ways = [one(spent) + np.exp(spent) * other(number - spent) for one, other in (deltas, deltas[::-1])]
    return float(min(1.0, np.min(ways)))


def epsilon_at(deltas: tuple[Delta, Delta], delta: Any, adjacency: Any) -> float:
    """Smallest epsilon (rounded up) with `delta_at` up to delta; infinity where none is found.

    Raises:
        InputError: delta outside (0, 1); adjacency not known.
    """
    target = probability(delta)
    if delta_at(deltas, 0.0, adjacency) <= target:
        return 0.0
    if delta_at(deltas, _LARGEST, adjacency) > target:
        return math.inf
    return _smallest(lambda epsilon: delta_at(deltas, epsilon, adjacency) <= target)


def published_dof(dim: int, epsilon: Number, delta: Number) -> int:
    """k = floor(d + 28 log(4 / delta) / epsilon^2) (Zhang and Reiter, definition 4)."""
    return math.floor(dim + 28 * math.log(4 / delta) / epsilon**2)


def published_ridge(dof: Number, bound: Number, epsilon: Number, delta: Number) -> float:
    """psi = 2 B^2 / epsilon (2 sqrt(2 nu log(4 / delta)) + 2 log(4 / delta)), nu = n + d (Zhang and Reiter, definition
    5)."""
    logarithm = math.log(4 / delta)
    return 2 * bound**2 / epsilon * (2 * math.sqrt(2 * dof * logarithm) + 2 * logarithm)


def smallest_dof(dim: int, epsilon: Number, delta: Number, adjacency: str) -> int:
    """Smallest k of at least d + 1 with `delta_at` up to delta.

    One degree of freedom more is one independent chi-square more, so delta falls with k and bisection finds it.
    """

    def private(dof: int) -> bool:
        return delta_at(wishart_deltas(dim, dof), epsilon, adjacency) <= delta

    low, high = dim, dim + 1  # low is not offered
    while not private(high):
        low, high = high, dim + 2 * (high - dim)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if private(middle) else (middle, high)
    return high


def smallest_ridge(dof: Number, bound: Number, epsilon: Number, delta: Number, adjacency: str) -> float:
    """Smallest psi (rounded up) with `delta_at` up to delta, at nu degrees of freedom."""

    def private(inverse: Number) -> bool:  # psi / B^2
        return delta_at(inverse_wishart_deltas(dof, 1 / inverse), epsilon, adjacency) <= delta

    return _smallest(private) * bound**2 * (1 + 4 * np.finfo(float).eps)


def _smallest(holds: Callable[[float], bool]) -> float:
    """The positive number from which a monotone condition holds, at most 1e-12 (relative) above it."""
    low = high = 1.0
    while not holds(high):
        low, high = high, 2 * high
    while low == high or holds(low):
        low, high = low / 2, min(low, high)
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


# --- the probability that the loss exceeds epsilon, for comparison with the literature


def wishart_loss_tail(dim: int, dof: Number, epsilon: Number) -> float:
    """Largest P(loss > epsilon) of the two directions, at least delta(epsilon) (docs/formulas.md#wishart-mechanism)."""
    q = dof - dim + 1
    half = (q - 2) / 2
    first = chdtr(q, _edge(half, epsilon + 0.5, 1.0))
    second = chdtrc(q, _edge(half, 0.5 - epsilon, 1.0) - 1) if epsilon < 0.5 else 0.0
    return float(max(first, second))


def inverse_wishart_loss_tail(dof: Number, ratio: Number, epsilon: Number) -> float:
    """As `wishart_loss_tail`, for the inverse mechanism."""
    grown = dof * math.log1p(ratio)
    above = chdtrc(dof, (grown + 2 * epsilon) / ratio)
    below = chdtr(dof, (1 + ratio) * max((grown - 2 * epsilon) / ratio, 0))
    return float(max(above, below))


# --- arguments


def positive(value: Any, name: str) -> float:
    """A finite number > 0.

    Raises:
        InputError: it is not.
    """
    number = check_number(value, f"{name} must be a finite number > 0")
    if not number > 0:
        raise InputError(f"{name} must be a finite number > 0, got {value!r}")
    return number


def probability(value: Any) -> float:
    """delta inside (0, 1).

    Raises:
        InputError: it is not.
    """
    number = check_number(value, "delta must lie inside (0, 1)")
    if not 0 < number < 1:
        raise InputError(f"delta must lie inside (0, 1), got {value!r}")
    return number


def count(value: Any, name: str) -> int:
    """A whole number of at least 1.

    Raises:
        InputError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{name} must be an integer of at least 1, got {shown(value)}")
    return int(value)
