"""Counts: Bernoulli records (binomial sums), Poisson, geometric."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpjax.families._exponential_type import log_geometric_sum
from dpjax.families._jax import jax, jnp, special
from dpjax.families._quadrature import SummedFamily
from dpjax.families.base import Family


@dataclass(frozen=True)
class Binomial(Family):
    """x is 0 or 1, P(x = 1) = p; p ~ Beta(alpha, beta). The sum over records is binomial: nothing to truncate."""

    kind = "binomial"
    parameters = ("p",)
    prior = "beta"
    statistics: ClassVar[Mapping[str, int]] = {"successes": 1}
    support = (0.0, 1.0)
    discrete = True
    bernoulli = True

    def natural(self, theta):
        return jnp.log(theta) - jnp.log1p(-theta)

    def log_partition(self, eta):
        return jax.nn.softplus(eta[0])

    def update(self, prior, statistic, n):
        return prior.replace(alpha=prior.alpha + statistic[0], beta=prior.beta + (n - statistic[0]))

    def sample(self, key, theta, shape):
        return (jax.random.uniform(key, shape, theta.dtype) < theta[0]).astype(theta.dtype)

    def sample_sum(self, key, theta, n):
        return jax.random.binomial(key, n, theta[0], dtype=theta.dtype)[None]


#: What an integral from k - 1/2 on lacks of the sum from k on (Euler-Maclaurin), by central differences at k - 1/2:
#: delta / 24 - 17 delta^3 / 5760 + 367 delta^5 / 967680, as weights of f(k - 3), ..., f(k + 2).
_DIFFERENCES = (
    (1 / 24, (0, 0, -1, 1, 0, 0)),
    (-17 / 5760, (0, -1, 3, -3, 1, 0)),
    (367 / 967680, (-1, 5, -10, 10, -5, 1)),
)
_END_WEIGHTS = tuple(sum(c * d[k] for c, d in _DIFFERENCES) for k in range(6))


@dataclass(frozen=True)
class Poisson(SummedFamily):
    """x = 0, 1, ..., P(x) = rate^x exp(-rate) / x!; rate ~ Gamma(shape, rate)."""

    kind = "poisson"
    parameters = ("rate",)
    prior = "gamma"
    support = (0.0, math.inf)
    discrete = True

    def natural(self, theta):
        return jnp.log(theta)

    def log_partition(self, eta):
        return jnp.exp(eta[0])

    def log_base(self, v):
        return -jax.scipy.special.gammaln(v + 1.0)

    # P(X <= k) = Q(k + 1, rate), the regularised upper incomplete gamma function
    def log_cdf(self, eta, v):
        return special.log_gamma_survival(v + 1.0, jnp.exp(eta[0]))

    def log_survival(self, eta, v):
        return special.log_gamma_cdf(v + 1.0, jnp.exp(eta[0]))

    def points(self, eta, low, high):
        """All counts where the probability is not negligible, or where there are many Gauss-Legendre points.

        An integral over [low - 1/2, high + 1/2] is the sum but for terms with derivatives at its ends
        (Euler-Maclaurin): here differences of the probability at six counts around each end.
        """
        nodes, weights, fall = special.legendre(eta.dtype, 36, 52)
        as_array = lambda *parts: jnp.asarray(np.concatenate(parts), eta.dtype)
        rate = jnp.exp(eta[0])
        center = jnp.clip(jnp.floor(rate), low, high)
        # the log probability falls by at least slope d + d^2 / (2 c) downwards, slope d + d^2 / (2 c + 2 d / 3) upwards
        size = jnp.maximum(center, 1.0)
        slope = jnp.abs(jnp.log(size / rate))
        down = 2.0 * fall / (slope + jnp.sqrt(slope * slope + 2.0 * fall / size))
        lead = slope * size - fall / 3.0
        up = 2.0 * fall * size / (lead + jnp.sqrt(lead * lead + 2.0 * fall * size * (1.0 + slope / 1.5)))
        first = jnp.maximum(low, center - jnp.ceil(down))
        last = jnp.minimum(high, center + jnp.ceil(up))
        span = last - first
        # points first + share * span + step with weights (span + 1) * part + end
        around, none = np.arange(-3.0, 3.0), np.zeros(6)
        share, step = as_array(nodes, none, none + 1.0), as_array(nodes - 0.5, around, -around)
        part, end = as_array(weights, none, none), as_array(0.0 * weights, _END_WEIGHTS, _END_WEIGHTS)
        number = jnp.arange(share.shape[0], dtype=eta.dtype)
        few = span < number.shape[0]
        offsets = (first - center) + jnp.where(few, jnp.minimum(number, span), share * span + step)
        weight = jnp.where(few, (number <= span).astype(eta.dtype), (span + 1.0) * part + end)
        density = jnp.exp(
            special.log_poisson_ratio(offsets, *(jnp.full_like(offsets, 1.0) * x for x in (center, rate)))
        )
        return center, offsets, weight * density, special.log_gamma_term(center, rate)

    def weak_prior(self, low, high):
        # half a record; the rate is expected in the middle of the bounds
        return {"shape": 0.5, "rate": 1.0 / (low + high)}

    def study_prior(self):
        return {"shape": 10.0, "rate": 2.0}

    def update(self, prior, statistic, n):
        return prior.replace(shape=prior.shape + statistic[0], rate=prior.rate + n)

    def sample(self, key, theta, shape):
        return jax.random.poisson(key, theta[0], shape).astype(theta.dtype)


@dataclass(frozen=True)
class Geometric(Family):
    """Failures before the first success: x = 0, 1, ..., P(x) = p (1 - p)^x; p ~ Beta(alpha, beta)."""

    kind = "geometric"
    parameters = ("p",)
    prior = "beta"
    support = (0.0, math.inf)
    discrete = True

    def natural(self, theta):
        return jnp.log1p(-theta)

    def log_partition(self, eta):
        return -special.log1mexp(-eta[0])

    def log_base(self, v):
        return jnp.zeros_like(v)

    def log_integral(self, eta, low, high):
        return log_geometric_sum(eta[0], low, high)

    def log_mass(self, eta, low, high):
        return self.log_integral(eta, low, high) - self.log_partition(eta)

    def log_cdf(self, eta, v):
        return special.log1mexp(-eta[0] * (v + 1.0))

    def log_survival(self, eta, v):
        return eta[0] * (v + 1.0)

    def update(self, prior, statistic, n):
        return prior.replace(alpha=prior.alpha + n, beta=prior.beta + statistic[0])

    def sample(self, key, theta, shape):
        waiting = jax.random.exponential(key, shape, theta.dtype)
        return jnp.floor(waiting / -jnp.log1p(-theta[0]))
