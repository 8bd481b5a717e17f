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

from dpjax.errors import InputError


def check_output(path: str | os.PathLike, force: bool = False) -> Path:
    """Check that a file may be written, before the work whose result goes there.

    Raises:
        InputError: the folder does not exist or cannot be written to, the path is a folder, or the file exists and
            `force` is false.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"output {path}: is a folder, a file name is needed")
    if not path.parent.is_dir():
        raise InputError(f"output {path}: the folder {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"output {path}: the folder {path.parent} cannot be written to")
    if os.path.lexists(path) and not force:
        raise InputError(f"output {path}: the file exists; use --force (force=True) to overwrite it")
    return path


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
        handle, name = tempfile.mkstemp(prefix=".dpjax-", suffix=path.suffix, dir=path.parent)
    except OSError as error:
        raise InputError(f"output {path}: cannot write to the folder ({error.strerror})") from error
    os.close(handle)
    temporary = Path(name)
    try:
        writer(temporary)
        # mkstemp makes the file private to the owner; an output has the usual permissions
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        if force:
            os.replace(temporary, path)
        else:
            _move_new(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def write_text(path: str | os.PathLike, text: str, force: bool = False) -> Path:
    """Write UTF-8 text with `write_with`."""
    return write_with(path, lambda temporary: temporary.write_text(text, encoding="utf-8"), force)


def write_json(path: str | os.PathLike, value: Any, force: bool = False) -> Path:
    """Write JSON with `write_with`; NaN and infinities become null, arrays become lists."""
    return write_text(path, to_json(value) + "\n", force)


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


def _move_new(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)  # fails if the file exists, which os.replace does not
    except FileExistsError as error:
        raise InputError(f"output {path}: the file exists; use --force (force=True) to overwrite it") from error
    except OSError:  # a file system without hard links: a short gap between check and move remains
        check_output(path)
        os.replace(temporary, path)


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
