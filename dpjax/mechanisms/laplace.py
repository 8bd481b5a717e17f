"""Laplace noise: z = s + e, density exp(-|e| / b) / (2 b), pure epsilon.

In releases OpenDP draws it, from the operating system's randomness; there is no seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpjax.mechanisms._jax import augmentation, jax, jnp, lift
from dpjax.mechanisms.base import SLACK, Mechanism, PrivacyStatement, chernoff_of_laplace
from dpjax.privacy.opendp_noise import check_values, noised, opendp, refused, smallest_scale

#: Smallest mixing variance, in squares of the scale.
_LEAST = 1e-10


@dataclass(frozen=True)
class Laplace(Mechanism):
    """Scale: b, the mean absolute noise. As a scale mixture: e | w ~ N(0, w), w ~ Exponential(rate 1/2), in units of b
    (docs/formulas.md#laplace-mixture)."""

    kind = "laplace"
    norm = "l1"
    formula = "sensitivity / epsilon"
    released = True
    variance = 2.0
    mixing = "exponential"
    statement = PrivacyStatement(
        input_domain="vectors of D finite numbers, D public",
        input_metric="L1 distance between the statistics of adjacent tables",
        output_measure="pure differential privacy (max divergence)",
        privacy_map="epsilon = L1 sensitivity / smallest scale",
        norm="l1",
        adjacency=("replace-one", "add-remove (the number of records then needs noise of its own)"),
        reference="Dwork, McSherry, Nissim and Smith 2006, Theorem 1; in releases OpenDP's"
        " make_laplace (discrete Laplace noise on a fine grid: Canonne, Kamath and Steinke 2020)",
    )

    def scale(self, sensitivity, epsilon, delta=None):
        self.no_delta(delta)
        return sensitivity / epsilon

    def spent(self, scale, sensitivity, delta=0.0):
        return sensitivity / scale

    def holds(self, scale, sensitivity, epsilon, delta):
        return delta > 0 or scale * epsilon * (1 + SLACK) >= sensitivity

    def tail(self, scales):
        return math.exp(-scales)

    def sum_tail(self, scales, entries):
        return chernoff_of_laplace(scales, entries)

    def draw(self, values, sensitivity, epsilon, delta=0.0):
        return add_laplace_noise(values, sensitivity, epsilon)

    def simulate(self, key, scale, shape=(), dtype=None):
        scale = jnp.asarray(scale, dtype)
        return jax.random.laplace(key, (*shape, *scale.shape), scale.dtype) * lift(scale, len(shape) + scale.ndim)

    def sample(self, rng, scale, shape):
        return rng.laplace(scale=scale, size=shape)

    def log_density_and_grad(self, e):
        return -jnp.abs(e), -jnp.sign(e)

    def update_lanes(self, residual, normals, uniforms):
        return jnp.maximum(augmentation.laplace_scales_from.lanes(residual, normals, uniforms), _LEAST)

    def distribution(self, loc: Any, scale: Any) -> Any:
        from numpyro.distributions import Laplace as Law

        return Law(loc, scale)


LAPLACE = Laplace()


def add_laplace_noise(values: np.ndarray, sensitivity: float, epsilon: float) -> tuple[np.ndarray, float, float]:
    """Add Laplace noise to a vector so that OpenDP's privacy map gives at most epsilon.

    Args:
        values: [D] finite numbers, D public.
        sensitivity: L1 sensitivity of `values`, finite, > 0.
        epsilon: target, finite, > 0.

    Returns:
        noised values [D]; scale b; epsilon of OpenDP's map at this scale, at most the target.

    Raises:
        InputError: values that are not finite or not a vector (OpenDP takes them without a word: NaN becomes
            a number), or an epsilon whose noise is beyond the range of a float. The message holds no value.
        MissingExtraError: OpenDP is not installed.
    """
    check_values(values)
    scale = LAPLACE.release_scale(sensitivity, epsilon)
    dp = opendp()
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=len(values))
    with refused(f"epsilon = {epsilon!r}"):
        measurement, scale, spent = smallest_scale(
            lambda scale: dp.m.make_laplace(domain, dp.l1_distance(T=float), scale), sensitivity, scale, epsilon
        )
    return noised(measurement, values.tolist(), epsilon), scale, spent
