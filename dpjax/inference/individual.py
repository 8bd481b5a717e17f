"""Noise-aware inference with every record a latent variable: the reference for regression (Bernstein and Sheldon 2019,
section 3.3, MCMC-Ind).

Nothing is approximated: the records' law is the model's own, their sums are exact and the noise is the mechanism's.
NUTS moves n (p + 1) record coordinates beside the parameters, so the cost of a step grows with n, and mixing degrades
when the noise is small beside the sums' own spread. It is there to check the methods whose cost does not depend on n,
and for laws of the covariates that those do not have (docs/formulas.md#individual-records): any density that NumPyro
can write.

`run_individual` loops over problems on the host. What is compiled depends on the number of records, the sizes and
the covariates' law alone: released sums, noise scales and priors are arguments.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from dpjax._base.checks import check_run, check_size
from dpjax.engine.loop import Progress
from dpjax.engine.problems import Problems
from dpjax.engine.programs import KEY_KIND
from dpjax.engine.result_codes import NON_FINITE, NOT_MOVING, OK
from dpjax.engine.results import Run
from dpjax.errors import InputError
from dpjax.inference.individual_programs import SEGMENT, Plan, compiled_programs, find_start, jax_defaults

#: Most latent numbers n (p + 1): beyond, NUTS takes hours.
MOST_LATENT = 20_000


def check_problems(problems: Problems) -> int:
    """Number of features p of problems that `run_individual` can take.

    Raises:
        InputError: another model; a number of records that is not whole; too many latent numbers.
    """
    model: Any = problems.model_template()
    if not model.conjugate_regression:
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
            default those of unclipped records, as in Bernstein and Sheldon 2019 and as the other methods take them.
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
    from dpjax.inference.individual_model import check_covariates

    p = check_problems(problems)
    count = len(problems)
    check_run(chains, draws, thin, count)
    depth, warmup = check_size("max_tree_depth", max_tree_depth), check_size("warmup", warmup, 10)
    if count == 0:
        raise InputError("there must be at least one problem")
    if not isinstance(target, float) or not 0.0 < target < 1.0:
        raise InputError(f"target must be an acceptance probability between 0 and 1; got {target!r}")
    if ignored.get("stream"):
        raise InputError("method 'individual' keeps its draws: stream is for the compiled samplers")
    with jax_defaults():
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
    with jax_defaults():
        for t in range(count):
            plan = Plan(
                p, int(problems.n[t]), str(problems.mechanism), covariates, bool(bounded), dtype=dtype, **static
            )
            before = compiled_programs.cache_info().misses
            programs = compiled_programs(plan)
            compile_seconds += programs.seconds * (compiled_programs.cache_info().misses - before)
            if compile_only:
                continue
            prior = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[t], dtype), models)  # noqa: B023
            inputs = (prior, *(jnp.asarray(x, dtype) for x in (problems.z[t], problems.scale[t], box)))
            key = random.fold_in(root, int(numbers[t]))
            keys = jax.vmap(random.fold_in, (None, 0))(key, jnp.arange(chains))
            began = time.perf_counter()
            state, lost = find_start(programs.start, keys, inputs)
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
