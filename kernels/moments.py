"""Mean and covariance of one record's regression statistic (S0 eq 2 and 3 with SPEC C1-C4, H1).

A record is (x, y), y = theta'x + e, e ~ N(0, sigma2), any law of x with second moments eta_ij = E x_i x_j
and fourth-moment covariances xi_ijkl = Cov(x_i x_j, x_k x_l) are given. With an intercept x_0 = 1 is the unit
feature. Entries of the statistic, distinct and not constant (SPEC C3):

    with intercept:     x_1..x_p; x_i x_j (i <= j, i-major); y; x_i y; y^2
    without intercept:  x_i x_j (i <= j, i-major); x_i y; y^2

Writing a for the fluctuations of the products of x, c for those of x e and g for those of e^2, which are
uncorrelated, the statistic is T(theta) [a, c, g] with T unit lower triangular: x_i y gets theta'a + c and y^2
gets theta'a theta + 2 theta'c + g. So its factor needs no factorisation of the D x D matrix.

Annotations show the lane form (`f.lanes`, last axis over chains); the functions themselves take one chain.
"""

from __future__ import annotations

from functools import cache

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from .batching import batch_last
from .symmetric import matvec_lanes, matvec_transposed_lanes, take


@cache
def product_pairs(q: int, intercept: bool) -> tuple[np.ndarray, np.ndarray]:
    """Indices (i, j) of the distinct, non-constant products of q features, in the statistic's order."""
    if not intercept:
        rows, cols = np.triu_indices(q)
        return rows.astype(np.int32), cols.astype(np.int32)
    rows, cols = np.triu_indices(q - 1)
    first = np.zeros(q - 1, np.int32)
    single = np.arange(1, q, dtype=np.int32)
    return np.concatenate([first, rows + 1], dtype=np.int32), np.concatenate([single, cols + 1], dtype=np.int32)


def _contract(theta: Array, tensor: Array, axis: int) -> Array:
    """Sum theta_k tensor[.., k, ..] over `axis`, one slice at a time."""
    rank = tensor.ndim - 2
    shape = tensor.shape[:axis] + tensor.shape[axis + 1 :]

    def add(k, total):
        weight = take(theta, k, 0)
        return total + take(tensor, k, axis) * weight.reshape((1,) * rank + weight.shape)

    return lax.fori_loop(0, tensor.shape[axis], add, jnp.zeros(shape, tensor.dtype))


@batch_last
def with_unit_feature(
    mean: Float[Array, "P B"], covariance: Float[Array, "P P B"]
) -> tuple[Float[Array, "Q B"], Float[Array, "Q Q B"]]:
    """Mean `[p + 1]` and covariance `[p + 1, p + 1]` of (1, x): the unit feature is 1 and never varies."""
    return jnp.concatenate([jnp.ones_like(mean[:1]), mean]), jnp.pad(covariance, ((1, 0), (1, 0), (0, 0)))


@batch_last
def normal_fourth_moments(mean: Float[Array, "Q B"], covariance: Float[Array, "Q Q B"]) -> Float[Array, "Q Q Q Q B"]:
    """xi_ijkl = Cov(x_i x_j, x_k x_l) `[q, q, q, q]` of a normal vector (Isserlis; SPEC C4, H2).

    Args:
        mean: mean of x `[q]`.
        covariance: covariance of x `[q, q]`; rows of a constant feature are zero.
    """
    m, c = mean, covariance
    second = c + m[:, None] * m[None]
    outer = m[:, None] * m[None]
    # C_ik (C_jl + m_j m_l) + m_i m_k C_jl, and the same with k and l exchanged
    ik = c[:, None, :, None] * second[None, :, None] + outer[:, None, :, None] * c[None, :, None]
    il = c[:, None, None] * second[None, :, :, None] + outer[:, None, None] * c[None, :, :, None]
    return ik + il


def _moments(intercept: bool, theta: Array, sigma2: Array, eta: Array, xi: Array) -> tuple[Array, Array]:
    i, j = product_pairs(theta.shape[0], intercept)
    by_one = _contract(theta, xi, 3)  # Cov(x_i x_j, x_k theta'x)
    by_two = _contract(theta, by_one, 2)  # Cov(x_i x_j, (theta'x)^2)
    by_three = _contract(theta, by_two, 1)  # Cov(x_i theta'x, (theta'x)^2)
    xy = matvec_lanes(eta, theta)
    explained = (theta * xy).sum(0)
    s2 = sigma2[None]
    xx_xx = xi[i, j][:, i, j]
    xx_xy = by_one[i, j]
    xx_yy = by_two[i, j][:, None]
    xy_xy = s2[None] * eta + _contract(theta, by_one, 1)  # SPEC C1: xi_{ik,jl}, the appendix's form
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
        xi: Cov(x_i x_j, x_k x_l) `[q, q, q, q]` (`normal_fourth_moments` for normal x).

    Returns:
        Moments in the order of the module's list; D = p + p (p + 1) / 2 + p + 2.
    """
    return _moments(True, theta, sigma2, eta, xi)


@batch_last
def regression_moments_no_intercept(
    theta: Float[Array, "Q B"],
    sigma2: Float[Array, " B"],
    eta: Float[Array, "Q Q B"],
    xi: Float[Array, "Q Q Q Q B"],
) -> tuple[Float[Array, "D B"], Float[Array, "D D B"]]:
    """`regression_moments` for a model without unit feature; D = q (q + 1) / 2 + q + 1."""
    return _moments(False, theta, sigma2, eta, xi)


@batch_last
def normal_product_factor(mean: Float[Array, "P B"], factor: Float[Array, "P P B"]) -> Float[Array, "A A B"]:
    """Lower Cholesky factor of Cov([x_i; x_i x_j, i <= j]) for x ~ N(mean, factor factor'), in closed form.

    With x = mean + L u the products fluctuate as m v' + v m' + L H L', v = L u, H symmetric normal with
    variance 2 on its diagonal, which is lower triangular in (u, H) taken in the statistic's order.

    Args:
        mean: mean of the covariates `[p]`.
        factor: lower Cholesky factor of their covariance `[p, p]`.

    Returns:
        `[p + p (p + 1) / 2]` squared.
    """
    p = mean.shape[0]
    i, j = np.triu_indices(p)
    scale = jnp.asarray(np.where(i == j, np.sqrt(0.5), 1.0), mean.dtype)[None, :, None]
    by_u = mean[i][:, None] * factor[j] + mean[j][:, None] * factor[i]
    by_h = (factor[i][:, i] * factor[j][:, j] + factor[i][:, j] * factor[j][:, i]) * scale
    top = jnp.pad(factor, ((0, 0), (0, len(i)), (0, 0)))
    return jnp.concatenate([top, jnp.concatenate([by_u, by_h], axis=1)])


@batch_last
def unit_feature_factor(mean: Float[Array, "P B"], factor: Float[Array, "P P B"]) -> Float[Array, "Q Q B"]:
    """Lower Cholesky factor of eta = E (1, x)(1, x)' for x with this mean and covariance factor factor'."""
    one = jnp.pad(jnp.ones_like(mean[:1]), ((0, mean.shape[0]), (0, 0)))
    return jnp.concatenate([one[None], jnp.concatenate([mean[:, None], factor], axis=1)])


def _factor(intercept: bool, theta: Array, sigma2: Array, eta_factor: Array, xi_factor: Array) -> Array:
    q = theta.shape[0]
    i, j = product_pairs(q, intercept)
    position = np.full((q, q), len(i), np.int32)  # the constant 1 * 1 sits past the end and fluctuates by nothing
    position[i, j] = position[j, i] = np.arange(len(i), dtype=np.int32)
    products = jnp.pad(xi_factor, ((0, 1), (0, 0), (0, 0)))[position]  # [q, q, A, B]
    xy_a = _contract(theta, products, 1)
    yy_a = _contract(theta, xy_a, 0)
    sigma = jnp.sqrt(sigma2)[None, None]
    xy_c = sigma * eta_factor
    yy_c = 2.0 * matvec_transposed_lanes(xy_c, theta)
    yy_g = np.sqrt(2.0).item() * sigma2[None]
    rows = [
        jnp.pad(xi_factor, ((0, 0), (0, q + 1), (0, 0))),
        jnp.pad(jnp.concatenate([xy_a, xy_c], axis=1), ((0, 0), (0, 1), (0, 0))),
        jnp.concatenate([yy_a, yy_c, yy_g])[None],
    ]
    return jnp.concatenate(rows)


@batch_last
def regression_factor(
    theta: Float[Array, "Q B"],
    sigma2: Float[Array, " B"],
    eta_factor: Float[Array, "Q Q B"],
    xi_factor: Float[Array, "A K B"],
) -> Float[Array, "D E B"]:
    """Factor F with F F' = Sigma_t, with intercept.

    F = T(theta) blockdiag(xi_factor, sigma eta_factor, sqrt(2) sigma2); lower triangular, hence the Cholesky
    factor of Sigma_t, when both factors are.

    Args:
        theta, sigma2: as in `regression_moments`.
        eta_factor: any square factor of eta `[q, q]` (`unit_feature_factor` from a mean and a factor).
        xi_factor: any factor of Cov over the distinct products of x `[A, K]`, A = p + p (p + 1) / 2
            (`normal_product_factor` for normal x, `psd.semidefinite_factor` in general).

    Returns:
        `[D, K + q + 1]`.
    """
    return _factor(True, theta, sigma2, eta_factor, xi_factor)


@batch_last
def regression_factor_no_intercept(
    theta: Float[Array, "Q B"],
    sigma2: Float[Array, " B"],
    eta_factor: Float[Array, "Q Q B"],
    xi_factor: Float[Array, "A K B"],
) -> Float[Array, "D E B"]:
    """`regression_factor` for a model without unit feature; A = q (q + 1) / 2."""
    return _factor(False, theta, sigma2, eta_factor, xi_factor)
