"""Maximum mean discrepancy between posteriors."""

from __future__ import annotations

import numpy as np

from dpjax.calibration.ranks import thin
from dpjax.errors import InputError

MMD_NOTE = (
    "unbiased squared MMD per trial over all parameters (of a regression theta and sigma2), averaged over trials; each "
    "parameter divided by the trial's non-private posterior sd; kernel exp(-d^2 / (2 K)), K parameters"
)


def mmd_squared(x, y, bandwidth: float | str = 1.0) -> np.ndarray:
    """Unbiased squared maximum mean discrepancy, paired U-statistic with a Gaussian kernel (docs/formulas.md#mmd).

    Mean over i != j of k(x_i, x_j) + k(y_i, y_j) - k(x_i, y_j) - k(x_j, y_i), with
    k(a, b) = exp(-||a - b||^2 / (2 bandwidth^2)). It may be negative.

    Args:
        x, y: [T, L, K], L draws each of T pairs of K-dimensional distributions.
        bandwidth: a number, or "median": per trial, the median distance between the pooled draws.

    Returns:
        [T].
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x.ndim != 3 or x.shape != y.shape or x.shape[1] < 2:
        raise InputError(f"x, y: two arrays [T, L, K] with L at least 2 are needed, got {x.shape}, {y.shape}")
    trials, length = x.shape[:2]
    out = np.empty(trials)
    step = max(1, 1_000_000 // length**2)
    off = ~np.eye(length, dtype=bool)
    for start in range(0, trials, step):
        a, b = x[start : start + step], y[start : start + step]
        xx, yy, xy = _squared_distances(a, a), _squared_distances(b, b), _squared_distances(a, b)
        if bandwidth == "median":
            pooled = np.concatenate([xx[:, off], yy[:, off], xy.reshape(len(a), -1)], axis=1)
            width = np.median(pooled, axis=1)[:, None, None]
        else:
            width = float(bandwidth) ** 2
        kernel = np.exp(-xx / (2 * width)) + np.exp(-yy / (2 * width)) - 2 * np.exp(-xy / (2 * width))
        out[start : start + step] = kernel[:, off].mean(axis=1)
    return out


def mmd_to_nonprivate(draws, nonprivate, keep: int = 100) -> np.ndarray:
    """Squared MMD between each trial's private and non-private posterior, [T].

    docs/formulas.md#mmd: a unit bandwidth is blind to narrow posteriors, so every parameter is divided by the trial's
    non-private posterior sd; the bandwidth is then sqrt(K), that is, the kernel is exp(-d^2 / (2 K)).

    Args:
        draws: [T, C, S, K] private draws.
        nonprivate: [T, C', S', K] draws of the posterior given the exact statistics.
        keep: about how many thinned draws of each are compared.
    """
    nonprivate = np.asarray(nonprivate, dtype=np.float64)
    sd = nonprivate.reshape(nonprivate.shape[0], -1, nonprivate.shape[3]).std(axis=1, ddof=1)[:, None]
    x, y = thin(draws, keep) / sd, thin(nonprivate, keep) / sd
    length = min(x.shape[1], y.shape[1])
    return mmd_squared(x[:, :length], y[:, :length], bandwidth=float(np.sqrt(sd.shape[2])))


def _squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    # centred first: the expanded square loses digits when draws lie far from zero
    centre = a.mean(axis=1, keepdims=True)
    a, b = a - centre, b - centre
    cross = a @ b.transpose(0, 2, 1)
    squares = (a * a).sum(axis=2)[:, :, None] + (b * b).sum(axis=2)[:, None, :]
    return np.maximum(squares - 2 * cross, 0.0)
