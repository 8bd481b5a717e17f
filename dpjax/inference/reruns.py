"""The automatic rerun of problems that did not converge: which they are, harder settings, and putting them in place."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from dpjax.diagnostics.ranks import ESS_LIMIT, RHAT_LIMIT, WANTED_ESS
from dpjax.engine.problems import Problems, precision
from dpjax.engine.result_codes import OK
from dpjax.engine.results import Run, replace_problems
from dpjax.engine.sampler import KEY_BLOCK
from dpjax.inference import second_modes
from dpjax.mechanisms import mechanism_named
from dpjax.samplers.basin_checks import judge
from dpjax.samplers.basins import Basins, can_find_basins, find_basins, with_starts
from dpjax.samplers.collapsed import Collapsed
from dpjax.samplers.counts import Counts
from dpjax.samplers.gibbs import Gibbs


def harder(sampler: Any, dim: int, *, trajectories: int, target: float, warmup: int) -> Any:
    """The sampler with longer trajectories, shorter steps and a longer search and warm-up, or with more sweeps: only in
    what its programs are given as numbers."""
    if isinstance(sampler, Counts):
        return dataclasses.replace(
            sampler, rounds=trajectories * sampler.rounds, burn_in=warmup * max(sampler.burn_in, KEY_BLOCK)
        )
    return dataclasses.replace(
        sampler,
        leapfrogs=trajectories * sampler.leapfrogs_for(dim),
        target=max(target, sampler.target),
        warmup=warmup * sampler.warmup,
        mode_steps=2 * sampler.mode_steps,
    )


def located(sampler: Any, problems: Problems) -> tuple[Problems, Basins | None]:
    """The problems with their chains starting in the basins of the posterior, where it may have several
    and they can be looked for."""
    known = isinstance(sampler, Collapsed | Gibbs) and mechanism_named(problems.mechanism).closed_form
    if not known or not can_find_basins(problems.model_template()):
        return problems, None
    with precision(True):
        basins = find_basins(problems)
    return with_starts(problems, basins), basins


def judged(run: Run, problems: Problems, basins: Basins | None) -> Run:
    """The run with codes of chains that got lost or missed a mode."""
    draws = run.draws if run.streamed is None else run.streamed.thinned
    if not draws.shape[2] or (basins is None and not second_modes.can_look(problems)):
        return run
    with precision(True):
        if basins is not None:
            codes = judge(problems, basins, draws, run.codes)
        else:
            codes = second_modes.look(problems, draws, run.codes)
    return dataclasses.replace(run, codes=codes)


def failed(run: Run, available: int) -> np.ndarray:
    """Problems to run again `[T]`; the ESS asked for is a tenth of the draws, between two limits where there are
    enough."""
    limit = min(np.clip(0.1 * available, ESS_LIMIT, WANTED_ESS), 0.5 * available)
    return run.diagnostics.unreliable(RHAT_LIMIT, limit) | (run.codes != OK).any(1)


def merge(run: Run, bad: np.ndarray, again: Run) -> Run:
    """The run with problems `bad` replaced by `again`: draws in the room there is, diagnostics of the chains as they
    ran."""
    merged = replace_problems(run, bad, again)
    merged.rerun_mask, merged.rerun_seconds, merged.settings = run.rerun_mask, run.rerun_seconds, run.settings
    merged.diagnostics = run.diagnostics.put(bad, again.diagnostics)
    return merged
