"""What code elsewhere asks of a statistic; the defaults are those of sums of a column that nothing is special about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64


class Traits:
    """Base class of `dpjax.statistics.base.Statistic`: a group overrides what is otherwise for its statistics."""

    #: Records that are averaged in one row (`OriginStatistic`).
    averaged = 1
    #: Whether moments of higher degree stand behind the other sums, with a budget of their own (`RegressionStatistic`).
    moments = False
    #: Bounds on the lengths of the feature vector and of the target, in place of bounds of each variable.
    norms: Mapping[str, float] | None = None
    #: Number of categories, one for each record, whose counts are the entries; None: the entries are no such counts.
    categories: int | None = None
    #: Whether a record is a response, `target`, and p `features` that explain it.
    has_features = False
    #: Whether methods see the same sums differently: some of them, or under another model of the record.
    several_views = False

    @property
    def details(self) -> tuple[str, ...]:
        """What is special about the sums, beside kind and bounds of the columns, in phrases."""
        return ()

    @property
    def bounds_grid(self) -> tuple[bool, bool] | None:
        """Whether bounds that are sought privately are whole numbers, and whether they are sought in log x; None where
        bounds cannot be sought."""
        return None

    def check_parameters(self, values: Mapping[str, float]) -> None:
        """Refuse values of all parameters, by name, that are each possible and do not go together.

        Raises:
            InputError: they do not.
        """

    def draw_sums(
        self, records: int, names: Sequence[str], draws: Float64[np.ndarray, "N K"], units_of: Any, rng: Any
    ) -> Float64[np.ndarray, "N D"] | None:
        """Sums of N tables without noise, each drawn at parameters of its own by their exact law; None where only the
        normal law of the samplers is known.

        Args:
            records: of each table.
            names: of the K parameters.
            draws: of the parameters, in the scaled units of `units_of`.
            units_of: a statistic of the same kind; this one, or the common one of several parties.
            rng: a `numpy.random.Generator`.

        Raises:
            InputError: the parameters do not fix the law of a record; the message says what is missing.
        """
        return None
