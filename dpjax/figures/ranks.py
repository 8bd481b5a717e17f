"""Ranks of the truth against uniform ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpjax.calibration.uniformity import ecdf, ecdf_band
from dpjax.errors import InputError, require
from dpjax.figures.style import GREY, chosen_names, legend_line, method_looks, new_figure, place_legend
from dpjax.figures.text import set_title


def calibration_figure(
    pit: Mapping[str, Any],
    names: Sequence[str],
    *,
    records: int,
    epsilon: float,
    parameters: Sequence[str] | None = None,
    probability: float = 0.95,
    columns: int = 5,
):
    """QQ plot (upper) and ECDF difference (lower) of randomised ranks, one pair of panels per parameter.

    The grey region is ArviZ's simultaneous band: a calibrated method's whole curve stays inside it with the
    given probability, in each panel.

    Args:
        pit: method name -> randomised ranks [M, K] (`Ranks.pit`), NaN for a parameter that the method does not report;
            the band is for the largest M.
        names: K parameter names.
        records, epsilon: for the title.
        parameters: names to show; all by default.
        probability: of the band.
        columns: parameters per row.

    Returns:
        `matplotlib.figure.Figure`.
    """
    values = {method: np.asarray(ranks) for method, ranks in pit.items()}
    if not values or any(v.ndim != 2 or v.shape[1] != len(names) or not len(v) for v in values.values()):
        raise InputError(f"pit: per method, ranks [trials, {len(names)}] are needed")
    chosen = chosen_names(names, parameters)
    trials = max(len(v) for v in values.values())
    x, low, high = ecdf_band(trials, probability)
    columns = min(columns, len(chosen))
    blocks = math.ceil(len(chosen) / columns)
    figure = new_figure(max(2.3 * columns + 0.6, 5.2), 4.3 * blocks + 0.9)
    axes = figure.subplots(2 * blocks, columns, squeeze=False)
    looks = method_looks(values)
    edge = max(0.02, 1.6 * float(np.max(high - x)))
    for number in range(blocks * columns):
        upper, lower = (axes[2 * (number // columns) + row, number % columns] for row in (0, 1))
        if number >= len(chosen):
            upper.set_axis_off()
            lower.set_axis_off()
            continue
        k = list(names).index(chosen[number])
        upper.fill_betweenx(x, low, high, color="#e3e3e3", linewidth=0)
        upper.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
        lower.fill_between(x, low - x, high - x, color="#e3e3e3", linewidth=0, step="mid")
        lower.axhline(0, color=GREY, linewidth=0.8)
        reach = edge
        for method, ranks in values.items():
            colour, style = looks[method]
            column = np.sort(ranks[:, k])
            if np.isnan(column).all():
                continue
            expected = (np.arange(len(column)) + 0.5) / len(column)
            upper.plot(expected, column, color=colour, linestyle=style, linewidth=1.4)
            grid = np.concatenate([[0.0], x, [1.0]])
            difference = ecdf(column, grid) - grid
            reach = max(reach, 1.08 * float(np.abs(difference).max()))
            lower.plot(grid, difference, color=colour, linestyle=style, linewidth=1.4)
        upper.set(xlim=(0, 1), ylim=(0, 1), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1], aspect="equal")
        lower.set(xlim=(0, 1), ylim=(-reach, reach), xticks=[0, 0.5, 1])
        lower.locator_params(axis="y", nbins=5)
        upper.set_title(chosen[number], fontsize=10)
        lower.set_xlabel("rank")
        if number % columns == 0:
            upper.set_ylabel("rank quantile")
            lower.set_ylabel("ECDF - uniform")
        upper.set_xlabel("uniform quantile")
    set_title(figure, f"Calibration: n = {records:,}, epsilon = {epsilon:g}, {trials:,} trials")
    handles = [legend_line(color=looks[m][0], linestyle=looks[m][1], linewidth=1.8, label=m) for m in values]
    patches = require("matplotlib.patches", "drawing figures")
    handles.append(patches.Patch(color="#e3e3e3", label=f"{probability:.0%} simultaneous band"))
    place_legend(figure, handles)
    return figure
