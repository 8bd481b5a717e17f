"""The posterior density with sums AND the noise's variances integrated out, for one or two statistics."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dpjax.engine.model import Model, Observed
from dpjax.kernels.special import normal_laplace_log_density

#: Nodes, in the logarithm of a Laplace noise's mixing variance, of the sum over two of them; the smallest one.
_NODES, _LEAST = 24, 1e-3


def log_posterior_lanes(model: Model, observed: Observed, phi: Float[Array, "P B"], laplace: bool) -> Any:
    """Log posterior density of phi up to a constant `[B]`; minus infinity where it cannot be computed.

    Args:
        model: of at most two released statistics.
        observed: in units of the noise scale b, 64 bits where small differences matter.
        phi: unconstrained parameters.
        laplace: Laplace noise (else Gaussian).
    """
    residual, covariance = model.residual_lanes(phi, observed)
    prior = model.log_prior_lanes(phi)
    if not laplace:
        likelihood = _log_normal(residual, covariance, jnp.ones_like(residual))
    elif len(residual) == 1:
        likelihood = normal_laplace_log_density(residual[0], covariance[0, 0])
    else:
        likelihood = _log_mixed(residual, covariance)
    value = prior + likelihood
    return jnp.where(jnp.isfinite(value), value, -jnp.inf)


def _log_mixed(residual, covariance):
    """N(0, covariance) + Laplace(0, 1) in both entries: a sum over both mixing variances, which are Exp(1/2)."""
    step = jnp.linspace(0.0, 1.0, _NODES, dtype=residual.dtype)[:, None]
    low = jnp.full_like(residual, np.log(_LEAST))
    # a residual r is best explained by a variance of |r|
    high = jnp.log(60.0 + 4.0 * jnp.abs(residual))
    logs = low[:, None] + (high - low)[:, None] * step[None]  # [2, nodes, B]
    variance = jnp.exp(logs)
    weight = logs - 0.5 * variance + jnp.log((high - low) / (_NODES - 1) * 0.5)[:, None]

    def one(i):
        w = jnp.stack([jnp.broadcast_to(variance[0, i][None], variance[1].shape), variance[1]])
        value = _log_normal(residual[:, None], covariance[:, :, None], w)
        return jax.scipy.special.logsumexp(value + weight[1] + weight[0, i][None], axis=0)

    return jax.scipy.special.logsumexp(jax.lax.map(one, jnp.arange(_NODES)), axis=0)


def _log_normal(residual, covariance, variances):
    """log N(residual; 0, covariance + diag(variances)) without its constant, of one or two entries."""
    if len(residual) == 1:
        total = covariance[0, 0] + variances[0]
        return -0.5 * (residual[0] ** 2 / total + jnp.log(total))
    a, b, c = covariance[0, 0] + variances[0], covariance[1, 1] + variances[1], covariance[0, 1]
    determinant = a * b - c * c
    quadratic = (b * residual[0] ** 2 - 2.0 * c * residual[0] * residual[1] + a * residual[1] ** 2) / determinant
    return -0.5 * (quadratic + jnp.log(determinant))
