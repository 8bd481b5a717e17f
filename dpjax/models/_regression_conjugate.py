"""The regression's conjugate update: parameters given exact (or projected) statistics (S0 eq 1; SPEC C6, C9)."""

from __future__ import annotations

import jax.numpy as jnp

from ..kernels import nig, niw, psd, suffstat
from ..kernels.random import gamma_from
from ._regression_simulation import below_diagonal

#: Parallel gamma proposals: shapes here are at least a0 + n / 2, where a proposal fails less than once in 100.
PROPOSALS = 2


def valid_origin_lanes(gram):
    """Nearest positive semi-definite Gram matrix of (x, y) `[q, q, B]` (a projection: SPEC D6)."""
    return psd.clip_eigenvalues.lanes(gram, jnp.zeros_like(gram[0, 0]))


def origin_randoms(p: int) -> tuple[int, int]:
    """Standard normals and uniforms that `draw_origin_lanes` takes."""
    return 2 * p + p * (p - 1) // 2 + PROPOSALS * (p + 1), (PROPOSALS + 1) * (p + 1)


def draw_origin_lanes(model, gram, n, keys, normals, uniforms):
    """phi | sums through the origin: normal-inverse-gamma and inverse Wishart; `gram` per record, of (x, y)."""
    p = model.p
    zero, one = jnp.zeros_like(model.theta_mean), jnp.ones_like(model.nu)
    covariates = niw.NIW(zero, one, model.psi + n[None, None] * gram[:p, :p], model.nu + n)
    shapes = jnp.concatenate([(model.sigma2_shape + 0.5 * n)[None], 0.5 * niw.degrees_of_freedom.lanes(covariates)])
    used, lanes = 2 * p + p * (p - 1) // 2, shapes.shape[-1]
    gammas = gamma_from.lanes(
        keys,
        shapes,
        normals[used:].reshape(PROPOSALS, p + 1, lanes),
        uniforms.reshape(PROPOSALS + 1, p + 1, lanes),
    )
    prior = nig.NIG(model.theta_mean, model.theta_precision, model.sigma2_shape, model.sigma2_scale)
    theta, sigma2 = nig.update_draw_from.lanes(prior, gram[:p, :p], gram[:p, p], gram[p, p], n, gammas[0], normals[:p])
    factor = niw.draw_from.lanes(covariates, 2.0 * gammas[1:], normals[p:used]).factor
    diagonal = jnp.stack([factor[i, i] for i in range(p)])
    parts = [theta, jnp.log(sigma2)[None], jnp.log(diagonal)]
    if p > 1:
        parts.append((factor / diagonal[:, None])[below_diagonal(p)])
    return jnp.concatenate(parts)


def valid_lanes(mean_statistic):
    """Nearest statistic (per record) whose centred scatter is positive semi-definite, first sums kept (SPEC C6)."""
    one = jnp.ones_like(mean_statistic[0])
    moments = suffstat.moment_matrix.lanes(mean_statistic, one)
    return suffstat.statistic_entries.lanes(psd.clip_schur.lanes(moments, jnp.zeros_like(one)))


def randoms(p: int) -> tuple[int, int]:
    """Standard normals and uniforms that one draw takes."""
    return (p + 1) + p + p * (p - 1) // 2 + PROPOSALS * (p + 1), (PROPOSALS + 1) * (p + 1)


def draw_lanes(model, mean_statistic, n, keys, normals, uniforms):
    """phi | s: normal-inverse-gamma for (theta, sigma^2), normal-inverse-Wishart for (mu, Sigma_x).

    The two blocks are independent given s for the exact law of s; under the CLT this is the papers' approximation
    (SPEC C9). `mean_statistic` is s / n and must be valid.
    """
    p = model.p
    q = p + 1
    moments = suffstat.moment_matrix.lanes(mean_statistic, jnp.ones_like(mean_statistic[0]))
    covariates = niw.update.lanes(
        niw.NIW(model.x_mean, model.kappa, model.psi, model.nu), moments[0, 1:q], moments[1:q, 1:q], n
    )
    shapes = jnp.concatenate([(model.sigma2_shape + 0.5 * n)[None], 0.5 * niw.degrees_of_freedom.lanes(covariates)])
    used = q + p + p * (p - 1) // 2
    lanes = shapes.shape[-1]
    gammas = gamma_from.lanes(
        keys,
        shapes,
        normals[used:].reshape(PROPOSALS, q, lanes),
        uniforms.reshape(PROPOSALS + 1, q, lanes),
    )
    prior = nig.NIG(model.theta_mean, model.theta_precision, model.sigma2_shape, model.sigma2_scale)
    theta, sigma2 = nig.update_draw_from.lanes(
        prior, moments[:q, :q], moments[:q, q], moments[q, q], n, gammas[0], normals[:q]
    )
    x = niw.draw_from.lanes(covariates, 2.0 * gammas[1:], normals[q:used])
    diagonal = jnp.stack([x.factor[i, i] for i in range(p)])
    alpha = theta[0] + (x.mean * theta[1:]).sum(0)
    parts = [x.mean, alpha[None], theta[1:], jnp.log(sigma2)[None], jnp.log(diagonal)]
    if p > 1:
        parts.append((x.factor / diagonal[:, None])[below_diagonal(p)])
    return jnp.concatenate(parts)
