"""Compiled programs of the inference with every record latent."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.flatten_util import ravel_pytree

from dpjax.engine.programs import KEY_KIND
from dpjax.models.regression.linear import LinearRegression

#: Most parameters (not records) that share a dense mass matrix.
MOST_DENSE = 200
#: Steps per compiled call, about: between calls the host reports progress.
SEGMENT = 100
#: Random starting points that a chain tries.
STARTS = 20
#: What runs once per problem is compiled with little effort.
_LIGHTLY: Any = {"xla_backend_optimization_level": 0}


@dataclass(frozen=True)
class Plan:
    """Everything that a compiled program depends on; `keep` draws are kept per call, one every `thin` steps."""

    p: int
    n: int
    mechanism: str
    covariates: Any
    bounded: bool
    chains: int
    thin: int
    keep: int
    warmup: int
    target: float
    max_tree_depth: int
    dtype: Any


class Programs:
    """Two compiled functions over all chains of one problem: `start` (keys, inputs) and `segment` (state, inputs)."""

    def __init__(self, plan: Plan):
        from numpyro.infer.hmc import hmc
        from numpyro.infer.util import constrain_fn, potential_energy

        from dpjax.inference.individual_model import RECORD, REPORT, records_model, unconstrained

        began = time.perf_counter()
        model = records_model(plan.n, plan.mechanism, plan.covariates, plan.bounded)
        sites = jax.eval_shape(lambda *inputs: unconstrained(model, inputs), *_shapes(plan))
        # two flat vectors, since NUTS compiles and runs one copy of its bookkeeping per array
        groups = {
            name: {k: x for k, x in sites.items() if k.startswith(RECORD) == (name == "records")}
            for name in ("parameters", "records")
        }

        back = {
            name: ravel_pytree(jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), g))[1] for name, g in groups.items()
        }

        def unflat(z):
            return {k: x for name, unravel in back.items() for k, x in unravel(z[name]).items()}

        init_kernel, sample_kernel = hmc(
            potential_fn_gen=lambda *inputs: lambda z: potential_energy(model, inputs, {}, unflat(z)), algo="NUTS"
        )
        lengths = {name: sum(x.size for x in g.values()) for name, g in groups.items()}
        dense = [("parameters",)] if lengths["parameters"] <= MOST_DENSE else False

        def first(key, inputs):
            """A chain's state at a random point: records standard normal, parameters even on (-2, 2), unconstrained."""
            k_parameters, k_records, k_kernel = random.split(key, 3)
            begin = {
                "parameters": random.uniform(k_parameters, (lengths["parameters"],), plan.dtype, -2.0, 2.0),
                "records": random.normal(k_records, (lengths["records"],), plan.dtype),
            }
            return init_kernel(
                begin,
                plan.warmup,
                target_accept_prob=plan.target,
                max_tree_depth=plan.max_tree_depth,
                dense_mass=dense,
                model_args=inputs,
                rng_key=k_kernel,
            )

        def one(state, inputs):
            """`keep * thin` steps of a chain: reported parameters `[keep, K]`, sums of divergences and leapfrogs."""

            def step(state, _):
                state = sample_kernel(state, inputs, {})
                return state, (state.diverging.astype(jnp.int32), state.num_steps)

            def kept(state, _):
                state, counts = lax.scan(step, state, None, length=plan.thin)
                report = constrain_fn(model, inputs, {}, unflat(state.z), return_deterministic=True)[REPORT]
                return state, (report, *(c.sum() for c in counts))

            state, (report, *counts) = lax.scan(kept, state, None, length=plan.keep)
            return state, (report, *(c.sum() for c in counts))

        inputs = _shapes(plan)
        keys = jax.eval_shape(lambda: random.split(random.key(0, impl=KEY_KIND), plan.chains))
        start = jax.jit(lambda keys, inputs: jax.vmap(first, (0, None))(keys, inputs)).lower(keys, inputs)
        segment = jax.jit(lambda state, inputs: jax.vmap(one, (0, None))(state, inputs), donate_argnums=0)
        self.segment = segment.lower(start.out_info, inputs).compile()
        self.start = start.compile(_LIGHTLY)
        self.seconds = time.perf_counter() - began


def _shapes(plan: Plan) -> tuple[Any, ...]:
    """Shapes of the inputs: prior, z, scale, box."""
    statistic = jax.ShapeDtypeStruct((LinearRegression.s0(plan.p).statistic_dim,), plan.dtype)
    prior = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, plan.dtype), LinearRegression.s0(plan.p))
    box = jax.ShapeDtypeStruct((plan.p + 1, 2), plan.dtype)
    return prior, statistic, statistic, box


compiled_programs = lru_cache(maxsize=16)(Programs)


@contextlib.contextmanager
def jax_defaults():
    """JAX's default promotion of types and ranks, on which NumPyro's arithmetic relies."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def find_start(start: Callable[[Any, Any], Any], keys: Any, inputs: Any) -> tuple[Any, np.ndarray]:
    """All chains' states, and which have no finite density at any of `STARTS` random points."""
    for attempt in range(1, STARTS + 1):
        state = start(keys, inputs)
        lost = ~np.isfinite(np.asarray(state.potential_energy))
        if not lost.any() or attempt == STARTS:
            break
        again = jax.vmap(random.fold_in, (0, None))(keys, attempt)
        keys = jnp.where(lost, again, keys)
    return state, lost
