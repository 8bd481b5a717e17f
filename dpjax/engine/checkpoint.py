"""State of a run between segments of steps, on disk, so that a killed run goes on bit for bit.

One file holds the group at work (sampler state, sums and draws so far), one each the groups that are finished. Each
carries what run it belongs to and a digest of its content, is written beside its place and moved there in one step, and
is refused when it is broken or of another run. NumPy's format and not Orbax: see experiments/benchmarks/README.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from dpjax._base import files
from dpjax._base.runtime import versions
from dpjax.engine import hosts
from dpjax.errors import InputError

#: Of the layout of these files; files of another are refused.
FORMAT = 2
#: Seconds between two checkpoints, and the largest share of the time that writing them may take.
EVERY, SHARE = 30.0, 0.05
_PACKAGES = ("dpjax", "jax", "jaxlib")


class Checkpoint:
    """Checkpoints of one run of chains.

    Args:
        folder: existing folder.
        name: start of the files' names.
        every: least seconds between two checkpoints.
        resume: go on with what lies there; otherwise it is removed.
    """

    def __init__(self, folder: Path, name: str, every: float = EVERY, resume: bool = True):
        self.folder, self.name, self.every, self.resume = folder, name, every, resume
        self._identity = ""
        self._state: tuple[int, dict[str, np.ndarray]] | None = None
        self._pending: dict[int, dict[str, np.ndarray]] = {}
        self._next = float("inf")

    def child(self, name: str) -> Checkpoint:
        """Checkpoints of a further run that belongs to this one."""
        return Checkpoint(self.folder, f"{self.name}_{name}", self.every, self.resume)

    def open(self, identity: dict[str, Any], data: Any) -> None:
        """Say which run this is, before anything is read or kept; `data`: pytree of arrays it depends on.

        Raises:
            InputError: what lies there is broken, or of another run, version or machine type.
        """
        import jax

        digest = hashlib.sha256()
        for leaf in jax.tree.leaves(data):
            digest.update(_bytes(np.asarray(leaf)))
        found = {name: text for name, text in versions().items() if name in _PACKAGES}
        device = jax.devices()[0]
        full = {"format": FORMAT, **found, "device": device.device_kind, **identity, "data": digest.hexdigest()}
        self._identity = json.dumps(full, sort_keys=True, default=str)
        self._next = time.monotonic() + self.every
        if not self.resume:
            self.discard()
            return
        state = self._read(self._path("state"))
        self._state = None if state is None else (int(state.pop("group")), state)

    def group(self, number: int) -> dict[str, np.ndarray] | None:
        """Result of a finished group, or None."""
        return self._read(self._path(f"group{number}")) if self.resume else None

    def state(self, group: int) -> dict[str, np.ndarray] | None:
        """State of the group that was at work, or None if it is another."""
        return self._state[1] if self._state is not None and self._state[0] == group else None

    def due(self) -> bool:
        """Whether it is time for a checkpoint: one decision for all processes, whose arrays it gathers."""
        return hosts.decide(lambda: time.monotonic() >= self._next)

    def keep_state(self, group: int, arrays: dict[str, np.ndarray]) -> None:
        """Write the state of the group at work, and the groups finished since the last time."""
        start = time.monotonic()
        if hosts.first():
            for number, result in self._pending.items():
                self._write(self._path(f"group{number}"), result)
            self._write(self._path("state"), {"group": np.array(group), **arrays})
        self._pending.clear()
        now = time.monotonic()
        self._next = now + max(self.every, (now - start) / SHARE)

    def keep_group(self, number: int, result: dict[str, np.ndarray]) -> None:
        """Keep the result of a finished group, to be written with the next state."""
        self._pending[number] = result

    def discard(self) -> None:
        """Remove the files: the run is done and its result is kept elsewhere."""
        if hosts.first():
            for pattern in (f"{self.name}.*.ckpt", f"{self.name}_rerun*.*.ckpt"):
                for file in self.folder.glob(pattern):
                    file.unlink(missing_ok=True)

    # ---- files -----------------------------------------------------------------------------------------------
    def _path(self, part: str) -> Path:
        return self.folder / f"{self.name}.{part}.ckpt"

    def _write(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        def write(temporary: Path) -> None:
            with open(temporary, "wb") as file:
                np.savez(file, identity=np.array(self._identity), digest=np.array(_digest(arrays)), **arrays)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())

        files.write_with(path, write, True)

    def _read(self, path: Path) -> dict[str, np.ndarray] | None:
        """A file's arrays, as process 0 sees it, on every process."""
        content = hosts.decide(lambda: path.read_bytes() if path.is_file() else None)
        if content is None:
            return None
        trouble = None
        try:
            with np.load(BytesIO(content), allow_pickle=False) as stored:
                arrays = {key: stored[key] for key in stored.files}
            identity, digest = str(arrays.pop("identity")), str(arrays.pop("digest"))
            if digest != _digest(arrays):
                trouble = "is broken (its digest does not fit)"
        except Exception as error:  # NumPy, zipfile and zlib each have their own words for a broken file
            raise InputError(_refusal(path, f"is broken ({type(error).__name__})")) from None
        if trouble is None and identity != self._identity:
            trouble = f"was written by another run or version ({_difference(identity, self._identity)})"
        if trouble is not None:
            raise InputError(_refusal(path, trouble))
        return arrays


def _refusal(path: Path, what: str) -> str:
    return f"checkpoint {path}: {what}; remove it to run this part again from its start"


def _difference(found: str, expected: str) -> str:
    """The first thing in which two identities differ."""
    try:
        old, new = json.loads(found), json.loads(expected)
    except ValueError:
        return "its description cannot be read"
    name = next((key for key in new if old.get(key) != new[key]), "format")
    if name == "data":
        return "the data differ"
    return f"{name}: {str(old.get(name))[:60]} there, {str(new.get(name))[:60]} here"


def _bytes(x: np.ndarray) -> bytes:
    return f"{x.dtype}{x.shape}".encode() + np.ascontiguousarray(x).tobytes()


def _digest(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(name.encode() + _bytes(arrays[name]))
    return digest.hexdigest()
