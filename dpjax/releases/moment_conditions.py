"""Conditions on the mean contribution of the records of any table: ranges, linear inequalities, and matrices of moments
that have no negative eigenvalue. They are met by more than what tables can give, never by less."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dpjax.privacy.rational import Exponents
from dpjax.privacy.sensitivity import entry_extremes
from dpjax.statistics.base import UNIT

Row = tuple[int, ...]
#: Beyond so many variables products of distances from bounds are left out: there are four of each pair.
_MOST_VARIABLES = 32
_NEGATIVE = 1e-9  # an eigenvalue of a scaled matrix of moments counts as negative below minus this


@dataclass(frozen=True, eq=False)
class Conditions:
    """Conditions on means s [D].

    low, high: range of each entry [D]; rows, tops: rows[:, :D] @ s + rows[:, D] <= tops; matrices: symmetric matrices
    of moments, by the places of their entries in (s, 1, known), known numbers; centre: means that meet all conditions
    with room to spare [D]. Variables are in units in which none is larger than 1.
    """

    low: np.ndarray
    high: np.ndarray
    rows: np.ndarray
    tops: np.ndarray
    matrices: tuple[np.ndarray, ...]
    known: np.ndarray
    centre: np.ndarray

    def met_within(self, mean: np.ndarray, width: np.ndarray, limit: float) -> bool:
        """Whether, on the way from `mean` to the centre, all is met no further than `limit` widths away."""
        size = len(mean)
        move = 0.0
        upper = np.concatenate(
            [mean - self.high, self.low - mean, self.rows[:, :size] @ mean + self.rows[:, size] - self.tops]
        )
        c = self.centre
        room = np.concatenate([self.high - c, c - self.low, self.tops - self.rows[:, :size] @ c - self.rows[:, size]])
        out = upper > 0
        if out.any():
            move = float((upper[out] / (upper[out] + room[out])).max())
        for places in self.matrices:
            try:
                root = np.linalg.cholesky(self._matrix(c, places))
            except np.linalg.LinAlgError:  # bounds that are narrow beside their distance from 0: rounding decides
                continue
            inner = np.linalg.solve(root, np.linalg.solve(root, self._matrix(mean, places)).T)
            least = float(np.linalg.eigvalsh((inner + inner.T) / 2)[0])
            if least < 0:
                move = max(move, -least / (1 - least))
        return bool(move * np.max(np.abs(c - mean) / width) < limit)

    def planes(self, at: np.ndarray) -> np.ndarray:
        """Rows [*, D + 1] with rows[:, :D] @ s + rows[:, D] <= 0 for means of tables and above 0 for `at`: one for each
        negative eigenvalue."""
        size, found = len(at), []
        for places in self.matrices:
            matrix = self._matrix(at, places)
            units = 1 / np.sqrt(np.maximum(np.diag(self._matrix(self.centre, places)), 1e-300))
            values, vectors = np.linalg.eigh(matrix * units[:, None] * units)
            for q in vectors[:, values < -_NEGATIVE].T:
                direction = q * units
                weights = -np.outer(direction, direction)
                row = np.zeros(size + 1 + len(self.known))
                np.add.at(row, places.ravel(), weights.ravel())
                found.append(np.r_[row[:size], row[size] + row[size + 1 :] @ self.known])
        return np.array(found).reshape(-1, size + 1)

    def _matrix(self, s: np.ndarray, places: np.ndarray) -> np.ndarray:
        return np.concatenate([s, [1.0], self.known])[places]


def of_statistic(statistic: Any, mean: np.ndarray, width: np.ndarray) -> tuple[Conditions, np.ndarray]:
    """The conditions of a `MonomialStatistic`, and the units [D] in which they are: sums divided by n and by these.

    A variable is divided by its largest absolute value; where there are no bounds, by the root of its mean square, for
    which `mean` is taken, or `width` where that is larger.
    """
    rows, box = statistic.exponents, statistic.box
    powers = np.array(rows)
    if statistic.norms is not None:
        tops = np.array([statistic.lengths[0]] * statistic.p + [statistic.lengths[1]]) * statistic.averaged**0.5
        return _of_monomials(rows, (UNIT,) * len(tops), True), np.prod(tops**powers, axis=1)
    if box is None:
        squares = [_power(i, len(rows[0]), 2) for i in range(len(rows[0]))]
        places = [rows.index(row) if row in rows else None for row in squares]
        tops = np.array([1.0 if j is None else max(abs(mean[j]), width[j]) ** 0.5 for j in places])
        return _without_bounds(rows), np.prod(tops**powers, axis=1)
    ends = np.array(box)
    if statistic.redacts:  # a record left out counts as one of value 0
        ends = np.stack([np.minimum(ends[:, 0], 0.0), np.maximum(ends[:, 1], 0.0)], axis=1)
    tops = np.abs(ends).max(axis=1)
    scaled = tuple((lo, hi) for lo, hi in (ends / tops[:, None]).tolist())
    return _of_monomials(rows, scaled, False), np.prod(tops**powers, axis=1)


@lru_cache(maxsize=16)
def _without_bounds(rows: Exponents) -> Conditions:
    """Squares are not negative, and matrices of moments have no negative eigenvalue."""
    size, variables = len(rows), len(rows[0])
    place = {row: j for j, row in enumerate(rows)} | {(0,) * variables: size}
    even = np.array([all(e % 2 == 0 for e in row) for row in rows])
    return Conditions(
        low=np.where(even, 0.0, -np.inf), high=np.full(size, np.inf), rows=np.zeros((0, size + 1)), tops=np.zeros(0),
        matrices=_matrices(place, variables), known=np.zeros(0),
        centre=np.array([_uniform_moment(row, (UNIT,) * variables) for row in rows]),
    )  # fmt: skip


@lru_cache(maxsize=16)
def _of_monomials(rows: Exponents, box: Any, balls: bool) -> Conditions:
    """Variables in a box inside [-1, 1]; balls: the features have at most the length 1."""
    size, variables = len(rows), len(rows[0])
    place = {row: j for j, row in enumerate(rows)}
    place[(0,) * variables] = size
    low, high = entry_extremes(rows, box).T
    linear = _inequalities(place, box)
    known = np.zeros(0)
    inside = box
    last = _power(variables - 1, variables, 2)
    if balls:
        features = variables - 1
        inside = ((-(features**-0.5), features**-0.5),) * features + (box[-1],)
        for row, j in place.items():
            if sum(row[:-1]) == 2 and max(row) == 1:  # x_i x_j <= |x|^2 / 2
                low[j], high[j] = low[j] / 2, high[j] / 2
        trace = np.zeros(size + 1)
        trace[[place[_power(i, variables, 2)] for i in range(features)]] = 1.0
        linear = (np.concatenate([linear[0], trace[None]]), np.append(linear[1], 1.0))
    if last not in place and any(sum(row) == 2 for row in rows) and variables > 1:
        # the square of the target is not released: as large as it can be it excludes nothing
        known = np.array([max(abs(end) for end in box[-1]) ** 2])
        place[last] = size + 1
    centre = np.array([_uniform_moment(row, inside) for row in rows])
    return Conditions(low, high, *linear, _matrices(place, variables), known, centre)


def _inequalities(place: dict[Row, int], box: Sequence[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Linear inequalities between sums of different degree."""
    variables, size = len(box), place[(0,) * len(box)]
    found, tops = [], []

    def add(terms: Sequence[tuple[int, float]], top: float) -> None:
        row = np.zeros(size + 1)
        for j, weight in terms:
            row[j] += weight
        found.append(row)
        tops.append(top)

    single = [_power(i, variables, 1) for i in range(variables)]
    if all(row in place for row in single) and variables <= _MOST_VARIABLES:
        for i, j in itertools.combinations_with_replacement(range(variables), 2):
            product = place.get(_sum(single[i], single[j]))
            if product is None:
                continue
            x, y = place[single[i]], place[single[j]]
            for a, b in itertools.product(box[i], box[j]):
                # (x - a)(y - b) is >= 0 where both are lower or both are upper bounds, else <= 0
                sign = -1.0 if (a == box[i][0]) == (b == box[j][0]) else 1.0
                add([(product, sign), (x, -sign * b), (y, -sign * a)], -sign * a * b)
    for row, j in place.items():  # a square times x_i^2 is at most the largest x_i^2 times that square
        if j < size and all(e % 2 == 0 for e in row):
            for i in range(variables):
                more = place.get(_sum(row, _power(i, variables, 2)))
                if more is not None:
                    add([(more, 1.0), (j, -(max(abs(end) for end in box[i]) ** 2))], 0.0)
    return np.array(found).reshape(-1, size + 1), np.array(tops)


def _matrices(place: dict[Row, int], variables: int) -> tuple[np.ndarray, ...]:
    """Places of the entries of the matrices of moments that the released sums fill."""
    one, single = (0,) * variables, [_power(i, variables, 1) for i in range(variables)]
    pairs = lambda chosen: [_sum(a, b) for a, b in itertools.combinations_with_replacement(chosen, 2)]
    fourth = [row for row in single if _sum(_sum(row, row), _sum(row, row)) in place]
    found: list[np.ndarray] = []
    for basis in ([one, *single], single, single[:-1], [one, *fourth, *pairs(fourth)]):
        sums = [[place.get(_sum(a, b)) for b in basis] for a in basis]
        if len(basis) > 1 and all(j is not None for row in sums for j in row):
            places = np.array(sums, dtype=np.int64)
            if not any(set(places.ravel()) <= set(other.ravel()) for other in found):
                found.append(places)
    return tuple(found)


def _uniform_moment(row: Row, box: Sequence[tuple[float, float]]) -> float:
    """Mean of a monomial where the variables are independent and uniform."""
    value = 1.0
    for e, (lo, hi) in zip(row, box, strict=True):
        value *= sum(hi**i * lo ** (e - i) for i in range(e + 1)) / (e + 1)
    return value


def _power(i: int, variables: int, power: int) -> Row:
    return tuple(power * (k == i) for k in range(variables))


def _sum(a: Row, b: Row) -> Row:
    return tuple(x + y for x, y in zip(a, b, strict=True))
