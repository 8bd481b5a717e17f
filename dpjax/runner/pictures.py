"""Pictures of an experiment's results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dpjax.calibration.ranks import Ranks
from dpjax.calibration.result import Calibration
from dpjax.figures.posteriors import posteriors_figure
from dpjax.figures.ranks import calibration_figure
from dpjax.figures.study import (
    coverage_figure,
    ks_figure,
    mmd_figure,
    parameters_of,
    seconds_by_records,
    seconds_figure,
)
from dpjax.figures.style import save_figure
from dpjax.figures.traces import traces_figure
from dpjax.runner.folder import Folder
from dpjax.runner.results import Results


def write_figures(results: Results, folder: Folder) -> None:
    """Pictures, from the parts; drawn again when a run is resumed, since they are derived; so for
    `dpjax.runner.results.write_results`."""
    if results.posteriors:
        save_figure(posteriors_figure(results.posteriors), folder.file("posteriors.png"), True)
        save_figure(traces_figure(results.posteriors), folder.file("traces.png"), True)
    for name, figure in calibration_figures(results.calibrations):
        save_figure(figure, folder.file(f"calibration_{name}.png"), True)
    for name, figure in study_figures(results.calibrations):
        save_figure(figure, folder.file(f"{name}.png"), True)


def cell_name(records: int, epsilon: float) -> str:
    """Name of a calibration cell in file names."""
    return f"n{records}_eps{epsilon:g}"


def calibration_figures(calibrations: Mapping[str, Calibration]):
    """(name of the cell, QQ and ECDF figure of all methods) for every cell that has usable trials."""
    if not calibrations:
        return
    names = parameters_of(calibrations)
    for number, cell in enumerate(next(iter(calibrations.values())).cells):
        ranks: dict[str, Ranks] = {method: item.ranks[number] for method, item in calibrations.items()}
        pit = {method: _of_all(item, names) for method, item in ranks.items() if len(item.pit)}
        if pit:
            records, epsilon = cell["records"], cell["epsilon"]
            yield cell_name(records, epsilon), calibration_figure(pit, names, records=records, epsilon=epsilon)


def _of_all(ranks: Ranks, names: Sequence[str]) -> np.ndarray:
    """Randomised ranks of these parameters `[M, K]`, NaN for those that the method does not report."""
    wide = np.full((len(ranks.pit), len(names)), np.nan)
    wide[:, [names.index(name) for name in ranks.names]] = ranks.pit
    return wide


def study_figures(calibrations: Mapping[str, Calibration]):
    """("ks", "coverage", "mmd" or "seconds", figure over all cells) where there are several cells to compare."""
    if not calibrations or len(next(iter(calibrations.values())).cells) < 2:
        return
    yield "ks", ks_figure(calibrations)
    yield "coverage", coverage_figure(calibrations)
    if any(cell["mmd"] is not None for item in calibrations.values() for cell in item.cells):
        yield "mmd", mmd_figure(calibrations)
    seconds = {method: seconds_by_records(item) for method, item in calibrations.items()}
    if len({n for values in seconds.values() for n in values}) > 1:
        yield "seconds", seconds_figure(seconds)


__all__ = ["calibration_figures", "cell_name", "study_figures", "write_figures"]
