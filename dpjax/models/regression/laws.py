"""Moments of laws of the covariates, for `KnownCovariates`: on the host, in float64.

Every function returns eta `[q, q]`, E x_i x_j of (1, x_1..x_p), q = p + 1, and xi `[q, q, q, q]`,
Cov(x_i x_j, x_k x_l).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpjax.errors import InputError

Moments = tuple[np.ndarray, np.ndarray]


def normal_moments(mean: Any, covariance: Any) -> Moments:
    """eta `[q, q]` and xi `[q, q, q, q]` of x ~ N(mean `[p]`, covariance `[p, p]`), unit feature first
    (docs/formulas.md#normal-moments)."""
    mean, covariance = np.atleast_1d(np.asarray(mean, np.float64)), np.asarray(covariance, np.float64)
    m = np.concatenate([[1.0], mean])
    c = np.pad(covariance.reshape(len(mean), len(mean)), ((1, 0), (1, 0)))
    second, outer = c + np.outer(m, m), np.outer(m, m)
    both = np.einsum("ik,jl->ijkl", c, second) + np.einsum("ik,jl->ijkl", outer, c)
    return second, both + both.swapaxes(2, 3)


def uniform_moments(low: Any, high: Any) -> Moments:
    """eta and xi of independent x_i uniform on (low_i, high_i)."""
    low, high = np.atleast_1d(np.asarray(low, np.float64)), np.atleast_1d(np.asarray(high, np.float64))
    powers = [(high ** (k + 1) - low ** (k + 1)) / ((k + 1) * (high - low)) for k in range(5)]
    return _from_monomials(len(low), lambda e: np.prod([powers[k][i] for i, k in enumerate(e)]))


def marginal_moments(mean: Any, kappa: float, psi: Any, nu: float) -> Moments:
    """eta and xi of ONE record whose mean and covariance are normal-inverse-Wishart: the paper's Gibbs-SS-Prior.

    Right for one record, and wrong as moments of independent ones (docs/formulas.md#dependent-records). x is Student-t:
    with T the covariance of the normal and x = mean + d, d | T ~ N(0, (1 + 1/kappa) T), so E d_i d_j d_k d_l needs E
    T_ij T_kl, in closed form for nu > p + 3.
    """
    mean, psi = np.atleast_1d(np.asarray(mean, np.float64)), np.asarray(psi, np.float64)
    p = len(mean)
    psi = psi.reshape(p, p)
    if nu <= p + 3:
        raise InputError(f"nu must be above p + 3 = {p + 3} for the fourth moments to exist; got {nu:g}")
    a = nu - p
    first = psi / (a - 1)
    c2 = 1 / (a * (a - 1) * (a - 3))
    c1 = (a - 2) * c2
    pair = lambda s: np.einsum(s, psi, psi)
    second = c1 * pair("ij,kl->ijkl") + c2 * (pair("ik,jl->ijkl") + pair("il,jk->ijkl"))  # E T_ij T_kl
    spread = 1 + 1 / kappa
    fourth = spread**2 * (second + second.transpose(0, 2, 1, 3) + second.transpose(0, 3, 2, 1))
    centred = np.zeros((p + 1,) * 4)
    centred[1:, 1:, 1:, 1:] = fourth
    c = np.pad(spread * first, ((1, 0), (1, 0)))
    m = np.concatenate([[1.0], mean])
    eta = c + np.outer(m, m)
    # E prod (m + d) over four factors; odd moments of d vanish
    four = centred + np.einsum("i,j,k,l->ijkl", m, m, m, m)
    for s in ("ij,kl", "ik,jl", "il,jk", "kl,ij", "jl,ik", "jk,il"):
        left, right = s.split(",")
        four += np.einsum(f"{left[0]},{left[1]},{right}->ijkl", m, m, c)
    return eta, four - np.einsum("ij,kl->ijkl", eta, eta)


def sampled_moments(records: Any) -> Moments:
    """eta and xi of the empirical law of records `[N, p]` (Monte Carlo moments of any law)."""
    records = np.asarray(records, np.float64)
    records = records[:, None] if records.ndim == 1 else records
    extended = np.concatenate([np.ones((len(records), 1)), records], axis=1)
    q, count = extended.shape[1], len(records)
    eta, fourth = extended.T @ extended / count, np.zeros((q * q, q * q))
    for start in range(0, count, 10_000):  # products of a million records with ten features are gigabytes
        rows = extended[start : start + 10_000]
        products = np.einsum("ni,nj->nij", rows, rows).reshape(len(rows), -1) - eta.ravel()
        fourth += products.T @ products
    return eta, (fourth / count).reshape(q, q, q, q)


def _from_monomials(p: int, expectation) -> Moments:
    q = p + 1
    exponent = lambda *index: tuple(sum(i == j for i in index) for j in range(1, q))
    eta = np.array([[expectation(exponent(i, j)) for j in range(q)] for i in range(q)])
    xi = np.zeros((q,) * 4)
    for index in np.ndindex(*xi.shape):
        i, j, k, m = index
        xi[index] = expectation(exponent(*index)) - eta[i, j] * eta[k, m]
    return eta, xi
