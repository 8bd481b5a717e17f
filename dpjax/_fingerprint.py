"""Hashes by which a folder of results knows the config that made it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from dpjax.errors import InputError

#: Keys that were added after folders had been made, with their defaults.
LATER = {
    "moments": False, "moments_share": None, "intercept": True, "parties": 1, "squares": None, "norms": None,
    "averaged": None,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Fingerprints:
    """Hashes by which a folder knows its config. release: of [data], [release] and the public files they name; it
    decides whether a release that was drawn is still the one that is wanted. whole: of everything."""

    whole: str
    release: str


def without_later_keys(content: dict[str, Any]) -> dict[str, Any]:
    """The config without keys that came later and are at their default: folders made before them must stay known, or
    their releases would be drawn and paid for again."""
    for name in ("release", "calibration"):
        part = content[name]
        if part is not None:
            content[name] = {key: part[key] for key in part if key not in LATER or part[key] != LATER[key]}
    return content


def hash_of(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def file_hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
