"""The transition of the partially collapsed Gibbs sampler, once: the engine, `as_blackjax` and tests run this.

State: phi (unconstrained parameters) and w (noise variances in units of b^2). With the exact statistics s integrated
out, z/b | phi, w is normal, and one step is
 1. metric M(w) = prior precision + J' (S + W)^{-1} J + sum_j C_j / (S_jj + w_j), with J, S, C_j given;
 2. HMC on phi | w, z;
 3. e = z - s from s | phi, w, z (Matheron's rule), at once, never from a stale s;
 4. w | e, exactly.
The order matters: s is drawn after phi moved and is thrown away after 4, so that 2-4 together leave p(phi, w | z)
invariant. The metric may depend on w, which 2 holds fixed, but not on phi.

`model` is any object with `dim`, `constrained` and the lane methods `log_density_and_grad_lanes(phi, w, observed)`,
`residual_lanes(phi, observed)`, `deviation_lanes(phi, normals)`, `mean_jacobian_lanes(phi)` and `canonical_lanes(phi)`;
`observed` has z, n_over_b and root_n_over_b in units of b, lanes last.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Key

from .batching import batch_last
from .hmc import Trajectory, leapfrog_lanes
from .marginal import add_diagonal_lanes
from .streams import normals_and_uniforms_lanes
from .suffstat import noise_draw_lanes
from .symmetric import gram_lanes, inverse_cholesky, matmul_lanes, sweep, take

#: A fall of the log Metropolis ratio beyond this is counted as a divergence.
DIVERGENCE = -1000.0
#: Largest energy error with which a chain is sent off from the mode.
LAUNCH_ERROR = -10.0


class State(NamedTuple):
    """One chain: unconstrained parameters `[P]` and noise variances in units of b^2 `[D]`."""

    position: Float[Array, "P *B"]
    scales: Float[Array, "D *B"]


class Parameters(NamedTuple):
    """What warm-up learns.

    step_size `[]`; prior_precision `[P, P]`; covariance S `[D, D]` and jacobian J `[D, P]` of the statistic at the
    reference point, in units of b; curvature C_j `[D, P, P]` or its diagonals `[D, P]` (None: nothing learned yet).
    """

    step_size: Float[Array, " *B"]
    prior_precision: Float[Array, "P P *B"]
    covariance: Float[Array, "D D *B"]
    jacobian: Float[Array, "D P *B"]
    curvature: Float[Array, "..."] | None


class Info(NamedTuple):
    """Acceptance probability, whether the proposal was taken, whether it diverged, log Metropolis ratio."""

    acceptance: Float[Array, " *B"]
    accepted: Bool[Array, " *B"]
    divergent: Bool[Array, " *B"]
    log_ratio: Float[Array, " *B"]


def init(position: Float[Array, "P *B"], scales: Float[Array, "D *B"]) -> State:
    """The state of a chain at a position, with noise variances in units of b^2."""
    return State(position, scales)


def metric_lanes(parameters: Parameters, scales: Float[Array, "D B"]) -> Float[Array, "P P B"]:
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


def reference_lanes(model: Any, observed: Any, position):
    """S and J at a reference point, in units of b."""
    work = observed.root_n_over_b.dtype
    _, covariance = model.residual_lanes(position, observed)
    jacobian = model.mean_jacobian_lanes(position.astype(work))
    return covariance, jacobian * observed.n_over_b.astype(work)[:, None]


def propose_lanes(
    model: Any, observed: Any, parameters: Parameters, state: State, step_size, momentum, steps: Any
) -> Trajectory:
    """HMC trajectory of phi | w."""
    factor = inverse_cholesky.lanes(metric_lanes(parameters, state.scales))

    def log_density_and_grad(x):
        return model.log_density_and_grad_lanes(x, state.scales, observed)

    return leapfrog_lanes(log_density_and_grad, state.position, momentum, factor, step_size, steps)


def _stays_inside(model: Any, start, end) -> Any:
    """Whether a move keeps to the model's set, where it has one; a chain that begins outside of it is free until it
    enters.

    Trajectories pass through the outside and only their ends are judged, so that step sizes are learned from the
    density and not from the edge.
    """
    return model.inside_lanes(end) | ~model.inside_lanes(start) if model.constrained else True


def step_lanes(
    model: Any,
    observed: Any,
    parameters: Parameters,
    keys: Key[Array, " B"],
    state: State,
    *,
    update: Callable[..., Any] | None,
    steps: Any,
    randoms: tuple[int, int] = (1, 1),
    jitter: float = 0.3,
    launching: Any = None,
    turn: Any = None,
    dispersion: float = 1.0,
) -> tuple[State, Info]:
    """One transition; leaves p(phi, w | z) invariant.

    Args:
        update: (e, normals, uniforms) -> w, a draw of the noise's variances given the noise; None: they are known.
        steps: leapfrog steps, an int or a traced int32 scalar.
        randoms: how many normals and uniforms per entry `update` takes.
        jitter: relative half-width of the uniform step-size jitter.
        launching: whether this is a chain's way off the mode (traced, one for all lanes or one each): a quarter turn
            from rest, with `dispersion` times the usual momentum, taken unless the energy error is large. None: never.
        turn: the step size of that quarter turn; None: pi / 2 over the steps, which then are an int.
    """
    size, dtype = state.scales.shape[0], state.scales.dtype
    some, others = ((2 + randoms[0]) * size, randoms[1] * size) if update is not None else (0, 0)
    normals, uniforms = normals_and_uniforms_lanes(keys, model.dim + some, 2 + others, dtype)
    momentum, normals = normals[: model.dim], normals[model.dim :]
    jittered = 1.0 + jitter * (2.0 * uniforms[0] - 1.0)
    step_size = parameters.step_size * jittered
    if launching is not None:
        turn = float(np.pi / 2 / steps) if turn is None else turn
        step_size = jnp.where(launching, jnp.full_like(step_size, turn), step_size)
        longer = jnp.where(launching, dispersion, 1.0).astype(dtype)
        momentum = momentum * jnp.broadcast_to(longer, step_size.shape)[None]
    end = propose_lanes(model, observed, parameters, state, step_size, momentum, steps)
    acceptance = jnp.exp(jnp.minimum(end.log_ratio, 0.0))
    accepted = uniforms[1] < acceptance
    if launching is not None:
        accepted = jnp.where(launching, end.log_ratio > LAUNCH_ERROR, accepted)
    accepted = accepted & _stays_inside(model, state.position, end.position)
    position = model.canonical_lanes(jnp.where(accepted[None], end.position, state.position))
    scales = state.scales
    if update is not None:
        noise = noise_draw_lanes(model, observed, position, scales, normals[: 2 * size])
        scales = update(noise, normals[2 * size :], uniforms[2:])
    return State(position, scales), Info(acceptance, accepted, end.log_ratio < DIVERGENCE, end.log_ratio)


def step(
    model: Any,
    observed: Any,
    parameters: Parameters,
    key: Key[Array, ""],
    state: State,
    launching: Any = None,
    **settings: Any,
) -> tuple[State, Info]:
    """`step_lanes` for one chain: a model, statistics, parameters, a key and a state without the lane axis, and its
    settings.

    Use it under `jax.jit`, `lax.scan` and `jax.vmap`, which runs the lane code once for all chains. Settings must be
    hashable; give the same function as `update` every time, or each call is compiled anew.
    """
    return _single(tuple(sorted(settings.items())))(model, observed, parameters, key, state, launching)


@lru_cache
def _single(settings: tuple[tuple[str, Any], ...]) -> Any:
    def lanes(model, observed, parameters, keys, state, launching):
        return step_lanes(model, observed, parameters, keys, state, launching=launching, **dict(settings))

    return batch_last(lanes)
