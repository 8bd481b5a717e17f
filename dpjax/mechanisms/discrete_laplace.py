"""Discrete Laplace (geometric) noise for sums of whole numbers: P(e = k) = tanh(1 / (2 b)) exp(-|k| / b), pure epsilon.

In releases OpenDP draws it, from the operating system's randomness; there is no seed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpjax.errors import InputError
from dpjax.mechanisms._jax import jax, jnp, lift
from dpjax.mechanisms.base import Mechanism, PrivacyStatement
from dpjax.mechanisms.laplace import LAPLACE, Laplace
from dpjax.privacy.opendp_noise import check_values, noised, opendp, refused, smallest_scale

_LARGEST_SCALE = 2.0**45


@dataclass(frozen=True)
class DiscreteLaplace(Laplace):
    """Scale: b.

    Given whole-numbered s the likelihood is exact, and as a function of s it has the kernel of `Laplace`: what samples
    s treats both alike (`density`), on the whole numbers or, by the normal approximation, on the reals.
    """

    kind = "discrete-laplace"
    integer = True
    statement = PrivacyStatement(
        input_domain="vectors of D whole numbers, D public",
        input_metric="L1 distance between the statistics of adjacent tables",
        output_measure="pure differential privacy (max divergence)",
        privacy_map="epsilon = L1 sensitivity / smallest scale",
        norm="l1",
        adjacency=("replace-one", "add-remove (the number of records then needs noise of its own)"),
        reference="Ghosh, Roughgarden and Sundararajan 2012 (geometric mechanism); in releases OpenDP's"
        " make_laplace on whole numbers (exact sampling: Canonne, Kamath and Steinke 2020)",
    )

    def release_scale(self, sensitivity, epsilon, delta=0.0):
        scale = super().release_scale(sensitivity, epsilon, delta)
        if not float(sensitivity).is_integer():
            raise InputError(f"sensitivity must be a whole number for discrete-laplace noise, got {sensitivity!r}")
        if scale > _LARGEST_SCALE:  # beyond it OpenDP's 64-bit sums would be cut off
            raise InputError(f"epsilon = {epsilon!r} asks for noise beyond the whole numbers of a float")
        return scale

    def tail(self, scales):
        return 2 * super().tail(scales)

    def draw(self, values, sensitivity, epsilon, delta=0.0):
        return add_discrete_laplace_noise(values, sensitivity, epsilon)

    def simulate(self, key, scale, shape=(), dtype=None):
        """The difference of two geometric variables, floor(Exponential(1) b) each: whole numbers."""
        scale = jnp.asarray(scale, dtype)
        waiting = jax.random.exponential(key, (2, *shape, *scale.shape), scale.dtype)
        steps = jnp.floor(waiting * lift(scale, len(shape) + scale.ndim + 1))
        return steps[0] - steps[1]

    def sample(self, rng, scale, shape):
        share = -np.expm1(-1.0 / np.asarray(scale))
        return (rng.geometric(share, shape) - rng.geometric(share, shape)).astype(np.float64)

    @property
    def density(self) -> Mechanism:
        return LAPLACE


def add_discrete_laplace_noise(
    values: np.ndarray, sensitivity: float, epsilon: float
) -> tuple[np.ndarray, float, float]:
    """Add whole-numbered noise, P(k) proportional to exp(-|k| / scale), to a vector of whole numbers.

    Args, Returns, Raises: as `dpjax.mechanisms.laplace.add_laplace_noise`; values and sensitivity are whole numbers
    below 2^53.
    """
    check_values(values)
    if not ((values == np.round(values)).all() and (np.abs(values) < 2**53).all()):
        raise InputError("statistics must be whole numbers for discrete-laplace noise")
    scale = DISCRETE_LAPLACE.release_scale(sensitivity, epsilon)
    dp = opendp()
    domain = dp.vector_domain(dp.atom_domain(T="i64"), size=len(values))
    with refused(f"epsilon = {epsilon!r}"):
        measurement, scale, spent = smallest_scale(
            lambda scale: dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale), int(sensitivity), scale, epsilon
        )
    return noised(measurement, [int(value) for value in values], epsilon), scale, spent


DISCRETE_LAPLACE = DiscreteLaplace()
