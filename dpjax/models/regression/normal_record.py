"""Regressions whose record (x, y) is joint normal, N(m, G G'): what does not depend on coordinates or prior.

The released statistic is that of `dpjax.kernels.products`; a model adds coordinates (`record_lanes`) and a prior.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from dpjax.engine.model import Observed
from dpjax.kernels.marginal import gaussian_marginal
from dpjax.kernels.order import pairs
from dpjax.kernels.products import product_covariance, product_deviation, product_mean, product_pullback
from dpjax.models.regression import simulation
from dpjax.models.regression.base import RegressionModel
from dpjax.statistics.regression import regression_parameters


class NormalRecord(RegressionModel):
    """Moments, densities and simulation of a regression with normal records, p features and an intercept."""

    @property
    def p(self) -> int:
        """Number of features."""
        raise NotImplementedError

    def record_lanes(self, phi):
        """Mean m `[q, B]`, factor G `[q, q, B]` and covariance C = G G' `[q, q, B]` of one record (x, y), q = p + 1."""
        raise NotImplementedError

    # ---- sizes and names -----------------------------------------------------------------------------------
    @property
    def dim(self) -> int:
        return self.statistic_dim

    @property
    def statistic_dim(self) -> int:
        return len(pairs(self.p)[0])

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return regression_parameters(self.p)

    @property
    def few_records(self) -> int:
        return 10 * (self.p + 1)

    # ---- moments -------------------------------------------------------------------------------------------
    def moments_lanes(self, phi):
        m, _, c = self.record_lanes(phi)
        return product_mean.lanes(m, c), product_covariance.lanes(m, c)

    def residual_lanes(self, phi, observed: Observed):
        work, root = observed.root_n_over_b.dtype, observed.root_n_over_b
        m, _, c = self.record_lanes(phi)
        residual = (observed.z - observed.n_over_b * product_mean.lanes(m, c)).astype(work)
        covariance = product_covariance.lanes(m.astype(work), c.astype(work))
        return residual, covariance * root[:, None] * root[None]

    def deviation_lanes(self, phi, normals):
        m, g, _ = self.record_lanes(phi)
        return product_deviation.lanes(m, g, normals)

    def marginal_and_grad_lanes(self, phi, w, observed: Observed):
        """log p(z | phi, w) `[B]`, the record's m, G and C, and the derivatives by m `[q, B]` and C `[q, q, B]`
        (symmetric), all in the dtype of the algebra."""
        root = observed.root_n_over_b
        residual, covariance = self.residual_lanes(phi, observed)
        m, g, cov = self.record_lanes(phi.astype(root.dtype))
        value, by_mean, by_covariance = gaussian_marginal.lanes(residual, covariance, w)
        d_m, d_c = product_pullback.lanes(
            m,
            cov,
            by_mean * observed.n_over_b.astype(root.dtype),
            by_covariance * root[:, None] * root[None],
        )
        return value, (m, g, cov), d_m, d_c

    def sum_summaries(self, per_record, noise):
        """Means, variances, covariances and, the features' covariance raised by the noise, the residual variance."""
        p = self.p
        a, b = pairs(p)
        second = np.zeros((len(per_record), p + 2, p + 2))
        second[:, a, b] = second[:, b, a] = per_record
        mean = second[:, 0, 1:]
        covariance = second[:, 1:, 1:] - mean[:, :, None] * mean[:, None]
        raised = covariance[:, :p, :p] + np.abs(noise).max() * np.eye(p)
        explained = (covariance[:, :p, p] * np.linalg.solve(raised, covariance[:, :p, p:])[..., 0]).sum(1)
        below = np.tril_indices(p + 1)
        return np.column_stack([mean, covariance[:, below[0], below[1]], covariance[:, p, p] - explained])

    # ---- simulation ----------------------------------------------------------------------------------------
    def simulate(self, key: PRNGKeyArray, phi, n):
        sums = simulation.simulate(self, key, phi, n)
        return sums, sums

    def simulate_clipped(self, key: PRNGKeyArray, phi, n, bounds: tuple[float, float]):
        """As `simulate`, with every variable of every record clipped to `bounds`."""
        sums = simulation.simulate_clipped(self, key, phi, n, bounds)
        return sums, sums


def spanned_jacobian(u, h):
    """Derivative of the mean statistic `[D, K, B]` along directions in which the second moments E of (1, x, y) change
    by u h' + h u'.

    Args:
        u, h: `[p + 2, K, B]`.
    """
    a, b = pairs(u.shape[0] - 2)
    return u[a] * h[b] + h[a] * u[b]


def extended(x):
    """A row of zeros for the unit feature before the rows over (x, y)."""
    return jnp.concatenate([jnp.zeros_like(x[:1]), x])


def unit_vectors(size: int, like):
    """Unit vectors `[size, size, B]` over the lanes of `like` `[..., B]`, the second axis counting them."""
    return jnp.broadcast_to(jnp.eye(size, dtype=like.dtype)[..., None], (size, size, like.shape[-1]))
