"""From what is known of releases to `Problems`, with the views that some methods need."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from .engine import Problems
from .models import FreeMoments, KnownCovariates, Model
from .models.base import is_batched
from .statistics import RegressionStatistic, Statistic
from .views import MOMENTS


def make_problems(
    z: Any,
    n: Any,
    scale: Any,
    model: Model,
    mechanism: str,
    *,
    statistic: Statistic | None = None,
    exact: Any = None,
    untruncated: Any = None,
) -> Problems:
    """Problems whose releases hold these entries.

    Args:
        z, n, scale, model, mechanism, exact, untruncated: as of `Problems`; with a `FreeMoments` model z holds the
            moments of degree 3 and 4 too. Methods that do not look at them get the usual sums.
        statistic: what was summed, for its bounds.

    Raises:
        InputError: as `Problems`.
    """
    limits = statistic.box if isinstance(statistic, RegressionStatistic) else None
    box = None if limits is None else np.asarray(limits, np.float64)
    z = np.asarray(z, np.float64)
    scale = np.broadcast_to(np.asarray(scale, np.float64), z.shape)
    if not isinstance(model, FreeMoments | KnownCovariates):
        return Problems(z, n, scale, model, mechanism, exact, untruncated, box)
    one = jax.tree.map(lambda x: x[0], model) if is_batched(model) else model
    usual = slice(0, one.base.statistic_dim if isinstance(one, FreeMoments) else one.statistic_dim)
    cut = lambda x: None if x is None else np.asarray(x)[:, usual]
    if isinstance(model, KnownCovariates):
        return Problems(z[:, usual], n, scale[:, usual], model, mechanism, cut(exact), cut(untruncated), box)
    whole = Problems(z, n, scale, model, mechanism, exact, untruncated, box)
    return Problems(
        z[:, usual], n, scale[:, usual], model.base, mechanism, cut(exact), cut(untruncated), box, {MOMENTS: whole}
    )
