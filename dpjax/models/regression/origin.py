"""Linear regression through the origin: x ~ N(0, L L'), y | x ~ N(x' theta, sigma^2) (Alparslan et al. 2023, section 3;
docs/formulas.md#several-data-holders).

Prior: sigma^2 ~ InvGamma(a0, b0); Sigma_x = L L' ~ InvWishart(psi, nu); theta ~ N(theta_mean, Lambda^{-1}), independent
of sigma^2 (Alparslan et al. 2023), or theta | sigma^2 ~ N(theta_mean, sigma^2 Lambda^{-1}) (conjugate, as with an
intercept); Lambda is a PRECISION (docs/formulas.md#prior-precision).
Unconstrained: phi = (theta [p], log sigma^2, ell [p], c [p (p - 1) / 2]), L_ii = exp(ell_i), L_ij = exp(ell_i) c_ij.
The sums of one or several parties given these are in `party_sums`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import PRNGKeyArray

from dpjax.errors import InputError
from dpjax.kernels.coordinates import (
    coordinates,
    curvature_at,
    inverse_wishart_lanes,
    record_factor_lanes,
    unit_lower_lanes,
)
from dpjax.kernels.symmetric import cholesky, inverse_cholesky, matmul_lanes, matvec_lanes
from dpjax.models.hyperparameters import check_sizes, coefficients, features, matrix, positive
from dpjax.models.regression import conjugate
from dpjax.models.regression.base import RegressionModel
from dpjax.models.regression.positions import regression_positions
from dpjax.models.regression.simulation import inverse_wishart_factor
from dpjax.statistics.products import MOST_FEATURES_THROUGH_ORIGIN
from dpjax.statistics.regression import origin_parameters


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OriginRegression(RegressionModel):
    """Prior of the regression; every array field is a leaf, so problems of one call may have different priors.

    Fields: theta_mean `[p]` and theta_precision `[p, p]`, sigma2_shape `[]`, sigma2_scale `[]`, psi `[p, p]`, nu `[]`;
    all in scaled units. independent (static): theta does not depend on sigma^2.
    """

    theta_mean: Any
    theta_precision: Any
    sigma2_shape: Any
    sigma2_scale: Any
    psi: Any
    nu: Any
    independent: bool = field(default=False, metadata={"static": True})

    takes_parties = needs_parties = True

    @classmethod
    def create(
        cls,
        p: int,
        *,
        theta_mean=0.0,
        theta_precision=1.0,
        sigma2_shape=20.0,
        sigma2_scale=0.5,
        psi=1.0,
        nu=None,
        independent=False,
        dtype=jnp.float32,
    ) -> OriginRegression:
        """Build and check a prior for p features; scalars stand for a constant vector or a multiple of I.

        Raises:
            InputError: wrong shape, not finite, not positive (definite), or nu <= p - 1.
        """
        features(p, MOST_FEATURES_THROUGH_ORIGIN, "without an intercept")
        if not isinstance(independent, bool):
            raise InputError(f"independent must be true or false; got {independent!r}")
        leaves = {
            **coefficients(p, theta_mean, theta_precision, sigma2_shape, sigma2_scale),
            "psi": matrix("psi", psi, p),
            "nu": positive("nu", 49.0 + p if nu is None else nu, above=p - 1.0),
        }
        check_sizes(leaves)
        return cls(**{name: jnp.asarray(value, dtype) for name, value in leaves.items()}, independent=independent)

    @classmethod
    def s0(cls, p: int, dtype=jnp.float32) -> OriginRegression:
        """Prior of calibration studies: that of Bernstein and Sheldon 2019, section 4.2, without an intercept
        (`LinearRegression.s0`)."""
        return cls.create(p, theta_precision=0.5 / 19, dtype=dtype)

    @classmethod
    def weak(cls, p: int, dtype=jnp.float32) -> OriginRegression:
        """Default prior of `fit`, as `LinearRegression.weak`."""
        return cls.create(p, theta_precision=0.15, sigma2_shape=3.0, sigma2_scale=0.3, psi=1.0, nu=p + 5.0, dtype=dtype)

    def as_dict(self) -> dict:
        """Hyperparameters by name as plain lists and floats (the layout of `prior.toml`)."""
        plain = lambda *names: {name: np.asarray(getattr(self, name), np.float64).tolist() for name in names}
        coefficients = plain("theta_mean", "theta_precision", "sigma2_shape", "sigma2_scale")
        return {**coefficients, "independent": self.independent, "covariates": plain("psi", "nu")}

    # ---- sizes and names -----------------------------------------------------------------------------------
    @property
    def p(self) -> int:
        return self.theta_mean.shape[0]

    @property
    def dim(self) -> int:
        p = self.p
        return p + 1 + p * (p + 1) // 2

    @property
    def statistic_dim(self) -> int:
        return self.dim

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return origin_parameters(self.p)

    # ---- coordinates ---------------------------------------------------------------------------------------
    def coordinates_lanes(self, phi):
        """theta `[p, B]`, log sigma^2 `[B]`, ell `[p, B]` and L with its rows divided by its diagonal `[p, p, B]`."""
        p = self.p
        ell = phi[p + 1 : 2 * p + 1]
        return phi[:p], phi[p], ell, unit_lower_lanes(phi[2 * p + 1 :], ell)

    def record_lanes(self, phi):
        """Mean 0 `[q, B]`, factor G `[q, q, B]` and covariance C `[q, q, B]` of one record (x, y)."""
        theta, log_s2, ell, unit_lower = self.coordinates_lanes(phi)
        lower = unit_lower * jnp.exp(ell)[:, None]
        last = matvec_lanes(jnp.swapaxes(lower, 0, 1), theta)
        g = record_factor_lanes(lower, last, jnp.exp(0.5 * log_s2))
        return jnp.zeros_like(g[0]), g, matmul_lanes(g, jnp.swapaxes(g, 0, 1))

    def position_of_mean_lanes(self, by_mean):
        """The gradient by phi of what depends on it through the record's mean, which is 0: none."""
        return jnp.zeros((self.dim, by_mean.shape[-1]), by_mean.dtype)

    #: Place of theta in phi; log sigma^2, ell and c follow.
    coefficients_at = 0

    def log_prior_and_grad_lanes(self, phi):
        """log prior density up to a constant `[B]` and its gradient `[P, B]`."""
        p = self.p
        theta, log_s2, ell, unit_lower = self.coordinates_lanes(phi)
        offset = theta - self.theta_mean
        pulled = matvec_lanes(self.theta_precision, offset)
        half = 0.5 * (offset * pulled).sum(0)
        precision = jnp.exp(-log_s2)
        covariance, by_covariance = inverse_wishart_lanes(self.psi, self.nu, unit_lower, ell)
        value = covariance - self.sigma2_shape * log_s2 - precision * self.sigma2_scale
        by_log_s2 = -self.sigma2_shape + precision * self.sigma2_scale
        if self.independent:
            value, by_theta = value - half, -pulled
        else:
            value = value - 0.5 * p * log_s2 - precision * half
            by_theta, by_log_s2 = -precision[None] * pulled, by_log_s2 - 0.5 * p + precision * half
        return value, jnp.concatenate([by_theta, by_log_s2[None], by_covariance])

    def log_prior_lanes(self, phi):
        return self.log_prior_and_grad_lanes(phi)[0]

    def positions(self, reported):
        return regression_positions(reported, self.p, intercept=False)

    def report_lanes(self, phi):
        theta, log_s2, ell, unit_lower = self.coordinates_lanes(phi)
        lower = unit_lower * jnp.exp(ell)[:, None]
        covariance = matmul_lanes(lower, jnp.swapaxes(lower, 0, 1))
        row, column = (x.astype(np.int32) for x in np.tril_indices(self.p))
        return jnp.concatenate([theta, jnp.exp(log_s2)[None], covariance[row, column]])

    @property
    def conjugate_randoms(self) -> tuple[int, int]:
        return conjugate.randoms(self.p, self.p)

    def conjugate_lanes(self, mean_statistic, n, keys, normals, uniforms):
        """phi given the Gram matrix of (x, y) per record, row by row `[q q, B]`; conjugate priors only."""
        q = self.p + 1
        gram = mean_statistic.reshape(q, q, -1)
        return conjugate.draw_origin_lanes(self, gram, n, keys, normals, uniforms)

    # ---- one chain -----------------------------------------------------------------------------------------
    def prior_center(self):
        ell, c = coordinates(cholesky(self.psi / self.nu))
        return jnp.concatenate([self.theta_mean, jnp.log(self.sigma2_scale / self.sigma2_shape)[None], ell, c])

    def prior_precision(self):
        """Closed form of minus the Hessian at `prior_center` (checked against `jax.hessian` in the tests)."""
        p = self.p
        s2 = self.sigma2_scale / self.sigma2_shape
        theta = self.theta_precision if self.independent else self.theta_precision / s2
        out = jnp.zeros((self.dim, self.dim), theta.dtype).at[:p, :p].set(theta).at[p, p].set(self.sigma2_shape)
        return out.at[p + 1 :, p + 1 :].set(curvature_at(cholesky(self.psi / self.nu), self.nu))

    def sample_prior(self, key: PRNGKeyArray):
        dtype = self.theta_mean.dtype
        k_s2, k_theta, k_x = random.split(key, 3)
        s2 = self.sigma2_scale / random.gamma(k_s2, self.sigma2_shape, dtype=dtype)
        unit = inverse_cholesky(self.theta_precision).T @ random.normal(k_theta, (self.p,), dtype)
        theta = self.theta_mean + (unit if self.independent else jnp.sqrt(s2) * unit)
        ell, c = coordinates(inverse_wishart_factor(k_x, self.psi, self.nu))
        return jnp.concatenate([theta, jnp.log(s2)[None], ell, c])
