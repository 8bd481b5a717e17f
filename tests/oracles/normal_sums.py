"""Posterior of a normal model given noisy sums of x and x^2 of clamped or redacted records, in NumPy and SciPy only.

The model: sums normal with the moments of one record (closed forms of the truncated normal), Laplace noise in each. One
noise is integrated on a grid, the other in closed form; mean and log variance on a grid that closes in.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from .quadrature import log_normal_laplace


def record_moments(mean, sd, low, high, rule):
    """Mean `[2, N]` and covariance `[2, 2, N]` of (x, x^2) of one clamped or redacted N(mean, sd^2) record."""
    a, b = (low - mean) / sd, (high - mean) / sd
    # masses from the nearer tail; densities at the ends
    flip = a > 0
    inside = np.where(flip, stats.norm.sf(a) - stats.norm.sf(b), stats.norm.cdf(b) - stats.norm.cdf(a))
    pa, pb = stats.norm.pdf(a), stats.norm.pdf(b)
    u = [inside, pa - pb]
    for k in range(2, 5):  # E u^k over [a, b]
        u.append((k - 1) * u[k - 2] + a ** (k - 1) * pa - b ** (k - 1) * pb)
    binomial = [[1], [1, 1], [1, 2, 1], [1, 3, 3, 1], [1, 4, 6, 4, 1]]
    raw = [sum(c * mean ** (k - i) * sd**i * u[i] for i, c in enumerate(binomial[k])) for k in range(5)]
    if rule == "clamp":
        below, above = stats.norm.cdf(a), stats.norm.sf(b)
        raw = [raw[k] + low**k * below + high**k * above for k in range(5)]
    m = np.stack([raw[1], raw[2]])
    cov = np.stack([np.stack([raw[2] - m[0] ** 2, raw[3] - m[0] * m[1]]),
                    np.stack([raw[3] - m[0] * m[1], raw[4] - m[1] ** 2])])  # fmt: skip
    return m, cov


def log_likelihood(z, n, scale, m, cov):
    """log p(z) of N(n m, n cov) + Laplace(scale) in both entries, for N parameters at once."""
    r = (np.asarray(z)[:, None] - n * m) / scale
    s = n * cov / scale**2
    s11 = np.maximum(s[0, 0], 1e-12)
    slope = s[1, 0] / s11
    rest = np.maximum(s[1, 1] - slope * s[1, 0], 1e-12)

    def values(e):  # e [G, N]: noise of the first entry
        first = -0.5 * (r[0] - e) ** 2 / s11 - 0.5 * np.log(2 * np.pi * s11) - np.abs(e) - np.log(2)
        return first + log_normal_laplace(r[1] - slope * (r[0] - e), rest)

    reach = 12 * np.sqrt(s11)
    low, high = np.minimum(-45.0, r[0] - reach), np.maximum(45.0, r[0] + reach)
    for size in (65, 65, 65, 301):
        e = low + (high - low) * np.linspace(0, 1, size)[:, None]
        logs = values(e)
        near = logs > logs.max(0) - 40
        first = np.maximum(near.argmax(0) - 1, 0)
        last = np.minimum(size - near[::-1].argmax(0), size - 1)
        column = np.arange(e.shape[1])
        low, high = e[first, column], e[last, column]
    top = logs.max(0)
    return top + np.log(np.exp(logs - top).sum(0)) + np.log(e[1] - e[0])


def posterior(z, n, scale, prior, low, high, rule, points=161, box=None):
    """Means and sds of (mean, variance), and the grid: mean `[A]`, log variance `[B]`, weight `[A, B]`.

    prior: mean, kappa, shape, scale of the normal-inverse-gamma; box: ((mean from, to), (log variance from, to)) where
    to begin.
    """
    (m0, m1), (v0, v1) = box or ((-6.0, 6.0), (-12.0, 6.0))
    for size in (points, points, points, 2 * points):
        mean, log_v = np.linspace(m0, m1, size), np.linspace(v0, v1, size)
        a, b = (x.ravel() for x in np.meshgrid(mean, log_v, indexing="ij"))
        shift = a - prior["mean"]
        logs = -(prior["shape"] + 0.5) * b - np.exp(-b) * (prior["scale"] + 0.5 * prior["kappa"] * shift**2)
        with np.errstate(all="ignore"):
            parts = [
                log_likelihood(z, n, scale, *record_moments(x, np.exp(0.5 * y), low, high, rule))
                for x, y in zip(np.array_split(a, 40), np.array_split(b, 40), strict=True)
            ]
        logs = logs + np.concatenate(parts)
        logs = np.where(np.isfinite(logs), logs, -np.inf).reshape(size, size)
        keep = logs > logs.max() - 25
        i, j = np.flatnonzero(keep.any(1)), np.flatnonzero(keep.any(0))
        m0, m1 = mean[max(i[0] - 1, 0)], mean[min(i[-1] + 1, size - 1)]
        v0, v1 = log_v[max(j[0] - 1, 0)], log_v[min(j[-1] + 1, size - 1)]
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    variance = np.exp(log_v)
    means = np.array([weight.sum(1) @ mean, weight.sum(0) @ variance])
    squares = np.array([weight.sum(1) @ (mean - means[0]) ** 2, weight.sum(0) @ (variance - means[1]) ** 2])
    return means, np.sqrt(squares), mean, log_v, weight
