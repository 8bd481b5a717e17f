"""Sufficient statistics of the models: their entries, their names, and the affine map from bounds to [-1,
1]."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from dpjax.errors import InputError

Bounds = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class RegressionStatistic:
    """Sums of products of the record r~ = (1, x_1, ..., x_p, y), without the constant 1 * 1 (its sum is n).

    Entries, in this order: x_1..x_p; x_i x_j for i <= j (i-major); y; x_i y for i = 1..p; y^2. Distinct and
    not constant, so their covariance has full rank (SPEC C3). D = p + p(p+1)/2 + 1 + p + 1.

    Args:
        features: names of the p features, at least one.
        target: name of the response.

    Raises:
        InputError: a name that is not text, empty, repeated, or holds '*' or ',' (the release file joins
            names by '*', the command line by ','); the target among the features; no features.
    """

    # "| Any": what is not a name is refused below in our own words, also where types are checked at run time
    features: tuple[str, ...] | Any
    target: str | Any

    def __post_init__(self) -> None:
        if isinstance(self.features, str) or not isinstance(self.features, Sequence) or not self.features:
            raise InputError(f"features must be a non-empty list of column names, got {self.features!r}")
        object.__setattr__(self, "features", tuple(self.features))
        for name in (*self.features, self.target):
            check_name(name)
        if self.target in self.features:
            raise InputError(f"target {self.target!r} is also among the features: a column has one role")
        for name in self.features:
            if self.features.count(name) > 1:
                raise InputError(f"feature {name!r} is named more than once")

    @property
    def p(self) -> int:
        """Number of features."""
        return len(self.features)

    @property
    def dim(self) -> int:
        """Number of entries D."""
        return len(self.pairs)

    @property
    def variables(self) -> tuple[str, ...]:
        """Features, then the target."""
        return (*self.features, self.target)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Entry j is the product of entries a <= b of r~ = (1, x_1, ..., x_p, y)."""
        return index_pairs(self.p)

    @property
    def indices(self) -> tuple[Int64[np.ndarray, " D"], Int64[np.ndarray, " D"]]:
        """The two columns of `pairs` as arrays."""
        a, b = np.array(self.pairs, dtype=np.int64).T
        return a, b

    @property
    def names(self) -> tuple[str, ...]:
        """Entry names as in the release file: "x", "x*x", "a*b", "y", "x*y", "y*y"."""
        unit = ("", *self.variables)
        return tuple(unit[b] if a == 0 else f"{unit[a]}*{unit[b]}" for a, b in self.pairs)

    def from_records(self, X: Any, y: Any) -> Float64[np.ndarray, " D"]:
        """Sum of the statistic over records.

        Each entry is the sum of the rounded products, itself rounded once (`math.fsum`): it does not depend
        on the order of the records, and its rounding is what `dpjax.sensitivity.rounding_allowance` allows
        for.

        Args:
            X: [n, p] numbers, n at least 1.
            y: [n] numbers.

        Returns:
            [D] float64 in the units of X and y.

        Raises:
            InputError: wrong shape, no records, or a value that is not finite. The message holds no value.
        """
        X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
        if X.ndim != 2 or X.shape[1] != self.p or y.shape != X.shape[:1]:
            raise InputError(f"records must be X [n, {self.p}] and y [n] with the same n")
        if len(y) == 0:
            raise InputError("there are no records")
        if not (np.isfinite(X).all() and np.isfinite(y).all()):
            raise InputError("records must be finite numbers")
        r = [np.ones_like(y), *X.T, y]
        return np.array([math.fsum(r[a] * r[b]) for a, b in self.pairs])


def index_pairs(p: int) -> tuple[tuple[int, int], ...]:
    """Index pairs into (1, x_1, ..., x_p, y) of the entries of the regression statistic with p features."""
    linear = [(0, i) for i in range(1, p + 1)]
    products = [(i, j) for i in range(1, p + 1) for j in range(i, p + 1)]
    return (*linear, *products, (0, p + 1), *((i, p + 1) for i in range(1, p + 2)))


def check_name(name: Any) -> None:
    """Refuse a column name that a release file cannot hold.

    Raises:
        InputError: not text, empty, with '*' or ',', or with blanks or control characters around or inside
        it.
    """
    if not isinstance(name, str) or not name:
        raise InputError(f"a column name must be non-empty text, got {name!r}")
    for sign in "*,":
        if sign in name:
            raise InputError(f"column name {name!r} holds {sign!r}, which separates names here: rename the column")
    if name != name.strip() or not name.isprintable():
        raise InputError(f"column name {name!r} has blanks around it or control characters: rename the column")


def check_bounds(bounds: Any, variables: Sequence[str]) -> Bounds:
    """Bounds of each variable as floats, in the order of `variables`.

    Bounds are stated a priori: taken from the data they leak it (SPEC A7), so there is no default.

    Args:
        bounds: mapping of each variable, and no other, to a pair (lo, hi) in the user's units.
        variables: names of the variables.

    Raises:
        InputError: not a mapping; a variable without bounds; bounds for another name; not two finite numbers
            with lo < hi and a finite width.
    """
    if not isinstance(bounds, Mapping):
        raise InputError(f"bounds must map each column to (lo, hi), got {type(bounds).__name__}")
    for name in variables:
        if name not in bounds:
            raise InputError(f"bounds are missing for column {name!r}: state them a priori, never from the data")
    for name in bounds:
        if name not in variables:
            raise InputError(f"bounds are given for {name!r}, which the model does not use")
    return {name: _pair(bounds[name], name) for name in variables}


def _pair(pair: Any, name: str) -> tuple[float, float]:
    wanted = f"bounds of {name!r} must be two finite numbers lo < hi"
    if isinstance(pair, str) or not isinstance(pair, Sequence | np.ndarray) or len(pair) != 2:
        raise InputError(f"{wanted}, got {shown(pair)}")
    try:
        lo, hi = (check_number(value, wanted) for value in pair)
    except InputError as error:
        raise InputError(f"{wanted}, got {shown(pair)}") from error
    if not lo < hi or not math.isfinite(hi - lo):
        raise InputError(f"{wanted} with a finite width, got ({lo!r}, {hi!r})")
    return lo, hi


def check_number(value: Any, wanted: str) -> float:
    """A finite number as a float; text, bool and complex are refused.

    Raises:
        InputError: `wanted`, then what was given.
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise InputError(f"{wanted}, got {shown(value)}")


def shown(value: Any) -> str:
    """Short text of a value for an error message."""
    try:
        text = repr(value)
    except Exception:  # such as an integer too long for Python to print
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def to_unit(values: Any, lo: float | int, hi: float | int) -> Float64[np.ndarray, "*shape"]:
    """Clip to [lo, hi], then map affinely to [-1, 1]; the result is inside [-1, 1] exactly.

    Args:
        values: numbers in the user's units.
        lo, hi: bounds, lo < hi, finite width.
    """
    clipped = np.clip(np.asarray(values, dtype=np.float64), lo, hi)
    return np.clip((clipped - lo) / (hi - lo) * 2.0 - 1.0, -1.0, 1.0)


def from_unit(values: Any, lo: float | int, hi: float | int) -> Float64[np.ndarray, "*shape"]:
    """Inverse of `to_unit` on [-1, 1], continued affinely outside it (posterior values are not clipped)."""
    return lo + (np.asarray(values, dtype=np.float64) + 1.0) / 2.0 * (hi - lo)
