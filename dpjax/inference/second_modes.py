"""A mode on the prior's side of a regression whose chains are all elsewhere, where prior and release conflict.

Laplace noise has heavy tails: sums far from what a tight prior expects are explained by noise or by other parameters,
and each may be a mode. Chains start from a search that begins with wide noise, and find the parameters. Where they
ended up many prior sds from the prior's centre, the mode in which noise explains the sums is looked for from that
centre, and the masses of both are compared by Laplace's approximation.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpjax.engine.result_codes import MODE_MISSING, OK, WORSE_MODE
from dpjax.kernels.collapsed import Parameters, metric_lanes, reference_lanes
from dpjax.kernels.hmc import leapfrog_lanes
from dpjax.kernels.marginal import add_diagonal_lanes
from dpjax.kernels.symmetric import inverse_cholesky, matvec_lanes, sweep
from dpjax.mechanisms import mechanism_named
from dpjax.samplers.basins import SMALLEST_MASS, on_lanes

#: So many prior sds from the centre a posterior is in conflict with its prior.
_CONFLICT = 5.0
#: Steps of the search; two ends this close, in posterior sds, are one mode.
_STEPS, _SAME = 400, 3.0


def can_look(problems: Any) -> bool:
    """Whether there may be such a mode: a conjugate regression with the heavy tails of Laplace noise."""
    if not problems.model.conjugate_regression:
        return False
    noise = mechanism_named(problems.mechanism)
    return noise.closed_form and noise.exponential


def look(problems: Any, draws: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Result codes `[T, C]` with `WORSE_MODE` or `MODE_MISSING` where all else is well and the mode on the prior's side
    holds nearly everything or too much to leave out; to be called in 64 bits.

    Args:
        draws: reported parameters `[T, C, S, K]`.
        codes: `[T, C]`.
    """
    few = draws[:, :, :: max(1, draws.shape[2] // 16)].astype(np.float64)
    typical = np.median(few.reshape(len(draws), -1, draws.shape[-1]), 1)
    far = np.flatnonzero(_from_the_prior(problems.batched_model(), typical) > _CONFLICT)
    if not len(far):
        return codes
    log_ratio = _log_ratio(problems.take(far), typical[far])
    found = np.where(log_ratio > np.log(SMALLEST_MASS), MODE_MISSING, OK)
    found = np.where(log_ratio > -np.log(SMALLEST_MASS), WORSE_MODE, found)
    codes = codes.copy()
    codes[far] = np.where(codes[far] == OK, found[:, None], codes[far])
    return codes


def _from_the_prior(model: Any, report: np.ndarray) -> np.ndarray:
    """Largest distance of any group of parameters from the prior's centre, in prior sds, `[T]`."""
    leaf = lambda name: np.asarray(getattr(model, name), np.float64)
    p = leaf("x_mean").shape[1]
    theta, s2, mu = report[:, : p + 1], report[:, p + 1], report[:, p + 2 : 2 * p + 2]
    covariance = _covariance(report, p)
    with np.errstate(all="ignore"):
        off = theta - leaf("theta_mean")
        of_theta = np.sqrt(np.einsum("ti,tij,tj->t", off, leaf("theta_precision"), off) / s2)
        of_s2 = np.abs(np.log(s2 * leaf("sigma2_shape") / leaf("sigma2_scale"))) * np.sqrt(leaf("sigma2_shape"))
        inverse = np.linalg.pinv(covariance)
        shift = mu - leaf("x_mean")
        of_mu = np.sqrt(leaf("kappa") * np.einsum("ti,tij,tj->t", shift, inverse, shift))
        ratio = np.abs(np.linalg.eigvals(inverse @ leaf("psi"))) / leaf("nu")[:, None]
        of_covariance = np.abs(np.log(ratio)).max(1) * np.sqrt(leaf("nu") / 2)
    return np.nan_to_num(np.max([of_theta, of_s2, of_mu, of_covariance], 0), nan=0.0, posinf=np.inf)


def _covariance(report: np.ndarray, p: int) -> np.ndarray:
    """The features' covariance `[T, p, p]` of reported parameters."""
    i, j = np.tril_indices(p)
    covariance = np.zeros((len(report), p, p))
    covariance[:, i, j] = covariance[:, j, i] = report[:, 2 * p + 2 :]
    return covariance


def _log_ratio(problems: Any, typical: np.ndarray) -> np.ndarray:
    """Log of the mass of the mode on the prior's side over that of the chains' `[T]`; minus infinity where they are
    one, or the first is none."""
    covariance = _covariance(typical, problems.model_template().p)
    arrays = on_lanes((problems.batched_model(), problems.observed(), typical, covariance))
    return np.asarray(_compare(*arrays))[: len(problems)]


@jax.jit
def _compare(models, observed, report, covariance):
    over = partial(jax.vmap, in_axes=-1, out_axes=-1)
    centre = over(lambda model: model.prior_center())(models)
    theirs, their_mass, _ = _climb(models, observed, centre)
    chains = over(lambda model, r, c: model.position(r, c))(models, report, covariance)
    mine, mass, precision = _climb(models, observed, chains)
    off = theirs - mine
    apart = jnp.sqrt((off * matvec_lanes(precision, off)).sum(0))
    return jnp.where(apart > _SAME, their_mass - mass, -jnp.inf)


def _climb(model, observed, position):
    """The mode over phi and the logarithms of the noise's variances near a position in which noise explains what the
    parameters do not: phi `[P, B]`, log mass `[B]` and precision of phi `[P, P, B]`."""

    def noise(position, variance):
        """The likeliest variances given the mean and variance of the noise itself, given the variances before."""
        residual, covariance = model.residual_lanes(position, observed)
        _, inverse, pulled = sweep.lanes(add_diagonal_lanes(covariance, variance), residual)
        size = len(variance)
        left = variance - variance * variance * jnp.stack([inverse[j, j] for j in range(size)])
        square = (variance * pulled) ** 2 + jnp.maximum(left, 0.0)
        return 0.5 * (1.0 + jnp.sqrt(1.0 + 4.0 * square))

    prior_precision = jax.vmap(lambda m: m.prior_precision(), in_axes=-1, out_axes=-1)(model)

    def metric(position, variance):
        covariance, jacobian = reference_lanes(model, observed, position)
        ones = jnp.ones_like(position[0])
        return metric_lanes(Parameters(ones, prior_precision, covariance, jacobian, None), variance)

    def step(carry, _):
        position, variance, log_step = carry
        density = lambda x: model.log_density_and_grad_lanes(x, variance, observed)
        factor = inverse_cholesky.lanes(metric(position, variance))
        end = leapfrog_lanes(density, position, jnp.zeros_like(position), factor, jnp.exp(log_step), 1)
        gain = end.log_density_end - end.log_density_start
        uphill = jnp.isfinite(gain) & (gain > 0)
        position = jnp.where(uphill[None], end.position, position)
        # a leapfrog step of sqrt(2) from rest is the whole Gauss-Newton step
        log_step = jnp.clip(log_step + jnp.where(uphill, 0.3, -1.0), -8.0, 0.5 * float(np.log(2.0)))
        return (position, noise(position, variance), log_step), None

    residual, _ = model.residual_lanes(position, observed)
    start = (position, jnp.maximum(jnp.abs(residual), 2.0), jnp.full_like(residual[0], -1.0))
    (position, variance, _), _ = lax.scan(step, start, None, length=_STEPS)
    value, _ = model.log_density_and_grad_lanes(position, variance, observed)
    precision = metric(position, variance)
    log_det, _, _ = sweep.lanes(precision, position)
    mass = value + (jnp.log(variance) - 0.5 * variance).sum(0) - 0.5 * log_det
    return position, jnp.where(jnp.isfinite(mass), mass, -jnp.inf), precision
