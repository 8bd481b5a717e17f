"""Families whose h is 1 in the right coordinate: the truncated log-partition has a closed form without differences."""

from __future__ import annotations

from dpjax.families._jax import jnp, special


def log_exponential_integral(eta, low, high):
    """log of the integral of exp(eta u) over low <= u <= high, for any eta (Bernstein 2020, eq 4.2)."""
    half = 0.5 * (high - low)
    return 0.5 * eta * (low + high) + jnp.log(high - low) + special.log_sinhc(eta * half)


def log_geometric_sum(eta, low, high):
    """log of the sum of exp(eta k) over whole low <= k <= high, for any eta."""
    count = high - low + 1.0
    ratio = special.log_sinhc(0.5 * eta * count) - special.log_sinhc(0.5 * eta)
    return 0.5 * eta * (low + high) + jnp.log(count) + ratio
