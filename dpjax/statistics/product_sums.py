"""The exact law of the sums of products of normal records, as a regression has them: draws of it by a generator of the
caller, for replicated releases. What is drawn here protects nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpjax.errors import InputError


def draw_product_sums(
    own: Any, records: int, names: Sequence[str], draws: np.ndarray, units_of: Any, rng: Any
) -> np.ndarray:
    """S = sum r r' of n normal records r = (x, y): mean and scatter are independent, the scatter is Wishart.

    Args:
        own: the `ProductStatistic` whose entries are drawn.
        records, names, draws, units_of, rng: as of `Statistic.draw_sums`.

    Raises:
        InputError: the entries are more than products, or a parameter is missing.
    """
    if own.moments:
        raise InputError("third and fourth moments of the features are not replicated")
    mean, root = _record(names, draws, own.p, own.intercept)
    # from the units of the parameters to those of the release
    (c_common, h_common), (c_own, h_own) = units_of.units, own.units
    mean = (c_common + h_common * mean - c_own) / h_own
    root = root * (h_common / h_own)[:, None]
    q, n, count = own.p + 1, records, len(draws)
    average = mean + (root @ rng.standard_normal((count, q, 1)))[..., 0] / np.sqrt(n)
    if n - 1 >= q:  # Bartlett
        factor = np.tril(rng.standard_normal((count, q, q)), -1)
        factor[:, range(q), range(q)] = np.sqrt(rng.chisquare(n - 1 - np.arange(q), (count, q)))
    else:
        factor = rng.standard_normal((count, q, n - 1))
    spread = root @ factor
    second = spread @ np.swapaxes(spread, 1, 2) + n * average[:, :, None] * average[:, None, :]
    whole = np.empty((count, q + 1, q + 1))  # over r~ = (1, x, y)
    whole[:, 0, 0], whole[:, 0, 1:], whole[:, 1:, 1:] = n, n * average, second
    return np.stack([whole[:, a, b] for a, b in own.pairs], axis=1)


def _record(names: Sequence[str], draws: np.ndarray, p: int, intercept: bool) -> tuple[np.ndarray, np.ndarray]:
    """Mean `[N, q]` of one record (x, y) and a root G `[N, q, q]` of its covariance G G'."""
    column = dict(zip(names, draws.T, strict=True))
    needed = [*(f"theta[{i}]" for i in range(1, p + 1)), "sigma2"]
    needed += [f"tau2[{i},{j}]" for i in range(1, p + 1) for j in range(1, i + 1)]
    needed += ["theta[0]", *(f"mu_x[{i}]" for i in range(1, p + 1))] if intercept else []
    for name in needed:
        if name not in column:
            raise InputError(f"the method has no draws of {name}, without which the law of the sums is not known")
    count = len(draws)
    beta = np.stack([column[f"theta[{i}]"] for i in range(1, p + 1)], axis=1)
    tau2 = np.empty((count, p, p))
    for i in range(p):
        for j in range(i + 1):
            tau2[:, i, j] = tau2[:, j, i] = column[f"tau2[{i + 1},{j + 1}]"]
    mean = np.zeros((count, p + 1))
    if intercept:
        mean[:, :p] = np.stack([column[f"mu_x[{i}]"] for i in range(1, p + 1)], axis=1)
        mean[:, p] = column["theta[0]"] + (mean[:, :p] * beta).sum(axis=1)
    values, vectors = np.linalg.eigh(tau2)  # no Cholesky: draws in float32 may be singular
    root = np.zeros((count, p + 1, p + 1))
    root[:, :p, :p] = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    root[:, p, :p] = (beta[:, None, :] @ root[:, :p, :p])[:, 0]
    root[:, p, p] = np.sqrt(column["sigma2"])
    return mean, root
