"""A family that somebody else wrote is checked once before it is used: its parts must fit each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.errors import InputError
from dpjax.families import Family
from dpjax.models.priors import PRIORS, Prior

#: Points of the CDF behind the mean of t, and by how many of its sds that may differ from the log-partition's.
_POINTS, _FAR = 400, 0.1


def check_family(family: Family, prior: Prior) -> None:
    """Refuse a family whose natural parameters, log-partition, CDF and conjugate update do not fit each other.

    Families of the package are covered by its tests and pass at once.

    Raises:
        InputError: one of its methods fails, or contradicts another.
    """
    if type(family).__module__.startswith("dpjax.families."):
        return
    _check(family, family.prior, tuple(sorted(prior.as_dict().items())))


@lru_cache(maxsize=64)
def _check(family: Family, kind: str, values: tuple) -> None:
    with jax.enable_x64(True):
        prior = PRIORS[kind].create(jnp.float64, **dict(values))
        size = len(family.powers)
        center = prior.center()
        theta = prior.constrain(center)
        eta = _tried(family, "natural", lambda: family.natural(theta))
        if jnp.shape(eta) != (size,):
            raise InputError(f"{_place(family, 'natural')} must return {size} numbers; got shape {jnp.shape(eta)}")
        if not jnp.isfinite(_tried(family, "log_partition", lambda: family.log_partition(eta))):
            raise InputError(f"{_place(family, 'log_partition')} is not finite at the centre of the prior")
        mean = np.asarray(jax.grad(family.log_partition)(eta))
        if not family.bounded:
            _check_cdf(family, theta, eta, mean)
        _check_update(family, prior, center, mean)


def _check_cdf(family: Family, theta: Any, eta: Any, mean: np.ndarray) -> None:
    u = jnp.asarray((np.arange(_POINTS) + 0.5) / _POINTS)
    v = _tried(family, "log_cdf", lambda: family.quantile(theta, u))
    tails = [
        np.exp(np.asarray(_tried(family, "log_cdf", lambda: jax.vmap(lambda x: family.log_cdf(eta, x))(v)))),
        np.exp(np.asarray(_tried(family, "log_survival", lambda: jax.vmap(lambda x: family.log_survival(eta, x))(v)))),
    ]
    if not np.allclose(tails[0] + tails[1], 1.0, atol=1e-6):
        raise InputError(f"{_place(family, 'log_cdf and log_survival')} do not add up to 1")
    t = np.asarray(jax.vmap(family.statistic)(v))
    off = np.abs(t.mean(0) - mean) / (t.std(0) + 1e-9 * np.abs(mean))
    if not (off < _FAR).all():
        raise InputError(
            f"{_place(family, 'log_partition')}: its derivative says that the mean of t is {mean.tolist()}, the CDF "
            f"says {t.mean(0).tolist()}"
        )


def _check_update(family: Family, prior: Prior, center: Any, mean: np.ndarray) -> None:
    n = 7.0
    updated = _tried(family, "update", lambda: family.update(prior, n * jnp.asarray(mean), jnp.asarray(n)))
    if not isinstance(updated, type(prior)):
        raise InputError(f"{_place(family, 'update')} must return the prior with other hyperparameters")

    def rest(phi):
        eta = family.natural(prior.constrain(phi))
        likelihood = n * ((eta * jnp.asarray(mean)).sum() - family.log_partition(eta))
        return updated.log_density(phi) - prior.log_density(phi) - likelihood

    at = [float(rest(center + shift)) for shift in (0.0, 0.2, -0.3)]
    if not np.allclose(at, at[0], atol=1e-6 * (1 + abs(at[0]))):
        raise InputError(f"{_place(family, 'update')} is not the conjugate posterior of natural and log_partition")


def _place(family: Family, name: str) -> str:
    return f"family {family.kind!r} ({type(family).__qualname__}): {name}"


def _tried(family: Family, name: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        raise InputError(f"{_place(family, name)} fails: {type(error).__name__}: {text}") from error
