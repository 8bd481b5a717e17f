"""Figures: posteriors of several methods side by side, and calibration (QQ and ECDF difference) pictures.

Everything is drawn on `matplotlib.figure.Figure` objects, never through pyplot: no global state, no window.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import gaussian_kde

from dpjax.errors import InputError
from dpjax.figures.style import GREY, chosen_names, legend_line, method_looks, new_figure, place_legend
from dpjax.figures.text import PANEL, release_facts, set_title, wrapped
from dpjax.inference.posterior import Posterior
from dpjax.inference.summary import richest
from dpjax.statistics.base import split_name

#: Height of a density, and of a prior that is higher than its posterior in units of that.
_ROW, _CUT = 0.72, 1.15
#: Rows left free between parameters that share a panel.
_APART = 0.5
#: Categories that are shown if none are named.
MOST_ROWS = 30


def posteriors_figure(
    posteriors: Mapping[str, Posterior],
    *,
    scaled: bool = False,
    parameters: Sequence[str] | None = None,
    columns: int = 3,
):
    """Marginal posteriors of several methods or releases: one panel per parameter, one row per method. Shares of
    categories are on one axis, so that they can be compared: one row per category.

    Each row shows a kernel density scaled to the same height (areas of very different widths cannot share an
    axis), the 90% interval and the median. The thin grey line is the prior's density on the scale of the row's
    posterior, cut off at the height of the row: where the prior is wide, it is low.

    Args:
        posteriors: method name (or any other) -> Posterior.
        scaled: scaled units instead of the user's.
        parameters: names to show; all by default (of more than `MOST_ROWS` categories the largest).
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
    names = shown_names(first, parameters)
    together = first.statistic.categories is not None
    panels = [names] if together else [[name] for name in names]
    columns = min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    apart = _APART if len(posteriors) > 1 else 0.0
    height = 0.55 + 0.38 * ((len(posteriors) + apart) * max(map(len, panels)) - apart)
    width = max(3.3 * columns, 6.6)
    figure = new_figure(width, (height + 0.75) * rows + 0.9)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    looks = method_looks(posteriors)
    for axis, panel in zip(axes, panels, strict=False):
        _ridge_panel(axis, posteriors, panel, looks, scaled)
        meaning = first.describe(panel[0])
        title = panel[0] if not meaning else f"{panel[0]}  ({meaning})"
        if len(panel) > 1:
            base, _ = split_name(panel[0])
            title = f"{base}  (shares of {first.statistic.variables[0]})"
            total = len(first.names) if parameters is None else len(names)
            title += f", the largest {len(panel)} of {total}" if len(panel) < total else ""
        axis.set_title(wrapped(figure, title, PANEL, width / columns - 0.3), fontsize=PANEL)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    units = "scaled units" if scaled and first.scaling is not None else "user's units"
    common, labels = release_facts(posteriors)
    set_title(figure, f"Posteriors with 90% intervals: {', '.join(filter(None, (common, units)))}")
    handles = [legend_line(color=looks[m][0], linewidth=5, alpha=0.75, label=labels[m]) for m in posteriors]
    if any(item.prior_draws is not None for item in posteriors.values()):
        handles.append(legend_line(color=GREY, linewidth=1, label="prior"))
    place_legend(figure, handles)
    return figure


def shown_names(first: Posterior, parameters: Sequence[str] | None) -> list[str]:
    """The parameters to show: those named, or all, but of more than `MOST_ROWS` categories the largest."""
    names = chosen_names(first.names, parameters)
    if parameters is None and first.statistic.categories is not None and len(names) > MOST_ROWS:
        mean = first.user_draws.mean(axis=(0, 1))
        largest = set(np.argsort(-mean, kind="stable")[:MOST_ROWS].tolist())
        names = [name for k, name in enumerate(first.names) if k in largest]
    return names


def _ridge_panel(axis, posteriors: Mapping[str, Posterior], names: Sequence[str], looks, scaled: bool) -> None:
    """One row for each of these parameters and posteriors that have it, from above; labelled where there are several
    parameters."""
    rows = [(name, method) for name in names for method, item in posteriors.items() if name in item.names]
    draws, priors = {}, {}
    for name, method in rows:
        item = posteriors[method]
        k = item.names.index(name)
        draws[name, method] = _column(item.draws if scaled else item.user_draws, k)
        sample = item.prior_draws if scaled else item.user_prior_draws
        priors[name, method] = None if sample is None else _column(sample, k)
    spans = np.array([np.quantile(values, [0.004, 0.996]) for values in draws.values()])
    left, right = spans[:, 0].min(), spans[:, 1].max()
    margin = 0.04 * (right - left) or 1.0
    grid = np.linspace(left - margin, right + margin, 400)
    ticks: dict[str, list[float]] = {}
    apart = _APART if len(posteriors) > 1 else 0.0
    highest = len(rows) - 1 + apart * (len(names) - 1)
    for row, key in enumerate(rows):
        name, method = key
        values, base = draws[key], highest - row - apart * list(names).index(name)
        colour = looks[method][0]
        density = _density(values, grid)
        top = density.max()
        axis.fill_between(grid, base, base + _ROW * density / top, color=colour, alpha=0.35, linewidth=0, zorder=2)
        prior = priors[key]
        if prior is not None:
            height = np.minimum(_density(prior, grid) / top, _CUT)
            axis.plot(grid, base + _ROW * height, color=GREY, linewidth=0.9, zorder=2.5)
        low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
        axis.plot([low, high], [base, base], color=colour, linewidth=2.4, solid_capstyle="butt", zorder=3)
        axis.plot([middle], [base], marker="o", markersize=5, color=colour, zorder=4)
        ticks.setdefault(name, []).append(base)
    axis.set(xlim=(grid[0], grid[-1]), ylim=(-0.3, highest + 0.88), yticks=[])
    if len(names) > 1:
        statistic = richest(posteriors).statistic
        texts = [statistic.coordinate(*split_name(name)).replace("$", r"\$") for name in ticks]
        axis.set_yticks(
            [np.mean(bases) for bases in ticks.values()], [t if len(t) <= 30 else t[:29] + "…" for t in texts]
        )
        axis.tick_params(axis="y", length=0)
    axis.locator_params(axis="x", nbins=5)
    axis.ticklabel_format(axis="x", style="sci", scilimits=(-3, 5))
    for side in ("left", "right", "top"):
        axis.spines[side].set_visible(False)


def _column(draws: Any, k: int) -> np.ndarray:
    return np.asarray(draws, dtype=np.float64)[..., k].ravel()


def _density(values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Kernel density on a grid; a constant sample gives a spike."""
    values = values[np.isfinite(values)]
    # a heavy tail would make one bandwidth far too wide for the part that is shown
    low, high = np.quantile(values, [0.01, 0.99])
    inner = values[(values >= low) & (values <= high)]
    if inner.size < 3 or np.ptp(inner) <= 1e-12 * max(1.0, abs(float(inner[0]))):
        width = grid[1] - grid[0]
        return np.exp(-(((grid - np.median(values)) / width) ** 2)) / (math.sqrt(math.pi) * width) + 1e-12
    sample = inner[np.linspace(0, inner.size - 1, min(inner.size, 2000)).astype(int)]
    width = 1.06 * inner.std() * sample.size**-0.2
    return gaussian_kde(sample, bw_method=width / sample.std(ddof=1))(grid) + 1e-300
