"""The papers' Gibbs sampler, corrected (S0 Algorithm 1 with Gibbs-SS-Update; S4 Algorithm 7; SPEC C3, C6, C9, B10).

State: phi and w. Each step draws s | phi, w, z, projects it onto what a table can produce, draws phi | s by
conjugacy and w | s from the same projected s. Fast per step and slow to mix: a step moves s by its sampling
deviation while the noise spreads it over b (SPEC C7), so look at the ESS before believing it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from ..errors import InputError
from ..kernels.batching import batch_last
from ..kernels.streams import normals_and_uniforms_lanes
from ..models.base import Model, Observed
from .base import Draw, GaussianNoise, LaplaceNoise
from .collapsed import noise_draw_lanes


class GibbsState(NamedTuple):
    """One chain: unconstrained parameters `[P]` and noise variances in units of b^2 `[D]`."""

    position: Float[Array, "P *B"]
    scales: Float[Array, "D *B"]


class GibbsInfo(NamedTuple):
    """Whether the drawn statistic had to be projected."""

    projected: Bool[Array, " *B"]


@dataclass(frozen=True)
class Gibbs:
    """Settings (static). burn_in: steps thrown away; project: Schur clip of s (SPEC C6: needed at small n)."""

    noise: LaplaceNoise | GaussianNoise = LaplaceNoise()
    burn_in: int = 2000
    project: bool = True
    name: str = "gibbs"

    def __post_init__(self):
        if self.burn_in < 0:
            raise InputError(f"burn_in must be at least 0; got {self.burn_in}")

    @property
    def warmup_iterations(self) -> int:
        return self.burn_in

    def init_lanes(self, model: Model, observed: Observed, keys, chains: int) -> GibbsState:
        center = jax.vmap(lambda m: m.prior_center(), in_axes=-1, out_axes=-1)(model)
        scales = jnp.full(observed.z.shape, self.noise.mean_variance, observed.root_n_over_b.dtype)
        return GibbsState(center.astype(observed.z.dtype), scales)

    def step_lanes(
        self, model: Model, observed: Observed, keys: Key[Array, " B"], state: GibbsState
    ) -> tuple[GibbsState, GibbsInfo]:
        """One transition s, phi, w."""
        size, work = state.scales.shape[0], state.scales.dtype
        some_normals, some_uniforms = model.conjugate_randoms
        normals, uniforms = normals_and_uniforms_lanes(keys, 4 * size + some_normals, size + some_uniforms, work)
        noise = noise_draw_lanes(model, observed, state.position, state.scales, normals[: 2 * size])
        drawn = ((observed.z - noise.astype(observed.z.dtype)) / observed.n_over_b).astype(work)
        statistic = model.valid_lanes(drawn) if self.project else drawn
        position = model.conjugate_lanes(statistic, observed.n.astype(work), keys, normals[4 * size :], uniforms[size:])
        noise = noise - observed.n_over_b.astype(work) * (statistic - drawn)
        scales = self.noise.update_lanes(noise, normals[2 * size : 4 * size], uniforms[:size])
        return GibbsState(position.astype(observed.z.dtype), scales), GibbsInfo((statistic != drawn).any(0))

    def iterate_lanes(self, model, observed, carry: GibbsState, keys, index, chains: int):
        carry, _ = self.step_lanes(model, observed, keys, carry)
        parameters = model.report_lanes(carry.position.astype(carry.scales.dtype))
        one = jnp.ones_like(parameters[0])
        return carry, Draw(parameters, one, jnp.zeros(one.shape, bool))

    def finite_lanes(self, carry: GibbsState):
        return jnp.isfinite(carry.position).all(0) & jnp.isfinite(carry.scales).all(0)


def build(model: Model, observed: Observed, settings: Gibbs = Gibbs()):
    """BlackJAX `SamplingAlgorithm(init, step)` of one chain.

    Args:
        model: model of one problem.
        observed: released statistics in units of b (`dpjax.models.Observed`).
        settings: sampler settings.

    Returns:
        `init(position) -> GibbsState` (phi `[P]`), `step(key, state) -> (state, info)`.
    """
    from blackjax.base import SamplingAlgorithm

    step = batch_last(settings.step_lanes)
    work = observed.root_n_over_b.dtype

    def init(position, rng_key=None):
        del rng_key
        return GibbsState(position, jnp.full(observed.z.shape, settings.noise.mean_variance, work))

    return SamplingAlgorithm(init, lambda rng_key, state: step(model, observed, rng_key, state))
