"""Paths of outputs, checked before any work."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from dpjax._base.files import check_figure
from dpjax._base.new_file import check_output
from dpjax.errors import InputError


def check_outputs(
    outputs: Sequence[Path | None], inputs: Sequence[Path], force: bool, figures: Sequence[Path | None] = ()
) -> None:
    """Check every path that will be written, figures among them, before any work.

    Raises:
        InputError: as `check_output` and `check_figure`; two outputs are one file, or an output is an input.
    """
    seen: set[Path] = set()
    for path in figures:
        if path is not None:
            check_figure(path)
    for path in (*outputs, *figures):
        if path is None:
            continue
        real = Path(os.path.realpath(path))  # it does not fail where links go in circles
        if real in {Path(os.path.realpath(item)) for item in inputs}:
            raise InputError(f"output {path}: is an input of this command")
        if real in seen:
            raise InputError(f"output {path}: is named twice")
        seen.add(real)
        check_output(path, force)
