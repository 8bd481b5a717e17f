"""Multinomial counts of few records by their exact law: Gibbs sampling of the counts themselves.

With the probabilities integrated out the counts s are Dirichlet-multinomial, and each released one is seen through its
noise: p(s | z) is proportional to the product over k of Gamma(alpha_k + s_k) / s_k! times the noise's density at
z_k - s_k, on counts that sum to n. One sweep draws, for every category i and another one j, s_i given everything but
s_i and s_j, whose sum stays: at most n + 1 values, all looked at. Then p given s is Dirichlet. No step size, nothing
to reject. Normal approximation and Hamiltonian moves (`collapsed`) are for more records: with few, counts sit at 0 and
the normal law is wrong there.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jaxtyping import Array, Float

from dpjax.engine.model import Observed
from dpjax.engine.sampler import KEY_BLOCK, Draw, Numbered, odd_chains
from dpjax.errors import InputError
from dpjax.kernels.streams import normals_and_uniforms_lanes
from dpjax.mechanisms import LAPLACE, Mechanism

#: Most records for which the counts are drawn one by one.
MOST_RECORDS = 512


class CountsState(NamedTuple):
    """One chain: unconstrained parameters `[P]`, counts `[K]`, and for each count the log weight of its values
    0, ..., length - 1 `[K, length]`."""

    position: Float[Array, "P *B"]
    counts: Float[Array, "K *B"]
    weights: Float[Array, "K N *B"]


@dataclass(frozen=True)
class Counts(Numbered):
    """Settings: length of the tables of log weights, more than the number of records; categories; sweeps per step;
    burn_in: steps thrown away; rounds: how many times a step's sweeps are done. Static, but for burn_in and rounds,
    which programs are not compiled for."""

    noise: Mechanism = LAPLACE
    length: int = 64
    categories: int = 3
    sweeps: int = 1
    burn_in: int = 2 * KEY_BLOCK
    rounds: int = 1
    name: str = "collapsed"

    float64 = True
    law = "exact law of the counts (multinomial)"

    def __post_init__(self):
        if self.sweeps < 1 or self.rounds < 1 or self.burn_in < 0:
            raise InputError("sweeps and rounds must be at least 1 and burn_in at least 0")

    def numbers(self, model: Any) -> int:
        return self.rounds

    def general(self) -> Counts:
        return dataclasses.replace(self, burn_in=0, rounds=1)

    @property
    def warmup_iterations(self) -> int:
        return self.burn_in

    @property
    def widest_block(self) -> int:
        return max(2, 2**21 // (self.length * self.categories))

    def init_lanes(self, model: Any, observed: Observed, keys, chains: int) -> CountsState:
        n = observed.n
        shares = model.valid_lanes(observed.z / observed.n_over_b)
        seen = model.all_shares_lanes(shares)
        alpha = model.prior.concentration
        start = jnp.where(odd_chains(observed, chains), alpha / alpha.sum(0)[None], seen)
        # rounded so that they sum to n
        ends = jnp.round(jnp.cumsum(start / start.sum(0)[None], 0) * n[None])
        counts = jnp.diff(ends, axis=0, prepend=jnp.zeros_like(ends[:1]))
        s = jnp.arange(1, self.length, dtype=n.dtype)[:, None]
        steps = jnp.log((alpha[:, None] + s[None] - 1.0) / s[None])
        prior = jnp.concatenate([jnp.zeros_like(steps[:, :1]), jnp.cumsum(steps, 1)], 1)
        whole = jnp.concatenate([jnp.zeros_like(s[:1]), s])
        rows: list[Any] = [jnp.zeros_like(prior[0])] * self.categories
        for entry, category in enumerate(model.released):
            residual = observed.z[entry][None] - whole * (observed.n_over_b[entry] / n)[None]
            rows[category] = self.noise.log_density_and_grad(residual)[0]
        position = jax.vmap(lambda m: m.prior_center(), in_axes=-1, out_axes=-1)(model)
        return CountsState(position, counts, prior + jnp.stack(rows))

    def sweep_lanes(self, state: CountsState, offset, uniforms) -> CountsState:
        """Draw s_i given s_i + s_j for every i, with j = i + offset (at least 1) around the circle; u `[K, B]`."""
        s = jnp.arange(self.length, dtype=jnp.int32)[:, None]

        def pair(i, counts):
            j = (i + offset) % self.categories
            total = (counts[i] + counts[j]).astype(jnp.int32)
            rest = total[None] - s
            other = jnp.take_along_axis(state.weights[j], jnp.clip(rest, 0, self.length - 1), 0)
            logs = jnp.where(rest >= 0, state.weights[i] + other, -jnp.inf)
            below = jnp.cumsum(jnp.exp(logs - logs.max(0)[None]), 0)
            drawn = (below <= uniforms[i][None] * below[-1:]).sum(0, dtype=jnp.int32)
            drawn = jnp.minimum(drawn, total).astype(counts.dtype)
            return counts.at[j].add(counts[i] - drawn).at[i].set(drawn)

        return state._replace(counts=lax.fori_loop(0, self.categories, pair, state.counts))

    def iterate_lanes(self, model: Any, observed: Observed, carry: CountsState, keys, index, chains: int):
        some_normals, some_uniforms = model.conjugate_randoms
        size = self.sweeps * self.categories
        normals, uniforms = normals_and_uniforms_lanes(keys, some_normals, size + some_uniforms, carry.counts.dtype)
        rounds = jnp.asarray(self.rounds if self.given is None else self.given, jnp.int32)

        def further(number):
            """Uniforms of a further round, from a key of its own."""
            again = jax.vmap(lambda key: random.fold_in(key, number.astype(jnp.uint32)))(keys)
            return normals_and_uniforms_lanes(again, 0, size, carry.counts.dtype)[1]

        def one_round(number, counts):
            drawn = lax.cond(number == 0, lambda: uniforms[:size], lambda: further(number))
            state, first = carry._replace(counts=counts), (index * rounds + number) * self.sweeps
            for sweep in range(self.sweeps):
                offset = 1 + (first + sweep) % (self.categories - 1)
                state = self.sweep_lanes(state, offset, drawn[sweep * self.categories : (sweep + 1) * self.categories])
            return state.counts

        carry = carry._replace(counts=lax.fori_loop(np.int32(0), rounds, one_round, carry.counts))
        prior = model.prior.replace(concentration=model.prior.concentration + carry.counts)
        position = prior.draw_lanes(keys, normals, uniforms[size:])
        carry = carry._replace(position=position)
        one = jnp.ones_like(position[0])
        return carry, Draw(model.report_lanes(position), one, jnp.zeros(one.shape, bool))

    def finite_lanes(self, carry: CountsState):
        return jnp.isfinite(carry.position).all(0) & jnp.isfinite(carry.counts).all(0)


def table_length(n: np.ndarray) -> int:
    """Length of the tables for these numbers of records, rounded up to a power of two; 0 where there are too many."""
    most = int(np.max(n))
    return int(2 ** np.ceil(np.log2(max(most + 1, 16)))) if most <= MOST_RECORDS else 0
