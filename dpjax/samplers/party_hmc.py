"""HMC over the parameters and the exact sums of all parties: `collapsed` for several data holders (`PartySums`).

Nothing is augmented, neither records nor the variances of Laplace noise: an evaluation costs O(q^3) for every party.
The metric (`arrow`) is learned in warm-up and then fixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from dpjax.engine.model import Observed
from dpjax.engine.sampler import Draw
from dpjax.errors import InputError
from dpjax.kernels.batching import repeat_lanes
from dpjax.kernels.collapsed import DIVERGENCE, LAUNCH_ERROR
from dpjax.kernels.hmc import Trajectory, trajectory_lanes
from dpjax.kernels.streams import normals_and_uniforms_lanes
from dpjax.samplers._effort import ByEffort
from dpjax.samplers.arrow import Arrow, curvature_lanes, factor_lanes, force_lanes, velocity_lanes
from dpjax.samplers.collapsed import WINDOW, pooled

#: Bound on the length of trajectories.
LONGEST_TRAJECTORY = 2.64


class PartyState(NamedTuple):
    """Position `[P, B]`; log step size and its sum over the window `[B]`; step size of the draws `[B]`; metric and the
    sums K, B_j, C_j' behind it, both one for all chains of a problem."""

    position: Float[Array, "P B"]
    log_step: Float[Array, " B"]
    log_step_sum: Float[Array, " B"]
    step_size: Float[Array, " B"]
    arrow: Arrow
    learned: tuple[Float[Array, "P P T"], Float[Array, "D D JT"], Float[Array, "D P JT"]]


@dataclass(frozen=True)
class PartyHmc(ByEffort):
    """Settings of the sampler; how hard it tries is given to its programs as numbers (`_effort`), the rest is static.

    leapfrogs: steps per trajectory (None: by dimension); warmup: adaptation iterations, a multiple of `WINDOW`;
    mode_steps: damped Gauss-Newton steps from the prior's centre before it; target: acceptance rate aimed at; jitter:
    relative half-width of the uniform step-size jitter; dispersion: times the usual momentum with which chains leave
    the mode; refresh: follow each trajectory by a draw of the parameters given the exact sums, where the prior is
    conjugate: with little noise the posterior is too bent for one metric, and the parameters move only so.
    """

    leapfrogs: int | None = None
    warmup: int = 200
    mode_steps: int = 30
    target: float = 0.8
    jitter: float = 0.3
    dispersion: float = 1.5
    refresh: bool = True
    float64: bool = False
    name: str = "collapsed"

    def __post_init__(self):
        if (self.leapfrogs is not None and self.leapfrogs < 1) or self.mode_steps < 2:
            raise InputError("leapfrogs must be at least 1 and mode_steps at least 2")
        if self.warmup % WINDOW or self.warmup < 5 * WINDOW:
            raise InputError(f"warmup must be a multiple of {WINDOW}, at least {5 * WINDOW}; got {self.warmup}")
        if not 0.0 < self.target < 1.0 or not 0.0 <= self.jitter < 1.0 or not 0.0 <= self.dispersion < float("inf"):
            raise InputError("target must lie in (0, 1), jitter in [0, 1) and dispersion be finite, at least 0")

    @property
    def warmup_iterations(self) -> int:
        return self.warmup

    def leapfrogs_for(self, dim: int) -> int:
        """Steps per trajectory at this many coordinates: the step size falls with the fourth root of them."""
        return self.leapfrogs or max(4, round(1.8 * dim**0.25))

    def block_lanes(self, model: Any, chains: int) -> int:
        """A block of 64 problems is fastest on CPU where their metrics stay in the cache, else one of 8: products with
        a metric run over problems first (5 features, 5 parties: 16 to 32 problems took twice as long)."""
        metric = model.shared_dim**2 + 2 * model.parties * model.own_dim**2
        return chains * (64 if metric <= 10_000 else 8 if metric <= 1_000_000 else 1)

    def longest_step(self, dim: int) -> float:
        """Bound on the step size: a longer trajectory turns back."""
        return LONGEST_TRAJECTORY / self.leapfrogs_for(dim)

    def cooling_steps(self) -> float:
        return 0.6 * self.mode_steps

    # ---- one iteration -------------------------------------------------------------------------------------
    def _propose_lanes(self, model, observed, arrow, position, momentum, step_size, steps, cooling=None) -> Trajectory:
        """Leapfrog trajectory; densities and gradients in the dtype of the algebra."""

        def log_density_and_grad(x):
            value, gradient = model.log_density_and_grad_lanes(x, cooling, observed)
            return value.astype(step_size.dtype), gradient.astype(step_size.dtype)

        velocity, force = (partial(product, model, arrow) for product in (velocity_lanes, force_lanes))
        return trajectory_lanes(log_density_and_grad, position, momentum, velocity, force, step_size, steps)

    # ---- the engine's view ---------------------------------------------------------------------------------
    def init_lanes(self, model: Any, observed: Observed, keys, chains: int) -> PartyState:
        work, model = observed.root_n_over_b.dtype, model.given(observed)
        # chains start from one place: the search is done once for each problem
        lanes = observed.z.shape[-1] // chains
        one, seen = jax.tree.map(lambda x: x[..., :lanes], (model, observed))
        prior = _prior_precision(one, work)
        start = jax.vmap(lambda m: m.prior_center(), in_axes=-1, out_axes=-1)(one).astype(observed.z.dtype)
        position, _, (learned, arrow) = self._mode_lanes(one, seen, start, prior)
        zero = jnp.zeros(lanes, work)
        starting: Any = (repeat_lanes(x, chains) for x in (position, zero - 1.0, zero, zero + 0.3))
        return PartyState(*starting, arrow, learned)  # type: ignore[call-arg]

    def _mode_lanes(self, model, observed, position, prior):
        """Damped Gauss-Newton search; the noise narrows in its first half from what was missed to what it is. Returns
        position, log step and (K, B, C and their factors)."""
        missed = jnp.abs(model.noise_lanes(position, observed)).max(0)
        missed = missed.reshape(model.parties, -1).max(0).astype(prior[0].dtype)
        widening = jnp.log(jnp.maximum(missed, 1.0))
        zero = jnp.zeros_like(widening)
        momentum, effort = jnp.zeros(position.shape, prior[0].dtype), self.effort(model.dim)
        rate = lax.reciprocal(jnp.asarray(effort.cooling, zero.dtype))

        def search(index, carry):
            position, log_step, _ = carry
            heat = jnp.clip(1.0 - index.astype(zero.dtype) * rate, 0.0, 1.0)
            wider = jnp.exp(heat * widening)
            learned = _with_prior(prior, curvature_lanes(model, observed, position, wider))
            arrow = factor_lanes(model, *learned)
            end = self._propose_lanes(model, observed, arrow, position, momentum, jnp.exp(log_step), 1, wider)
            gain = end.log_density_end - end.log_density_start
            uphill = jnp.isfinite(gain) & (gain > 0)
            # a leapfrog step of sqrt(2) from rest is the whole Gauss-Newton step
            log_step = jnp.clip(log_step + jnp.where(uphill, 0.3, -1.0).astype(zero.dtype), -6.0, 0.3465)
            return jnp.where(uphill[None], end.position, position), log_step, (learned, arrow)

        # the last step's metric, one step short of the mode, serves until the chains have moved
        size, parties = model.own_dim, model.parties
        lanes, dim, dtype = position.shape[-1], model.shared_dim, prior[0].dtype
        empty = (
            jnp.zeros((dim, dim, lanes), dtype),
            jnp.zeros((size, size, parties * lanes), dtype),
            jnp.zeros((size, dim, parties * lanes), dtype),
        )
        start = (position, zero, (empty, Arrow(*empty)))
        return lax.fori_loop(np.int32(0), jnp.asarray(effort.mode_steps, jnp.int32), search, start)

    def iterate_lanes(self, model, observed, carry: PartyState, keys, index, chains: int) -> tuple[PartyState, Draw]:
        model, position, log_step = model.given(observed), carry.position, carry.log_step
        work, effort = log_step.dtype, self.effort(model.dim)
        launching, warming = index == 0, index < effort.warmup
        refresh = self.refresh and model.conjugate
        extra = model.conjugate_randoms if refresh else (0, 0)
        momentum, uniforms = normals_and_uniforms_lanes(keys, model.dim + extra[0], 2 + extra[1], work)
        momentum, normals = momentum[: model.dim], momentum[model.dim :]
        jittered = 1.0 + self.jitter * (2.0 * uniforms[0] - 1.0)
        step_size = jnp.where(warming, jnp.exp(log_step), carry.step_size) * jittered
        # chains leave the mode in their own directions: a quarter turn from rest is a draw around it
        step_size = jnp.where(launching, jnp.full_like(step_size, effort.turn), step_size)
        kick = jnp.where(launching, self.dispersion, 1.0).astype(work)
        end = self._propose_lanes(model, observed, carry.arrow, position, momentum * kick, step_size, effort.leapfrogs)
        acceptance = jnp.exp(jnp.minimum(end.log_ratio, 0.0))
        accepted = jnp.where(launching, end.log_ratio > LAUNCH_ERROR, uniforms[1] < acceptance)
        position = jnp.where(accepted[None], end.position, position)
        if refresh:  # where the noise is small beside the spread of the sums, the parameters move freely only so
            fresh = model.refresh_lanes(position.astype(work), keys, normals, uniforms[2:]).astype(position.dtype)
            usable = jnp.isfinite(fresh).all(0) & ~launching
            position = jnp.where(usable[None], fresh, position)
        gain = 2.0 / (index.astype(work) + 4.0) ** 0.7
        learned = jnp.clip(log_step + gain * (acceptance - effort.target), -6.0, effort.longest)
        log_step = jnp.where(warming, pooled(learned, chains), log_step)
        draw = Draw(model.report_lanes(position).astype(work), acceptance, end.log_ratio < DIVERGENCE)
        return carry._replace(position=position, log_step=log_step, log_step_sum=carry.log_step_sum + log_step), draw

    def position_lanes(self, carry: PartyState) -> tuple[()]:
        """Nothing: what is learned, is learned where the chains are at the end of a window."""
        return ()

    def adapt_lanes(self, model, observed, carry: PartyState, positions, done, chains: int) -> PartyState:
        """After a window of warm-up: its step size, and the metric of all windows but the first and the last two."""
        lanes, model = carry.position.shape[-1] // chains, model.given(observed)
        warmup = self.effort(model.dim).warmup
        first = jax.tree.map(lambda x: x[..., :lanes], model)

        def learn(carry: PartyState) -> PartyState:
            seen = curvature_lanes(model, observed, carry.position, tails=True)
            seen = tuple(_chain_mean(x, chains, lanes) for x in seen)
            new = _with_prior(_prior_precision(first, seen[0].dtype), seen)
            # the mode's own curvature counts until the chains have been elsewhere
            number = (done // WINDOW).astype(new[0].dtype)
            weight = jnp.where(number <= 2, 1.0, 1.0 / (number - 1.0)).astype(new[0].dtype)
            mixed = tuple(a + weight * (b - a) for a, b in zip(carry.learned, new, strict=True))
            return carry._replace(arrow=factor_lanes(first, *mixed), learned=mixed)

        def window(carry: PartyState) -> PartyState:
            step_size = jnp.exp(carry.log_step_sum / WINDOW)
            carry = carry._replace(step_size=step_size, log_step_sum=jnp.zeros_like(carry.log_step_sum))
            return lax.cond(done <= warmup - 3 * WINDOW, learn, lambda c: c, carry)

        return lax.cond(done <= warmup, window, lambda c: c, carry)

    def finite_lanes(self, carry: PartyState) -> Bool[Array, " B"]:
        return jnp.isfinite(carry.position).all(0)


# ---- lanes of chains (outermost), of parties, of problems --------------------------------------------------------
def _prior_precision(model: Any, dtype):
    """Lambda_0 `[P, P, T]` and Lambda_j `[D, D, J * T]`."""
    shared, own = (
        jax.vmap(of, in_axes=-1, out_axes=-1)(model).astype(dtype)
        for of in (lambda m: m.prior_precision(), lambda m: m.own_precision())
    )
    return shared, model.to_parties(own)


def _with_prior(prior, curvature) -> tuple[Any, Any, Any]:
    inner, latent, across = curvature
    return prior[0] + inner, prior[1] + latent, across


def _chain_mean(x, chains: int, lanes: int):
    """`[..., C * T]` or `[..., J * C * T]` as the mean over chains, `[..., T]` or `[..., J * T]`."""
    return x.reshape(*x.shape[:-1], -1, chains, lanes).mean(-2).reshape(*x.shape[:-1], -1)
