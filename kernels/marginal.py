"""Marginal density of released statistics with the exact statistics integrated out.

In units of the noise scale b: z/b ~ N((n/b) mu, (sqrt(n)/b)^2 Sigma + diag(w)), where (mu, Sigma) are the moments
of one record's statistic and w the noise variance per entry (Laplace: w is the mixing variable).
docs/formulas.md#slow-mixing.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from .batching import batch_last
from .symmetric import sweep


def add_diagonal_lanes(a: Float[Array, "D D B"], w: Float[Array, "D B"]) -> Float[Array, "D D B"]:
    """`a + diag(w)` per lane."""
    return a + jnp.eye(a.shape[0], dtype=a.dtype)[..., None] * w[None]


@batch_last
def gaussian_marginal(
    residual: Float[Array, "D B"], covariance: Float[Array, "D D B"], noise: Float[Array, "D B"]
) -> tuple[Float[Array, " B"], Float[Array, "D B"], Float[Array, "D D B"]]:
    """Log density of a residual under N(0, covariance + diag(noise)) and its derivatives.

    Args:
        residual: `z/b - (n/b) mu` `[D]`.
        covariance: `(n/b^2) Sigma` `[D, D]`.
        noise: noise variance in units of b^2 `[D]`.

    Returns:
        `(log density without the constant -D/2 log 2 pi [], derivative with respect to the mean [D] (= A^{-1} r),
        derivative with respect to each element of the covariance [D, D] (= (A^{-1} r r' A^{-1} - A^{-1})/2))`.
    """
    log_det, inverse, a = sweep.lanes(add_diagonal_lanes(covariance, noise), residual)
    return -0.5 * (log_det + (residual * a).sum(0)), a, 0.5 * (a[:, None] * a[None] - inverse)
