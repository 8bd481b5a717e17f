"""Statistics of one column: sums of powers of a family's record, and counts of categories (SPEC A9, A10)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float64

from dpjax._checks import Bounds, check_choice, check_name, check_pair, shown
from dpjax.errors import InputError
from dpjax.families import Family
from dpjax.sensitivity import Exponents
from dpjax.statistics import (
    ADJACENCIES,
    NORMS,
    UNIT,
    MonomialStatistic,
    Statistic,
    check_scaling,
    split_name,
    to_unit,
)

RULES = ("clamp", "redact")
LARGEST_CATEGORIES = 100_000
#: How a parameter of an affine family scales with its record: (power of the half width, moves with the centre).
_AFFINE = {"mean": (1, True), "variance": (2, False)}


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

    Raises:
        InputError: any of these does not fit.
    """

    family: Family | Any
    rule: str | Any = "none"
    bounds: tuple[float, float] | Any | None = None
    scaling: str | Any | None = None
    column: str | Any = "x"

    def __post_init__(self) -> None:
        if not isinstance(self.family, Family):
            raise InputError(f"family must be a dpjax.families.Family, got {shown(self.family)}")
        check_name(self.column)
        check_scaling(self.scaling)
        if self.scaling is not None and not self.family.affine:
            raise InputError(f"scaling must be null (None): {self.kind} is not closed under affine maps")
        if self.family.bounded:
            if self.rule != "none" or self.bounds is not None:
                raise InputError(f"{self.kind} takes no bounds and no rule: its records are bounded by nature")
            return
        check_choice("rule", self.rule, RULES)
        if self.bounds is None:
            raise InputError(f"bounds are missing for column {self.column!r}: state them a priori, never from the data")
        object.__setattr__(self, "bounds", self._checked_bounds())

    def _checked_bounds(self) -> tuple[float, float]:
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

    @property
    def kind(self) -> str:
        """Name of the family."""
        return self.family.kind

    @property
    def title(self) -> str:
        options = "".join(f", {name} = {value:g}" for name, value in self.family.options.items())
        return f"{self.kind}: {self.column}{options}"

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
        return {"kind": self.kind, **self.family.options, **column}

    def from_columns(self, columns: Mapping[str, Any]) -> Float64[np.ndarray, " D"]:
        v = self._values(np.asarray(columns[self.column], dtype=np.float64))
        return np.array([math.fsum(_power(v, power)) for power in self.family.powers])

    def whole_from_columns(self, columns: Mapping[str, Any]) -> Float64[np.ndarray, " D"]:
        x = np.asarray(columns[self.column], dtype=np.float64)
        if self.family.log:
            if not (x > 0).all():
                raise InputError(f"column {self.column!r} does not hold values above 0 only")
            x = np.log(x)
        v, ends = self._supported(x), self._raw_bounds
        if self.scaling and ends is not None:
            v = (v - ends[0]) / (ends[1] - ends[0]) * 2.0 - 1.0
        return np.array([math.fsum(_power(v, power)) for power in self.family.powers])

    def _supported(self, v: np.ndarray) -> np.ndarray:
        low, high = self.family.support
        if not ((v >= low) & (v <= high)).all():
            raise InputError(f"column {self.column!r} does not hold values from {low:g} to {high:g} only")
        return v

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
        return f"{name} of {'log ' if self.family.log else ''}{self.column}"

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


@dataclass(frozen=True)
class MultinomialStatistic(Statistic):
    """How many records are in each of K categories.

    Args:
        categories: K, from 2 to `LARGEST_CATEGORIES`; may be left out where there are labels.
        released: numbers of the categories whose counts are released, in order: all K, or K - 1 of them (the last
            follows, as the number of records is public). None is all.
        labels: K texts that stand for the categories 0..K-1 in the column; None: the column holds those numbers.
        column: name of the column.

    Raises:
        InputError: any of these does not fit.
    """

    categories: int | Any = None
    released: tuple[int, ...] | Any = None
    labels: tuple[str, ...] | Any | None = None
    column: str | Any = "x"

    kind: ClassVar[str] = "multinomial"

    def __post_init__(self) -> None:
        check_name(self.column)
        labels = None if self.labels is None else _checked_labels(self.labels)
        object.__setattr__(self, "labels", labels)
        if self.categories is None and labels is not None:
            object.__setattr__(self, "categories", len(labels))
        size = self.categories
        if isinstance(size, np.integer):
            size = int(size)
            object.__setattr__(self, "categories", size)
        if isinstance(size, bool) or not isinstance(size, int) or not 2 <= size <= LARGEST_CATEGORIES:
            raise InputError(
                f"categories must be a whole number of at least 2 and at most {LARGEST_CATEGORIES}, got {shown(size)}"
            )
        if labels is not None and len(labels) != size:
            raise InputError(f"labels must be as many as categories: {size}, got {len(labels)}")
        object.__setattr__(self, "released", self._checked_released(size))

    def _checked_released(self, size: int) -> tuple[int, ...]:
        if self.released is None:
            return tuple(range(size))
        wanted = f"released must be {size} or {size - 1} different categories from 0 to {size - 1}"
        if isinstance(self.released, str) or not isinstance(self.released, Sequence):
            raise InputError(f"{wanted}, got {shown(self.released)}")
        chosen = tuple(self.released)
        if not all(type(k) is int and 0 <= k < size for k in chosen) or len(set(chosen)) < len(chosen):
            raise InputError(f"{wanted}, got {shown(self.released)}")
        if len(chosen) < size - 1:
            raise InputError(f"{wanted}, got {shown(self.released)}")
        return tuple(sorted(chosen))

    @property
    def title(self) -> str:
        known = ", ".join(self.labels) if self.labels is not None else f"0 to {self.categories - 1}"
        return f"{self.kind}: {self.column}, categories {known}"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"count[{k}]" for k in self.released)

    @property
    def variables(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def integer(self) -> bool:
        return True

    @property
    def texts(self) -> tuple[str, ...]:
        return () if self.labels is None else (self.column,)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Probability of each of the K categories."""
        return tuple(f"p[{k}]" for k in range(self.categories))

    def block(self) -> dict[str, Any]:
        block = {"kind": self.kind, "categories": self.categories}
        if self.labels is not None:
            block["labels"] = self.labels
        if self.column != "x":
            block["column"] = self.column
        return block

    def from_columns(self, columns: Mapping[str, Any]) -> Float64[np.ndarray, " D"]:
        present, numbers = np.unique(np.asarray(columns[self.column]), return_counts=True)
        counts = dict(zip(present.tolist(), numbers.tolist(), strict=True))
        known = self.labels if self.labels is not None else range(self.categories)
        if not counts.keys() <= set(known):
            allowed = "the labels" if self.labels is not None else "whole numbers from 0 to categories - 1"
            raise InputError(f"column {self.column!r} holds something else than {allowed}")
        return np.array([float(counts.get(known[k], 0)) for k in self.released])

    def sensitivity(self, norm: str = "l1", adjacency: str = "replace-one") -> float:
        """SPEC A9: a replaced record moves one count down and another one up; where only one count is released,
        one by one."""
        check_choice("norm", norm, NORMS)
        check_choice("adjacency", adjacency, ADJACENCIES)
        moved = 1.0 if adjacency == "add-remove" else min(2.0, float(self.dim))
        return moved if norm == "l1" else math.sqrt(moved)  # the float root of 2 is above the root

    def describe(self, name: str) -> str:
        base, index = split_name(name)
        return f"share of {self.column} = {self.coordinate(base, index)}"

    def dimension(self, base: str) -> str:
        return "category"

    def coordinate(self, base: str, index: tuple[int, ...]) -> str:
        return str(index[0]) if self.labels is None else self.labels[index[0]]


def _checked_labels(labels: Any) -> tuple[str, ...]:
    if isinstance(labels, str) or not isinstance(labels, Sequence):
        raise InputError(f"labels must be a list of texts, got {shown(labels)}")
    for label in labels:
        if not isinstance(label, str) or not label or label != label.strip() or not label.isprintable():
            raise InputError(f"a label must be non-empty printable text without blanks around it, got {shown(label)}")
    if len(set(labels)) < len(labels):
        raise InputError("labels must differ from each other")
    return tuple(labels)
