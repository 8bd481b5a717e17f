"""Regression on a release that also holds third and fourth moments of the covariates, with inference over them.

Bernstein and Sheldon 2019, section 3.4.4 (Gibbs-SS-Noisy), plug noisy fourth moments into the normal approximation as
if they were exact, and leave inference over them to future work. Here they are statistics like the others, with a law
and noise of their own:

- covariates: x = m + L R^{-1} (u - E u), u one of N = K^p points, the product of K Gauss-Hermite nodes each, with
  probabilities w_k proportional to the normal rule's weight times exp(sum_j tilt_j h(H_j(u_k))), H_j the orthonormal
  Hermite polynomials of degree 3 and 4, h(v) = 2 tanh(v / 2), which keeps a tilt from throwing all weight on the
  outermost point; R R' is the covariance of u under w. So m and L L' are the mean and covariance of x, the tilts move
  its skewness and kurtosis and all mixed moments of degree 3 and 4, and there are as many tilts as released moments.
  Moments always belong to a law: the moment matrix is positive semi-definite by construction. At tilt 0 all moments up
  to degree 8 are those of the normal; with one covariate flat and two-point laws, moderately skewed ones (skewness 1)
  and heavy tails (kurtosis 12) are reached in skewness and kurtosis, an exponential (2 and 9) is not quite.
- response: y | x ~ N(theta_0 + x' beta, sigma^2).
- released: z = s + noise, s the sums of the extended statistic t = (x_i; x_i x_j; y; x_i y; y^2; monomials of x of
  degree 3 and 4), s ~ N(n E t, n Cov t) with the moments (up to degree 8 in x) computed by summing over the points.
- prior: (theta, sigma^2) and (m, L L') as in `LinearRegression`, tilts N(0, tilt_scale^2) independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import PRNGKeyArray

from dpjax.engine.lane_model import jacobian_of_lanes
from dpjax.engine.model import Observed
from dpjax.kernels.coordinates import unit_lower_lanes
from dpjax.kernels.marginal import gaussian_marginal
from dpjax.kernels.order import pairs
from dpjax.kernels.symmetric import cholesky, gram_lanes, inverse_cholesky, matmul_lanes, matvec_lanes, take
from dpjax.models.hyperparameters import positive
from dpjax.models.regression import simulation
from dpjax.models.regression.base import RegressionModel
from dpjax.models.regression.linear import LinearRegression
from dpjax.privacy.sensitivity import moment_exponents

#: Gauss-Hermite nodes per covariate by number of covariates: exact to degree 13, and 9 with three.
NODES = {1: 7, 2: 7, 3: 5}
#: Beyond this the points and the moments of degree 8 cost too much.
MOST_FEATURES = max(NODES)
#: Where tilting polynomials level off, in units of their standard deviation under the normal law.
LEVEL = 2.0
#: Standard deviation of a tilt a priori: skewness about .5, excess kurtosis about 1.
TILT_SCALE = 0.3


@cache
def higher_exponents(p: int) -> tuple[tuple[int, ...], ...]:
    """Exponents of the released monomials of degree 3 and 4, in the order of the release."""
    return tuple(row for row in moment_exponents(p, 4) if sum(row) >= 3)


@cache
def _points(p: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points `[N, p]`, log weights `[N]` and tilt polynomials `[N, T]`."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES[p])
    grid = np.stack(np.meshgrid(*[nodes] * p, indexing="ij"), -1).reshape(-1, p)
    log_weight = np.stack(np.meshgrid(*[np.log(weights / weights.sum())] * p, indexing="ij"), -1).reshape(-1, p).sum(1)
    norms = np.sqrt([1.0, 1.0, 2.0, 6.0, 24.0])
    he = lambda k, x: np.polynomial.hermite_e.hermeval(x, np.eye(5)[k]) / norms[k]
    tilts = [np.prod([he(k, grid[:, i]) for i, k in enumerate(row)], axis=0) for row in higher_exponents(p)]
    return grid, log_weight, LEVEL * np.tanh(np.stack(tilts, 1) / LEVEL)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FreeMoments(RegressionModel):
    """Prior: that of a `LinearRegression` (every leaf may be batched), and the tilts' standard deviation `[]`."""

    base: LinearRegression | Any
    tilt_scale: Any

    @classmethod
    def create(cls, base: LinearRegression, tilt_scale: float | Any = TILT_SCALE) -> FreeMoments:
        """Build and check. Beyond `MOST_FEATURES` features it only holds the prior: nothing can be computed with it.

        Raises:
            InputError: a tilt_scale that is not positive.
        """
        return cls(base, jnp.asarray(positive("tilt_scale", tilt_scale), base.theta_mean.dtype))

    def as_dict(self) -> dict[str, Any]:
        plain = self.base.as_dict()
        plain["covariates"]["tilt_scale"] = float(np.asarray(self.tilt_scale))
        return plain

    # ---- sizes and names -----------------------------------------------------------------------------------
    @property
    def p(self) -> int:
        return self.base.p

    @property
    def tilts(self) -> int:
        """Number of tilts, and of released moments of degree 3 and 4."""
        return len(higher_exponents(self.p))

    @property
    def dim(self) -> int:
        return self.base.dim + self.tilts

    @property
    def statistic_dim(self) -> int:
        return self.base.statistic_dim + self.tilts

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return self.base.parameter_names

    @property
    def infers_moments(self) -> bool:
        return self.p <= MOST_FEATURES

    # ---- the law of the covariates ---------------------------------------------------------------------------
    def _law_lanes(self, tilts):
        """Weights `[N, B]` and standardised points `[p, N, B]` at these tilts `[T, B]`."""
        grid, log_weight, polynomials = (np.asarray(x, tilts.dtype) for x in _points(self.p))
        exponent = jnp.asarray(log_weight)[:, None] + jnp.asarray(polynomials) @ tilts
        w = jnp.exp(exponent - exponent.max(0)[None])
        w = w / w.sum(0)[None]
        u = [jnp.asarray(grid[:, i])[:, None] for i in range(self.p)]
        u = [x - (w * x).sum(0)[None] for x in u]
        if self.p == 1:
            return w, (u[0] * jax.lax.rsqrt((w * u[0] * u[0]).sum(0))[None])[None]
        covariance = jnp.stack([jnp.stack([(w * a * b).sum(0) for b in u]) for a in u])
        inverse = inverse_cholesky.lanes(covariance)
        return w, jnp.stack([sum(inverse[i, j][None] * u[j] for j in range(i + 1)) for i in range(self.p)])

    def _pieces_lanes(self, phi):
        """Weights `[N, B]`, mean statistic given each point `[N, D, B]`, and what the residual of y adds to the
        covariance of (y; x_i y; y^2) `[p + 2, p + 2, B]`."""
        p, base = self.p, self.base
        a, b = pairs(p)
        mu, alpha, beta, log_s2, ell, c = base._split(phi[: base.dim])
        s2 = jnp.exp(log_s2)
        lower = unit_lower_lanes(c, ell) * jnp.exp(ell)[:, None]
        w, u = self._law_lanes(phi[base.dim :])
        apart = [sum(lower[i, j][None] * u[j] for j in range(i + 1)) for i in range(p)]  # x - mu, each [N, B]
        x = [mu[i][None] + apart[i] for i in range(p)]
        line = alpha[None] + sum(beta[i][None] * apart[i] for i in range(p))
        record = [jnp.ones_like(line), *x, line]
        entries = [record[i] * record[j] for i, j in zip(a, b, strict=True)]
        entries[-1] = entries[-1] + s2[None]
        entries += [_monomial(x, row) for row in higher_exponents(p)]
        # given x, only y, x_i y and y^2 vary: by g e and 2 f e + e^2 - sigma^2, g = (1, x)
        full = jnp.concatenate([jnp.ones_like(mu[:1]), mu])
        second = full[:, None] * full[None]
        second = second.at[1:, 1:].add(matmul_lanes(lower, jnp.swapaxes(lower, 0, 1)))
        theta = jnp.concatenate([(alpha - (mu * beta).sum(0))[None], beta])
        cross = matvec_lanes(second, theta)
        last = jnp.concatenate([2.0 * s2[None] * cross, (4.0 * s2 * (theta * cross).sum(0) + 2.0 * s2 * s2)[None]])
        block = jnp.concatenate([s2[None, None] * second, last[None, :-1]])
        return w, jnp.stack(entries, axis=1), jnp.concatenate([block, last[:, None]], axis=1)

    def _assembled(self, w, at_points, block):
        """Mean `[D, B]`, covariance `[D, D, B]` and the points' deviations from the mean `[N, D, B]`."""
        mean = _average(w, at_points)
        apart = at_points - mean[None]
        covariance = gram_lanes(apart * w[:, None], apart)
        first = self.base.statistic_dim - (self.p + 2)
        here = slice(first, self.base.statistic_dim)
        return mean, covariance.at[here, here].add(block), apart

    def moments_lanes(self, phi):
        return self._assembled(*self._pieces_lanes(phi))[:2]

    def mean_jacobian_lanes(self, phi):
        def mean(x):
            w, at_points, _ = self._pieces_lanes(x)
            return _average(w, at_points)

        return jacobian_of_lanes(mean, phi)

    def log_density_and_grad_lanes(self, phi, w, observed: Observed):
        """As the base class has it, without differentiating through the covariance.

        With g and H the derivatives by mean and covariance and c_k the points' deviations, the derivative by the weight
        of
        point k is g't_k + c_k'H c_k and by its statistic t_k it is w_k (g + 2 H c_k): the mean's own shift in c_k drops
        out.
        """
        root = observed.root_n_over_b
        work = root.dtype
        (weights, at_points, block), pull = jax.vjp(self._pieces_lanes, phi)
        mean, covariance, apart = self._assembled(weights, at_points, block)
        scale = root[:, None] * root[None]
        residual = (observed.z - observed.n_over_b * mean).astype(work)
        value, by_mean, by_covariance = gaussian_marginal.lanes(residual, covariance.astype(work) * scale, w)
        g = (by_mean * observed.n_over_b.astype(work)).astype(mean.dtype)
        h = (by_covariance * scale).astype(mean.dtype)
        zero = jnp.zeros_like(apart)
        pulled = lax.fori_loop(0, len(g), lambda j, y: y + take(h, j, 1)[None] * take(apart, j, 1)[:, None], zero)
        to_weights = (g[None] * at_points + apart * pulled).sum(1)
        to_points = weights[:, None] * (g[None] + 2.0 * pulled)
        first = self.base.statistic_dim - (self.p + 2)
        here = slice(first, self.base.statistic_dim)
        (gradient,) = pull((to_weights, to_points, h[here, here]))
        prior, pull_prior = jax.vjp(self.log_prior_lanes, phi)
        (by_prior,) = pull_prior(jnp.ones_like(prior))
        return value + prior.astype(work), (gradient + by_prior).astype(work)

    def log_prior_lanes(self, phi):
        tilts = phi[self.base.dim :].astype(self.tilt_scale.dtype) / self.tilt_scale[None]
        return self.base.log_prior_lanes(phi[: self.base.dim]) - 0.5 * (tilts * tilts).sum(0)

    def report_lanes(self, phi):
        return self.base.report_lanes(phi[: self.base.dim])

    def deviation_lanes(self, phi, normals):
        covariance = self.moments_lanes(phi)[1]
        return matvec_lanes(cholesky.lanes(covariance), normals)

    # ---- one chain -----------------------------------------------------------------------------------------
    def prior_center(self):
        center = self.base.prior_center()
        return jnp.concatenate([center, jnp.zeros(self.tilts, center.dtype)])

    def prior_precision(self):
        out = jnp.pad(self.base.prior_precision(), (0, self.tilts))
        rest = jnp.arange(self.base.dim, self.dim)
        return out.at[rest, rest].set(1.0 / self.tilt_scale**2)

    def sample_prior(self, key: PRNGKeyArray):
        k_base, k_tilt = jax.random.split(key)
        first = self.base.sample_prior(k_base)
        return jnp.concatenate([first, self.tilt_scale * jax.random.normal(k_tilt, (self.tilts,), first.dtype)])

    def simulate(self, key: PRNGKeyArray, phi, n):
        """Exact sums of n records of this model."""
        w, u = (x[..., 0] for x in jax.tree.map(lambda x: x[..., None], self)._law_lanes(phi[self.base.dim :, None]))

        def points(key, shape, dtype):
            return u.T[jax.random.categorical(key, jnp.log(w), shape=shape[:1])].astype(dtype)

        return self._simulate(key, phi, n, points)

    def simulate_normal(self, key: PRNGKeyArray, phi, n):
        """As `simulate`, with normal covariates of the same mean and covariance (the tilts are not used): Bernstein and
        Sheldon 2019, section 4.2."""
        return self._simulate(key, phi, n, "normal")

    def simulate_uniform(self, key: PRNGKeyArray, phi, n):
        """As `simulate_normal`, with uniform covariates."""
        return self._simulate(key, phi, n, "uniform")

    def simulate_skewed(self, key: PRNGKeyArray, phi, n):
        """As `simulate_normal`, with exponential covariates."""
        return self._simulate(key, phi, n, "skewed")

    def _simulate(self, key, phi, n, law):
        base = self.base
        mu, alpha, beta, log_s2, ell, c = (x[..., 0] for x in base._split(phi[: base.dim, None]))
        lower = unit_lower_lanes(c[:, None], ell[:, None])[..., 0] * jnp.exp(ell)[:, None]
        theta = jnp.concatenate([(alpha - mu @ beta)[None], beta])
        record = simulation.record_of(mu, lower, theta, log_s2, law)
        sums = simulation.sums_of_records(key, record, self.p, n, higher_exponents(self.p))
        return sums, sums


def _average(w, at_points):
    """sum_k w_k t_k `[D, B]`."""
    zero = jnp.zeros_like(at_points[0])
    return lax.fori_loop(0, len(w), lambda k, m: m + take(w, k)[None] * take(at_points, k), zero)


def _monomial(x, row):
    value = None
    for i, power in enumerate(row):
        for _ in range(power):
            value = x[i] if value is None else value * x[i]
    return value
