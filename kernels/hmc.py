"""Fixed-length Hamiltonian trajectory in whitened momentum, many chains at once.

The mass matrix is M = R' R with R = L' the transposed Cholesky factor of the metric; velocities are L^{-T} u with u
standard normal, so the only linear algebra per leapfrog step is two triangular products. No dynamic trees: every
lane does the same work (docs/formulas.md#fixed-work).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from .symmetric import matvec_lanes, matvec_transposed_lanes

LogDensityAndGrad = Callable[[Float[Array, "P B"]], tuple[Float[Array, " B"], Float[Array, "P B"]]]


class Trajectory(NamedTuple):
    """End of a trajectory: position `[P, B]`, log densities at both ends `[B]`, minus the change of energy `[B]`."""

    position: Float[Array, "P B"]
    log_density_start: Float[Array, " B"]
    log_density_end: Float[Array, " B"]
    log_ratio: Float[Array, " B"]


def trajectory_lanes(
    log_density_and_grad: LogDensityAndGrad,
    position: Float[Array, "P B"],
    momentum: Float[Array, "P B"],
    velocity: Callable[[Float[Array, "P B"]], Float[Array, "P B"]],
    force: Callable[[Float[Array, "P B"]], Float[Array, "P B"]],
    step_size: Float[Array, " B"],
    steps: Any,
) -> Trajectory:
    """Run `steps` leapfrog steps from (position, whitened momentum), with a metric M that is given by products.

    Args:
        log_density_and_grad: lane function; evaluated `steps + 1` times.
        position: `[P, B]`, may have more precision than the algebra.
        momentum: whitened momentum u `[P, B]`, N(0, I) for a valid HMC move (zero: a gradient step).
        velocity, force: `T u` and `T' g` for any T with `T T' = M^{-1}`.
        step_size: per lane `[B]`.
        steps: number of leapfrog steps, an int or a traced int32 scalar.

    Returns:
        `Trajectory`; `log_ratio` is the log Metropolis ratio, minus infinity where it is not finite.
    """
    zero = jnp.zeros_like(step_size)

    def body(s, last, carry):
        x, u, end, start = carry
        # one copy of the gradient in the compiled loop: step 0 moves nothing and only opens the half kick
        drift = jnp.where(s == 0, zero, step_size)[None] * velocity(u)
        x = x + drift.astype(x.dtype)
        end, gradient = log_density_and_grad(x)
        kick = jnp.where((s == 0) | last, 0.5 * step_size, step_size)[None]
        u = u + kick * force(gradient)
        return x, u, end, jnp.where(s == 0, end, start)

    begun = (position, momentum, zero, zero)
    if isinstance(steps, int):
        x, u, end, start = lax.fori_loop(0, steps + 1, lambda s, c: body(s, s == steps, c), begun)
    else:  # counted down: compared with a number of its own, the last step would round differently from a static one

        def counted(c):
            return c[0] + 1, c[1] - 1, body(c[0], c[1] == 0, c[2])

        x, u, end, start = lax.while_loop(lambda c: c[1] >= 0, counted, (np.int32(0), steps, begun))[2]
    log_ratio = end - start - 0.5 * ((u * u).sum(0) - (momentum * momentum).sum(0))
    finite = jnp.isfinite(log_ratio)
    return Trajectory(x, start, end, jnp.where(finite, log_ratio, jnp.full_like(log_ratio, -jnp.inf)))


def leapfrog_lanes(
    log_density_and_grad: LogDensityAndGrad,
    position: Float[Array, "P B"],
    momentum: Float[Array, "P B"],
    inverse_factor: Float[Array, "P P B"],
    step_size: Float[Array, " B"],
    steps: Any,
) -> Trajectory:
    """`trajectory_lanes` with the metric as a matrix.

    Args:
        inverse_factor: `L^{-1}` with metric `L L'` `[P, P, B]`; the others as there.
    """
    velocity = lambda u: matvec_transposed_lanes(inverse_factor, u)
    force = lambda gradient: matvec_lanes(inverse_factor, gradient)
    return trajectory_lanes(log_density_and_grad, position, momentum, velocity, force, step_size, steps)


def leapfrog(
    log_density_and_grad: Callable[[Float[Array, " P"]], tuple[Float[Array, ""], Float[Array, " P"]]],
    position: Float[Array, " P"],
    momentum: Float[Array, " P"],
    inverse_factor: Float[Array, "P P"],
    step_size: Float[Array, ""],
    steps: int,
) -> Trajectory:
    """`leapfrog_lanes` for one chain: arrays without the lane axis, and a density of one position."""

    def lanes(x: Float[Array, "P 1"]) -> tuple[Float[Array, " 1"], Float[Array, "P 1"]]:
        value, gradient = log_density_and_grad(x[..., 0])
        return value[None], gradient[..., None]

    end = leapfrog_lanes(
        lanes, position[..., None], momentum[..., None], inverse_factor[..., None], step_size[..., None], steps
    )
    return Trajectory(*(x[..., 0] for x in end))
