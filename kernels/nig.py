"""Normal-inverse-gamma: the conjugate law of coefficients and noise variance (Bernstein and Sheldon 2019, eq 1;
docs/formulas.md#conjugate-regression).

    sigma2 ~ InvGamma(shape, scale),  theta | sigma2 ~ N(mean, sigma2 precision^{-1})

Statistics enter as MEANS PER RECORD (X'X/n and so on), so that n = 1e9 works in float32: everything is
solved in per-record units, and the large n only multiplies at the end.

Annotations show the lane form (`f.lanes`, last axis over chains); the functions themselves take one chain.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from .batching import batch_last
from .symmetric import inverse_cholesky, matvec_lanes, matvec_transposed_lanes


class NIG(NamedTuple):
    """Parameters: mean `[q]`, precision `[q, q]` (Lambda, a precision: docs/formulas.md#prior-precision), shape `[]`,
    scale `[]`."""

    mean: Array
    precision: Array
    shape: Array
    scale: Array


def _posterior(prior: NIG, xx: Array, xy: Array, yy: Array, n: Array) -> tuple[NIG, Array, Array]:
    """Posterior, L^{-1} and the factor `unit`, where the posterior precision is unit L L'."""
    unit = jnp.maximum(n, jnp.ones_like(n))
    share = n / unit
    prior_xy = matvec_lanes(prior.precision, prior.mean)
    precision = prior.precision / unit[None, None] + share[None, None] * xx
    xy = prior_xy / unit[None] + share[None] * xy
    yy = (prior.mean * prior_xy).sum(0) / unit + share * yy
    inverse = inverse_cholesky.lanes(precision)
    f = matvec_lanes(inverse, xy)
    mean = matvec_transposed_lanes(inverse, f)
    gain = yy - (f * f).sum(0)
    # a consistent statistic has gain >= 0; only a deficit that rounding explains is lifted to 0
    rounding = 8.0 * (mean.shape[0] + 1) * jnp.finfo(yy.dtype).eps * jnp.abs(yy)
    gain = jnp.where((gain < 0) & (gain >= -rounding), jnp.zeros_like(gain), gain)
    posterior = NIG(mean, unit[None, None] * precision, prior.shape + 0.5 * n, prior.scale + 0.5 * unit * gain)
    return posterior, inverse, unit


@batch_last
def update(
    prior: NIG,
    xx: Float[Array, "Q Q B"],
    xy: Float[Array, "Q B"],
    yy: Float[Array, " B"],
    n: Float[Array, " B"],
) -> NIG:
    """Posterior given the second moments of n records.

    Args:
        prior: prior parameters.
        xx: X'X / n `[q, q]`, the unit feature included.
        xy: X'y / n `[q]`.
        yy: y'y / n `[]`.
        n: number of records `[]`, as a float of the same dtype.

    Returns:
        NIG(mu_n, Lambda_n, a_n, b_n). For a consistent statistic ([[xx, xy], [xy', yy]] positive
        semi-definite) b_n >= b_0. An inconsistent one gives b_n < b_0, possibly negative, and then NaN draws:
        project first (`psd.clip_schur`, docs/formulas.md#consistent-sums); nothing is hidden here.
    """
    return _posterior(prior, xx, xy, yy, n)[0]


@batch_last
def update_draw_from(
    prior: NIG,
    xx: Float[Array, "Q Q B"],
    xy: Float[Array, "Q B"],
    yy: Float[Array, " B"],
    n: Float[Array, " B"],
    gamma: Float[Array, " B"],
    normals: Float[Array, "Q B"],
) -> tuple[Float[Array, "Q B"], Float[Array, " B"]]:
    """Draw (theta [q], sigma2 []) from the posterior of `update`, by the same factorisation.

    Args:
        prior, xx, xy, yy, n: as in `update`; n = 0 draws from the prior.
        gamma: draw from Gamma(prior.shape + n / 2, 1).
        normals: standard normals `[q]`.

    Returns:
        theta is NaN when the posterior's scale is not positive.
    """
    posterior, inverse, unit = _posterior(prior, xx, xy, yy, n)
    sigma2 = posterior.scale / gamma
    deviation = matvec_transposed_lanes(inverse, normals)
    return posterior.mean + jnp.sqrt(sigma2 / unit)[None] * deviation, sigma2
