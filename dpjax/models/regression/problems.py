"""From what is known of releases to `Problems`, with the views that some methods need."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from dpjax.engine.problems import Problems, is_batched
from dpjax.errors import InputError
from dpjax.mechanisms.noise import Noise
from dpjax.models import (
    FreeMoments,
    KnownCovariates,
    LinearRegression,
    Model,
    OriginRegression,
    OwnPartySums,
    PartySums,
)
from dpjax.models.regression.party_layout import party_facts
from dpjax.models.regression.views import MOMENTS
from dpjax.statistics.base import Statistic


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
    if isinstance(model, OriginRegression):
        return _origin_problems(z, n, scale, model, mechanism, statistic, exact, untruncated)
    limits: Any = getattr(statistic, "box", None) if statistic is not None and statistic.has_features else None
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


def _origin_problems(z, n, scale, model, mechanism, statistic, exact, untruncated) -> Problems:
    """A release without an intercept: one party."""
    squares = statistic is None or statistic.squares
    extend = lambda x: None if x is None else np.asarray(x, np.float64)[:, None]
    z = np.asarray(z, np.float64)
    scale = np.broadcast_to(np.asarray(scale, np.float64), z.shape)
    return party_problems(
        z[:, None], np.asarray(n, np.float64)[:, None], scale[:, None], model, mechanism, squares=squares,
        exact=extend(exact), untruncated=extend(untruncated),
    )  # fmt: skip


def party_problems(
    z: Any,
    n: Any,
    scale: Any,
    base: OriginRegression | LinearRegression | Any,
    mechanism: Any,
    *,
    centre: Any = 0.0,
    half: Any = 1.0,
    present: Any = 1.0,
    squares: bool = True,
    own: bool = False,
    exact: Any = None,
    untruncated: Any = None,
) -> Problems:
    """T problems of J parties each.

    Args:
        z: released entries `[T, J, D]`, every party in its own units; without an intercept x_i x_j (i <= j), x_i y
            and, with `squares`, y^2.
        n: records `[T, J]` or `[J]`.
        scale: noise scales `[T, J, D]`, or what broadcasts to that, each as its mechanism defines it.
        base: prior in common units, leaves with or without a leading axis T.
        mechanism: name of the noise's mechanism, one for all or one for every party `[J]`.
        centre, half: of the parties' units in common ones `[J, q]` or a number.
        present: 0 where an entry is not released (z and scale are then ignored).
        squares: whether y^2 is among the entries of a regression without an intercept.
        own: whether the features of every party have a law of their own (`OwnPartySums`).
        exact, untruncated: as of `Problems`, in the shape of z.

    Raises:
        InputError: shapes that do not fit, an unknown mechanism, or as `Problems` and `party_facts`.
    """
    z = np.asarray(z, np.float64)
    if z.ndim != 3:
        raise InputError(f"z must have shape [problems, parties, entries]; got {z.shape}")
    count, parties, size = z.shape
    scale, present = (np.broadcast_to(np.asarray(x, np.float64), z.shape) for x in (scale, present))
    n = np.broadcast_to(np.asarray(n, np.float64), (count, parties))
    exact, untruncated = (None if x is None else np.asarray(x, np.float64) for x in (exact, untruncated))
    if not squares:
        pad = lambda x, value: np.concatenate([x, np.full((count, parties, 1), value)], axis=2)
        z, scale, present = pad(z, 0.0), pad(scale, 1.0), pad(present, 0.0)
        complete = lambda x: x if x is None or x.shape[2] == size + 1 else pad(x, np.nan)
        exact, untruncated = complete(exact), complete(untruncated)
    z, scale = np.where(present > 0, z, 0.0), np.where(present > 0, scale, 1.0)
    names = np.asarray(mechanism, object)
    if names.shape not in ((), (parties,)):
        raise InputError(f"mechanism must be one name or one for each of {parties} parties; got {mechanism!r}")
    noise = Noise.of(names[..., None] if names.ndim else names, scale, present)
    model = (OwnPartySums if own else PartySums)(base, parties)
    flat: Any = lambda x: None if x is None else x.reshape(count, -1)
    kinds = set(names.reshape(-1).tolist())
    return Problems(
        flat(z), n.sum(1), flat(scale), model, kinds.pop() if len(kinds) == 1 else None, flat(exact), flat(untruncated),
        noise=jax.tree.map(flat, noise), facts=party_facts(base, n, centre, half),
    )  # fmt: skip
