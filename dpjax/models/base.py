"""What a model must offer, and what it gets for free.

A model is a frozen pytree: hyperparameters are array leaves, so a batch of problems may carry a batch of
priors; sizes are static. Methods come in two spellings. The plain one is for one chain and is what people
write and call. The `_lanes` one takes arrays whose last axis runs over chains (leaves of the model included);
the samplers use it. A new model needs only the plain methods of the first group: the lane versions then follow
by `jax.vmap`. Overriding a lane method is a matter of speed alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..kernels.marginal import gaussian_marginal
from ..kernels.symmetric import cholesky, matvec_lanes


class Observed(NamedTuple):
    """Released statistics in units of the noise scale b (per entry): what a sampler conditions on.

    z: `z / b` `[D]`; n_over_b: `n / b` `[D]`; root_n_over_b: `sqrt(n) / b` `[D]`; n: number of records `[]`.
    z, n_over_b and n have the dtype of positions, root_n_over_b that of the algebra (float32; they differ only for
    very large n, where z - n mu cancels).
    """

    z: Float[Array, "D *B"]
    n_over_b: Float[Array, "D *B"]
    root_n_over_b: Float[Array, "D *B"]
    n: Float[Array, " *B"]


def over_lanes(method):
    """Lane version of a single-chain method `method(model, *args)`: maps over the last axis of everything."""

    def lanes(model: Any, *args: Any) -> Any:
        return jax.vmap(method, in_axes=-1, out_axes=-1)(model, *args)

    return lanes


class Model:
    """Base class of models; see the module's docstring for the two spellings."""

    #: Rank of the leaf of smallest rank in a single problem (how a batch of priors is recognised).
    smallest_rank = 0

    # ---- each model writes these -------------------------------------------------------------------------
    @property
    def dim(self) -> int:
        """P, the number of unconstrained coordinates."""
        raise NotImplementedError

    @property
    def statistic_dim(self) -> int:
        """D, the number of entries of the statistic."""
        raise NotImplementedError

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the K reported parameters, in the order of `report`."""
        raise NotImplementedError

    def moments(self, phi: Float[Array, " P"]) -> tuple[Float[Array, " D"], Float[Array, "D D"]]:
        """Mean and covariance of ONE record's statistic at unconstrained parameters `phi`."""
        raise NotImplementedError

    def log_prior(self, phi: Float[Array, " P"]) -> Float[Array, ""]:
        """Log prior density of `phi`, Jacobian of the bijection included, up to a constant."""
        raise NotImplementedError

    def report(self, phi: Float[Array, " P"]) -> Float[Array, " K"]:
        """Reported parameters (scaled units) of unconstrained ones."""
        raise NotImplementedError

    def as_dict(self) -> dict[str, Any]:
        """Hyperparameters by name as plain lists and floats, in the layout of a prior file."""
        raise NotImplementedError

    def prior_center(self) -> Float[Array, " P"]:
        """A point in the bulk of the prior: where chains start."""
        raise NotImplementedError

    def sample_prior(self, key: PRNGKeyArray) -> Float[Array, " P"]:
        """One draw of `phi` from the prior."""
        raise NotImplementedError

    def simulate(self, key: PRNGKeyArray, phi: Float[Array, " P"], n: Float[Array, ""]) -> Float[Array, " D"]:
        """Exact statistic of n records drawn at `phi` (calibration only)."""
        raise NotImplementedError

    # ---- conjugate models write these too (samplers `gibbs`, `naive`, `non-private`) ------------------------
    def valid_lanes(self, mean_statistic: Float[Array, "D B"]) -> Float[Array, "D B"]:
        """Nearest statistic per record, s / n, that some table could have."""
        raise NotImplementedError

    @property
    def conjugate_randoms(self) -> tuple[int, int]:
        """Numbers of standard normals and uniforms that `conjugate_lanes` takes."""
        raise NotImplementedError

    def conjugate_lanes(self, mean_statistic, n, keys, normals, uniforms) -> Float[Array, "P B"]:
        """Draw phi given the exact statistic per record `[D, B]` of n `[B]` records; `keys` serve rare retries."""
        raise NotImplementedError

    # ---- defaults, overridden where a closed form is known -----------------------------------------------
    def prior_precision(self) -> Float[Array, "P P"]:
        """Minus the Hessian of the log prior at its centre: the prior's share of the sampler's metric."""
        return -jax.hessian(self.log_prior)(self.prior_center())

    def moments_lanes(self, phi: Float[Array, "P B"]) -> tuple[Float[Array, "D B"], Float[Array, "D D B"]]:
        return over_lanes(lambda model, x: model.moments(x))(self, phi)

    def mean_jacobian_lanes(self, phi: Float[Array, "P B"]) -> Float[Array, "D P B"]:
        """Derivative of one record's mean statistic with respect to `phi`."""
        return over_lanes(lambda model, x: jax.jacfwd(lambda y: model.moments(y)[0])(x))(self, phi)

    def log_prior_lanes(self, phi: Float[Array, "P B"]) -> Float[Array, " B"]:
        return over_lanes(lambda model, x: model.log_prior(x))(self, phi)

    def report_lanes(self, phi: Float[Array, "P B"]) -> Float[Array, "K B"]:
        return over_lanes(lambda model, x: model.report(x))(self, phi)

    def residual_lanes(
        self, phi: Float[Array, "P B"], observed: Observed
    ) -> tuple[Float[Array, "D B"], Float[Array, "D D B"]]:
        """Residual z/b - (n/b) mu and covariance (n/b^2) Sigma, both in the dtype of the algebra.

        The subtraction runs in the dtype of `phi`; only its result is rounded to the algebra's.
        """
        work = observed.root_n_over_b.dtype
        mean, covariance = self.moments_lanes(phi)
        root = observed.root_n_over_b
        residual = (observed.z - observed.n_over_b * mean).astype(work)
        return residual, covariance.astype(work) * root[:, None] * root[None]

    def log_density_and_grad_lanes(
        self, phi: Float[Array, "P B"], w: Float[Array, "D B"], observed: Observed
    ) -> tuple[Float[Array, " B"], Float[Array, "P B"]]:
        """log p(phi) + log p(z | phi, w) and its gradient, s integrated out, in the dtype of the algebra.

        The Gaussian term has its closed-form pullback; automatic differentiation runs through the moments only.
        """
        root = observed.root_n_over_b
        residual, covariance = self.residual_lanes(phi, observed)
        value, by_mean, by_covariance = gaussian_marginal.lanes(residual, covariance, w)
        (prior, (mean, _)), pull = jax.vjp(lambda x: (self.log_prior_lanes(x), self.moments_lanes(x)), phi)
        to_mean = (by_mean * observed.n_over_b.astype(root.dtype)).astype(mean.dtype)
        to_covariance = (by_covariance * root[:, None] * root[None]).astype(mean.dtype)
        (gradient,) = pull((jnp.ones_like(prior), (to_mean, to_covariance)))
        return value + prior.astype(value.dtype), gradient.astype(value.dtype)

    def deviation_lanes(self, phi: Float[Array, "P B"], normals: Float[Array, "D B"]) -> Float[Array, "D B"]:
        """A draw from N(0, Sigma) of one record's statistic, from D standard normals."""
        return matvec_lanes(cholesky.lanes(self.moments_lanes(phi)[1]), normals)
