"""What every statistic of a table has to know, the part that sums of monomials have in common, and the affine map from
bounds to [-1, 1]. The statistics themselves are in `dpjax.statistics.regression` and `dpjax.statistics.family`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float64

from dpjax._base.checks import Bounds, check_choice, shown
from dpjax.errors import InputError
from dpjax.privacy.rational import Exponents
from dpjax.privacy.sensitivity import (
    add_remove_l1,
    add_remove_l2,
    entry_ranges,
    replace_one_is_exact,
    replace_one_l1,
    replace_one_l2,
    rounding_allowance,
)
from dpjax.statistics.traits import Traits

SCALING = "bounds-to-[-1,1]"
ADJACENCIES = ("replace-one", "add-remove")
NORMS = ("l1", "l2")
#: Hyperparameters outside overflow or vanish in float32 arithmetic.
SMALLEST, LARGEST = 1e-12, 1e12
UNIT = (-1.0, 1.0)


class Statistic(Traits):
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
    def parts(self) -> tuple[Statistic, ...]:
        """What is released with noise and a budget of its own each, one after the other in `names`: itself, but for
        a regression with moments."""
        return (self,)

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

    @property
    def booleans(self) -> tuple[str, ...]:
        """Columns whose True and False count as 1 and 0."""
        return ()

    def block(self) -> dict[str, Any]:
        """The block "model" of the release file."""
        raise NotImplementedError

    def from_columns(self, columns: Mapping[str, Any]) -> Float64[np.ndarray, " D"]:
        """Sum over the records of a table, each clipped (or left out) and scaled first.

        Args:
            columns: `variables` -> [n] values in the user's units, n at least 1 (`dpjax.releases.table.read_columns`).

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

    def entry_ranges(self) -> Float64[np.ndarray, " D"] | None:
        """How far one replaced record can move each entry by itself, to rounding; None where nothing bounds it. The
        sensitivity of all entries together is at least the largest of these, also where only a bound above it is
        known."""
        return None

    @property
    def largest_entry(self) -> float:
        """Largest absolute value of an entry of one record, as far as bounds say it."""
        return 1.0

    def check_default_prior(self, grid: Any = None) -> None:
        """Refuse bounds for which `fit` has no default prior: before a release, so that no epsilon is spent on it.

        Args:
            grid: the values, ascending, among which private bounds are sought; None where they are stated.

        Raises:
            InputError: there is none.
        """

    def rounding_allowance(self, records: int) -> float:
        """What float64 arithmetic can add to the L1 (and L2) sensitivity of the sum of this many records."""
        return 0.0

    def largest_sum(self, records: int) -> float:
        """Largest absolute value that an entry of the sum of this many records can have; infinite beyond floats."""
        raise NotImplementedError

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

    @property
    def conjugate_prior_fits(self) -> bool:
        """The same of the default of methods that need a conjugate prior."""
        return self.default_prior_fits

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
    """A statistic whose entries are monomials of variables in a box: sensitivities by `dpjax.privacy.sensitivity`."""

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
        # docs/formulas.md#truncated-sensitivity
        return max(swapped, remove(self.exponents, box)) if self.redacts else swapped

    def entry_ranges(self) -> Float64[np.ndarray, " D"] | None:
        return None if self.box is None else entry_ranges(self.exponents, self.box)

    def is_exact(self, norm: str) -> bool:
        return self.box is not None and replace_one_is_exact(self.exponents, self.box, norm)

    def rounding_allowance(self, records: int) -> float:
        size = self.largest_entry
        if self.integer and records * size <= 2.0**53:
            return 0.0  # sums of whole numbers are exact
        return rounding_allowance(self.dim, records, size, max(map(sum, self.exponents)))

    def largest_sum(self, records: int) -> float:
        return records * self.largest_entry

    @property
    def largest_entry(self) -> float:
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


def split_name(name: str) -> tuple[str, tuple[int, ...]]:
    """Base and indices of a parameter's name: "tau2[2,1]" -> ("tau2", (2, 1)), "rate" -> ("rate", ())."""
    base, _, rest = name.partition("[")
    return base, tuple(int(i) for i in rest.rstrip("]").split(",") if i)


def check_scaling(scaling: Any) -> None:
    """Refuse what is neither `SCALING` nor None."""
    if scaling is not None and not (isinstance(scaling, str) and scaling == SCALING):
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
