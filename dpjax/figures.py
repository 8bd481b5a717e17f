"""Figures: posteriors of several methods side by side, and calibration (QQ and ECDF difference) pictures.

Everything is drawn on `matplotlib.figure.Figure` objects, never through pyplot: no global state, no window.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import gaussian_kde

from dpjax import _files
from dpjax.calibration_statistics import ecdf, ecdf_band
from dpjax.errors import InputError, require
from dpjax.posterior import Posterior, richest

# Okabe and Ito's colours and a brown, told apart with any common colour blindness; line styles help in black and white
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#9A6324")
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)), (0, (3, 2, 1, 2)))
# the default method and its usual companions keep their colour from figure to figure
METHOD_ORDER = ("collapsed", "gibbs", "non-private", "naive", "exact", "ops", "gibbs-literal", "naive-untruncated")
# and these take the places of methods that are for other models
SAME_PLACE = {"noisy": "exact", "plug-in": "ops", "prior": "gibbs-literal", "individual": "naive-untruncated"}
GREY = "#8c8c8c"


def posteriors_figure(
    posteriors: Mapping[str, Posterior],
    *,
    scaled: bool = False,
    parameters: Sequence[str] | None = None,
    columns: int = 3,
):
    """Marginal posteriors of several methods: one panel per parameter, one row per method.

    Each row shows a kernel density scaled to the same height (areas of very different widths cannot share an
    axis), the 90% interval and the median. The thin grey line is the prior's density, scaled likewise.

    Args:
        posteriors: method name -> Posterior of the same release.
        scaled: scaled units instead of the user's.
        parameters: names to show; all by default.
        columns: panels per row.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        InputError: nothing to show.
        MissingExtraError: matplotlib is not installed.
    """
    if not posteriors:
        raise InputError("posteriors: at least one is needed")
    first = richest(posteriors)
    names = chosen_names(first.names, parameters)
    columns = min(columns, len(names))
    rows = math.ceil(len(names) / columns)
    height = 0.55 + 0.38 * len(posteriors)
    figure = new_figure(max(3.3 * columns, 6.6), (height + 0.75) * rows + 0.9)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    looks = method_looks(posteriors)
    for axis, name in zip(axes, names, strict=False):
        _ridge_panel(axis, posteriors, name, looks, scaled)
        meaning = first.describe(name)
        axis.set_title(name if not meaning else f"{name}  ({meaning})", fontsize=9.5)
    for axis in axes[len(names) :]:
        axis.set_axis_off()
    units = "scaled units" if scaled and first.scaling is not None else "user's units"
    figure.suptitle(
        f"Posteriors with 90% intervals: n = {first.records:,}, epsilon = {first.epsilon:g}, "
        f"{first.mechanism} noise, {units}",
        fontsize=11,
    )
    handles = [legend_line(color=looks[m][0], linewidth=5, alpha=0.75, label=m) for m in posteriors]
    if any(item.prior_draws is not None for item in posteriors.values()):
        handles.append(legend_line(color=GREY, linewidth=1, label="prior"))
    place_legend(figure, handles)
    return figure


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
    figure.suptitle(f"Calibration: n = {records:,}, epsilon = {epsilon:g}, {trials:,} trials", fontsize=11)
    handles = [legend_line(color=looks[m][0], linestyle=looks[m][1], linewidth=1.8, label=m) for m in values]
    patches = require("matplotlib.patches", "report", "drawing figures")
    handles.append(patches.Patch(color="#e3e3e3", label=f"{probability:.0%} simultaneous band"))
    place_legend(figure, handles)
    return figure


def save_figure(figure, path: str | os.PathLike, force: bool = False) -> Path:
    """Write a figure as PNG, PDF or SVG, by the suffix; never overwrites without `force`.

    Raises:
        InputError: another suffix, or as `dpjax._files.check_output`.
    """
    kind = _files.check_figure(path)
    return _files.write_with(path, lambda file: figure.savefig(file, format=kind, dpi=150), force)


def _ridge_panel(axis, posteriors: Mapping[str, Posterior], name: str, looks, scaled: bool) -> None:
    posteriors = {method: item for method, item in posteriors.items() if name in item.names}
    draws = {
        method: np.asarray(item.draws if scaled else item.user_draws, dtype=np.float64)[
            ..., item.names.index(name)
        ].ravel()
        for method, item in posteriors.items()
    }
    spans = np.array([np.quantile(values, [0.004, 0.996]) for values in draws.values()])
    left, right = spans[:, 0].min(), spans[:, 1].max()
    margin = 0.04 * (right - left) or 1.0
    grid = np.linspace(left - margin, right + margin, 400)
    count = len(draws)
    prior = next((p for p in posteriors.values() if p.prior_draws is not None), None)
    if prior is not None:
        sample = np.asarray(prior.prior_draws if scaled else prior.user_prior_draws, dtype=np.float64)
        density = _density(sample[:, prior.names.index(name)], grid)
        axis.plot(grid, 0.92 * count * density / density.max() - 0.15, color=GREY, linewidth=0.9, zorder=1)
    for row, (method, values) in enumerate(draws.items()):
        colour = looks[method][0]
        base = count - 1 - row
        density = _density(values, grid)
        axis.fill_between(
            grid, base, base + 0.72 * density / density.max(), color=colour, alpha=0.35, linewidth=0, zorder=2
        )
        low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
        axis.plot([low, high], [base, base], color=colour, linewidth=2.4, solid_capstyle="butt", zorder=3)
        axis.plot([middle], [base], marker="o", markersize=5, color=colour, zorder=4)
    axis.set(xlim=(grid[0], grid[-1]), ylim=(-0.3, count - 0.12), yticks=[])
    axis.locator_params(axis="x", nbins=5)
    axis.ticklabel_format(axis="x", style="sci", scilimits=(-3, 5))
    for side in ("left", "right", "top"):
        axis.spines[side].set_visible(False)


def _density(values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Kernel density on a grid, scaled arbitrarily; a constant sample gives a spike."""
    values = values[np.isfinite(values)]
    # a heavy tail would make one bandwidth far too wide for the part that is shown
    low, high = np.quantile(values, [0.01, 0.99])
    inner = values[(values >= low) & (values <= high)]
    if inner.size < 3 or np.ptp(inner) <= 1e-12 * max(1.0, abs(float(inner[0]))):
        return np.exp(-(((grid - np.median(values)) / (grid[1] - grid[0])) ** 2)) + 1e-12
    sample = values[np.linspace(0, values.size - 1, min(values.size, 2000)).astype(int)]
    width = 1.06 * inner.std() * sample.size**-0.2
    return gaussian_kde(sample, bw_method=width / sample.std(ddof=1))(grid) + 1e-300


def method_looks(methods) -> dict[str, tuple[str, Any]]:
    """Colour and line style per method: fixed for the known ones, the free ones in order for the others."""
    places = {method: SAME_PLACE.get(method, method) for method in methods}
    known = {m: METHOD_ORDER.index(p) for m, p in places.items() if p in METHOD_ORDER and (m == p or p not in places)}
    free = [i for i in range(len(COLOURS)) if i not in known.values()] or [0]
    others = [method for method in methods if method not in known]
    index = {**known, **{method: free[i % len(free)] for i, method in enumerate(others)}}
    return {method: (COLOURS[i], STYLES[i]) for method, i in index.items()}


def chosen_names(names: Sequence[str], parameters: Sequence[str] | None) -> list[str]:
    """The parameters to show, all of `names` by default; unknown ones are refused."""
    unknown = [name for name in parameters or () if name not in names]
    if unknown:
        raise InputError(f"parameters: {unknown[0]} is not one of {', '.join(names)}")
    return list(names if parameters is None else parameters)


def place_legend(figure, handles) -> None:
    """Legend below the panels, in as many columns as the width holds."""
    columns = max(1, min(len(handles), int(figure.get_figwidth() / 1.9)))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)


def new_figure(width: float, height: float):
    """An empty figure of a size in inches, for files only."""
    module = require("matplotlib.figure", "report", "drawing figures")
    backend = require("matplotlib.backends.backend_agg", "report", "drawing figures")
    figure = module.Figure(figsize=(width, height), layout="constrained")
    backend.FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    return figure


def legend_line(**options):
    """A line for a legend."""
    return require("matplotlib.lines", "report", "drawing figures").Line2D([], [], **options)
