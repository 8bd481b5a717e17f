"""Regression on the sums of several data holders whose features have laws of their own.

As `PartySums`, but only theta and sigma^2 are shared: the features of party j are N(mu_j, L_j L_j'), or N(0, L_j L_j')
through the origin, independent over parties, each under the prior of `base`.

Position: (theta, log sigma^2; for every party (mu_j [p], with an intercept,) ell_j [p], c_j [p (p - 1) / 2], and its
latent variables as in `PartySums`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from dpjax.models.regression.parties import PartySums
from dpjax.models.regression.party_conjugate import moments_lanes, pooled_lanes, valid_lanes

#: Steps per trajectory: more coordinates than of parties alike, fewer of them pinned alike.
LEAPFROGS = 12
#: Keys of the parties' rare retries of gamma draws are folded from here on.
PARTY_KEYS = 0xFFFE0000


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OwnPartySums(PartySums):
    """A `PartySums` in which every party has a mean and a covariance of the features of its own.

    Reported are theta and sigma^2. The prior of theta and sigma^2 is that of `base` at the centre of its features' law,
    and that of a party's features the one at the centre of theta and sigma^2: where the two are independent, as in all
    conjugate priors here, these are the prior itself.
    """

    @property
    def hmc_settings(self) -> dict[str, Any]:
        return {"leapfrogs": LEAPFROGS}

    # ---- sizes and names -----------------------------------------------------------------------------------
    @property
    def coefficients(self) -> int:
        """Number of entries of theta."""
        return self.p + 1 if self.intercept else self.p

    @property
    def shared_dim(self) -> int:
        return self.coefficients + 1

    @property
    def features_dim(self) -> int:
        return self.base.dim - self.shared_dim

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return self.base.parameter_names[: self.shared_dim] if self.reports is None else self.reports

    def report_lanes(self, x):
        k = self.coefficients
        found = jnp.concatenate([x[:k], jnp.exp(x[k : k + 1])])
        if self.reports is None:
            return found
        known = self.base.parameter_names
        return jnp.stack([found[known.index(name)] for name in self.reports])

    # ---- coordinates of `base` -------------------------------------------------------------------------------
    def joined(self, shared, features):
        """phi of `base` from theta and log sigma^2, and a party's (mu, ell, c)."""
        if not self.intercept:
            return jnp.concatenate([shared, features])
        p = self.p
        alpha = shared[0] + (features[:p] * shared[1 : p + 1]).sum(0)
        return jnp.concatenate([features[:p], alpha[None], shared[1:], features[p:]])

    def parted(self, phi):
        """Inverse of `joined`."""
        if not self.intercept:
            return phi[: self.shared_dim], phi[self.shared_dim :]
        p = self.p
        mu, alpha, beta, log_s2, rest = (
            phi[:p],
            phi[p],
            phi[p + 1 : 2 * p + 1],
            phi[2 * p + 1 : 2 * p + 2],
            phi[2 * p + 2 :],
        )
        return jnp.concatenate([(alpha - (mu * beta).sum(0))[None], beta, log_s2]), jnp.concatenate([mu, rest])

    def phi_lanes(self, x):
        """phi of `base` for every party `[P0, J * B]`."""
        return self.joined(self.to_parties(x[: self.shared_dim]), self.own_lanes(x)[0])

    def base_lanes(self):
        """`base` for every party, leaves `[..., J * B]`."""
        return jax.tree.map(self.to_parties, self.base)

    def record_lanes(self, x):
        m, g, _ = self.base.record_lanes(self.phi_lanes(x))
        return m, g

    def spread(self, x):
        return x

    def pull_record_lanes(self, x, by_mean, by_g):
        return self._pull_phi(x, self._pull(self.phi_lanes(x), by_mean, by_g))

    def _pull_phi(self, x, by_phi):
        """Gradients by the shared coordinates and by those of the features from the one by every party's phi."""
        shared, features = self.to_parties(x[: self.shared_dim]), self.own_lanes(x)[0]
        by_shared, by_features = jax.vjp(self.joined, shared, features)[1](by_phi.astype(x.dtype))
        return self.over_parties(by_shared), by_features

    # ---- prior -----------------------------------------------------------------------------------------------
    def _centre_lanes(self):
        return self.parted(jax.vmap(lambda base: base.prior_center(), in_axes=-1, out_axes=-1)(self.base))

    def parameter_prior_lanes(self, x):
        shared, features = x[: self.shared_dim], self.own_lanes(x)[0]
        middle, middle_features = (part.astype(x.dtype) for part in self._centre_lanes())
        phi, pull = jax.vjp(lambda y: self.joined(y, middle_features), shared)
        value, by_phi = self.base.log_prior_and_grad_lanes(phi)
        phi, pull_features = jax.vjp(lambda y: self.joined(self.to_parties(middle), y), features)
        values, by_own = self.base_lanes().log_prior_and_grad_lanes(phi)
        return (
            value + self.over_parties(values), pull(by_phi.astype(x.dtype))[0],
            pull_features(by_own.astype(x.dtype))[0],
        )  # fmt: skip

    def _turned(self, which: int):
        """Precision of the prior at its centre in the shared coordinates (0) or in those of a party's features (1)."""
        centre = self.parted(self.base.prior_center())
        jacobian = jax.jacfwd(self.joined, argnums=which)(*centre)
        return jacobian.T @ self.base.prior_precision() @ jacobian

    def prior_precision(self):
        return self._turned(0)

    def own_precision(self):
        latent = jnp.ones(self.latent_dim, self.base.theta_mean.dtype)
        zeros = jnp.zeros((self.features_dim, self.latent_dim), latent.dtype)
        return jnp.block([[self._turned(1), zeros], [zeros.T, jnp.diag(latent)]])

    def prior_center(self):
        shared, features = self.parted(self.base.prior_center())
        own = jnp.concatenate([features, jnp.zeros(self.latent_dim, features.dtype)])
        return jnp.concatenate([shared, jnp.tile(own, self.parties)])

    def sample_prior(self, key: PRNGKeyArray):
        keys = jax.random.split(key, self.parties + 1)
        shared = self.parted(self.base.sample_prior(keys[0]))[0]
        features = jax.vmap(lambda k: self.parted(self.base.sample_prior(k))[1])(keys[1:])
        own = jnp.concatenate([features, jnp.zeros((self.parties, self.latent_dim), features.dtype)], axis=1)
        return jnp.concatenate([shared, own.reshape(-1)])

    # ---- conjugate update given the sums of all parties ------------------------------------------------------
    def valid_lanes(self, mean_statistic):
        """Those of all parties together, which tell theta and sigma^2, then those of every party."""
        moments = moments_lanes(self, mean_statistic)
        own = valid_lanes(self, moments, self.records.astype(moments.dtype).reshape(-1))
        return jnp.concatenate([pooled_lanes(self, moments), self.stacked(own)])

    @property
    def conjugate_randoms(self) -> tuple[int, int]:
        normals, uniforms = self.base.conjugate_randoms
        return (self.parties + 1) * normals, (self.parties + 1) * uniforms

    def conjugate_lanes(self, mean_statistic, n, keys, normals, uniforms):
        base, size = self.base, mean_statistic.shape[0] // (self.parties + 1)
        some, few = base.conjugate_randoms
        phi = base.conjugate_lanes(mean_statistic[:size], n, keys, normals[:some], uniforms[:few])
        party_keys = [
            jax.vmap(lambda k, j=j: jax.random.fold_in(k, jnp.uint32(PARTY_KEYS + j)))(keys)
            for j in range(self.parties)
        ]
        own = self.base_lanes().conjugate_lanes(
            self.by_party(mean_statistic[size:], size), self.records.astype(n.dtype).reshape(-1),
            jnp.concatenate(party_keys), self.by_party(normals[some:], some), self.by_party(uniforms[few:], few),
        )  # fmt: skip
        x = jnp.concatenate([self.parted(phi)[0], jnp.zeros((self.parties * self.own_dim, n.shape[-1]), phi.dtype)])
        features = self.parted(own)[1]
        latent = jnp.zeros((self.latent_dim, features.shape[-1]), features.dtype)
        return x.at[self.shared_dim :].set(self.stacked(jnp.concatenate([features, latent])))
