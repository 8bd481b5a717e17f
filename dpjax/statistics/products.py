"""What regressions with an intercept and through the origin share: sums of products of a record's variables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float64, Int64

from dpjax._base.checks import Bounds, check_bounds, check_name
from dpjax._base.signatures import no_field_check
from dpjax.errors import InputError, located
from dpjax.statistics.base import MonomialStatistic, check_scaling, split_name
from dpjax.statistics.product_sums import draw_product_sums

#: Features that can be fitted: beyond, the D x D matrices of a step are hopeless; nothing above 9 has been measured.
MOST_FEATURES = 30
#: The same without an intercept: a metric of more takes more memory than is reasonable.
MOST_FEATURES_THROUGH_ORIGIN = 100


@no_field_check
@dataclass(frozen=True)
class ProductStatistic(MonomialStatistic):
    """Sums of products of two entries of the record r~ = (1, x_1, ..., x_p, y) of a regression.

    Args:
        features: names of the p features, at least one.
        target: name of the response.
        bounds: (lo, hi) of each variable in the user's units; None only without scaling.
        scaling: `SCALING` (each variable clipped and divided by what the bounds allow) or None (clipped only, if there
            are bounds).

    Raises:
        InputError: a name that is not text, empty, repeated, or holds '*' or ',' (which join names); the target among
            the features; no features; bounds missing or none (`check_bounds`); unknown scaling.
    """

    features: Sequence[str]
    target: str
    bounds: Bounds | None = field(default=None, hash=False)
    scaling: str | None = None

    kind: ClassVar[str] = "linear-regression"
    has_features = several_views = True
    #: Whether y^2 is summed.
    squares = True
    #: Whether the record holds the constant 1.
    intercept: ClassVar[bool]

    def _check_variables(self) -> None:
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

    def _check_bounds(self) -> None:
        if self.bounds is not None or self.scaling is not None:
            with located("bounds"):
                object.__setattr__(self, "bounds", check_bounds(self.bounds, self.variables))

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Entry j is the product of entries a <= b of r~ = (1, x_1, ..., x_p, y)."""
        raise NotImplementedError

    @property
    def base(self) -> ProductStatistic:
        """The same without sums of other products."""
        return self

    @property
    def complete(self) -> ProductStatistic:
        """The same with all sums of products that the model has."""
        return self

    @property
    def units(self) -> tuple[Float64[np.ndarray, " q"], Float64[np.ndarray, " q"]]:
        """(c, h) with which the variables, features then target, enter the sums as (r - c) / h."""
        raise NotImplementedError

    def common(self, others: Iterable[Any]) -> ProductStatistic:
        """The statistic in whose units the parameters of several parties are, this one's and those of `others` of the
        same class: the widest bounds of all."""
        raise NotImplementedError

    @property
    def p(self) -> int:
        """Number of features."""
        return len(self.features)

    @property
    def variables(self) -> tuple[str, ...]:
        """Features, then the target."""
        return (*self.features, self.target)

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
    def dim(self) -> int:
        return len(self.pairs)

    @property
    def column_bounds(self) -> Bounds | None:
        return self.bounds

    def entry_ranges(self) -> Float64[np.ndarray, " D"] | None:
        """As `Statistic.entry_ranges`, by pairs: with many features `exponents` are large."""
        if self.box is None:
            return None
        low, high = np.array([(1.0, 1.0), *self.box]).T
        a, b = self.indices
        corners = np.stack([low[a] * low[b], low[a] * high[b], high[a] * low[b], high[a] * high[b]])
        squares = (a == b) & (low[a] < 0) & (high[a] > 0)
        corners[1:3, a == b] = corners[[0, 3]][:, a == b]
        return corners.max(0) - np.where(squares, 0.0, corners.min(0))

    @property
    def default_prior_fits(self) -> bool:
        return self.conjugate_prior_fits

    @property
    def conjugate_prior_fits(self) -> bool:
        """It is made for variables scaled to [-1, 1]."""
        return self.scaling is not None

    def check_default_prior(self, grid: Any = None) -> None:
        most = MOST_FEATURES if self.intercept else MOST_FEATURES_THROUGH_ORIGIN
        if self.p > most:
            raise InputError(
                f"features must be at most {most}, more cannot be fitted"
                f"{'' if self.intercept else ' (without an intercept)'}; got {self.p}"
            )

    def check_parameters(self, values: Mapping[str, float]) -> None:
        p = self.p
        tau2 = np.zeros((p, p))
        for name, value in values.items():
            base, index = split_name(name)
            if base == "tau2":
                tau2[index[0] - 1, index[1] - 1] = tau2[index[1] - 1, index[0] - 1] = value
        if not np.linalg.eigvalsh(tau2)[0] > 0:
            raise InputError("tau2 must be a positive definite matrix, by its lower triangle row by row")

    def draw_sums(self, records, names, draws, units_of, rng):
        return draw_product_sums(self, records, names, draws, units_of, rng)

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

    def dimension(self, base: str) -> str:
        return {"theta": "coefficient", "mu_x": "feature", "tau2": "feature_pair"}[base]

    def coordinate(self, base: str, index: tuple[int, ...]) -> str:
        if base == "theta" and index == (0,):
            return "(intercept)" if "intercept" in self.features else "intercept"
        return "*".join(self.features[i - 1] for i in index)

    def from_records(self, X: Any, y: Any) -> Float64[np.ndarray, " D"]:
        """Sum of the statistic over records.

        Each entry is the sum of the rounded products, itself rounded once (`math.fsum`): it does not depend on the
        order of the records, and its rounding is what `dpjax.privacy.sensitivity.rounding_allowance` allows for.

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
