"""What a model must offer, and what it gets for free.

A model is a frozen pytree: hyperparameters are array leaves, so a batch of problems may carry a batch of
priors; sizes are static. Methods come in two spellings. The plain one is for one chain and is what people
write and call. The `_lanes` one takes arrays whose last axis runs over chains (leaves of the model included);
the samplers use it. A new model needs only the plain methods of the first group: the lane versions then follow
by `jax.vmap`. Overriding a lane method is a matter of speed alone.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from dpjax.engine.observed import Observed
from dpjax.engine.traits import Traits
from dpjax.errors import InputError
from dpjax.kernels.marginal import gaussian_marginal
from dpjax.kernels.symmetric import cholesky, matvec_lanes


def over_lanes(method):
    """Lane version of a single-chain method `method(model, *args)`: maps over the last axis of everything."""
    return lambda model, *args: jax.vmap(method, in_axes=-1, out_axes=-1)(model, *args)


class Model(Traits):
    """Base class of models; see the module's docstring for the two spellings."""

    #: Rank of the leaf of smallest rank in a single problem (how a batch of priors is recognised).
    smallest_rank = 0
    #: From this many records on, positions and z - n mu are kept in float64 (the algebra stays float32).
    float64_above: float = 1_000_000
    #: Where even and odd chains start `[2, P]`, if that was looked for before (`dpjax.samplers.basins`).
    starts: Any = None
    #: Whether `log_weight_lanes` is there, with which Gibbs sampling leaves the normal model invariant.
    metropolis = False
    #: The prior as a pytree of its own, where the model has one.
    prior: Any

    def astype(self, dtype):
        """The same model with leaves of another dtype."""
        return jax.tree.map(lambda x: jnp.asarray(x, dtype), self)

    def given(self, observed: Observed) -> Any:
        """The model with what it must know of the releases to give their density; itself, where that is nothing."""
        return self

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

    @property
    def kind(self) -> str:
        """Name of the model in files and on the command line."""
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

    def positions(self, reported: Float[np.ndarray, "N K"]) -> Float[np.ndarray, "N P"]:
        """Unconstrained parameters of reported ones, the inverse of `report`, on the host in 64 bits: for replicated
        releases and for studies at fixed parameters.

        Raises:
            InputError: the model does not have it.
        """
        raise InputError(f"unconstrained parameters of reported ones are not known for {self.kind}")

    def prior_center(self) -> Float[Array, " P"]:
        """A point in the bulk of the prior: where chains start."""
        raise NotImplementedError

    def sample_prior(self, key: PRNGKeyArray) -> Float[Array, " P"]:
        """One draw of `phi` from the prior."""
        raise NotImplementedError

    def simulate(
        self, key: PRNGKeyArray, phi: Float[Array, " P"], n: Float[Array, ""]
    ) -> tuple[Float[Array, " D"], Float[Array, " D"]]:
        """Exact sums of n records drawn at `phi`: as released, and whole (calibration only)."""
        raise NotImplementedError

    def simulate_clt(
        self, key: PRNGKeyArray, phi: Float[Array, " P"], n: Float[Array, ""]
    ) -> tuple[Float[Array, " D"], Float[Array, " D"]]:
        """As `simulate`, from N(n mu, n Sigma): the samplers' own model, to tell them apart from it."""
        mean, _ = self.moments(phi)
        normals = jax.random.normal(key, mean.shape, mean.dtype)
        lanes = jax.tree.map(lambda x: x[..., None], self)
        sums = n * mean + jnp.sqrt(n) * lanes.deviation_lanes(phi[:, None], normals[:, None])[:, 0]
        return sums, sums

    # ---- conjugate models write these too (samplers `gibbs`, `naive`, `non-private`) ------------------------
    def valid_lanes(self, mean_statistic: Float[Array, "D B"]) -> Float[Array, "D B"]:
        """Nearest statistic per record, s / n, that some table could have."""
        raise self._not_conjugate()

    @property
    def conjugate_randoms(self) -> tuple[int, int]:
        """Numbers of standard normals and uniforms that `conjugate_lanes` takes."""
        raise self._not_conjugate()

    def conjugate_lanes(self, mean_statistic, n, keys, normals, uniforms) -> Float[Array, "P B"]:
        """Draw phi given the exact statistic per record `[D, B]` of n `[B]` records; `keys` serve rare retries."""
        raise self._not_conjugate()

    @property
    def has_conjugate(self) -> bool:
        """Whether the parameters can be drawn given the exact sums."""
        return type(self).conjugate_lanes is not Model.conjugate_lanes

    def _not_conjugate(self) -> InputError:
        return InputError(
            f"the parameters of {self.kind} are not drawn given exact sums (conjugate_lanes): methods that do so, "
            "gibbs, naive and non-private among them, are not for it; collapsed is"
        )

    def complete_lanes(self, phi, c, n, normals, independent: bool = False) -> Float[Array, "D B"]:
        """Draw the whole statistic per record given the released one `c` `[D, B]` and phi; truncated models only.

        independent: as if the sums inside and outside of the bounds were independent (docs/formulas.md#joint-parts says
        that they are not; kept to show what that costs).
        """
        return c

    def log_weight_lanes(self, phi, c, whole, valid, n) -> Float[Array, " B"]:
        """log density of the normal model over that of the conjugate proposal at phi, up to terms free of phi.

        c, whole, valid: released, whole and projected whole statistic per record `[D, B]`; n `[B]`.
        """
        raise NotImplementedError

    # ---- what samplers ask of models with some of the `Traits` -----------------------------------------------
    def inside_lanes(self, phi: Float[Array, "P B"]) -> Bool[Array, " B"]:
        """Whether phi lies in the set; constrained models only."""
        raise NotImplementedError

    def sum_summaries(self, per_record, noise):
        """What of released sums per record `[N, D]` shows a conflict with the prior `[N, S]`, on the host; noise:
        scales per record `[D]`."""
        return per_record

    def lattice_lengths(self, n: np.ndarray) -> np.ndarray:
        """Lengths `[T]` of tables of the exact law of a whole-number statistic of n records `[T]`; 0: none."""
        return np.zeros(np.shape(n), int)

    def lattice_log_likelihood_lanes(self, phi, observed: Observed, length: int, laplace: bool) -> Float[Array, " B"]:
        """log p(z | phi) with the exact law of a whole-number statistic, by a table of this length."""
        raise NotImplementedError

    def landmarks_lanes(self, observed: Observed) -> tuple[Float[Array, "L B"], Float[Array, "L B"]]:
        """Coordinates of a model of one parameter around which the mean of the statistic may bend, or the likelihood
        may have its top, and within what distance of them."""
        center = over_lanes(lambda model: model.prior_center())(self)
        return center, jnp.ones_like(center)

    # ---- defaults, overridden where a closed form is known -----------------------------------------------
    def prior_starts(self) -> Float[Array, "2 P"]:
        """Where the even and the odd chains start; two places where the posterior may have two modes."""
        return jnp.stack([self.prior_center()] * 2)

    def prior_precision(self) -> Float[Array, "P P"]:
        """Minus the Hessian of the log prior at its centre: the prior's share of the sampler's metric."""
        return -jax.hessian(self.log_prior)(self.prior_center())

    def canonical_lanes(self, phi: Float[Array, "P B"]) -> Float[Array, "P B"]:
        """The representative of phi where several positions mean the same; the density does not tell them apart."""
        return phi

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
