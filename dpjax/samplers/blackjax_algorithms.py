"""A BlackJAX algorithm as a sampler of this package: the engine runs it, `fit` and `calibrate` take it as a method.

What the algorithm samples from is `LogDensity`, a function of one flat position x per chain:
 - Gaussian noise: x = phi, the model's unconstrained parameters `[P]`; the density is log p(phi) + log p(z | phi) with
   the exact sums integrated out by the normal law, which is what `collapsed` has;
 - Laplace noise and one released sum: the same, by the density of a normal plus a Laplace variable;
 - Laplace noise and D > 1 sums: x = (phi, log w) `[P + D]`, with w the noise's variances as a scale mixture in units of
   b^2: log p(phi) + log p(z | phi, w) + sum_j (log w_j - w_j / 2). Its marginal over log w is the posterior of phi.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from dpjax.engine.model import Model, Observed
from dpjax.engine.sampler import Draw
from dpjax.errors import InputError
from dpjax.kernels.batching import batch_last
from dpjax.kernels.special import normal_laplace_log_density
from dpjax.mechanisms import LAPLACE, Mechanism


def has_variances(noise: Mechanism, model: Model) -> bool:
    """Whether positions hold the logarithms of the noise's variances behind the parameters."""
    return noise.exponential and model.statistic_dim > 1


def log_density_lanes(noise: Mechanism, model: Model, observed: Observed, x: Float[Array, "N B"]) -> Float[Array, " B"]:
    """Log density at positions x up to a constant, as the module's docstring has it; minus infinity where it cannot
    be computed and outside of the model's set."""
    phi, log_w = x[: model.dim], x[model.dim :].astype(observed.root_n_over_b.dtype)
    if has_variances(noise, model):
        w = jnp.exp(log_w)
        value = model.log_density_and_grad_lanes(phi, w, observed)[0] + (log_w - 0.5 * w).sum(0)
    elif noise.exponential:
        residual, covariance = model.residual_lanes(phi, observed)
        likelihood = normal_laplace_log_density(residual[0], covariance[0, 0])
        value = likelihood + model.log_prior_lanes(phi).astype(likelihood.dtype)
    else:
        w = jnp.ones(observed.z.shape, log_w.dtype)
        value = model.log_density_and_grad_lanes(phi, w, observed)[0]
    usable = jnp.isfinite(value)
    if model.constrained:
        usable = usable & model.inside_lanes(phi)
    return jnp.where(usable, value, -jnp.inf).astype(x.dtype)


@dataclass(frozen=True, eq=False)
class LogDensity:
    """The log density of one chain's position `[N]`: call it. It has a gradient, and runs lane code under `jax.vmap`.

    noise: in units of its own scale.
    model: of one problem.
    observed: its released statistics.
    """

    noise: Mechanism
    model: Model
    observed: Observed

    def __call__(self, x: Float[Array, " N"]) -> Float[Array, ""]:
        return _density(self.noise)(self.model, self.observed, x)


@functools.lru_cache
def _density(noise: Mechanism):
    value_of = batch_last(lambda model, observed, x: log_density_lanes(noise, model, observed, x))

    @batch_last
    def gradient_of(model, observed, x):
        value, pull = jax.vjp(lambda y: log_density_lanes(noise, model, observed, y), x)
        return value, pull(jnp.ones_like(value))[0]

    @jax.custom_jvp
    def density(model, observed, x):
        return value_of(model, observed, x)

    @density.defjvp
    def _(primals, tangents):
        value, gradient = gradient_of(*primals)
        return value, (gradient * tangents[2]).sum()

    return density


class BlackjaxState(NamedTuple):
    """The algorithm's own state, lanes last."""

    state: Any


@dataclass(frozen=True)
class FromBlackjax:
    """A BlackJAX algorithm on lanes (static settings); made by `from_blackjax`, which explains the fields."""

    make: Callable[..., Any] | Any
    warmup: int | Any
    start: Callable[[Model, Observed], Any] | None = None
    report: Callable[[Model, Any], Array] | None = None
    problem: bool = False
    float64: bool = False
    noise: Mechanism = LAPLACE
    name: str = "blackjax"

    def __post_init__(self):
        if isinstance(self.warmup, bool) or not isinstance(self.warmup, int | np.integer) or self.warmup < 0:
            raise InputError(f"warmup must be a whole number, at least 0; got {self.warmup!r}")
        if not callable(self.make):
            raise InputError("make must be a function that returns a blackjax.base.SamplingAlgorithm")

    @property
    def warmup_iterations(self) -> int:
        return self.warmup

    # ---- one chain -----------------------------------------------------------------------------------------
    def algorithm(self, model: Model, observed: Observed) -> Any:
        """The `blackjax.base.SamplingAlgorithm` of one problem."""
        made = self.make(model, observed) if self.problem else self.make(LogDensity(self.noise, model, observed))
        if not (hasattr(made, "init") and hasattr(made, "step")):
            raise InputError(f"make must return a blackjax.base.SamplingAlgorithm; got {type(made).__name__}")
        return made

    def position(self, model: Model, observed: Observed) -> Any:
        """Where a chain starts: `start`, or the prior's centre and the noise's mean variances."""
        if self.start is not None:
            return self.start(model, observed)
        center = model.prior_center().astype(observed.z.dtype)
        if self.problem or not has_variances(self.noise, model):
            return center
        return jnp.concatenate([center, jnp.full_like(observed.z, np.log(self.noise.variance))])

    def reported(self, model: Model, state: Any, work: Any) -> Array:
        """Reported parameters `[K]` of a state: `report`, or those of the first P entries of `state.position`."""
        if self.report is not None:
            return self.report(model, state)
        lane = jax.tree.map(lambda x: x[..., None], model)
        phi = lane.canonical_lanes(state.position[: model.dim, None])
        return lane.report_lanes(phi.astype(work))[:, 0]

    # ---- lanes: one `jax.vmap` over all chains of all problems ------------------------------------------------
    def init_lanes(self, model: Model, observed: Observed, keys, chains: int) -> BlackjaxState:
        def one(model, observed, key):
            state = self.algorithm(model, observed).init(self.position(model, observed), key)
            return jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(x)), state)

        return BlackjaxState(jax.vmap(one, in_axes=(-1, -1, 0), out_axes=-1)(model, observed, keys))

    def iterate_lanes(self, model: Model, observed: Observed, carry: BlackjaxState, keys, index, chains: int):
        work = observed.root_n_over_b.dtype

        def one(model, observed, key, state):
            new, info = self.algorithm(model, observed).step(key, state)
            new = jax.tree.map(lambda x, old: jnp.asarray(x, old.dtype), new, state)
            acceptance = jnp.asarray(getattr(info, "acceptance_rate", 1.0), work)
            divergent = jnp.asarray(getattr(info, "is_divergent", False), bool)
            return new, Draw(self.reported(model, new, work).astype(work)[:, None], acceptance[None], divergent[None])

        state, draw = jax.vmap(one, in_axes=(-1, -1, 0, -1), out_axes=-1)(model, observed, keys, carry.state)
        return BlackjaxState(state), Draw(draw.parameters[:, 0], draw.acceptance[0], draw.divergent[0])

    def finite_lanes(self, carry: BlackjaxState) -> Bool[Array, " B"]:
        state = getattr(carry.state, "position", carry.state)
        numbers = [x for x in jax.tree.leaves(state) if jnp.issubdtype(x.dtype, jnp.floating)]
        checks = [jnp.isfinite(x).reshape(-1, x.shape[-1]).all(0) for x in numbers]
        return jnp.stack(checks).all(0)


def from_blackjax(
    make: Callable[..., Any] | Any,
    *,
    warmup: int | Any,
    start: Callable[[Model, Observed], Any] | None = None,
    report: Callable[[Model, Any], Array] | None = None,
    problem: bool = False,
    float64: bool = False,
    name: str = "blackjax",
) -> FromBlackjax:
    """A sampler of this package from a BlackJAX algorithm: `dpjax.fit(release, method=sampler)`,
    `dpjax.calibrate(..., method=sampler)`.

    All functions are for one chain; the engine runs them on thousands by one `jax.vmap`.

    Args:
        make: log density -> `blackjax.base.SamplingAlgorithm`, such as
            `lambda log_density: blackjax.normal_random_walk(log_density, sigma)`. The density is the one that this
            module's docstring states; what it belongs to can be read off it (`log_density.model.dim`, `.observed`).
        warmup: steps thrown away. Nothing is adapted: step sizes are the algorithm's own affair.
        start: (model, observed) -> position; None: the prior's centre, and the noise's mean variances.
        report: (model, state) -> reported parameters `[K]` as `model.report(phi)` gives them; None: those of the first
            P entries of `state.position`.
        problem: `make` is (model, observed) -> algorithm instead, with a density of its own; positions are then what it
            says, and `start` and `report` are needed unless they are phi.
        float64: everything in 64 bits.
        name: under which results are reported; not that of a method of this package.

    Raises:
        InputError: `warmup` is no number of steps, or `make` no function.
    """
    return FromBlackjax(make, warmup, start, report, problem, float64, name=name)
