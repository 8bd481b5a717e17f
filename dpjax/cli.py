"""The command `dpjax`. Help and bad options are answered without loading JAX.

Exit codes: 0 done; 1 a result is not to be trusted (it is written and marked); 2 bad usage or input, nothing written;
3 internal error; 130 interrupted.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dpjax import _cli_options as options
from dpjax._cli_options import (
    BAD_INPUT,
    BAR,
    INTERNAL,
    INTERRUPTED,
    NOT_TRUSTED,
    OK,
    Chains,
    Devices,
    Draws,
    Force,
    Json,
    Method,
    Platform,
    Prior,
    Quiet,
    Seed,
)
from dpjax._cli_predict import predict
from dpjax._cli_release import check, release
from dpjax._cli_run import precompile, run
from dpjax.errors import ConvergenceError, InputError, MissingExtraError
from dpjax.kinds import kinds

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

Figure = Annotated[Path | None, typer.Option("--figure", metavar="FILE", help="Write a picture: .png, .pdf or .svg.")]
Thin = Annotated[int | None, typer.Option(help="Keep every n-th step; the default depends on the method.")]


def _version(wanted: bool) -> bool:
    if wanted:
        import dpjax

        print(f"dpjax {dpjax.__version__}")
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
        options.load_python(file)


for _command in (release, check, predict, run, precompile):
    app.command()(_command)


@app.command()
def fit(
    releases: Annotated[
        list[Path], typer.Argument(metavar="RELEASE.json", help="A release file, or a folder of them.")
    ],
    method: Method = None,
    prior: Prior = None,
    chains: Chains = 4,
    draws: Draws = 1000,
    thin: Thin = None,
    seed: Seed = 0,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="NC", help="Write the draws as NetCDF, for ArviZ.")
    ] = None,
    json: Json = None,
    figure: Figure = None,
    force: Force = False,
    devices: Devices = None,
    platform: Platform = None,
    quiet: Quiet = False,
) -> int:
    """Posterior given a release, the noise accounted for; or given those of several parties, files or a folder.

    \b
    Example:
      dpjax fit release.json --output posterior.nc --json summary.json
      dpjax fit hospitals/ --output posterior.nc
    """
    from dpjax.errors import require
    from dpjax.parties import load_parties, release_files

    files = release_files(releases)
    options.check_outputs([output, json], [*files, *([prior] if prior else [])], force, [figure])
    read = load_parties(files)  # before JAX is loaded: a bad file is said at once
    options.prepare(devices, platform, quiet)
    if output is not None:
        for package in ("arviz", "h5netcdf"):
            require(package, "report", "saving a posterior")
    if figure is not None:
        require("matplotlib", "report", "drawing figures")
    import dpjax
    from dpjax import _files
    from dpjax._report import describe_prior

    posterior = dpjax.fit(
        read,
        method=method,
        prior=prior,
        chains=chains,
        draws=draws,
        thin=thin,
        seed=seed,
        devices=devices,
        progress=BAR.labelled(f"fit {method or read[0].kind}"),
    )
    BAR.clear()
    print(describe_prior(posterior.prior, prior is not None, posterior.scaling is not None))
    print(f"\n{posterior.table()}")
    if posterior.scaling is not None:
        print(f"\n{posterior.table(scaled=True)}")
    print(f"\n{posterior.seconds:.2f} s, compilation {posterior.compile_seconds or 0.0:.1f} s")
    if output is not None:
        posterior.save(output, force)
    if json is not None:
        _files.write_json(json, posterior.summary(), force)
    if figure is not None:
        from dpjax.figures import posteriors_figure, save_figure

        save_figure(posteriors_figure({posterior.method: posterior}), figure, force)
    return NOT_TRUSTED if posterior.warnings() else OK


@app.command()
def calibrate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=f"{', '.join(kinds())}.")],
    records: Annotated[list[str], typer.Option(metavar="N", help="Records; repeat or separate with commas.")],
    epsilon: Annotated[list[str], typer.Option(metavar="E", help="Epsilon; repeat or separate with commas.")],
    trials: Annotated[int, typer.Option(help="Simulated data sets per combination.")] = 300,
    method: Method = None,
    features: Annotated[int | None, typer.Option(help="Features of a regression (1 if not given).")] = None,
    bounds: Annotated[
        str | None,
        typer.Option(
            metavar="lo:hi",
            help="Bounds; they set the sensitivity. Of every variable of a regression (-1:1 if not given); of the "
            "records of an unbounded family (the middle 95% at the centre of the prior if not given).",
        ),
    ] = None,
    rule: Annotated[
        str | None, typer.Option(help="clamp (default) or redact: records outside the bounds of an unbounded family.")
    ] = None,
    categories: Annotated[int | None, typer.Option(metavar="K", help="Categories of a multinomial.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Option of the family, such as shape=2 of gamma; may be repeated."),
    ] = None,
    mechanism: Annotated[str, typer.Option(help="laplace, discrete-laplace (counts) or gaussian.")] = "laplace",
    delta: Annotated[float | None, typer.Option(help="Of gaussian noise, which needs it.")] = None,
    sensitivity: Annotated[
        float | None, typer.Option(help="Replaces the statistic's own (16/3 for a regression with one feature).")
    ] = None,
    prior: Prior = None,
    simulate: Annotated[
        str, typer.Option(help="exact or clt; with --moments also normal, uniform or skewed: the law of the features.")
    ] = "exact",
    clip: Annotated[bool, typer.Option("--clip", help="Clip the records of a regression to the bounds.")] = False,
    moments: Annotated[
        bool,
        typer.Option("--moments", help="Methods noisy and plug-in get moments of the features of degree 3 and 4 too."),
    ] = False,
    moments_share: Annotated[
        float | None, typer.Option(help="Share of epsilon that the moments get, inside (0, 1); 0.5 if left out.")
    ] = None,
    intercept: Annotated[
        bool, typer.Option("--intercept/--no-intercept", help="Without: regressions through the origin.")
    ] = True,
    parties: Annotated[int, typer.Option(metavar="J", help="Parties that share the records evenly.")] = 1,
    squares: Annotated[
        bool | None,
        typer.Option("--squares/--no-squares", help="Without an intercept: release the target's squares too."),
    ] = None,
    chains: Chains = 2,
    draws: Draws = 500,
    thin: Thin = None,
    stream: Annotated[bool, typer.Option("--stream", help="Keep running sums instead of draws.")] = False,
    seed: Seed = 0,
    json: Json = None,
    figure: Annotated[
        Path | None,
        typer.Option("--figure", metavar="FILE", help="QQ and ECDF picture (one per combination): .png, .pdf or .svg."),
    ] = None,
    force: Force = False,
    devices: Devices = None,
    platform: Platform = None,
    quiet: Quiet = False,
) -> int:
    """Simulate from the prior, infer, and test whether the truth's ranks are uniform.

    \b
    Example:
      dpjax calibrate linear-regression --records 100,1000 --epsilon 0.1 \\
        --trials 300 --method collapsed --json calibration.json
      dpjax calibrate exponential --records 1000 --epsilon 0.1 --rule redact
    """
    sizes = options.parse_several("--records", records, options.whole_number, "whole numbers")
    budgets = options.parse_several("--epsilon", epsilon, float, "numbers")
    pair = None if bounds is None else options.parse_pair("--bounds", bounds)
    chosen = options.parse_family_options(option or [])
    pictures = _pictures(figure, sizes, budgets)
    options.check_outputs([json], [prior] if prior else [], force, [*pictures.values()])
    options.prepare(devices, platform, quiet)
    if figure is not None:
        from dpjax.errors import require

        require("matplotlib", "report", "drawing figures")
    import dpjax
    from dpjax import _files

    study = dpjax.calibrate(
        model,
        records=sizes,
        epsilon=budgets,
        trials=trials,
        method=method,
        features=features,
        bounds=pair,
        rule=rule,
        categories=categories,
        options=chosen,
        mechanism=mechanism,
        delta=delta,
        sensitivity=sensitivity,
        prior=prior,
        simulate=simulate,
        clip=clip,
        moments=moments,
        moments_share=moments_share,
        intercept=intercept,
        parties=parties,
        squares=squares,
        chains=chains,
        draws=draws,
        thin=thin,
        stream=stream,
        seed=seed,
        devices=devices,
        progress=BAR.labelled(f"calibrate {method or model}"),
    )
    BAR.clear()
    print(study.table())
    if json is not None:
        _files.write_json(json, study.to_dict(), force)
    if figure is not None:
        from dpjax.experiment import calibration_figures
        from dpjax.figures import save_figure

        for name, drawn in calibration_figures({study.method: study}):
            save_figure(drawn, pictures[name], force)
    return _doubted(study.method, study.warnings())


def _pictures(figure: Path | None, records: Sequence[int], epsilon: Sequence[float]) -> dict[str, Path]:
    """Path of the picture of every cell: the given one, or with the cell's name when there are several."""
    if figure is None:
        return {}
    cells = [f"n{n}_eps{e:g}" for n in records for e in epsilon]
    if len(cells) == 1:
        return {cells[0]: figure}
    return {cell: figure.with_name(f"{figure.stem}_{cell}{figure.suffix}") for cell in cells}


def _doubted(method: str, doubts: Sequence[str]) -> int:
    """Show doubts about convergence; a method run for comparison does not set the exit code."""
    from dpjax.methods import METHODS

    for sentence in doubts:
        options.complain("warning", sentence)
    return NOT_TRUSTED if doubts and not METHODS[method].reference else OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    Args:
        arguments: without the program's name; those of the process if None.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    arguments = [text for text in arguments if text != "--debug"]
    try:
        with options.shown_warnings(BAR), _terminated():
            command = typer.main.get_command(app)
            code = command.main(args=arguments, prog_name="dpjax", standalone_mode=False)
        if code == INTERRUPTED:  # Typer turns a KeyboardInterrupt into this code
            raise KeyboardInterrupt
        sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except BaseException as error:  # the one place where every error becomes a line and a code
        BAR.clear()
        return failed(error, debug)


def failed(error: BaseException, debug: bool) -> int:
    """Say what went wrong in one line; the exit code."""
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        options.complain("interrupted", "nothing half-written is left behind; dpjax run goes on with --resume")
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        sys.stdout = None  # type: ignore[assignment]  # the reader is gone
        return OK
    if isinstance(error, InputError | MissingExtraError):
        options.complain("error", error)
        return BAD_INPUT
    if isinstance(error, ConvergenceError):
        options.complain("error", error)
        return NOT_TRUSTED
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # Typer's, whichever Click it brings
        context: Any = getattr(error, "ctx", None)
        place = f" (dpjax {context.info_name} --help)" if context is not None and context.parent else " (dpjax --help)"
        options.complain("error", options.one_line(error.format_message()).rstrip(".") + place)
        return BAD_INPUT
    if isinstance(error, OSError) and error.strerror:
        name = f"{error.filename}: " if error.filename else ""
        options.complain("error", f"{name}{error.strerror}")
        return BAD_INPUT
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else INTERNAL
    options.report_internal_error(error, debug)
    return INTERNAL


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
