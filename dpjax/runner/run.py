"""`run`: a whole experiment from one TOML file: a release, posteriors by several methods, a calibration study."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpjax._base import files, runtime
from dpjax._base.private_frames import without_private_frames
from dpjax.engine import hosts
from dpjax.engine.checkpoint import EVERY
from dpjax.errors import InputError, PrivacyWarning, require
from dpjax.inference.posterior_state import release_again
from dpjax.releases.release import Release
from dpjax.runner import config as _config
from dpjax.runner import fingerprint
from dpjax.runner.checks import Prepared
from dpjax.runner.folder import RELEASE, Folder, Found, check_folder, claim_folder
from dpjax.runner.outline import Outline
from dpjax.runner.pictures import write_figures
from dpjax.runner.results import Results, write_results
from dpjax.runner.seconds import WallSeconds
from dpjax.runner.work import Parts, Report, calibrate_all, fit_all


@without_private_frames
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
        config: path of a TOML file or its content (experiments/README.md explains its keys).
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
        MissingExtraError: a package that is needed is not installed.

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
    target = None if output is None else Path(output)
    if target is not None:
        for package in ("arviz", "h5netcdf", "matplotlib"):
            require(package, "writing an experiment's results")
    found, untold = Found.BEGIN, lambda _: None
    # only process 0 looks at the table and at the folder
    prints = hosts.decide(lambda: fingerprint.fingerprint(typed, base), untold)
    if target is not None:
        found = hosts.decide(
            lambda: check_folder(target, prints, resume, force), lambda value: value.value, lambda told: Found(told)
        )

    def read() -> Prepared | Outline:
        return Prepared(typed, base, None if target is None else Folder(target), found)

    prepared = hosts.decide(read, lambda plan: plan.told(), lambda told: Outline.heard(told, typed, base))
    results = Results(typed.name, _config.plain(typed))
    results.versions, results.machine = runtime.versions(), runtime.machine()
    folder: Folder | None = None  # but on process 0
    if target is not None:
        manifest = {"name": typed.name, "config": results.config, "versions": results.versions}
        folder = hosts.decide(lambda: claim_folder(target, prints, manifest, resume, force), untold)
        if found is Found.KEEP_RELEASE and hosts.first():
            warnings.warn(
                f"output {target}: its release is kept (no epsilon is spent) and everything else runs again; "
                "a new release needs another folder",
                PrivacyWarning,
                stacklevel=3,  # beyond the decorator
            )

    if typed.release is not None:
        results.release = hosts.decide(
            lambda: _release(prepared, folder), lambda published: published.to_dict(), release_again
        )
    parts = Parts(target, prepared, found is Found.GO_ON, devices, checkpoint_seconds, progress)
    wall = WallSeconds.read(None if folder is None else folder.path)
    results.wall = wall.seconds
    if prepared.fit is not None and results.release is not None:
        exact = hosts.decide(lambda: _exact(prepared, results.release))
        fit_all(prepared.fit, typed.seed, results, prepared, exact, folder, parts, wall)
    if prepared.study is not None:
        calibrate_all(prepared.study, typed.seed, results, prepared, folder, parts, wall)
    if folder is not None:
        with wall.measured("figures"):
            write_figures(results, folder)
    results.seconds = time.perf_counter() - begin
    if folder is not None:
        write_results(results, folder)
    return results


def _release(prepared: Outline, folder: Folder | None) -> Release:
    assert isinstance(prepared, Prepared)
    if prepared.drawn is not None:
        return prepared.drawn  # a second draw would spend epsilon again
    if folder is None:
        return prepared.draw()
    with files.NewFile(folder.file(RELEASE)) as file:  # what a killed run has left is gone before the next draw
        published = prepared.draw()
        file.write(files.json_text(published.to_dict()))
    return published


def _exact(prepared: Outline, published: Release | None) -> np.ndarray | None:
    """Exact sums [D] of a table that is no secret, for the methods that look at it."""
    assert isinstance(prepared, Prepared) and published is not None
    return prepared.exact(published)


__all__ = ["Results", "run"]
