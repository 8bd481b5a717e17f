"""Gaussian noise: z = s + e, e ~ N(0, sigma^2), (epsilon, delta) by the analytic Gaussian mechanism.

In releases OpenDP draws it, from the operating system's randomness; there is no seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpjax.errors import InputError
from dpjax.mechanisms._jax import jax, jnp, lift
from dpjax.mechanisms.base import Mechanism, PrivacyStatement
from dpjax.privacy.opendp_noise import check_values, noised, opendp, refused


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Scale: sigma, the standard deviation."""

    kind = "gaussian"
    norm = "l2"
    formula = "the analytic Gaussian mechanism's sigma"
    needs_delta = True
    released = True
    variance = 1.0
    mixing = "point"
    statement = PrivacyStatement(
        input_domain="vectors of D finite numbers, D public",
        input_metric="L2 distance between the statistics of adjacent tables (half-vectorised, "
        "docs/formulas.md#half-vectorised-norm)",
        output_measure="approximate differential privacy (epsilon, delta)",
        privacy_map="delta = Phi(D/2s - eps s/D) - exp(eps) Phi(-D/2s - eps s/D), s the smallest scale",
        norm="l2",
        adjacency=("replace-one", "add-remove (the number of records then needs noise of its own)"),
        reference="Balle and Wang 2018, Theorem 8",
    )

    def scale(self, sensitivity, epsilon, delta=None):
        from dpjax.privacy.gaussian import analytic_gaussian_sigma  # it loads SciPy

        if delta is None:
            raise InputError("delta is missing: gaussian noise needs one, inside (0, 1)")
        return analytic_gaussian_sigma(sensitivity, epsilon, delta)

    def spent(self, scale, sensitivity, delta=0.0):
        from dpjax.privacy.gaussian import gaussian_epsilon

        return gaussian_epsilon(scale, sensitivity, delta)

    def holds(self, scale, sensitivity, epsilon, delta):
        from dpjax.privacy.gaussian import gaussian_delta

        return gaussian_delta(scale, sensitivity, epsilon) <= delta * (1 + 1e-6)

    def tail(self, scales):
        return math.erfc(scales / math.sqrt(2))

    def sum_tail(self, scales, entries):
        return math.exp(-(scales**2) / (2 * entries))

    def draw(self, values, sensitivity, epsilon, delta=0.0):
        return add_gaussian_noise(values, sensitivity, epsilon, delta)

    def simulate(self, key, scale, shape=(), dtype=None):
        scale = jnp.asarray(scale, dtype)
        return jax.random.normal(key, (*shape, *scale.shape), scale.dtype) * lift(scale, len(shape) + scale.ndim)

    def sample(self, rng, scale, shape):
        return scale * rng.standard_normal(shape)

    def log_density_and_grad(self, e):
        return -0.5 * e * e, -e

    def update_lanes(self, residual, normals, uniforms):
        """The variance is known."""
        return jnp.ones_like(residual)

    def distribution(self, loc: Any, scale: Any) -> Any:
        from numpyro.distributions import Normal

        return Normal(loc, scale)


GAUSSIAN = Gaussian()


def add_gaussian_noise(
    values: np.ndarray, sensitivity: float, epsilon: float, delta: float
) -> tuple[np.ndarray, float, float]:
    """Add normal noise to a vector: OpenDP draws it, its scale is that of the analytic Gaussian mechanism.

    OpenDP states only the zero-concentrated guarantee of its noise. It is checked to be that of normal noise of
    this scale, which says that the grid on which OpenDP draws costs nothing; (epsilon, delta) then follow from
    `dpjax.privacy.gaussian` (Balle and Wang 2018), which is tighter than a conversion.

    Args:
        values: [D] finite numbers, D public.
        sensitivity: L2 sensitivity of `values`, finite, > 0.
        epsilon: finite, > 0.
        delta: inside (0, 1).

    Returns:
        noised values [D]; standard deviation; epsilon, the target.

    Raises: as `dpjax.mechanisms.laplace.add_laplace_noise`.
    """
    check_values(values)
    scale = GAUSSIAN.release_scale(sensitivity, epsilon, delta)
    dp = opendp()
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=len(values))
    with refused(f"epsilon = {epsilon!r}"):
        measurement = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale)
        rho = measurement.map(sensitivity)
    if not rho <= (sensitivity / scale) ** 2 / 2 * (1 + 1e-12):
        raise InputError(f"epsilon = {epsilon!r} cannot be met in floating point")
    return noised(measurement, values.tolist(), epsilon), scale, epsilon
