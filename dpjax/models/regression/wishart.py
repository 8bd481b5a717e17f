"""Regression through the origin given its Gram matrix with Wishart or inverse Wishart noise (Zhang and Reiter;
docs/formulas.md#wishart-mechanism).

As `PartySums` with one party, in units of the bound B of the row (x, y): G = [X, y]'[X, y] / B^2 is exact given the
parameters and the latent variables. Released is
    Z = G + V V',  V V' ~ Wishart(I, dof)                 (additive), or
    Z ~ InvWishart(G + ridge I, dof)                       (`inverse`);
`z` and `scale` of the observed are an unbiased estimate of G's entries and about its standard deviation, which serve
the search for the mode and the metric; the density is that of Z itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpjax.engine.model import Observed
from dpjax.kernels.symmetric import sweep
from dpjax.models.regression.parties import PartySums

#: log density of a Gram matrix that additive noise cannot have led from, below that of its normal approximation.
IMPOSSIBLE = 1e6


class MatrixFacts(NamedTuple):
    """As `PartyFacts`, and dof `[]` and ridge `[]` (inverse Wishart, else 0) of the noise."""

    records: Any
    centre: Any
    half: Any
    dof: Any
    ridge: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MatrixSums(PartySums):
    """A `PartySums` of one party, given `MatrixFacts`; inverse (static): which noise."""

    inverse: bool = field(default=False, metadata={"static": True})

    def log_noise_and_grad_lanes(self, sums, observed: Observed, cooling):
        value, by_sums = super().log_noise_and_grad_lanes(sums, observed, cooling)
        if cooling is not None:
            return value, by_sums
        q, dtype = self.p + 1, sums.dtype
        z, inverse, _ = self.released_lanes(observed)
        dof, ridge = (x.astype(dtype)[None, None] for x in (self.facts.dof, self.facts.ridge))
        gram, estimate = self.matrix_lanes(sums), self.matrix_lanes((z / inverse).astype(dtype))
        eye = jnp.eye(q, dtype=dtype)[..., None]
        zero = jnp.zeros((q, gram.shape[-1]), dtype)
        if self.inverse:
            log_det, by_psi, _ = sweep.lanes(gram + ridge * eye, zero)
            _, precision, _ = sweep.lanes((estimate + ridge * eye) / (dof - (q + 1.0)), zero)
            exact = 0.5 * dof[0, 0] * log_det - 0.5 * ((gram + ridge * eye) * precision).sum((0, 1))
            gradient = 0.5 * (dof * by_psi - precision)
        else:
            noise = estimate + dof * eye - gram
            shape = 0.5 * (dof - (q + 1.0))
            log_det, by_noise, _ = sweep.lanes(noise, zero)
            exact = shape[0, 0] * log_det - 0.5 * jnp.trace(noise)
            gradient = 0.5 * eye - shape * by_noise
        i, j = self.places
        by_entry = (gradient * (2.0 - eye))[i, j]
        possible = jnp.isfinite(exact)
        # from where no noise leads to Z a chain goes by the normal approximation until it is back
        value = jnp.where(possible, exact, value - IMPOSSIBLE)
        return value, jnp.where(possible[None], by_entry, by_sums)
