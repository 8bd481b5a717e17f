"""What is wrong with the keys and types of a config, in words of its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

import msgspec

from dpjax.errors import InputError


def check_keys(content: Any, section: Any, place: str = "") -> None:
    """Refuse unknown and missing keys, before types are looked at.

    Args:
        content: of a table of the file.
        section: its type, a `msgspec.Struct`.
        place: path of the table; empty for the whole file.

    Raises:
        InputError: the first such key, by its path.
    """
    if not isinstance(content, Mapping):
        return  # its type is wrong
    path = lambda name: f"{place}.{name}" if place else name
    fields = {field.name: field for field in msgspec.structs.fields(section)}
    hints = get_type_hints(section)
    for name, value in content.items():
        if name not in fields:
            raise InputError(f"unknown key {path(name)}", where=path(name))
        for inner, each in _sections(hints[name]):
            several = list(value.values()) if each and isinstance(value, Mapping) else []
            for table in several if each else [value]:
                check_keys(table, inner, f"{path(name)}.*" if each else path(name))
    for name, field in fields.items():
        if field.required and name not in content:
            raise InputError(f"{path(name)} is missing", where=path(name))


def _sections(hint: Any) -> list[tuple[type, bool]]:
    """The types of tables in the type of a key, and whether the key holds a table of such tables."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return [(hint, False)]
    if getattr(hint, "__origin__", None) is dict:
        return [(inner, True) for inner, each in _sections(get_args(hint)[1]) if not each]
    return [found for part in get_args(hint) for found in _sections(part)]


def readable(error: msgspec.ValidationError) -> str:
    """A wrong type in msgspec's words, the path of the key in front."""
    text, _, place = str(error).partition(" - at ")
    place = place.strip("`").removeprefix("$").lstrip(".").replace("[...]", ".*")
    text = text.replace("`", "'").replace("object", "table")
    return f"{place}: {text}" if place else text
