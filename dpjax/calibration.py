"""`calibrate`: simulation-based calibration of a method over a grid of settings, in one compiled call."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import calibration_statistics as statistics
from ._checkpoint import Checkpoint
from .calibration_statistics import Ranks
from .diagnostics import Diagnostics
from .engine import Progress, Run
from .errors import InputError
from .methods import check_seed, method_named, run_method
from .simulation import Study, positive, whole
from .statistics import RegressionStatistic, split_name
from .study_design import study_design
from .views import conjugate

#: Draws of the non-private posterior per problem, behind the MMD.
NON_PRIVATE_DRAWS = 60


@dataclass
class Calibration:
    """Result of a calibration study of one method.

    cells: dicts in the layout of `calibration.json`; ranks: per cell, for figures; settings: what was simulated.
    """

    method: str
    cells: list[dict[str, Any]]
    ranks: list[Ranks]
    seconds: float
    compile_seconds: float
    rerun_seconds: float
    ess_per_second: float
    chains_in_call: int
    settings: dict[str, Any]

    def verdict(self, min_records: int = 0) -> dict[str, Any]:
        """Family-wise verdict over the cells (`calibration_statistics.verdict`)."""
        return statistics.verdict(self.cells, min_records=min_records)

    def warnings(self) -> list[str]:
        """Sentences about trials whose draws should not be trusted; empty when at most 1 in 1,000 is doubtful.

        About convergence only: a rejected uniformity is a finding, not a doubt about the computation.
        """
        trials = sum(cell["trials"] + cell["failed"] for cell in self.cells)
        allowed = max(1.0, 0.001 * trials)
        share = lambda name: sum(cell[name] * (cell["trials"] + cell["failed"]) for cell in self.cells)
        counts = {
            "failed (numbers that are not finite)": (sum(cell["failed"] for cell in self.cells), 0.0),
            "have R-hat > 1.05": (share("rhat_above_1_05"), allowed),
            "have a smallest ESS under 50": (share("min_ess_below_50"), allowed),
        }
        return [
            f"{self.method}: {count:.0f} of {trials} trials {what}; run more draws (--draws) and chains (--chains)"
            for what, (count, limit) in counts.items()
            if count > limit + 1e-9
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data; a single cell's fields also stand at the top level."""
        out: dict[str, Any] = dict(self.cells[0]) if len(self.cells) == 1 else {}
        return out | {
            "method": self.method,
            "cells": self.cells,
            "seconds": self.seconds,
            "compile_seconds": self.compile_seconds,
            "rerun_seconds": self.rerun_seconds,
            "ess_per_second": self.ess_per_second,
            "chains_in_call": self.chains_in_call,
            "verdict": self.verdict(),
            "over_cells": self.over_cells(),
            "warnings": self.warnings(),
            "settings": self.settings,
        }

    def over_cells(self) -> dict[str, float]:
        """The figures under the table: smallest median min-ESS, averages over cells, reruns in all."""
        return {
            "min_ess_median": float(min(c["min_ess_median"] for c in self.cells)),
            "min_ess_below_50": float(np.mean([c["min_ess_below_50"] for c in self.cells])),
            "rhat_above_1_05": float(np.mean([c["rhat_above_1_05"] for c in self.cells])),
            "reruns": int(sum(c["reruns"] for c in self.cells)),
        }

    def table(self) -> str:
        """One line per cell and parameter, then the verdict."""
        head = ("records", "epsilon", "parameter", "KS", "critical", "p", "cov 50%", "80%", "90%", "95%")
        rows: list[tuple[str, ...]] = []
        for cell in self.cells:
            for name, row in cell["parameters"].items():
                cover = tuple(f"{row['coverage'][level]:.3f}" for level in ("0.5", "0.8", "0.9", "0.95"))
                rows.append(
                    (f"{cell['records']:g}", f"{cell['epsilon']:g}", name, f"{row['ks']:.4f}",
                     f"{row['ks_critical']:.4f}", f"{row['p_value']:.3g}", *cover)
                )  # fmt: skip
        widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
        lines = ["  ".join(x.rjust(w) for x, w in zip(r, widths, strict=True)) for r in [head, *rows]]
        verdict = self.verdict()
        over = self.over_cells()
        several = [cell["multimodal"] for cell in self.cells if "multimodal" in cell]
        if several and max(several) > 0:
            lines += ["", f"posteriors given the release that have several modes: up to {max(several):.1%} of a cell"]
        lines += ["", *([self.settings["study"]] if "study" in self.settings else [])]
        lines += [
            f"method {self.method}: {self.chains_in_call} chains in one call, {self.seconds:.2f} s "
            f"(compile {self.compile_seconds:.1f} s), {self.ess_per_second:,.0f} ESS/s, "
            f"{over['reruns']} problems rerun in {self.rerun_seconds:.2f} s",
            f"median min-ESS (worst cell) {over['min_ess_median']:.0f}; "
            f"min-ESS < 50: {over['min_ess_below_50']:.4f}; "
            f"R-hat > 1.05: {over['rhat_above_1_05']:.4f}",
            f"uniformity at family-wise 1% (Holm): {'not rejected' if verdict['uniformity_passed'] else 'REJECTED'}; "
            f"95% coverage in its family-wise 99.9% band: {'yes' if verdict['coverage_passed'] else 'NO'}",
        ]
        return "\n".join(lines)


def calibrate(
    model: str = "linear-regression",
    *,
    records: int | Sequence[int],
    epsilon: float | Sequence[float],
    trials: int = 300,
    method: str | None = None,
    features: int | Any | None = None,
    bounds: tuple[float, float] | Any | None = None,
    rule: str | None = None,
    categories: int | None = None,
    released: Sequence[int] | None = None,
    options: Mapping[str, Any] | None = None,
    mechanism: str = "laplace",
    delta: float | Any | None = None,
    sensitivity: float | Any | None = None,
    prior: Mapping[str, Any] | str | os.PathLike | None = None,
    simulate: str = "exact",
    clip: bool = False,
    moments: bool = False,
    moments_share: float | None = None,
    intercept: bool = True,
    parties: int = 1,
    squares: bool | None = None,
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
        model: one of `dpjax.kinds.kinds()`.
        records, epsilon: one value or several; all combinations are run, in one compiled call.
        trials: simulated data sets per combination.
        method: one of `dpjax.methods.METHODS`; None is the model's default.
        features, bounds, rule, categories, released, options, mechanism, delta, sensitivity, prior, simulate, clip,
            moments, moments_share, intercept, parties, squares: what is simulated;
            `dpjax.study_design.study_design` explains them, with defaults.
        chains, draws, thin, chains_per_batch, devices, progress: of the run (`dpjax.engine.run_chains`).
        stream: keep running sums only: memory does not grow with the number of draws.
        mmd: report the MMD to the non-private posterior (not when streaming).
        seed: of the study.

    Returns:
        `Calibration`.

    Raises:
        InputError: a value out of range, or an argument that has no place in this model.
    """
    cells = [(n, e) for n in _several("records", records) for e in _several("epsilon", epsilon)]
    for name, value in (("chains", chains), ("draws", draws), ("trials", trials)):
        whole(name, value)
    if not cells:
        raise InputError("records and epsilon must name at least one cell")
    for n, e in cells:
        whole("records", n), positive("epsilon", e)
    if method is not None:
        method_named(method)
    design = study_design(
        model, features=features, bounds=bounds, rule=rule, categories=categories, released=released, options=options,
        mechanism=mechanism, delta=delta, sensitivity=sensitivity, prior=prior, simulate=simulate, clip=clip,
        moments=moments, moments_share=moments_share, intercept=intercept, parties=parties, squares=squares,
    )  # fmt: skip
    method = design.default_method() if method is None else method
    design.check(cells, [method])  # before the simulation, which takes a while
    return calibrate_study(
        design.study(cells, trials, check_seed(seed)),
        method, chains=chains, draws=draws, thin=thin, stream=stream, mmd=mmd, seed=seed,
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
        here = _part(diagnostics, part)
        bad = ~np.isfinite(run.draws[part]).all((1, 2, 3)) if not stream else (run.codes[part] != 0).any(1)
        if rank is None:
            truth = study.truth_of(run.names)[part][~bad]
            rank = statistics.rank_statistics(run.names, run.draws[part][~bad], truth, seed=seed + c)
        value = None
        if non_private is not None and not bad.all():
            ours, theirs = _compared(study, run.names)
            value = float(
                statistics.mmd_to_nonprivate(
                    run.draws[part][~bad][..., ours], non_private[part][~bad][..., theirs]
                ).mean()
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
    S0's utility is about and every method reports."""
    model = study.problems.model_template()
    regression = model.kind == RegressionStatistic.kind
    ours = [k for k, name in enumerate(names) if not regression or split_name(name)[0] in ("theta", "sigma2")]
    return ours, [model.parameter_names.index(names[k]) for k in ours]


def _part(diagnostics: Diagnostics, part: slice) -> Diagnostics:
    arrays = ("rhat", "ess_bulk", "ess_tail", "mcse_mean", "constant")
    return Diagnostics(
        diagnostics.names, diagnostics.draws, **{name: getattr(diagnostics, name)[part] for name in arrays}
    )


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


__all__ = ["Calibration", "calibrate", "calibrate_study", "has_non_private", "non_private_draws"]
