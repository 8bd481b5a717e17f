"""`run`: a whole experiment from one TOML file: a release, posteriors by several methods, a calibration study."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpjax import _config, _files, _fingerprint, _hosts, _report, _runtime
from dpjax._checkpoint import EVERY, Checkpoint
from dpjax._config import CalibrationSection, Config, Fit, Override
from dpjax._experiment_checks import Prepared, draw
from dpjax._experiment_files import RELEASE, Folder, Found, check_folder, claim_folder
from dpjax._run_seconds import WallSeconds, seconds_table
from dpjax.calibration import Calibration, calibrate_study, has_non_private, non_private_draws
from dpjax.calibration_statistics import Ranks
from dpjax.engine import Progress
from dpjax.errors import ConvergenceWarning, InputError, PrivacyWarning, require
from dpjax.figures import calibration_figure, posteriors_figure, save_figure
from dpjax.figures_study import (
    coverage_figure,
    ks_figure,
    mmd_figure,
    parameters_of,
    seconds_by_records,
    seconds_figure,
    traces_figure,
)
from dpjax.inference import fit
from dpjax.methods import METHODS
from dpjax.posterior import Posterior
from dpjax.release import Release
from dpjax.simulation import Study

#: Called with what is running ("2/3 fit gibbs") and how far it is.
Report = Callable[[str, Progress], None]


@dataclass
class Results:
    """What an experiment gave.

    release, posteriors by method, calibrations by method; doubts: sentences about results that have not converged;
    trusted: False when one of them is about a method that is not a mere comparison (`Method.reference`); wall:
    wall seconds by part ("posterior METHOD", "calibration METHOD", "simulation", ...).
    """

    name: str
    config: dict[str, Any]
    release: Release | None = None
    posteriors: dict[str, Posterior] = field(default_factory=dict)
    calibrations: dict[str, Calibration] = field(default_factory=dict)
    doubts: dict[str, list[str]] = field(default_factory=dict)
    seconds: float = 0.0
    wall: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)

    @property
    def trusted(self) -> bool:
        """Whether every result that claims to be right has converged."""
        return all(METHODS[method].reference for method, sentences in self.doubts.items() if sentences)

    def table(self) -> str:
        """Everything readable, as `results.txt`."""
        parts = [self.name]
        if self.release is not None:
            parts.append("release\n" + _report.describe_release(self.release))
        if self.posteriors:
            prior = next(iter(self.posteriors.values())).prior
            given = (self.config.get("fit") or {}).get("prior") is not None
            scaled = next(iter(self.posteriors.values())).scaling is not None
            parts += [_report.describe_prior(prior, given, scaled), _report.compare(self.posteriors)]
        parts += [f"calibration of {method}\n{item.table()}" for method, item in self.calibrations.items()]
        doubts = [sentence for sentences in self.doubts.values() for sentence in sentences]
        if doubts:
            parts.append("not to be trusted yet\n" + "\n".join(f"  {sentence}" for sentence in doubts))
        seconds = seconds_table(self.posteriors, self.calibrations, self.wall)
        parts += [seconds] if seconds else []
        return "\n\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Everything printed and more, as `results.json`."""
        return {
            "name": self.name,
            "trusted": self.trusted,
            "seconds": self.seconds,
            "wall_seconds": self.wall,
            "release": None if self.release is None else self.release.to_dict(),
            "posteriors": {method: item.summary() for method, item in self.posteriors.items()},
            "calibration": {method: item.to_dict() for method, item in self.calibrations.items()},
            "warnings": self.doubts,
            "config": self.config,
            "versions": self.versions,
            "machine": self.machine,
        }


def run(
    config: Mapping[str, Any] | str | os.PathLike,
    output: str | os.PathLike | None = None,
    *,
    resume: bool = False,
    force: bool = False,
    seed: int | None = None,
    devices: int | None = None,
    checkpoint_seconds: float = EVERY,
    progress: Report | None = None,
) -> Results:
    """Run an experiment.

    Args:
        config: path of a TOML file or its content (`dpjax._config` has the keys; experiments/README.md explains them).
        output: folder to write to, made if need be; None writes nothing.
        resume: go on with what lies in `output`. If the config has changed outside [data] and [release], the release
            is kept and everything else runs again; if those have changed, the folder is refused.
        force: remove the results in `output` first, except a release of the same [data] and [release]: a new one
            needs another folder.
        seed: replaces the config's. The noise of a release cannot be seeded.
        devices: how many devices (default: all, of all processes of a distributed run).
        checkpoint_seconds: least time between two checkpoints of the method at work, from which `resume` goes on.
        progress: called between segments of steps with what is running and how far it is.

    Returns:
        `Results`.

    Raises:
        InputError: a bad config or table, or a folder that may not be written to; nothing is written then.
        MissingExtraError: a package of an extra is needed.

    Warns:
        PrivacyWarning: a release was drawn (every further one of the same table adds its epsilon), or one that
            lies in `output` is kept while the rest runs again.
        ConvergenceWarning: a result has not converged.
    """
    begin = time.perf_counter()
    if resume and force:
        raise InputError("resume and force exclude each other")
    if isinstance(checkpoint_seconds, bool) or not checkpoint_seconds >= 0:
        raise InputError(f"checkpoint_seconds must be at least 0; got {checkpoint_seconds!r}")
    typed, base = _config.load(config, seed)
    prints = _fingerprint.fingerprint(typed, base)
    target = None if output is None else Path(output)
    if target is not None:
        for package in ("arviz", "h5netcdf", "matplotlib"):
            require(package, "report", "writing an experiment's results")
    found = Found.BEGIN
    if target is not None:
        found = _hosts.decide(lambda: check_folder(target, prints, resume, force))

    def read() -> Prepared:
        return Prepared(typed, base, None if target is None else Folder(target), found)

    prepared = _hosts.decide(read)
    results = Results(typed.name, _config.plain(typed))
    results.versions, results.machine = _runtime.versions(), _runtime.machine()
    folder = None
    if target is not None:
        manifest = {"name": typed.name, "config": results.config, "versions": results.versions}
        claimed = _hosts.decide(lambda: claim_folder(target, prints, manifest, resume, force))
        folder = claimed if _hosts.first() else None
        if found is Found.KEEP_RELEASE and _hosts.first():
            warnings.warn(
                f"output {target}: its release is kept (no epsilon is spent) and everything else runs again; "
                "a new release needs another folder",
                PrivacyWarning,
                stacklevel=2,
            )

    if typed.release is not None:
        results.release = _hosts.decide(lambda: _release(typed, prepared, folder))
    parts = _Parts(target, prepared, found is Found.GO_ON, devices, checkpoint_seconds, progress)
    wall = WallSeconds.read(None if folder is None else folder.path)
    results.wall = wall.seconds
    if prepared.fit is not None and results.release is not None:
        exact = prepared.exact(results.release)
        _fit_all(prepared.fit, typed.seed, results, prepared, exact, folder, parts, wall)
    if prepared.study is not None:
        _calibrate_all(prepared.study, typed.seed, results, prepared, folder, parts, wall)
    if folder is not None:
        with wall.measured("figures"):
            _write_figures(results, folder)
    results.seconds = time.perf_counter() - begin
    if folder is not None:
        _write(results, folder)
    return results


class _Parts:
    """What the methods of a run have in common: their checkpoints, devices and the line of progress."""

    def __init__(self, target: Path | None, prepared: Prepared, go_on: bool, devices, every: float, report):
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


def _release(config: Config, prepared: Prepared, folder: Folder | None) -> Release:
    section = config.release
    assert section is not None
    if prepared.drawn is not None:
        return prepared.drawn  # a second draw would spend epsilon again
    published = prepared.release or draw(section, prepared.table)
    if folder is not None:
        published.save(folder.file(RELEASE))
    return published


def choose(section: Fit | CalibrationSection, method: str) -> dict[str, Any]:
    """Chains, draws, thin and settings of one method, as arguments of `dpjax.methods.run_method`."""
    own = section.method.get(method, Override())
    chosen: dict[str, Any] = {"settings": _config.sampler_settings(method, own.settings) or None}
    for name in ("chains", "draws", "thin"):
        value = getattr(own, name)
        chosen[name] = getattr(section, name) if value is None else value
    return chosen


def _fit_all(
    section: Fit,
    seed: int,
    results: Results,
    prepared: Prepared,
    exact: np.ndarray | None,
    folder: Folder | None,
    parts: _Parts,
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
        _doubt(results, method, [f"{method}: {sentence}" for sentence in posterior.warnings()])


def _calibrate_all(
    section: CalibrationSection,
    seed: int,
    results: Results,
    prepared: Prepared,
    folder: Folder | None,
    parts: _Parts,
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
        _doubt(results, method, [f"calibration of {sentence}" for sentence in calibration.warnings()])


def _doubt(results: Results, method: str, sentences: Sequence[str]) -> None:
    # here the advice is about keys of the config, which have the names of the options
    sentences = [re.sub(r" \(--\w+\)", "", sentence) for sentence in sentences]
    results.doubts.setdefault(method, []).extend(sentences)
    for sentence in sentences if _hosts.first() else ():
        warnings.warn(sentence, ConvergenceWarning, stacklevel=4)


def _write_figures(results: Results, folder: Folder) -> None:
    """Pictures, from the parts; drawn again when a run is resumed, since they are derived; so for `_write`."""
    if results.posteriors:
        save_figure(posteriors_figure(results.posteriors), folder.file("posteriors.png"), True)
        save_figure(traces_figure(results.posteriors), folder.file("traces.png"), True)
    for name, figure in calibration_figures(results.calibrations):
        save_figure(figure, folder.file(f"calibration_{name}.png"), True)
    for name, figure in study_figures(results.calibrations):
        save_figure(figure, folder.file(f"{name}.png"), True)


def _write(results: Results, folder: Folder) -> None:
    """Files for people but the pictures."""
    for method, posterior in results.posteriors.items():
        posterior.save(folder.file(f"posterior_{method}.nc"), True)
        _files.write_json(folder.file(f"summary_{method}.json"), posterior.summary(), True)
    for method, calibration in results.calibrations.items():
        _files.write_json(folder.file(f"calibration_{method}.json"), calibration.to_dict(), True)
    _files.write_text(folder.file("results.txt"), results.table() + "\n", True)
    _files.write_json(folder.file("results.json"), results.to_dict(), True)


def cell_name(records: int, epsilon: float) -> str:
    """Name of a calibration cell in file names."""
    return f"n{records}_eps{epsilon:g}"


def calibration_figures(calibrations: Mapping[str, Calibration]):
    """(name of the cell, QQ and ECDF figure of all methods) for every cell that has usable trials."""
    if not calibrations:
        return
    names = parameters_of(calibrations)
    for number, cell in enumerate(next(iter(calibrations.values())).cells):
        ranks: dict[str, Ranks] = {method: item.ranks[number] for method, item in calibrations.items()}
        pit = {method: _of_all(item, names) for method, item in ranks.items() if len(item.pit)}
        if pit:
            records, epsilon = cell["records"], cell["epsilon"]
            yield cell_name(records, epsilon), calibration_figure(pit, names, records=records, epsilon=epsilon)


def _of_all(ranks: Ranks, names: Sequence[str]) -> np.ndarray:
    """Randomised ranks of these parameters `[M, K]`, NaN for those that the method does not report."""
    wide = np.full((len(ranks.pit), len(names)), np.nan)
    wide[:, [names.index(name) for name in ranks.names]] = ranks.pit
    return wide


def study_figures(calibrations: Mapping[str, Calibration]):
    """("ks", "coverage", "mmd" or "seconds", figure over all cells) where there are several cells to compare."""
    if not calibrations or len(next(iter(calibrations.values())).cells) < 2:
        return
    yield "ks", ks_figure(calibrations)
    yield "coverage", coverage_figure(calibrations)
    if any(cell["mmd"] is not None for item in calibrations.values() for cell in item.cells):
        yield "mmd", mmd_figure(calibrations)
    seconds = {method: seconds_by_records(item) for method, item in calibrations.items()}
    if len({n for values in seconds.values() for n in values}) > 1:
        yield "seconds", seconds_figure(seconds)


__all__ = ["Results", "calibration_figures", "cell_name", "run", "study_figures"]
