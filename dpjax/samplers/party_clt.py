"""Bernstein and Sheldon's sampler for the sums of several data holders (`clt`; Alparslan et al. 2023, section C.1,
docs/formulas.md#consistent-sums, #party-clt)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from dpjax.engine.sampler import Draw
from dpjax.kernels import nig
from dpjax.kernels import party_steps as steps
from dpjax.kernels.batching import repeat_lanes
from dpjax.kernels.random import gamma_from
from dpjax.kernels.streams import normals_and_uniforms_lanes
from dpjax.kernels.symmetric import cholesky, matvec_lanes
from dpjax.samplers._party_parts import (
    PROPOSALS,
    ThetaLaw,
    bartlett_randoms,
    check_burn_in,
    check_model,
    draw_covariance,
    draw_numbers,
    fold,
    other_keys,
    prior_of,
    released_lanes,
    report,
    start_coefficients,
    start_gram,
    total,
)


class CltState(NamedTuple):
    """theta `[p, B]`, sigma2 `[B]`, Sigma_x and its factor `[p, p, B]`, mixing variances of the noise `[D, N]`."""

    theta: Array
    sigma2: Array
    covariance: Array
    factor: Array
    scales: Array


@dataclass(frozen=True)
class Clt:
    """Bernstein and Sheldon's sampler for J parties (`clt`; Alparslan et al. 2023, section C.1;
    docs/formulas.md#party-clt): the sums of a party, y'y included where it was released, are normal with the moments of
    its records; then theta, sigma2 and Sigma_x from their conjugate laws given the sums of all parties, each projected
    to what a table can have (docs/formulas.md#consistent-sums). O(p^6) for each iteration and party."""

    burn_in: int = 2000
    name: str = "clt"

    def __post_init__(self):
        check_burn_in(self.burn_in)

    @property
    def warmup_iterations(self) -> int:
        return self.burn_in

    def init_lanes(self, model, observed, keys, chains: int) -> CltState:
        check_model(model, self.name)
        seen, p, parties = released_lanes(model, observed), model.base.p, model.parties
        dtype = seen.cross.dtype
        normals, _ = normals_and_uniforms_lanes(keys, p + 2, 0, dtype)
        base, _ = prior_of(model, dtype)
        gram = start_gram(seen, base)
        first = start_coefficients(model, seen, gram, normals[: p + 1])
        wide = jnp.exp(0.5 * normals[p + 1])  # dispersed
        covariance = (base.psi + total(gram, parties)) * (wide / (base.nu + total(seen.n, parties)))[None, None]
        noise = model.released_lanes(observed)[2]
        scales = jnp.broadcast_to(noise.variance(dtype), noise.seen.shape)
        return CltState(first.theta, first.sigma2, covariance, cholesky.lanes(covariance), scales)

    def step_lanes(self, model, observed, keys, state: CltState) -> CltState:
        """One iteration: sums of every party, Sigma_x, (theta, sigma2), mixing variances."""
        p, parties, size = model.base.p, model.parties, model.entries
        model = model.given(observed)
        z, scale = model.common_lanes(observed)
        dtype = z.dtype
        flat = lambda x: fold(jnp.moveaxis(x.astype(dtype), 0, -2))
        z, scale, noise = flat(z), flat(scale), model.released_lanes(observed)[2]
        n_parties, (some, few) = fold(model.records.astype(dtype)), noise.randoms
        for_noise = ((2 + some) * size * parties, few * size * parties)
        sizes = [for_noise, bartlett_randoms(p), (p + PROPOSALS, PROPOSALS + 1)]
        normals, uniforms = draw_numbers(keys, sizes, dtype)
        for_sums = normals[0].reshape((2 + some) * size, -1)
        c, g = steps.clt_moments.lanes(state.theta, state.sigma2, state.covariance, state.factor)
        s = steps.clt_draw.lanes(
            repeat_lanes(c, parties),
            repeat_lanes(g, parties),
            n_parties,
            state.scales * scale**2,
            noise.seen.astype(dtype),
            z,
            for_sums[: 2 * size],
        )
        s = steps.project_sums.lanes(s)
        scales = noise.update_lanes((z - s) / scale, for_sums[2 * size :], uniforms[0].reshape(few * size, -1))
        sums, n = total(s, parties), total(n_parties, parties)
        count = p * (p + 1) // 2
        gram = steps.symmetric_lanes(sums[:count], p)
        drawn = draw_covariance(model, gram, n, keys, normals[1], uniforms[1])
        base, _ = prior_of(model, dtype)
        theta, sigma2 = self._coefficients(
            base, gram, sums[count : count + p], sums[-1], n, state.theta, keys, normals[2], uniforms[2]
        )
        return CltState(theta, sigma2, drawn.matrix, drawn.factor, scales)

    def _coefficients(self, base, gram, cross, square, n, theta, keys, normals, uniforms):
        """theta and sigma2 given exact sums: jointly where the prior is conjugate, else sigma2 | theta, theta | it."""
        p = theta.shape[0]
        shape = base.sigma2_shape + 0.5 * n
        gamma = gamma_from.lanes(other_keys(keys, 0), shape, normals[p:], uniforms)
        if not base.independent:
            prior = nig.NIG(base.theta_mean, base.theta_precision, base.sigma2_shape, base.sigma2_scale)
            return nig.update_draw_from.lanes(
                prior, gram / n[None, None], cross / n[None], square / n, n, gamma, normals[:p]
            )
        error = square - 2.0 * (theta * cross).sum(0) + (theta * matvec_lanes(gram, theta)).sum(0)
        sigma2 = (base.sigma2_scale + 0.5 * jnp.maximum(error, jnp.zeros_like(error))) / gamma
        law = steps.coefficient_law.lanes(
            base.theta_mean, base.theta_precision, gram / sigma2[None, None], cross / sigma2[None]
        )
        return ThetaLaw(*law).draw(normals[:p]), sigma2

    def iterate_lanes(self, model, observed, carry: CltState, keys, index, chains: int):
        carry = self.step_lanes(model, observed, keys, carry)
        one = jnp.ones_like(carry.sigma2)
        return carry, Draw(report(model, observed, carry, carry.covariance), one, jnp.zeros(one.shape, bool))

    def finite_lanes(self, carry: CltState):
        return jnp.isfinite(carry.theta).all(0) & jnp.isfinite(carry.sigma2) & jnp.isfinite(carry.factor).all((0, 1))
