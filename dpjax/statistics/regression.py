"""Sufficient statistics of a linear regression with an intercept: sums of products of the record."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float64

from dpjax._base.checks import shown
from dpjax._base.signatures import no_field_check
from dpjax.errors import InputError
from dpjax.kernels.order import index_pairs
from dpjax.privacy.rational import Exponents
from dpjax.privacy.sensitivity import of_both, regression_exponents
from dpjax.statistics.base import UNIT, Statistic, to_unit
from dpjax.statistics.feature_moments import FeatureMoments
from dpjax.statistics.products import ProductStatistic


@no_field_check
@dataclass(frozen=True)
class RegressionStatistic(ProductStatistic):
    """Sums of products of the record r~ = (1, x_1, ..., x_p, y), without the constant 1 * 1 (its sum is n).

    Entries, in this order: x_1..x_p; x_i x_j for i <= j (i-major); y; x_i y for i = 1..p; y^2. Distinct and
    not constant, so their covariance has full rank (docs/formulas.md#distinct-entries). D = p + p(p+1)/2 + 1 + p + 1.

    With moments these are followed by the sums of all monomials of the features of degree 3, then 4 (Bernstein and
    Sheldon 2019, section 3.4.4, docs/formulas.md#moment-sensitivity), which are not in the statistic yet: x*x*x, x*x*z,
    ..., C(p+2, 3) + C(p+3, 4) more. The two parts are released with noise and a budget of their own.

    Args:
        features, target, bounds, scaling: as of `ProductStatistic`; with scaling a variable is mapped to [-1, 1].
        moments: whether third and fourth moments of the features are summed too.

    Raises:
        InputError: as `ProductStatistic`; moments not a bool.
    """

    moments: bool = False

    intercept: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._check_variables()
        if not isinstance(self.moments, bool):
            raise InputError(f"moments must be True or False, got {shown(self.moments)}")
        self._check_bounds()

    @property
    def names(self) -> tuple[str, ...]:
        """As of `ProductStatistic`; with moments also "x*x*x", ..."""
        return super().names + self.feature_moments.names if self.moments else super().names

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
    def pairs(self) -> tuple[tuple[int, int], ...]:
        return index_pairs(self.p)

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
        ranges, moments = super().entry_ranges(), self.feature_moments.entry_ranges() if self.moments else None
        return ranges if ranges is None or moments is None else np.concatenate([ranges, moments])

    def rounding_allowance(self, records: int) -> float:
        if not self.moments:
            return super().rounding_allowance(records)
        return math.nextafter(sum(part.rounding_allowance(records) for part in self.parts), math.inf)

    @property
    def units(self) -> tuple[Float64[np.ndarray, " q"], Float64[np.ndarray, " q"]]:
        if self.scaling is None or self.bounds is None:
            return np.zeros(self.p + 1), np.ones(self.p + 1)
        lower, upper = np.array(list(self.bounds.values())).T
        return lower / 2 + upper / 2, upper / 2 - lower / 2

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return regression_parameters(self.p)

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

    @property
    def default_prior_fits(self) -> bool:
        """It is stated over the bounds; with moments it is made for variables scaled to [-1, 1]."""
        return super().default_prior_fits or (self.bounds is not None and not self.moments)

    def common(self, others: Iterable[RegressionStatistic]) -> RegressionStatistic:
        if self.scaling is None:
            return replace(self, bounds=None)
        all_bounds = [one.bounds or {} for one in (self, *others)]
        pairs = {name: [bounds[name] for bounds in all_bounds] for name in self.variables}
        bounds = {name: (float(min(lo for lo, _ in p)), float(max(hi for _, hi in p))) for name, p in pairs.items()}
        return replace(self, bounds=bounds)

    def from_records(self, X: Any, y: Any) -> Float64[np.ndarray, " D"]:
        """As of `ProductStatistic`; the factors of a moment are multiplied from left to right."""
        usual = super().from_records(X, y)
        if not self.moments:
            return usual
        x = np.asarray(X, dtype=np.float64)
        rows = self.feature_moments.factors
        moments = [math.fsum(math.prod((x[:, i] for i in row[1:]), start=x[:, row[0]])) for row in rows]
        return np.concatenate([usual, moments])

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


def regression_parameters(p: int) -> tuple[str, ...]:
    """Reported parameters of a regression with p features: theta[0] is the intercept, theta[i] and
    mu_x[i] belong to feature i, tau2[i,j] to features i >= j."""
    names = [f"theta[{i}]" for i in range(p + 1)] + ["sigma2"] + [f"mu_x[{i}]" for i in range(1, p + 1)]
    return tuple(names + [f"tau2[{i},{j}]" for i in range(1, p + 1) for j in range(1, i + 1)])


def origin_parameters(p: int) -> tuple[str, ...]:
    """Reported parameters of a regression without an intercept: those of `regression_parameters` without theta[0] and
    the means of the features."""
    return tuple(name for name in regression_parameters(p) if name != "theta[0]" and not name.startswith("mu_x"))
