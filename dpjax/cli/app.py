"""The command `dpjax`. Help and bad options are answered without loading JAX.

Exit codes: 0 done; 1 a result is not to be trusted (it is written and marked); 2 bad usage or input, nothing written;
3 internal error; 130 interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dpjax._base.pipes import tolerant_output
from dpjax._base.private_frames import DEBUG_VARIABLE
from dpjax._base.version import VERSION
from dpjax.cli import loading, messages
from dpjax.cli.calibrate import calibrate
from dpjax.cli.failures import failed
from dpjax.cli.fit import fit
from dpjax.cli.messages import INTERRUPTED, OK
from dpjax.cli.predict import predict
from dpjax.cli.progress import BAR
from dpjax.cli.release import check, release
from dpjax.cli.run import precompile, run

app = typer.Typer(
    name="dpjax",
    help="Noise-aware Bayesian inference from differentially private statistics.",
    epilog="Each command's --help has an example. Exit codes: 0 done; 1 a result is not to be trusted; 2 bad usage "
    "or input, nothing written; 3 internal error.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> bool:
    if wanted:
        print(f"dpjax {VERSION}")
        raise typer.Exit()
    return wanted


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)
    ] = False,
    load: Annotated[
        list[Path] | None,
        typer.Option("--load", metavar="FILE.py", help="Run this file first: it registers a family of its own."),
    ] = None,
) -> None:
    for file in load or ():
        loading.load_python(file)


for _command in (release, check, predict, run, precompile, fit, calibrate):
    app.command()(_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    Args:
        arguments: without the program's name; those of the process if None.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    arguments = [text for text in arguments if text != "--debug"]
    before = os.environ.get(DEBUG_VARIABLE)
    if debug:
        os.environ[DEBUG_VARIABLE] = "1"  # also where no argument reaches: exceptions keep what they hold
    try:
        with tolerant_output():
            return _run(arguments, debug)
    finally:
        if debug:
            os.environ.pop(DEBUG_VARIABLE)
            if before is not None:
                os.environ[DEBUG_VARIABLE] = before


def _run(arguments: list[str], debug: bool) -> int:
    try:
        with messages.shown_warnings(BAR), _terminated():
            command = typer.main.get_command(app)
            code = command.main(args=arguments, prog_name="dpjax", standalone_mode=False)
        if code == INTERRUPTED:  # Typer turns a KeyboardInterrupt into this code
            raise KeyboardInterrupt
        return code if isinstance(code, int) else OK
    except BaseException as error:  # the one place where every error becomes a line and a code
        BAR.clear()
        return failed(error, debug, _command_of(arguments))


def _command_of(arguments: Sequence[str]) -> str | None:
    """The command among these arguments; None if there is none."""
    names = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    return next((text for text in arguments if text in names), None)


class _terminated:
    """SIGTERM as an interruption, so that temporary files are removed."""

    def __enter__(self) -> None:
        self.before: Any = None
        try:
            self.before = signal.signal(signal.SIGTERM, self._raise)
        except ValueError:
            pass  # not the main thread

    def __exit__(self, *problem: object) -> None:
        if self.before is not None:
            signal.signal(signal.SIGTERM, self.before)

    @staticmethod
    def _raise(number: int, frame: Any) -> None:
        raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
