"""Several processes, on one machine or many, as one run: JAX's own distribution over a global mesh.

Every process runs the same program on the same problems; each computes the blocks of its own devices, and results are
gathered to all. What must be decided once (a drawn release, what lies in the output folder) is decided by process 0
and told to the others as plain data: numbers, texts, lists, mappings, bytes and arrays, never objects, since neither
end knows who else is on the line. A private table stays on process 0. Only process 0 writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import msgspec
import numpy as np

from dpjax.errors import InputError

T = TypeVar("T")
#: Seconds that a process waits for the others to start, and after which a silent one counts as dead.
WAIT, HEARTBEAT = 120, 60
#: Key of an array among plain data, and the kinds of numbers that it may hold.
_ARRAY, _NUMBERS = "$array", "biuf"
#: Hosts of a run on one machine: nobody else needs to reach its coordinator.
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


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
    # JAX's coordinator has no authentication and listens to every network of its machine unless it is told not to
    local = coordinator is not None and coordinator.rpartition(":")[0] in _LOOPBACK
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            process,
            initialization_timeout=WAIT,
            heartbeat_timeout_seconds=HEARTBEAT,
            coordinator_bind_address=coordinator if local else None,
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

    size = np.asarray(multihost_utils.broadcast_one_to_all(np.array(divmod(len(content), 2**30), np.int32)))
    buffer = np.zeros(int(size[0]) * 2**30 + int(size[1]), np.uint8)
    if first():
        buffer[:] = np.frombuffer(content, np.uint8)
    return np.asarray(multihost_utils.broadcast_one_to_all(buffer)).astype(np.uint8).tobytes()


def decide(
    function: Callable[[], T], tell: Callable[[T], Any] = lambda value: value, hear: Callable[[Any], Any] | None = None
) -> T:
    """Result of a function that only process 0 calls, on every process; its InputError too.

    Args:
        function: what process 0 does.
        tell: the part of its result that the others may know, as plain data; the result itself stays on process 0.
        hear: what the others make of that; None: they take it as it is.

    Raises:
        InputError: as the function does.
    """
    if count() == 1:
        return function()
    content = b""
    result: Any = None
    if first():
        try:
            result = function()
            content = _encoded([True, tell(result)])
        except InputError as error:
            content = _encoded([False, str(error)])
    good, value = _decoded(_tell(content))
    if not good:
        raise InputError(value)
    if first():
        return result
    return value if hear is None else hear(value)


def _encoded(value: Any) -> bytes:
    """Plain data as MessagePack.

    Raises:
        TypeError: something else than plain data.
    """
    return msgspec.msgpack.encode(value, enc_hook=_of_array)


def _of_array(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in _NUMBERS:
        return {_ARRAY: [value.dtype.str, list(value.shape), value.tobytes()]}
    raise TypeError(f"no plain form for {type(value).__name__}")


def _decoded(content: bytes) -> Any:
    """The inverse of `_encoded`; it can make nothing but plain data.

    Raises:
        InputError: it is not such a message.
    """
    try:
        return _with_arrays(msgspec.msgpack.decode(content))
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError):
        raise InputError("what process 0 said cannot be read: do all processes run the same version?") from None


def _with_arrays(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_arrays(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() != {_ARRAY}:
        return {key: _with_arrays(item) for key, item in value.items()}
    kind, shape, content = value[_ARRAY]
    kind = np.dtype(str(kind))
    if kind.kind not in _NUMBERS:
        raise ValueError(f"an array of {kind}")
    return np.frombuffer(content, kind).reshape(shape).copy()
