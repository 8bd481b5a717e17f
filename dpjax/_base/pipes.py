"""Output to a reader that may stop reading (`dpjax check release.json | head -1`), or is a terminal, which would take
control characters for commands."""

from __future__ import annotations

import os
import sys
from typing import Any

from dpjax._base.visible import visible


class _Output:
    """A text stream whose reader may go away: what is written after that goes nowhere, and the command carries on, so
    that its files are written and its exit code is its own. Control characters are shown and not sent."""

    def __init__(self, stream: Any):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(self._writable(visible(text)))
        except BrokenPipeError:
            self._discard()
            return len(text)

    def _writable(self, text: str) -> str:
        """What the stream's encoding does not have is shown as Python writes it, instead of failing."""
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        return text.encode(encoding, "backslashreplace").decode(encoding)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._discard()

    def _discard(self) -> None:
        # the stream still holds text, which Python writes at its end
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


class tolerant_output:
    """Within, standard output and standard error may lose their readers without an error."""

    def __enter__(self) -> None:
        self._before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = (stream and _Output(stream) for stream in self._before)

    def __exit__(self, *problem: object) -> None:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, _Output):
                stream.flush()
        sys.stdout, sys.stderr = self._before
