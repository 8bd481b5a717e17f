"""Regression whose covariates follow a known law: only its moments up to order four enter (Bernstein and Sheldon 2019,
section 3.4.4, Gibbs-SS-Prior).

y | x ~ N(theta_0 + x' beta, sigma^2), x independent draws from a FIXED law with second moments eta and covariances xi
of products. Prior: sigma^2 ~ InvGamma(a0, b0), theta | sigma^2 ~ N(theta_mean, sigma^2 Lambda^{-1}), Lambda a
PRECISION.
A law whose own parameters are random (a hierarchical one) does not belong here: records are then exchangeable, not
independent, and its marginal moments give posteriors that are far too narrow (docs/formulas.md#dependent-records).
Unconstrained: phi = (alpha, beta [p], log sigma^2) with alpha = theta_0 + E[x]' beta; P = p + 2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from dpjax.engine.lane_model import jacobian_of_lanes
from dpjax.errors import InputError
from dpjax.kernels import nig, suffstat
from dpjax.kernels.moments import regression_moments
from dpjax.kernels.random import gamma_from
from dpjax.kernels.symmetric import cholesky, matvec_lanes
from dpjax.models.hyperparameters import check_sizes, coefficients
from dpjax.models.regression import conjugate, simulation
from dpjax.models.regression.base import RegressionModel
from dpjax.models.regression.laws import marginal_moments

#: Laws that records can be drawn from; "moments" is any other, of which no more is known than its moments.
LAWS = ("normal", "uniform", "moments")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class KnownCovariates(RegressionModel):
    """Prior of theta and sigma^2, and the moments of the covariates' law; every field but `law` is an array leaf.

    Fields: theta_mean `[q]` and theta_precision `[q, q]` (q = p + 1, intercept first), sigma2_shape `[]`, sigma2_scale
    `[]`; eta `[q, q]`: E x_i x_j of (1, x); xi `[q, q, q, q]`: Cov(x_i x_j, x_k x_l); all in the units of the
    statistic.
    law: one of `LAWS`, what `simulate` draws from.
    """

    theta_mean: Any
    theta_precision: Any
    sigma2_shape: Any
    sigma2_scale: Any
    eta: Any
    xi: Any
    law: str = field(default="moments", metadata={"static": True})

    @classmethod
    def create(
        cls,
        eta: Any,
        xi: Any,
        *,
        theta_mean=0.0,
        theta_precision=1.0,
        sigma2_shape=20.0,
        sigma2_scale=0.5,
        law: str = "moments",
        dtype=jnp.float32,
    ) -> KnownCovariates:
        """Build and check; scalars stand for a constant vector or a multiple of I.

        Raises:
            InputError: wrong shape, not finite, not positive (definite), moments that no law has.
        """
        eta, xi = np.asarray(eta, np.float64), np.asarray(xi, np.float64)
        q = eta.shape[0] if eta.ndim == 2 else 0
        if q < 2 or eta.shape != (q, q) or xi.shape != (q, q, q, q):
            raise InputError(
                f"eta and xi must have shapes [q, q] and [q, q, q, q], q = p + 1 with the unit feature; got "
                f"{eta.shape} "
                f"and {xi.shape}"
            )
        if not (np.isfinite(eta).all() and np.isfinite(xi).all()):
            raise InputError("eta and xi must be finite")
        if not np.isclose(eta[0, 0], 1.0) or np.abs(xi[0, 0]).max() > 1e-9:
            raise InputError("eta[0, 0] must be 1 and xi[0, 0] zero: the first feature is the unit feature")
        scale = np.abs(eta).max()
        if np.linalg.eigvalsh(eta).min() < -1e-9 * scale:
            raise InputError("eta must be positive semi-definite: no law has these second moments")
        if np.linalg.eigvalsh(xi.reshape(q * q, q * q)).min() < -1e-9 * max(1.0, np.abs(xi).max()):
            raise InputError("xi must be positive semi-definite: no law has these fourth moments")
        if law not in LAWS:
            raise InputError(f"law must be one of {', '.join(LAWS)}; got {law!r}")
        leaves = coefficients(q, theta_mean, theta_precision, sigma2_shape, sigma2_scale)
        check_sizes(leaves)
        leaves |= {"eta": eta, "xi": xi}
        return cls(**{name: jnp.asarray(value, dtype) for name, value in leaves.items()}, law=law)

    def as_dict(self) -> dict[str, Any]:
        plain = {
            name: np.asarray(getattr(self, name), np.float64).tolist()
            for name in ("theta_mean", "theta_precision", "sigma2_shape", "sigma2_scale")
        }
        eta = np.asarray(self.eta, np.float64)
        mean = eta[0, 1:]
        covariance = np.asarray(self.xi, np.float64)[0, 1:, 0, 1:]  # not eta - mm', which cancels far from 0
        law = {"law": self.law, "mean": mean.tolist(), "covariance": covariance.tolist()}
        return {**plain, "covariates": law}

    # ---- sizes and names -----------------------------------------------------------------------------------
    @property
    def p(self) -> int:
        return self.eta.shape[0] - 1

    @property
    def dim(self) -> int:
        return self.p + 2

    @property
    def statistic_dim(self) -> int:
        p = self.p
        return p + p * (p + 1) // 2 + p + 2

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return (*(f"theta[{i}]" for i in range(self.p + 1)), "sigma2")

    # ---- lanes ---------------------------------------------------------------------------------------------
    def _theta_lanes(self, phi):
        p = self.p
        beta = phi[1 : p + 1]
        intercept = phi[0] - (self.eta[0, 1:].astype(phi.dtype) * beta).sum(0)
        return jnp.concatenate([intercept[None], beta]), phi[p + 1]

    def moments_lanes(self, phi):
        theta, log_s2 = self._theta_lanes(phi)
        eta, xi = self.eta.astype(phi.dtype), self.xi.astype(phi.dtype)
        return regression_moments.lanes(theta, jnp.exp(log_s2), eta, xi)

    def mean_jacobian_lanes(self, phi):
        return jacobian_of_lanes(lambda x: self.moments_lanes(x)[0], phi)

    def log_prior_lanes(self, phi):
        theta, log_s2 = self._theta_lanes(phi.astype(self.theta_mean.dtype))
        offset = theta - self.theta_mean
        quadratic = (offset * matvec_lanes(self.theta_precision, offset)).sum(0)
        half = 0.5 * (self.p + 1.0) + self.sigma2_shape
        return -half * log_s2 - jnp.exp(-log_s2) * (0.5 * quadratic + self.sigma2_scale)

    def report_lanes(self, phi):
        theta, log_s2 = self._theta_lanes(phi)
        return jnp.concatenate([theta, jnp.exp(log_s2)[None]])

    # ---- one chain -----------------------------------------------------------------------------------------
    def prior_center(self):
        alpha = self.theta_mean[0] + self.eta[0, 1:] @ self.theta_mean[1:]
        log_s2 = jnp.log(self.sigma2_scale / self.sigma2_shape)
        return jnp.concatenate([alpha[None], self.theta_mean[1:], log_s2[None]])

    def prior_precision(self):
        """Closed form of minus the Hessian at the centre, where the quadratic form vanishes."""
        p = self.p
        log_s2 = jnp.log(self.sigma2_scale / self.sigma2_shape)
        jacobian = jnp.eye(p + 1, dtype=self.eta.dtype).at[0, 1:].set(-self.eta[0, 1:])
        block = jnp.exp(-log_s2) * jacobian.T @ self.theta_precision @ jacobian
        return jnp.pad(block, ((0, 1), (0, 1))).at[p + 1, p + 1].set(self.sigma2_shape)

    def sample_prior(self, key: PRNGKeyArray):
        theta, s2 = simulation.sample_theta(self, key)
        alpha = theta[0] + self.eta[0, 1:] @ theta[1:]
        return jnp.concatenate([alpha[None], theta[1:], jnp.log(s2)[None]])

    def simulate(self, key: PRNGKeyArray, phi, n):
        """Exact sums of n records; the law must be "normal" or "uniform" (independent covariates, from the moments)."""
        theta, log_s2 = (x[..., 0] for x in _theta(self, phi))
        mean = self.eta[0, 1:]
        covariance = self.eta[1:, 1:] - mean[:, None] * mean[None]
        if self.law == "normal":
            sums = simulation.normal_sums(key, mean, cholesky(covariance), theta, jnp.exp(log_s2), n)
        elif self.law == "uniform":
            factor = jnp.diag(jnp.sqrt(jnp.diagonal(covariance)))
            record = simulation.record_of(mean, factor, theta, log_s2, "uniform")
            sums = simulation.sums_of_records(key, record, self.p, n)
        else:
            raise InputError("the law of the covariates is known by its moments only: records cannot be simulated")
        return sums, sums

    # ---- conjugate update ----------------------------------------------------------------------------------
    def valid_lanes(self, mean_statistic):
        return conjugate.valid_lanes(mean_statistic)

    @property
    def conjugate_randoms(self) -> tuple[int, int]:
        return self.p + 1 + conjugate.PROPOSALS, conjugate.PROPOSALS + 1

    def conjugate_lanes(self, mean_statistic, n, keys, normals, uniforms):
        q = self.p + 1
        moments = suffstat.moment_matrix.lanes(mean_statistic, jnp.ones_like(mean_statistic[0]))
        shape = (self.sigma2_shape + 0.5 * n)[None]
        gamma = gamma_from.lanes(keys, shape, normals[q:].reshape(conjugate.PROPOSALS, 1, -1), uniforms[:, None])
        prior = nig.NIG(self.theta_mean, self.theta_precision, self.sigma2_shape, self.sigma2_scale)
        theta, s2 = nig.update_draw_from.lanes(
            prior, moments[:q, :q], moments[:q, q], moments[q, q], n, gamma[0], normals[:q]
        )
        alpha = theta[0] + (self.eta[0, 1:] * theta[1:]).sum(0)
        return jnp.concatenate([alpha[None], theta[1:], jnp.log(s2)[None]])


def _theta(model: KnownCovariates, phi):
    return jax.tree.map(lambda x: x[..., None], model)._theta_lanes(phi[..., None])


def law_of_one_record(normal: Any) -> KnownCovariates | None:
    """The model of the paper's Gibbs-SS-Prior: the moments of one record under the prior of a `LinearRegression`, as if
    they were those of a known law; None where the prior has no fourth moments."""
    if not normal.nu > normal.p + 3:
        return None
    eta, xi = marginal_moments(normal.x_mean, float(normal.kappa), normal.psi, float(normal.nu))
    shared = ("theta_mean", "theta_precision", "sigma2_shape", "sigma2_scale")
    leaves: dict[str, Any] = {name: np.asarray(getattr(normal, name)) for name in shared}
    return KnownCovariates.create(eta, xi, **leaves)
