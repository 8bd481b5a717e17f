"""Multinomial counts with a Dirichlet prior, any K or K - 1 of the counts released (Bernstein 2020, ch. 4;
docs/formulas.md#count-sensitivity, #singular-counts)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from dpjax.kernels.symmetric import cholesky, matvec_lanes
from dpjax.models.families.prior_model import PriorModel
from dpjax.models.priors import DirichletPrior


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Multinomial(PriorModel):
    """prior: `DirichletPrior`; released: the counts that are published (static), all K or all but one.

    The covariance of all K counts is singular, so it is never inverted: samplers use it in gain form with a factor.
    """

    prior: DirichletPrior | Any
    released: tuple[int, ...] = field(metadata={"static": True})

    kind = "multinomial"
    smallest_rank = 1
    sums_are_multinomial = True

    @property
    def singular(self) -> bool:
        return len(self.released) == self.categories

    @property
    def categories(self) -> int:
        return self.prior.concentration.shape[0]

    @property
    def statistic_dim(self) -> int:
        return len(self.released)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return tuple(f"p[{k}]" for k in range(self.categories))

    def prior_precision(self):
        """diag(alpha) - alpha alpha' / sum, over the first K - 1."""
        alpha = self.prior.concentration
        return jnp.diag(alpha[:-1]) - jnp.outer(alpha[:-1], alpha[:-1]) / alpha.sum()

    @property
    def _index(self) -> np.ndarray:
        return np.array(self.released, np.int32)

    @property
    def _missing(self) -> int | None:
        """The count that is not released."""
        left = set(range(self.categories)) - set(self.released)
        return left.pop() if left else None

    def moments(self, phi):
        p = self.prior.constrain(phi)[self._index]
        return p, jnp.diag(p) - jnp.outer(p, p)

    def deviation_lanes(self, phi, normals):
        mean, covariance = self.moments_lanes(phi)
        if self._missing is not None:
            return matvec_lanes(cholesky.lanes(covariance), normals)
        # (diag(sqrt p) - p sqrt p') is a factor of the singular covariance
        root = jnp.sqrt(mean)
        return root * normals - mean * (root * normals).sum(0)[None]

    def simulate(self, key, phi, n):
        """Exact counts of n records, released and whole (the same: the last count follows by difference)."""
        p = self.prior.constrain(phi)
        left, remaining, counts = n, jnp.ones_like(p[0]), []
        for k in range(self.categories - 1):
            share = jnp.clip(p[k] / jnp.maximum(remaining, jnp.finfo(p.dtype).tiny), 0.0, 1.0)
            count = random.binomial(random.fold_in(key, k), left, share, dtype=p.dtype)
            counts.append(count)
            left, remaining = left - count, remaining - p[k]
        released = jnp.stack([*counts, left])[self._index]
        return released, released

    # ---- conjugate half ---------------------------------------------------------------------------------------------
    def all_shares_lanes(self, shares):
        """Shares of all K categories `[K, B]` from the released ones."""
        if self._missing is None:
            return shares[np.argsort(self._index).astype(np.int32)]
        last = 1.0 - shares.sum(0)
        rows = [last if k == self._missing else shares[self.released.index(k)] for k in range(self.categories)]
        return jnp.stack(rows)

    def valid_lanes(self, mean_statistic):
        """Shares of at least 0 that sum to 1 (the missing one by difference)."""
        positive = jnp.maximum(self.all_shares_lanes(mean_statistic), 1e-12)
        return (positive / positive.sum(0)[None])[self._index]

    def conjugate_lanes(self, mean_statistic, n, keys, normals, uniforms):
        alpha = self.prior.concentration + self.all_shares_lanes(mean_statistic) * n[None]
        return self.prior.replace(concentration=jnp.maximum(alpha, self.prior.concentration)).draw_lanes(
            keys, normals, uniforms
        )

    def log_weight_lanes(self, phi, c, whole, valid, n):
        """log N(c; n records at phi) - n sum of valid log p; quadratic form and determinant in closed form."""
        logs = jax.vmap(lambda model, x: model.prior.log_probabilities(x), in_axes=-1, out_axes=-1)(self, phi)
        p = jnp.exp(logs)
        shares = self.all_shares_lanes(c)
        quadratic = n * ((shares - p) ** 2 / p).sum(0)
        return -0.5 * (quadratic + logs.sum(0)) - n * (self.all_shares_lanes(valid) * logs).sum(0)
