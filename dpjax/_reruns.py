"""The automatic rerun of problems that did not converge: which they are, harder settings, and putting them in place."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from .diagnostics import ESS_LIMIT, RHAT_LIMIT, Diagnostics
from .engine import OK, Run, replace_problems


def harder(sampler: Any, dim: int, *, trajectories: int, target: float, warmup: int) -> Any:
    """The sampler with longer trajectories, shorter steps and a longer search and warm-up."""
    return dataclasses.replace(
        sampler,
        leapfrogs=trajectories * sampler.leapfrogs_for(dim),
        target=max(target, sampler.target),
        warmup=warmup * sampler.warmup,
        mode_steps=2 * sampler.mode_steps,
    )


def failed(run: Run, available: int) -> np.ndarray:
    """Problems to run again `[T]`; an ESS of 100 is asked for only where there are that many draws."""
    limit = min(ESS_LIMIT, 0.5 * available)
    return run.diagnostics.unreliable(RHAT_LIMIT, limit) | (run.codes != OK).any(1)


def merge(run: Run, bad: np.ndarray, again: Run) -> Run:
    diagnostics = run.diagnostics
    mask, seconds = run.rerun_mask, run.rerun_seconds
    merged = replace_problems(run, bad, again)
    merged.rerun_mask, merged.rerun_seconds = mask, seconds
    merged.settings = run.settings
    if len(bad) == len(run.codes):
        merged.diagnostics = again.diagnostics
        return merged
    changed = {}
    for field in dataclasses.fields(Diagnostics):
        value = getattr(diagnostics, field.name)
        if isinstance(value, np.ndarray) and value.ndim >= 1 and len(value) == len(run.codes):
            value = value.copy()
            value[bad] = getattr(again.diagnostics, field.name)
            changed[field.name] = value
    merged.diagnostics = dataclasses.replace(diagnostics, **changed)
    return merged
