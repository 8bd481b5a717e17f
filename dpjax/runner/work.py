"""The methods of a run, one after the other: posteriors of [fit], simulated studies of [calibration]."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpjax.calibration.simulation import Study
from dpjax.calibration.study import calibrate_study, has_non_private, non_private_draws
from dpjax.engine import hosts
from dpjax.engine.checkpoint import Checkpoint
from dpjax.engine.loop import Progress
from dpjax.errors import ConvergenceWarning
from dpjax.inference.fit import fit
from dpjax.inference.methods import METHODS
from dpjax.runner.folder import Folder
from dpjax.runner.methods import sampler_settings
from dpjax.runner.outline import Outline
from dpjax.runner.results import Results
from dpjax.runner.seconds import WallSeconds
from dpjax.runner.sections import CalibrationSection, Fit, Override

#: Called with what is running ("2/3 fit gibbs") and how far it is.
Report = Callable[[str, Progress], None]


class Parts:
    """What the methods of a run have in common: their checkpoints, devices and the line of progress."""

    def __init__(self, target: Path | None, prepared: Outline, go_on: bool, devices, every: float, report):
        self.target, self.go_on, self.devices, self.every, self.report = target, go_on, devices, every, report
        fits = len((prepared.fit.methods if prepared.fit else None) or ())
        self.count = fits + len((prepared.study.methods if prepared.study else None) or ())
        self.number = 0

    def next(self, kind: str, method: str) -> dict[str, Any]:
        """Arguments of the run of the next method."""
        self.number += 1
        label = f"{self.number}/{self.count} {'fit' if kind == 'posterior' else 'calibrate'} {method}"
        report = self.report
        checkpoint = None
        if self.target is not None:
            checkpoint = Checkpoint(self.target / "parts", f"{kind}_{method}", self.every, self.go_on)
        return {
            "devices": self.devices,
            "checkpoint": checkpoint,
            "progress": None if report is None else lambda progress: report(label, progress),
        }


def choose(section: Fit | CalibrationSection, method: str) -> dict[str, Any]:
    """Chains, draws, thin and settings of one method, as arguments of `dpjax.inference.run_method.run_method`."""
    own = section.method.get(method, Override())
    chosen: dict[str, Any] = {"settings": sampler_settings(method, own.settings) or None}
    for name in ("chains", "draws", "thin"):
        value = getattr(own, name)
        chosen[name] = getattr(section, name) if value is None else value
    return chosen


def fit_all(
    section: Fit,
    seed: int,
    results: Results,
    prepared: Outline,
    exact: np.ndarray | None,
    folder: Folder | None,
    parts: Parts,
    wall: WallSeconds,
) -> None:
    assert results.release is not None
    for method in section.methods or ():
        posterior = prepared.posteriors.get(method)
        common = parts.next("posterior", method)
        if posterior is None:
            with wall.measured(f"posterior {method}"), warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # said below, with the method's name
                posterior = fit(
                    results.release,
                    method=method,
                    prior=prepared.fit_prior,
                    seed=seed,
                    exact=exact if METHODS[method].exact else None,
                    **common,
                    **choose(section, method),
                )
            if folder is not None:
                folder.keep_posterior(method, posterior)
                common["checkpoint"].discard()
        results.posteriors[method] = posterior
        _doubt(results, method, [f"{method}: {sentence}" for sentence in posterior.warnings(options=False)])


def calibrate_all(
    section: CalibrationSection,
    seed: int,
    results: Results,
    prepared: Outline,
    folder: Folder | None,
    parts: Parts,
    wall: WallSeconds,
) -> None:
    study: Study | None = None
    reference = None
    for method in section.methods or ():
        calibration = prepared.calibrations.get(method)
        common = parts.next("calibration", method)
        if calibration is None:
            if study is None:
                with wall.measured("simulation"):
                    study = prepared.design.study(section.cells, section.trials, seed)
            wanted = section.mmd and not section.stream and has_non_private(study)
            if wanted and reference is None and method != "non-private":
                with wall.measured("non-private draws for the MMD"):
                    reference = non_private_draws(study, seed)
            with wall.measured(f"calibration {method}"):
                calibration = calibrate_study(
                    study,
                    method,
                    stream=section.stream,
                    mmd=wanted,
                    seed=seed,
                    non_private=reference,
                    chains_per_batch=section.chains_per_batch,
                    **common,
                    **choose(section, method),
                )
            if folder is not None:
                folder.keep_calibration(method, calibration)
                common["checkpoint"].discard()
        results.calibrations[method] = calibration
        _doubt(results, method, [f"calibration of {sentence}" for sentence in calibration.warnings(options=False)])


def _doubt(results: Results, method: str, sentences: Sequence[str]) -> None:
    results.doubts.setdefault(method, []).extend(sentences)
    for sentence in sentences if hosts.first() else ():
        warnings.warn(sentence, ConvergenceWarning, stacklevel=5)
