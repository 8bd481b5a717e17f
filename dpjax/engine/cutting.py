"""Problems cut into the block-major arrays of each compiled call, and the chains' keys."""

from __future__ import annotations

from dataclasses import dataclass
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
    """Cuts the problems into the block-major arrays of each call."""

    problems: Problems
    plan: Layout
    seed: int
    first_problem: int | np.ndarray
    truth: np.ndarray | None
    state: Any
    work: Any

    def arguments(self, group: int) -> tuple[Inputs, Bins]:
        plan, problems = self.plan, self.problems
        size, count = plan.problems_per_call, len(problems)
        slots = np.arange(group * size, (group + 1) * size)
        index = np.where(slots < count, slots, 0)  # padding repeats problem 0 under its own keys
        numbers = (
            slots + self.first_problem
            if np.ndim(self.first_problem) == 0
            else np.where(slots < count, np.asarray(self.first_problem)[index], slots + 2**31)
        )
        blocks = plan.blocks * plan.devices

        def blocked(x, dtype):
            x = np.asarray(x)
            x = x if np.issubdtype(x.dtype, np.integer) else x.astype(dtype)  # codes stay what they are
            x = x.reshape(blocks, plan.problems_per_block, *x.shape[1:])
            return np.ascontiguousarray(np.moveaxis(x, 1, -1))

        here = problems.take(index)
        each = lambda tree, dtype: jax.tree.map(lambda x: blocked(x, dtype), tree)
        dtypes = (self.state, self.state, self.work, self.state, self.work, self.work)
        observed = Observed(*map(each, here.observed(), dtypes))
        model = each(here.model, self.work)
        width = len(problems.model_template().parameter_names)
        truth = np.zeros((len(index), width)) if self.truth is None else np.asarray(self.truth)[index]
        words = np.asarray(chain_keys(self.seed, numbers.astype(np.uint32), plan.chains))  # [T', C, 2]
        words = words.reshape(blocks, plan.problems_per_block, plan.chains, 2)
        words = np.ascontiguousarray(words.transpose(0, 3, 2, 1)).reshape(blocks, 2, -1)
        empty = np.zeros((blocks, width, plan.problems_per_block), self.work)
        inputs = Inputs(model, observed, blocked(truth, self.work), words)
        return place((inputs, Bins(empty, empty.copy())), plan.devices)


@partial(jax.jit, static_argnums=2)
def chain_keys(seed, numbers, chains: int):
    """Key words `[T, C, 2]` of chain c of problem i: fold_in(fold_in(key(seed), i), c)."""
    base = random.key(seed, impl=KEY_KIND)
    number = jnp.arange(chains, dtype=jnp.uint32)
    one = lambda i, c: random.key_data(random.fold_in(random.fold_in(base, i), c))
    return jax.vmap(lambda i: jax.vmap(lambda c: one(i, c))(number))(numbers)
