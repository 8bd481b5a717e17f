"""`calibrate`: simulation-based calibration of a method over a grid of settings, in one compiled call."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpjax._base.checks import LARGEST_RECORDS, check_run, check_size
from dpjax._base.signatures import no_type_check
from dpjax.calibration import statistics
from dpjax.calibration.like import read_like
from dpjax.calibration.mmd import mmd_to_nonprivate
from dpjax.calibration.options import DesignOptions, Prior
from dpjax.calibration.ranks import Ranks, rank_statistics
from dpjax.calibration.result import Calibration
from dpjax.calibration.simulation import Study, positive
from dpjax.calibration.study_design import study_design
from dpjax.diagnostics.ranks import Diagnostics
from dpjax.engine.checkpoint import Checkpoint
from dpjax.engine.loop import Progress
from dpjax.engine.results import Run
from dpjax.engine.sampler import LaneSampler
from dpjax.errors import InputError
from dpjax.inference.methods import method_named
from dpjax.inference.own_methods import name_of
from dpjax.inference.run_method import check_seed, run_method
from dpjax.models.regression.views import conjugate
from dpjax.releases.release import Release
from dpjax.statistics.base import split_name

#: Draws of the non-private posterior per problem, behind the MMD.
NON_PRIVATE_DRAWS = 60


@no_type_check
def calibrate(
    model: str | None = None,
    *,
    records: int | Sequence[int] | None = None,
    epsilon: float | Sequence[float] | None = None,
    trials: int = 300,
    method: str | LaneSampler | None = None,
    features: int | None = None,
    bounds: Sequence[float] | None = None,
    rule: str | None = None,
    categories: int | None = None,
    released: Sequence[int] | None = None,
    options: Mapping[str, Any] | None = None,
    mechanism: str = "laplace",
    delta: float | None = None,
    sensitivity: float | None = None,
    prior: Prior | None = None,
    simulate: str = "exact",
    clip: bool = False,
    moments: bool = False,
    moments_share: float | None = None,
    intercept: bool = True,
    parties: int = 1,
    squares: bool | None = None,
    norms: Mapping[str, float] | None = None,
    averaged: int | None = None,
    truth: Prior | None = None,
    like: Release | str | os.PathLike | None = None,
    chains: int = 2,
    draws: int = 500,
    thin: int | None = None,
    stream: bool = False,
    mmd: bool = True,
    seed: int = 0,
    chains_per_batch: int | None = None,
    devices: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Calibration:
    """Simulate data sets from the prior, infer each, and test whether the truth's ranks are uniform.

    Args:
        model: one of `dpjax.statistics.kinds.kinds()`; None: linear-regression, or that of `like`.
        records, epsilon: one value or several; all combinations are run, in one compiled call. May be left out with
            `like`.
        trials: simulated data sets per combination.
        method: one of `dpjax.inference.methods.METHODS` or a sampler (`dpjax.samplers`); None: the model's default.
        features, bounds, rule, categories, released, options, mechanism, delta, sensitivity, prior, simulate, clip,
            moments, moments_share, intercept, parties, squares, norms, averaged, truth: what is simulated;
            `dpjax.calibration.study_design.study_design` explains them, with defaults.
        like: a release, or the path of its file, that the simulated ones are like: in model, bounds, scaling, noise
            and, if they are left out, records and epsilon; the prior is by default that of `fit`.
        chains, draws, thin, chains_per_batch, devices, progress: of the run (`dpjax.engine.run.run_chains`).
        stream: keep running sums only: memory does not grow with the number of draws.
        mmd: report the MMD to the non-private posterior (not when streaming).
        seed: of the study.

    Returns:
        `Calibration`.

    Raises:
        InputError: a value out of range, or an argument that has no place in this model.
    """
    chosen = {name: value for name, value in locals().items() if name in DesignOptions.__struct_fields__}
    alike = None
    if like is not None:
        first = _several("epsilon", epsilon) if epsilon is not None else []
        alike = read_like(like, positive("epsilon", first[0]) if first else None)
        records = alike.records if records is None else records
        epsilon = alike.epsilon if epsilon is None else epsilon
        if epsilon is None:
            raise InputError("epsilon is missing: the release does not state it")
    cells = [(n, e) for n in _several("records", records) for e in _several("epsilon", epsilon)]
    if not cells:
        raise InputError("records and epsilon must name at least one cell")
    check_run(chains, draws, thin, check_size("trials", trials) * len(cells), stream)
    for n, e in cells:
        check_size("records", n, most=LARGEST_RECORDS), positive("epsilon", e)
    name = name_of(method)
    design = study_design(like=alike, method=name, **chosen)
    name = design.default_method() if name is None else name
    design.check(cells, [name])  # before the simulation, which takes a while
    return calibrate_study(
        design.study(cells, trials, check_seed(seed)),
        name, chains=chains, draws=draws, thin=thin, stream=stream, mmd=mmd, seed=seed,
        chains_per_batch=chains_per_batch, devices=devices, progress=progress,
    )  # fmt: skip


def calibrate_study(
    study: Study,
    method: str,
    *,
    chains: int = 2,
    draws: int = 500,
    thin: int | None = None,
    stream: bool = False,
    mmd: bool = True,
    seed: int = 0,
    settings: dict | None = None,
    non_private: np.ndarray | None = None,
    chains_per_batch: int | None = None,
    devices: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> Calibration:
    """Calibrate one method on problems simulated before (so that methods share their data).

    Args as in `calibrate`; `settings`: sampler settings to change;
    `non_private`: draws `[T, C, S, K]` of the non-private posterior, computed if None.
    """
    run = run_method(
        method,
        study.problems,
        seed=seed + 1,
        chains=chains,
        draws=draws,
        thin=thin,
        stream=stream,
        truth=study.truth_of(method_named(method).seen(study.problems).model_template().parameter_names)
        if stream
        else None,
        settings=settings,
        chains_per_batch=chains_per_batch,
        devices=devices,
        progress=progress,
        checkpoint=checkpoint,
    )
    if mmd and not stream and non_private is None and method != "non-private" and has_non_private(study):
        non_private = non_private_draws(study, seed)
    if stream or not mmd or method == "non-private":
        non_private = None
    diagnostics = _streamed_diagnostics(run) if stream else run.diagnostics
    cells, ranks = [], []
    for c, (records, epsilon) in enumerate(study.cells):
        part = study.slice(c)
        rank = _streamed_ranks(run, part, seed + c) if stream else None
        here = diagnostics.take(part)
        bad = ~np.isfinite(run.draws[part]).all((1, 2, 3)) if not stream else (run.codes[part] != 0).any(1)
        if rank is None:
            truth = study.truth_of(run.names)[part][~bad]
            rank = rank_statistics(run.names, run.draws[part][~bad], truth, seed=seed + c)
        value = None
        if non_private is not None and not bad.all():
            ours, theirs = _compared(study, run.names)
            value = float(
                mmd_to_nonprivate(run.draws[part][~bad][..., ours], non_private[part][~bad][..., theirs]).mean()
            )
        cell = statistics.summarise_ranks(
            records,
            epsilon,
            rank,
            here,
            failed=int(bad.sum()),
            reruns=int(run.rerun_mask[part].sum()),
            mmd=value,
        )
        if study.multimodal is not None:
            cell["multimodal"] = study.multimodal[c]
        if stream:
            cell["ess"], cell["rhat"] = "batch means", "split R-hat"
        cells.append(cell)
        ranks.append(rank)
    return Calibration(
        method=method,
        cells=cells,
        ranks=ranks,
        seconds=run.seconds,
        compile_seconds=run.compile_seconds,
        rerun_seconds=run.rerun_seconds,
        ess_per_second=float(diagnostics.min_ess.sum() / run.seconds),
        chains_in_call=len(study.problems) * chains,
        settings={
            "trials": study.trials,
            "chains": chains,
            "draws": draws,
            "seed": seed,
            "simulate": study.simulate,
            "sensitivity": study.sensitivity,
            "mechanism": study.problems.mechanism,
            **study.settings,
            "prior": study.problems.model.as_dict(),
            "run": run.settings,
        },
    )


def has_non_private(study: Study) -> bool:
    """Whether the non-private posterior of the study's model can be drawn (its prior is conjugate)."""
    return not isinstance(conjugate(study.problems), str)


def non_private_draws(study: Study, seed: int = 0) -> np.ndarray:
    """Draws of the non-private posterior of every problem, for the MMD `[T, 2, NON_PRIVATE_DRAWS, K]`."""
    run = run_method("non-private", study.problems, seed=seed + 2, chains=2, draws=NON_PRIVATE_DRAWS, rerun=False)
    return run.draws


def _compared(study: Study, names: Sequence[str]) -> tuple[list[int], list[int]]:
    """Columns behind the MMD, of a method's draws and of the non-private ones: of a regression theta and sigma^2, which
    the utility of Bernstein and Sheldon 2019 is about and every method reports."""
    model = study.problems.model_template()
    chosen = model.compared
    ours = [k for k, name in enumerate(names) if chosen is None or split_name(name)[0] in chosen]
    return ours, [model.parameter_names.index(names[k]) for k in ours]


def _streamed_diagnostics(run: Run) -> Diagnostics:
    """Batch-means ESS and split R-hat in the places of the rank-normalised ones (their names are in the cell)."""
    sums = run.streamed
    assert sums is not None
    variance = sums.variance.mean(1)
    return Diagnostics(
        names=run.names,
        draws=run.chains * run.draws_per_chain,
        rhat=sums.rhat,
        ess_bulk=sums.ess,
        ess_tail=np.full_like(sums.ess, np.nan),
        mcse_mean=np.sqrt(variance / np.maximum(sums.ess, 1.0)),
        constant=(sums.variance == 0).all(1),
    )


def _streamed_ranks(run: Run, part: slice, seed: int) -> Ranks:
    assert run.streamed is not None
    below = run.streamed.below[part].sum(1)
    total = run.chains * run.draws_per_chain
    u = np.random.default_rng(seed).uniform(size=below.shape)
    return Ranks(run.names, below / total, (below + u) / (total + 1), total)


def _several(name: str, value: Any) -> list:
    if isinstance(value, str) or value is None:
        raise InputError(f"{name} must be a number or several; got {value!r}")
    return list(value) if isinstance(value, Sequence | np.ndarray) else [value]


__all__ = ["calibrate", "calibrate_study", "has_non_private", "non_private_draws"]
