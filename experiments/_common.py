"""What experiments that are Python scripts share: typed configs, checks of their values, where a table lies."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dpjax._base.files import read_toml
from dpjax.errors import InputError


def read_typed(path: str | os.PathLike, kind: type) -> Any:
    """A config of this kind (a `msgspec.Struct`).

    Raises:
        InputError: not TOML, unknown or missing keys, values of a wrong type.
    """
    import msgspec

    try:
        return msgspec.convert(read_toml(Path(path)), kind)
    except msgspec.ValidationError as error:
        raise InputError(f"config {os.fspath(path)}: {error}") from None


def check_values(path: str | os.PathLike, rows: Iterable[tuple[str, Any, str]]) -> None:
    """Refuse values of a config that are out of range.

    Args:
        path: of the config, for the message.
        rows: name of the value, whether it is good, what it must be.

    Raises:
        InputError: the first one that is not good.
    """
    for name, good, what in rows:
        if not good:
            raise InputError(f"config {os.fspath(path)}: {name} must be {what}")


def find_table(name: str, origin: str) -> Path:
    """Where a table of the experiments lies, in the folder that `DPJAX_DATA` names.

    Args:
        name: of the file.
        origin: where the original is, for the message.

    Raises:
        InputError: `DPJAX_DATA` is not set, or the file is not there.
    """
    folder = os.environ.get("DPJAX_DATA")
    if not folder:
        raise InputError(f"DPJAX_DATA is not set: it must name the folder that holds {name}; {origin}")
    path = Path(folder) / name
    if not path.is_file():
        raise InputError(f"{name} is missing in the folder that DPJAX_DATA names; {origin}")
    return path
