"""Output files: never overwritten without being asked, complete or absent, JSON without NaN."""

from __future__ import annotations

import json
import math
import os
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpjax._base.new_file import PREFIX, NewFile, check_output, check_regular, publish
from dpjax.errors import InputError

FIGURES = (".png", ".pdf", ".svg")


def check_figure(path: str | os.PathLike) -> str:
    """Format of a figure's file by its suffix.

    Raises:
        InputError: another suffix than those of `FIGURES`.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FIGURES:
        raise InputError(f"figure {path}: the file's name must end in {', '.join(FIGURES[:-1])} or {FIGURES[-1]}")
    return suffix.lstrip(".")


def write_with(path: str | os.PathLike, writer: Callable[[Path], Any], force: bool = False) -> Path:
    """Let `writer(temporary_path)` write a file beside `path`, then move it there in one step.

    A reader sees the old file, no file or the whole new file. Without `force` the last step fails when the
    file has appeared in the meantime.

    Raises:
        InputError: as `check_output`, or the folder cannot be written to.
    """
    path = check_output(path, force)
    try:
        # private to the owner until it is whole; a name of its own, as libraries lock the files that they write
        handle, name = tempfile.mkstemp(prefix=PREFIX, suffix=path.suffix, dir=path.parent)
    except OSError as error:
        raise InputError(f"output {path}: cannot write to the folder ({error.strerror})") from error
    os.close(handle)
    temporary = Path(name)
    try:
        writer(temporary)
        publish(temporary, path, force)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def write_text(path: str | os.PathLike, text: str, force: bool = False) -> Path:
    """Write UTF-8 text to a `NewFile`; raises as that does."""
    with NewFile(path, force) as file:
        file.write(text)
    return Path(path)


def write_json(path: str | os.PathLike, value: Any, force: bool = False) -> Path:
    """Write JSON with `write_text`, as `json_text`."""
    return write_text(path, json_text(value), force)


def json_text(value: Any) -> str:
    """Content of a JSON file; NaN and infinities become null, arrays become lists."""
    return to_json(value) + "\n"


def to_json(value: Any) -> str:
    """JSON text (two spaces of indent) of nested mappings, sequences, NumPy arrays and numbers."""
    return json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=False)


def plain(value: Any) -> Any:
    """The same value in types that strict JSON knows: NaN and infinities become None.

    Raises:
        TypeError: a type that has no obvious JSON form.
    """
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "__array__"):  # JAX arrays
        return plain(np.asarray(value))
    raise TypeError(f"no JSON form for {type(value).__name__}")


def read_toml(path: Path, what: str = "") -> dict[str, Any]:
    """Content of a TOML file.

    Args:
        path: the file.
        what: put before the path in an error ("config ").

    Raises:
        InputError: it cannot be read or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{what}{path}: cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{what}{path}: is not TOML: {error}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{what}{path}: is not TOML that can be read: a number or a nesting beyond limits") from None


__all__ = [
    "FIGURES",
    "NewFile",
    "check_figure",
    "check_output",
    "check_regular",
    "json_text",
    "plain",
    "read_toml",
    "to_json",
    "write_json",
    "write_text",
    "write_with",
]
