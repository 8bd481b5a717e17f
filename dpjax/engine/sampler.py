"""What a sampler offers to the engine."""

from __future__ import annotations

import copy
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, Bool, Float, Key

from dpjax.engine.model import Model, Observed

#: Steps whose keys come from one split, and after which a sampler may adapt. Part of the definition of a chain's random
#: numbers: do not tune.
KEY_BLOCK = 20


def odd_chains(observed: Observed, chains: int) -> Bool[Array, "1 B"]:
    """Which lanes are of odd chains (chains are outermost): they start elsewhere than the even ones."""
    lanes = observed.z.shape[-1]
    return jnp.asarray((np.arange(lanes) // (lanes // chains)) % 2 == 1)[None]


def first_keys(keys: Key[Array, " B"]) -> Key[Array, " B"]:
    """Keys of what is drawn before a chain's first iteration, from the keys of the chains."""
    return jax.vmap(lambda k: random.fold_in(k, np.uint32(0xFFFFFFFF)))(keys)


def step_keys(keys: Key[Array, " B"], block: Array) -> Key[Array, "S B"]:
    """Keys of the `KEY_BLOCK` iterations of block number `block`, from the keys of the chains."""
    block_keys = jax.vmap(lambda k: random.fold_in(k, block))(keys)
    return jax.vmap(lambda k: random.split(k, KEY_BLOCK), out_axes=1)(block_keys)


class Draw(NamedTuple):
    """One iteration's output per lane: reported parameters `[K, B]`, acceptance rate and divergence `[B]`."""

    parameters: Float[Array, "K B"]
    acceptance: Float[Array, " B"]
    divergent: Bool[Array, " B"]


class Numbered:
    """A sampler some of whose settings its programs take as numbers: other values then need no other program.

    Lane code reads these settings from `given`, where that is there.
    """

    given: ClassVar[Any] = None

    def numbers(self, model: Model) -> Any:
        """The settings that programs take as numbers, a pytree of ints and floats; `model`: of one problem."""
        raise NotImplementedError

    def general(self) -> Any:
        """The sampler without them: the same for all their values."""
        raise NotImplementedError

    def with_numbers(self, numbers: Any) -> Any:
        """The sampler as a program sees it: `numbers`, traced, in the place of its own."""
        other = copy.copy(self)
        object.__setattr__(other, "given", numbers)
        return other


@runtime_checkable
class LaneSampler(Protocol):
    """A sampler as the engine runs it: lane code over `chains x problems` lanes, chains outermost.

    A problem's chains sit at lanes `c * problems + t`, so that pooling over chains is a reshape. Optional attributes:
    `float64`, everything in 64 bits; `widest_block`, most lanes of a block where a lane needs much memory;
    `block_lanes(model, chains)`, about how many lanes a block should have on CPU; settings as numbers (`Numbered`); and
    `adapt_lanes(model, observed, carry, positions, done, chains) -> carry`, called after every `KEY_BLOCK` iterations
    with what `position_lanes(carry)` was after each of them, stacked, and the number of iterations done (traced).
    """

    @property
    def name(self) -> str:
        """Name under which results are reported."""
        ...

    @property
    def warmup_iterations(self) -> int:
        """Iterations before the first draw that counts."""
        ...

    def init_lanes(self, model: Model, observed: Observed, keys: Key[Array, " B"], chains: int) -> Any:
        """State of all lanes before the first iteration."""
        ...

    def iterate_lanes(
        self, model: Model, observed: Observed, carry: Any, keys: Key[Array, " B"], index: Array, chains: int
    ) -> tuple[Any, Draw]:
        """Iteration number `index` (traced scalar, warm-up included)."""
        ...

    def finite_lanes(self, carry: Any) -> Bool[Array, " B"]:
        """Whether each lane's state is still usable."""
        ...
