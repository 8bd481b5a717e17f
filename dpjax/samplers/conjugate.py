"""Independent draws from the conjugate posterior given statistics taken at face value.

`naive` takes the released statistics for exact (what almost everybody does, and wrong); `non-private` is given the
exact ones. Both are the same code: the caller decides what `observed.z` holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from dpjax.engine.model import Model, Observed
from dpjax.engine.sampler import Draw
from dpjax.kernels.streams import normals_and_uniforms_lanes


class ConjugateState(NamedTuple):
    """Latest draw of the unconstrained parameters `[P]` and the projected statistic per record `[D]`."""

    position: Float[Array, "P *B"]
    statistic: Float[Array, "D *B"]


@dataclass(frozen=True)
class Conjugate:
    """Settings (static): only the name under which the results are reported."""

    name: str = "naive"

    @property
    def warmup_iterations(self) -> int:
        return 0

    def init_lanes(self, model: Model, observed: Observed, keys, chains: int) -> ConjugateState:
        work = observed.root_n_over_b.dtype
        statistic = model.given(observed).valid_lanes((observed.z / observed.n_over_b).astype(work))
        return ConjugateState(jnp.zeros((model.dim, observed.z.shape[-1]), work), statistic)

    def step_lanes(self, model: Model, observed: Observed, keys, state: ConjugateState):
        """One independent draw."""
        model = model.given(observed)
        normals, uniforms = normals_and_uniforms_lanes(keys, *model.conjugate_randoms, state.statistic.dtype)
        n = observed.n.astype(state.statistic.dtype)
        position = model.conjugate_lanes(state.statistic, n, keys, normals, uniforms)
        return ConjugateState(position, state.statistic), ()

    def iterate_lanes(self, model, observed, carry: ConjugateState, keys, index, chains: int):
        carry, _ = self.step_lanes(model, observed, keys, carry)
        parameters = model.report_lanes(carry.position)
        one = jnp.ones_like(parameters[0])
        return carry, Draw(parameters, one, jnp.zeros(one.shape, bool))

    def finite_lanes(self, carry: ConjugateState):
        return jnp.isfinite(carry.position).all(0)
