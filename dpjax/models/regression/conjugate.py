"""The regression's conjugate update: parameters given exact (or projected) statistics (Bernstein and Sheldon 2019, eq
1; docs/formulas.md#consistent-sums, #normal-inverse-wishart)."""

from __future__ import annotations

import jax.numpy as jnp

from dpjax.kernels import nig, niw, psd, suffstat
from dpjax.kernels.order import below_diagonal
from dpjax.kernels.random import gamma_from
from dpjax.kernels.symmetric import diagonal_lanes

#: Parallel gamma proposals: shapes here are at least a0 + n / 2, where a proposal fails less than once in 100.
PROPOSALS = 2


def valid_lanes(mean_statistic):
    """Nearest statistic (per record) whose centred scatter is positive semi-definite, first sums kept
    (docs/formulas.md#consistent-sums)."""
    one = jnp.ones_like(mean_statistic[0])
    moments = suffstat.moment_matrix.lanes(mean_statistic, one)
    return suffstat.statistic_entries.lanes(psd.clip_schur.lanes(moments, jnp.zeros_like(one)))


def valid_origin_lanes(gram):
    """Nearest positive semi-definite Gram matrix of (x, y) `[q, q, B]` (a projection:
    docs/formulas.md#party-triangle)."""
    return psd.clip_eigenvalues.lanes(gram, jnp.zeros_like(gram[0, 0]))


def randoms(p: int, coefficients: int) -> tuple[int, int]:
    """Standard normals and uniforms that one draw takes, of so many coefficients."""
    return coefficients + p + p * (p - 1) // 2 + PROPOSALS * (p + 1), (PROPOSALS + 1) * (p + 1)


def draw_lanes(model, mean_statistic, n, keys, normals, uniforms):
    """phi | s: normal-inverse-gamma for (theta, sigma^2), normal-inverse-Wishart for (mu, Sigma_x).

    The two blocks are independent given s for the exact law of s; under the CLT this is the papers' approximation
    (docs/formulas.md#normal-inverse-wishart). `mean_statistic` is s / n and must be valid.
    """
    q = model.p + 1
    moments = suffstat.moment_matrix.lanes(mean_statistic, jnp.ones_like(mean_statistic[0]))
    covariates = niw.update.lanes(
        niw.NIW(model.x_mean, model.kappa, model.psi, model.nu), moments[0, 1:q], moments[1:q, 1:q], n
    )
    theta, log_s2, mean, covariance = _draw(model, moments, covariates, n, keys, normals, uniforms)
    alpha = theta[0] + (mean * theta[1:]).sum(0)
    return jnp.concatenate([mean, alpha[None], theta[1:], log_s2, covariance])


def draw_origin_lanes(model, gram, n, keys, normals, uniforms):
    """phi | sums through the origin: normal-inverse-gamma and inverse Wishart; `gram` per record, of (x, y)."""
    p = model.p
    zero, one = jnp.zeros_like(model.theta_mean), jnp.ones_like(model.nu)
    covariates = niw.NIW(zero, one, model.psi + n[None, None] * gram[:p, :p], model.nu + n)  # the mean is not used
    theta, log_s2, _, covariance = _draw(model, gram, covariates, n, keys, normals, uniforms)
    return jnp.concatenate([theta, log_s2, covariance])


def _draw(model, moments, covariates: niw.NIW, n, keys, normals, uniforms):
    """theta, log sigma^2 `[1, B]`, mean of the features, and ell and c of their covariance; `moments` per record, of
    the regressors and y."""
    p, k = model.p, model.theta_mean.shape[0]
    shapes = jnp.concatenate([(model.sigma2_shape + 0.5 * n)[None], 0.5 * niw.degrees_of_freedom.lanes(covariates)])
    used, lanes = k + p + p * (p - 1) // 2, shapes.shape[-1]
    gammas = gamma_from.lanes(
        keys,
        shapes,
        normals[used:].reshape(PROPOSALS, p + 1, lanes),
        uniforms.reshape(PROPOSALS + 1, p + 1, lanes),
    )
    prior = nig.NIG(model.theta_mean, model.theta_precision, model.sigma2_shape, model.sigma2_scale)
    theta, sigma2 = nig.update_draw_from.lanes(
        prior, moments[:k, :k], moments[:k, k], moments[k, k], n, gammas[0], normals[:k]
    )
    x = niw.draw_from.lanes(covariates, 2.0 * gammas[1:], normals[k:used])
    diagonal = diagonal_lanes(x.factor)
    covariance = jnp.log(diagonal)
    if p > 1:
        covariance = jnp.concatenate([covariance, (x.factor / diagonal[:, None])[below_diagonal(p)]])
    return theta, jnp.log(sigma2)[None], x.mean, covariance
