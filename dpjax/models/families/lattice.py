"""Exact laws of sums of whole numbers under a family's model, by the transform of one record."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpjax.engine.model import Observed

#: Halvings of the tilt of an exact law; it needs no more than a few digits.
_TILTS = 24
#: Lengths of the table of the exact law of a whole-number sum: the first one that is enough is taken.
LATTICES = (128, 1024)


def lengths(model: Any, n: Any) -> np.ndarray:
    """Length of the table for each number of records, 0 where there is no exact law or it is too long."""
    n = np.asarray(n)
    if not (model.truncated and model.family.discrete and model.family.has_base and model.family.powers == (1,)):
        return np.zeros(n.shape, int)
    longest = n * np.asarray(model.high - first_value(model)) + 1
    return np.array([*LATTICES, 0])[np.searchsorted(LATTICES, longest)]


def first_value(model: Any) -> Any:
    """The smallest that a record contributes."""
    return model.low if model.rule == "clamp" else 0.0 * model.low


def log_likelihood(model: Any, phi, observed: Observed, length: int, laplace: bool):
    """log p(z | phi) with the exact law of the sum: the n-th power of one record's transform (FFT).

    length: at least n (high - start) + 1 (static); laplace: Laplace noise (else Gaussian).
    """
    eta, start = model.natural(phi), first_value(model)
    k = jnp.arange(min(model.counts or length, length), dtype=phi.dtype)  # of one record
    v = start + k
    log_one = model.family.log_base(v) + eta[0] * v - model.family.log_partition(eta)
    one = jnp.where((v >= model.low) & (v <= model.high), jnp.exp(log_one), 0.0)
    below = jnp.exp(model.family.log_mass_below(eta, model.low))
    above = jnp.exp(model.family.log_mass_above(eta, model.high))
    if model.rule == "clamp":
        one = one + jnp.where(k == 0, below, 0.0) + jnp.where(v == model.high, above, 0.0)
    else:
        one = one + jnp.where(k == 0, below + above, 0.0)
    b = observed.n / observed.n_over_b[0]
    z = observed.z[0] * b - observed.n * start
    log_one = jnp.log(one)

    def tilted(rate):
        """Log probabilities of a record weighted by exp(rate k), the log of their sum, and the mean."""
        logs = log_one + rate * k
        total = jax.scipy.special.logsumexp(logs)
        return logs - total, total, (jnp.exp(logs - total) * k).sum()

    # A transform is right to 1e-17 of the largest probability, so that the law is tilted first to where, with the
    # noise, the sum is likely to have been: where its log probability falls as fast as the noise's rises.
    def closer(_, ends):
        low, high = ends
        middle = 0.5 * (low + high)
        pull = z - observed.n * tilted(middle)[2] - (0.0 if laplace else middle * b * b)
        return jnp.where(pull > 0, middle, low), jnp.where(pull > 0, high, middle)

    # a record tilted by more than this has one value left
    steepest = jnp.minimum(1.0 / b if laplace else (jnp.abs(z) + observed.n * k[-1]) / (b * b), 60.0)
    low, high = lax.fori_loop(0, _TILTS, closer, (-steepest, steepest))
    rate = 0.5 * (low + high)
    log_p, log_total, _ = tilted(rate)
    transform = jnp.fft.rfft(jnp.exp(log_p), length)
    turned = observed.n * jnp.angle(transform)
    size = jnp.abs(transform) ** observed.n
    law = jnp.fft.irfft(lax.complex(size * jnp.cos(turned), size * jnp.sin(turned)), length)
    s = jnp.arange(length, dtype=phi.dtype)
    residual = (z - s) / b
    log_noise = (-jnp.abs(residual) if laplace else -0.5 * residual**2) - rate * s
    logs = jnp.log(jnp.maximum(law, jnp.finfo(phi.dtype).tiny)) + log_noise
    logs = jnp.where(law > 1e-15 * law.max(), logs, -jnp.inf)
    return jax.scipy.special.logsumexp(logs) + observed.n * log_total
