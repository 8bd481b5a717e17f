"""Figures of a whole study: calibration and distance to the non-private posterior against records, and traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from dpjax.calibration import Calibration
from dpjax.errors import InputError, require
from dpjax.figures import GREY, chosen_names, legend_line, method_looks, new_figure, place_legend
from dpjax.posterior import Posterior

#: Draws per chain that a trace shows.
TRACE_DRAWS = 500
# within this the MMD's axis is linear: the unbiased estimate may be negative
_MMD_LINEAR = 1e-3


def ks_figure(calibrations: Mapping[str, Calibration], *, parameters: Sequence[str] | None = None):
    """KS distance of the ranks from uniformity against records (S4 Figure 4.2): one panel per epsilon and parameter.

    One line per method; the dashed line is the 5% critical value of a single test.

    Args:
        calibrations: method name -> Calibration over the same cells.
        parameters: names to show, one row each; all by default.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        InputError: nothing to show, methods over different cells, an unknown parameter.
        MissingExtraError: matplotlib is not installed.
    """
    cells = _same_cells(calibrations)
    first = next(iter(calibrations.values()))
    names = chosen_names(first.ranks[0].names, parameters)
    rows: list[tuple[str, Callable[[dict], float | None]]] = [
        (f"KS of {name}" if len(first.ranks[0].names) > 1 else "KS", partial(_row, name=name, key="ks"))
        for name in names
    ]
    figure, axes = _panels(calibrations, cells, rows, "Calibration", _trials(first))
    for axis, name in zip(axes, names, strict=True):
        for panel, epsilon in zip(axis, _epsilons(cells), strict=True):
            line = [(cell["records"], _row(cell, name, "ks_critical")) for cell in first.cells]
            line = [pair for pair, (_, e) in zip(line, cells, strict=True) if e == epsilon and pair[1] is not None]
            if line:
                panel.plot(*zip(*line, strict=True), color=GREY, linestyle="--", linewidth=1.0)
            _plain_log(panel)
    _legend(figure, calibrations, [legend_line(color=GREY, linestyle="--", linewidth=1.0, label="5% critical value")])
    return figure


def mmd_figure(calibrations: Mapping[str, Calibration]):
    """Mean squared MMD to the non-private posterior against records (S4 Figure 4.4): one panel per epsilon.

    Methods without it (streamed, and the non-private posterior itself) are left out.

    Raises:
        InputError: no method has it, or as `ks_figure`.
    """
    shown = {
        method: item
        for method, item in calibrations.items()
        if any(cell["mmd"] is not None and np.isfinite(cell["mmd"]) for cell in item.cells)
    }
    cells = _same_cells(shown)
    first = next(iter(shown.values()))
    rows: list[tuple[str, Callable[[dict], float | None]]] = [("squared MMD", lambda cell: cell["mmd"])]
    figure, axes = _panels(shown, cells, rows, "Distance to the non-private posterior", _trials(first))
    values = [cell["mmd"] for item in shown.values() for cell in item.cells if cell["mmd"] is not None]
    for panel in axes[0]:
        if min(values) > 0:
            _plain_log(panel)
        else:
            panel.set_yscale("symlog", linthresh=_MMD_LINEAR)
            panel.axhline(0, color=GREY, linewidth=0.8)
    _legend(figure, shown, [])
    return figure


def traces_figure(posteriors: Mapping[str, Posterior], *, parameters: Sequence[str] | None = None):
    """The first kept draws of every chain (S4 Figure B.1): one row per parameter, one column per method.

    Args:
        posteriors: method name -> Posterior of the same release.
        parameters: names to show; all by default.

    Returns:
        `matplotlib.figure.Figure`, user's units.

    Raises:
        InputError: nothing to show, or posteriors with different parameters.
    """
    if not posteriors:
        raise InputError("posteriors: at least one is needed")
    first = next(iter(posteriors.values()))
    if any(item.names != first.names for item in posteriors.values()):
        raise InputError("posteriors: all must have the same parameters")
    names = chosen_names(first.names, parameters)
    figure = new_figure(max(2.9 * len(posteriors), 4.6) + 0.6, 1.5 * len(names) + 1.0)
    axes = figure.subplots(len(names), len(posteriors), squeeze=False, sharey="row", sharex="col")
    colours = method_looks(posteriors)
    for column, (method, item) in enumerate(posteriors.items()):
        shown = item.user_draws[:, :TRACE_DRAWS]
        for row, name in enumerate(names):
            axis = axes[row, column]
            for number, chain in enumerate(shown[..., first.names.index(name)]):
                style = "-" if number % 2 == 0 else (0, (3, 1))
                axis.plot(chain, color=colours[method][0], linestyle=style, linewidth=0.6, alpha=0.7)
            if column == 0:
                axis.set_ylabel(name)
            axis.locator_params(axis="y", nbins=4)
        axes[0, column].set_title(method, fontsize=10)
        axes[-1, column].set_xlabel("kept draw")
    figure.suptitle(
        f"First {min(TRACE_DRAWS, max(item.draws.shape[1] for item in posteriors.values()))} draws of each chain: "
        f"n = {first.records:,}, epsilon = {first.epsilon:g}",
        fontsize=11,
    )
    return figure


def _same_cells(calibrations: Mapping[str, Calibration]) -> list[tuple[int, float]]:
    if not calibrations:
        raise InputError("calibrations: at least one is needed")
    cells = [[(cell["records"], cell["epsilon"]) for cell in item.cells] for item in calibrations.values()]
    if any(other != cells[0] for other in cells):
        raise InputError("calibrations: all must be over the same records and epsilon")
    return cells[0]


def _epsilons(cells: Sequence[tuple[int, float]]) -> list[float]:
    return sorted({epsilon for _, epsilon in cells})


def _trials(calibration: Calibration) -> str:
    return f"{max(cell['trials'] for cell in calibration.cells):,} trials"


def _row(cell: Mapping[str, Any], name: str, key: str) -> float | None:
    row = cell["parameters"].get(name)  # none where every trial failed
    return None if row is None else row[key]


def _panels(
    calibrations: Mapping[str, Calibration],
    cells: Sequence[tuple[int, float]],
    rows: Sequence[tuple[str, Callable[[dict], float | None]]],
    title: str,
    trials: str,
):
    """A figure with one column per epsilon and the values of each row's function against records."""
    epsilons = _epsilons(cells)
    figure = new_figure(max(2.9 * len(epsilons) + 0.6, 4.6), 2.4 * len(rows) + 1.1)
    axes = figure.subplots(len(rows), len(epsilons), squeeze=False, sharex=True, sharey=True)
    styles = method_looks(calibrations)
    for row, (label, value) in enumerate(rows):
        for column, epsilon in enumerate(epsilons):
            axis = axes[row, column]
            for method, item in calibrations.items():
                points = sorted((cell["records"], value(cell)) for cell in item.cells if cell["epsilon"] == epsilon)
                points = [(n, y) for n, y in points if y is not None and np.isfinite(y)]
                if points:
                    colour, style = styles[method]
                    axis.plot(*zip(*points, strict=True), color=colour, linestyle=style, marker="o", markersize=3.5)
            axis.set_xscale("log")
            axis.grid(True, color="#e9e9e9", linewidth=0.6)
            if row == 0:
                axis.set_title(f"epsilon = {epsilon:g}", fontsize=10)
            if column == 0:
                axis.set_ylabel(label)
            if row == len(rows) - 1:
                axis.set_xlabel("records")
    figure.suptitle(f"{title}: {trials} per point", fontsize=11)
    return figure, axes


def _plain_log(axis) -> None:
    """A logarithmic y axis with plain numbers at 1, 2 and 5."""
    ticker = require("matplotlib.ticker", "report", "drawing figures")
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(ticker.NullFormatter())


def _legend(figure, methods, more: list) -> None:
    styles = method_looks(methods)
    handles = [
        legend_line(color=styles[m][0], linestyle=styles[m][1], marker="o", markersize=3.5, label=m) for m in methods
    ]
    handles += more
    place_legend(figure, handles)
