"""The folder of an experiment: what lies there, when it may be written to, and the parts that a resumed run reads.

`run.json` says which config the folder belongs to and is written first. `parts/` holds the arrays behind every
finished posterior and calibration, so that an interrupted run goes on where it stopped and figures can be redrawn.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dpjax._base import files
from dpjax._base.arrays_file import read_arrays, write_arrays
from dpjax.calibration.ranks import Ranks
from dpjax.calibration.result import Calibration
from dpjax.errors import InputError, PrivacyWarning
from dpjax.inference.posterior import Posterior
from dpjax.inference.posterior_file import unpack
from dpjax.inference.posterior_state import pack
from dpjax.releases.file import read_json
from dpjax.runner.fingerprint import Fingerprints
from dpjax.statistics.base import Statistic

T = TypeVar("T")
MANIFEST, RELEASE = "run.json", "release.json"
_TABLE = "table_sha256"
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
        text, arrays = pack(posterior)
        self._keep(f"posterior_{method}", text, arrays)

    def calibration(self, method: str) -> Calibration | None:
        """A calibration that was finished before, or None."""
        return self._load(f"calibration_{method}", unpack_calibration)

    def keep_calibration(self, method: str, calibration: Calibration) -> None:
        """Store a finished calibration."""
        text, arrays = pack_calibration(calibration)
        self._keep(f"calibration_{method}", text, arrays)

    def _keep(self, name: str, text: str, arrays: dict[str, np.ndarray]) -> None:
        write_arrays(self.path / "parts" / f"{name}.npz", {"meta": np.array(text), **arrays})

    def _load(self, name: str, build: Callable[[str, dict[str, np.ndarray]], T]) -> T | None:
        path = self.path / "parts" / f"{name}.npz"
        if not path.exists():
            return None
        try:
            arrays = read_arrays(path)
            return build(str(arrays.pop("meta")), arrays)
        except Exception as error:  # NumPy, zipfile and zlib each have their own words for a broken file
            raise InputError(
                f"{path}: cannot be read ({type(error).__name__}); remove it to run that part again"
            ) from None


def _posterior(statistic: Statistic, text: str, arrays: dict[str, np.ndarray]) -> Posterior:
    return unpack(text, arrays, statistic=statistic)  # folders of earlier versions do not hold it


def pack_calibration(calibration: Calibration) -> tuple[str, dict[str, np.ndarray]]:
    """JSON text and arrays of a calibration; `unpack_calibration` gives back the same one."""
    arrays: dict[str, np.ndarray] = {}
    for i, ranks in enumerate(calibration.ranks):
        arrays |= {f"fractions_{i}": ranks.fractions, f"pit_{i}": ranks.pit}
    meta = {f.name: getattr(calibration, f.name) for f in fields(Calibration) if f.name != "ranks"}
    meta["names"] = calibration.ranks[0].names
    meta["thinned"] = [ranks.thinned for ranks in calibration.ranks]
    return json.dumps(meta, default=_builtin), arrays


def unpack_calibration(text: str, arrays: Mapping[str, np.ndarray]) -> Calibration:
    """The calibration that `pack_calibration` took apart."""
    meta = json.loads(text)
    names, thinned = tuple(meta.pop("names")), meta.pop("thinned")
    ranks = [Ranks(names, arrays[f"fractions_{i}"], arrays[f"pit_{i}"], count) for i, count in enumerate(thinned)]
    return Calibration(ranks=ranks, **meta)


def check_folder(path: Path, prints: Fingerprints, resume: bool, force: bool) -> Found:
    """Check, before any work and without writing, that a run may use this folder, and say how.

    A release that was drawn for the same [data] and [release] is kept, whatever else has changed, also with `force`.

    Raises:
        InputError: it is a file, its parent does not exist, it holds something else, the release of a table at another
            place, or another run's results and neither `force` nor a fitting `resume` is given.
    """
    if path.exists() and not path.is_dir():
        raise InputError(f"output {path}: is a file, a folder is needed")
    if not path.exists():
        if not _nearest(path).is_dir():
            raise InputError(f"output {path}: {_nearest(path)} is not a folder")
        return Found.BEGIN
    if not any(path.iterdir()):
        return Found.BEGIN
    _check_inside(path)
    if not (path / MANIFEST).is_file():
        raise InputError(f"output {path}: the folder is not empty and holds no results of dpjax run")
    if not (resume or force):
        raise InputError(f"output {path}: holds results; use --resume to go on with them or --force to start again")
    found = _manifest(path / MANIFEST)
    drawn = (path / RELEASE).exists()
    if drawn and found.get("release_sha256") == prints.release:
        _check_table(path, prints, found)
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


def _check_inside(path: Path) -> None:
    """Refuse what is not where it seems: files that are replaced or removed must be regular, and lie in the folder.

    Raises:
        InputError: something is no regular file, or a link that leads out of the folder.
    """
    if (path / "parts").is_symlink():
        raise InputError(f"output {path}: its parts/ is a link, and files behind it are never removed; remove the link")
    for pattern in _OWN:
        for file in path.glob(pattern):
            files.check_regular(file, f"output {path}: {file.name} in it")


def _check_table(path: Path, prints: Fingerprints, found: Mapping[str, Any]) -> None:
    """Refuse the release of a private table that lies elsewhere than the one that is named now by the same words."""
    if prints.table is None:
        return
    if _TABLE not in found:
        warnings.warn(
            f"output {path}: an earlier version made it, which did not note where its table lies: that its release is "
            "of this table is known from the number of records and the bounds alone",
            PrivacyWarning,
            stacklevel=2,
        )
    elif found[_TABLE] != prints.table:
        raise InputError(
            f"output {path}: holds the release of a table at another place than the one that data.csv leads to now; "
            f"use another folder, with this one's {RELEASE} as release.file if it is the same table"
        )


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
            content = {
                **manifest,
                "config_sha256": prints.whole,
                "release_sha256": prints.release,
                _TABLE: prints.table,
            }
            files.write_json(path / MANIFEST, content, True)
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
