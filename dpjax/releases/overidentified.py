"""Statistics T = min over nu of sum_j d_j(nu)' V_j^{-1} d_j(nu) that are linear around their estimate, and their
p-values by simulation."""

from __future__ import annotations

from typing import Any

import numpy as np

#: Simulations at first, and how many entries are simulated in all where these leave few above the statistic.
FIRST, MOST_ENTRIES, MOST, FEWEST = 500, 4e6, 10_000, 2_000
#: p-value of the first simulations above which no more are made.
CLEAR = 0.05


def whitened(covariances, designs) -> tuple[list[np.ndarray], np.ndarray]:
    """Roots V_j^{-1/2}, and an orthonormal basis of what nu explains after them."""
    roots = [np.linalg.inv(np.linalg.cholesky(v)) for v in covariances]
    stacked = np.concatenate([root @ design for root, design in zip(roots, designs, strict=True)])
    left, values, _ = np.linalg.svd(stacked, full_matrices=False)
    return roots, left[:, values > 1e-10 * values.max()]


def quadratic(deviations, roots, basis) -> np.ndarray:
    """T for deviations of every party `[N, d_j]`."""
    white = np.concatenate([d @ root.T for d, root in zip(deviations, roots, strict=True)], axis=1)
    inside = white @ basis
    return (white * white).sum(1) - (inside * inside).sum(1)


def p_value(statistic: float, simulate: Any, entries: int) -> float:
    """Share of simulated statistics that are at least this large; few at first, more where that share is small."""
    above, done = int((simulate(FIRST) >= statistic).sum()), FIRST
    if above < CLEAR * FIRST:
        wanted = int(np.clip(MOST_ENTRIES / entries, FEWEST, MOST))
        while done < wanted:
            above, done = above + int((simulate(FIRST) >= statistic).sum()), done + FIRST
    return (above + 1) / (done + 1)
