"""From the texts of options to values."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dpjax.errors import InputError

T = TypeVar("T")


def parse_names(option: str, text: str) -> list[str]:
    """`A,B` as a list of names."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise InputError(f"{option} must be names separated by commas; got {text!r}")
    return names


def parse_labels(option: str, texts: Sequence[str]) -> list[str]:
    """Labels from one list `A,B`, in which quotes protect a comma, or from an option that is repeated, each time with
    one label as it is."""
    if len(texts) > 1:
        return [text.strip() for text in texts]
    try:
        labels = [label.strip() for label in next(csv.reader([texts[0]], strict=True, skipinitialspace=True), [])]
    except csv.Error:
        labels = []
    if not labels or not all(labels):
        raise InputError(f"{option} must be texts separated by commas (quotes protect one); got {texts[0]!r}")
    return labels


def parse_codes(option: str, texts: Sequence[str]) -> list[str] | dict[str, list[str]]:
    """Values for all columns, or `NAME=VALUE` for each."""
    named = [text for text in texts if "=" in text]
    if not named:
        return list(texts)
    if len(named) < len(texts):
        raise InputError(f"{option} must be VALUE, for all columns, or NAME=VALUE throughout; got {texts[0]!r}")
    found: dict[str, list[str]] = {}
    for text in named:
        name, _, value = text.rpartition("=")
        found.setdefault(name.strip(), []).append(value)
    return found


def number_or_text(text: str) -> float | str:
    """A number if it is one."""
    try:
        return float(text)
    except ValueError:
        return text


def parse_pair(option: str, text: str) -> tuple[float, float]:
    """`lo:hi` as two numbers."""
    parts = text.split(":")
    try:
        low, high = (float(part) for part in parts)
    except ValueError:
        raise InputError(f"{option} must be two numbers lo:hi; got {text!r}") from None
    return low, high


def parse_assignments(option: str, texts: Sequence[str], value: str) -> dict[str, str]:
    """Options `NAME=...` as a mapping; `value` says what stands behind the sign."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, rest = text.rpartition("=")
        if not (equals and name.strip()):
            raise InputError(f"{option} must look like NAME={value}; got {text!r}")
        if name.strip() in found:
            raise InputError(f"{option} names {name.strip()!r} twice")
        found[name.strip()] = rest
    return found


def parse_bounds(texts: Sequence[str], option: str = "--bounds") -> dict[str, tuple[float, float]]:
    """`NAME=lo:hi` options as a mapping."""
    pairs = parse_assignments(option, texts, "lo:hi")
    return {name: parse_pair(f"{option} of {name!r}", pair) for name, pair in pairs.items()}


def parse_family_options(texts: Sequence[str], option: str = "--option") -> dict[str, Any]:
    """`NAME=VALUE` options of a family: numbers, or lists of whole numbers separated by commas."""
    return {
        name: _option_value(f"{option} {name}", text)
        for name, text in parse_assignments(option, texts, "VALUE").items()
    }


def _option_value(option: str, text: str) -> float | list[int]:
    try:
        return [whole_number(part) for part in text.split(",")] if "," in text else float(text)
    except (ValueError, OverflowError):
        raise InputError(f"{option} must be a number, or whole numbers separated by commas; got {text!r}") from None


def parse_path(option: str, text: str) -> Path:
    """The path of a file."""
    return Path(text)


def parse_norms(option: str, text: str) -> dict[str, float]:
    """`X,Y` as the bounds on |features| and |target|."""
    try:
        longest, largest = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option} must be two numbers X,Y; got {text!r}") from None
    return {"features": longest, "target": largest}


def parse_whole_numbers(option: str, text: str) -> list[int]:
    """`0,1` as a list of whole numbers."""
    return parse_several(option, [text], whole_number, "whole numbers separated by commas")


def parse_several(option: str, texts: Sequence[str], kind: Callable[[str], T], what: str) -> list[T]:
    """Values of an option that may be repeated or hold a comma-separated list."""
    values = []
    for text in texts:
        for part in text.split(","):
            try:
                values.append(kind(part.strip()))
            except ValueError:
                raise InputError(f"{option} must be {what}; got {part.strip()!r}") from None
    if len(set(values)) < len(values):
        raise InputError(f"{option} names a value twice")
    return values


def whole_number(text: str) -> int:
    """A whole number, also written as 1e6."""
    try:
        return int(text)
    except ValueError:
        value = float(text)
        if not value.is_integer():
            raise ValueError(text) from None
        return int(value)
