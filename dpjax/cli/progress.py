"""The bar of progress, and what commands that use JAX do first."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import Any


class Bar:
    """One line of progress, redrawn in place between segments of steps; silent when the stream is no terminal."""

    def __init__(self, stream: Any = None, width: int = 20):
        self.stream = sys.stderr if stream is None else stream
        self.width = width
        self.shown = False
        self.active = self.stream.isatty()
        self.label = ""
        self.begin, self.done = 0.0, 0

    def __call__(self, label: str, progress: Any) -> None:
        """Show how far the job `label` is (`dpjax.engine.run.Progress`)."""
        if not self.active:
            return
        now = time.monotonic()
        if label != self.label:
            self.label, self.begin, self.done = label, now, progress.done
        share = min(progress.done / max(progress.total, 1), 1.0)
        full = int(self.width * share)
        parts = [f"{label[:24]:<24} [{'#' * full}{'.' * (self.width - full)}] {share:4.0%}"]
        if now > self.begin and progress.done > self.done:
            rate = (progress.done - self.done) / (now - self.begin)
            parts.append(f"ETA {_clock((progress.total - progress.done) / rate)}")
            parts.append(f"{_short(rate)} steps/s")
        if progress.rhat is not None:
            parts.append(f"R-hat {progress.rhat:.2f}")
        if progress.ess is not None:
            parts.append(f"ESS {progress.ess:.0f}")
        columns = shutil.get_terminal_size((100, 24)).columns - 1
        self.stream.write("\r" + "  ".join(parts)[:columns].ljust(columns))
        self.stream.flush()
        self.shown = True

    def labelled(self, label: str) -> Callable[[Any], None]:
        """The same bar as a callback of the progress alone."""
        return lambda progress: self(label, progress)

    def clear(self) -> None:
        """Wipe the bar's line."""
        if self.shown:
            columns = shutil.get_terminal_size((100, 24)).columns - 1
            self.stream.write("\r" + " " * columns + "\r")
            self.stream.flush()
            self.shown = False


#: The bar of the process.
BAR = Bar()


def prepare(devices: int | None, platform: str | None, quiet: bool) -> None:
    """What commands that use JAX do first.

    Raises:
        InputError: the devices asked for are not there.
    """
    from dpjax._base.runtime import check_devices, prepare_jax

    BAR.active = BAR.active and not quiet
    prepare_jax(devices, platform)
    if devices is not None or platform is not None:
        check_devices(devices, platform)


def _clock(seconds: float) -> str:
    """Time left: 0:07, 12:30, 3:05:00."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _short(rate: float) -> str:
    """A rate with a unit: 870, 12k, 3.4M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if rate >= size:
            return f"{rate / size:.1f}{unit}"
    return f"{rate:.0f}"
