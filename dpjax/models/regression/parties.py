"""Regression on the released sums of several data holders, without the normal approximation (Alparslan et al. 2023;
docs/formulas.md#exact-sums, #several-data-holders).

Records (x, y) of all parties are N(m, G G') with the parameters of `base`: a `LinearRegression` or, through the origin
(m = 0), an `OriginRegression`. Party j has n_j records in units of its own, (r - centre_j) / half_j, and its sums are
    first = n m + sqrt(n) G v,  second = G A A' G' + first first' / n,  v ~ N(0, I),
with A lower triangular, A_ij ~ N(0, 1) below the diagonal and A_ii^2 ~ chi2 with n - i degrees of freedom (i from 1);
through the origin second = G A A' G' with n + 1 - i. Where there are fewer records than variables the columns without
degrees of freedom are 0: the singular Wishart law. v and A are latent, so that given the parameters and them the sums
are exact, and the released entries are these plus noise, each of its own law. One evaluation costs O(J q^3).

Position: (phi of `base` [P0]; for every party (v [q], with an intercept,) h [q], a [q (q - 1) / 2]), q = p + 1,
A_ij = a, A_ii = sqrt(k_i) exp(h_i / sqrt(2 k_i)), k_i the degrees of freedom, so that h is about standard normal for
large n.
Lanes of parties: parties j of lanes b lie at j B + b.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from dpjax.engine.model import Observed
from dpjax.kernels.coordinates import pull_lower_lanes
from dpjax.kernels.order import below_diagonal, origin_places, pairs
from dpjax.kernels.symmetric import diagonal_lanes, gram_lanes, matmul_lanes, matvec_lanes, matvec_transposed_lanes
from dpjax.models.regression.origin import OriginRegression
from dpjax.models.regression.party_conjugate import moments_lanes, pooled_lanes, refresh_lanes
from dpjax.models.regression.party_layout import PartyFacts, PartyLayout
from dpjax.models.regression.simulation import entries, record_sums

#: The sums are formed in 64 bits from this many noise scales on: in 32 they would be off by a share of the noise.
MOST_FLOAT32 = 3e4


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PartySums(PartyLayout):
    """The densities over a `PartyLayout`: sums, their noise, gradients, the conjugate update and simulation."""

    # ---- sums ------------------------------------------------------------------------------------------------
    def _bartlett(self, latent):
        """A `[q, q, J * B]` and its diagonal `[q, J * B]`."""
        q, dtype = self.p + 1, latent.dtype
        k, some, root = self.freedom(dtype)
        _, h, below = self.split(latent)
        diagonal = jnp.sqrt(k) * jnp.exp(h / root * some)
        a = jnp.eye(q, dtype=dtype)[..., None] * diagonal[:, None]
        return a.at[below_diagonal(q)].set(below) * some[None], diagonal

    def record_lanes(self, x):
        """Mean and factor of one record in common units, `[q, B]` and `[q, q, B]`, or those of every party where they
        differ, `[q, J * B]` and `[q, q, J * B]`; `spread` makes the latter of both."""
        m, g, _ = self.base.record_lanes(x[: self.shared_dim])
        return m, g

    def spread(self, x):
        """What follows from `record_lanes`, for every party `[..., J * B]`."""
        return self.to_parties(x)

    def _own_units(self, x):
        """Mean and factor of one record in the units of every party `[q, J * B]`, `[q, q, J * B]`, and half."""
        m, g = self.record_lanes(x)
        centre, half = self.units_lanes(x.dtype)
        return (self.spread(m) - centre) / half, self.spread(g) / half[:, None], half

    def units_lanes(self, dtype):
        """Centre and half of every party `[q, J * B]`."""
        units = (self.facts.centre, self.facts.half)
        return (jnp.swapaxes(x.astype(dtype), 0, 1).reshape(self.p + 1, -1) for x in units)

    def sums_lanes(self, x: Float[Array, "P B"]) -> Float[Array, "D JB"]:
        """Entries of the exact sums, in every party's units."""
        return self.forward(x)[0]

    def forward(self, x):
        latent = self.own_lanes(x)[1]
        m, g, half = self._own_units(x)
        a, diagonal = self._bartlett(latent)
        spread = matmul_lanes(g, a)
        second = matmul_lanes(spread, jnp.swapaxes(spread, 0, 1))
        n, first = self.records.astype(x.dtype).reshape(-1), jnp.zeros_like(m)
        if self.intercept:
            first = n[None] * m + jnp.sqrt(n)[None] * matvec_lanes(g, self.split(latent)[0])
            second = second + first[:, None] * first[None] / n[None, None]
        i, j = self.places
        out = second[i, j]
        if self.intercept:
            first_entries = np.array([k for k, (r, _) in enumerate(zip(*pairs(self.p), strict=True)) if r == 0])
            out = out.at[first_entries].set(first)
        return out, (g, half, latent, a, diagonal, spread, first, n)

    @property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Row and column in the matrix of second sums of every entry (of a first sum: any place)."""
        if self.intercept:
            a, b = pairs(self.p)
            return np.maximum(a, 1) - 1, b - 1
        return origin_places(self.p)

    def matrix_lanes(self, entries):
        """Symmetric matrix of second sums `[q, q, B]` from its entries `[D, B]`; through the origin."""
        i, j = self.places
        empty = jnp.zeros((self.p + 1, self.p + 1, entries.shape[-1]), entries.dtype)
        return empty.at[i, j].set(entries).at[j, i].set(entries)

    # ---- densities -------------------------------------------------------------------------------------------
    def released_lanes(self, observed: Observed):
        """z in noise scales, the inverse of the scale, each `[D, J * B]`, and the entries' noise, in the same order."""
        inverse = observed.n_over_b / observed.n[None]
        own = lambda x: self.by_party(x, x.shape[0] // self.parties)
        return own(observed.z), own(inverse), jax.tree.map(own, observed.noise)

    def information_lanes(self, x, observed: Observed):
        """Root of the information that an entry's noise leaves about the exact sum `[D, J * B]`: 1 / scale."""
        _, inverse, noise = self.released_lanes(observed)
        return (inverse * noise.seen.astype(inverse.dtype)).astype(x.dtype)

    def noise_lanes(self, x, observed: Observed):
        """(released - exact) / scale of every entry, 0 where it is absent `[D, J * B]`."""
        z, inverse, noise = self.released_lanes(observed)
        return ((z - self.sums_lanes(x) * inverse) * noise.seen.astype(z.dtype)).astype(x.dtype)

    def _latent_log_density(self, latent, dtype):
        """Sum over parties of the log density of the latent variables `[B]`, and its derivative `[D, J * B]`."""
        k, some, root = self.freedom(dtype)
        v, h, below = self.split(latent)
        rest = jnp.concatenate([v, below])
        grown = jnp.expm1(2.0 * h / root)
        diagonal = some * (k * h / root - 0.5 * k * grown) - (1.0 - some) * 0.5 * h * h
        value = self.over_parties(diagonal.sum(0) - 0.5 * (rest * rest).sum(0))
        by_h = -some * k * grown / root - (1.0 - some) * h
        return value, jnp.concatenate([-v, by_h, -below])

    def log_prior_lanes(self, x):
        return self.parameter_prior_lanes(x)[0] + self._latent_log_density(self.own_lanes(x)[1], x.dtype)[0]

    def parameter_prior_lanes(self, x):
        """log prior density of the parameters `[B]` and its gradient by the shared ones `[S, B]` and by those of the
        parties' features `[F, J * B]`."""
        value, gradient = self.base.log_prior_and_grad_lanes(x[: self.shared_dim])
        return value, gradient, jnp.zeros((0, self.parties * x.shape[-1]), gradient.dtype)

    def log_noise_and_grad_lanes(self, sums, observed: Observed, cooling):
        """log density of the released entries given the exact sums, over parties `[B]`, and its derivative by the sums.

        cooling: None, or `[B]`: with Gaussian noise of the same variance that is wider by this factor, for the search
        of the mode.
        """
        z, inverse, noise = self.released_lanes(observed)
        e = (z - sums * inverse) * noise.seen.astype(z.dtype)
        if cooling is None:
            value, by_e = noise.log_density_and_grad(e)
        else:
            variance = noise.variance(e.dtype) * self.to_parties(cooling.astype(e.dtype))[None] ** 2
            value, by_e = -0.5 * e * e / variance, -e / variance
        return self.over_parties(value.sum(0)), -by_e * inverse

    def log_density_and_grad_lanes(self, x, w, observed: Observed):
        """log p(x, z) `[B]` and its gradient `[P, B]`; w: `cooling`, or None."""
        sums, (g, half, latent, a, diagonal, spread, first, n) = self.forward(x)
        q = self.p + 1
        value, by_sums = self.log_noise_and_grad_lanes(sums, observed, w)
        i, j = self.places
        by_first = jnp.zeros_like(first)
        if self.intercept:
            row, _ = pairs(self.p)
            linear = np.flatnonzero(row == 0)
            by_first, rest = by_sums[linear], np.flatnonzero(row > 0)
            by_sums, i, j = by_sums[rest], i[rest], j[rest]
        upper = jnp.zeros((q, q, by_sums.shape[-1]), by_sums.dtype).at[i, j].set(by_sums)
        by_second = 0.5 * (upper + jnp.swapaxes(upper, 0, 1))
        by_spread = 2.0 * matmul_lanes(by_second, spread)
        by_g = matmul_lanes(by_spread, jnp.swapaxes(a, 0, 1))
        by_a = gram_lanes(g, by_spread)
        _, some, root = self.freedom(x.dtype)
        below = below_diagonal(q)
        by_latent = [diagonal_lanes(by_a) * diagonal / root * some, by_a[below] * some[below[1]]]
        by_mean = jnp.zeros_like(first)
        if self.intercept:
            by_first = by_first + 2.0 * matvec_lanes(by_second, first) / n[None]
            by_mean = n[None] * by_first
            by_g = by_g + jnp.sqrt(n)[None, None] * by_first[:, None] * self.split(latent)[0][None]
            by_latent = [jnp.sqrt(n)[None] * matvec_transposed_lanes(g, by_first), *by_latent]
        latent_value, latent_gradient = self._latent_log_density(latent, x.dtype)
        prior, by_shared, by_features = self.parameter_prior_lanes(x)
        pulled, pulled_features = self.pull_record_lanes(x, by_mean / half, by_g / half[:, None])
        own = [by_features + pulled_features, jnp.concatenate(by_latent) + latent_gradient]
        return value + prior + latent_value, jnp.concatenate([by_shared + pulled, self.stacked(jnp.concatenate(own))])

    def pull_record_lanes(self, x, by_mean, by_g):
        """Gradients as of `parameter_prior_lanes` from those by mean and factor of one record of every party
        `[q, J * B]`, `[q, q, J * B]`, in common units."""
        shared = self._pull(x[: self.shared_dim], self.over_parties(by_mean), self.over_parties(by_g))
        return shared, jnp.zeros((0, by_mean.shape[-1]), shared.dtype)

    def _pull(self, phi, by_mean, by_g):
        """Gradient by phi of `base` from those by mean and factor of one record in common units."""
        p, base = self.p, self.base
        theta, log_s2, ell, unit_lower = base.coordinates_lanes(phi)
        lower = unit_lower * jnp.exp(ell)[:, None]
        by_lower = by_g[:p, :p] + theta[:, None] * by_g[p, :p][None]
        by_theta = matvec_lanes(lower, by_g[p, :p])
        by_log_s2 = 0.5 * jnp.exp(0.5 * log_s2) * by_g[p, p]
        at = base.coefficients_at
        own = jnp.concatenate([by_theta, by_log_s2[None], pull_lower_lanes(by_lower, unit_lower, ell)])
        return base.position_of_mean_lanes(by_mean) + jnp.pad(own, ((at, 0), (0, 0)))

    # ---- other samplers' view --------------------------------------------------------------------------------
    def common_lanes(self, observed: Observed):
        """Released entries and noise scales `[J, D, B]` in the units of `base`; through the origin only."""
        z, inverse, _ = self.released_lanes(observed)
        i, j = self.places
        _, half = self.units_lanes(z.dtype)
        unit = half[i] * half[j]
        back = lambda x: jnp.swapaxes(x.reshape(self.entries, self.parties, -1), 0, 1)
        return back(z / inverse * unit), back(unit / inverse)

    # ---- conjugate update given the sums of all parties ------------------------------------------------------
    def valid_lanes(self, mean_statistic):
        """As `party_conjugate.pooled_lanes`."""
        return pooled_lanes(self, moments_lanes(self, mean_statistic))

    @property
    def conjugate_randoms(self) -> tuple[int, int]:
        return self.base.conjugate_randoms

    def conjugate_lanes(self, mean_statistic, n, keys, normals, uniforms):
        """Parameters given `valid_lanes` of the exact sums, with latent variables of 0."""
        phi = self.base.conjugate_lanes(mean_statistic, n, keys, normals, uniforms)
        return jnp.pad(phi, ((0, self.dim - phi.shape[0]), (0, 0)))

    @property
    def conjugate(self) -> bool:
        """Whether parameters given the exact sums of all parties can be drawn at once."""
        return not (isinstance(self.base, OriginRegression) and self.base.independent)

    def refresh_lanes(self, x: Float[Array, "P B"], keys, normals, uniforms) -> Float[Array, "P B"]:
        """As `party_conjugate.refresh_lanes`; conjugate priors only."""
        return refresh_lanes(self, x, keys, normals, uniforms)

    # ---- one chain -------------------------------------------------------------------------------------------
    def prior_center(self):
        center = self.base.prior_center()
        return jnp.concatenate([center, jnp.zeros(self.parties * self.latent_dim, center.dtype)])

    def prior_precision(self):
        """Of the shared parameters alone."""
        return self.base.prior_precision()

    def own_precision(self):
        """Of one party's own coordinates: about I for the latent ones."""
        return jnp.eye(self.own_dim, dtype=self.base.theta_mean.dtype)

    def sample_prior(self, key: PRNGKeyArray):
        """Parameters from the prior; the latent variables at 0, as nothing that is reported depends on them."""
        first = self.base.sample_prior(key)
        return jnp.concatenate([first, jnp.zeros(self.parties * self.latent_dim, first.dtype)])

    def simulate(self, key: PRNGKeyArray, phi, n):
        """Exact sums of all parties `[J * D]`, drawn without records; n records in all, shared as those of `facts` are;
        evenly, and in the units of `base`, where there are none."""
        shape = (self.parties, self.p + 1)
        alike = PartyFacts(jnp.ones(self.parties), jnp.zeros(shape), jnp.ones(shape))
        facts = alike if self.facts is None else self.facts[:3]
        one = jax.tree.map(lambda x: x[..., None], self)
        m, g = (one.spread(x) for x in one.record_lanes(phi[:, None]))

        def party(key, records, m, g, centre, half):
            total, second = record_sums(key, (m - centre) / half, g / half[:, None], records)
            if self.intercept:
                return entries(total, second)
            i, j = self.places
            return second[i, j]

        keys = jax.random.split(key, self.parties)
        records, centre, half = (x.astype(phi.dtype) for x in facts)
        parties = jax.vmap(party, (0, 0, -1, -1, 0, 0))
        sums = parties(keys, records * (n / records.sum()), m, g, centre, half).reshape(-1)
        return sums, sums
