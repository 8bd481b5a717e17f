"""Alparslan et al.'s samplers of a regression through the origin on the sums of several data holders
(docs/formulas.md#several-data-holders; `party_steps`); this one of `normal-x`, those of the others in `fixed_s` and
`party_clt`.

`normal-x`: Algorithm 1, exact for normal features: Sigma_x | S, every S_j by a Wishart Metropolis-Hastings step, theta
| S, sigma2, then sigma2 by a random walk. The S_j of all parties and chains are one array and move at once, each by a
proposal of its own width.
`fixed-s`: Algorithm 2, S_j = nearest positive semi-definite matrix of S^_j for ever: quick, and too sure
(docs/formulas.md#fixed-s).
`fixed-s-fast`: Algorithm 3, sigma2 fixed as well: independent draws.
`clt`: Bernstein and Sheldon's sampler for J parties (Alparslan et al. 2023, section C.1), the sums of each party
normal: O(p^6). Other than Gaussian noise, which Alparslan et al. 2023 do not have: here its density is used for S^, and
a scale mixture for z^ (for all sums in `clt`); `fixed-s-fast` takes normal noise of the same variance, 2 b^2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from dpjax.engine.sampler import Draw
from dpjax.errors import InputError
from dpjax.kernels import party_steps as steps
from dpjax.kernels.batching import repeat_lanes, split_lanes
from dpjax.kernels.streams import normals_and_uniforms_lanes
from dpjax.kernels.symmetric import cholesky, gram_lanes, lower_inverse, matmul_lanes
from dpjax.kernels.wishart import acceptance, adapt_alpha, degrees_of_freedom_lanes, propose_from
from dpjax.samplers._party_parts import (
    S_TARGET,
    Coefficients,
    Released,
    ThetaLaw,
    bartlett,
    bartlett_randoms,
    check_burn_in,
    check_model,
    coefficient_randoms,
    cut,
    draw_covariance,
    draw_numbers,
    log_marginal,
    move_coefficients,
    other_keys,
    prior_of,
    released_lanes,
    report,
    root_of,
    start_coefficients,
    start_gram,
    theta_law,
    total,
    warm_up_gain,
)


class NormalXState(NamedTuple):
    """S of every party and its Cholesky factor `[p, p, N]`, alpha of its proposals `[N]`, Sigma_x `[p, p, B]`, alpha of
    the joint proposals `[B]`, rest."""

    gram: Array
    factor: Array
    alpha: Array
    covariance: Array
    joint_alpha: Array
    coefficients: Coefficients


@dataclass(frozen=True)
class NormalX:
    """Algorithm 1 (`normal-x`), and one more step that the paper does not have.

    Settings (static): burn_in, iterations during which the proposals adapt and which are thrown away; moves:
    Metropolis-Hastings steps of S in one iteration; joint: also move Sigma_x and all S_j together, S_j = F A_j A_j' F'
    with F F' = Sigma_x and A_j held fixed, theta integrated out. Without it (the paper's algorithm) S and Sigma_x hold
    each other fast where the noise is larger than the sampling error of S. Proposals are random walks in p (p + 1) / 2
    dimensions: from about ten features on, chains need very many iterations. Needs n_j >= p.
    """

    burn_in: int = 2000
    moves: int = 1
    joint: bool = True
    name: str = "normal-x"

    def __post_init__(self):
        check_burn_in(self.burn_in)
        if self.moves < 1:
            raise InputError(f"moves must be at least 1; got {self.moves}")

    @property
    def warmup_iterations(self) -> int:
        return self.burn_in

    def init_lanes(self, model, observed, keys, chains: int) -> NormalXState:
        check_model(model, self.name)
        seen, p, parties = released_lanes(model, observed), model.base.p, model.parties
        triangle, dtype = p * (p - 1) // 2, seen.cross.dtype
        normals, _ = normals_and_uniforms_lanes(keys, p + 1 + parties * (p + triangle), 0, dtype)
        base, _ = prior_of(model, dtype)
        gram = start_gram(seen, base)
        # dispersed: a Wishart draw around it with few degrees of freedom, their chi-squares by Wilson and Hilferty
        alpha = jnp.maximum(0.1 * seen.n, jnp.full_like(seen.n, 4.0 * p))
        _, diagonal, below = cut(normals, p + 1, parties * p, parties * triangle)
        wide = degrees_of_freedom_lanes(alpha, p)
        cube = 1.0 - 2.0 / (9.0 * wide) + jnp.sqrt(2.0 / (9.0 * wide)) * diagonal.reshape(p, -1)
        there = propose_from.lanes(
            cholesky.lanes(gram), alpha, wide * jnp.maximum(cube, 0.1) ** 3, below.reshape(triangle, alpha.shape[0])
        )
        coefficients = start_coefficients(model, seen, there.matrix, normals[: p + 1])
        start = jnp.maximum(10.0 * alpha, jnp.full_like(alpha, 10.0 * p * p))
        joint = split_lanes(start, parties).max(0)
        return NormalXState(there.matrix, there.factor, start, base.psi, joint, coefficients)

    def _likelihood(self, seen: Released, gram, sigma2, scales, parties: int):
        """K of every party and log p(S^ | S) `[N]`."""
        root = root_of(seen, gram, repeat_lanes(sigma2, parties), scales)
        return root, seen.gram_log_density(gram)

    def _move(self, seen: Released, state: NormalXState, precision, keys, normals, uniforms, parties: int, gain):
        """One Metropolis-Hastings step of every S; returns the state, K and log p(S^ | S) of each, acceptance rates."""
        p, (theta, sigma2, _, scales) = precision.shape[0], state.coefficients
        numbers = bartlett(keys, state.alpha, p, normals, uniforms[parties:])
        proposal = propose_from.lanes(state.factor, state.alpha, *numbers)

        def target(gram):
            root, released = self._likelihood(seen, gram, sigma2, scales, parties)
            cross = steps.cross_log_density.lanes(root, gram, repeat_lanes(theta, parties), seen.cross, seen.cross_seen)
            return root, released, released + cross

        here, there = target(state.gram), target(proposal.matrix)
        prior = steps.gram_log_ratio.lanes(proposal, state.gram, repeat_lanes(precision, parties), seen.n)
        rate = acceptance(there[2] - here[2] + prior)
        taken = uniforms[:parties].reshape(-1) < rate
        alpha = jnp.where(gain > 0, adapt_alpha(state.alpha, rate, gain, p, S_TARGET), state.alpha)
        choose = lambda new, old: steps.accept_lanes(taken, new, old)
        state = state._replace(
            gram=choose(proposal.matrix, state.gram), factor=choose(proposal.factor, state.factor), alpha=alpha
        )
        return state, choose(there[0], here[0]), choose(there[1], here[1]), rate

    def _joint(
        self, base, seen: Released, state: NormalXState, drawn, root, released, law, keys, normals, uniforms, gain
    ):
        """Sigma_x and all S_j at once by one Metropolis-Hastings step; returns the state, K and the law of theta."""
        p, parties, sigma2 = base.p, seen.n.shape[0] // state.joint_alpha.shape[0], state.coefficients.sigma2
        proposal = propose_from.lanes(
            drawn.factor, state.joint_alpha, *bartlett(keys, state.joint_alpha, p, normals, uniforms[1:])
        )
        inverse = lower_inverse.lanes(proposal.factor)
        prior = steps.covariance_log_ratio.lanes(
            proposal, gram_lanes(drawn.inverse_factor, drawn.inverse_factor), gram_lanes(inverse, inverse),
            base.psi, base.nu,
        )  # fmt: skip
        factor = matmul_lanes(repeat_lanes(matmul_lanes(proposal.factor, drawn.inverse_factor), parties), state.factor)
        gram = matmul_lanes(factor, jnp.swapaxes(factor, 0, 1))
        root_there, released_there = self._likelihood(seen, gram, sigma2, state.coefficients.scales, parties)
        law_there = theta_law(base, seen, gram, root_there, sigma2, parties)
        before = log_marginal(base, seen, state.gram, root, sigma2, law, parties) + total(released, parties)
        after = log_marginal(base, seen, gram, root_there, sigma2, law_there, parties) + total(released_there, parties)
        rate = acceptance(after - before + prior)
        taken = uniforms[0] < rate
        all_taken = repeat_lanes(taken, parties)
        choose = lambda new, old: steps.accept_lanes(all_taken, new, old)
        alpha = jnp.where(gain > 0, adapt_alpha(state.joint_alpha, rate, gain, p, S_TARGET), state.joint_alpha)
        state = state._replace(
            gram=choose(gram, state.gram), factor=choose(factor, state.factor), joint_alpha=alpha,
            covariance=steps.accept_lanes(taken, proposal.matrix, drawn.matrix),
        )  # fmt: skip
        law = ThetaLaw(*(steps.accept_lanes(taken, new, old) for new, old in zip(law_there, law, strict=True)))
        return state, choose(root_there, root), law

    def step_lanes(self, model, observed, keys, state: NormalXState, gain):
        """One iteration; gain: of the adaptation, 0 after warm-up. Returns the state and the acceptance rate of S."""
        seen, p, parties = released_lanes(model, observed), model.base.p, model.parties
        dtype, (some_normals, some_uniforms) = seen.cross.dtype, bartlett_randoms(p)
        for_move = parties * some_normals, parties * (some_uniforms + 1)
        for_joint = (some_normals, some_uniforms + 1) if self.joint else (0, 0)
        for_rest = coefficient_randoms(seen, p, parties)
        sizes = [(some_normals, some_uniforms), *[for_move] * self.moves, for_joint, for_rest]
        normals, uniforms = draw_numbers(keys, sizes, dtype)
        base, _ = prior_of(model, dtype)
        n = total(seen.n, parties)
        drawn = draw_covariance(model, total(state.gram, parties), n, keys, normals[0], uniforms[0])
        precision = gram_lanes(drawn.inverse_factor, drawn.inverse_factor)
        state = state._replace(covariance=drawn.matrix)
        root, released, rate = None, None, jnp.zeros_like(seen.n)
        for k in range(1, self.moves + 1):
            state, root, released, accepted = self._move(
                seen, state, precision, other_keys(keys, k), normals[k], uniforms[k], parties, gain
            )
            rate = rate + accepted / self.moves
        law = theta_law(base, seen, state.gram, root, state.coefficients.sigma2, parties)
        if self.joint:
            numbers = other_keys(keys, 0), normals[-2], uniforms[-2]
            state, root, law = self._joint(base, seen, state, drawn, root, released, law, *numbers, gain)
        coefficients = move_coefficients(
            model, seen, state.gram, state.factor, root, law, state.coefficients, normals[-1], uniforms[-1], gain
        )
        return state._replace(coefficients=coefficients), total(rate, parties) / parties

    def iterate_lanes(self, model, observed, carry: NormalXState, keys, index, chains: int):
        carry, rate = self.step_lanes(model, observed, keys, carry, warm_up_gain(index, self.burn_in, carry.gram.dtype))
        parameters = report(model, observed, carry.coefficients, carry.covariance)
        return carry, Draw(parameters, rate, jnp.zeros(rate.shape, bool))

    def finite_lanes(self, carry: NormalXState):
        theta, sigma2 = carry.coefficients[:2]
        lanes = theta.shape[-1]
        matrices = jnp.isfinite(carry.factor).all((0, 1)).reshape(-1, lanes).all(0)
        return jnp.isfinite(theta).all(0) & jnp.isfinite(sigma2) & matrices
