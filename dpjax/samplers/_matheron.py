"""The noise of a release given the parameters, by Matheron's rule: what `collapsed` and `gibbs` share."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..kernels.marginal import add_diagonal_lanes
from ..kernels.symmetric import sweep
from ..models.base import Model, Observed


def noise_draw_lanes(
    model: Model, observed: Observed, position, scales, normals: Float[Array, "N B"]
) -> Float[Array, "D B"]:
    """e = (z - s) / b with s | phi, w, z, by Matheron's rule from 2 D normals.

    s0 is drawn from its law given phi, e0 from the noise's, and both are shifted by the gain times the misfit.
    """
    size = scales.shape[0]
    residual, covariance = model.residual_lanes(position, observed)
    deviation = model.deviation_lanes(position.astype(scales.dtype), normals[:size]) * observed.root_n_over_b
    noise = jnp.sqrt(scales) * normals[size:]
    misfit = residual - deviation - noise
    return noise + scales * sweep.lanes(add_diagonal_lanes(covariance, scales), misfit)[2]
