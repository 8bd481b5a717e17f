"""Posteriors of one parameter wherever they are, in NumPy, SciPy and mpmath only: the reference of computed posteriors.

A grid is dense, in steps of a few per cent of the distance, around every candidate for a top: where the mean of the sum
passes the release, and every local maximum seen so far. So a peak of any width is resolved. Binomial counts are summed
one by one near the release and the ends, and as a log-linear function between integers a few per cent apart elsewhere.
"""

from __future__ import annotations

import mpmath as mp
import numpy as np
from scipy import special

from .quadrature import log_normal_laplace

#: Steps per decade of the distance from a candidate.
STEPS = 60


# ---- moments of one record's released statistic, all as sums of positive terms ---------------------------------------
def _exponential(rate, a, b):
    """Masses below, inside, above; mean and variance inside."""
    x = rate * (b - a)
    small = x < 0.05
    y = np.where(small, 1.0, x)
    with np.errstate(over="ignore"):
        e = np.expm1(np.minimum(y, 700.0))
    mean = np.where(small, 0.5 - x / 12 + x**3 / 720 - x**5 / 30240, 1 / y - 1 / e)
    variance = np.where(small, 1 / 12 - x**2 / 240 + x**4 / 6048 - x**6 / 172800, 1 / y**2 - 1 / e - 1 / e**2)
    masses = -np.expm1(-rate * a), np.exp(-rate * a) * -np.expm1(-x), np.exp(-rate * b)
    return masses, a + (b - a) * mean, (b - a) ** 2 * variance


def _weighted(points, logs, weights):
    """Mean and variance of points [N] or [T, N] under weights exp(logs) [T, N]."""
    w = np.exp(logs - logs.max(1, keepdims=True)) * weights
    w /= w.sum(1, keepdims=True)
    mean = (w * points).sum(1)
    return mean, (w * (points - mean[:, None]) ** 2).sum(1)


def _gamma(rate, a, b, shape):
    """The same for a gamma record, whose bounds are a factor 2 apart at least, so that differences lose few digits."""

    def inside(k):
        low, high = special.gammainc(k, rate * a), special.gammainc(k, rate * b)
        upper = special.gammaincc(k, rate * a) - special.gammaincc(k, rate * b)
        return np.where(high < 0.5, high - low, upper)

    mass = inside(shape)
    some = mass > 1e-290
    q = np.where(some, mass, 1.0)
    mean = np.where(some, shape / rate * inside(shape + 1) / q, a)
    square = np.where(some, shape * (shape + 1) / rate**2 * inside(shape + 2) / q, a * a)
    masses = special.gammainc(shape, rate * a), mass, special.gammaincc(shape, rate * b)
    return masses, mean, np.maximum(square - mean * mean, 0.0)


def _counts(log_pmf, below, above, a, b):
    k = np.arange(a, b + 1)
    logs = log_pmf(k[None])
    mean, variance = _weighted(k[None], logs, np.ones_like(logs))
    return (below, np.exp(special.logsumexp(logs, axis=1)), above), mean, variance


def moments(kind, theta, a, b, rule, shape=1.0):
    """Mean and variance of one record's clamped or redacted statistic at parameters theta `[T]`."""
    if kind == "exponential":
        masses, mean, variance = _exponential(theta, a, b)
    elif kind == "gamma":
        masses, mean, variance = _gamma(theta, a, b, shape)
    elif kind == "poisson":
        log_pmf = lambda k: k * np.log(theta)[:, None] - theta[:, None] - special.gammaln(k + 1)
        below = special.gammaincc(a, theta) if a > 0 else 0.0 * theta
        masses, mean, variance = _counts(log_pmf, below, special.gammainc(b + 1, theta), a, b)
    else:
        other = np.log1p(-theta)
        log_pmf = lambda k: np.log(theta)[:, None] + k * other[:, None]
        masses, mean, variance = _counts(log_pmf, -np.expm1(a * other), np.exp((b + 1) * other), a, b)
    low, high = (a, b) if rule == "clamp" else (0.0, 0.0)
    total = sum(masses)
    q = [m / total for m in masses]
    m = q[0] * low + q[1] * mean + q[2] * high
    return m, q[0] * (low - m) ** 2 + q[1] * (variance + (mean - m) ** 2) + q[2] * (high - m) ** 2


def one_record(kind, theta, a, b, rule):
    """Probabilities of the values start, start + 1, ..., b of one record's statistic, and start."""
    k = np.arange(int(b) + 1)
    if kind == "poisson":
        pmf = np.exp(k * np.log(theta) - theta - special.gammaln(k + 1))
        above = special.gammainc(b + 1, theta)
    else:
        pmf, above = theta * np.exp(k * np.log1p(-theta)), np.exp((b + 1) * np.log1p(-theta))
    start = int(a) if rule == "clamp" else 0
    out = np.zeros(int(b) - start + 1)
    if rule == "clamp":
        np.add.at(out, np.maximum(k, int(a)) - start, pmf)
        out[-1] += above
    else:
        np.add.at(out, np.where(k >= a, k, 0), pmf)
        out[0] += above
    return out, start


def log_law_of_few(kind, theta, z, n, scale, a, b, rule, gaussian):
    """log p(z | theta), up to a constant, with the exact law of the sum of n counts by convolution of positive numbers.

    Records are weighted by exp(tilt k) first, so that sums near z do not underflow.
    """
    out = np.empty(len(theta))
    for i, t in enumerate(theta):
        one, start = one_record(kind, t, a, b, rule)
        k = np.arange(len(one))
        with np.errstate(divide="ignore"):
            log_one = np.log(one)
        wanted = np.clip((z / n - start) / k[-1], 0.02, 0.98) * k[-1]
        # the noise cannot pull harder than this
        steep = np.abs(z - n * np.array([start, b])).max() / scale**2 if gaussian else 1.0 / scale
        low, high = -min(steep, 40.0), min(steep, 40.0)
        for _ in range(16):
            tilt = 0.5 * (low + high)
            weight = np.exp(log_one + tilt * k - (log_one + tilt * k).max())
            low, high = (tilt, high) if (weight * k).sum() < wanted * weight.sum() else (low, tilt)
        total = special.logsumexp(log_one + tilt * k)
        one = np.exp(log_one + tilt * k - total)
        whole = np.ones(1)
        for bit in bin(int(n))[2:]:
            whole = np.convolve(whole, whole)
            if bit == "1":
                whole = np.convolve(whole, one)
        s = np.arange(len(whole))
        away = (z - (n * start + s)) / scale
        with np.errstate(divide="ignore"):
            logs = np.log(whole) - tilt * s - (0.5 * away**2 if gaussian else np.abs(away))
        out[i] = special.logsumexp(logs) + n * total
    return out


# ---- the posterior -------------------------------------------------------------------------------------------------
def _constrain(kind, phi):
    return special.expit(phi) if kind in ("binomial", "geometric") else np.exp(phi)


def _log_prior(kind, phi, prior):
    if kind == "geometric":
        return -prior["alpha"] * np.logaddexp(0, -phi) - prior["beta"] * np.logaddexp(0, phi)
    return prior["shape"] * phi - prior["rate"] * np.exp(phi)


def posterior(kind, z, n, scale, prior, a, b, rule, *, gaussian=False, exact=False, shape=1.0, steps=STEPS):
    """Mean, sd, 5% and 95% quantile of the parameter.

    Args:
        exact: the exact law of the sum of few counts, else the normal law.
        steps: per decade of the distance from a candidate.
    """
    if kind == "binomial":
        return binomial(z, n, scale, prior, gaussian=gaussian)

    def parts(phi):
        theta = _constrain(kind, phi)
        with np.errstate(all="ignore"):
            m, v = moments(kind, theta, a, b, rule, shape)
            r, variance = (z - n * m) / scale, np.maximum(n * v / scale**2, 1e-12)
            if exact:
                like = log_law_of_few(kind, theta, z, n, scale, a, b, rule, gaussian)
            elif gaussian:
                like = -0.5 * (np.log(variance + 1) + r * r / (variance + 1))
            else:
                like = log_normal_laplace(r, variance)
                far = np.abs(r) > variance + 40 * np.sqrt(variance)
                like = np.where(far, variance / 2 - np.abs(r) - np.log(2), like)
                like = np.where(np.isfinite(like), like, -r * r / (2 * variance) - 0.5 * np.log(variance))
        logs = _log_prior(kind, phi, prior) + like
        return np.where(np.isfinite(logs), logs, -np.inf), r

    logit = kind == "geometric"
    least = min(prior["alpha"], prior["beta"]) if logit else prior["shape"]
    end = max(40.0, min(60.0 / least, 600.0))
    start = np.concatenate([-np.geomspace(12, end, 60)[::-1], np.linspace(-12, 12, 121 if exact else 1501)])
    start = np.concatenate([start, np.geomspace(12, 36.0 if logit else 40.0, 40)])
    phi = np.unique(start)
    if exact:  # few records: no peak narrower than the prior's
        for points in (0, 200, 500):
            keep = np.flatnonzero(logs > logs.max() - 45) if points else None
            if points:
                low, high = phi[max(keep[0] - 1, 0)], phi[min(keep[-1] + 1, len(phi) - 1)]
                phi = np.linspace(low, high, points)
            else:
                width = np.geomspace(1e-4, 1, 25)
                top = _prior_top(kind, prior)
                phi = np.unique(np.concatenate([start, top - width, [top], top + width]))
            logs, _ = parts(phi)
        return _summary(phi, _constrain(kind, phi), logs)
    logs, r = parts(phi)
    near = []  # candidates
    cross = np.flatnonzero(np.sign(r[1:]) != np.sign(r[:-1]))
    for i in cross:
        low, high, at = phi[i], phi[i + 1], r[i]
        for _ in range(60):
            middle = 0.5 * (low + high)
            value = parts(np.array([middle]))[1][0]
            low, high = (middle, high) if (value > 0) == (at > 0) else (low, middle)
        near.append(0.5 * (low + high))
    near.append(_prior_top(kind, prior))
    offsets = np.geomspace(1e-10, 30, int(11.5 * steps))
    for _ in range(6):
        add = np.concatenate([np.concatenate([x - offsets, [x], x + offsets]) for x in near]) if near else np.zeros(0)
        add = np.setdiff1d(add[(add > phi[0]) & (add < phi[-1])], phi)
        if not len(add):
            break
        logs_add, _ = parts(add)
        order = np.argsort(np.concatenate([phi, add]))
        phi, logs = np.concatenate([phi, add])[order], np.concatenate([logs, logs_add])[order]
        inner = np.flatnonzero((logs[1:-1] >= logs[:-2]) & (logs[1:-1] > logs[2:])) + 1
        inner = inner[logs[inner] > logs.max() - 60]
        # those whose top is not yet resolved: the neighbours lie far below
        drop = np.maximum(logs[inner] - logs[inner - 1], logs[inner] - logs[inner + 1])
        near = [phi[i] for i in inner[drop > 1e-3]][:8]
    theta = _constrain(kind, phi)
    return _summary(phi, theta, logs)


def _prior_top(kind, prior):
    if kind == "geometric":
        return np.log(prior["alpha"]) - np.log(prior["beta"])
    return np.log(prior["shape"]) - np.log(prior["rate"])


def _summary(phi, theta, logs):
    """Mean, sd and quantiles of a density that is log-linear in phi between the nodes."""
    density = np.exp(logs - logs.max())
    h = np.diff(phi)
    mass = 0.5 * h * (density[1:] + density[:-1])
    weight = np.zeros_like(phi)
    weight[:-1] += 0.5 * h * density[:-1]
    weight[1:] += 0.5 * h * density[1:]
    weight /= weight.sum()
    mean = (weight * theta).sum()
    sd = np.sqrt((weight * (theta - mean) ** 2).sum())
    cdf = np.concatenate([[0], np.cumsum(mass)]) / mass.sum()
    low, high = np.interp([0.05, 0.95], cdf, theta)
    return mean, sd, low, high


# ---- binomial counts -------------------------------------------------------------------------------------------------
def _log_counts(s, n, alpha, beta):
    """log of C(n, s) B(alpha + s, beta + n - s), relative to the first s; 50 digits where doubles do not do."""
    if n <= 200_000 and alpha + beta < 1e7:
        g = special.gammaln
        out = g(s + alpha) - g(s + 1) + g(n - s + beta) - g(n - s + 1)
        return out - out[0]
    with mp.workdps(50):
        g = lambda x: mp.loggamma(mp.mpf(x))
        one = lambda k: g(k + alpha) - g(k + 1) + g(n - k + beta) - g(n - k + 1)
        s = [mp.mpf(int(k)) for k in s]
        alpha, beta, n = mp.mpf(alpha), mp.mpf(beta), mp.mpf(int(n))
        first = one(s[0])
        return np.array([float(one(k) - first) for k in s])


def binomial(z, n, scale, prior, *, gaussian=False):
    """Mean and sd of p with the exact law of the sum, and NaN for the quantiles."""
    alpha, beta = prior["alpha"], prior["beta"]
    size = alpha + beta + n
    noise = lambda s: -0.5 * ((z - s) / scale) ** 2 if gaussian else -np.abs(z - s) / scale
    if n <= 20_000:
        s = np.arange(n + 1)
        logs = _log_counts(s, n, alpha, beta) + noise(s)
        weight = np.exp(logs - logs.max())
        return (*_beta_mixture(s, weight / weight.sum(), np.zeros(len(s)), alpha, beta, size), np.nan, np.nan)
    # integers at steps of a few per cent of the distance from candidates
    near = [0.0, n, float(np.clip(round(z), 0, n)), n * alpha / (alpha + beta)]
    s = np.zeros(0)
    logs = np.zeros(0)
    for _ in range(8):
        offsets = np.unique(np.concatenate([np.arange(24), np.geomspace(24, n, 400).round()]))
        add = np.unique(np.concatenate([np.clip(np.round(x) + sign * offsets, 0, n) for x in near for sign in (-1, 1)]))
        s = np.unique(np.concatenate([s, add, np.clip(np.floor(z) + np.array([0, 1]), 0, n)]))
        logs = _log_counts(s, n, alpha, beta) + noise(s)
        inner = np.flatnonzero((logs[1:-1] >= logs[:-2]) & (logs[1:-1] > logs[2:])) + 1
        inner = inner[logs[inner] > logs.max() - 60]
        drop = np.maximum(logs[inner] - logs[inner - 1], logs[inner] - logs[inner + 1])
        near = [s[i] for i in inner[(drop > 5e-3) & (s[inner + 1] - s[inner - 1] > 2)]]
        if not near:
            break
    # counts from one node up to the next one, as a geometric series
    h = np.diff(s)
    step = np.diff(logs) / h
    k0 = logs[:-1] - logs.max()
    flat = np.abs(step) < 1e-12
    safe = np.where(flat, 1.0, step)
    with np.errstate(over="ignore", invalid="ignore"):
        rising = np.exp(k0) * np.expm1(np.clip(safe * h, -700, 700)) / np.expm1(safe)
        falls = np.exp(k0 + step * h) * np.expm1(np.clip(-safe * h, -700, 700)) / np.expm1(-safe) * np.exp(-safe)
    mass = np.where(flat, np.exp(k0) * h, np.where(step > 0, falls, rising))
    x = step * h
    small = np.abs(x) < 1e-3
    y = np.where(small, 1.0, np.clip(x, -700, 700))
    # centre of exp(x t) on [0, 1], and its variance there
    centre = np.where(small, 0.5 + x / 12, 1 / -np.expm1(-y) - 1 / y)
    spread = np.where(small, 1 / 12.0, 1 / y**2 - 1 / (4 * np.sinh(y / 2) ** 2))
    middle = np.where(h > 1, s[:-1] + centre * h - 0.5, s[:-1])
    within = np.where(h > 1, np.maximum(spread * h * h - 1 / 12, 0), 0.0)
    middle, within = np.append(middle, s[-1]), np.append(within, 0.0)
    mass = np.append(mass, np.exp(logs[-1] - logs.max()))
    return (*_beta_mixture(middle, mass / mass.sum(), within, alpha, beta, size), np.nan, np.nan)


def _beta_mixture(s, weight, within, alpha, beta, size):
    middle = (weight * s).sum()
    p, q = (alpha + s) / size, (size - alpha - s) / size
    variance = weight * (p * q / (size + 1) + ((s - middle) / size) ** 2 + within / size**2)
    return (alpha + middle) / size, np.sqrt(variance.sum())
