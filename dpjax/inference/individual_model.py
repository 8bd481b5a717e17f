"""The records' model of `dpjax.inference.individual` in NumPyro: parameters and covariates, records, sums, noise.

Records are written in coordinates that are standard normal a priori wherever their law is normal (x = mu + A u,
y = theta_0 + x' beta + sigma v): the noise tells little about any single one, so NUTS finds nearly independent
coordinates of equal scale. Other laws of x are sampled as they are, in NumPyro's unconstrained coordinates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers

from dpjax._base.checks import shown
from dpjax.errors import InputError
from dpjax.kernels.order import below_diagonal, pairs
from dpjax.kernels.symmetric import cholesky, inverse_cholesky, lower_inverse
from dpjax.mechanisms import mechanism_named
from dpjax.models.regression.linear import LinearRegression

#: Sites of the regression's own parameters, and of the hierarchical normal's; the first get a dense mass matrix.
THETA, SIGMA2, X_MEAN, X_CHI2, X_BELOW = "theta_unit", "sigma2", "x_mean_unit", "x_chi2", "x_below"
#: Prefix of the sites of a callable `covariates`.
HYPER = "covariates"
#: Prefix of the sites of the records, X and Y.
RECORD = "record_"
X, Y = RECORD + "x", RECORD + "y"
#: The site that holds the reported parameters.
REPORT = "report"


def hierarchical_normal(prior: LinearRegression) -> tuple[jax.Array, jax.Array]:
    """Mean mu `[p]` and a square root A `[p, p]` of the covariance Sigma = A A' of the features, drawn from their NIW.

    Bartlett: T T' ~ Wishart(I, nu), so that R T^{-T} T^{-1} R' with R = chol psi is InvWishart(psi, nu): A = R T^{-T}.
    """
    p, dtype = prior.p, prior.psi.dtype
    dof = prior.nu - jnp.arange(p, dtype=dtype)
    chi2 = numpyro.sample(X_CHI2, dist.Gamma(0.5 * dof, jnp.full_like(dof, 0.5)).to_event(1))
    bartlett = jnp.diag(jnp.sqrt(chi2))
    if p > 1:
        below = numpyro.sample(X_BELOW, dist.Normal(jnp.zeros((), dtype), 1.0).expand([p * (p - 1) // 2]).to_event(1))
        bartlett = bartlett.at[below_diagonal(p)].set(below)
    root = cholesky(prior.psi) @ lower_inverse(bartlett).T
    unit = numpyro.sample(X_MEAN, dist.Normal(jnp.zeros((), dtype), 1.0).expand([p]).to_event(1))
    return prior.x_mean + root @ unit / jnp.sqrt(prior.kappa), root


def _unit_normals(name: str, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    return numpyro.sample(name, dist.Normal(jnp.zeros((), dtype), 1.0).expand(shape).to_event(len(shape)))


def _rows(name: str, law: dist.Distribution, n: int, dtype: Any) -> jax.Array:
    """n independent draws `[n, *event]` of one distribution."""
    if type(law) is dist.Normal:
        return law.loc + law.scale * _unit_normals(name, (n,), dtype)
    if type(law) is dist.MultivariateNormal:
        return law.loc[None] + _unit_normals(name, (n, *law.event_shape), dtype) @ law.scale_tril.T
    if isinstance(law, dist.TransformedDistribution):  # the base's support is always known, the transform's is not
        rows = _rows(name, law.base_dist, n, dtype)
        for transform in law.transforms:
            rows = transform(rows)
        return rows
    with numpyro.plate(f"{name}_records", n):
        return numpyro.sample(name, law)


def _features(covariates: Any, prior: LinearRegression, n: int) -> tuple[jax.Array, list[jax.Array]]:
    """Features `[n, p]` of all records, and what is reported of their law."""
    p, dtype = prior.p, prior.psi.dtype
    if covariates is None:
        mean, root = hierarchical_normal(prior)
        covariance = root @ root.T
        return mean[None] + _unit_normals(X, (n, p), dtype) @ root.T, [mean, covariance[np.tril_indices(p)]]
    law = covariates
    if not isinstance(law, dist.Distribution | tuple):  # the callable's sites keep their names under a prefix
        with handlers.scope(prefix=HYPER):
            law = law()
        check_law(law, p, "what the covariates callable returns")
    if isinstance(law, list | tuple):
        return jnp.stack([_rows(f"{X}{i}", one, n, dtype) for i, one in enumerate(law, 1)], axis=1), []
    return _rows(X, law, n, dtype).reshape(n, p), []


def records_model(n: int, mechanism: str, covariates: Any, bounded: bool) -> Callable[..., None]:
    """The NumPyro model of n records: a function of prior, sums z `[D]`, noise scales `[D]` and box `[p + 1, 2]`.

    bounded: whether records are clipped to the box, features first, before they are summed.
    """
    noise = mechanism_named(mechanism).density

    def model(prior: LinearRegression, z: jax.Array, scale: jax.Array, box: jax.Array) -> None:
        dtype, p = z.dtype, prior.p
        sigma2 = numpyro.sample(SIGMA2, dist.InverseGamma(prior.sigma2_shape, prior.sigma2_scale))
        sigma, unit = jnp.sqrt(sigma2), _unit_normals(THETA, (p + 1,), dtype)
        theta = prior.theta_mean + sigma * (inverse_cholesky(prior.theta_precision).T @ unit)
        x, law = _features(covariates, prior, n)
        y = theta[0] + x @ theta[1:] + sigma * _unit_normals(Y, (n,), dtype)
        rows = jnp.concatenate([x, y[:, None]], axis=1)
        if bounded:
            rows = jnp.clip(rows, box[:, 0], box[:, 1])
        rows = jnp.concatenate([jnp.ones((n, 1), dtype), rows], axis=1)
        a, b = pairs(p)
        sums = (rows[:, a] * rows[:, b]).sum(0)
        numpyro.sample("z", noise.distribution(sums, scale).to_event(1), obs=z)
        numpyro.deterministic(REPORT, jnp.concatenate([theta, sigma2[None], *law]))

    return model


def unconstrained(model: Callable[..., None], inputs: tuple) -> dict[str, jax.Array]:
    """A prior draw of every latent site of `model` in unconstrained coordinates."""
    sites = handlers.trace(handlers.seed(model, rng_seed=0)).get_trace(*inputs)
    free = {k: s for k, s in sites.items() if s["type"] == "sample" and not s["is_observed"]}
    return {k: dist.biject_to(s["fn"].support).inv(s["value"]) for k, s in free.items()}


# ---- checks -------------------------------------------------------------------------------------------------------
def _check_one(law: Any, shapes: tuple[tuple[int, ...], ...], what: str, allowed: str) -> None:
    if not isinstance(law, dist.Distribution):
        raise InputError(f"{what} must be {allowed}; got {shown(law)}")
    if law.batch_shape != () or law.event_shape not in shapes:
        raise InputError(
            f"{what} must have no batch shape and event shape {' or '.join(map(str, shapes))}; got batch shape "
            f"{law.batch_shape} and event shape {law.event_shape}"
        )
    if law.support.is_discrete:
        raise InputError(f"{what} must be continuous: NUTS needs a density; got {type(law).__name__}")


def check_law(law: Any, p: int, what: str) -> None:
    """Refuse what is not a law of p features: a continuous distribution or a list of p.

    Raises:
        InputError: another kind of thing, another shape, or a discrete distribution.
    """
    allowed = f"a NumPyro distribution of {p} feature{'s' * (p > 1)}, or a list of {p}"
    if isinstance(law, list | tuple):
        if len(law) != p:
            raise InputError(f"{what}: a list must hold {p} distributions, one for each feature; got {len(law)}")
        for i, one in enumerate(law, 1):
            _check_one(one, ((),), f"{what}, entry {i}", "a NumPyro distribution")
    else:
        _check_one(law, ((p,), ()) if p == 1 else ((p,),), what, allowed)


def check_covariates(covariates: Any, p: int) -> Any:
    """The argument `covariates` of `dpjax.inference.individual.run_individual`, checked and hashable.

    Raises:
        InputError: not a distribution of p features, a list of p, or a callable that returns one of the two.
    """
    if covariates is None or isinstance(covariates, dist.Distribution):
        if covariates is not None:
            check_law(covariates, p, "covariates")
        return covariates
    if isinstance(covariates, list | tuple):
        check_law(covariates, p, "covariates")
        return tuple(covariates)
    if not callable(covariates) or isinstance(covariates, type):
        raise InputError(
            f"covariates must be None, a NumPyro distribution of {p} features, a list of {p} distributions, or a "
            f"callable that returns one of these; got {shown(covariates)}"
        )
    with handlers.trace() as sites, handlers.seed(rng_seed=0):
        check_law(covariates(), p, "what the covariates callable returns")
    for name, site in sites.items():
        if site["type"] == "sample" and not site["is_observed"] and site["fn"].support.is_discrete:
            raise InputError(f"covariates: hyperparameter {name!r} must be continuous: NUTS needs a density")
    return covariates
