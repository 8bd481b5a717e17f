"""Regression without the normal approximation of the sums: exact for any number of records n > p + 1
(docs/formulas.md#exact-sums).

Records (x, y) are joint normal as in `LinearRegression`, N(m, G G'). Given n of them their sums are n m + sqrt(n) G v,
v ~ N(0, I), and their centred scatter is (G A)(G A)' with A lower triangular, A_ij ~ N(0, 1) below the diagonal and
A_ii^2 ~ chi2 with n - i degrees of freedom (i from 1): Wishart, the conditional form in docs/formulas.md#exact-sums
written for (x, y) at once. v and A are latent, D of them for D statistics, so that given phi and them the sums s are
exact and z = s + noise. The sampler `collapsed` runs on this model as it is: what it integrates out, the spread of s
given its parameters, is 0.

Unconstrained: (phi of `LinearRegression` [P0], v [q], h [q], a [q (q - 1) / 2]), q = p + 1, A_ij = a,
A_ii = sqrt(k_i) exp(h_i / sqrt(2 k_i)) with k_i = n - i, so that h is about standard normal for large n.

With `bounded`, the posterior is given also that the sums come from records inside the bounds: every
sum (r_i - lo_i)(r_j - lo_j), (hi_i - r_i)(hi_j - r_j) and (r_i - lo_i)(hi_j - r_j) is not negative. That is a fact
where records were clipped before they were summed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from dpjax.engine.lane_model import jacobian_of_lanes
from dpjax.engine.model import Observed
from dpjax.errors import InputError
from dpjax.kernels.order import below_diagonal, pairs
from dpjax.kernels.symmetric import matmul_lanes, matvec_lanes
from dpjax.models.regression.base import RegressionModel
from dpjax.models.regression.linear import LinearRegression


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ExactSums(RegressionModel):
    """Prior of a `LinearRegression`, number of records `[]`, and the bounds low, high `[q]` of (x, y).

    bounded (static): condition on the sums being those of records inside the bounds.
    """

    base: LinearRegression | Any
    records: Any
    low: Any
    high: Any
    bounded: bool = field(default=False, metadata={"static": True})

    predicts_sums = False

    @classmethod
    def create(cls, base: LinearRegression, records: Any, box: Any = None) -> ExactSums:
        """Build and check, for one problem or T of them.

        Args:
            base: prior; for T problems every leaf has a leading axis T.
            records: numbers of records, `[]` or `[T]`.
            box: bounds (lo, hi) of each variable (x_1..x_p, y) `[q, 2]` in the units of the statistic, or None.

        Raises:
            InputError: fewer than p + 2 records.
        """
        q = base.theta_mean.shape[-1]
        n = np.asarray(records, np.float64)
        if n.min() < q + 1:
            raise InputError(
                f"the exact law of the sums is for at least p + 2 = {q + 1} records; got {int(n.min())}: with fewer "
                "the scatter is singular"
            )
        limits = np.tile([-1.0, 1.0], (q, 1)) if box is None else np.asarray(box, np.float64)
        dtype = base.theta_mean.dtype
        low, high = (np.broadcast_to(x, (*n.shape, q)) for x in limits.T)
        numbers = (jnp.asarray(x, dtype) for x in (n, low, high))
        return cls(base, *numbers, bounded=box is not None)  # type: ignore[misc, arg-type]

    def as_dict(self) -> dict[str, Any]:
        return self.base.as_dict()

    # ---- sizes and names -----------------------------------------------------------------------------------
    @property
    def p(self) -> int:
        return self.base.p

    @property
    def dim(self) -> int:
        return 2 * self.base.dim

    @property
    def statistic_dim(self) -> int:
        return self.base.statistic_dim

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return self.base.parameter_names

    # ---- lanes ---------------------------------------------------------------------------------------------
    def _latent(self, phi):
        q, start = self.p + 1, self.base.dim
        return phi[:start], phi[start : start + q], phi[start + q : start + 2 * q], phi[start + 2 * q :]

    def _degrees(self, dtype):
        """Degrees of freedom of A_ii^2 `[q, B]`: n - 1, n - 2, ..."""
        q = self.p + 1
        return self.records.astype(dtype)[None] - jnp.arange(1, q + 1, dtype=dtype)[:, None]

    def _moments_of_sums(self, phi):
        """First moments `[q, B]` and second moments `[q, q, B]` per record of (x, y), from the latent variables."""
        q = self.p + 1
        parameters, v, h, below = self._latent(phi)
        m, g, _ = self.base.record_lanes(parameters)
        n, k = self.records.astype(phi.dtype), self._degrees(phi.dtype)
        diagonal = jnp.sqrt(k) * jnp.exp(h / jnp.sqrt(2.0 * k))
        a = jnp.eye(q, dtype=phi.dtype)[..., None] * diagonal[:, None]
        a = a.at[below_diagonal(q)].set(below)
        half = matmul_lanes(g, a) / jnp.sqrt(n)[None, None]
        first = m + matvec_lanes(g, v) / jnp.sqrt(n)[None]
        return first, matmul_lanes(half, jnp.swapaxes(half, 0, 1)) + first[:, None] * first[None]

    def _mean_statistic(self, phi):
        first, second = self._moments_of_sums(phi)
        full = jnp.pad(second, ((1, 0), (1, 0), (0, 0))).at[0, 1:].set(first)
        a, b = pairs(self.p)
        return full[a, b]

    @property
    def constrained(self) -> bool:
        return self.bounded

    def inside_lanes(self, phi):
        """Whether records inside the bounds can have these sums (necessary conditions) `[B]`."""
        first, second = self._moments_of_sums(phi)
        low, high = self.low.astype(phi.dtype), self.high.astype(phi.dtype)
        width = high - low
        size = width[:, None] * width[None]
        mean = lambda u, v: second - u[:, None] * first[None] - first[:, None] * v[None] + u[:, None] * v[None]
        slack = -1e-6 * size
        up, down, mixed = mean(low, low), mean(high, high), -mean(low, high)
        return ((up >= slack) & (down >= slack) & (mixed >= slack)).all((0, 1))

    def moments_lanes(self, phi):
        mean = self._mean_statistic(phi)
        return mean, jnp.zeros((*mean.shape[:1], *mean.shape), mean.dtype)

    def mean_jacobian_lanes(self, phi):
        return jacobian_of_lanes(self._mean_statistic, phi)

    def _latent_log_density(self, phi):
        _, v, h, below = self._latent(phi)
        k = self._degrees(phi.dtype)
        root = jnp.sqrt(2.0 * k)
        # of log A_ii, centred: k h / root - (k / 2) (exp(2 h / root) - 1)
        diagonal = k * h / root - 0.5 * k * jnp.expm1(2.0 * h / root)
        return diagonal.sum(0) - 0.5 * ((v * v).sum(0) + (below * below).sum(0))

    def log_prior_lanes(self, phi):
        work = phi.astype(self.records.dtype)
        return self.base.log_prior_lanes(work[: self.base.dim]) + self._latent_log_density(work)

    def residual_lanes(self, phi, observed: Observed):
        work = observed.root_n_over_b.dtype
        residual = (observed.z - observed.n_over_b * self._mean_statistic(phi)).astype(work)
        return residual, jnp.zeros((*residual.shape[:1], *residual.shape), work)

    def log_density_and_grad_lanes(self, phi, w, observed: Observed):
        def log_density(x):
            residual, _ = self.residual_lanes(x, observed)
            return self.log_prior_lanes(x) - 0.5 * (residual * residual / w).sum(0)

        value, pull = jax.vjp(log_density, phi)
        (gradient,) = pull(jnp.ones_like(value))
        return value, gradient.astype(value.dtype)

    def deviation_lanes(self, phi, normals):
        return jnp.zeros_like(normals)

    def report_lanes(self, phi):
        return self.base.report_lanes(phi[: self.base.dim])

    # ---- one chain -----------------------------------------------------------------------------------------
    def prior_center(self):
        center = self.base.prior_center()
        return jnp.concatenate([center, jnp.zeros(self.base.dim, center.dtype)])

    def prior_precision(self):
        base = self.base.prior_precision()
        out = jnp.pad(base, (0, self.base.dim))
        rest = jnp.arange(self.base.dim, self.dim)
        return out.at[rest, rest].set(1.0)

    def sample_prior(self, key: PRNGKeyArray):
        """phi from the prior; the latent variables at 0, as nothing that is reported depends on them."""
        first = self.base.sample_prior(key)
        return jnp.concatenate([first, jnp.zeros(self.base.dim, first.dtype)])

    def simulate(self, key: PRNGKeyArray, phi, n):
        return self.base.simulate(key, phi[: self.base.dim], n)
