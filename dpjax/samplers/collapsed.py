"""Partially collapsed Gibbs sampler: the default (DESIGN section 7; SPEC C7).

State: phi (unconstrained parameters) and w (noise variances in units of b^2). With the exact statistics s
integrated out, z/b | phi, w is normal, and one iteration is
 1. metric M(w) = prior precision + J' (S + W)^{-1} J + sum_j C_j / (S_jj + w_j), J, S, C_j frozen after warm-up;
 2. HMC on phi | w, z;
 3. e = z - s from s | phi, w, z (Matheron's rule), at once, never from a stale s;
 4. w | e, exactly.
The order matters: s is drawn after phi moved and is thrown away after step 4, so steps 2-4 together leave
p(phi, w | z) invariant. The metric may depend on w, which step 2 holds fixed, but not on phi.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray

from ..errors import InputError
from ..kernels.batching import batch_last, repeat_lanes, split_lanes
from ..kernels.hmc import Trajectory, leapfrog_lanes
from ..kernels.marginal import add_diagonal_lanes
from ..kernels.streams import normals_and_uniforms_lanes
from ..kernels.symmetric import gram_lanes, inverse_cholesky, matmul_lanes, sweep, take
from ..models.base import Model, Observed
from ._matheron import noise_draw_lanes
from .base import KEY_BLOCK, Draw, GaussianNoise, LaplaceNoise

#: A fall of the log Metropolis ratio beyond this is counted as a divergence.
DIVERGENCE = -1000.0
#: Largest energy error with which a chain is sent off from the mode.
LAUNCH_ERROR = -10.0
#: Above this many statistics the curvature correction keeps its diagonal only (storage D P instead of D P^2).
FULL_CURVATURE_UP_TO = 9
#: Bound on the length of trajectories of more than four steps.
LONGEST_TRAJECTORY = 2.6
#: Iterations of one window of warm-up: what is learned from the last window changes between blocks of steps only,
#: so that the loop over steps carries nothing large.
WINDOW = KEY_BLOCK


class CollapsedState(NamedTuple):
    """One chain: unconstrained parameters `[P]` and noise variances in units of b^2 `[D]`."""

    position: Float[Array, "P *B"]
    scales: Float[Array, "D *B"]


class CollapsedParameters(NamedTuple):
    """What warm-up learns, pooled over a problem's chains.

    step_size `[]`; prior_precision `[P, P]`; covariance S `[D, D]` and jacobian J `[D, P]` of the statistic at the
    reference point, in units of b; curvature C_j `[D, P, P]` or its diagonals `[D, P]` (None: nothing learned yet).
    """

    step_size: Float[Array, " *B"]
    prior_precision: Float[Array, "P P *B"]
    covariance: Float[Array, "D D *B"]
    jacobian: Float[Array, "D P *B"]
    curvature: Float[Array, "..."] | None


class CollapsedInfo(NamedTuple):
    """Acceptance probability, whether the proposal was taken, whether it diverged, log Metropolis ratio."""

    acceptance: Float[Array, " *B"]
    accepted: Bool[Array, " *B"]
    divergent: Bool[Array, " *B"]
    log_ratio: Float[Array, " *B"]


class Adaptation(NamedTuple):
    """Running quantities of warm-up `[B]`, equal over a problem's chains: log step size and its sum over the block."""

    log_step: Float[Array, " B"]
    log_step_sum: Float[Array, " B"]


class Carry(NamedTuple):
    state: CollapsedState
    parameters: CollapsedParameters
    adaptation: Adaptation


def metric_lanes(parameters: CollapsedParameters, scales: Float[Array, "D B"]) -> Float[Array, "P P B"]:
    """M(w): precision of phi given w at the reference point (positive definite)."""
    s, jac, curvature = parameters.covariance, parameters.jacobian, parameters.curvature
    size = scales.shape[0]
    _, inverse, _ = sweep.lanes(add_diagonal_lanes(s, scales), scales)
    out = parameters.prior_precision + gram_lanes(jac, matmul_lanes(inverse, jac))
    if curvature is None:
        return out
    weight = 1.0 / (jnp.stack([s[j, j] for j in range(size)]) + scales)
    if curvature.ndim == 4:
        return lax.fori_loop(0, size, lambda j, m: m + take(curvature, j) * take(weight, j)[None, None], out)
    zero = jnp.zeros_like(jac[0])
    diagonal = lax.fori_loop(0, size, lambda j, y: y + take(curvature, j) * take(weight, j)[None], zero)
    return add_diagonal_lanes(out, diagonal)


def _stays_inside(model: Model, start, end) -> Any:
    """Whether a move keeps to the model's set, where it has one; a chain that begins outside of it is free until it
    enters.

    Trajectories pass through the outside and only their ends are judged, so that step sizes are learned from the
    density and not from the edge.
    """
    return model.inside_lanes(end) | ~model.inside_lanes(start) if model.constrained else True


def _reference_lanes(model: Model, observed: Observed, position):
    """S and J at a reference point, in units of b."""
    work = observed.root_n_over_b.dtype
    _, covariance = model.residual_lanes(position, observed)
    jacobian = model.mean_jacobian_lanes(position.astype(work))
    return covariance, jacobian * observed.n_over_b.astype(work)[:, None]


def pooled(x, chains: int):
    """Mean over a problem's chains (outermost in the lanes), given to each of them."""
    return repeat_lanes(split_lanes(x, chains).mean(-2), chains)


@dataclass(frozen=True)
class Collapsed:
    """Settings of the sampler (static).

    leapfrogs: steps per trajectory (None: by dimension, see `leapfrogs_for`); warmup: adaptation iterations, a
    multiple of `WINDOW`; mode_steps: damped Gauss-Newton steps from the prior's centre before it; target: acceptance
    rate aimed at; jitter: relative half-width of the uniform step-size jitter; max_step: bound on the step size (in
    one dimension a longer trajectory makes a full turn); dispersion: each chain leaves the mode in its own direction,
    with this many times the usual momentum (1: a draw around the mode; more: overdispersed, as R-hat wants).
    """

    noise: LaplaceNoise | GaussianNoise = LaplaceNoise()
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

    # ---- one iteration -------------------------------------------------------------------------------------
    def _randoms(self, keys, dim: int, size: int, dtype):
        augmented = 3 * size if self.noise.augmented else 0
        normals, uniforms = normals_and_uniforms_lanes(
            keys, dim + augmented, 2 + (size if self.noise.augmented else 0), dtype
        )
        return normals[:dim], normals[dim:], uniforms[0], uniforms[1], uniforms[2:]

    def _propose_lanes(self, model, observed, parameters, state, step_size, momentum, steps=None) -> Trajectory:
        """HMC trajectory of phi | w."""
        factor = inverse_cholesky.lanes(metric_lanes(parameters, state.scales))

        def log_density_and_grad(x):
            return model.log_density_and_grad_lanes(x, state.scales, observed)

        steps = steps or self.leapfrogs_for(model.dim)
        return leapfrog_lanes(log_density_and_grad, state.position, momentum, factor, step_size, steps)

    def _scales_lanes(self, model, observed, position, scales, normals, uniforms):
        size = scales.shape[0]
        residual = noise_draw_lanes(model, observed, position, scales, normals[: 2 * size])
        return self.noise.update_lanes(residual, normals[2 * size :], uniforms)

    def step_lanes(
        self,
        model: Model,
        observed: Observed,
        parameters: CollapsedParameters,
        keys: Key[Array, " B"],
        state: CollapsedState,
    ) -> tuple[CollapsedState, CollapsedInfo]:
        """One transition with fixed parameters; leaves p(phi, w | z) invariant."""
        momentum, normals, jitter, accept, uniforms = self._randoms(
            keys, model.dim, state.scales.shape[0], state.scales.dtype
        )
        step_size = parameters.step_size * (1.0 + self.jitter * (2.0 * jitter - 1.0))
        end = self._propose_lanes(model, observed, parameters, state, step_size, momentum)
        acceptance = jnp.exp(jnp.minimum(end.log_ratio, 0.0))
        accepted = (accept < acceptance) & _stays_inside(model, state.position, end.position)
        position = jnp.where(accepted[None], end.position, state.position)
        scales = state.scales
        if self.noise.augmented:
            scales = self._scales_lanes(model, observed, position, scales, normals, uniforms)
        info = CollapsedInfo(acceptance, accepted, end.log_ratio < DIVERGENCE, end.log_ratio)
        return CollapsedState(position, scales), info

    # ---- the engine's view: mode search, then warm-up and draws in one loop body -----------------------------
    def init_lanes(self, model: Model, observed: Observed, keys, chains: int) -> Carry:
        work, size, dim = observed.root_n_over_b.dtype, observed.z.shape[0], model.dim
        lanes = observed.z.shape[-1]
        starts = jax.vmap(lambda m: m.prior_starts(), in_axes=-1, out_axes=-1)(model)
        precision = jax.vmap(lambda m: m.prior_precision(), in_axes=-1, out_axes=-1)(model).astype(work)
        odd = (np.arange(lanes) // (lanes // chains)) % 2 == 1  # chains are outermost
        position = jnp.where(jnp.asarray(odd)[None], starts[1], starts[0]).astype(observed.z.dtype)
        usual = jnp.full(observed.z.shape, self.noise.mean_variance, work)
        start = position
        position = self._mode_lanes(model, observed, position, precision, usual)
        if model.constrained:  # the search does not look at the edge
            position = jnp.where(model.inside_lanes(position)[None], position, start)
        covariance, jacobian = _reference_lanes(model, observed, position)
        shape = (size, dim, dim, lanes) if size <= FULL_CURVATURE_UP_TO else (size, dim, lanes)
        zero = jnp.zeros(lanes, work)
        parameters = CollapsedParameters(zero + 1.0, precision, covariance, jacobian, jnp.zeros(shape, work))
        return Carry(CollapsedState(position, usual), parameters, Adaptation(jnp.full_like(zero, np.log(0.5)), zero))

    def _mode_lanes(self, model, observed, position, precision, usual):
        """Damped Gauss-Newton search from `position`: leapfrog steps from rest, lengthened after a success."""
        # start wide: without annealing the noise, a third of the problems stick (DESIGN section 7)
        residual, _ = model.residual_lanes(position, observed)
        widening = jnp.log(jnp.maximum(residual * residual, usual) / usual)

        def search(carry, index):
            position, log_step = carry
            heat = jnp.clip(1.0 - index.astype(usual.dtype) / (self.mode_steps // 2), 0.0, 1.0)
            covariance, jacobian = _reference_lanes(model, observed, position)
            parameters = CollapsedParameters(jnp.exp(log_step), precision, covariance, jacobian, None)
            state = CollapsedState(position, usual * jnp.exp(heat * widening))
            rest = jnp.zeros(position.shape, usual.dtype)
            end = self._propose_lanes(model, observed, parameters, state, parameters.step_size, rest, 1)
            gain = end.log_density_end - end.log_density_start
            uphill = jnp.isfinite(gain) & (gain > 0)
            # a leapfrog step of sqrt(2) from rest is the whole Gauss-Newton step
            moved = log_step + jnp.where(uphill, 0.3, -1.0).astype(usual.dtype)
            log_step = jnp.clip(moved, -6.0, 0.5 * float(np.log(2.0)))
            return (jnp.where(uphill[None], end.position, position), log_step.astype(usual.dtype)), None

        start = (position, jnp.full(usual.shape[-1:], -1.0, usual.dtype))
        return lax.scan(search, start, jnp.arange(self.mode_steps, dtype=jnp.int32))[0][0]

    def iterate_lanes(self, model, observed, carry: Carry, keys, index, chains: int) -> tuple[Carry, Draw]:
        state, parameters, adaptation = carry
        work = observed.root_n_over_b.dtype
        launching, warming = index == 0, index < self.warmup
        quarter_turn = float(np.pi / 2 / self.leapfrogs_for(model.dim))
        log_step = adaptation.log_step
        momentum, normals, jitter, accept, uniforms = self._randoms(
            keys, model.dim, state.scales.shape[0], state.scales.dtype
        )
        jittered = 1.0 + self.jitter * (2.0 * jitter - 1.0)
        step_size = jnp.where(warming, jnp.exp(log_step), parameters.step_size) * jittered
        # chains leave the mode in their own directions: a quarter turn from rest is a draw around it
        step_size = jnp.where(launching, jnp.full_like(step_size, quarter_turn), step_size)
        kick = jnp.where(launching, self.dispersion, 1.0).astype(work)
        end = self._propose_lanes(model, observed, parameters, state, step_size, momentum * kick)
        acceptance = jnp.exp(jnp.minimum(end.log_ratio, 0.0))
        accepted = jnp.where(launching, end.log_ratio > LAUNCH_ERROR, accept < acceptance)
        accepted = accepted & _stays_inside(model, state.position, end.position)
        position = jnp.where(accepted[None], end.position, state.position)
        scales = state.scales
        if self.noise.augmented:
            scales = self._scales_lanes(model, observed, position, scales, normals, uniforms)
        # Robbins-Monro on the step size, pooled over a problem's chains
        gain = 2.0 / (index.astype(work) + 4.0) ** 0.7
        longest = float(np.log(self.longest_step(model.dim)))
        learned = jnp.clip(log_step + gain * (acceptance - self.target), -5.0, longest)
        log_step = jnp.where(warming, pooled(learned, chains), log_step)
        reported = model.report_lanes(position.astype(work))
        if model.constrained:  # a chain that never enters its set must not pass for one that did
            reported = jnp.where(model.inside_lanes(position)[None], reported, jnp.nan)
        draw = Draw(reported, acceptance, end.log_ratio < DIVERGENCE)
        adaptation = Adaptation(log_step, adaptation.log_step_sum + log_step)
        return Carry(CollapsedState(position, scales), parameters, adaptation), draw

    def position_lanes(self, carry: Carry) -> Float[Array, "P B"]:
        return carry.state.position

    def adapt_lanes(self, model, observed, carry: Carry, positions, done, chains: int) -> Carry:
        """What a window of warm-up teaches; nothing is changed once the draws have begun."""
        work = observed.root_n_over_b.dtype
        over_b = observed.n_over_b.astype(work)[:, None]

        def learn(carry: Carry) -> Carry:
            state, parameters, adaptation = carry
            step_size = jnp.exp(adaptation.log_step_sum / WINDOW)
            adaptation = Adaptation(adaptation.log_step, jnp.zeros_like(adaptation.log_step))

            known: Any = parameters.curvature

            def curved(total, position):
                moved = model.mean_jacobian_lanes(position.astype(work)) * over_b - parameters.jacobian
                return total + (moved[:, :, None] * moved[:, None] if total.ndim == 4 else moved * moved), None

            total = lax.scan(curved, jnp.zeros_like(known), positions)[0]
            covariance, jacobian = _reference_lanes(model, observed, pooled(positions.mean(0), chains))
            curvature = pooled(total, chains) / WINDOW
            learned = CollapsedParameters(step_size, parameters.prior_precision, covariance, jacobian, curvature)
            # the first window still comes from the mode; the last two only learn the step size
            frozen = done > self.warmup - 2 * WINDOW
            first = done <= WINDOW

            def choose(keep, old, new):
                return lax.select(jnp.broadcast_to(keep, old.shape), old, new)

            keep = CollapsedParameters(jnp.zeros_like(frozen), frozen, frozen | first, frozen | first, frozen)
            return Carry(state, jax.tree.map(choose, keep, parameters, learned), adaptation)

        return lax.cond(done <= self.warmup, learn, lambda c: c, carry)

    def finite_lanes(self, carry: Carry) -> Bool[Array, " B"]:
        return jnp.isfinite(carry.state.position).all(0) & jnp.isfinite(carry.state.scales).all(0)


# ---- one chain: the interface of BlackJAX ------------------------------------------------------------------------
def build(model: Model, observed: Observed, parameters: CollapsedParameters, settings: Collapsed | None = None):
    """The sampler for one problem as a `blackjax.base.SamplingAlgorithm` (needs the package blackjax).

    Args:
        model: prior and moments of one problem.
        observed: its released statistics (no lane axis).
        parameters: what `warmup` learned.
        settings: as given to `warmup`.

    Returns:
        `SamplingAlgorithm(init, step)`: `init(position [P], rng_key=None) -> CollapsedState`, which needs no key, and
        `step(rng_key, state) -> (CollapsedState, CollapsedInfo)`. Both are for one chain; `jax.vmap` of `step` runs
        the lane code.

    Raises:
        ImportError: blackjax is not installed.
        InputError: `observed` or `parameters` do not fit the model.
    """
    try:
        from blackjax.base import SamplingAlgorithm
    except ImportError as error:
        raise ImportError("build needs the package blackjax (pip install blackjax)") from error
    settings = Collapsed() if settings is None else settings
    _check_problem(model, observed)
    expected = (model.statistic_dim, model.dim)
    if parameters.jacobian.shape != expected:
        raise InputError(f"parameters.jacobian must have shape {expected}; got {parameters.jacobian.shape}")
    single = batch_last(settings.step_lanes)

    def init(position, rng_key=None) -> CollapsedState:
        work = observed.root_n_over_b.dtype
        scales = jnp.full((model.statistic_dim,), settings.noise.mean_variance, work)
        return CollapsedState(jnp.asarray(position, observed.z.dtype), scales)

    def step(rng_key, state: CollapsedState) -> tuple[CollapsedState, CollapsedInfo]:
        return single(model, observed, parameters, rng_key, state)

    return SamplingAlgorithm(init, step)


def warmup(
    key: PRNGKeyArray, model: Model, observed: Observed, chains: int = 4, settings: Collapsed | None = None
) -> tuple[CollapsedState, CollapsedParameters]:
    """Mode search and adaptation for one problem, pooled over its chains.

    Args:
        key: typed key.
        model: prior and moments of one problem.
        observed: its released statistics (no lane axis).
        chains: number of chains.
        settings: of the sampler.

    Returns:
        `(states with a leading axis over chains, parameters for build)`.

    Raises:
        InputError: chains < 1, or `observed` does not fit the model.
    """
    if isinstance(chains, bool) or not isinstance(chains, int | np.integer) or chains < 1:
        raise InputError(f"chains must be a whole number, at least 1; got {chains!r}")
    _check_problem(model, observed)
    return _warmup(key, model, observed, int(chains), Collapsed() if settings is None else settings)


def _check_problem(model: Model, observed: Observed) -> None:
    expected = (model.statistic_dim,)
    for name in ("z", "n_over_b", "root_n_over_b"):
        if jnp.shape(getattr(observed, name)) != expected:
            raise InputError(f"observed.{name} must have shape {expected}; got {jnp.shape(getattr(observed, name))}")


@partial(jax.jit, static_argnames=("chains", "settings"))
def _warmup(key, model, observed, chains, settings):
    model, observed = jax.tree.map(
        lambda x: jnp.broadcast_to(jnp.asarray(x)[..., None], (*jnp.shape(x), chains)), (model, observed)
    )
    keys = random.split(key, chains)

    def window(carry, number):
        index = number * WINDOW + jnp.arange(WINDOW, dtype=jnp.int32)

        def iteration(carry, index):
            step_keys = jax.vmap(lambda k: random.fold_in(k, index.astype(jnp.uint32)))(keys)
            carry, _ = settings.iterate_lanes(model, observed, carry, step_keys, index, chains)
            return carry, settings.position_lanes(carry)

        carry, positions = lax.scan(iteration, carry, index)
        return settings.adapt_lanes(model, observed, carry, positions, index[-1] + 1, chains), None

    carry = settings.init_lanes(model, observed, keys, chains)
    carry, _ = lax.scan(window, carry, jnp.arange(settings.warmup // WINDOW, dtype=jnp.int32))
    states = jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), carry.state)
    return states, jax.tree.map(lambda x: x[..., 0], carry.parameters)
