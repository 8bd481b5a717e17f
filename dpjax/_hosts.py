"""Several processes, on one machine or many, as one run: JAX's own distribution over a global mesh.

Every process runs the same program on the same problems; each computes the blocks of its own devices, and results are
gathered to all. What must be decided once (a drawn release, what lies in the output folder) is decided by process 0
and told to the others. Only process 0 writes.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from .errors import InputError

T = TypeVar("T")
#: Seconds that a process waits for the others to start, and after which a silent one counts as dead.
WAIT, HEARTBEAT = 120, 60


def initialize(coordinator: str | None = None, processes: int | None = None, process: int | None = None) -> None:
    """Join the run, before any other use of JAX; under SLURM and on TPU pods all three may be left out.

    Args:
        coordinator: HOST:PORT of process 0.
        processes: number of processes.
        process: number of this one, from 0.

    Raises:
        InputError: only some of them are given, they do not fit together, or the processes do not find each other.
    """
    given = [value is not None for value in (coordinator, processes, process)]
    if any(given) and not all(given):
        raise InputError("coordinator, processes and process belong together: give all three, or none under SLURM")
    if all(given):
        assert coordinator is not None and processes is not None and process is not None
        host, colon, port = coordinator.rpartition(":")
        if not (host and colon and port.isdigit() and 1 <= int(port) <= 65535):
            raise InputError(f"coordinator must be HOST:PORT with a port from 1 to 65535; got {coordinator!r}")
        if processes < 1 or not 0 <= process < processes:
            raise InputError(f"process must lie in 0..processes - 1; got process {process} of {processes}")
    try:
        jax.distributed.initialize(
            coordinator, processes, process, initialization_timeout=WAIT, heartbeat_timeout_seconds=HEARTBEAT
        )
    except (RuntimeError, ValueError) as error:
        if not any(given):
            raise InputError(
                "distributed: no SLURM or other cluster that JAX knows; give coordinator, processes and process"
            ) from None
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"the processes of a distributed run do not find each other: {text}") from None


def count() -> int:
    """Number of processes."""
    return jax.process_count()


def first() -> bool:
    """Whether this is the process that writes."""
    return jax.process_index() == 0


def fetch(tree: Any) -> Any:
    """Arrays spread over devices as NumPy arrays, whole, on every process."""
    if count() == 1:
        return jax.tree.map(np.asarray, tree)
    from jax.experimental import multihost_utils

    def one(x):
        return np.asarray(x if x.is_fully_addressable else multihost_utils.process_allgather(x, tiled=True))

    return jax.tree.map(one, tree)


def _tell(content: bytes) -> bytes:
    """What process 0 says, on every process; collective, so every process must call it."""
    from jax.experimental import multihost_utils

    size = multihost_utils.broadcast_one_to_all(np.array([len(content)], np.int32))
    buffer = np.zeros(int(np.asarray(size)[0]), np.uint8)
    if first():
        buffer[:] = np.frombuffer(content, np.uint8)
    return np.asarray(multihost_utils.broadcast_one_to_all(buffer)).astype(np.uint8).tobytes()


def decide(function: Callable[[], T]) -> T:
    """Result of a function that only process 0 calls, on every process; its InputError too.

    Raises:
        InputError: as the function does.
    """
    if count() == 1:
        return function()
    content = b""
    if first():
        try:
            content = pickle.dumps((True, function()))
        except InputError as error:
            content = pickle.dumps((False, str(error)))
    good, value = pickle.loads(_tell(content))  # from our own process 0
    if not good:
        raise InputError(value)
    return value
