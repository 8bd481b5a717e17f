"""Bayesian linear regression on released products of the record (Bernstein and Sheldon 2019; Bernstein 2020, ch. 5;
docs/formulas.md#regression-models-and-moments; docs/formulas.md#closed-form-products).

Record r = (x, y), x ~ N(mu, L L'), y | x ~ N(theta_0 + x' beta, sigma^2), that is r ~ N(m, G G') with
m = (mu, alpha), alpha = theta_0 + mu' beta, G = [[L, 0], [beta' L, sigma]].
Prior: sigma^2 ~ InvGamma(a0, b0), theta | sigma^2 ~ N(theta_mean, sigma^2 Lambda^{-1}) with Lambda a PRECISION
(docs/formulas.md#prior-precision), Sigma_x = L L' ~ InvWishart(psi, nu), mu | Sigma_x ~ N(x_mean, Sigma_x / kappa).
Unconstrained: phi = (mu [p], alpha, beta [p], log sigma^2, ell [p], c [p (p - 1) / 2]) with L_ii = exp(ell_i),
L_ij = exp(ell_i) c_ij for i > j. P = D: as many coordinates as statistics, for every p.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from dpjax.engine.model import Observed
from dpjax.kernels.coordinates import (
    coordinates,
    curvature_at,
    inverse_lower_lanes,
    pull_lower_lanes,
    record_factor_lanes,
    unit_lower_lanes,
)
from dpjax.kernels.order import below_diagonal
from dpjax.kernels.symmetric import cholesky, gram_lanes, lower_inverse, matmul_lanes, matvec_lanes
from dpjax.models.hyperparameters import check_sizes, coefficients, features, matrix, positive, vector
from dpjax.models.regression import conjugate, simulation
from dpjax.models.regression.known import law_of_one_record
from dpjax.models.regression.normal_record import NormalRecord, extended, spanned_jacobian, unit_vectors
from dpjax.models.regression.positions import regression_positions
from dpjax.statistics.products import MOST_FEATURES


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LinearRegression(NormalRecord):
    """Prior of the regression; every field is an array leaf, so problems of one call may have different priors.

    Fields: theta_mean `[q]` and theta_precision `[q, q]` (q = p + 1, intercept first), sigma2_shape `[]`,
    sigma2_scale `[]`, x_mean `[p]`, kappa `[]`, psi `[p, p]`, nu `[]`; all in scaled units.
    """

    # not jaxtyping: JAX also rebuilds pytrees with placeholders in the leaves
    theta_mean: Any
    theta_precision: Any
    sigma2_shape: Any
    sigma2_scale: Any
    x_mean: Any
    kappa: Any
    psi: Any
    nu: Any

    conjugate_regression = takes_parties = True

    # ---- construction --------------------------------------------------------------------------------------
    @classmethod
    def create(
        cls,
        p: int,
        *,
        theta_mean=0.0,
        theta_precision=1.0,
        sigma2_shape=20.0,
        sigma2_scale=0.5,
        x_mean=0.0,
        kappa=1.0,
        psi=1.0,
        nu=None,
        dtype=jnp.float32,
    ) -> LinearRegression:
        """Build and check a prior for p features; scalars stand for a constant vector or a multiple of I.

        Raises:
            InputError: wrong shape, not finite, not positive (definite), or nu <= p - 1.
        """
        features(p, MOST_FEATURES, "(the statistic has (p + 1)(p + 4)/2 entries and a step costs their cube)")
        leaves = {
            **coefficients(p + 1, theta_mean, theta_precision, sigma2_shape, sigma2_scale),
            "x_mean": vector("x_mean", x_mean, p),
            "kappa": positive("kappa", kappa),
            "psi": matrix("psi", psi, p),
            "nu": positive("nu", 49.0 + p if nu is None else nu, above=p - 1.0),
        }
        check_sizes(leaves)
        return cls(**{name: jnp.asarray(value, dtype) for name, value in leaves.items()})

    @classmethod
    def s0(cls, p: int, dtype=jnp.float32) -> LinearRegression:
        """Prior of the experiments of Bernstein and Sheldon 2019, section 4.2 (for p > 1: nu = 49 + p, psi = I)."""
        return cls.create(p, theta_precision=0.5 / 19, dtype=dtype)

    @classmethod
    def weak(cls, p: int, dtype=jnp.float32) -> LinearRegression:
        """Default prior of `fit`: weak on variables scaled to [-1, 1].

        sigma^2 has mean .15 and sd .15; each coefficient has sd 1 at sigma^2 = .15; each covariate variance has
        mean 1/4 (a uniform variable has 1/3) and its mean has that variance.
        """
        return cls.create(
            p,
            theta_precision=0.15,
            sigma2_shape=3.0,
            sigma2_scale=0.3,
            psi=1.0,
            nu=p + 5.0,
            dtype=dtype,
        )

    def as_dict(self) -> dict:
        """Hyperparameters by name as plain lists and floats (the layout of `prior.toml`)."""
        plain = {f.name: np.asarray(getattr(self, f.name), np.float64).tolist() for f in fields(self)}
        covariates = {"mean": plain.pop("x_mean"), **{k: plain.pop(k) for k in ("kappa", "psi", "nu")}}
        return {**plain, "covariates": covariates}

    # ---- sizes and names -----------------------------------------------------------------------------------
    @property
    def p(self) -> int:
        return self.x_mean.shape[0]

    # ---- coordinates ---------------------------------------------------------------------------------------
    def _split(self, phi):
        p = self.p
        return (
            phi[:p],
            phi[p],
            phi[p + 1 : 2 * p + 1],
            phi[2 * p + 1],
            phi[2 * p + 2 : 3 * p + 2],
            phi[3 * p + 2 :],
        )

    #: Place of theta[1], ... in phi; log sigma^2, ell and c follow.
    @property
    def coefficients_at(self) -> int:
        return self.p + 1

    def coordinates_lanes(self, phi):
        """theta[1:] `[p, B]`, log sigma^2 `[B]`, ell `[p, B]`, and L with rows divided by its diagonal `[p, p, B]`."""
        _, _, beta, log_s2, ell, c = self._split(phi)
        return beta, log_s2, ell, unit_lower_lanes(c, ell)

    def position_of_mean_lanes(self, by_mean):
        """The gradient by phi of what depends on it through the record's mean `[q, B]`."""
        return jnp.pad(by_mean, ((0, self.dim - by_mean.shape[0]), (0, 0)))

    def log_prior_and_grad_lanes(self, phi):
        """log prior density up to a constant `[B]` and its gradient `[P, B]`."""
        value, pull = jax.vjp(self.log_prior_lanes, phi)
        return value, pull(jnp.ones_like(value))[0]

    def record_lanes(self, phi):
        """Mean m `[q, B]`, factor G `[q, q, B]` and covariance C `[q, q, B]` of one record."""
        mu, alpha, beta, log_s2, ell, c = self._split(phi)
        lower = unit_lower_lanes(c, ell) * jnp.exp(ell)[:, None]
        last = matvec_lanes(jnp.swapaxes(lower, 0, 1), beta)
        g = record_factor_lanes(lower, last, jnp.exp(0.5 * log_s2))
        m = jnp.concatenate([mu, alpha[None]])
        return m, g, matmul_lanes(g, jnp.swapaxes(g, 0, 1))

    def mean_jacobian_lanes(self, phi):
        """Each column is u_a h_b + h_a u_b for a pair of vectors (u, h) over r~: no differentiation needed."""
        p = self.p
        _, _, beta, log_s2, ell, _ = self._split(phi)
        m, g, c = self.record_lanes(phi)
        y = p + 1
        extended_c, extended_g, unit = extended(c), extended(g), unit_vectors(p + 2, phi)
        mt = jnp.concatenate([jnp.ones_like(m[:1]), m])
        u_x = [unit[:, 1 + i] for i in range(p)]
        u_y = unit[:, y]
        tilted = [u_x[i] + unit[:, y] * beta[i][None] for i in range(p)]
        below_i, below_j = below_diagonal(p)
        u = u_x + [u_y] + [u_y] * p + [u_y] + tilted + [tilted[i] * jnp.exp(ell[i])[None] for i in below_i]
        h = (
            [mt] * (p + 1)
            + [extended_c[:, k] for k in range(p)]
            + [u_y * (0.5 * jnp.exp(log_s2))[None]]
            + [extended_c[:, i] for i in range(p)]
            + [extended_g[:, j] for j in below_j]
        )
        return spanned_jacobian(jnp.stack(u, axis=1), jnp.stack(h, axis=1))

    def _prior_lanes(self, phi):
        """Log prior and the pieces its gradient needs."""
        p = self.p
        mu, alpha, beta, log_s2, ell, c = self._split(phi)
        precision = jnp.exp(-log_s2)
        theta = jnp.concatenate([(alpha - (mu * beta).sum(0))[None], beta])
        offset = theta - self.theta_mean
        pulled = matvec_lanes(self.theta_precision, offset)
        quadratic = (offset * pulled).sum(0)
        unit_lower = unit_lower_lanes(c, ell)
        inverse = inverse_lower_lanes(unit_lower, ell)
        sigma_inverse = gram_lanes(inverse, inverse)
        shift = mu - self.x_mean
        scatter = self.psi + self.kappa[None, None] * shift[:, None] * shift[None]
        weighted = matmul_lanes(sigma_inverse, scatter)
        trace = sum(weighted[i, i] for i in range(p))
        q = p + 1.0
        value = (
            -(0.5 * q + self.sigma2_shape) * log_s2
            - precision * (0.5 * quadratic + self.sigma2_scale)
            - (self.nu + 1.0) * ell.sum(0)
            - 0.5 * trace
        )
        return value, (precision, pulled, quadratic, unit_lower, inverse, sigma_inverse, shift, weighted)

    def log_prior_lanes(self, phi):
        return self._prior_lanes(phi)[0]

    def log_density_and_grad_lanes(self, phi, w, observed: Observed):
        p = self.p
        value, (_, g, cov), d_m, d_c = self.marginal_and_grad_lanes(phi, w, observed)
        phi = phi.astype(value.dtype)
        mu, _, beta, log_s2, ell, _ = self._split(phi)
        prior, pieces = self._prior_lanes(phi)
        precision, pulled, quadratic, unit_lower, inverse, sigma_inverse, shift, weighted = pieces
        by_theta = -precision[None] * pulled
        dc_c, dc_g = matmul_lanes(d_c, cov), matmul_lanes(d_c, g)
        d_lower = matmul_lanes(weighted, jnp.swapaxes(inverse, 0, 1))  # of -tr(psi' Sigma^{-1}) / 2 by L
        d_lower = d_lower + 2.0 * (dc_g[:p, :p] + beta[:, None] * dc_g[p, :p][None])
        d_mu = d_m[:p] - by_theta[0][None] * beta - self.kappa[None] * matvec_lanes(sigma_inverse, shift)
        d_alpha = d_m[p] + by_theta[0]
        d_beta = 2.0 * dc_c[p, :p] + by_theta[1:] - by_theta[0][None] * mu
        d_log_s2 = (
            d_c[p, p] * jnp.exp(log_s2)
            - (0.5 * (p + 1.0) + self.sigma2_shape)
            + precision * (0.5 * quadratic + self.sigma2_scale)
        )
        d_cov = pull_lower_lanes(d_lower, unit_lower, ell)
        d_cov = d_cov.at[:p].add(-(self.nu + 1.0)[None])
        parts = [d_mu, d_alpha[None], d_beta, d_log_s2[None], d_cov]
        return value + prior, jnp.concatenate(parts)

    def positions(self, reported):
        return regression_positions(reported, self.p, intercept=True)

    def report_lanes(self, phi):
        p = self.p
        mu, alpha, beta, log_s2, _, _ = self._split(phi)
        cov = self.record_lanes(phi)[2]
        tau2 = [cov[i, j] for i in range(p) for j in range(i + 1)]
        return jnp.concatenate([(alpha - (mu * beta).sum(0))[None], beta, jnp.exp(log_s2)[None], mu, jnp.stack(tau2)])

    # ---- one chain -----------------------------------------------------------------------------------------
    def prior_center(self):
        factor = cholesky(self.psi / self.nu)
        ell, c = coordinates(factor)
        alpha = self.theta_mean[0] + self.x_mean @ self.theta_mean[1:]
        log_s2 = jnp.log(self.sigma2_scale / self.sigma2_shape)
        return jnp.concatenate([self.x_mean, alpha[None], self.theta_mean[1:], log_s2[None], ell, c])

    def position(self, report, covariance):
        """phi of reported parameters `[K]`, whose covariance of the features is given as a matrix `[p, p]` too."""
        p = self.p
        theta, mu = report[: p + 1], report[p + 2 : 2 * p + 2]
        ell, c = coordinates(cholesky(covariance))
        alpha = theta[0] + mu @ theta[1:]
        return jnp.concatenate([mu, alpha[None], theta[1:], jnp.log(report[p + 1])[None], ell, c])

    def prior_precision(self):
        """Closed form of minus the Hessian at `prior_center` (checked against `jax.hessian` in the tests)."""
        p = self.p
        mu, _, beta, log_s2, _, _ = self._split(self.prior_center())
        lower = cholesky(self.psi / self.nu)
        inverse = lower_inverse(lower)
        sigma_inverse = inverse.T @ inverse
        zeros = jnp.zeros((self.dim, self.dim), mu.dtype)
        # theta = (alpha - mu' beta, beta): Jacobian at the centre, where the quadratic form itself vanishes
        jacobian = jnp.zeros((p + 1, self.dim), mu.dtype)
        jacobian = jacobian.at[0, :p].set(-beta).at[0, p].set(1.0).at[0, p + 1 : 2 * p + 1].set(-mu)
        jacobian = jacobian.at[1:, p + 1 : 2 * p + 1].set(jnp.eye(p, dtype=mu.dtype))
        out = zeros + jnp.exp(-log_s2) * jacobian.T @ self.theta_precision @ jacobian
        out = out.at[:p, :p].add(self.kappa * sigma_inverse)
        out = out.at[2 * p + 1, 2 * p + 1].add(self.sigma2_scale * jnp.exp(-log_s2))
        start = 2 * p + 2
        return out.at[start:, start:].add(curvature_at(lower, self.nu))

    def sample_prior(self, key: PRNGKeyArray):
        return simulation.sample_prior(self, key)

    def fixed_law(self):
        return law_of_one_record(self)

    # ---- conjugate update --------------------------------------------------------------------------------
    def valid_lanes(self, mean_statistic):
        return conjugate.valid_lanes(mean_statistic)

    @property
    def conjugate_randoms(self) -> tuple[int, int]:
        return conjugate.randoms(self.p, self.p + 1)

    def conjugate_lanes(self, mean_statistic, n, keys, normals, uniforms):
        return conjugate.draw_lanes(self, mean_statistic, n, keys, normals, uniforms)
