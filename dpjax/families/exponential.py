"""Waiting times: exponential, and gamma with known shape."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dpjax.families._exponential_type import log_exponential_integral
from dpjax.families._jax import jax, jnp, special
from dpjax.families._quadrature import SummedFamily
from dpjax.families.base import Family, positive_option


@dataclass(frozen=True)
class Exponential(Family):
    """x > 0, density rate exp(-rate x); rate ~ Gamma(shape, rate)."""

    kind = "exponential"
    parameters = ("rate",)
    prior = "gamma"
    support = (0.0, math.inf)

    def natural(self, theta):
        return -theta

    def log_partition(self, eta):
        return -jnp.log(-eta[0])

    def log_integral(self, eta, low, high):
        return log_exponential_integral(eta[0], low, high)

    def log_mass(self, eta, low, high):
        return self.log_integral(eta, low, high) - self.log_partition(eta)

    def log_cdf(self, eta, v):
        return special.log1mexp(-eta[0] * v)

    def log_survival(self, eta, v):
        return eta[0] * v

    def weak_prior(self, low, high):
        # half a record of a tenth of the middle of the bounds
        return {"shape": 0.5, "rate": 0.05 * (low + high)}

    def update(self, prior, statistic, n):
        return prior.replace(shape=prior.shape + n, rate=prior.rate + statistic[0])

    def sample(self, key, theta, shape):
        return jax.random.exponential(key, shape, theta.dtype) / theta[0]


@dataclass(frozen=True)
class Gamma(SummedFamily):
    """x > 0, density proportional to x^(shape - 1) exp(-rate x), shape known; rate ~ Gamma."""

    shape: float | Any

    kind = "gamma"
    parameters = ("rate",)
    prior = "gamma"
    support = (0.0, math.inf)

    def __post_init__(self):
        object.__setattr__(self, "shape", positive_option("shape", self.shape))

    def natural(self, theta):
        return -theta

    def log_partition(self, eta):
        return -self.shape * jnp.log(-eta[0])

    def log_cdf(self, eta, v):
        return special.log_gamma_cdf(jnp.full_like(eta[0], self.shape), -eta[0] * v)

    def log_survival(self, eta, v):
        return special.log_gamma_survival(jnp.full_like(eta[0], self.shape), -eta[0] * v)

    def points(self, eta, low, high):
        """Gauss-Legendre points in the m-th root of v, which makes the density smooth at 0."""
        nodes, weights, fall = special.legendre(eta.dtype, 24, 56)
        nodes, weights = jnp.asarray(nodes, eta.dtype), jnp.asarray(weights, eta.dtype)
        rate, power = -eta[0], float(math.ceil(4.0 / self.shape))
        shape = jnp.full_like(rate, self.shape)
        center = jnp.clip(shape / rate, low, high)
        scaled = rate * center
        down, up = special.gamma_window(shape, scaled, fall)
        # root of v / center, less 1
        left = jnp.expm1(jnp.maximum(jnp.log1p((low - center) / center), -down) / power)
        right = jnp.expm1(jnp.minimum(jnp.log1p((high - center) / center), up) / power)
        log_ratio = power * jnp.log1p(left + (right - left) * nodes)
        offset = jnp.expm1(log_ratio)
        density = power * jnp.exp((shape - 1.0 / power) * log_ratio - scaled * offset)
        log_scale = special.log_gamma_term(shape, scaled) + math.log(self.shape)
        return center, center * offset, (right - left) * weights * density, log_scale

    def weak_prior(self, low, high):
        return {"shape": 0.5, "rate": 0.05 * (low + high) / self.shape}

    def update(self, prior, statistic, n):
        return prior.replace(shape=prior.shape + self.shape * n, rate=prior.rate + statistic[0])

    def sample(self, key, theta, shape):
        return jax.random.gamma(key, jnp.asarray(self.shape, theta.dtype), shape, theta.dtype) / theta[0]
