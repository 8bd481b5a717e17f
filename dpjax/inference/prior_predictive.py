"""Do prior and release fit together? The released sums among those that the prior predicts.

Prior draws, the sums of n records of each (normal approximation) and the noise of the release: a release that is far
out among them says that the prior excludes what the data show, and a posterior is then a compromise that neither
supports. Judged on quantities in which it shows: means, variances, covariances and the residual variance of a
regression, mean and variance of a normal, the sums themselves elsewhere (`Model.sum_summaries`).
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from dpjax.engine.problems import Problems
from dpjax.mechanisms import mechanism_named
from dpjax.models import Model

#: Prior draws behind the p-value and the reported prior standard deviations.
PRIOR_DRAWS = 20_000


@jax.jit  # of the module, with the prior as an argument: compiled once for any number of fits
def _prior_report(model: Model, keys):
    return jax.vmap(lambda key: model.report(model.sample_prior(key)))(keys)


@jax.jit  # both in one program: compiling the prior twice would cost more than all draws
def _prior_and_sums(model: Model, keys):
    """Reported parameters `[N, K]` of prior draws, mean and one deviation of a record's statistic `[N, D]` there."""

    def one(key):
        phi = model.sample_prior(key)
        mean, _ = model.moments(phi)
        return model.report(phi), mean, jax.random.normal(jax.random.fold_in(key, 1), mean.shape, mean.dtype), phi

    report, mean, normals, phi = jax.vmap(one)(keys)
    lanes = jax.tree.map(lambda x: jax.numpy.broadcast_to(x[..., None], (*x.shape, len(keys))), model)
    return report, mean, lanes.deviation_lanes(phi.T, normals.T).T


def _keys(seed: int):
    return jax.random.split(jax.random.key(seed + 1), PRIOR_DRAWS)


def sample_prior_report(model: Model, seed: int) -> np.ndarray:
    """Draws of the reported parameters from the prior, [N, K], scaled: what prior standard deviations are estimated
    from."""
    return np.asarray(_prior_report(model, _keys(seed)))


def prior_predictive_p(problems: Problems, seed: int) -> tuple[np.ndarray, float | None]:
    """Prior draws as of `sample_prior_report`, and the p-value of the released sums of one problem under the prior
    predictive law.

    The smallest two-sided tail probability over the summaries of the sums, judged by its own law over the simulated
    releases: uniform if truth and sums come from the prior.

    Args:
        problems: one problem, as the method sees it.
        seed: of the simulated releases.

    Returns:
        draws [N, K]; p in (0, 1], at least 1 / (N + 1), or None for models whose sums are not those of alike records.
    """
    model: Any = problems.model_template()
    if not model.predicts_sums:
        return sample_prior_report(model, seed), None
    report, mean, deviation = (np.asarray(x) for x in _prior_and_sums(model, _keys(seed)))
    mean, deviation = mean.astype(np.float64), deviation.astype(np.float64)
    n, scale = float(problems.n[0]), problems.scale[0]
    rng = np.random.default_rng(seed)
    unit = mechanism_named(problems.mechanism).density.sample(rng, 1.0, mean.shape)
    per_record = mean + deviation / np.sqrt(n) + unit * (scale / n)
    together = np.concatenate([problems.z[:1] / n, per_record[np.isfinite(per_record).all(1)]])
    summaries = np.asarray(model.sum_summaries(together, scale / n), np.float64)
    count = len(summaries)
    ranks = np.empty(summaries.shape)
    np.put_along_axis(ranks, np.argsort(summaries, axis=0), np.arange(1.0, count + 1)[:, None], axis=0)
    extreme = np.minimum(ranks, count + 1 - ranks).min(1)
    return report, float((extreme <= extreme[0]).mean())
