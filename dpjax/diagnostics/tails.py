"""How heavy the tails of draws are."""

from __future__ import annotations

import numpy as np

#: Index of a Pareto tail above which a sd of thousands of draws is rough (from 1/4 on it has an infinite variance).
HEAVY_TAIL = 0.3


def tail_index(draws: np.ndarray, share: float = 0.05) -> np.ndarray:
    """Index of the heavier tail of each parameter's draws `[K]`, 0 where both fall off faster than any power.

    The moment estimator of Dekkers, Einmahl and de Haan (1989), Annals of Statistics 17, of the distance from the
    median; an index g says that moments of orders above 1 / g are infinite.

    Args:
        draws: of all chains `[S, K]`.
        share: of the draws that make a tail.
    """
    x = np.sort(np.asarray(draws, np.float64) - np.median(draws, axis=0), axis=0)
    many = max(int(share * len(x)), 10)
    found = []
    for tail in (x[-many - 1 :], -x[many::-1]):
        with np.errstate(all="ignore"):
            logs = np.log(tail[1:] / tail[0])
            first, second = logs.mean(0), (logs * logs).mean(0)
            found.append(first + 1.0 - 0.5 / (1.0 - first * first / second))
    return np.maximum(np.nan_to_num(np.max(found, axis=0), nan=0.0), 0.0)
