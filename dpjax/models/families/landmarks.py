"""Where the likelihood of a one-parameter family can bend, for what looks at it on a grid."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dpjax.engine.model import Observed

#: Landmarks of a coordinate (log rate, logit p) are looked for up to this size.
_LANDMARKS = 60.0


def landmarks(model: Any, observed: Observed):
    """Places of a one-parameter model and the widths to look at around them; see `FamilyModel.landmarks_lanes`."""
    mean = lambda phi: model.family.mean_statistic(model.natural(phi[None]))[0]
    slope = lambda phi: jax.jvp(mean, (phi,), (jnp.ones_like(phi),))[1]
    released = observed.z[0] / observed.n_over_b[0]
    wanted = jnp.stack([released, *(([model.low, model.high]) if model.truncated else [])])
    span = jnp.full_like(wanted, _LANDMARKS)
    rises = mean(jnp.ones_like(released)) > mean(-jnp.ones_like(released))

    def halve(_, ends):
        low, high = ends
        middle = 0.5 * (low + high)
        less = (jax.vmap(mean)(middle) < wanted) == rises
        return jnp.where(less, middle, low), jnp.where(less, high, middle)

    place = 0.5 * sum(lax.fori_loop(0, 40, halve, (-span, span)))
    by_eta = jax.vmap(jax.jacfwd(lambda phi: model.natural(phi[None])[0]))(place)
    steep = jax.vmap(slope)(place)
    # sd of a record: the mean's derivative in eta is its variance
    sd = jnp.sqrt(jnp.abs(steep / by_eta))
    width = sd / jnp.abs(steep)
    # around the release's own mean the likelihood is as narrow as its many records make it
    own = jnp.sqrt(width[0] ** 2 / observed.n + 2.0 / (observed.n_over_b[0] * steep[0]) ** 2)
    width = width.at[0].set(own)
    return place, jnp.where(jnp.isfinite(width), jnp.clip(width, 1e-12, 4.0), 1.0)
