"""Figures 5.11 to 5.16 of the thesis. Figure 5.11 shows records: it belongs into the output folder and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from mobility_data import Config

from dpjax.figures.style import method_looks, new_figure, save_figure

OI_LABEL = "oi (not formally DP)"
OI_COLOUR = "#6b6b6b"


def draw_all(
    folder: Path, prior: str, scores: dict[str, Any], kept: dict[str, Any], oi: Any, cells: list, config: Config
) -> list[str]:
    """Draw everything for one prior; names of the files."""
    methods = [m for m in scores if "epsilon" in scores[m]]
    looks = {m: (*method_looks(methods)[m], m) for m in methods}
    figures = {
        "5_11_cells": _cells(kept, cells, config, looks),
        "5_12_points": _points(kept, config),
        "5_13_coverage": _coverage(scores, config, looks),
        "5_14_error": _error(scores, kept, oi, config, looks),
        "5_15_residuals": _residuals(kept, config),
        "5_16_deciles": _deciles(scores, config),
    }
    names = []
    for name, figure in figures.items():
        if figure is not None:
            save_figure(figure, folder / f"figure_{name}_{prior}.png", force=True)
            names.append(f"figure_{name}_{prior}.png")
    return names


def chosen_cells(size: np.ndarray, quantiles: list[float]) -> list[int]:
    """Cells whose sizes are nearest to these quantiles of all sizes, the first of equals."""
    return [int(np.argmin(abs(size - np.quantile(size, q)))) for q in quantiles]


def _cells(kept, cells, config, looks):
    """Figure 5.11: 90% intervals of a fresh kid_rank over the records of three cells."""
    chosen = chosen_cells(kept["size"], config.figures.sizes)
    level, k = max(config.levels), config.epsilon.index(config.figures.epsilon)
    figure = new_figure(3.6 * len(chosen), 4.0)
    axes = figure.subplots(1, len(chosen), sharey=True, squeeze=False)[0]
    for axis, g in zip(axes, chosen, strict=True):
        axis.plot(cells[g]["parent_rank"], cells[g]["kid_rank"], ".", color="#b9b9b9", markersize=4)
        shown = [("non-private", "#000000", kept["reference"][g], kept["reference_interval"][level][g])]
        for method, (colour, _, label) in looks.items():
            shown.append((label, colour, kept["points"][method][k][g], kept["intervals"][method][level][k][g]))
        for i, (label, colour, point, (low, high)) in enumerate(shown):
            x = config.at + 0.035 * (i - (len(shown) - 1) / 2)
            axis.plot([x, x], [low, high], color=colour, linewidth=2.5, label=label)
            axis.plot([x], [point], "o", color=colour, markersize=4)
        axis.set_title(f"{kept['size'][g]} records", fontsize=10)
        axis.set_xlabel("parent_rank")
        axis.set_ylim(-0.3, 1.3)
    axes[0].set_ylabel(f"kid_rank, {level:.0%} interval at {config.at:g}")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


def _points(kept, config):
    """Figure 5.12: private against non-private point, with intervals, by epsilon."""
    if "collapsed" not in kept["points"]:
        return None
    figure = new_figure(3.0 * len(config.epsilon), 3.3)
    axes = figure.subplots(1, len(config.epsilon), sharex=True, sharey=True, squeeze=False)[0]
    reference = kept["reference"]
    edge = [reference.min() - 0.02, reference.max() + 0.02]
    for k, (axis, epsilon) in enumerate(zip(axes, config.epsilon, strict=True)):
        for level, colour, width in zip(sorted(config.levels)[::-1], ("#bcd7ea", "#6aa7d0"), (1.2, 2.4), strict=False):
            low, high = kept["intervals"]["collapsed"][level][k].T
            axis.vlines(reference, low, high, color=colour, linewidth=width)
        axis.plot(reference, kept["points"]["collapsed"][k], ".", color="#0b2e4a", markersize=3)
        axis.plot(edge, edge, color="#d55e00", linewidth=1)
        axis.set_title(f"epsilon = {epsilon:g}", fontsize=10)
        axis.set_xlabel("non-private point")
        axis.set_ylim(-0.5, 1.2)
    axes[0].set_ylabel("collapsed: point, 50% and 90% intervals")
    return figure


def _coverage(scores, config, looks):
    """Figure 5.13: share of cells whose interval holds the non-private point."""
    figure = new_figure(4.0 * len(config.levels), 6.2)
    grid = figure.subplots(2, len(config.levels), sharex=True, sharey=True, squeeze=False)
    for row, (key, what) in zip(grid, (("coverage", "of kid_rank"), ("line_coverage", "of the line")), strict=True):
        for axis, level in zip(row, config.levels, strict=True):
            for method, (colour, style, label) in looks.items():
                values = [scores[method]["epsilon"][f"{e:g}"][key][f"{level:g}"] for e in config.epsilon]
                axis.plot(config.epsilon, values, color=colour, linestyle=style, marker="o", markersize=3, label=label)
            axis.axhline(level, color="#8c8c8c", linewidth=1)
            _epsilons(axis, config)
            axis.set_title(f"{level:.0%} interval {what}", fontsize=10)
            axis.set_ylim(-0.02, 1.02)
    for row in grid:
        row[0].set_ylabel("holds the non-private point")
    _legend(figure, grid[0][0])
    return figure


def _error(scores, kept, oi, config, looks):
    """Figure 5.14: mean absolute error against the non-private point."""
    figure = new_figure(5.4, 4.2)
    axis = figure.subplots()
    for method, (colour, style, label) in looks.items():
        values = [scores[method]["epsilon"][f"{e:g}"]["mae"] for e in config.epsilon]
        axis.plot(config.epsilon, values, color=colour, linestyle=style, marker="o", markersize=3, label=label)
    values = [abs(oi.points[e] - kept["reference"]).mean() for e in config.epsilon]
    axis.plot(config.epsilon, values, color=OI_COLOUR, linestyle=":", marker="s", markersize=3, label=OI_LABEL)
    _epsilons(axis, config)
    axis.set_yscale("log")
    axis.set_ylabel("mean absolute error")
    _legend(figure, axis)
    return figure


def _residuals(kept, config):
    """Figure 5.15: private minus non-private point against the size of the cell."""
    if "collapsed" not in kept["points"]:
        return None
    figure = new_figure(3.0 * len(config.epsilon), 3.2)
    axes = figure.subplots(1, len(config.epsilon), sharex=True, sharey=True, squeeze=False)[0]
    for k, (axis, epsilon) in enumerate(zip(axes, config.epsilon, strict=True)):
        axis.axhline(0.0, color="#8c8c8c", linewidth=1)
        axis.plot(kept["size"], kept["points"]["collapsed"][k] - kept["reference"], ".", color="#0072B2", markersize=4)
        axis.set_title(f"epsilon = {epsilon:g}", fontsize=10)
        axis.set_xlabel("records in the cell")
    axes[0].set_ylabel("collapsed minus non-private")
    return figure


def _deciles(scores, config):
    """Figure 5.16: deciles of the collapsed point against those of the non-private one."""
    if "collapsed" not in scores:
        return None
    found = scores["collapsed"]["epsilon"][f"{config.figures.epsilon:g}"]["deciles"]
    matrix = np.array(found["matrix"])
    figure = new_figure(4.6, 4.4)
    axis = figure.subplots()
    axis.imshow(matrix, cmap="Blues", vmin=0, vmax=matrix.sum(1).max())
    for (i, j), count in np.ndenumerate(matrix):
        if count:
            axis.text(j, i, str(count), ha="center", va="center", fontsize=8)
    axis.set_xticks(range(len(matrix)), range(1, len(matrix) + 1))
    axis.set_yticks(range(len(matrix)), range(1, len(matrix) + 1))
    axis.set_xlabel("decile of the collapsed point")
    axis.set_ylabel("decile of the non-private point")
    axis.set_title(f"epsilon = {config.figures.epsilon:g}", fontsize=10)
    return figure


def _epsilons(axis, config: Config) -> None:
    axis.set_xscale("log")
    axis.set_xticks(config.epsilon, [f"{epsilon:g}" for epsilon in config.epsilon])
    axis.set_xticks([], minor=True)
    axis.set_xlabel("epsilon")


def _legend(figure, axis) -> None:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=8)
