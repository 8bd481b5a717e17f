"""Looks that all figures share: colours, lines, legends, and how a figure is made and saved."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpjax._base import files
from dpjax.errors import InputError, require

# Okabe and Ito's colours and a brown, told apart with any common colour blindness; line styles help in black and white
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#9A6324")


STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)), (0, (3, 2, 1, 2)))


# the default method and its usual companions keep their colour from figure to figure
METHOD_ORDER = ("collapsed", "gibbs", "non-private", "naive", "exact", "ops", "gibbs-literal", "naive-untruncated")


# and these take the places of methods that are for other models
SAME_PLACE = {"noisy": "exact", "plug-in": "ops", "prior": "gibbs-literal", "individual": "naive-untruncated"}


GREY = "#8c8c8c"


def save_figure(figure, path: str | os.PathLike, force: bool = False) -> Path:
    """Write a figure as PNG, PDF or SVG, by the suffix; never overwrites without `force`.

    Raises:
        InputError: another suffix, or as `dpjax._base.files.check_output`.
    """
    kind = files.check_figure(path)
    return files.write_with(path, lambda file: figure.savefig(file, format=kind, dpi=150), force)


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
    longest = max((len(handle.get_label()) for handle in handles), default=0)
    columns = max(1, min(len(handles), int(figure.get_figwidth() / max(1.9, 0.5 + 0.085 * longest))))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)


def new_figure(width: float, height: float):
    """An empty figure of a size in inches, for files only."""
    module = require("matplotlib.figure", "drawing figures")
    backend = require("matplotlib.backends.backend_agg", "drawing figures")
    figure = module.Figure(figsize=(width, height), layout="constrained")
    backend.FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    return figure


def legend_line(**options):
    """A line for a legend."""
    return require("matplotlib.lines", "drawing figures").Line2D([], [], **options)
