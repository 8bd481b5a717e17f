"""Problems cut into the block-major arrays of each compiled call, and the chains' keys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from dpjax.engine.layout import Layout
from dpjax.engine.model import Observed
from dpjax.engine.problems import Problems
from dpjax.engine.programs import KEY_KIND, Inputs, place
from dpjax.engine.reducers import Bins


@dataclass
class Groups:
    """Cuts the problems `only` of all of them into the block-major arrays of each call, each `replicates` times: the
    chains of replicate r are the problem's chains number r * C to (r + 1) * C - 1."""

    problems: Problems
    only: np.ndarray
    replicates: int
    plan: Layout
    seed: int
    first_problem: int | np.ndarray
    truth: np.ndarray | None
    state: Any
    work: Any

    def arguments(self, group: int) -> tuple[Inputs, Bins]:
        plan, problems = self.plan, self.problems
        size, per_block = plan.problems_per_call, plan.problems_per_block
        _, used, here = plan.filled(group, len(self.only) * self.replicates)
        slots = (used[:, None] * per_block + np.arange(per_block)).reshape(-1)[:here]
        entry, padding = np.zeros(size, int), np.ones(size, bool)
        entry[slots], padding[slots] = group * size + np.arange(here), False
        index = self.only[entry // self.replicates]  # padding repeats the first problem under its own keys
        first_chain = entry % self.replicates * plan.chains
        numbers = index + self.first_problem if np.ndim(self.first_problem) == 0 else self.first_problem[index]  # type: ignore[index]
        numbers = np.where(padding, np.arange(size) + 2**31, numbers)
        blocks = plan.blocks * plan.devices

        def blocked(x, dtype):
            x = np.asarray(x)
            x = x if np.issubdtype(x.dtype, np.integer) else x.astype(dtype)  # codes stay what they are
            x = x.reshape(blocks, plan.problems_per_block, *x.shape[1:])
            return np.ascontiguousarray(np.moveaxis(x, 1, -1))

        some = _turned(problems.take(index), first_chain % 2 == 1)
        each = lambda tree, dtype: jax.tree.map(lambda x: blocked(x, dtype), tree)
        dtypes = (self.state, self.state, self.work, self.state, self.work, self.work)
        observed = Observed(*map(each, some.observed(), dtypes))
        model = each(some.model, self.work)
        width = len(problems.model_template().parameter_names)
        truth = np.zeros((len(index), width)) if self.truth is None else np.asarray(self.truth)[index]
        some_keys = chain_keys(self.seed, numbers.astype(np.uint32), plan.chains, first_chain.astype(np.uint32))
        words = np.asarray(some_keys)  # [T', C, 2]
        words = words.reshape(blocks, plan.problems_per_block, plan.chains, 2)
        words = np.ascontiguousarray(words.transpose(0, 3, 2, 1)).reshape(blocks, 2, -1)
        empty = np.zeros((blocks, width, plan.problems_per_block), self.work)
        inputs = Inputs(model, observed, blocked(truth, self.work), words)
        return place((inputs, Bins(empty, empty.copy())), plan.devices)


def _turned(problems: Problems, odd: np.ndarray) -> Problems:
    """The problems with the two starts of their chains changed over where the first chain is odd `[T]`."""
    starts = problems.model.starts
    if starts is None or not odd.any():
        return problems
    starts = np.where(odd[:, None, None], np.asarray(starts)[:, ::-1], starts)
    return replace(problems, model=replace(problems.model, starts=starts))  # type: ignore[type-var]


@partial(jax.jit, static_argnums=2)
def chain_keys(seed, numbers, chains: int, first=0):
    """Key words `[T, C, 2]` of chains number c = first, first + 1, ... of problem i: fold_in(fold_in(key(seed), i), c),
    with i in `numbers` and `first` `[T]`, or one for all."""
    base = random.key(seed, impl=KEY_KIND)
    number = jnp.arange(chains, dtype=jnp.uint32)
    one = lambda i, c: random.key_data(random.fold_in(random.fold_in(base, i), c))
    first = jnp.broadcast_to(jnp.asarray(first, jnp.uint32), numbers.shape)
    return jax.vmap(lambda i, start: jax.vmap(lambda c: one(i, start + c))(number))(numbers, first)
