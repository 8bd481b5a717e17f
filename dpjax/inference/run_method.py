"""A method run on problems, and the automatic rerun of those that did not converge."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dpjax.diagnostics.ranks import diagnose
from dpjax.engine.checkpoint import Checkpoint
from dpjax.engine.loop import Progress
from dpjax.engine.problems import Problems
from dpjax.engine.results import Run
from dpjax.engine.run import run_chains
from dpjax.engine.sampler import KEY_BLOCK
from dpjax.errors import InputError
from dpjax.inference.methods import method_named
from dpjax.inference.reruns import failed as _failed
from dpjax.inference.reruns import judged, located, merge

#: Fields of samplers that are no plain data, or known otherwise.
HIDDEN = ("noise", "covariates", "make", "start", "report", "rounds")


def check_seed(seed: Any) -> int:
    """Check a seed: a whole number from 0 to 2^31 - 1.

    Raises:
        InputError: it is not.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**31:
        raise InputError(f"seed must be a whole number from 0 to {2**31 - 1}; got {seed!r}")
    return int(seed)


def run_method(
    name: str,
    problems: Problems,
    *,
    seed: int,
    chains: int = 2,
    draws: int = 500,
    thin: int | None = None,
    rerun: bool = True,
    settings: dict | None = None,
    progress: Callable[[Progress], None] | None = None,
    checkpoint: Checkpoint | None = None,
    **options: Any,
) -> Run:
    """Run a method on T problems, diagnose it, and run again, harder, what did not converge.

    Args:
        name: one of `METHODS`.
        problems: T problems; `exact` is needed for "non-private".
        seed, chains, draws, thin, progress, checkpoint: as for `dpjax.engine.run.run_chains`; `thin` defaults to the
            method's; when streaming to 20 at least, but for methods whose draws are independent.
        rerun: run problems with R-hat > 1.05, bulk or tail ESS < 100 or a bad result code again (methods that say how).
        settings: fields of the sampler's settings to change.
        options: further arguments of `run_chains`.

    Returns:
        `Run` with `diagnostics` per problem. A rerun problem's diagnostics are those of its own, more numerous
        chains. Seconds include the reruns, which compile nothing.

    Raises:
        InputError: unknown method or settings, or exact statistics missing.
    """
    method = method_named(name)
    sampler = method.check(problems)
    problems = method.seen(problems)
    known = {f.name for f in dataclasses.fields(sampler)} - {"name", "noise"}  # type: ignore[arg-type]
    unknown = set(settings or {}) - known
    if unknown:
        raise InputError(f"{name} has no setting {sorted(unknown)[0]!r}; it has {', '.join(sorted(known)) or 'none'}")
    try:
        sampler = dataclasses.replace(sampler, **(settings or {}))  # type: ignore[type-var]
    except TypeError:
        raise InputError(f"settings of {name}: a value has the wrong type: {settings}") from None
    if method.replaces is not None:
        problems = dataclasses.replace(problems, z=getattr(problems, method.replaces))
    if thin is None:  # of steps that depend on each other, sums over all cost more than they tell
        chained = getattr(sampler, "warmup_iterations", 1) > 0
        thin = KEY_BLOCK if options.get("stream") and method.thin == 1 and chained else method.thin
    problems, basins = located(sampler, problems)
    run_here = getattr(sampler, "run", None) or partial(run_chains, sampler)
    run = run_here(
        problems, seed=seed, chains=chains, draws=draws, thin=thin, progress=progress, checkpoint=checkpoint,
        **options,
    )  # fmt: skip
    run = judged(run, problems, basins)
    if run.draws is None or options.get("compile_only"):
        return run
    run.diagnostics = diagnose(run.draws, run.names)
    run.settings["method"] = {k: v for k, v in dataclasses.asdict(sampler).items() if k not in HIDDEN}  # type: ignore[call-overload]
    if not rerun:
        return run
    # harder runs are of the programs of the first one: they have its chains several times over. Single chains would
    # then all start on one side of a posterior with two, where the model knows the sides only by itself
    options |= {"segment": run.settings.get("segment")}
    one_sided = chains == 1 and problems.model.may_have_modes and problems.model.starts is None
    for stage, (make_harder, factor) in enumerate(method.escalate, start=1):
        bad = np.flatnonzero(_failed(run, draws * chains))
        if not len(bad):
            break
        some = problems.take(bad)
        again = run_chains(
            make_harder(sampler, problems.model_template().dim),
            problems,
            seed=seed + 7919 * stage,
            chains=chains * factor if one_sided else chains,
            replicates=1 if one_sided else factor,
            draws=draws,
            thin=thin,
            only=bad,
            checkpoint=None if checkpoint is None else checkpoint.child(f"rerun{stage}"),
            **options,
        )
        again = judged(again, some, None if basins is None else basins.take(bad))
        again.diagnostics = diagnose(again.draws, again.names)
        run.rerun_mask[bad] = True
        run.rerun_seconds += again.seconds
        run = merge(run, bad, again)
    return run
