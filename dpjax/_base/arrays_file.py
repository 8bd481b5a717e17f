"""Arrays by name in one file of NumPy's, with a digest; nothing in it is ever unpickled."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from dpjax._base import files
from dpjax._base.seal import check_seal, seal


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write the file in one step, in place of one that may be there."""
    content = dict(arrays)

    def write(temporary: Path) -> None:
        np.savez_compressed(temporary, **content)
        seal(temporary)

    files.write_with(path, write, True)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of `write_arrays`; files of earlier versions have no digest, and are read.

    Raises:
        InputError: the file has changed since it was written.
        Exception: NumPy, zipfile and zlib each have their own words for a broken file.
    """
    with open(path, "rb") as file:
        check_seal(file)
        content = BytesIO(file.read())
    with np.load(content, allow_pickle=False) as stored:
        return {key: stored[key] for key in stored.files}


__all__ = ["read_arrays", "write_arrays"]
