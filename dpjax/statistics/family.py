"""Statistics of one column: sums of powers of a family's record (docs/formulas.md#truncated-sensitivity)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from dpjax._base.checks import Bounds, check_choice, check_name, check_pair, shown
from dpjax._base.signatures import no_field_check
from dpjax.errors import InputError, located
from dpjax.families import Family
from dpjax.privacy.rational import Exponents
from dpjax.privacy.sensitivity import entry_ranges
from dpjax.statistics.base import LARGEST, SMALLEST, UNIT, MonomialStatistic, check_scaling, to_unit
from dpjax.statistics.labels import SOMETHING_ELSE, checked_labels, shown_label

RULES = ("clamp", "redact")
#: How a parameter of an affine family scales with its record: (power of the half width, moves with the centre).
_AFFINE = {"mean": (1, True), "variance": (2, False)}


@no_field_check
@dataclass(frozen=True)
class FamilyStatistic(MonomialStatistic):
    """Sums over records of the powers of v that a family needs; v is x, or log x, perhaps scaled.

    Args:
        family: what is known about a record.
        rule: "clamp" (a record outside of the bounds is moved to the nearer one), "redact" (it contributes
            nothing), or "none" (only, and always, for families whose records are bounded by nature).
        bounds: (a, b) in the user's units of x, inside the family's support; whole numbers for counts, a > 0 where
            v = log x; None with rule "none".
        scaling: `SCALING` (only for families that are closed under affine maps): v is mapped so that the bounds
            become -1 and 1; None: raw.
        column: name of the column x.
        labels: of a family whose records are 0 or 1: the two texts that stand for them in the column, that of 1 (the
            success) last; None: the column holds 0 and 1, or True and False.

    Raises:
        InputError: any of these does not fit.
    """

    family: Family
    rule: str = "none"
    bounds: tuple[float, float] | None = None
    scaling: str | None = None
    column: str = "x"
    labels: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.family, Family):
            raise InputError(f"family must be a dpjax.families.Family, got {shown(self.family)}")
        check_name(self.column)
        check_scaling(self.scaling)
        if self.labels is not None:
            object.__setattr__(self, "labels", self._two_labels())
        if self.scaling is not None and not self.family.affine:
            raise InputError(f"scaling must be null (None): {self.kind} is not closed under affine maps")
        if self.family.bounded:
            if self.rule != "none" or self.bounds is not None:
                raise InputError(f"{self.kind} takes no bounds and no rule: its records are bounded by nature")
            return
        check_choice("rule", self.rule, RULES)
        with located("bounds"):
            object.__setattr__(self, "bounds", self._checked_bounds())

    def _checked_bounds(self) -> tuple[float, float]:
        if self.bounds is None:
            raise InputError(f"bounds are missing for column {self.column!r}: state them a priori, never from the data")
        a, b = check_pair(self.bounds, f"bounds of {self.column!r}")
        if self.family.log:
            if not a > 0:
                raise InputError(f"bounds of {self.column!r} must be above 0 for {self.kind}, got ({a!r}, {b!r})")
            if not math.log(a) < math.log(b):
                raise InputError(f"bounds of {self.column!r} are too close for {self.kind}, got ({a!r}, {b!r})")
            return a, b
        low, high = self.family.support
        if not (low <= a and b <= high):
            raise InputError(
                f"bounds of {self.column!r} must lie in the support [{low:g}, {high:g}] of {self.kind},"
                f" got ({a!r}, {b!r})"
            )
        if self.family.discrete and not (a.is_integer() and b.is_integer()):
            raise InputError(f"bounds of {self.column!r} must be whole numbers for {self.kind}, got ({a!r}, {b!r})")
        return a, b

    def _two_labels(self) -> tuple[str, ...]:
        if not is_binary(type(self.family)):
            raise InputError(f"labels have no place in a release of {self.kind}, whose records are not 0 or 1")
        labels = checked_labels(self.labels)
        if len(labels) != 2:
            raise InputError(
                f"labels of {self.kind} must be two, the second of them a success; got {shown(self.labels)}"
            )
        return labels

    @property
    def kind(self) -> str:
        """Name of the family."""
        return self.family.kind

    @property
    def title(self) -> str:
        options = "".join(f", {name} = {value:g}" for name, value in self.family.options.items())
        success = "" if self.labels is None else f", a success is {shown_label(self.labels[1])}"
        return f"{self.kind}: {self.column}{success}{options}"

    @property
    def texts(self) -> tuple[str, ...]:
        return () if self.labels is None else (self.column,)

    @property
    def booleans(self) -> tuple[str, ...]:
        return (self.column,) if is_binary(type(self.family)) and self.labels is None else ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.family.statistics)

    @property
    def variables(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def integer(self) -> bool:
        return self.family.discrete

    @property
    def column_bounds(self) -> Bounds | None:
        return None if self.bounds is None else {self.column: self.bounds}

    @property
    def truncation(self) -> dict[str, Any] | None:
        return None if self.bounds is None else {"rule": self.rule, "bounds": self.bounds}

    @property
    def value_bounds(self) -> tuple[float, float] | None:
        """(a, b) of v, after the logarithm and the scaling; None with rule "none"."""
        return UNIT if self.scaling and self.bounds is not None else self._raw_bounds

    @property
    def _raw_bounds(self) -> tuple[float, float] | None:
        """Bounds of v before scaling."""
        if self.bounds is None or not self.family.log:
            return self.bounds
        return math.log(self.bounds[0]), math.log(self.bounds[1])

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return self.family.parameters

    @property
    def bounds_grid(self) -> tuple[bool, bool]:
        return self.family.discrete, self.family.log

    @property
    def redacts(self) -> bool:
        return self.rule == "redact"

    @property
    def exponents(self) -> Exponents:
        return tuple((power,) for power in self.family.powers)

    @property
    def box(self) -> tuple[tuple[float, float], ...]:
        return (self.value_bounds or self.family.support,)

    def block(self) -> dict[str, Any]:
        column = {} if self.column == "x" else {"column": self.column}
        labels = {} if self.labels is None else {"labels": self.labels}
        return {"kind": self.kind, **self.family.options, **labels, **column}

    def _numbers(self, columns: Mapping[str, Any]) -> Float64[np.ndarray, " n"]:
        """The column, with labels as 0 and 1."""
        column = np.asarray(columns[self.column])
        if self.labels is None:
            return np.asarray(column, dtype=np.float64)
        if not np.isin(column, self.labels).all():
            raise InputError(SOMETHING_ELSE.format(self.column, "the labels"))
        return (column == self.labels[1]).astype(np.float64)

    def from_columns(self, columns: Mapping[str, Any]) -> Float64[np.ndarray, " D"]:
        v = self._values(self._numbers(columns))
        return np.array([math.fsum(_power(v, power)) for power in self.family.powers])

    def whole_from_columns(self, columns: Mapping[str, Any]) -> Float64[np.ndarray, " D"]:
        v, ends = self._supported(self._numbers(columns)), self._raw_bounds
        if self.scaling and ends is not None:
            v = (v - ends[0]) / (ends[1] - ends[0]) * 2.0 - 1.0
        return np.array([math.fsum(_power(v, power)) for power in self.family.powers])

    def draw_sums(self, records, names, draws, units_of, rng):
        if not self.family.bernoulli:
            return None
        return rng.binomial(records, draws[:, :1]).astype(np.float64)

    def _supported(self, x: np.ndarray) -> np.ndarray:
        """v of all records, which must lie in the support."""
        low, high = self.family.support
        if not self.family.log:
            if not ((x >= low) & (x <= high)).all():
                raise InputError(f"column {self.column!r} does not hold values from {low:g} to {high:g} only")
            return x
        if not (x > 0).all():
            raise InputError(f"column {self.column!r} does not hold values above 0 only")
        v = np.log(x)
        # the logarithm of an end of the support may round to the other side of it
        slack = 4 * np.finfo(np.float64).eps * np.maximum(1.0, np.abs(v))
        if not ((v >= low - slack) & (v <= high + slack)).all():
            raise InputError(f"column {self.column!r} does not hold values whose logarithm is {low:g} to {high:g} only")
        return np.clip(v, low, high)

    def entry_ranges(self) -> np.ndarray:
        ranges = entry_ranges(self.exponents, self.box)
        if not self.redacts:
            return ranges
        # a neighbour's record may also contribute nothing
        low, high = self.box[0]
        return np.maximum(ranges, [max(abs(low), abs(high)) ** power for power in self.family.powers])

    def check_default_prior(self, grid: Sequence[float] | None = None) -> None:
        if self.value_bounds is None:
            return
        ends = [self.value_bounds]
        if grid is not None and not self.scaling:  # the narrowest bounds that may be found, smallest and largest
            ends = [(grid[0], grid[1]), (grid[-2], grid[-1])]
        for low, high in ends:
            for name, value in self.family.weak_prior(low, high).items():
                if name != "mean" and not np.all((np.asarray(value) >= SMALLEST) & (np.asarray(value) <= LARGEST)):
                    what = "bounds" if grid is None else "range of the private bounds"
                    raise InputError(
                        f"{what} of {self.column!r} give the default prior of {self.kind} a {name} of {value:.3g},"
                        f" which must lie between {SMALLEST:g} and {LARGEST:g} for fit: state other bounds or units,"
                        f" got {shown(self.bounds)}"
                    )

    def _values(self, x: np.ndarray) -> np.ndarray:
        """v of the records that enter."""
        if self.family.discrete and not (x == np.floor(x)).all():
            raise InputError(f"column {self.column!r} does not hold whole numbers only, which {self.kind} needs")
        if self.bounds is None:
            return self._supported(x)
        a, b = self.bounds
        v = np.clip(x, a, b) if self.rule == "clamp" else x[(x >= a) & (x <= b)]
        if self.family.log:
            v = np.log(v)
        ends = self._raw_bounds or UNIT
        # clipped once more: the logarithm rounds
        return to_unit(v, *ends) if self.scaling else np.clip(v, *ends)

    @property
    def default_prior_fits(self) -> bool:
        """The priors of location and scale are made for values scaled to [-1, 1]."""
        return not self.family.affine or self.scaling is not None

    def describe(self, name: str) -> str:
        success = "" if self.labels is None else f" = {shown_label(self.labels[1])}"
        return f"{name} of {'log ' if self.family.log else ''}{self.column}{success}"

    def to_user_units(self, draws: Any) -> Float64[np.ndarray, "*shape K"]:
        draws = np.array(draws, dtype=np.float64)
        ends = self._raw_bounds
        if self.scaling is None or ends is None:
            return draws
        centre, half = ends[0] / 2 + ends[1] / 2, ends[1] / 2 - ends[0] / 2
        for k, name in enumerate(self.parameter_names):
            power, moves = _AFFINE[name]
            draws[..., k] = draws[..., k] * half**power + centre * moves
        return draws


def _power(v: np.ndarray, power: int) -> np.ndarray:
    """v^power by products, whose rounding `rounding_allowance` knows."""
    result = v
    for _ in range(power - 1):
        result = result * v
    return result


def is_binary(family: type[Family]) -> bool:
    """Whether the records of a family are 0 or 1."""
    return family.discrete and isinstance(family.support, tuple) and tuple(family.support) == (0.0, 1.0)
