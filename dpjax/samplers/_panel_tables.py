"""Panels as tables: what draws, moments and quantiles are read from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.polynomial import legendre

from dpjax.samplers._panels import _TO_SERIES, NODES, ORDER, WEIGHTS, Panels

#: Integral from -1 to each node, of the values at the nodes.
_CUMULATIVE = (
    np.stack([legendre.legval(NODES, legendre.legint(np.eye(ORDER)[k], lbnd=-1)) for k in range(ORDER)], 1) @ _TO_SERIES
)


class Tables(NamedTuple):
    """T densities as tables `[T, G]`: abscissae, the reported parameter and the log density there, distribution
    function, and by how much the log density rises from each abscissa to the next; mean and sd of the reported
    parameter, and whether the error is under its bound, `[T]`.

    A table shorter than the longest one ends with repetitions of its last abscissa.
    """

    nodes: np.ndarray
    parameter: np.ndarray
    log_density: np.ndarray
    cdf: np.ndarray
    step: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    resolved: np.ndarray

    def take(self, index: np.ndarray) -> Tables:
        """The tables at `index`."""
        return Tables(*(x[index] for x in self))


def tables(panels: Panels, least: int = 8) -> Tables:
    """The tables behind draws, moments and quantiles; panels without mass are left out.

    Args:
        least: number of panels that every table has room for; more are made room for in powers of two.
    """
    count = len(panels.resolved)
    half = 0.5 * (panels.nodes[-1] - panels.nodes[0])
    top = np.full(count, -np.inf)
    np.maximum.at(top, panels.owner, panels.log_density.max(0))
    density = np.exp(panels.log_density - top[panels.owner])
    mass = (WEIGHTS @ density) * half
    total = np.zeros(count)
    np.add.at(total, panels.owner, mass)
    keep = np.flatnonzero(mass > 1e-15 * total[panels.owner])
    owner, half, density, mass = (
        panels.owner[keep],
        half[keep],
        density[:, keep],
        mass[keep] / total[panels.owner[keep]],
    )
    number = np.bincount(owner, minlength=count)
    first = np.concatenate([[0], np.cumsum(number)[:-1]])
    place = np.arange(len(owner)) - first[owner]
    rows = least
    while rows < number.max(initial=0):
        rows *= 2
    inside = np.maximum.accumulate(np.clip((_CUMULATIVE @ density) * half, 0.0, None), 0) / total[owner]
    inside *= mass / np.maximum(inside[-1], 1e-300)
    ends = np.cumsum(mass)
    before = ends - mass - np.concatenate([[0.0], ends])[first][owner]

    def laid(values: np.ndarray) -> np.ndarray:
        out = np.full((count, rows, ORDER), np.nan)
        out[owner, place] = values.T
        return out.reshape(count, -1)

    nodes, parameter = laid(panels.nodes[:, keep]), laid(panels.parameter[:, keep])
    cdf = laid(np.clip(before + inside, 0.0, 1.0))
    logs = laid(np.maximum(panels.log_density[:, keep] - top[owner], -1e5))
    empty = np.isnan(nodes)
    last = np.maximum(number * ORDER - 1, 0)[:, None]
    filled = lambda x: np.where(empty, np.nan_to_num(np.take_along_axis(x, last, 1)), x)
    nodes, parameter, logs = filled(nodes), filled(parameter), filled(logs)
    cdf = np.where(np.arange(cdf.shape[1]) >= last, 1.0, np.maximum.accumulate(np.nan_to_num(cdf), 1))
    step = np.diff(logs, axis=1, append=logs[:, -1:])
    return Tables(nodes, parameter, logs, cdf, step, panels.mean, panels.sd, panels.resolved)
