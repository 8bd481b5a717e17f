"""Hashes by which a folder of results knows the config that made it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec

from dpjax.errors import InputError

#: Keys that were added after folders had been made, with their defaults.
LATER = {
    "moments": False, "moments_share": None, "intercept": True, "parties": 1, "squares": None, "norms": None,
    "averaged": None, "accept": False, "separator": None, "decimal": None, "encoding": None, "missing": None,
    "missing_codes": None, "impute": None,
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
    content = _without_later_keys(msgspec.to_builtins(config))
    data, section = config.data, config.release
    sources = [section.file] if section is not None and section.file is not None else []
    if data is not None and data.data_is_public and data.csv is not None:
        sources.append(data.csv)
    sections = (config.fit, config.calibration)
    priors = [section.prior for section in sections if section is not None and isinstance(section.prior, str)]
    drawn = [content["data"], content["release"], *(_file_hash(folder / name) for name in sources)]
    whole = [content, drawn, *(_file_hash(folder / name) for name in priors)]
    private = data is not None and data.csv is not None and not data.data_is_public
    table = _hash(str((folder / str(data.csv)).resolve())) if data is not None and private else None
    return Fingerprints(_hash(whole), _hash(drawn), table)


def _without_later_keys(content: dict[str, Any]) -> dict[str, Any]:
    """The config without keys that came later and are at their default: folders made before them must stay known, or
    their releases would be drawn and paid for again."""
    for name in ("data", "release", "calibration"):
        part = content[name]
        if part is not None:
            content[name] = {key: part[key] for key in part if key not in LATER or part[key] != LATER[key]}
    return content


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _file_hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
