"""The smallest model that the transitions take: means of normal records, whose noisy sums are released.

x_j ~ N(phi_j, 1) and phi_j ~ N(0, 1 / precision) for j < D, all independent; s is the sum of n records, P = D.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax.kernels import augmentation, collapsed, gibbs
from dpjax.kernels.marginal import gaussian_marginal

SIZE = 2
LAPLACE = augmentation.laplace_scales_from.lanes


class Observed(NamedTuple):
    """Released sums `[D]` and numbers in units of the noise scale b."""

    z: jax.Array
    n_over_b: jax.Array
    root_n_over_b: jax.Array
    n: jax.Array


class NormalMean(NamedTuple):
    """precision `[]`: of the prior."""

    precision: jax.Array

    dim = SIZE
    metropolis = truncated = constrained = False
    complete_randoms = 0
    conjugate_randoms = (SIZE, 0)

    # ---- what both transitions ask ---------------------------------------------------------------------------
    def residual_lanes(self, phi, observed):
        square = observed.root_n_over_b * observed.root_n_over_b
        return observed.z - observed.n_over_b * phi, jnp.eye(SIZE, dtype=phi.dtype)[..., None] * square[None]

    def deviation_lanes(self, phi, normals):
        return normals

    # ---- Gibbs -----------------------------------------------------------------------------------------------
    def complete_lanes(self, phi, released, n, normals, independent=False):
        return released

    def valid_lanes(self, whole):
        return whole

    def conjugate_lanes(self, whole, n, keys, normals, uniforms):
        precision = (self.precision + n)[None]
        return (n[None] * whole + jnp.sqrt(precision) * normals) / precision

    # ---- collapsed -------------------------------------------------------------------------------------------
    def log_density_and_grad_lanes(self, phi, w, observed):
        residual, covariance = self.residual_lanes(phi, observed)
        value, by_mean, _ = gaussian_marginal.lanes(residual, covariance, w)
        gradient = by_mean * observed.n_over_b - self.precision[None] * phi
        return value - 0.5 * self.precision * (phi * phi).sum(0), gradient

    def canonical_lanes(self, phi):
        return phi

    def parameters(self, observed: Observed) -> collapsed.Parameters:
        """What warm-up would learn, which is known here, of one chain."""
        eye = jnp.eye(SIZE, dtype=observed.z.dtype)
        covariance, jacobian = jnp.diag(observed.root_n_over_b**2), jnp.diag(observed.n_over_b)
        return collapsed.Parameters(jnp.ones_like(self.precision), eye * self.precision, covariance, jacobian, None)


def gibbs_step(model, observed, key, state):
    return gibbs.step(model, observed, key, state, update=LAPLACE)


def collapsed_step(model, observed, parameters, key, state):
    return collapsed.step(model, observed, parameters, key, state, update=LAPLACE, steps=3)
