"""Sufficient statistics of a linear regression with an intercept: sums of products of the record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float64, Int64

from dpjax._base.checks import Bounds, check_bounds, check_name, shown
from dpjax._base.signatures import no_field_check
from dpjax.errors import InputError, located
from dpjax.kernels.order import index_pairs
from dpjax.privacy.rational import Exponents
from dpjax.privacy.sensitivity import of_both, regression_exponents
from dpjax.statistics.base import UNIT, MonomialStatistic, Statistic, check_scaling, split_name, to_unit
from dpjax.statistics.feature_moments import FeatureMoments

#: Features that can be fitted: beyond, the D x D matrices of a step are hopeless; nothing above 9 has been measured.
MOST_FEATURES = 30
#: The same without an intercept: a metric of more takes more memory than is reasonable.
MOST_FEATURES_THROUGH_ORIGIN = 100


@no_field_check
@dataclass(frozen=True)
class RegressionStatistic(MonomialStatistic):
    """Sums of products of the record r~ = (1, x_1, ..., x_p, y), without the constant 1 * 1 (its sum is n).

    Entries, in this order: x_1..x_p; x_i x_j for i <= j (i-major); y; x_i y for i = 1..p; y^2. Distinct and
    not constant, so their covariance has full rank (docs/formulas.md#distinct-entries). D = p + p(p+1)/2 + 1 + p + 1.

    With moments these are followed by the sums of all monomials of the features of degree 3, then 4 (Bernstein and
    Sheldon 2019, section 3.4.4, docs/formulas.md#moment-sensitivity), which are not in the statistic yet: x*x*x, x*x*z,
    ..., C(p+2, 3) + C(p+3, 4) more. The two parts are released with noise and a budget of their own.

    Args:
        features: names of the p features, at least one.
        target: name of the response.
        bounds: (lo, hi) of each variable in the user's units; None only without scaling.
        scaling: `SCALING` (each variable clipped and mapped to [-1, 1]) or None (clipped only, if there are bounds).
        moments: whether third and fourth moments of the features are summed too.

    Raises:
        InputError: a name that is not text, empty, repeated, or holds '*' or ',' (which join names); the target among
            the features; no features; bounds missing or none (`check_bounds`); unknown scaling; moments not a bool.
    """

    features: Sequence[str]
    target: str
    bounds: Bounds | None = field(default=None, hash=False)
    scaling: str | None = None
    moments: bool = False

    kind: ClassVar[str] = "linear-regression"
    intercept: ClassVar[bool] = True

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
        if not isinstance(self.moments, bool):
            raise InputError(f"moments must be True or False, got {shown(self.moments)}")
        if self.bounds is not None or self.scaling is not None:
            with located("bounds"):
                object.__setattr__(self, "bounds", check_bounds(self.bounds, self.variables))

    @property
    def p(self) -> int:
        """Number of features."""
        return len(self.features)

    @property
    def dim(self) -> int:
        """Number of entries D, those of the moments included."""
        return len(self.pairs) + (self.feature_moments.dim if self.moments else 0)

    @property
    def base(self) -> RegressionStatistic:
        """The same without moments; itself if it has none."""
        return replace(self, moments=False) if self.moments else self

    @property
    def feature_moments(self) -> FeatureMoments:
        """The sums of third and fourth moments by themselves, whether or not they are part of this statistic."""
        return FeatureMoments(tuple(self.features), None if self.box is None else self.box[: self.p])

    @property
    def parts(self) -> tuple[Statistic, ...]:
        return (self.base, self.feature_moments) if self.moments else (self,)

    @property
    def title(self) -> str:
        also = ", with third and fourth moments of the features" if self.moments else ""
        return f"{self.kind}: {self.target} on {', '.join(self.features)} and an intercept{also}"

    @property
    def variables(self) -> tuple[str, ...]:
        """Features, then the target."""
        return (*self.features, self.target)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Entry j of the usual sums is the product of entries a <= b of r~ = (1, x_1, ..., x_p, y)."""
        return index_pairs(self.p)

    @property
    def indices(self) -> tuple[Int64[np.ndarray, " D"], Int64[np.ndarray, " D"]]:
        """The two columns of `pairs` as arrays."""
        a, b = np.array(self.pairs, dtype=np.int64).T
        return a, b

    @property
    def names(self) -> tuple[str, ...]:
        """Entry names as in the release file: "x", "x*x", "a*b", "y", "x*y", "y*y"; with moments also "x*x*x", ..."""
        unit = ("", *self.variables)
        usual = tuple(unit[b] if a == 0 else f"{unit[a]}*{unit[b]}" for a, b in self.pairs)
        return usual + self.feature_moments.names if self.moments else usual

    @property
    def column_bounds(self) -> Bounds | None:
        return self.bounds

    @property
    def exponents(self) -> Exponents:
        usual = regression_exponents(self.p)
        return usual + tuple((*row, 0) for row in self.feature_moments.exponents) if self.moments else usual

    @property
    def box(self) -> tuple[tuple[float, float], ...] | None:
        if self.bounds is None:
            return None
        return (UNIT,) * len(self.variables) if self.scaling else tuple(self.bounds.values())

    def sensitivity(self, norm: str = "l1", adjacency: str = "replace-one") -> float:
        """As `Statistic.sensitivity`, of all entries together: with moments a safe bound from those of the two parts,
        which noise of one scale on everything would need. A release gives each of `parts` noise of its own."""
        if not self.moments:
            return super().sensitivity(norm, adjacency)
        usual, moments = (part.sensitivity(norm, adjacency) for part in self.parts)
        return of_both(norm, usual, moments)

    def is_exact(self, norm: str) -> bool:
        return not self.moments and super().is_exact(norm)

    def entry_ranges(self) -> Float64[np.ndarray, " D"] | None:
        """As `Statistic.entry_ranges`, by pairs: with many features `exponents` are large."""
        if self.box is None:
            return None
        low, high = np.array([(1.0, 1.0), *self.box]).T
        a, b = self.indices
        corners = np.stack([low[a] * low[b], low[a] * high[b], high[a] * low[b], high[a] * high[b]])
        squares = (a == b) & (low[a] < 0) & (high[a] > 0)
        corners[1:3, a == b] = corners[[0, 3]][:, a == b]
        ranges = corners.max(0) - np.where(squares, 0.0, corners.min(0))
        moments = self.feature_moments.entry_ranges() if self.moments else None
        return ranges if moments is None else np.concatenate([ranges, moments])

    def rounding_allowance(self, records: int) -> float:
        if not self.moments:
            return super().rounding_allowance(records)
        return math.nextafter(sum(part.rounding_allowance(records) for part in self.parts), math.inf)

    @property
    def units(self) -> tuple[Float64[np.ndarray, " q"], Float64[np.ndarray, " q"]]:
        """(c, h) with which the variables, features then target, enter the sums as (r - c) / h."""
        if self.scaling is None or self.bounds is None:
            return np.zeros(self.p + 1), np.ones(self.p + 1)
        lower, upper = np.array(list(self.bounds.values())).T
        return lower / 2 + upper / 2, upper / 2 - lower / 2

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return regression_parameters(self.p)

    def check_default_prior(self, grid: Any = None) -> None:
        most = MOST_FEATURES if self.intercept else MOST_FEATURES_THROUGH_ORIGIN
        if self.p > most:
            raise InputError(
                f"features must be at most {most}, more cannot be fitted"
                f"{'' if self.intercept else ' (without an intercept)'}; got {self.p}"
            )

    def block(self) -> dict[str, Any]:
        block = {"kind": self.kind, "features": self.features, "target": self.target, "intercept": self.intercept}
        return block | {"moments": True} if self.moments else block

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
        """It is stated over the bounds; with moments it is made for variables scaled to [-1, 1]."""
        return self.scaling is not None or (self.intercept and self.bounds is not None and not self.moments)

    @property
    def conjugate_prior_fits(self) -> bool:
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
        sigma2', mu_i = c_i + h_i mu'_i, tau2_ij = h_i h_j tau2'_ij; the last two may be left out.
        """
        draws = np.asarray(draws, dtype=np.float64)
        if self.scaling is None or self.bounds is None:
            return draws
        p, (centre, half) = self.p, self.units
        slopes = draws[..., 1 : p + 1] * (half[p] / half[:p])
        row, column = np.tril_indices(p)
        converted = [
            centre[p] + half[p] * draws[..., :1] - (slopes @ centre[:p])[..., None],
            slopes,
            half[p] ** 2 * draws[..., p + 1 : p + 2],
        ]
        if draws.shape[-1] > p + 2:  # methods with a known law of the covariates do not report its parameters
            converted.append(centre[:p] + half[:p] * draws[..., p + 2 : 2 * p + 2])
            converted.append(half[row] * half[column] * draws[..., 2 * p + 2 :])
        return np.concatenate(converted, axis=-1)

    def from_records(self, X: Any, y: Any) -> Float64[np.ndarray, " D"]:
        """Sum of the statistic over records.

        Each entry is the sum of the rounded products (of more than two factors from left to right), itself rounded
        once (`math.fsum`): it does not depend on the order of the records, and its rounding is what
        `dpjax.privacy.sensitivity.rounding_allowance` allows for.

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
        usual = [math.fsum(r[a] * r[b]) for a, b in self.pairs]
        factors = self.feature_moments.factors if self.moments else ()
        return np.array(
            usual + [math.fsum(math.prod((X[:, i] for i in row[1:]), start=X[:, row[0]])) for row in factors]
        )


def regression_parameters(p: int) -> tuple[str, ...]:
    """Reported parameters of a regression with p features: theta[0] is the intercept, theta[i] and
    mu_x[i] belong to feature i, tau2[i,j] to features i >= j."""
    names = [f"theta[{i}]" for i in range(p + 1)] + ["sigma2"] + [f"mu_x[{i}]" for i in range(1, p + 1)]
    return tuple(names + [f"tau2[{i},{j}]" for i in range(1, p + 1) for j in range(1, i + 1)])


def origin_parameters(p: int) -> tuple[str, ...]:
    """Reported parameters of a regression without an intercept: those of `regression_parameters` without theta[0] and
    the means of the features."""
    return tuple(name for name in regression_parameters(p) if name != "theta[0]" and not name.startswith("mu_x"))
