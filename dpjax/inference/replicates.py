"""Replicated releases: noisy sums of new tables of the same size, drawn at given parameters (posterior or prior
predictive checks).

By the exact law of the model's sums where the statistic has it (`Statistic.draw_sums`: regressions, binomial and
multinomial), else by the normal law of the samplers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from dpjax.mechanisms import MECHANISMS
from dpjax.releases.release import Release
from dpjax.statistics.base import Statistic


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
    sums = release.statistic.draw_sums(release.records, names, draws, statistic, rng)
    if sums is None:
        sums = _normal_sums(release, draws, prior, rng)
    return sums + _noise(release, len(draws), rng)


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
