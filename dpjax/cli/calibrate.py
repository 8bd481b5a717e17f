"""The command `dpjax calibrate`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from dpjax.calibration.options import StudyOptions
from dpjax.cli import messages, outputs, progress, values
from dpjax.cli.from_options import FromText, takes
from dpjax.cli.messages import NOT_TRUSTED, OK
from dpjax.cli.options import Devices, Force, Json, Method, Platform, Quiet, Seed
from dpjax.cli.progress import BAR
from dpjax.errors import InputError
from dpjax.statistics.kinds import kinds

#: How values of a study's options are written.
STUDY_TEXTS = {
    "records": FromText(partial(values.parse_several, kind=values.whole_number, what="whole numbers"), several=True),
    "epsilon": FromText(partial(values.parse_several, kind=float, what="numbers"), several=True),
    "like": FromText(values.parse_path),
    "bounds": FromText(values.parse_pair),
    "options": FromText(lambda flag, texts: values.parse_family_options(texts, flag), several=True, flag="option"),
    "released": FromText(values.parse_whole_numbers),
    "prior": FromText(values.parse_path),
    "truth": FromText(values.parse_path),
    "norms": FromText(values.parse_norms),
}


@takes(
    StudyOptions,
    STUDY_TEXTS,
    following={"model": ("records", "epsilon", "like", "trials", "method")},
    without=("model",),
)
def calibrate(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help=f"{', '.join(kinds())}; not with --like.", show_default=False)
    ] = None,
    *,
    method: Method = None,
    chosen: dict[str, Any],
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
    sizes, budgets, like = chosen["records"], chosen["epsilon"], chosen["like"]
    if like is None:
        for name, value in (("MODEL", model), ("--records", sizes), ("--epsilon", budgets)):
            if value is None:
                raise InputError(f"calibrate needs {name}, or --like RELEASE.json")
    if like is not None:
        from dpjax.releases.release import Release

        made = Release.load(like)
        sizes = sizes or [made.records]
        if not budgets:
            if made.privacy is None:
                raise InputError("--epsilon is missing: the release does not state it")
            budgets = [made.privacy.epsilon]
        chosen |= {"records": sizes, "epsilon": budgets}
    pictures = _pictures(figure, sizes, budgets)
    inputs = [path for path in (chosen["prior"], chosen["truth"], like) if path is not None]
    outputs.check_outputs([json], inputs, force, [*pictures.values()])
    progress.prepare(devices, platform, quiet)
    if figure is not None:
        from dpjax.errors import require

        require("matplotlib", "drawing figures")
    from dpjax._base import files as _files
    from dpjax.calibration.study import calibrate as run_study

    study = run_study(
        model,
        **chosen,
        method=method,
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
