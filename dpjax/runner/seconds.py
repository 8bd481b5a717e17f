"""How long the methods of an experiment took, and what it did beside them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpjax._base.arrays_file import read_arrays, write_arrays

_FILE = "wall_seconds.npz"


@dataclass
class WallSeconds:
    """Wall seconds of parts of a run, by label: "posterior METHOD", "calibration METHOD", "simulation", "figures", ...

    In a folder they are kept in `parts/`, so that a resumed run knows those of what was finished before.
    """

    folder: Path | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path | None) -> WallSeconds:
        """Those of an earlier run in this folder; none if there are none, or they cannot be read."""
        made = cls(folder)
        if folder is not None:
            with contextlib.suppress(Exception):
                stored = read_arrays(folder / "parts" / _FILE)
                made.seconds = dict(zip(map(str, stored["labels"]), map(float, stored["seconds"]), strict=True))
        return made

    @contextlib.contextmanager
    def measured(self, label: str) -> Iterator[None]:
        """Time what runs inside, and keep it."""
        begin = time.perf_counter()
        yield
        self.seconds[label] = time.perf_counter() - begin
        if self.folder is not None:
            content = {"labels": np.array(list(self.seconds)), "seconds": np.array(list(self.seconds.values()))}
            write_arrays(self.folder / "parts" / _FILE, content)


def seconds_table(posteriors: Mapping[str, Any], calibrations: Mapping[str, Any], wall: Mapping[str, float]) -> str:
    """One line per method (seconds of the compiled run with its reruns, of compilation, and of everything together),
    then what belongs to no method; empty for fewer than two methods."""
    if len(posteriors) + len(calibrations) < 2:
        return ""
    body = [
        (f"{kind} {method}", item.seconds, item.compile_seconds, wall.get(f"{kind} {method}"))
        for kind, items in (("posterior", posteriors), ("calibration", calibrations))
        for method, item in items.items()
    ]
    methods = {label for label, *_ in body}
    body += [(label, None, None, seconds) for label, seconds in wall.items() if label not in methods]
    head = ("seconds", "run", "compilation", "wall")
    lines = [head, *((label, *("-" if x is None else f"{x:.2f}" for x in values)) for label, *values in body)]
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    pad = lambda line: [x.ljust(w) if i == 0 else x.rjust(w) for i, (x, w) in enumerate(zip(line, widths, strict=True))]
    return "\n".join("  ".join(pad(line)) for line in lines)
