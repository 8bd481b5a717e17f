"""Parsing of option values, the progress bar and how problems are shown: one line each, on standard error."""

from __future__ import annotations

import os
import shutil
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from dpjax._files import check_figure, check_output
from dpjax.errors import ConvergenceWarning, InputError, ModelWarning, PrivacyWarning

DEBUG_VARIABLE = "DPJAX_DEBUG"
#: Keys of JAX are made from 32 bits, and a few numbers are added to a seed.
LARGEST_SEED = 2**31 - 1
#: Exit codes.
OK, NOT_TRUSTED, BAD_INPUT, INTERNAL, INTERRUPTED = 0, 1, 2, 3, 130
T = TypeVar("T")

Force = Annotated[bool, typer.Option("--force", help="Overwrite output files.")]
Seed = Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of everything random.")]
Prior = Annotated[
    Path | None, typer.Option("--prior", metavar="TOML", help="Prior, in the units of the release (scaled if it is).")
]
Chains = Annotated[int, typer.Option(help="Chains per problem.")]
Draws = Annotated[int, typer.Option(help="Draws kept per chain.")]
Method = Annotated[
    str | None,
    typer.Option(
        help="exact, collapsed, gibbs, gibbs-literal, naive; of a regression also prior, noisy, plug-in, wishart, "
        "wishart-bounded, individual; in simulations also naive-untruncated, non-private, ops. Default: exact "
        "where the "
        "model has one parameter, noisy for a release with moments, else collapsed."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No line of progress (there is none but on a terminal).")]
Devices = Annotated[int | None, typer.Option(min=1, help="Devices to use; on CPU one per core if not given.")]
Platform = Annotated[str | None, typer.Option(metavar="cpu|gpu|tpu", help="Where to run; JAX's choice if not given.")]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write every number printed.")]


def one_line(text: Any) -> str:
    """Text without line breaks."""
    return " ".join(str(text).split())


def complain(kind: str, message: Any) -> None:
    """One line on standard error."""
    print(f"{kind}: {one_line(message)}", file=sys.stderr, flush=True)


# ---- values --------------------------------------------------------------------------------------------------
def parse_names(option: str, text: str) -> list[str]:
    """`A,B` as a list of names."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise InputError(f"{option} must be names separated by commas; got {text!r}")
    return names


def parse_pair(option: str, text: str) -> tuple[float, float]:
    """`lo:hi` as two numbers."""
    parts = text.split(":")
    try:
        low, high = (float(part) for part in parts)
    except ValueError:
        raise InputError(f"{option} must be two numbers lo:hi; got {text!r}") from None
    return low, high


def parse_assignments(option: str, texts: Sequence[str], value: str) -> dict[str, str]:
    """Options `NAME=...` as a mapping; `value` says what stands behind the sign."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, rest = text.rpartition("=")
        if not (equals and name.strip()):
            raise InputError(f"{option} must look like NAME={value}; got {text!r}")
        if name.strip() in found:
            raise InputError(f"{option} names {name.strip()!r} twice")
        found[name.strip()] = rest
    return found


def parse_bounds(texts: Sequence[str], option: str = "--bounds") -> dict[str, tuple[float, float]]:
    """`NAME=lo:hi` options as a mapping."""
    pairs = parse_assignments(option, texts, "lo:hi")
    return {name: parse_pair(f"{option} of {name!r}", pair) for name, pair in pairs.items()}


def parse_family_options(texts: Sequence[str], option: str = "--option") -> dict[str, Any]:
    """`NAME=VALUE` options of a family: numbers, or lists of whole numbers separated by commas."""
    return {
        name: _option_value(f"{option} {name}", text)
        for name, text in parse_assignments(option, texts, "VALUE").items()
    }


def _option_value(option: str, text: str) -> float | list[int]:
    try:
        return [whole_number(part) for part in text.split(",")] if "," in text else float(text)
    except (ValueError, OverflowError):
        raise InputError(f"{option} must be a number, or whole numbers separated by commas; got {text!r}") from None


def parse_several(option: str, texts: Sequence[str], kind: Callable[[str], T], what: str) -> list[T]:
    """Values of an option that may be repeated or hold a comma-separated list."""
    values = []
    for text in texts:
        for part in text.split(","):
            try:
                values.append(kind(part.strip()))
            except ValueError:
                raise InputError(f"{option} must be {what}; got {part.strip()!r}") from None
    if len(set(values)) < len(values):
        raise InputError(f"{option} names a value twice")
    return values


def whole_number(text: str) -> int:
    """A whole number, also written as 1e6."""
    try:
        return int(text)
    except ValueError:
        value = float(text)
        if not value.is_integer():
            raise ValueError(text) from None
        return int(value)


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


# ---- outputs -------------------------------------------------------------------------------------------------
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
        real = path.resolve()
        if real in {item.resolve() for item in inputs}:
            raise InputError(f"output {path}: is an input of this command")
        if real in seen:
            raise InputError(f"output {path}: is named twice")
        seen.add(real)
        check_output(path, force)


# ---- progress and warnings -----------------------------------------------------------------------------------
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
        """Show how far the job `label` is (`dpjax.engine.Progress`)."""
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
    from dpjax._runtime import check_devices, prepare_jax

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


@contextmanager
def shown_warnings(bar: Bar) -> Iterator[None]:
    """Our warnings as single lines, each text once; those of other packages are not the user's business."""
    seen: set[str] = set()

    def show(message, category, filename, lineno, file=None, line=None):
        text = one_line(message)
        if text not in seen:
            seen.add(text)
            bar.clear()
            complain("warning", text)

    with warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.simplefilter("ignore")
            for category in (PrivacyWarning, ConvergenceWarning, ModelWarning):
                warnings.simplefilter("always", category)
        warnings.showwarning = show
        yield


def report_internal_error(error: BaseException, debug: bool) -> None:
    """Say that dpjax failed. The exception's own text may hold data, so that only its kind and place are shown."""
    if debug or os.environ.get(DEBUG_VARIABLE, "").strip().lower() not in ("", "0", "false", "no"):
        traceback.print_exception(error)
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith(str(Path(__file__).parent) + os.sep):
            place = f" in {Path(frame.filename).name}, line {frame.lineno}"
    complain(
        "internal error",
        f"{type(error).__name__}{place}; nothing is known to be wrong with your input: run again with "
        f"{DEBUG_VARIABLE}=1 for the traceback (it may show data) and report it",
    )
