"""Posteriors of one parameter on a dense grid, in NumPy and SciPy only: the reference of samplers
(docs/formulas.md#normal-laplace, #exact-binomial).

Moments of clamped and redacted records come from their own sums and closed forms, not from dpjax.
"""

from __future__ import annotations

import numpy as np
from scipy import special, stats

POINTS = 400_001


def log_normal_laplace(r, v):
    """log density of N(0, v) + Laplace(0, 1) at r (docs/formulas.md#normal-laplace with b = 1); equal to the normal
    where v is huge."""
    root = np.sqrt(v)
    one = special.log_ndtr((r - v) / root) - r
    other = special.log_ndtr((-r - v) / root) + r
    plain = -np.log(2) + v / 2 + np.logaddexp(one, other)
    # where v/2 cancels against log Phi only the first terms of a series in 1/v are left
    normal = stats.norm.logpdf(r, scale=np.sqrt(v + 2))
    return np.where(v > 1e8, normal, plain)


def exponential_moments(rate, a, b, rule):
    """Mean and variance of one clamped or redacted exponential record."""
    ea, eb = np.exp(-rate * a), np.exp(-rate * b)
    if rule == "redact":
        m = (a + 1 / rate) * ea - (b + 1 / rate) * eb
        m2 = (a * a + 2 * a / rate + 2 / rate**2) * ea - (b * b + 2 * b / rate + 2 / rate**2) * eb
    else:
        m = a + (ea - eb) / rate
        m2 = a * a + 2 * ((a / rate + 1 / rate**2) * ea - (b / rate + 1 / rate**2) * eb)
    return m, m2 - m * m


def count_pmf(kind, theta, size):
    """pmf over 0..size - 1 of Poisson or geometric, a row per parameter."""
    k = np.arange(size)
    theta = np.asarray(theta)[:, None]
    return stats.poisson.pmf(k, theta) if kind == "poisson" else stats.geom.pmf(k + 1, theta)


def count_moments(kind, theta, a, b, rule):
    """Mean and variance of one clamped or redacted count."""
    k = np.arange(int(b) + 1)
    pmf = count_pmf(kind, theta, int(b) + 1)
    above = np.maximum(1 - pmf.sum(1), 0)
    if kind == "poisson":
        above = stats.poisson.sf(b, np.asarray(theta))
    else:
        above = (1 - np.asarray(theta)) ** (b + 1)
    value = np.clip(k, a, b) if rule == "clamp" else np.where(k >= a, k, 0)
    top = b if rule == "clamp" else 0.0
    m = pmf @ value + above * top
    return m, pmf @ value**2 + above * top**2 - m * m


def moments(kind, theta, a, b, rule):
    """Mean and variance of one record's released statistic."""
    if kind == "binomial":
        return theta, theta * (1 - theta)
    if kind == "exponential":
        return exponential_moments(theta, a, b, rule)
    return count_moments(kind, theta, a, b, rule)


def log_prior(kind, phi, prior):
    """Log prior density of phi = log rate or logit p, up to a constant."""
    if kind in ("binomial", "geometric"):
        return -prior["alpha"] * np.logaddexp(0, -phi) - prior["beta"] * np.logaddexp(0, phi)
    return prior["shape"] * phi - prior["rate"] * np.exp(phi)


def constrain(kind, phi):
    """Reported parameter of phi."""
    return special.expit(phi) if kind in ("binomial", "geometric") else np.exp(phi)


def posterior(kind, z, n, scale, prior, a=0.0, b=1.0, rule="none", gaussian=False, law=None, points=POINTS):
    """Mean and sd of the parameter, and the grid (parameter, weight), of the normal model or of an exact law.

    law: `law(theta) -> log p(z | theta)`, instead of the normal law of the sum.
    """
    if kind in ("binomial", "geometric"):
        low, high = -16.0, 16.0
    else:
        low, high = -9.0, 7.0
    phi = np.linspace(low, high, 4001)
    for size in (4001, points):  # the second grid covers what the first found
        phi = np.linspace(low, high, size)
        theta = constrain(kind, phi)
        if law is None:
            m, v = moments(kind, theta, a, b, rule)
            r, var = (z - n * m) / scale, n * np.maximum(v, 1e-300) / scale**2
            like = stats.norm.logpdf(r, scale=np.sqrt(var + 1)) if gaussian else log_normal_laplace(r, var)
        else:
            like = law(theta)
        logs = log_prior(kind, phi, prior) + like
        logs = np.where(np.isnan(logs), -np.inf, logs)
        keep = np.flatnonzero(logs > logs.max() - 60)
        low, high = phi[max(keep[0] - 1, 0)], phi[min(keep[-1] + 1, size - 1)]
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    mean = (weight * theta).sum()
    return mean, np.sqrt((weight * (theta - mean) ** 2).sum()), theta, weight


def exact_count_law(kind, z, n, scale, a, b, rule):
    """log p(z | theta) with the exact law of the sum of n clamped or redacted counts, by convolution."""

    def law(theta):
        out = np.empty(len(theta))
        start = a if rule == "clamp" else 0
        k = np.arange(int(b) + 1)
        for i, t in enumerate(theta):
            pmf = count_pmf(kind, np.array([t]), int(b) + 1)[0]
            one = np.zeros(int(b - start) + 1)
            above = stats.poisson.sf(b, t) if kind == "poisson" else (1 - t) ** (b + 1)
            if rule == "clamp":
                np.add.at(one, np.clip(k, a, b).astype(int) - int(start), pmf)
                one[-1] += above
            else:
                np.add.at(one, np.where(k >= a, k, 0), pmf)
                one[0] += above
            full = np.array([1.0])
            for bit in bin(n)[2:]:
                full = np.convolve(full, full)
                if bit == "1":
                    full = np.convolve(full, one)
            s = n * start + np.arange(len(full))
            out[i] = np.log(np.maximum((full * np.exp(-np.abs(z - s) / scale)).sum(), 1e-300))
        return out

    return law
