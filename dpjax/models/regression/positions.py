"""From reported parameters of a regression back to unconstrained ones, on the host."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def regression_positions(reported: Float[np.ndarray, "N K"], p: int, intercept: bool) -> Float[np.ndarray, "N P"]:
    """Positions of all reported parameters, in scaled units.

    Args:
        reported: theta, sigma2, with an intercept mu_x, and the lower triangle of tau2 row by row.
        p: number of features.
        intercept: whether theta has one.
    """
    first = 1 if intercept else 0
    beta, log_s2 = reported[:, first : first + p], np.log(reported[:, first + p : first + p + 1])
    row, column = np.tril_indices(p)
    tau2 = np.zeros((len(reported), p, p))
    tau2[:, row, column] = tau2[:, column, row] = reported[:, -len(row) :]
    lower = np.linalg.cholesky(tau2)
    diagonal = np.diagonal(lower, axis1=1, axis2=2)
    row, column = np.tril_indices(p, -1)
    covariance = [np.log(diagonal), (lower / diagonal[..., None])[:, row, column]]
    if not first:
        return np.concatenate([beta, log_s2, *covariance], axis=1)
    mu = reported[:, p + 2 : 2 * p + 2]
    alpha = reported[:, :1] + (mu * beta).sum(axis=1, keepdims=True)
    return np.concatenate([mu, alpha, beta, log_s2, *covariance], axis=1)
