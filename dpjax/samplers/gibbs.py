"""The papers' Gibbs sampler, corrected: settings and start; the transition is `dpjax.kernels.gibbs.step_lanes`.

Fast per step and slow to mix: a step moves s by its sampling deviation while the noise spreads it over b
(docs/formulas.md#slow-mixing), so look at the ESS before believing it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from dpjax.engine.model import Model, Observed
from dpjax.engine.sampler import Draw, odd_chains
from dpjax.errors import InputError
from dpjax.kernels import gibbs as kernel
from dpjax.kernels.gibbs import Info, State
from dpjax.mechanisms import LAPLACE, Mechanism


@dataclass(frozen=True)
class Gibbs:
    """Settings (static).

    burn_in: steps thrown away; project: move s to what a table can produce (docs/formulas.md#consistent-sums,
    #valid-sums: needed at small n);
    metropolis: accept the conjugate draw by the ratio, for models that know it; independent: complete the statistic as
    if regions were independent; literal: the thesis's Algorithm 2 as printed, whose line 10 draws the statistic behind
    w anew, without looking at z (both wrong, kept for comparison: docs/formulas.md#gibbs-order, #joint-parts); float64:
    everything in 64 bits, where the moments of nearly equal truncated records are differences of larger numbers.
    """

    noise: Mechanism = LAPLACE
    burn_in: int = 2000
    project: bool = True
    metropolis: bool = True
    independent: bool = False
    literal: bool = False
    float64: bool = False
    name: str = "gibbs"

    def __post_init__(self):
        if self.burn_in < 0:
            raise InputError(f"burn_in must be at least 0; got {self.burn_in}")

    @property
    def warmup_iterations(self) -> int:
        return self.burn_in

    def init_lanes(self, model: Model, observed: Observed, keys, chains: int) -> State:
        center = jax.vmap(lambda m: m.prior_center(), in_axes=-1, out_axes=-1)(model)
        if model.starts is not None:
            center = jnp.where(odd_chains(observed, chains), model.starts[1], model.starts[0])
        scales = jnp.full(observed.z.shape, self.noise.variance, observed.root_n_over_b.dtype)
        return kernel.init(center.astype(observed.z.dtype), scales)

    def step_lanes(
        self, model: Model, observed: Observed, keys: Key[Array, " B"], state: State, always: Any = False
    ) -> tuple[State, Info]:
        """One transition; `always`: take the conjugate draw (on the way in)."""
        return kernel.step_lanes(
            model, observed, keys, state, always=always, update=self.noise.update_lanes, randoms=self.noise.randoms,
            project=self.project, metropolis=self.metropolis, independent=self.independent, literal=self.literal,
        )  # fmt: skip

    def iterate_lanes(self, model, observed, carry: State, keys, index, chains: int):
        # far from the posterior the ratio is hopeless: the normal law and the exact one part ways in the tails
        carry, info = self.step_lanes(model, observed, keys, carry, index < self.burn_in // 2)
        parameters = model.report_lanes(carry.position.astype(carry.scales.dtype))
        return carry, Draw(parameters, info.acceptance, jnp.zeros(info.acceptance.shape, bool))

    def finite_lanes(self, carry: State):
        return jnp.isfinite(carry.position).all(0) & jnp.isfinite(carry.scales).all(0)
