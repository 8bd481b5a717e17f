"""Partially collapsed Gibbs sampler: the default (docs/formulas.md#collapsed-sampler, #collapsed-metric, #slow-mixing).

The transition is `dpjax.kernels.collapsed.step_lanes`; here are the search for the mode and what warm-up learns. J, S
and C_j of the metric are frozen after warm-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Key

from dpjax.engine.model import Model, Observed
from dpjax.engine.sampler import KEY_BLOCK, Draw, odd_chains
from dpjax.errors import InputError
from dpjax.kernels import collapsed as kernel
from dpjax.kernels.batching import repeat_lanes, split_lanes
from dpjax.kernels.collapsed import Info, Parameters, State, propose_lanes, reference_lanes
from dpjax.mechanisms import LAPLACE, Mechanism
from dpjax.samplers._effort import ByEffort

#: Above this many statistics the curvature correction keeps its diagonal only (storage D P instead of D P^2).
FULL_CURVATURE_UP_TO = 9
#: Bound on the length of trajectories of more than four steps.
LONGEST_TRAJECTORY = 2.6
#: Iterations of one window of warm-up: what is learned from the last window changes between blocks of steps only,
#: so that the loop over steps carries nothing large.
WINDOW = KEY_BLOCK


class Adaptation(NamedTuple):
    """Running quantities of warm-up `[B]`, equal over a problem's chains: log step size and its sum over the block."""

    log_step: Float[Array, " B"]
    log_step_sum: Float[Array, " B"]


class Carry(NamedTuple):
    state: State
    parameters: Parameters
    adaptation: Adaptation


def pooled(x, chains: int):
    """Mean over a problem's chains (outermost in the lanes), given to each of them."""
    return repeat_lanes(split_lanes(x, chains).mean(-2), chains)


@dataclass(frozen=True)
class Collapsed(ByEffort):
    """Settings of the sampler; how hard it tries is given to its programs as numbers (`_effort`), the rest is static.

    leapfrogs: steps per trajectory (None: by dimension, see `leapfrogs_for`); warmup: adaptation iterations, a
    multiple of `WINDOW`; mode_steps: damped Gauss-Newton steps from the prior's centre before it; target: acceptance
    rate aimed at; jitter: relative half-width of the uniform step-size jitter; max_step: bound on the step size (in
    one dimension a longer trajectory makes a full turn); dispersion: each chain leaves the mode in its own direction,
    with this many times the usual momentum (1: a draw around the mode; more: overdispersed, as R-hat wants).
    """

    noise: Mechanism = LAPLACE
    leapfrogs: int | None = None
    warmup: int = 100
    mode_steps: int = 40
    target: float = 0.85
    jitter: float = 0.3
    max_step: float = 1.6
    dispersion: float = 1.5
    name: str = "collapsed"

    def __post_init__(self):
        if (self.leapfrogs is not None and self.leapfrogs < 1) or self.mode_steps < 2:
            raise InputError("leapfrogs must be at least 1 and mode_steps at least 2")
        if self.warmup % WINDOW or self.warmup < 4 * WINDOW:
            raise InputError(f"warmup must be a multiple of {WINDOW}, at least {4 * WINDOW}; got {self.warmup}")
        if not (0.0 < self.max_step < float("inf") and 0.0 <= self.dispersion < float("inf")):
            raise InputError("max_step must be positive and dispersion at least 0, both finite")
        if not 0.0 < self.target < 1.0 or not 0.0 <= self.jitter < 1.0:
            raise InputError("target must lie in (0, 1) and jitter in [0, 1)")

    @property
    def warmup_iterations(self) -> int:
        return self.warmup

    def leapfrogs_for(self, dim: int) -> int:
        """Steps per trajectory at P = `dim` coordinates.

        Four are best up to 9 coordinates, six at 20 (four give as much ESS per second there, but ten times the problems
        that must be run again). With many, few combinations of coefficients are pinned tightly and the rest loosely
        (y^2 fixes the length of the coefficient vector), so that short trajectories diffuse along a shell.
        """
        return self.leapfrogs or (4 if dim <= 9 else max(6, dim // 6))

    def longest_step(self, dim: int) -> float:
        """Bound on the step size: a trajectory of more than four steps that is longer turns back."""
        steps = self.leapfrogs_for(dim)
        return self.max_step if steps <= 4 else min(self.max_step, LONGEST_TRAJECTORY / steps)

    def cooling_steps(self) -> float:
        """Steps of the search for the mode in which the noise narrows to what it is."""
        return float(self.mode_steps // 2)

    def step_lanes(
        self,
        model: Model,
        observed: Observed,
        parameters: Parameters,
        keys: Key[Array, " B"],
        state: State,
        launching: Any = None,
    ) -> tuple[State, Info]:
        """One transition with fixed parameters; launching: a chain leaves the mode in its own direction."""
        effort = self.effort(model.dim)
        return kernel.step_lanes(
            model, observed, parameters, keys, state, launching=launching, dispersion=self.dispersion,
            update=self.noise.update_lanes if self.noise.augmented else None, randoms=self.noise.randoms,
            steps=effort.leapfrogs, turn=effort.turn, jitter=self.jitter,
        )  # fmt: skip

    # ---- the engine's view: mode search, then warm-up and draws in one loop body -----------------------------
    def init_lanes(self, model: Model, observed: Observed, keys, chains: int) -> Carry:
        work, size, dim = observed.root_n_over_b.dtype, observed.z.shape[0], model.dim
        starts = jax.vmap(lambda m: m.prior_starts(), in_axes=-1, out_axes=-1)(model)
        precision = jax.vmap(lambda m: m.prior_precision(), in_axes=-1, out_axes=-1)(model).astype(work)
        lanes = observed.z.shape[-1]
        position = jnp.where(odd_chains(observed, chains), starts[1], starts[0]).astype(observed.z.dtype)
        usual = jnp.full(observed.z.shape, self.noise.variance, work)
        start = position
        position = model.canonical_lanes(self._mode_lanes(model, observed, position, precision, usual))
        if model.constrained:  # the search does not look at the edge
            position = jnp.where(model.inside_lanes(position)[None], position, start)
        covariance, jacobian = reference_lanes(model, observed, position)
        shape = (size, dim, dim, lanes) if size <= FULL_CURVATURE_UP_TO else (size, dim, lanes)
        zero = jnp.zeros(lanes, work)
        parameters = Parameters(zero + 1.0, precision, covariance, jacobian, jnp.zeros(shape, work))
        return Carry(kernel.init(position, usual), parameters, Adaptation(jnp.full_like(zero, np.log(0.5)), zero))

    def _mode_lanes(self, model, observed, position, precision, usual):
        """Damped Gauss-Newton search from `position`: leapfrog steps from rest, lengthened after a success."""
        # start wide: without annealing the noise, a third of the problems stick (docs/formulas.md#collapsed-sampler)
        residual, _ = model.residual_lanes(position, observed)
        widening = jnp.log(jnp.maximum(residual * residual, usual) / usual)
        annealed = 1.0 if model.starts is None else 0.0  # a start that was looked for is not to be left
        effort = self.effort(model.dim)
        rate = lax.reciprocal(jnp.asarray(effort.cooling, usual.dtype))

        def search(index, carry):
            position, log_step = carry
            heat = jnp.clip(1.0 - index.astype(usual.dtype) * rate, 0.0, annealed)
            covariance, jacobian = reference_lanes(model, observed, position)
            parameters = Parameters(jnp.exp(log_step), precision, covariance, jacobian, None)
            state = State(position, usual * jnp.exp(heat * widening))
            rest = jnp.zeros(position.shape, usual.dtype)
            end = propose_lanes(model, observed, parameters, state, parameters.step_size, rest, 1)
            gain = end.log_density_end - end.log_density_start
            uphill = jnp.isfinite(gain) & (gain > 0)
            # a leapfrog step of sqrt(2) from rest is the whole Gauss-Newton step
            moved = log_step + jnp.where(uphill, 0.3, -1.0).astype(usual.dtype)
            log_step = jnp.clip(moved, -6.0, 0.5 * float(np.log(2.0)))
            return jnp.where(uphill[None], end.position, position), log_step.astype(usual.dtype)

        start = (position, jnp.full(usual.shape[-1:], -1.0, usual.dtype))
        return lax.fori_loop(np.int32(0), jnp.asarray(effort.mode_steps, jnp.int32), search, start)[0]

    def iterate_lanes(self, model, observed, carry: Carry, keys, index, chains: int) -> tuple[Carry, Draw]:
        state, parameters, adaptation = carry
        effort = self.effort(model.dim)
        work, log_step, warming = observed.root_n_over_b.dtype, adaptation.log_step, index < effort.warmup
        used = parameters._replace(step_size=jnp.where(warming, jnp.exp(log_step), parameters.step_size))
        state, info = self.step_lanes(model, observed, used, keys, state, index == 0)
        position, acceptance = state.position, info.acceptance
        # Robbins-Monro on the step size, pooled over a problem's chains
        gain = 2.0 / (index.astype(work) + 4.0) ** 0.7
        learned = jnp.clip(log_step + gain * (acceptance - effort.target), -5.0, effort.longest)
        log_step = jnp.where(warming, pooled(learned, chains), log_step)
        reported = model.report_lanes(position.astype(work))
        if model.constrained:  # a chain that never enters its set must not pass for one that did
            reported = jnp.where(model.inside_lanes(position)[None], reported, jnp.nan)
        draw = Draw(reported, acceptance, info.divergent)
        adaptation = Adaptation(log_step, adaptation.log_step_sum + log_step)
        return Carry(state, parameters, adaptation), draw

    def position_lanes(self, carry: Carry) -> Float[Array, "P B"]:
        return carry.state.position

    def adapt_lanes(self, model, observed, carry: Carry, positions, done, chains: int) -> Carry:
        """What a window of warm-up teaches; nothing is changed once the draws have begun."""
        work = observed.root_n_over_b.dtype
        over_b = observed.n_over_b.astype(work)[:, None]
        warmup = self.effort(model.dim).warmup

        def learn(carry: Carry) -> Carry:
            state, parameters, adaptation = carry
            step_size = jnp.exp(adaptation.log_step_sum / WINDOW)
            adaptation = Adaptation(adaptation.log_step, jnp.zeros_like(adaptation.log_step))

            known: Any = parameters.curvature

            def curved(total, position):
                moved = model.mean_jacobian_lanes(position.astype(work)) * over_b - parameters.jacobian
                return total + (moved[:, :, None] * moved[:, None] if total.ndim == 4 else moved * moved), None

            total = lax.scan(curved, jnp.zeros_like(known), positions)[0]
            covariance, jacobian = reference_lanes(model, observed, pooled(positions.mean(0), chains))
            curvature = pooled(total, chains) / WINDOW
            learned = Parameters(step_size, parameters.prior_precision, covariance, jacobian, curvature)
            # the first window still comes from the mode; the last two only learn the step size
            frozen = done > warmup - 2 * WINDOW
            first = done <= WINDOW

            def choose(keep, old, new):
                return lax.select(jnp.broadcast_to(keep, old.shape), old, new)

            keep = Parameters(jnp.zeros_like(frozen), frozen, frozen | first, frozen | first, frozen)
            return Carry(state, jax.tree.map(choose, keep, parameters, learned), adaptation)

        return lax.cond(done <= warmup, learn, lambda c: c, carry)

    def finite_lanes(self, carry: Carry) -> Bool[Array, " B"]:
        return jnp.isfinite(carry.state.position).all(0) & jnp.isfinite(carry.state.scales).all(0)
