"""Sums of simulated records of an exponential family, as released and whole."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax, random

from dpjax.families import Family
from dpjax.kernels.symmetric import cholesky

#: Records simulated at once.
CHUNK = 1000


def simulate(model, key, phi, n):
    """Exact sums of n records drawn at phi: as released, and whole, both [S] (work grows with n)."""
    theta = model.prior.constrain(phi)
    direct = model.family.sample_sum(key, theta, n)
    if direct is not None and not model.truncated:
        return direct, direct
    if counted(model.family):
        return _simulate_counts(model, key, phi, n)

    def chunk(k, sums):
        released, whole = sums
        v = model.family.sample(random.fold_in(key, k), theta, (CHUNK,))
        number = k.astype(phi.dtype) * CHUNK + jnp.arange(CHUNK, dtype=phi.dtype)
        # a product with 0 would keep a draw beyond the range of a float
        some = lambda x: jnp.where((number < n)[None], x, jnp.zeros_like(x)).sum(1)
        return released + some(model.released_statistic(v)), whole + some(model.family.statistic(v))

    chunks = jnp.ceil(n / CHUNK).astype(jnp.int32)
    zero = jnp.zeros((model.statistic_dim,), phi.dtype)
    return lax.fori_loop(jnp.int32(0), chunks, chunk, (zero, zero))


def counted(family: Family) -> bool:
    """Whether sums of counts from 0 are simulated value by value instead of record by record."""
    return family.discrete and family.has_base and family.support[0] == 0


def _simulate_counts(model, key, phi, n):
    """`simulate` for counts from 0: how many records have each value, one value after the other."""
    eta = model.natural(phi)
    partition = model.family.log_partition(eta)

    def value(carry):
        k, left, log_above, released, whole = carry
        log_one = model.family.log_base(k) + eta[0] * k - partition
        share = jnp.clip(jnp.exp(log_one - log_above), 0.0, 1.0)
        # the last value before the tail is beyond the range of numbers takes all that are left
        share = jnp.where(jnp.isfinite(log_above) & jnp.isfinite(share), share, 1.0)
        here = random.binomial(random.fold_in(key, k.astype(jnp.int32)), left, share, dtype=phi.dtype)
        above = model.family.log_survival(eta, k)
        released = released + here * model.released_statistic(k)
        return k + 1.0, left - here, above, released, whole + here * model.family.statistic(k)

    zero = jnp.zeros_like(phi[0])
    sums = jnp.zeros((model.statistic_dim,), phi.dtype)
    return lax.while_loop(lambda carry: carry[1] > 0, value, (zero, n, zero, sums, sums))[3:]


def simulate_clt(model, key, phi, n):
    """The same from the normal law that the samplers use."""
    one, other = random.split(key)
    mean, covariance = model.moments(phi)
    c = mean + cholesky(covariance) @ random.normal(one, mean.shape, mean.dtype) / jnp.sqrt(n)
    if not model.truncated:
        return n * c, n * c
    whole = model.complete(phi, c, n, random.normal(other, mean.shape, mean.dtype))
    return n * c, n * whole
