"""Posterior moments of a regression through the origin with one feature, given noisy sums of several parties.

Given theta, sigma2 and tau2 the exact sums of n records have the law
    sum x^2 / tau2 ~ chi2(n);  sum x y | sum x^2 ~ N(theta sum x^2, sigma2 sum x^2);
    (sum y^2 - (sum x y)^2 / sum x^2) / sigma2 ~ chi2(n - 1),
so that the likelihood of noisy ones z is the mean of that density at z - e over the noise e. Parameters (by the
quantiles of the prior) and noise (by those of its law) run over scrambled Sobol points; SciPy's laws alone are used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats
from scipy.special import gammaln


def _points(dim: int, power: int, seed: int) -> np.ndarray:
    return np.clip(stats.qmc.Sobol(dim, seed=seed).random_base2(power), 1e-9, 1 - 1e-9)


def parameters(base: Any, power: int, seed: int) -> np.ndarray:
    """theta, sigma2, tau2 `[N, 3]` of the conjugate prior `base`."""
    u = _points(3, power, seed)
    f = lambda name: float(np.asarray(getattr(base, name), np.float64).squeeze())
    sigma2 = stats.invgamma(f("sigma2_shape"), scale=f("sigma2_scale")).ppf(u[:, 0])
    theta = f("theta_mean") + np.sqrt(sigma2 / f("theta_precision")) * stats.norm.ppf(u[:, 1])
    tau2 = stats.invgamma(f("nu") / 2, scale=f("psi") / 2).ppf(u[:, 2])
    return np.stack([theta, sigma2, tau2], 1)


def log_likelihood(phi: np.ndarray, z, scale, n: int, law: Any, target: bool, power: int, seed: int) -> np.ndarray:
    """Of one party `[N]`: z and scale of sum x^2, sum x y and, with `target`, sum y^2; law: SciPy's, of the noise."""
    size = 3 if target else 2
    sums = np.asarray(z)[:size] - np.asarray(scale)[:size] * law.ppf(_points(size, power, seed))
    sums = sums[sums[:, 0] > 0]
    xx, xy = sums[:, 0], sums[:, 1]
    rest = np.zeros_like(xx)
    own = (n / 2 - 1.5) * np.log(xx)
    if target:
        rest = sums[:, 2] - xy**2 / xx
        inside = rest > 0
        xx, xy, rest, own = xx[inside], xy[inside], rest[inside], own[inside]
        own = own + ((n - 1) / 2 - 1) * np.log(rest)
    theta, sigma2, tau2 = phi.T
    common = -n / 2 * np.log(2 * tau2) - gammaln(n / 2) - 0.5 * np.log(2 * np.pi * sigma2)
    if target:
        common = common - (n - 1) / 2 * np.log(2 * sigma2) - gammaln((n - 1) / 2)
    of_phi = -0.5 * np.stack([1 / tau2 + theta**2 / sigma2, -2 * theta / sigma2, 1 / sigma2], 1)
    of_sums = np.stack([xx, xy, xy**2 / xx + rest])
    found = np.empty(len(phi))
    for k in range(0, len(phi), 2048):  # the constant of the mean does not depend on phi
        log = of_phi[k : k + 2048] @ of_sums + own
        top = log.max(1)
        found[k : k + 2048] = top + np.log(np.exp(log - top[:, None]).sum(1))
    return common + found


def moments(base: Any, parties: list[tuple[Any, ...]], power: int, noise_power: int, seed: int):
    """Posterior means and variances of (theta, sigma2, tau2), and how many prior draws their weights are worth;
    parties: (z, scale, n, law, target) of each."""
    phi = parameters(base, power, seed)
    log = sum(
        log_likelihood(phi, *party, noise_power, seed + 1 + j) for j, party in enumerate(parties)
    )  # fmt: skip
    weight = np.exp(log - np.max(log))
    weight /= weight.sum()
    mean = weight @ phi
    return mean, weight @ (phi - mean) ** 2, 1 / (weight**2).sum()
