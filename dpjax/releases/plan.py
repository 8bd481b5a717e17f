"""A release in two steps: everything that can be wrong is found without any noise; then it is drawn, once."""

from __future__ import annotations

import math
import os
import threading
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from dpjax._base.checks import Bounds
from dpjax._base.private_frames import without_private_values
from dpjax.errors import InputError, PrivacyWarning
from dpjax.mechanisms import MECHANISMS
from dpjax.releases import drawing
from dpjax.releases.drawing import Part
from dpjax.releases.guarantee import MomentsPrivacy, Privacy
from dpjax.releases.release import Release
from dpjax.releases.terms import Terms
from dpjax.statistics.base import Statistic


class Plan:
    """A release of which everything is checked and nothing is drawn, from `dpjax.plan_release`.

    It holds the sums of the private table until they are drawn, and shows public facts only. It cannot be copied or
    stored, and is drawn once at most.
    """

    __slots__ = ("__weakref__", "_begun", "_columns", "_drawn", "_exact", "_lock", "_process", "_terms")

    def __init__(self, terms: Terms, columns: Mapping[str, np.ndarray]):
        """Sum the table.

        Args:
            terms: checked.
            columns: of the table, without missing values. Private.

        Raises:
            InputError: values that the model cannot have; the message names the column.
        """
        self._terms = terms
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._begun = self._drawn = False
        exact = drawing.exact_sums(terms.statistic, columns)
        # sums that depend on what is drawn, an order of the rows or bounds, are computed then
        later = terms.statistic.averaged > 1 or terms.search is not None
        self._exact: np.ndarray | None = None if later else exact
        self._columns: dict[str, np.ndarray] | None = dict(columns) if later else None

    @property
    def statistic(self) -> Statistic:
        """What is summed; with private bounds, the range in which they are sought stands in their place."""
        return self._terms.statistic

    @property
    def kind(self) -> str:
        """Name of the model."""
        return self.statistic.kind

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the table that are read."""
        return tuple(self.statistic.variables)

    @property
    def bounds(self) -> Bounds | None:
        """(lo, hi) of each column in the user's units, or None where there are none."""
        return self.statistic.column_bounds

    @property
    def records(self) -> int:
        """Number of records, which is public."""
        return self._terms.records

    @property
    def mechanism(self) -> str:
        """Name of the noise."""
        return self._terms.mechanism

    @property
    def epsilon(self) -> float:
        """The most that is spent, private bounds included."""
        return self._terms.epsilon

    @property
    def delta(self) -> float:
        """0 but for Gaussian noise."""
        return self._terms.delta

    @property
    def adjacency(self) -> str:
        """Which tables are neighbours."""
        return self._terms.adjacency

    @property
    def sensitivity(self) -> tuple[float, ...]:
        """Of the usual sums and, where they are released, of third and fourth moments; in the norm of the mechanism and
        the units of the release. With private bounds these are those of the range."""
        return tuple(part.sensitivity for part in self._terms.parts())

    @property
    def noise_scale(self) -> tuple[float, ...]:
        """Laplace scale or standard deviation of the same, before OpenDP rounds it up in its last digits."""
        return tuple(drawing.scale_of(self.mechanism, part) for part in self._terms.parts())

    @property
    def warnings(self) -> tuple[str, ...]:
        """What `draw` warns of: public facts."""
        return tuple(self._terms.warnings())

    def table(self) -> str:
        """The public facts, readable."""
        terms, numbers = self._terms, lambda values: "; of the moments ".join(f"{value:.6g}" for value in values)
        public = " for the range of the private bounds" if terms.search is not None else ""
        rows = [
            ("model", self.statistic.title),
            ("columns", ", ".join(self.columns)),
            ("records", f"{self.records}"),
            ("adjacency", f"{self.adjacency} (the number of records is public)"),
            ("sensitivity", f"{numbers(self.sensitivity)} ({MECHANISMS[self.mechanism].norm} norm){public}"),
            ("mechanism", f"{self.mechanism} noise, scale {numbers(self.noise_scale)}{public}"),
            ("epsilon", f"{self.epsilon:.6g}" + (f", delta = {self.delta:.6g}" if self.delta else "")),
        ]
        if terms.search is not None:
            rows.append(("private bounds", f"epsilon = {terms.budgets[1]:.6g} of it, spent to find the bounds"))
        if self.bounds:
            what = "range" if terms.search is not None else "bounds"
            rows.append((what, ", ".join(f"{name} {lo:g}:{hi:g}" for name, (lo, hi) in self.bounds.items())))
        rows.append(("noise", self._state))
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"  {name.ljust(width)}  {text}" for name, text in rows)

    def __repr__(self) -> str:
        return f"<plan of a release of {self.kind}, {self._state}: table() shows its public facts>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("the plan of a release holds private sums and is drawn once: it cannot be stored or copied")

    @property
    def _state(self) -> str:
        return "drawn" if self._drawn else "begun to be drawn" if self._begun else "not drawn yet"

    @without_private_values
    def draw(self) -> Release:
        """Draw the noise and make the release; this spends its epsilon. There is no second time.

        Returns:
            As `dpjax.release`.

        Raises:
            InputError: the plan was drawn before, or its draw has begun and failed: part of its epsilon may be spent
                then; or OpenDP refuses the budget of private bounds.
            MissingExtraError: OpenDP is not installed; nothing is drawn, and the plan can still be.

        Warns:
            PrivacyWarning: of what `warnings` says, before any noise is drawn. Where warnings are errors nothing is
                drawn, and the plan can still be.
        """
        self._check()
        for sentence in self._terms.warnings():
            warnings.warn(sentence, PrivacyWarning, stacklevel=3)  # beyond the decorator
        return self._noised()

    def _check(self) -> None:
        """Refuse what would fail before noise is drawn: the plan stays as it is.

        Raises:
            InputError, MissingExtraError: as of `draw`.
        """
        from dpjax.privacy.opendp_noise import opendp
        from dpjax.privacy.quantile import quantile_measurement

        self._check_unused()
        opendp()
        terms = self._terms
        if terms.search is not None and terms.grid is not None:
            quantile_measurement(terms.records, terms.grid, terms.search.quantiles[0], terms.budgets[1] / 2)

    def _check_unused(self) -> None:
        if os.getpid() != self._process:  # a fork has copied it
            raise InputError("this plan was made by another process, which may draw it: plan and draw in one process")
        if self._drawn:
            raise InputError(
                "this plan was drawn before, and is one release: dpjax.plan_release plans another, which adds its"
                " epsilon"
            )
        if self._begun:
            raise InputError(
                "the draw of this plan has begun and did not end: part of its epsilon may be spent, and it is not drawn"
                " again; dpjax.plan_release plans another release, which adds its epsilon"
            )

    def _taken(self) -> tuple[np.ndarray | None, dict[str, np.ndarray] | None]:
        """What the plan holds of the table, which it then no longer does: whoever comes second gets nothing."""
        with self._lock:
            self._check_unused()
            self._begun = True
            exact, columns = self._exact, self._columns
            self._exact = self._columns = None
        return exact, columns

    def _noised(self) -> Release:
        """The release. From the first line on the plan is used up, whatever happens: noise that was drawn before an
        error may have been seen, and a second draw would spend the epsilon again without a word."""
        from dpjax.privacy.quantile import find_bounds

        exact, columns = self._taken()
        terms, bounds_spent = self._terms, None
        statistic, parts = terms.statistic, terms.parts()
        if columns is not None:
            columns = drawing.shuffled(columns, statistic)
            if terms.search is not None and terms.grid is not None:
                values, (_, budget) = columns[statistic.variables[0]], terms.budgets
                found, bounds_spent = find_bounds(values, terms.grid, terms.search.quantiles, budget)
                statistic = replace(statistic, bounds=found)  # type: ignore[type-var]  # a family's: `grid_of`
                rest = math.nextafter(terms.epsilon - bounds_spent, 0.0)
                parts = drawing.parts_of(statistic, terms.mechanism, rest, terms.delta, terms.share, terms.records)
            exact = drawing.exact_sums(statistic, columns)
        assert exact is not None
        noised, scale, parts = drawing.draw(terms.mechanism, exact, parts)
        made = self._published(statistic, noised, scale, parts, bounds_spent)
        self._drawn = True
        return made

    def _published(
        self, statistic: Statistic, noised: list[float], scale: Any, parts: list[Part], bounds_spent: float | None
    ) -> Release:
        """The release of noised sums; parts: with the epsilon that was spent on each."""
        terms = self._terms
        spent, failing = drawing.total_spent(parts)
        if bounds_spent is not None:
            spent = min(math.nextafter(spent + bounds_spent, math.inf), terms.epsilon)
        moments = None
        if terms.share is not None:
            moments = MomentsPrivacy(parts[1].epsilon, parts[1].sensitivity, parts[1].delta)
        norm = MECHANISMS[terms.mechanism].norm
        return Release(
            statistic=statistic,
            records=terms.records,
            statistics=dict(zip(statistic.names, noised, strict=True)),
            mechanism=terms.mechanism,
            noise_scale=scale,
            privacy=Privacy(spent, failing, terms.adjacency, norm, parts[0].sensitivity, bounds_spent, moments),
            imputed=terms.imputed,
        )


__all__ = ["Plan"]
