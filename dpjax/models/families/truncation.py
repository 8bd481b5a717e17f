"""Moments of one record by the region that it lies in: below, inside and above the bounds of a `FamilyModel`."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpjax.kernels.truncated import truncated_moments


class Joint(NamedTuple):
    """Moments of one record: released c and whole t, means [S], covariances [S, S] and cross-covariance of t and c."""

    released_mean: Any
    released_covariance: Any
    whole_mean: Any
    whole_covariance: Any
    cross: Any


def regions(model: Any, eta):
    """Below, inside and above the bounds: masses [3], means [3, S] and covariance inside [S, S] of c."""
    family = model.family
    inside, covariance = truncated_moments(lambda e: family.log_integral(e, model.low, model.high), eta)
    below = family.log_mass_below(eta, model.low)
    above = family.log_mass_above(eta, model.high)
    masses = jnp.exp(jnp.stack([below, family.log_mass(eta, model.low, model.high), above]))
    if model.rule == "clamp":
        means = jnp.stack([family.statistic(model.low), inside, family.statistic(model.high)])
    else:
        means = jnp.stack([jnp.zeros_like(inside), inside, jnp.zeros_like(inside)])
    return masses, means, covariance


def tail_means(model: Any, eta, masses, inside, whole_mean):
    """Means of t below and above the bounds; any finite number where there is no mass.

    The smaller tail comes from its own log-partition, the other from the total, which costs it few digits.
    """
    family, tiny = model.family, jnp.finfo(whole_mean.dtype).tiny
    below_is_small = masses[0] <= masses[2]
    empty = jnp.minimum(masses[0], masses[2]) <= tiny
    # an end of the support has no mass below and nothing to differentiate there
    safe = jnp.where(masses[0] <= tiny, model.high, model.low)

    def log_small(e):
        below = family.log_mass_below(e, safe)
        return jnp.where(below_is_small, below, family.log_mass_above(e, model.high))

    slope = jax.grad(log_small)(eta)
    small = jnp.where(empty, inside, whole_mean + slope)
    mass = jnp.where(empty, jnp.zeros_like(masses[0]), jnp.minimum(masses[0], masses[2]))
    rest = whole_mean - mass * small - masses[1] * inside
    large_mass = jnp.maximum(masses[0], masses[2])
    large = jnp.where(large_mass > tiny, rest / jnp.maximum(large_mass, tiny), inside)
    below = jnp.where(below_is_small, small, large)
    above = jnp.where(below_is_small, large, small)
    return below, above


def only_inside(covariance):
    """Covariances of the three regions `[3, S, S]`: the ends are points."""
    zero = jnp.zeros_like(covariance)
    return jnp.stack([zero, covariance, zero])
