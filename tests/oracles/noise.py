"""Exact laws of Laplace noise, of its mixing variance and of a normal statistic seen through it."""

import numpy as np
from scipy import integrate, stats


def mixing_cdf(e):
    """Distribution function of w = omega^2/b^2 given the noise e (units of b): 1/w is inverse Gaussian."""
    e = abs(float(e))
    if e < 1e-12:
        return stats.chi2(1).cdf
    return lambda w: stats.invgauss(1 / e, scale=1.0).sf(1 / w)


def normal_laplace_log_density(y, m, v, b):
    """Log density of N(m, v) + Laplace(b) at y (docs/formulas.md#normal-laplace)."""
    r, sd = y - m, np.sqrt(v)
    left = stats.norm.logcdf((r - v / b) / sd) - r / b
    right = stats.norm.logcdf((-r - v / b) / sd) + r / b
    return -np.log(2 * b) + v / (2 * b * b) + np.logaddexp(left, right)


def normal_laplace_posterior(z, m, v, b):
    """Mean, standard deviation and skewness of s given z, for s ~ N(m, v) and z = s + Laplace(b)."""
    sd = np.sqrt(v)
    density = lambda s: np.exp(-0.5 * (s - m) ** 2 / v - abs(z - s) / b)
    moment = lambda k: sum(
        integrate.quad(lambda s: s**k * density(s), lo, hi, epsabs=0, epsrel=1e-11, limit=200)[0]
        for lo, hi in ((m - 12 * sd, z), (z, m + 12 * sd))
    )
    m0, m1, m2, m3 = (moment(k) for k in range(4))
    mean, var = m1 / m0, m2 / m0 - (m1 / m0) ** 2
    return mean, np.sqrt(var), (m3 / m0 - 3 * mean * var - mean**3) / var**1.5
