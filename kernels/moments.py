"""Mean and covariance of one record's regression statistic (Bernstein and Sheldon 2019, eq 2 and 3 with
docs/formulas.md#sum-moments, #distinct-entries, #normal-moments).

A record is (x, y), y = theta'x + e, e ~ N(0, sigma2), any law of x with second moments eta_ij = E x_i x_j
and fourth-moment covariances xi_ijkl = Cov(x_i x_j, x_k x_l) are given; x_0 = 1 is the unit feature. Entries of the
statistic, distinct and not constant (docs/formulas.md#distinct-entries): x_1..x_p; x_i x_j (i <= j, i-major); y; x_i y;
y^2.

Annotations show the lane form (`f.lanes`, last axis over chains); the functions themselves take one chain.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .batching import batch_last
from .products import pairs
from .symmetric import matvec_lanes, take


def _contract(theta: Array, tensor: Array, axis: int) -> Array:
    """Sum theta_k tensor[.., k, ..] over `axis`, one slice at a time."""
    rank = tensor.ndim - 2
    shape = tensor.shape[:axis] + tensor.shape[axis + 1 :]

    def add(k, total):
        weight = take(theta, k, 0)
        return total + take(tensor, k, axis) * weight.reshape((1,) * rank + weight.shape)

    return lax.fori_loop(0, tensor.shape[axis], add, jnp.zeros(shape, tensor.dtype))


@batch_last
def regression_moments(
    theta: Float[Array, "Q B"],
    sigma2: Float[Array, " B"],
    eta: Float[Array, "Q Q B"],
    xi: Float[Array, "Q Q Q Q B"],
) -> tuple[Float[Array, "D B"], Float[Array, "D D B"]]:
    """Mean mu_t `[D]` and covariance Sigma_t `[D, D]` of one record's statistic, with intercept.

    Args:
        theta: coefficients `[q]`, q = p + 1, intercept first.
        sigma2: noise variance `[]`.
        eta: second moments E x_i x_j of (1, x_1..x_p) `[q, q]`.
        xi: Cov(x_i x_j, x_k x_l) `[q, q, q, q]`.

    Returns:
        Moments in the order of the module's list; D = p + p (p + 1) / 2 + p + 2.
    """
    a, b = pairs(theta.shape[0] - 1)
    i, j = a[b < len(theta)], b[b < len(theta)]  # those without y
    by_one = _contract(theta, xi, 3)  # Cov(x_i x_j, x_k theta'x)
    by_two = _contract(theta, by_one, 2)  # Cov(x_i x_j, (theta'x)^2)
    by_three = _contract(theta, by_two, 1)  # Cov(x_i theta'x, (theta'x)^2)
    xy = matvec_lanes(eta, theta)
    explained = (theta * xy).sum(0)
    s2 = sigma2[None]
    xx_xx = xi[i, j][:, i, j]
    xx_xy = by_one[i, j]
    xx_yy = by_two[i, j][:, None]
    # docs/formulas.md#sum-moments: xi_{ik,jl}, the appendix's form
    xy_xy = s2[None] * eta + _contract(theta, by_one, 1)
    xy_yy = (by_three + 2.0 * s2 * xy)[:, None]
    yy_yy = ((theta * by_three).sum(0) + 4.0 * sigma2 * explained + 2.0 * sigma2 * sigma2)[None, None]
    t = lambda x: jnp.swapaxes(x, 0, 1)
    covariance = jnp.concatenate(
        [
            jnp.concatenate([xx_xx, xx_xy, xx_yy], axis=1),
            jnp.concatenate([t(xx_xy), xy_xy, xy_yy], axis=1),
            jnp.concatenate([t(xx_yy), t(xy_yy), yy_yy], axis=1),
        ]
    )
    return jnp.concatenate([eta[i, j], xy, (explained + sigma2)[None]]), covariance
