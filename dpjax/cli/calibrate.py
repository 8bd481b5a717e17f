"""The command `dpjax calibrate`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dpjax.cli import messages, outputs, progress, values
from dpjax.cli.messages import NOT_TRUSTED, OK
from dpjax.cli.options import Chains, Devices, Draws, Force, Json, Method, Platform, Prior, Quiet, Seed, Thin
from dpjax.cli.progress import BAR
from dpjax.errors import InputError
from dpjax.statistics.kinds import kinds


def calibrate(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help=f"{', '.join(kinds())}; not with --like.", show_default=False)
    ] = None,
    records: Annotated[
        list[str] | None, typer.Option(metavar="N", help="Records; repeat or separate with commas.")
    ] = None,
    epsilon: Annotated[
        list[str] | None, typer.Option(metavar="E", help="Epsilon; repeat or separate with commas.")
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(
            metavar="RELEASE.json",
            help="Releases like this one: its model, bounds, scaling, noise, records and epsilon, and fit's prior.",
        ),
    ] = None,
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
    truth: Annotated[
        Path | None,
        typer.Option(metavar="TOML", help="Law of the true parameters, or fixed values, in place of the prior."),
    ] = None,
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
      dpjax calibrate --like release.json --trials 300
    """
    if like is None:
        for name, value in (("MODEL", model), ("--records", records), ("--epsilon", epsilon)):
            if value is None or value == []:
                raise InputError(f"calibrate needs {name}, or --like RELEASE.json")
    sizes = values.parse_several("--records", records or [], values.whole_number, "whole numbers")
    budgets = values.parse_several("--epsilon", epsilon or [], float, "numbers")
    pair = None if bounds is None else values.parse_pair("--bounds", bounds)
    chosen = values.parse_family_options(option or [])
    if like is not None:
        from dpjax.releases.release import Release

        made = Release.load(like)
        sizes = sizes or [made.records]
        if not budgets:
            if made.privacy is None:
                raise InputError("--epsilon is missing: the release does not state it")
            budgets = [made.privacy.epsilon]
    pictures = _pictures(figure, sizes, budgets)
    inputs = [path for path in (prior, truth, like) if path is not None]
    outputs.check_outputs([json], inputs, force, [*pictures.values()])
    progress.prepare(devices, platform, quiet)
    if figure is not None:
        from dpjax.errors import require

        require("matplotlib", "drawing figures")
    from dpjax._base import files as _files
    from dpjax.calibration.study import calibrate as run_study

    study = run_study(
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
        truth=truth,
        like=like,
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
        from dpjax.figures.style import save_figure
        from dpjax.runner.pictures import calibration_figures

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
    from dpjax.inference.methods import METHODS

    for sentence in doubts:
        messages.complain("warning", sentence)
    return NOT_TRUSTED if doubts and not METHODS[method].reference else OK
