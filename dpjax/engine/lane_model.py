"""Models whose lane methods are written out, and derivatives of lane functions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dpjax.engine.model import Model
from dpjax.kernels.batching import batch_last


def jacobian_of_lanes(function, phi: Float[Array, "P B"]) -> Float[Array, "D P B"]:
    """Derivative of a lane function `[P, B] -> [D, B]` lane by lane, all directions side by side."""
    unit = jnp.broadcast_to(jnp.eye(phi.shape[0], dtype=phi.dtype)[..., None], (phi.shape[0], *phi.shape))
    along = jax.vmap(lambda tangent: jax.jvp(function, (phi,), (tangent,))[1])(unit)
    return jnp.swapaxes(along, 0, 1)


class LaneModel(Model):
    """A model whose `moments_lanes`, `log_prior_lanes` and `report_lanes` are written out: the plain ones follow."""

    def moments(self, phi):
        return _moments(self, phi)

    def log_prior(self, phi):
        return _log_prior(self, phi)

    def report(self, phi):
        return _report(self, phi)


_moments = batch_last(lambda model, phi: model.moments_lanes(phi))


_log_prior = batch_last(lambda model, phi: model.log_prior_lanes(phi))


_report = batch_last(lambda model, phi: model.report_lanes(phi))
