"""The statistic of a regression through the origin: no intercept, so that variables are scaled and never moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float64

from dpjax._base.checks import check_choice, check_length, shown
from dpjax._base.signatures import no_field_check
from dpjax.errors import InputError
from dpjax.kernels.order import index_pairs
from dpjax.privacy.clipping import average_rows, clip_rows
from dpjax.privacy.rational import Exponents
from dpjax.privacy.row_norms import averaged_l2_sensitivity, l1_sensitivity, l2_sensitivity
from dpjax.privacy.sensitivity import regression_exponents, rounding_allowance
from dpjax.statistics.base import ADJACENCIES, NORMS
from dpjax.statistics.products import ProductStatistic
from dpjax.statistics.regression import origin_parameters

#: Names of the two norm bounds in a release file.
FEATURES, TARGET = "features", "target"


@no_field_check
@dataclass(frozen=True)
class OriginStatistic(ProductStatistic):
    """Sums of products of the record (x_1, ..., x_p, y): x_i x_j for i <= j (i-major), x_i y, and y^2.

    Records are bounded one by one (`bounds`) or by the length of the feature vector (`norms`), and divided by the
    largest absolute value that the bounds allow: an affine map would need an intercept (Alparslan et al. 2023;
    docs/formulas.md#row-norm-sensitivity, #half-vectorised-norm, #averaged-rows).

    Args:
        features, target, bounds, scaling: as of `ProductStatistic`.
        squares: whether y^2 is summed; Alparslan et al. 2023 leave it out and have less noise.
        norms: {"features": X, "target": Y}: |x|_2 <= X and |y| <= Y, in place of bounds; longer rows are shortened.
        averaged: k: rows are averages of k records times sqrt(k) (Alparslan et al. 2023, section B.1), sensitivities
            those of docs/formulas.md#averaged-rows; needs norms.

    Raises:
        InputError: as `ProductStatistic`; norms that are not two numbers > 0, or stand beside bounds.
    """

    squares: bool = True
    norms: Mapping[str, float] | None = None
    averaged: int = 1

    intercept: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.squares, bool):
            raise InputError(f"squares must be True or False, got {shown(self.squares)}")
        if isinstance(self.averaged, bool) or not isinstance(self.averaged, int) or self.averaged < 1:
            raise InputError(f"averaged must be a whole number of records, at least 1; got {shown(self.averaged)}")
        if self.norms is None:
            if self.averaged > 1:
                raise InputError("averaged needs norms: bounds on |x| and |y|")
        elif self.bounds is not None and not (isinstance(self.bounds, Mapping) and len(self.bounds) == 0):
            raise InputError("norms and bounds exclude each other: give one of them")
        self._check_variables()
        if self.norms is None:
            self._check_bounds()
            return
        object.__setattr__(self, "bounds", None)
        object.__setattr__(self, "norms", _checked_norms(self.norms))

    def __hash__(self) -> int:
        return hash((self.features, self.target, self.scaling, self.squares, self.averaged))

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        pairs = tuple((a, b) for a, b in index_pairs(self.p) if a)
        return pairs if self.squares else pairs[:-1]

    @property
    def complete(self) -> OriginStatistic:
        return replace(self, squares=True)

    @property
    def title(self) -> str:
        also = "" if self.squares else ", without the square of the target"
        return f"{self.kind}: {self.target} on {', '.join(self.features)} through the origin{also}"

    @property
    def details(self) -> tuple[str, ...]:
        found = ["through the origin" + ("" if self.squares else " without the target's squares")]
        if self.norms is not None:
            found.append("norms of features {features:.6g}, of the target {target:.6g}".format(**self.norms))
        if self.averaged > 1:
            found.append(f"records that are averages of {self.averaged}")
        return tuple(found)

    @property
    def exponents(self) -> Exponents:
        rows = regression_exponents(self.p, intercept=False)
        return rows if self.squares else rows[:-1]

    @property
    def largest(self) -> Float64[np.ndarray, " q"]:
        """Largest absolute value of each variable that the bounds allow, in the user's units; 1 without bounds."""
        if self.norms is not None:
            return np.array([self.norms[FEATURES]] * self.p + [self.norms[TARGET]])
        if self.bounds is None:
            return np.ones(self.p + 1)
        return np.array([max(abs(lo), abs(hi)) for lo, hi in self.bounds.values()])

    @property
    def half(self) -> Float64[np.ndarray, " q"]:
        """By what each variable is divided."""
        return self.largest if self.scaling else np.ones(self.p + 1)

    @property
    def units(self) -> tuple[Float64[np.ndarray, " q"], Float64[np.ndarray, " q"]]:
        return np.zeros(self.p + 1), self.half

    @property
    def box(self) -> tuple[tuple[float, float], ...] | None:
        if self.bounds is None:
            return None
        if not self.scaling:
            return tuple(self.bounds.values())
        return tuple((lo / top, hi / top) for (lo, hi), top in zip(self.bounds.values(), self.half, strict=True))

    @property
    def lengths(self) -> tuple[float, float]:
        """Bounds on |x| and |y| as they enter the sums."""
        assert self.norms is not None
        return (1.0, 1.0) if self.scaling else (self.norms[FEATURES], self.norms[TARGET])

    def sensitivity(self, norm: str = "l1", adjacency: str = "replace-one") -> float:
        """As `Statistic.sensitivity`; with norms docs/formulas.md#row-norm-sensitivity (L2), or a safe bound (L1,
        averaged rows)."""
        if self.norms is None:
            return super().sensitivity(norm, adjacency)
        check_choice("norm", norm, NORMS)
        check_choice("adjacency", adjacency, ADJACENCIES)
        if self.averaged == 1:
            of = l1_sensitivity if norm == "l1" else l2_sensitivity
            return of(self.p, *self.lengths, squares=self.squares, adjacency=adjacency)
        if adjacency != "replace-one":
            raise InputError("averaged rows have no add-remove sensitivity: a record more moves all groups")
        if norm == "l1":
            raise InputError("averaged rows have a sensitivity in the L2 norm only: use gaussian noise")
        return averaged_l2_sensitivity(self.p, *self.lengths, self.averaged, squares=self.squares)

    def is_exact(self, norm: str) -> bool:
        if self.norms is None:
            return super().is_exact(norm)
        return norm == "l2" or (self.p == 1 and self.averaged == 1)

    def entry_ranges(self) -> Float64[np.ndarray, " D"] | None:
        """As `Statistic.entry_ranges`; of averaged rows what two records along one direction move, a bound below."""
        if self.norms is None:
            return super().entry_ranges()
        X, Y = self.lengths
        k = self.averaged
        a, b = self.indices
        mixed = 4 * (k - 1) / k
        of_x = np.where(a == b, X * X * (mixed or 1.0), X * X * (mixed / 2 or 1.0))
        return np.where(b <= self.p, of_x, np.where(a <= self.p, X * Y * (mixed or 2.0), Y * Y * (mixed or 1.0)))

    def rounding_allowance(self, records: int) -> float:
        if self.norms is None:
            return super().rounding_allowance(records)
        # shortening and averaging round too: a few ulp of every factor
        return rounding_allowance(self.dim, records, self.largest_entry, 6)

    @property
    def largest_entry(self) -> float:
        if self.norms is None:
            return super().largest_entry
        return max(self.lengths) ** 2 * self.averaged * (1 + 1e-9)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return origin_parameters(self.p)

    def block(self) -> dict[str, Any]:
        block = {"kind": self.kind, "features": self.features, "target": self.target, "intercept": False}
        if not self.squares:
            block["squares"] = False
        if self.averaged > 1:
            block["averaged"] = self.averaged
        if self.norms is not None:
            block["norms"] = dict(self.norms)
        return block

    def from_columns(self, columns: Mapping[str, Any]) -> Float64[np.ndarray, " D"]:
        x = np.stack([np.asarray(columns[name], dtype=np.float64) for name in self.features], axis=1)
        y = np.asarray(columns[self.target], dtype=np.float64)
        if self.norms is not None:
            x, y = clip_rows(x, y, self.norms[FEATURES], self.norms[TARGET])
        elif self.bounds is not None:
            low, high = np.array(list(self.bounds.values())).T
            x, y = np.clip(x, low[:-1], high[:-1]), np.clip(y, low[-1], high[-1])
        if self.averaged > 1:
            if len(y) % self.averaged:
                raise InputError(f"averaged must divide the number of records, which {self.averaged} does not")
            x, y = average_rows(x, y, self.averaged)
        return self.from_records(x / self.half[:-1], y / self.half[-1])

    def common(self, others: Iterable[OriginStatistic]) -> OriginStatistic:
        members = (self, *others)
        squares, bounds = any(one.squares for one in members), None
        if self.scaling is not None:
            top = np.max([one.largest for one in members], axis=0)
            bounds = {name: (-value, value) for name, value in zip(self.variables, top.tolist(), strict=True)}
        return replace(self, bounds=bounds, norms=None, averaged=1, squares=squares)

    def to_user_units(self, draws: Any) -> Float64[np.ndarray, "*shape K"]:
        """theta_i = theta'_i h_y / h_i, sigma2 = h_y^2 sigma2', tau2_ij = h_i h_j tau2'_ij, h the divisors; parameters
        at the end may be left out."""
        draws = np.asarray(draws, dtype=np.float64)
        p, half = self.p, self.half
        row, column = np.tril_indices(p)
        factors = np.concatenate([half[p] / half[:p], half[p:] ** 2, half[row] * half[column]])
        return draws * factors[: draws.shape[-1]]


def _checked_norms(norms: Any) -> dict[str, float]:
    wanted = f"norms must be {{{FEATURES!r}: X, {TARGET!r}: Y}} with finite numbers > 0"
    if not isinstance(norms, Mapping) or set(norms) != {FEATURES, TARGET}:
        raise InputError(f"{wanted}, got {shown(norms)}")
    return {name: check_length(norms[name], wanted) for name in (FEATURES, TARGET)}
