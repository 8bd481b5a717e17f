"""Conjugate priors of exponential families: one small pytree each, in unconstrained coordinates phi.

Every leaf may carry a trailing lane axis in the methods that end in `_lanes`; the others are for one chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from dpjax.errors import InputError
from dpjax.kernels.random import gamma_from
from dpjax.models.hyperparameters import check_sizes, numbers, positive

#: Parallel gamma proposals: 6e-6 of the draws go to the retry loop at shape 1, fewer above.
PROPOSALS = 4


def _gammas(keys, shapes, normals, uniforms):
    """Gamma draws `[G, B]` with shapes `[G, B]`, never exactly 0."""
    size, lanes = shapes.shape
    draw = gamma_from.lanes(
        keys, shapes, normals.reshape(PROPOSALS, size, lanes), uniforms.reshape(PROPOSALS + 1, size, lanes)
    )
    return jnp.maximum(draw, jnp.finfo(draw.dtype).tiny)


class Prior:
    """What the priors have in common; subclasses are frozen pytree dataclasses with array leaves."""

    #: Ends of the coordinate between which the reported parameter is a number inside its range, in 64 bits.
    finite: ClassVar[tuple[float, float]] = (-300.0, 300.0)
    #: Names of the hyperparameters that are vectors (the others are numbers above 0, `mean` any number).
    vectors: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def create(cls, dtype: Any = jnp.float32, **values: Any):
        """Build and check; hyperparameters by name.

        Raises:
            InputError: a value that is not a finite number in its range.
        """
        leaves: dict[str, Any] = {}
        for name, value in values.items():
            if name == "mean":
                array = numbers(name, value, "a finite number")
                if array.ndim != 0 or not np.isfinite(array):
                    raise InputError(f"{name} must be a finite number; got {value!r}")
                leaves[name] = array
            elif name in cls.vectors:
                array = numbers(name, value, "finite numbers above 0")
                if array.ndim != 1 or not (np.isfinite(array).all() and (array > 0).all()):
                    raise InputError(f"{name} must be finite numbers above 0; got {value!r}")
                leaves[name] = array
            else:
                leaves[name] = positive(name, value)
        check_sizes({name: value for name, value in leaves.items() if name != "mean"})
        return cls(**{name: jnp.asarray(value, dtype) for name, value in leaves.items()})

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Names of the hyperparameters."""
        return tuple(f.name for f in fields(cls))  # type: ignore[arg-type]

    def replace(self, **changes: Any):
        """The same prior with other hyperparameters."""
        return replace(self, **changes)  # type: ignore[type-var]

    def as_dict(self) -> dict[str, Any]:
        """Hyperparameters by name as plain numbers and lists."""
        return {name: np.asarray(getattr(self, name), np.float64).tolist() for name in self.names()}

    # ---- each prior writes these ------------------------------------------------------------------------------
    @property
    def dim(self) -> int:
        """Number of coordinates phi."""
        raise NotImplementedError

    @property
    def randoms(self) -> tuple[int, int]:
        """Standard normals and uniforms that `draw_lanes` takes."""
        raise NotImplementedError

    def constrain(self, phi):
        """Reported parameters [K] of phi [P]."""
        raise NotImplementedError

    def unconstrain(self, theta: np.ndarray) -> np.ndarray:
        """phi `[..., P]` of reported parameters `[..., K]`, on the host."""
        raise NotImplementedError

    def log_density(self, phi):
        """Log density of phi, Jacobian included, up to a constant."""
        raise NotImplementedError

    def center(self):
        """The mode of `log_density` or a point near it [P]."""
        raise NotImplementedError

    def sample(self, key):
        """One draw of phi [P]."""
        raise NotImplementedError

    def draw_lanes(self, keys, normals, uniforms):
        """One draw of phi per lane [P, B] from numbers drawn before; `keys` serve rare retries."""
        raise NotImplementedError


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GammaPrior(Prior):
    """rate ~ Gamma(shape, rate); phi = log of it."""

    shape: Any
    rate: Any

    dim = 1
    randoms = (PROPOSALS, PROPOSALS + 1)

    def constrain(self, phi):
        return jnp.exp(phi)

    def unconstrain(self, theta):
        return np.log(theta)

    def log_density(self, phi):
        return self.shape * phi[0] - self.rate * jnp.exp(phi[0])

    def center(self):
        return jnp.log(self.shape / self.rate)[None]

    def sample(self, key):
        return (random.loggamma(key, self.shape, dtype=self.shape.dtype) - jnp.log(self.rate))[None]

    def draw_lanes(self, keys, normals, uniforms):
        return jnp.log(_gammas(keys, self.shape[None], normals, uniforms)) - jnp.log(self.rate)[None]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BetaPrior(Prior):
    """p ~ Beta(alpha, beta); phi = logit p."""

    alpha: Any
    beta: Any

    dim = 1
    finite = (-300.0, 36.0)  # beyond, p is 1
    randoms = (2 * PROPOSALS, 2 * (PROPOSALS + 1))

    def constrain(self, phi):
        return jax.nn.sigmoid(phi)

    def unconstrain(self, theta):
        return np.log(theta) - np.log1p(-theta)

    def log_density(self, phi):
        return self.alpha * jax.nn.log_sigmoid(phi[0]) + self.beta * jax.nn.log_sigmoid(-phi[0])

    def center(self):
        return (jnp.log(self.alpha) - jnp.log(self.beta))[None]

    def sample(self, key):
        one, other = random.split(key)
        dtype = self.alpha.dtype
        return (random.loggamma(one, self.alpha, dtype=dtype) - random.loggamma(other, self.beta, dtype=dtype))[None]

    def draw_lanes(self, keys, normals, uniforms):
        g = jnp.log(_gammas(keys, jnp.stack([self.alpha, self.beta]), normals, uniforms))
        return (g[0] - g[1])[None]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DirichletPrior(Prior):
    """p ~ Dirichlet(concentration [K]); phi_k = log p_k - log p_K for k < K."""

    concentration: Any

    vectors = ("concentration",)

    @property
    def categories(self) -> int:
        return self.concentration.shape[0]

    @property
    def dim(self) -> int:
        return self.categories - 1

    @property
    def randoms(self) -> tuple[int, int]:
        return PROPOSALS * self.categories, (PROPOSALS + 1) * self.categories

    def log_probabilities(self, phi):
        """log p [K]."""
        x = jnp.concatenate([phi, jnp.zeros_like(self.concentration[:1], dtype=phi.dtype)])
        return x - jax.scipy.special.logsumexp(x)

    def constrain(self, phi):
        return jnp.exp(self.log_probabilities(phi))

    def unconstrain(self, theta):
        return np.log(theta[..., :-1]) - np.log(theta[..., -1:])

    def log_density(self, phi):
        return (self.concentration * self.log_probabilities(phi)).sum()

    def center(self):
        logs = jnp.log(self.concentration)
        return logs[:-1] - logs[-1:]

    def sample(self, key):
        logs = random.loggamma(key, self.concentration, dtype=self.concentration.dtype)
        return logs[:-1] - logs[-1:]

    def draw_lanes(self, keys, normals, uniforms):
        g = jnp.log(_gammas(keys, self.concentration, normals, uniforms))
        return g[:-1] - g[-1:]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NormalInverseGammaPrior(Prior):
    """variance ~ InvGamma(shape, scale), mean | variance ~ N(mean, variance / kappa); phi = (mean, log variance)."""

    mean: Any
    kappa: Any
    shape: Any
    scale: Any

    dim = 2
    randoms = (PROPOSALS + 1, PROPOSALS + 1)

    def constrain(self, phi):
        return jnp.stack([phi[0], jnp.exp(phi[1])])

    def unconstrain(self, theta):
        return np.stack([theta[..., 0], np.log(theta[..., 1])], -1)

    def log_density(self, phi):
        shift = phi[0] - self.mean
        return -(self.shape + 0.5) * phi[1] - jnp.exp(-phi[1]) * (self.scale + 0.5 * self.kappa * shift * shift)

    def center(self):
        return jnp.stack([self.mean, jnp.log(self.scale / (self.shape + 0.5))])

    def sample(self, key):
        one, other = random.split(key)
        dtype = self.mean.dtype
        log_variance = jnp.log(self.scale) - random.loggamma(one, self.shape, dtype=dtype)
        sd = jnp.exp(0.5 * log_variance) / jnp.sqrt(self.kappa)
        return jnp.stack([self.mean + sd * random.normal(other, (), dtype), log_variance])

    def draw_lanes(self, keys, normals, uniforms):
        precision = _gammas(keys, self.shape[None], normals[:PROPOSALS], uniforms)[0]
        log_variance = jnp.log(self.scale) - jnp.log(precision)
        sd = jnp.exp(0.5 * log_variance) / jnp.sqrt(self.kappa)
        return jnp.stack([self.mean + sd * normals[PROPOSALS], log_variance])


PRIORS: Mapping[str, type[Prior]] = {
    "gamma": GammaPrior,
    "beta": BetaPrior,
    "dirichlet": DirichletPrior,
    "normal-inverse-gamma": NormalInverseGammaPrior,
}
