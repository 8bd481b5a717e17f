"""The engine's lane samplers as BlackJAX algorithms of one chain: `as_blackjax`, and `warm_up` for what they learn.

A step is the engine's own `iterate_lanes` with one lane, so that the same keys give the same draws but for rounding.
Not for `exact` and `ops`, whose posteriors are made into tables on the host, and not for `individual`, which is
BlackJAX's NUTS.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax, random

from dpjax.engine.model import Model, Observed
from dpjax.engine.sampler import KEY_BLOCK, LaneSampler, first_keys, step_keys
from dpjax.errors import InputError
from dpjax.kernels.batching import batch_last


class ChainState(NamedTuple):
    """One chain: the sampler's own state, and the number of iterations done, warm-up included `[]`."""

    carry: Any
    done: Array


class ChainInfo(NamedTuple):
    """Reported parameters `[K]`, acceptance rate and whether the step diverged `[]`."""

    parameters: Array
    acceptance_rate: Array
    is_divergent: Array


def as_blackjax(sampler: LaneSampler, model: Model, observed: Observed, warmed: ChainState | None = None) -> Any:
    """A lane sampler on one problem as a `blackjax.base.SamplingAlgorithm`.

    Args:
        sampler: its settings, such as `dpjax.samplers.gibbs.Gibbs()`.
        model: prior and moments of one problem.
        observed: its released statistics (no lane axis).
        warmed: a state of `warm_up`; needed by samplers that learn step size and metric.

    Returns:
        `init(position, rng_key) -> ChainState` and `step(rng_key, state) -> (ChainState, ChainInfo)`, for one chain;
        position: unconstrained parameters, or None for where the sampler itself starts (or `warmed` ended). Where
        chains share nothing, `jax.vmap` of `step` runs the lane code.

    Raises:
        ImportError: blackjax is not installed.
        InputError: `observed` does not fit the model, or `warmed` is missing.
    """
    try:
        from blackjax.base import SamplingAlgorithm
    except ImportError as error:
        raise ImportError("as_blackjax needs the package blackjax (pip install blackjax)") from error
    check_problem(model, observed)
    if warmed is None and hasattr(sampler, "adapt_lanes"):
        raise InputError(f"{sampler.name} learns in warm-up: give a state of dpjax.samplers.warm_up as warmed")

    def lanes(model, observed, keys, state: ChainState):
        carry, draw = sampler.iterate_lanes(model, observed, state.carry, keys, state.done[0], 1)
        return ChainState(carry, state.done + 1), ChainInfo(*draw)

    def one_lane(key, state: ChainState):
        model_lane, seen, done = jax.tree.map(_lane, (model, observed, state.done))
        new, info = lanes(model_lane, seen, key[None], ChainState(state.carry, done))
        return ChainState(new.carry, new.done[0]), jax.tree.map(lambda x: x[..., 0], info)

    over_lanes = batch_last(lanes)

    def init(position=None, rng_key=None) -> ChainState:
        state = warmed
        if state is None:
            key = random.key(0) if rng_key is None else rng_key
            carry = _first(sampler, model, observed, key)
            state = ChainState(_single(carry), jnp.asarray(sampler.warmup_iterations, jnp.int32))
        return state if position is None else state._replace(carry=_placed(state.carry, position))

    def step(rng_key, state: ChainState) -> tuple[ChainState, ChainInfo]:
        if _shares(sampler, model, observed):
            return one_lane(rng_key, state)
        return over_lanes(model, observed, rng_key, state)

    return SamplingAlgorithm(init, step)


def warm_up(sampler: LaneSampler, model: Model, observed: Observed, key: Array, chains: int = 1) -> ChainState:
    """Start and warm-up of one problem's chains, as the engine does it with the problem's key.

    Args:
        sampler, model, observed: as of `as_blackjax`.
        key: typed key of the problem; chain c has `fold_in(key, c)`.
        chains: what is learned is pooled over them; 1 where chains share their state (HMC over parties).

    Returns:
        States with a leading axis over chains; without it for one chain.

    Raises:
        InputError: chains < 1 or too many, or `observed` does not fit the model.
    """
    if isinstance(chains, bool) or not isinstance(chains, int | np.integer) or chains < 1:
        raise InputError(f"chains must be a whole number, at least 1; got {chains!r}")
    check_problem(model, observed)
    carry = _warm_up(sampler, int(chains), model, observed, key)
    done = jnp.asarray(-(-sampler.warmup_iterations // KEY_BLOCK) * KEY_BLOCK, jnp.int32)
    if chains == 1:
        return ChainState(_single(carry), done)
    if any(leaf.shape[-1] != chains for leaf in jax.tree.leaves(carry)):
        raise InputError(f"chains of {sampler.name} share their state: chains must be 1; got {chains}")
    carry = jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), carry)
    return ChainState(carry, jnp.broadcast_to(done, (chains,)))


@partial(jax.jit, static_argnums=(0, 1))
def _warm_up(sampler: Any, chains: int, model, observed, key):
    keys = jax.vmap(lambda c: random.fold_in(key, c))(jnp.arange(chains, dtype=jnp.uint32))
    spread = lambda x: jnp.broadcast_to(_lane(x), (*jnp.shape(x), chains))
    model, observed = jax.tree.map(spread, (model, observed))
    adapt = getattr(sampler, "adapt_lanes", None)

    def block(carry, number):
        index = (number * KEY_BLOCK).astype(jnp.int32) + jnp.arange(KEY_BLOCK, dtype=jnp.int32)

        def step(carry, x):
            carry, _ = sampler.iterate_lanes(model, observed, carry, x[0], x[1], chains)
            return carry, sampler.position_lanes(carry) if adapt else ()

        carry, positions = lax.scan(step, carry, (step_keys(keys, number), index))
        return adapt(model, observed, carry, positions, index[-1] + 1, chains) if adapt else carry, None

    carry = sampler.init_lanes(model, observed, first_keys(keys), chains)
    return lax.scan(block, carry, jnp.arange(-(-sampler.warmup_iterations // KEY_BLOCK), dtype=jnp.uint32))[0]


def check_problem(model: Model, observed: Observed) -> None:
    """Refuse statistics that do not fit the model.

    Raises:
        InputError: a shape is wrong.
    """
    expected = (model.statistic_dim,)
    for name in ("z", "n_over_b", "root_n_over_b"):
        if jnp.shape(getattr(observed, name)) != expected:
            raise InputError(f"observed.{name} must have shape {expected}; got {jnp.shape(getattr(observed, name))}")


def _lane(x: Any) -> Array:
    return jnp.asarray(x)[..., None]


def _shares(sampler: LaneSampler, model: Model, observed: Observed) -> bool:
    """Whether the state has more than one entry per lane: of parties, say."""
    return _many(jax.eval_shape(partial(_first, sampler), model, observed, random.key(0)))


def _first(sampler: LaneSampler, model: Model, observed: Observed, key: Array) -> Any:
    """The state of one lane before its first iteration."""
    lane, seen = jax.tree.map(_lane, (model, observed))
    return sampler.init_lanes(lane, seen, key[None], 1)


def _many(carry: Any) -> bool:
    return any(leaf.shape[-1] != 1 for leaf in jax.tree.leaves(carry))


def _single(carry: Any) -> Any:
    """The state of one lane without its axis, where that is all that the last axes hold."""
    return carry if _many(carry) else jax.tree.map(lambda x: x[..., 0], carry)


def _placed(carry: Any, position: Any) -> Any:
    """The state with the chain at another position."""
    if hasattr(carry, "position"):
        old = carry.position
        return carry._replace(position=jnp.asarray(position, old.dtype).reshape(old.shape))
    if hasattr(carry, "state"):
        return carry._replace(state=_placed(carry.state, position))
    raise InputError("this sampler's state is more than a position: init(None) starts where the sampler does")
