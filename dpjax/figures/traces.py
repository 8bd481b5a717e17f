"""Traces of chains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpjax.errors import InputError
from dpjax.figures.posteriors import shown_names
from dpjax.figures.style import method_looks, new_figure
from dpjax.figures.text import release_facts, set_title, wrapped
from dpjax.inference.posterior import Posterior
from dpjax.inference.summary import richest

#: Draws per chain that a trace shows.
TRACE_DRAWS = 500


def traces_figure(posteriors: Mapping[str, Posterior], *, parameters: Sequence[str] | None = None):
    """The first kept draws of every chain (Bernstein 2020, Figure B.1): one row per parameter, one column per method.

    Args:
        posteriors: method name -> Posterior of the same release.
        parameters: names to show; all by default.

    Returns:
        `matplotlib.figure.Figure`, user's units.

    Raises:
        InputError: nothing to show.
    """
    if not posteriors:
        raise InputError("posteriors: at least one is needed")
    first = richest(posteriors)
    names = shown_names(first, parameters)
    figure = new_figure(max(2.9 * len(posteriors), 4.6) + 0.6, 1.5 * len(names) + 1.0)
    axes = figure.subplots(len(names), len(posteriors), squeeze=False, sharey="row", sharex="col")
    colours = method_looks(posteriors)
    common, labels = release_facts(posteriors)
    for column, (method, item) in enumerate(posteriors.items()):
        shown = item.user_draws[:, :TRACE_DRAWS]
        for row, name in enumerate(names):
            axis = axes[row, column]
            reported = shown[..., item.names.index(name)] if name in item.names else ()
            for number, chain in enumerate(reported):
                style = "-" if number % 2 == 0 else (0, (3, 1))
                axis.plot(chain, color=colours[method][0], linestyle=style, linewidth=0.6, alpha=0.7)
            if column == 0:
                axis.set_ylabel(name)
            axis.locator_params(axis="y", nbins=4)
        panel = (float(figure.get_figwidth()) - 0.9) / len(posteriors) - 0.3
        axes[0, column].set_title(wrapped(figure, labels[method], 10.0, panel), fontsize=10)
        axes[-1, column].set_xlabel("kept draw")
    most = min(TRACE_DRAWS, max(item.draws.shape[1] for item in posteriors.values()))
    set_title(figure, f"First {most} draws of each chain" + (f": {common}" if common else ""))
    return figure
