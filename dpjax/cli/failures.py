"""What a command says when it fails, and its exit code."""

from __future__ import annotations

from typing import Any

import typer

from dpjax._base.visible import one_line
from dpjax.cli import messages
from dpjax.cli.messages import BAD_INPUT, INTERNAL, INTERRUPTED, NOT_TRUSTED
from dpjax.errors import ConvergenceError, InputError, MissingExtraError

#: How to go on after an interruption.
AFTER_INTERRUPTION = {
    "run": "; dpjax run goes on with --resume",
    "fit": "; fit starts from the beginning (a [fit] of dpjax run can be resumed)",
    "calibrate": "; calibrate starts from the beginning (a [calibration] of dpjax run can be resumed)",
}


def failed(error: BaseException, debug: bool, command: str | None = None) -> int:
    """Say what went wrong in one line; the exit code.

    Args:
        error: what ended the command.
        debug: show the traceback of an internal error.
        command: name of the command.
    """
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        goes_on = AFTER_INTERRUPTION.get(command or "", "")
        messages.complain("interrupted", f"nothing half-written is left behind{goes_on}")
        return INTERRUPTED
    if isinstance(error, InputError | MissingExtraError):
        messages.complain("error", error)
        return BAD_INPUT
    if isinstance(error, messages.OURS):  # python -W error
        messages.complain("error", f"{error} (a warning, which python -W error makes an error: nothing is written)")
        return BAD_INPUT
    if isinstance(error, MemoryError):
        messages.complain("error", "the sizes asked for need more memory than there is")
        return BAD_INPUT
    if isinstance(error, ConvergenceError):
        messages.complain("error", error)
        return NOT_TRUSTED
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # Typer's, whichever Click it brings
        context: Any = getattr(error, "ctx", None)
        place = f" (dpjax {context.info_name} --help)" if context is not None and context.parent else " (dpjax --help)"
        messages.complain("error", one_line(error.format_message()).rstrip(".") + place)
        return BAD_INPUT
    if isinstance(error, OSError) and error.strerror:
        name = f"{error.filename}: " if error.filename else ""
        messages.complain("error", f"{name}{error.strerror}")
        return BAD_INPUT
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else INTERNAL
    messages.report_internal_error(error, debug)
    return INTERNAL
