"""Exact moments of regression statistics by enumeration, and simulated records."""

import numpy as np


def statistic_indices(p, intercept=True):
    """Pairs (a, b) into (1, x, y), or into (x, y) without intercept, written out from the list of entries."""
    if intercept:
        first = [(0, i) for i in range(1, p + 1)]
        first += [(i, j) for i in range(1, p + 1) for j in range(i, p + 1)]
        return first + [(i, p + 1) for i in range(p + 1)] + [(p + 1, p + 1)]
    first = [(i, j) for i in range(p) for j in range(i, p)]
    return first + [(i, p) for i in range(p)] + [(p, p)]


def enumerated_moments(points, weights, theta, sigma2, intercept=True):
    """Mean and covariance of one record's statistic for x on finitely many points, by Gauss-Hermite over y.

    Args:
        points: values of x, `[N, p]` without the unit feature.
        weights: probabilities `[N]`.
        theta: coefficients, intercept first when there is one.
        sigma2: noise variance.
    """
    nodes, node_weights = np.polynomial.hermite_e.hermegauss(9)
    node_weights = node_weights / node_weights.sum()
    p = points.shape[1]
    features = np.c_[np.ones(len(points)), points] if intercept else points
    rows, masses = [], []
    for x, w in zip(features, weights, strict=True):
        for node, mass in zip(nodes, node_weights, strict=True):
            r = np.append(x, x @ theta + np.sqrt(sigma2) * node)
            rows.append([r[a] * r[b] for a, b in statistic_indices(p, intercept)])
            masses.append(w * mass)
    t, w = np.array(rows), np.array(masses)
    mean = w @ t
    return mean, (t - mean).T @ ((t - mean) * w[:, None])


def discrete_law(points, weights, intercept=True):
    """eta_ij = E x_i x_j and xi_ijkl = Cov(x_i x_j, x_k x_l) of x on finitely many points."""
    x = np.c_[np.ones(len(points)), points] if intercept else points
    products = np.einsum("ni,nj->nij", x, x)
    eta = np.einsum("n,nij->ij", weights, products)
    return eta, np.einsum("n,nij,nkl->ijkl", weights, products - eta, products - eta)


def simulated_statistics(rng, records, mean, factor, theta, sigma2):
    """Statistic of each of `records` records with normal covariates `[records, D]`."""
    p = len(mean)
    x = mean + rng.normal(size=(records, p)) @ factor.T
    y = theta[0] + x @ theta[1:] + np.sqrt(sigma2) * rng.normal(size=records)
    r = np.c_[np.ones(records), x, y]
    a, b = np.array(statistic_indices(p)).T
    return r[:, a] * r[:, b]
