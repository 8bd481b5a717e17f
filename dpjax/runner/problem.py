"""The problem behind a release, before it is fitted or even drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpjax.engine.problems import Problems
from dpjax.errors import InputError
from dpjax.models import Model
from dpjax.models.regression.problems import make_problems
from dpjax.statistics.base import Statistic


class UnfitProblem(InputError):
    """Sizes that cannot be computed with, which the noise scale explains."""


def one_problem(
    model: Model,
    records: int,
    scale: Any,
    mechanism: str,
    z: Any = None,
    exact: Any = None,
    statistic: Statistic | None = None,
) -> Problems:
    """The problem behind a release, also of one that is not drawn yet: its sums are `exact` or 2 per record.

    Raises:
        UnfitProblem: numbers beyond what can be computed with.
    """
    size = (1, model.statistic_dim)
    known = exact if z is None else z
    z = np.broadcast_to(2.0 * records if known is None else known, size)
    exact = None if exact is None else np.broadcast_to(exact, size)
    try:
        n, scale = np.array([float(records)]), np.broadcast_to(scale, size)
        return make_problems(z, n, scale, model, mechanism, statistic=statistic, exact=exact)
    except InputError as error:
        raise UnfitProblem(str(error)) from None
