"""Files of Python that a user has run before a command."""

from __future__ import annotations

import traceback
from pathlib import Path

from dpjax.errors import InputError


def load_python(path: Path) -> None:
    """Run a Python file of the user's, for what it registers (`dpjax.families.register`).

    Raises:
        InputError: it cannot be read, or fails; with the kind of its error and the line.
    """
    import runpy

    if not path.is_file():
        raise InputError(f"--load {path}: there is no such file")
    try:
        runpy.run_path(str(path))
    except InputError as error:
        raise InputError(f"--load {path}: {error}") from None
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        place = f", line {lines[-1]}" if lines else ""
        raise InputError(f"--load {path}{place}: {type(error).__name__}: {error}") from None
