"""The papers' Gibbs sampler, corrected (Bernstein and Sheldon 2019, Algorithm 1 with Gibbs-SS-Update; Bernstein 2020,
Algorithms 2, 3 and 7; docs/formulas.md#gibbs-order, #joint-parts, #distinct-entries, #consistent-sums,
#normal-inverse-wishart, #laplace-mixture).

State: phi and w. Each step draws the released statistic c | phi, w, z; completes it to the whole one where records
were clamped or redacted; draws phi from the conjugate posterior given the whole; and draws w from z minus that same c.
The conjugate draw belongs to the exact law of the statistic, c to the normal one. Models that know the ratio
(`Model.metropolis`) accept or refuse the draw by it, so that the chain leaves the normal model's posterior invariant
also at 10 records; the papers' sampler takes it always, which is right as n grows.
Fast per step and slow to mix: a step moves s by its sampling deviation while the noise spreads it over b
(docs/formulas.md#slow-mixing), so look at the ESS before believing it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from dpjax.engine.model import Model, Observed
from dpjax.engine.sampler import Draw, odd_chains
from dpjax.errors import InputError
from dpjax.kernels.collapsed import noise_draw_lanes
from dpjax.kernels.streams import normals_and_uniforms_lanes
from dpjax.kernels.symmetric import cholesky, matvec_lanes
from dpjax.mechanisms import LAPLACE, Mechanism


class GibbsState(NamedTuple):
    """One chain: unconstrained parameters `[P]` and noise variances in units of b^2 `[D]`."""

    position: Float[Array, "P *B"]
    scales: Float[Array, "D *B"]


class GibbsInfo(NamedTuple):
    """Whether the drawn statistic had to be projected, and the acceptance probability of the conjugate draw."""

    projected: Bool[Array, " *B"]
    acceptance: Float[Array, " *B"]


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

    def init_lanes(self, model: Model, observed: Observed, keys, chains: int) -> GibbsState:
        center = jax.vmap(lambda m: m.prior_center(), in_axes=-1, out_axes=-1)(model)
        if model.starts is not None:
            center = jnp.where(odd_chains(observed, chains), model.starts[1], model.starts[0])
        scales = jnp.full(observed.z.shape, self.noise.variance, observed.root_n_over_b.dtype)
        return GibbsState(center.astype(observed.z.dtype), scales)

    def step_lanes(
        self, model: Model, observed: Observed, keys: Key[Array, " B"], state: GibbsState, always: Any = False
    ) -> tuple[GibbsState, GibbsInfo]:
        """One transition c, whole statistic, phi, w; `always`: take the conjugate draw (on the way in)."""
        size, work = state.scales.shape[0], state.scales.dtype
        some_normals, some_uniforms = model.conjugate_randoms
        rest = model.complete_randoms
        again = size if self.literal else 0
        metropolis = model.metropolis and self.metropolis
        a, b = self.noise.randoms
        normals, uniforms = normals_and_uniforms_lanes(
            keys, (2 + a) * size + rest + again + some_normals, b * size + some_uniforms + metropolis, work
        )
        cut = np.cumsum([2 * size, a * size, rest, again])
        for_noise, for_scales, for_rest, for_again, for_phi = jnp.split(normals, cut.astype(np.int32))
        n, over_b = observed.n.astype(work), observed.n_over_b.astype(work)
        noise = noise_draw_lanes(model, observed, state.position, state.scales, for_noise)
        drawn = ((observed.z - noise.astype(observed.z.dtype)) / observed.n_over_b).astype(work)
        here = state.position.astype(work)
        whole = model.complete_lanes(here, drawn, n, for_rest, self.independent or self.literal)
        valid = model.valid_lanes(whole) if self.project else whole
        position = model.conjugate_lanes(valid, n, keys, for_phi, uniforms[b * size : b * size + some_uniforms])
        acceptance = jnp.ones_like(n)
        if metropolis:
            there = model.log_weight_lanes(position, drawn, whole, valid, n)
            log_ratio = there - model.log_weight_lanes(here, drawn, whole, valid, n)
            acceptance = jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
            position = jnp.where((uniforms[-1] < acceptance)[None] | always, position, here)
        elif not model.truncated:  # w from the same projected s (docs/formulas.md#consistent-sums)
            noise = noise - over_b * (valid - drawn)
        if self.literal:
            mean, covariance = model.moments_lanes(position)
            anew = mean + matvec_lanes(cholesky.lanes(covariance), for_again) / jnp.sqrt(n)[None]
            noise = (observed.z - observed.n_over_b * anew.astype(observed.z.dtype)).astype(work)
        scales = self.noise.update_lanes(noise, for_scales, uniforms[: b * size])
        usable = jnp.ones(n.shape, bool)
        if metropolis:
            # a record's moments at parameters far out may not be computable: refuse such a move, for good
            usable = jnp.isfinite(position).all(0) & jnp.isfinite(scales).all(0)
            usable = usable & jnp.isfinite(model.residual_lanes(position.astype(observed.z.dtype), observed)[1]).all(
                (0, 1)
            )
            position, scales = jnp.where(usable, position, here), jnp.where(usable, scales, state.scales)
        info = GibbsInfo((valid != whole).any(0), jnp.where(usable, acceptance, 0.0))
        return GibbsState(position.astype(observed.z.dtype), scales), info

    def iterate_lanes(self, model, observed, carry: GibbsState, keys, index, chains: int):
        # far from the posterior the ratio is hopeless: the normal law and the exact one part ways in the tails
        carry, info = self.step_lanes(model, observed, keys, carry, index < self.burn_in // 2)
        parameters = model.report_lanes(carry.position.astype(carry.scales.dtype))
        return carry, Draw(parameters, info.acceptance, jnp.zeros(info.acceptance.shape, bool))

    def finite_lanes(self, carry: GibbsState):
        return jnp.isfinite(carry.position).all(0) & jnp.isfinite(carry.scales).all(0)
