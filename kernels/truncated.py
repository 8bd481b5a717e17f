"""Moments of sums over records of which some are clamped or left out (Bernstein 2020, Proposition 5 and Lemma 1;
docs/formulas.md#joint-parts, #family-moments).

Everything is about ONE record; sums over n records have n times these moments. A region without mass may have any
moments, not finite ones too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def truncated_moments(
    log_integral: Callable[[Float[Array, " S"]], Float[Array, ""]], eta: Float[Array, " S"]
) -> tuple[Float[Array, " S"], Float[Array, "S S"]]:
    """Mean and covariance of t under the density proportional to h exp(eta . t) on a region (Bernstein 2020, eqs 4.3,
    4.4).

    Args:
        log_integral: the log-partition of the family truncated to the region, log of the integral of h exp(eta . t).
        eta: natural parameters `[S]`.
    """
    return jax.grad(log_integral)(eta), jax.hessian(log_integral)(eta)


def log_sum(points: Callable[..., Any], eta: Float[Array, " S"], *args: Any) -> Float[Array, ""]:
    """log of a sum over points that stands for an integral of h exp(eta . t), with cumulants of t as derivatives.

    The derivatives in eta are moments over the same points, up to the fourth; the points are not differentiated,
    nor is anything with respect to `args`.

    Args:
        points: `points(eta, *args) -> (log_scale [], weights [N], center [S], shifts [S, N])`: the integral is
            exp(log_scale) times the sum of the weights, which belong to t = center + shifts.
        eta: natural parameters `[S]`.
    """
    return _cumulant(points, 0, jax.lax.stop_gradient(args), eta)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _cumulant(points: Callable[..., Any], order: int, args: Any, eta: Any) -> Any:
    """Derivative of this order of the log of the sum `[S] * order`."""
    log_scale, weights, center, shifts = points(eta, *args)
    total = weights.sum()
    if order == 0:
        return log_scale + jnp.log(total)
    weights = weights / total
    mean = (weights[None] * shifts).sum(-1)
    if order == 1:
        return center + mean
    shifts = shifts - mean[:, None]
    product = weights
    for _ in range(order):
        product = product[..., None, :] * shifts.reshape(*(1,) * (product.ndim - 1), *shifts.shape)
    moment = product.sum(-1)
    if order < 4:
        return moment
    if order == 4:
        c = (weights[None, None] * shifts[:, None] * shifts[None]).sum(-1)
        pairs = c[:, :, None, None] * c[None, None]
        return moment - pairs - pairs.transpose(0, 2, 1, 3) - pairs.transpose(0, 2, 3, 1)
    raise NotImplementedError("a truncated log-partition has four derivatives here")


@_cumulant.defjvp
def _(points: Any, order: int, primals: Any, tangents: Any) -> Any:
    value, slope = _cumulant(points, order, *primals), _cumulant(points, order + 1, *primals)
    return value, (slope * tangents[1].reshape(*(1,) * order, -1)).sum(-1)


def mixture_moments(
    masses: Float[Array, " R"], means: Float[Array, "R S"], covariances: Float[Array, "R S S"]
) -> tuple[Float[Array, " S"], Float[Array, "S S"]]:
    """Mean and covariance over R regions from those inside each, as within plus between: nothing cancels.

    Args:
        masses: probabilities of the regions, which sum to 1.
    """
    return _weighted(masses, means), mixture_cross_covariance(masses, means, means, covariances)


def mixture_cross_covariance(
    masses: Float[Array, " R"],
    means_a: Float[Array, "R S"],
    means_b: Float[Array, "R S"],
    within: Float[Array, "R S S"],
) -> Float[Array, "S S"]:
    """Covariance of a and b over R regions from their means in each and their covariance within."""
    shift_a = _filled(masses, means_a) - _weighted(masses, means_a)[None]
    shift_b = _filled(masses, means_b) - _weighted(masses, means_b)[None]
    return _weighted(masses, _filled(masses, within) + shift_a[:, :, None] * shift_b[:, None])


def _filled(masses: Any, values: Any) -> Any:
    """Values with 0 where there is no mass."""
    return jnp.where(masses.reshape(-1, *(1,) * (values.ndim - 1)) > 0.0, values, jnp.zeros_like(values))


def _weighted(masses: Any, values: Any) -> Any:
    return (masses.reshape(-1, *(1,) * (values.ndim - 1)) * _filled(masses, values)).sum(0)
