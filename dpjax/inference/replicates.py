"""Replicated releases: noisy sums of new tables of the same size, drawn at given parameters (posterior or prior
predictive checks).

Regressions, binomial and multinomial: the exact law of the model's sums. Other models: the normal law of the
samplers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from dpjax.errors import InputError
from dpjax.mechanisms import MECHANISMS
from dpjax.releases.release import Release
from dpjax.statistics.base import Statistic
from dpjax.statistics.multinomial import MultinomialStatistic
from dpjax.statistics.products import ProductStatistic


def replicate(
    release: Release,
    names: Sequence[str],
    draws: np.ndarray,
    statistic: Statistic,
    prior: Mapping[str, Any],
    rng: np.random.Generator,
) -> np.ndarray:
    """Noisy sums `[N, D]` of N replicated releases, in the units and the order of the release.

    Args:
        release: whose number of records, bounds, entries and noise they have.
        names: of the K parameters.
        draws: of the parameters `[N, K]`, in the scaled units of `statistic`.
        statistic: in whose units the parameters are: the release's own, or the common one of several parties.
        prior: the posterior's description of it.
        rng: for everything random.

    Raises:
        InputError: the draws do not fix the law of a record; the message says what is missing.
    """
    draws = np.asarray(draws, dtype=np.float64)
    if isinstance(release.statistic, ProductStatistic):
        sums = _regression_sums(release, names, draws, statistic, rng)
    elif isinstance(release.statistic, MultinomialStatistic):
        p = draws / draws.sum(axis=1, keepdims=True)
        sums = rng.multinomial(release.records, p)[:, list(release.statistic.released)].astype(np.float64)
    elif release.kind == "binomial":
        sums = rng.binomial(release.records, draws[:, :1]).astype(np.float64)
    else:
        sums = _normal_sums(release, draws, prior, rng)
    return sums + _noise(release, len(draws), rng)


def _regression_sums(release, names, draws, statistic, rng) -> np.ndarray:
    """S = sum r r' of n normal records r = (x, y): mean and scatter are independent, the scatter is Wishart."""
    own: ProductStatistic = release.statistic
    if own.moments:
        raise InputError("third and fourth moments of the features are not replicated")
    mean, root = _record(names, draws, own.p, own.intercept)
    # from the units of the parameters to those of the release
    (c_common, h_common), (c_own, h_own) = statistic.units, own.units
    mean = (c_common + h_common * mean - c_own) / h_own
    root = root * (h_common / h_own)[:, None]
    q, n, count = own.p + 1, release.records, len(draws)
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


def _normal_sums(release: Release, draws: np.ndarray, prior: Mapping[str, Any], rng) -> np.ndarray:
    import jax

    from dpjax.engine.problems import precision
    from dpjax.models import model_for

    with precision(True):
        model = model_for(release.statistic, prior).astype(np.float64)
        found = _moments(jax)(model, model.positions(draws))
        mean, covariance = (np.asarray(x, np.float64) for x in found)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    n = release.records
    return n * mean + np.sqrt(n) * (root @ rng.standard_normal((*mean.shape, 1)))[..., 0]


@cache  # compiled once for any number of posteriors of one kind
def _moments(jax: Any) -> Any:
    return jax.jit(lambda model, phi: jax.vmap(model.moments)(phi))


def _noise(release: Release, count: int, rng: np.random.Generator) -> np.ndarray:
    shape = (count, len(release.names))
    return MECHANISMS[release.mechanism].sample(rng, release.scale, shape)


__all__ = ["replicate"]
