"""Hashes by which a folder of results knows the config that made it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec

from dpjax._base.options import options_of
from dpjax.errors import InputError

#: Keys that folders have always had, by section. A later one is left out where it is at its default: folders made
#: before it must stay known, or their releases would be drawn and paid for again. So this list is never changed.
FIRST: dict[str, frozenset[str]] = {
    "data": frozenset(("csv", "builtin", "data_is_public")),
    "release": frozenset((
        "file", "model", "target", "features", "bounds", "rule", "categories", "labels", "released", "options",
        "epsilon", "delta", "mechanism", "adjacency",
    )),
    "calibration": frozenset((
        "records", "epsilon", "model", "trials", "methods", "features", "bounds", "rule", "categories", "released",
        "options", "mechanism", "delta", "sensitivity", "prior", "simulate", "clip", "chains", "draws", "thin",
        "stream", "mmd", "chains_per_batch", "method",
    )),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Fingerprints:
    """Hashes by which a folder knows its config. release: of [data], [release] and the public files they name; it
    decides whether a release that was drawn is still the one that is wanted. whole: of everything. table: of where a
    private table lies, links followed, since the same relative path may lead to another table; None for no such table.
    """

    whole: str
    release: str
    table: str | None = None


def fingerprint(config: Any, folder: Path) -> Fingerprints:
    """Hashes of the config and of the public files it names, the table too if it is public.

    The content of a private table is left out: its hash would tell who guesses the table that the guess is right.
    Where it lies is a hash of its own, so that the other two are those of earlier versions.

    Raises:
        InputError: one of the files cannot be read.
    """
    content = msgspec.to_builtins(config)
    for name, first in FIRST.items():
        if content[name] is not None:
            content[name] = _without_later_keys(content[name], getattr(config, name), first)
    data, section = config.data, config.release
    sources = [section.file] if section is not None and section.file is not None else []
    if data is not None and data.data_is_public and data.csv is not None:
        sources.append(data.csv)
    fit, study = config.fit, config.calibration
    named = [None if fit is None else fit.prior]
    named += [] if study is None else [study.prior, study.truth, study.like]
    drawn = [content["data"], content["release"], *(_file_hash(folder / name) for name in sources)]
    whole = [content, drawn, *(_file_hash(folder / name) for name in named if isinstance(name, str))]
    private = data is not None and data.csv is not None and not data.data_is_public
    table = _hash(str((folder / str(data.csv)).resolve())) if data is not None and private else None
    return Fingerprints(_hash(whole), _hash(drawn), table)


def _without_later_keys(content: dict[str, Any], section: msgspec.Struct, first: frozenset[str]) -> dict[str, Any]:
    """The content of a section without keys that came later and are at their default."""
    usual = {name: one.default for name, one in options_of(type(section)).items()}
    return {key: value for key, value in content.items() if key in first or getattr(section, key) != usual[key]}


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _file_hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
