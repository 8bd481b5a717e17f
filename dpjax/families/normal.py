"""Normal with unknown mean and variance, and log-normal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from dpjax.families._jax import jax, jnp, special
from dpjax.families._quadrature import SummedFamily


@dataclass(frozen=True)
class Normal(SummedFamily):
    """x ~ N(mean, variance); variance ~ InvGamma(shape, scale), mean | variance ~ N(mean, variance / kappa)."""

    kind = "normal"
    parameters = ("mean", "variance")
    prior = "normal-inverse-gamma"
    statistics: ClassVar[Mapping[str, int]] = {"x": 1, "x*x": 2}
    affine = True

    def natural(self, theta):
        mean, variance = theta
        return jnp.stack([mean / variance, -0.5 / variance])

    def log_partition(self, eta):
        return -0.25 * eta[0] ** 2 / eta[1] - 0.5 * jnp.log(-2.0 * eta[1])

    def _standardised(self, eta, v):
        root = jnp.sqrt(-2.0 * eta[1])  # 1 / sd
        return v * root - eta[0] / root

    def log_cdf(self, eta, v):
        return jax.scipy.special.log_ndtr(self._standardised(eta, v))

    def log_survival(self, eta, v):
        return jax.scipy.special.log_ndtr(-self._standardised(eta, v))

    def points(self, eta, low, high):
        """Gauss-Legendre points of the part of [low, high] where the density is not negligible."""
        nodes, weights, fall = special.legendre(eta.dtype, 24, 56)
        precision = -2.0 * eta[1]
        center = jnp.clip(eta[0] / precision, low, high)
        slope = eta[0] - precision * center  # of the log density, 0 where the mean is inside
        reach = 2.0 * fall / (jnp.abs(slope) + jnp.sqrt(slope * slope + 2.0 * fall * precision))
        left, right = jnp.maximum(low - center, -reach), jnp.minimum(high - center, reach)
        offsets = left + (right - left) * jnp.asarray(nodes, eta.dtype)
        density = jnp.exp(offsets * (slope - 0.5 * precision * offsets))
        log_scale = 0.5 * jnp.log(precision / (2.0 * jnp.pi)) - 0.5 * slope * slope / precision
        return center, offsets, (right - left) * jnp.asarray(weights, eta.dtype) * density, log_scale

    def weak_prior(self, low, high):
        # on [-1, 1]: mean has sd 1, variance has mean and sd .2 (a uniform variable has 1/3)
        half = 0.5 * (high - low)
        return super().weak_prior(low, high) | {"mean": 0.5 * (low + high), "scale": 0.4 * half**2}

    def update(self, prior, statistic, n):
        """Normal-inverse-gamma update from the mean m and the mean square of the records."""
        first, second = statistic[0] / n, statistic[1] / n
        kappa = prior.kappa + n
        shift = first - prior.mean
        scatter = jnp.maximum(second - first * first, jnp.zeros_like(first))
        return prior.replace(
            mean=prior.mean + (n / kappa) * shift,
            kappa=kappa,
            shape=prior.shape + 0.5 * n,
            scale=prior.scale + 0.5 * n * (scatter + (prior.kappa / kappa) * shift * shift),
        )

    def sample(self, key, theta, shape):
        return theta[0] + jnp.sqrt(theta[1]) * jax.random.normal(key, shape, theta.dtype)


@dataclass(frozen=True)
class LogNormal(Normal):
    """log x ~ N(mean, variance); the statistics are sums of log x and its square."""

    kind = "log-normal"
    log = True
