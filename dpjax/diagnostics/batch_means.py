"""Effective sample size and R-hat from means of batches, for runs that keep no draws."""

from __future__ import annotations

import numpy as np

from dpjax.errors import InputError


def batch_means_ess(batch_means, batch_variances, batch_length: int) -> np.ndarray:
    """Effective sample size by replicated batch means, for streaming runs that keep no draws.

    The long-run variance is batch_length / (C B - 1) times the squared deviations of the C B batch means from
    their common mean, so chains that disagree have a small ESS (Argon and Andradottir 2006; Gupta and Vats
    2020). Report it as "batch-means ESS": it is neither rank-normalised nor robust to infinite variances, and
    it cannot fall under C B - 1, so use few long batches (10 to 20 per chain) and read it with `split_rhat`.

    Args:
        batch_means: [T, C, B, K], mean of each batch of consecutive draws.
        batch_variances: [T, C, B, K], biased variance (mean square minus squared mean) within each batch.
        batch_length: draws in a batch.

    Returns:
        [T, K], not capped; NaN where the parameter never moved.
    """
    means, variances = _batches(batch_means, batch_variances)
    problems, chains, batches, parameters = means.shape
    count = chains * batches
    if count < 2:
        raise InputError("batch_means: at least two batches are needed")
    flat = means.reshape(problems, count, parameters)
    between = flat.var(axis=1)
    total = variances.mean(axis=(1, 2)) + between
    long_run = batch_length * between * count / (count - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return count * batch_length * total / long_run


def split_rhat(batch_means, batch_variances, batch_length: int) -> np.ndarray:
    """Plain split R-hat (no ranks) from per-batch means and variances, for streaming runs.

    Gelman et al. (2013), Bayesian Data Analysis, section 11.4: each chain is cut into two halves; with an odd
    number of batches the middle one is left out.

    Args:
        batch_means: [T, C, B, K] with B at least 2.
        batch_variances: [T, C, B, K], biased variance within each batch.
        batch_length: draws in a batch.

    Returns:
        [T, K]; NaN where the parameter never moved.
    """
    means, variances = _batches(batch_means, batch_variances)
    half = means.shape[2] // 2
    if half < 1:
        raise InputError("batch_means: at least two batches per chain are needed")
    halves = [slice(None, half), slice(-half, None)]
    length = half * batch_length
    mean = np.concatenate([means[:, :, h].mean(axis=2) for h in halves], axis=1)
    var = np.concatenate([variances[:, :, h].mean(axis=2) + means[:, :, h].var(axis=2) for h in halves], axis=1)
    within = var.mean(axis=1) * length / (length - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt((mean.var(axis=1, ddof=1) / within * length + length - 1) / length)


def _batches(batch_means, batch_variances) -> tuple[np.ndarray, np.ndarray]:
    means = np.asarray(batch_means, dtype=np.float64)
    variances = np.asarray(batch_variances, dtype=np.float64)
    if means.ndim != 4 or means.shape != variances.shape:
        raise InputError(
            "batch_means, batch_variances: two arrays [problems, chains, batches, parameters] are needed, "
            f"got {means.shape} and {variances.shape}"
        )
    return means, variances
