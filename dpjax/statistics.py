"""Sufficient statistics: what is summed over the records of a table, how far one record can move the sum, and
the affine map from bounds to [-1, 1]. The statistics of single columns are in `dpjax.family_statistics`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float64, Int64

from dpjax._checks import Bounds, check_bounds, check_choice, check_name, shown
from dpjax.errors import InputError
from dpjax.sensitivity import (
    JOINT_VARIABLES,
    Exponents,
    add_remove_l1,
    add_remove_l2,
    regression_exponents,
    replace_one_l1,
    replace_one_l2,
    rounding_allowance,
)

SCALING = "bounds-to-[-1,1]"
ADJACENCIES = ("replace-one", "add-remove")
NORMS = ("l1", "l2")
UNIT = (-1.0, 1.0)


class Statistic:
    """What is summed over records: the one place that knows entries, columns, clipping, sensitivity and units.

    A subclass is a frozen dataclass. None of this imports JAX: a release needs it.
    """

    @property
    def kind(self) -> str:
        """Name of the model in files and on the command line."""
        raise NotImplementedError

    @property
    def scaling(self) -> str | None:
        """`SCALING` (variables mapped affinely to [-1, 1] before they enter) or None (raw units)."""
        return None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the D released entries, in the order of `from_columns`."""
        raise NotImplementedError

    @property
    def dim(self) -> int:
        """Number of released entries D."""
        return len(self.names)

    @property
    def title(self) -> str:
        """What is summed, in one line of words."""
        raise NotImplementedError

    @property
    def variables(self) -> tuple[str, ...]:
        """Columns of the table."""
        raise NotImplementedError

    @property
    def integer(self) -> bool:
        """Every entry is a whole number (noise of `discrete-laplace` is allowed)."""
        return False

    @property
    def column_bounds(self) -> Bounds | None:
        """(lo, hi) by column in the user's units, or None where nothing is clipped."""
        return None

    @property
    def truncation(self) -> dict[str, Any] | None:
        """The block "truncation" of the release file: rule and bounds of a family's column."""
        return None

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the K reported parameters."""
        raise NotImplementedError

    @property
    def texts(self) -> tuple[str, ...]:
        """Columns that hold text."""
        return ()

    def block(self) -> dict[str, Any]:
        """The block "model" of the release file."""
        raise NotImplementedError

    def from_columns(self, columns: Mapping[str, Any]) -> Float64[np.ndarray, " D"]:
        """Sum over the records of a table, each clipped (or left out) and scaled first.

        Args:
            columns: `variables` -> [n] values in the user's units, n at least 1 (`dpjax._table.read_columns`).

        Returns:
            [D] float64; each entry is rounded once (`math.fsum`), so that the order of the records has no effect.

        Raises:
            InputError: a column is missing or holds what the model cannot have; the message names the column only.
        """
        raise NotImplementedError

    def sensitivity(self, norm: str = "l1", adjacency: str = "replace-one") -> float:
        """How far one record can move the sum, in the units of the release; never below the true value.

        Args:
            norm: "l1" or "l2".
            adjacency: "replace-one" (the number of records is public) or "add-remove".

        Raises:
            InputError: unknown norm or adjacency; a statistic without bounds.
        """
        raise NotImplementedError

    def is_exact(self, norm: str) -> bool:
        """Whether `sensitivity` is the supremum under replace-one, not only a safe bound."""
        return True

    def rounding_allowance(self, records: int) -> float:
        """What float64 arithmetic can add to the L1 (and L2) sensitivity of the sum of this many records."""
        return 0.0

    def describe(self, name: str) -> str:
        """What a parameter is, in terms of the user's columns."""
        raise NotImplementedError

    def to_user_units(self, draws: Any) -> Float64[np.ndarray, "*shape K"]:
        """Parameters [..., K] of the scaled records -> those in the user's units."""
        return np.asarray(draws, dtype=np.float64)

    @property
    def default_prior_fits(self) -> bool:
        """Whether the default prior is made for the units of this release."""
        return True

    def whole_from_columns(self, columns: Mapping[str, Any]) -> Float64[np.ndarray, " D"]:
        """As `from_columns`, with the records that a family's bounds cut off as they are: what the non-private
        posterior of a public table needs."""
        return self.from_columns(columns)

    def dimension(self, base: str) -> str:
        """Name of the dimension of a vector of parameters, `base[...]`, in files of draws."""
        return f"{base}_index"

    def coordinate(self, base: str, index: tuple[int, ...]) -> str:
        """Name of one of its entries."""
        return ",".join(map(str, index))


class MonomialStatistic(Statistic):
    """A statistic whose entries are monomials of variables in a box: sensitivities by `dpjax.sensitivity`."""

    @property
    def redacts(self) -> bool:
        """Records outside of the bounds contribute nothing: a neighbour can also remove a record's whole value."""
        return False

    @property
    def exponents(self) -> Exponents:
        """D rows with the exponent of each variable."""
        raise NotImplementedError

    @property
    def box(self) -> tuple[tuple[float, float], ...] | None:
        """Bounds of each variable as it enters the monomials (after scaling), or None without bounds."""
        raise NotImplementedError

    def sensitivity(self, norm: str = "l1", adjacency: str = "replace-one") -> float:
        check_choice("norm", norm, NORMS)
        check_choice("adjacency", adjacency, ADJACENCIES)
        box = self._needed_box()
        replace, remove = (replace_one_l1, add_remove_l1) if norm == "l1" else (replace_one_l2, add_remove_l2)
        if adjacency == "add-remove":
            return remove(self.exponents, box)
        swapped = replace(self.exponents, box)
        return max(swapped, remove(self.exponents, box)) if self.redacts else swapped  # SPEC A10

    def is_exact(self, norm: str) -> bool:
        box = self.box
        if box is None:
            return False
        return self.dim == 1 or (norm == "l1" and len(box) <= JOINT_VARIABLES)

    def rounding_allowance(self, records: int) -> float:
        size = self._largest_entry()
        if self.integer and records * size <= 2.0**53:
            return 0.0  # sums of whole numbers are exact
        return rounding_allowance(self.dim, records, size, max(map(sum, self.exponents)))

    def _largest_entry(self) -> float:
        box = self._needed_box()
        try:
            return max(
                math.prod(max(abs(lo), abs(hi)) ** e for (lo, hi), e in zip(box, row, strict=True))
                for row in self.exponents
            )
        except OverflowError:
            return math.inf

    def _needed_box(self) -> tuple[tuple[float, float], ...]:
        if self.box is None:
            raise InputError("bounds are missing: without them one record can move the statistic without limit")
        return self.box


@dataclass(frozen=True)
class RegressionStatistic(MonomialStatistic):
    """Sums of products of the record r~ = (1, x_1, ..., x_p, y), without the constant 1 * 1 (its sum is n).

    Entries, in this order: x_1..x_p; x_i x_j for i <= j (i-major); y; x_i y for i = 1..p; y^2. Distinct and
    not constant, so their covariance has full rank (SPEC C3). D = p + p(p+1)/2 + 1 + p + 1.

    Args:
        features: names of the p features, at least one.
        target: name of the response.
        bounds: (lo, hi) of each variable in the user's units; None only without scaling.
        scaling: `SCALING` (each variable clipped and mapped to [-1, 1]) or None (clipped only, if there are bounds).

    Raises:
        InputError: a name that is not text, empty, repeated, or holds '*' or ',' (the release file joins
            names by '*', the command line by ','); the target among the features; no features; bounds that are
            missing or no bounds (`check_bounds`); an unknown scaling.
    """

    # "| Any": what is not a name is refused below in our own words, also where types are checked at run time
    features: tuple[str, ...] | Any
    target: str | Any
    bounds: Bounds | Any | None = field(default=None, hash=False)
    scaling: str | Any | None = None

    kind: ClassVar[str] = "linear-regression"

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
        check_scaling(self.scaling)
        if self.bounds is not None or self.scaling is not None:
            object.__setattr__(self, "bounds", check_bounds(self.bounds, self.variables))

    @property
    def p(self) -> int:
        """Number of features."""
        return len(self.features)

    @property
    def dim(self) -> int:
        """Number of entries D."""
        return len(self.pairs)

    @property
    def title(self) -> str:
        return f"{self.kind}: {self.target} on {', '.join(self.features)} and an intercept"

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

    @property
    def column_bounds(self) -> Bounds | None:
        return self.bounds

    @property
    def exponents(self) -> Exponents:
        return regression_exponents(self.p)

    @property
    def box(self) -> tuple[tuple[float, float], ...] | None:
        if self.bounds is None:
            return None
        return (UNIT,) * len(self.variables) if self.scaling else tuple(self.bounds.values())

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return regression_parameters(self.p)

    def block(self) -> dict[str, Any]:
        return {"kind": self.kind, "features": self.features, "target": self.target, "intercept": True}

    def from_columns(self, columns: Mapping[str, Any]) -> Float64[np.ndarray, " D"]:
        entering = []
        for name in self.variables:
            values = np.asarray(columns[name], dtype=np.float64)
            if self.bounds is not None:
                values = to_unit(values, *self.bounds[name]) if self.scaling else np.clip(values, *self.bounds[name])
            entering.append(values)
        return self.from_records(np.stack(entering[:-1], axis=1), entering[-1])

    def describe(self, name: str) -> str:
        base, index = split_name(name)
        if base == "sigma2":
            return "residual variance"
        if base == "theta":
            return "intercept" if index == (0,) else self.features[index[0] - 1]
        if base == "mu_x":
            return f"mean of {self.features[index[0] - 1]}"
        first, second = (self.features[i - 1] for i in index)
        return f"variance of {first}" if first == second else f"covariance of {first}, {second}"

    @property
    def default_prior_fits(self) -> bool:
        """It is made for variables scaled to [-1, 1]."""
        return self.scaling is not None

    def dimension(self, base: str) -> str:
        return {"theta": "coefficient", "mu_x": "feature", "tau2": "feature_pair"}[base]

    def coordinate(self, base: str, index: tuple[int, ...]) -> str:
        if base == "theta" and index == (0,):
            return "(intercept)" if "intercept" in self.features else "intercept"
        return "*".join(self.features[i - 1] for i in index)

    def to_user_units(self, draws: Any) -> Float64[np.ndarray, "*shape K"]:
        """As `Statistic.to_user_units`, with v' = (v - c) / h for every variable, c and h middle and half width of
        its bounds: theta_i = theta'_i h_y / h_i, theta_0 = c_y + h_y theta'_0 - sum_i theta_i c_i, sigma2 = h_y^2
        sigma2', mu_i = c_i + h_i mu'_i, tau2_ij = h_i h_j tau2'_ij.
        """
        draws = np.asarray(draws, dtype=np.float64)
        if self.scaling is None or self.bounds is None:
            return draws
        p, (lower, upper) = self.p, np.array(list(self.bounds.values())).T
        centre, half = lower / 2 + upper / 2, upper / 2 - lower / 2
        slopes = draws[..., 1 : p + 1] * (half[p] / half[:p])
        row, column = np.tril_indices(p)
        return np.concatenate(
            [
                centre[p] + half[p] * draws[..., :1] - (slopes @ centre[:p])[..., None],
                slopes,
                half[p] ** 2 * draws[..., p + 1 : p + 2],
                centre[:p] + half[:p] * draws[..., p + 2 : 2 * p + 2],
                half[row] * half[column] * draws[..., 2 * p + 2 :],
            ],
            axis=-1,
        )

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


def split_name(name: str) -> tuple[str, tuple[int, ...]]:
    """Base and indices of a parameter's name: "tau2[2,1]" -> ("tau2", (2, 1)), "rate" -> ("rate", ())."""
    base, _, rest = name.partition("[")
    return base, tuple(int(i) for i in rest.rstrip("]").split(",") if i)


def regression_parameters(p: int) -> tuple[str, ...]:
    """Reported parameters of a regression with p features: theta[0] is the intercept, theta[i] and
    mu_x[i] belong to feature i, tau2[i,j] to features i >= j."""
    names = [f"theta[{i}]" for i in range(p + 1)] + ["sigma2"] + [f"mu_x[{i}]" for i in range(1, p + 1)]
    return tuple(names + [f"tau2[{i},{j}]" for i in range(1, p + 1) for j in range(1, i + 1)])


def index_pairs(p: int) -> tuple[tuple[int, int], ...]:
    """Index pairs into (1, x_1, ..., x_p, y) of the entries of the regression statistic with p features."""
    linear = [(0, i) for i in range(1, p + 1)]
    products = [(i, j) for i in range(1, p + 1) for j in range(i, p + 1)]
    return (*linear, *products, (0, p + 1), *((i, p + 1) for i in range(1, p + 2)))


def check_scaling(scaling: Any) -> None:
    """Refuse what is neither `SCALING` nor None."""
    if scaling is not None and scaling != SCALING:
        raise InputError(f"scaling must be {SCALING!r} or None, got {shown(scaling)}")


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
