"""Figures of a whole study against records (calibration, coverage, distance to the non-private posterior, seconds), and
traces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from dpjax.calibration.result import Calibration
from dpjax.calibration.uniformity import binomial_band
from dpjax.errors import InputError, require
from dpjax.figures.style import GREY, chosen_names, legend_line, method_looks, new_figure, place_legend
from dpjax.figures.text import set_title

#: Probability of the grey band of the coverage figure, in each of its points.
BAND = 0.99
# within this the MMD's axis is linear: the unbiased estimate may be negative
_MMD_LINEAR = 1e-3


def ks_figure(calibrations: Mapping[str, Calibration], *, parameters: Sequence[str] | None = None):
    """KS distance of the ranks from uniformity against records (Bernstein 2020, Figure 4.2): one panel per epsilon and
    parameter.

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
    known = parameters_of(calibrations)
    names = chosen_names(known, parameters)
    rows: list[tuple[str, Callable[[dict], float | None]]] = [
        (f"KS of {name}" if len(known) > 1 else "KS", partial(_row, name=name, key="ks")) for name in names
    ]
    figure, axes = _panels(calibrations, cells, rows, "Calibration", _trials(calibrations))
    for axis, name in zip(axes, names, strict=True):
        for panel, epsilon in zip(axis, _epsilons(cells), strict=True):
            every = (cell for item in calibrations.values() for cell in item.cells if cell["epsilon"] == epsilon)
            values = ((cell["records"], _row(cell, name, "ks_critical")) for cell in every)
            line = sorted({n: value for n, value in values if value is not None}.items())
            if line:
                panel.plot(*zip(*line, strict=True), color=GREY, linestyle="--", linewidth=1.0)
            plain_log(panel)
    _legend(figure, calibrations, [legend_line(color=GREY, linestyle="--", linewidth=1.0, label="5% critical value")])
    return figure


def mmd_figure(calibrations: Mapping[str, Calibration]):
    """Mean squared MMD to the non-private posterior against records (Bernstein 2020, Figure 4.4): one panel per
    epsilon.

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
    rows: list[tuple[str, Callable[[dict], float | None]]] = [("squared MMD", lambda cell: cell["mmd"])]
    figure, axes = _panels(shown, cells, rows, "Distance to the non-private posterior", _trials(shown))
    values = [cell["mmd"] for item in shown.values() for cell in item.cells if cell["mmd"] is not None]
    for panel in axes[0]:
        if min(values) > 0:
            plain_log(panel)
        else:
            panel.set_yscale("symlog", linthresh=_MMD_LINEAR)
            panel.axhline(0, color=GREY, linewidth=0.8)
    _legend(figure, shown, [])
    return figure


def coverage_figure(
    calibrations: Mapping[str, Calibration], *, level: str = "0.95", parameters: Sequence[str] | None = None
):
    """Share of trials whose central interval holds the truth against records (Bernstein and Sheldon 2019, Figure 3d):
    one panel per epsilon and parameter.

    The grey band is where a right method's share falls with probability `BAND`, in each point.

    Args:
        calibrations: method name -> Calibration over the same cells.
        level: of the intervals, as in `calibration.json`: "0.5", "0.8", "0.9", "0.95".
        parameters: names to show, one row each; all by default.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        InputError: as `ks_figure`, or another level.
    """
    cells = _same_cells(calibrations)
    names = chosen_names(parameters_of(calibrations), parameters)
    every = (cell for item in calibrations.values() for cell in item.cells)
    known: dict[str, float] = next((row["coverage"] for cell in every for row in cell["parameters"].values()), {})
    if known and level not in known:
        raise InputError(f"level must be one of {', '.join(known)}; got {level!r}")

    def covered(cell: dict, name: str) -> float | None:
        return None if (found := _row(cell, name, "coverage")) is None else found[level]

    rows: list[tuple[str, Callable[[dict], float | None]]] = [(name, partial(covered, name=name)) for name in names]
    title = f"Coverage of {float(level):.0%} intervals"
    figure, axes = _panels(calibrations, cells, rows, title, _trials(calibrations))
    trials = max(cell["trials"] for item in calibrations.values() for cell in item.cells)
    low, high = binomial_band(max(trials, 1), float(level), BAND)
    for panel in axes.ravel():
        panel.axhspan(low, high, color="#e3e3e3", linewidth=0, zorder=0)
        panel.axhline(float(level), color=GREY, linewidth=0.8, zorder=1)
        panel.set_ylim(-0.02, 1.02)
    patches = require("matplotlib.patches", "drawing figures")
    _legend(figure, calibrations, [patches.Patch(color="#e3e3e3", label=f"{BAND:.0%} band of a point")])
    return figure


def seconds_by_records(calibration: Calibration) -> dict[int, float]:
    """Seconds per posterior by number of records, without compilation; empty where the run does not tell.

    A method that runs all cells in one compiled call does the same work for each of them, but for problems that were
    run again: their seconds go to the records they belong to. A method that runs one problem after the other says how
    long each took (`problem_seconds` of its settings).
    """
    cells, settings = calibration.cells, calibration.settings.get("run", {})
    counts = [cell["trials"] + cell["failed"] for cell in cells]
    if "problem_seconds" in settings:
        edges = np.cumsum([0, *counts])
        own = [float(np.sum(settings["problem_seconds"][a:b])) for a, b in pairwise(edges)]
    elif "lanes_per_block" in settings:
        each = (calibration.seconds - calibration.rerun_seconds) / max(sum(counts), 1)
        again = calibration.rerun_seconds / max(sum(cell["reruns"] for cell in cells), 1)
        own = [each * count + again * cell["reruns"] for cell, count in zip(cells, counts, strict=True)]
    else:
        return {}
    total: dict[int, list[float]] = {}
    for cell, seconds, count in zip(cells, own, counts, strict=True):
        sums = total.setdefault(cell["records"], [0.0, 0])
        sums[0], sums[1] = sums[0] + seconds, sums[1] + count
    return {n: seconds / count for n, (seconds, count) in sorted(total.items()) if count}


def seconds_figure(seconds: Mapping[str, Mapping[int, float]]):
    """Seconds per posterior against records (Bernstein and Sheldon 2019, Figure 3f), one line per method.

    Args:
        seconds: method name -> seconds per posterior by number of records (`seconds_by_records`).

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        InputError: nothing to show.
    """
    shown = {method: dict(values) for method, values in seconds.items() if values}
    if not shown:
        raise InputError("seconds: at least one method is needed")
    figure = new_figure(5.6, 3.9)
    axis = figure.subplots()
    for method, (colour, style) in method_looks(shown).items():
        points = sorted(shown[method].items())
        axis.plot(*zip(*points, strict=True), color=colour, linestyle=style, marker="o", markersize=3.5)
    axis.set(xscale="log", xlabel="records", ylabel="seconds per posterior")
    axis.grid(True, color="#e9e9e9", linewidth=0.6)
    plain_log(axis)
    set_title(figure, "Seconds per posterior, compilation apart")
    _legend(figure, shown, [])
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


def parameters_of(calibrations: Mapping[str, Calibration]) -> list[str]:
    """Names of the parameters that any of the methods reports, in their order."""
    longest = max(calibrations.values(), key=lambda item: len(item.ranks[0].names)).ranks[0].names
    others = (name for item in calibrations.values() for name in item.ranks[0].names)
    return list(dict.fromkeys((*longest, *others)))


def _trials(calibrations: Mapping[str, Calibration]) -> str:
    return f"{max(cell['trials'] for item in calibrations.values() for cell in item.cells):,} trials"


def _row(cell: Mapping[str, Any], name: str, key: str) -> Any:
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
    set_title(figure, f"{title}: {trials} per point")
    return figure, axes


def plain_log(axis) -> None:
    """A logarithmic y axis with plain numbers at 1, 2 and 5."""
    ticker = require("matplotlib.ticker", "drawing figures")
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
