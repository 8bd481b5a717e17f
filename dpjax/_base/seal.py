"""A digest at the end of a file, by which any change of its bytes is noticed before anything reads them.

The formats that are sealed (HDF5, zip) find their beginning and their end themselves, so that other programs read the
files as they are. The digest is no signature: who means to deceive can make one that fits.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

from dpjax.errors import InputError

_MARK = b"\ndpjax sha256 "
_LENGTH = len(_MARK) + 64 + 1
_BLOCK = 2**20


def seal(path: Path) -> None:
    """Append the digest of a file to it, and wait until it is on the disk."""
    with open(path, "r+b") as file:
        digest = _digest(file, os.fstat(file.fileno()).st_size)
        file.seek(0, os.SEEK_END)
        file.write(_MARK + digest.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def check_seal(file: BinaryIO) -> bool:
    """Whether a file has a digest, which then fits; its position is at the beginning afterwards.

    Raises:
        InputError: the digest does not fit.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _LENGTH))
    end = file.read(_LENGTH)
    file.seek(0)
    if len(end) < _LENGTH or not end.startswith(_MARK):
        return False
    found = _digest(file, size - _LENGTH)
    file.seek(0)
    if end != _MARK + found.encode() + b"\n":
        raise InputError("has changed since it was written (its digest does not fit)")
    return True


def _digest(file: BinaryIO, size: int) -> str:
    digest = hashlib.sha256()
    file.seek(0)
    while size > 0 and (block := file.read(min(size, _BLOCK))):
        digest.update(block)
        size -= len(block)
    return digest.hexdigest()


__all__ = ["check_seal", "seal"]
