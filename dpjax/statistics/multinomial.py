"""Counts of categories of one column (docs/formulas.md#count-sensitivity)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float64

from dpjax._base.checks import check_choice, check_name, shown
from dpjax._base.signatures import no_field_check
from dpjax.errors import InputError
from dpjax.statistics.base import ADJACENCIES, NORMS, Statistic, split_name
from dpjax.statistics.labels import SOMETHING_ELSE, checked_labels, shown_label

LARGEST_CATEGORIES = 100_000


@no_field_check
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
    released: Sequence[int] | Any = None
    labels: tuple[str, ...] | None = None
    column: str = "x"

    kind: ClassVar[str] = "multinomial"

    def __post_init__(self) -> None:
        check_name(self.column)
        labels = None if self.labels is None else checked_labels(self.labels)
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
        known = ", ".join(map(shown_label, self.labels)) if self.labels is not None else f"0 to {self.categories - 1}"
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
            raise InputError(SOMETHING_ELSE.format(self.column, allowed))
        return np.array([float(counts.get(known[k], 0)) for k in self.released])

    def check_parameters(self, values: Mapping[str, float]) -> None:
        if abs(sum(values.values()) - 1) > 1e-6:
            raise InputError(f"shares must sum to 1; got {sum(values.values()):.9g}")

    def draw_sums(self, records, names, draws, units_of, rng):
        p = draws / draws.sum(axis=1, keepdims=True)
        return rng.multinomial(records, p)[:, list(self.released)].astype(np.float64)

    def largest_sum(self, records: int) -> float:
        return float(records)

    def sensitivity(self, norm: str = "l1", adjacency: str = "replace-one") -> float:
        """docs/formulas.md#count-sensitivity: a replaced record moves one count down and another one up; where only one
        count is released, one by one."""
        check_choice("norm", norm, NORMS)
        check_choice("adjacency", adjacency, ADJACENCIES)
        moved = 1.0 if adjacency == "add-remove" else min(2.0, float(self.dim))
        return moved if norm == "l1" else math.sqrt(moved)  # the float root of 2 is above the root

    def entry_ranges(self) -> np.ndarray:
        return np.ones(self.dim)

    def describe(self, name: str) -> str:
        base, index = split_name(name)
        return f"share of {self.column} = {self.coordinate(base, index)}"

    def dimension(self, base: str) -> str:
        return "category"

    def coordinate(self, base: str, index: tuple[int, ...]) -> str:
        return str(index[0]) if self.labels is None else self.labels[index[0]]
