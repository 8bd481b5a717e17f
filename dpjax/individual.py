"""Noise-aware inference with every record a latent variable: the reference for regression (S0 section 3.3, MCMC-Ind).

Nothing is approximated: the records' law is the model's own, their sums are exact and the noise is the mechanism's.
NUTS moves n (p + 1) record coordinates beside the parameters, so the cost of a step grows with n, and mixing degrades
when the noise is small beside the sums' own spread. It is there to check the methods whose cost does not depend on n,
and for laws of the covariates that those do not have (SPEC G3): any density that NumPyro can write.

`run_individual` loops over problems on the host. What is compiled depends on the number of records, the sizes and
the covariates' law alone: released sums, noise scales and priors are arguments.
"""

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

from ._groups import NON_FINITE, NOT_MOVING, OK, Progress
from ._programs import KEY_KIND
from .engine import Problems, Run
from .errors import InputError
from .models.linear_regression import LinearRegression

#: Most latent numbers n (p + 1): beyond, NUTS takes hours.
MOST_LATENT = 20_000
#: Steps per compiled call, about: between calls the host reports progress.
SEGMENT = 100
#: Random starting points that a chain tries.
STARTS = 20
#: Most parameters (not records) that share a dense mass matrix.
MOST_DENSE = 200
#: What runs once per problem is compiled with little effort.
_LIGHTLY: Any = {"xla_backend_optimization_level": 0}


@dataclass(frozen=True)
class _Plan:
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


class _Programs:
    """Two compiled functions over all chains of one problem: `start` (keys, inputs) and `segment` (state, inputs)."""

    def __init__(self, plan: _Plan):
        from numpyro.infer.hmc import hmc
        from numpyro.infer.util import constrain_fn, potential_energy

        from ._individual_model import RECORD, REPORT, records_model, unconstrained

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


def _shapes(plan: _Plan) -> tuple[Any, ...]:
    """Shapes of the inputs: prior, z, scale, box."""
    statistic = jax.ShapeDtypeStruct((LinearRegression.s0(plan.p).statistic_dim,), plan.dtype)
    prior = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, plan.dtype), LinearRegression.s0(plan.p))
    box = jax.ShapeDtypeStruct((plan.p + 1, 2), plan.dtype)
    return prior, statistic, statistic, box


_programs = lru_cache(maxsize=16)(_Programs)


@contextlib.contextmanager
def _standard():
    """JAX's default promotion of types and ranks, on which NumPyro's arithmetic relies."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def _whole(name: str, value: Any, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name} must be a whole number, at least {least}; got {value!r}")
    return int(value)


def _started(start: Callable[[Any, Any], Any], keys: Any, inputs: Any) -> tuple[Any, np.ndarray]:
    """All chains' states, and which have no finite density at any of `STARTS` random points."""
    for attempt in range(1, STARTS + 1):
        state = start(keys, inputs)
        lost = ~np.isfinite(np.asarray(state.potential_energy))
        if not lost.any() or attempt == STARTS:
            break
        again = jax.vmap(random.fold_in, (0, None))(keys, attempt)
        keys = jnp.where(lost, again, keys)
    return state, lost


def check_problems(problems: Problems) -> int:
    """Number of features p of problems that `run_individual` can take.

    Raises:
        InputError: another model; a number of records that is not whole; too many latent numbers.
    """
    model = problems.model_template()
    if not isinstance(model, LinearRegression):
        raise InputError(
            "method 'individual' is for linear-regression, without law in the prior: another law of the covariates "
            f"goes into its setting covariates (from Python); got {model.kind}"
        )
    if (problems.n != np.round(problems.n)).any():
        raise InputError(f"method 'individual' needs whole numbers of records; got n = {problems.n.max():g}")
    latent = problems.n.max(initial=0.0) * (model.p + 1)
    if latent > MOST_LATENT:
        raise InputError(
            f"method 'individual' samples every record: at most {MOST_LATENT:,} latent numbers n (p + 1); got "
            f"{latent:,.0f} (n = {problems.n.max():,.0f}, p = {model.p}): use collapsed"
        )
    return model.p


def run_individual(
    problems: Problems,
    *,
    seed: int,
    chains: int = 4,
    draws: int = 1000,
    thin: int = 1,
    warmup: int = 1000,
    covariates: Any = None,
    bounded: bool = False,
    target: float = 0.8,
    max_tree_depth: int = 10,
    first_problem: int | np.ndarray = 0,
    progress: Callable[[Progress], None] | None = None,
    compile_only: bool = False,
    **ignored: Any,
) -> Run:
    """Sample parameters and all records of T regression problems by NUTS, one problem after the other.

    Args:
        problems: T problems of a `LinearRegression`, Laplace or Gaussian noise, at most `MOST_LATENT` latent numbers.
        seed: problem i, chain c is keyed by fold_in(fold_in(seed, first_problem + i), c).
        chains: chains per problem, each started at a random point; all run as one array program.
        draws, thin: draws kept per chain, one every `thin` steps.
        warmup: steps of adaptation, rounded up to whole calls (see `settings`).
        covariates: law of a record's features, in scaled units, in the place of the prior's hierarchical normal: a
            NumPyro distribution of event shape (p,), or () if p = 1; a list of p distributions; or a callable
            that samples hyperparameters by `numpyro.sample` and returns one of these. Supports may be bounded.
            theta and sigma2 alone are then reported. A callable is compiled again unless it is the same object.
        bounded: the sums are those of records clipped to `problems.box`, as a release's are; by
            default those of unclipped records, as in S0 and as the other methods take them.
        target, max_tree_depth: of NUTS.
        first_problem: number of the first problem, or of each.
        progress: called on the host between segments with chain-steps done.
        compile_only: compile and run nothing.
        ignored: further options of other methods.

    Returns:
        `Run` with draws `[T, C, S, K]` in scaled units, K the names of `regression_parameters(p)` (with
        `covariates`: theta and sigma2).

    Raises:
        InputError: what `check_problems` and `check_covariates` refuse, sizes out of range, or streaming.
    """
    from ._individual_model import check_covariates

    p = check_problems(problems)
    count = len(problems)
    sizes = {"chains": chains, "draws": draws, "thin": thin, "max_tree_depth": max_tree_depth}
    chains, draws, thin, depth = (_whole(name, value) for name, value in sizes.items())
    warmup = _whole("warmup", warmup, 10)
    if count == 0:
        raise InputError("there must be at least one problem")
    if not isinstance(target, float) or not 0.0 < target < 1.0:
        raise InputError(f"target must be an acceptance probability between 0 and 1; got {target!r}")
    if ignored.get("stream"):
        raise InputError("method 'individual' keeps its draws: stream is for the compiled samplers")
    with _standard():
        covariates = check_covariates(covariates, p)
    names = problems.model_template().parameter_names
    names = names if covariates is None else names[: p + 2]
    keep = max(1, min(SEGMENT // thin, draws))
    warm_calls, calls = -(-warmup // (keep * thin)), -(-draws // keep)
    dtype = np.dtype(np.float64 if jax.config.jax_enable_x64 else np.float32)  # type: ignore[attr-defined]
    static: dict[str, Any] = {"chains": chains, "thin": thin, "keep": keep, "warmup": warm_calls * keep * thin}
    static |= {"target": target, "max_tree_depth": depth}
    numbers = np.broadcast_to(
        np.asarray(first_problem) + (np.arange(count) if np.ndim(first_problem) == 0 else 0), count
    )
    if bounded and problems.box is None:
        raise InputError(
            "method 'individual' with bounded needs bounds to which the records were clipped, one box for all"
        )
    box = np.broadcast_to((-1.0, 1.0), (p + 1, 2)) if problems.box is None else problems.box  # not looked at
    root = random.key(seed, impl=KEY_KIND)
    draws_of = np.zeros((count, chains, 0 if compile_only else draws, len(names)), dtype)
    accept, divergences = np.zeros((count, chains)), np.zeros((count, chains), np.int32)
    codes = np.full((count, chains), OK, np.int32)
    leapfrogs, seconds, compile_seconds = np.zeros((count, chains)), 0.0, 0.0
    per_problem = (warm_calls + calls) * keep * thin * chains
    models = problems.batched_model()
    with _standard():
        for t in range(count):
            plan = _Plan(p, int(problems.n[t]), problems.mechanism, covariates, bool(bounded), dtype=dtype, **static)
            before = _programs.cache_info().misses
            programs = _programs(plan)
            compile_seconds += programs.seconds * (_programs.cache_info().misses - before)
            if compile_only:
                continue
            prior = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[t], dtype), models)  # noqa: B023
            inputs = (prior, *(jnp.asarray(x, dtype) for x in (problems.z[t], problems.scale[t], box)))
            key = random.fold_in(root, int(numbers[t]))
            keys = jax.vmap(random.fold_in, (None, 0))(key, jnp.arange(chains))
            began = time.perf_counter()
            state, lost = _started(programs.start, keys, inputs)
            codes[t, lost] = NON_FINITE
            for call in range(warm_calls + calls):
                state, (report, diverging, steps) = programs.segment(state, inputs)
                if call >= warm_calls:
                    done = (call - warm_calls) * keep
                    draws_of[t, :, done : done + keep] = np.asarray(report)[:, : draws - done]
                    divergences[t] += np.asarray(diverging)
                    leapfrogs[t] += np.asarray(steps)
                if progress is not None:
                    jax.block_until_ready(report)
                    so_far = t * per_problem + (call + 1) * keep * thin * chains
                    progress(Progress(so_far, count * per_problem))
            accept[t] = np.asarray(state.mean_accept_prob)
            seconds += time.perf_counter() - began
    if not compile_only:
        codes[(codes == OK) & (draws_of == draws_of[:, :, :1]).all((2, 3)) & (draws > 1)] = NOT_MOVING
        codes[~np.isfinite(draws_of).all((2, 3))] = NON_FINITE
    settings = {
        **{k: v for k, v in static.items() if k != "chains"},
        "seed": seed,
        "bounded": bool(bounded),
        "covariates": "hierarchical normal" if covariates is None else "given",
        "leapfrogs_per_step": float(leapfrogs.mean() / (calls * keep * thin)),
        "float64_positions": dtype == np.float64,
    }
    return Run(
        method="individual", names=names, draws=draws_of, codes=codes, accept=accept, divergences=divergences,
        seconds=seconds, compile_seconds=compile_seconds, chains=chains, draws_per_chain=draws, settings=settings,
    )  # fmt: skip
