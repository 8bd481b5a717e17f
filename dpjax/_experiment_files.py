"""The folder of an experiment: what lies there, when it may be written to, and the parts that a resumed run reads.

`run.json` says which config the folder belongs to and is written first. `parts/` holds the arrays behind every
finished posterior and calibration, so that an interrupted run goes on where it stopped and figures can be redrawn.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dpjax import _files
from dpjax._fingerprint import Fingerprints
from dpjax._release_file import read_json
from dpjax.calibration import Calibration
from dpjax.calibration_statistics import Ranks
from dpjax.errors import InputError
from dpjax.posterior import Posterior
from dpjax.statistics import Statistic

T = TypeVar("T")
MANIFEST, RELEASE = "run.json", "release.json"
_OWN = (
    MANIFEST,
    RELEASE,
    "posterior_*.nc",
    "summary_*.json",
    "posteriors.png",
    "traces.png",
    "ks.png",
    "mmd.png",
    "coverage.png",
    "seconds.png",
    "calibration_*.json",
    "calibration_*.png",
    "results.json",
    "results.txt",
    "parts/*.npz",
    "parts/*.ckpt",
)


class Found(Enum):
    """What a run does with its folder: begin (nothing there, or all of it is removed), go on with what lies there, or
    keep only the release, since what was drawn from a private table must not be paid for twice."""

    BEGIN = "begin"
    GO_ON = "go on"
    KEEP_RELEASE = "keep release"


class Folder:
    """An output folder that was checked and claimed for one config."""

    def __init__(self, path: Path):
        self.path = path

    def file(self, name: str) -> Path:
        """Path of a file in the folder."""
        return self.path / name

    # ---- parts -----------------------------------------------------------------------------------------------
    def posterior(self, method: str, statistic: Statistic) -> Posterior | None:
        """A posterior given a release of this statistic that was finished before, or None.

        Raises:
            InputError: its file is broken; so for `calibration`.
        """
        return self._load(f"posterior_{method}", partial(_posterior, statistic))

    def keep_posterior(self, method: str, posterior: Posterior) -> None:
        """Store a finished posterior."""
        arrays = {
            name: np.asarray(getattr(posterior, name))
            for name in ("draws", "codes", "prior_draws")
            if getattr(posterior, name) is not None
        }
        apart = {"statistic", *arrays}  # the statistic is the release's
        meta = {f.name: getattr(posterior, f.name) for f in fields(Posterior) if f.name not in apart}
        self._store(f"posterior_{method}", meta, arrays)

    def calibration(self, method: str) -> Calibration | None:
        """A calibration that was finished before, or None."""
        return self._load(f"calibration_{method}", _calibration)

    def keep_calibration(self, method: str, calibration: Calibration) -> None:
        """Store a finished calibration."""
        arrays: dict[str, np.ndarray] = {}
        for i, ranks in enumerate(calibration.ranks):
            arrays |= {f"fractions_{i}": ranks.fractions, f"pit_{i}": ranks.pit}
        meta = {f.name: getattr(calibration, f.name) for f in fields(Calibration) if f.name != "ranks"}
        meta["names"] = calibration.ranks[0].names
        meta["thinned"] = [ranks.thinned for ranks in calibration.ranks]
        self._store(f"calibration_{method}", meta, arrays)

    def _store(self, name: str, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        text = json.dumps(meta, default=_builtin)
        content: dict[str, Any] = {"meta": np.array(text), **arrays}
        _files.write_with(self.path / "parts" / f"{name}.npz", lambda file: np.savez_compressed(file, **content), True)

    def _load(self, name: str, build: Callable[[dict[str, Any], dict[str, np.ndarray]], T]) -> T | None:
        path = self.path / "parts" / f"{name}.npz"
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as stored:
                arrays = {key: stored[key] for key in stored.files}
            return build(json.loads(str(arrays.pop("meta"))), arrays)
        except Exception as error:  # NumPy, zipfile and zlib each have their own words for a broken file
            raise InputError(
                f"{path}: cannot be read ({type(error).__name__}); remove it to run that part again"
            ) from None


def _posterior(statistic: Statistic, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> Posterior:
    meta["names"] = tuple(meta["names"])
    stored_fields: dict[str, Any] = {**meta, **arrays}
    return Posterior(statistic=statistic, **stored_fields)


def _calibration(meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> Calibration:
    names, thinned = tuple(meta.pop("names")), meta.pop("thinned")
    ranks = [Ranks(names, arrays[f"fractions_{i}"], arrays[f"pit_{i}"], count) for i, count in enumerate(thinned)]
    return Calibration(ranks=ranks, **meta)


def check_folder(path: Path, prints: Fingerprints, resume: bool, force: bool) -> Found:
    """Check, before any work and without writing, that a run may use this folder, and say how.

    A release that was drawn for the same [data] and [release] is kept, whatever else has changed, also with `force`.

    Raises:
        InputError: it is a file, its parent does not exist, it holds something else, or another run's results and
            neither `force` nor a fitting `resume` is given.
    """
    if path.exists() and not path.is_dir():
        raise InputError(f"output {path}: is a file, a folder is needed")
    if not path.exists():
        if not _nearest(path).is_dir():
            raise InputError(f"output {path}: {_nearest(path)} is not a folder")
        return Found.BEGIN
    if not any(path.iterdir()):
        return Found.BEGIN
    if not (path / MANIFEST).is_file():
        raise InputError(f"output {path}: the folder is not empty and holds no results of dpjax run")
    if not (resume or force):
        raise InputError(f"output {path}: holds results; use --resume to go on with them or --force to start again")
    found = _manifest(path / MANIFEST)
    drawn = (path / RELEASE).exists()
    if resume and found.get("config_sha256") == prints.whole:
        return Found.GO_ON
    if drawn and found.get("release_sha256") == prints.release:
        return Found.KEEP_RELEASE
    if force:
        return Found.BEGIN
    if drawn:
        raise InputError(
            f"output {path}: holds the release of another table, [data] or [release]; use another folder, "
            "or --force to remove it"
        )
    raise InputError(f"output {path}: was made with another config; use another folder, or --force to start again")


def claim_folder(path: Path, prints: Fingerprints, manifest: dict[str, Any], resume: bool, force: bool) -> Folder:
    """Make the folder ready; what `check_folder` does not go on with is removed first."""
    found = check_folder(path, prints, resume, force)
    try:
        (path / "parts").mkdir(parents=True, exist_ok=True)
        if found is not Found.GO_ON:
            kept = (MANIFEST, RELEASE) if found is Found.KEEP_RELEASE else (MANIFEST,)
            for pattern in _OWN:
                for file in path.glob(pattern):
                    if file.name not in kept:
                        file.unlink()
            # last, and in one step: interrupted before, the folder still belongs to the old config
            content = {**manifest, "config_sha256": prints.whole, "release_sha256": prints.release}
            _files.write_json(path / MANIFEST, content, True)
    except OSError as error:
        raise InputError(f"output {path}: cannot be written to ({error.strerror})") from None
    return Folder(path)


def _manifest(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path)
    except InputError:
        return {}
    return content if isinstance(content, dict) else {}


def _nearest(path: Path) -> Path:
    """The closest parent that exists."""
    return next(parent for parent in path.absolute().parents if parent.exists())


def _builtin(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"no JSON form for {type(value).__name__}")
