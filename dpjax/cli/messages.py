"""Exit codes, and how problems are shown: one line each, on standard error."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpjax._base.private_frames import DEBUG_VARIABLE, debugging
from dpjax._base.visible import one_line
from dpjax.cli.progress import Bar
from dpjax.errors import ConvergenceWarning, ModelWarning, PrivacyWarning

#: Exit codes.
OK, NOT_TRUSTED, BAD_INPUT, INTERNAL, INTERRUPTED = 0, 1, 2, 3, 130
#: Warnings that are about what the user did.
OURS: tuple[type[UserWarning], ...] = (PrivacyWarning, ConvergenceWarning, ModelWarning)


def complain(kind: str, message: Any) -> None:
    """One line on standard error."""
    print(f"{kind}: {one_line(message)}", file=sys.stderr, flush=True)


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
            for own in OURS:
                warnings.simplefilter("always", own)
        else:  # python -W error is about our warnings: an error for those of other packages would stop every command
            for action, message, category, module, _ in reversed(list(warnings.filters)):
                if (action, message, module) == ("error", None, None):
                    warnings.simplefilter("ignore", category)
                    for own in OURS:
                        if issubclass(own, category):
                            warnings.simplefilter("error", own)
        warnings.showwarning = show
        yield


def report_internal_error(error: BaseException, debug: bool) -> None:
    """Say that dpjax failed. The exception's own text may hold data, so that only its kind and place are shown."""
    if debug or debugging():
        traceback.print_exception(error)
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith(str(Path(__file__).parents[1]) + os.sep):
            place = f" in {Path(frame.filename).name}, line {frame.lineno}"
    complain(
        "internal error",
        f"{type(error).__name__}{place}; nothing is known to be wrong with your input: run again with "
        f"{DEBUG_VARIABLE}=1 for the traceback (it may show data) and report it",
    )
