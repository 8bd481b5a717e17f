"""Independent draws from a posterior that is computed, not explored: no warm-up, nothing to converge.

- `Enumeration`: binomial counts. p(theta | z) = sum over s of w_s Beta(alpha + s, beta + n - s) with
  w_s proportional to C(n, s) B(alpha + s, beta + n - s) p(z | s): the exact law of the sum (SPEC B11).
- `Quadrature`: any model of one parameter and one statistic: the density of z given theta on a grid of theta, by
  the normal-Laplace density (SPEC B3, the normal law of the sum) or, for whole-number statistics of few
  records, by the exact law of the sum; draws by inverse CDF.
- `OnePosteriorSampling`: the exponential mechanism over theta (SPEC A18): a baseline that is private by itself.

All run in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ..errors import InputError
from ..kernels.batching import batch_last
from ..kernels.special import log_sinhc, normal_laplace_log_density
from ..kernels.streams import normals_and_uniforms_lanes
from ..models.base import Model, Observed, over_lanes
from .base import Draw, GaussianNoise, LaplaceNoise

#: The powers of the density that the grid closes in on. The last one is that of the final grid, half of whose nodes
#: follow the density to this power (a second, narrow mode) and half of which are even over where there is any.
_TEMPERS = (1 / 256, 1 / 16, 1 / 2, 1 / 2)
#: Log density, relative to its top, that still counts when the grid closes in.
_FALL = -35.0
#: Log density, relative to its top, below which there is nothing.
_NOTHING = -1e5
#: Prior reach of the first grid: the density is under e^-30 of its top beyond.
_REACH = 30.0
#: Noise scales on either side of z that the enumeration covers: beyond, weights are under e^-40.
_NOISE_REACH = 40.0
#: Most terms of an enumeration; beyond, the normal law cannot be told from the exact one.
MOST_TERMS = 2**18


class TableState(NamedTuple):
    """Latest draw `[P]`, and the table that draws come from: abscissae, CDF and log density at them `[G]`."""

    position: Float[Array, "P *B"]
    nodes: Float[Array, "G *B"]
    cdf: Float[Array, "G *B"]
    log_density: Float[Array, "G *B"]


def _search_lanes(cdf, u):
    """Index of the cell of each lane: the largest i with cdf[i] <= u (cdf[0] = 0)."""
    size = cdf.shape[0]
    low = jnp.zeros(u.shape, jnp.int32)
    high = jnp.full(u.shape, size - 1, jnp.int32)

    def halve(_, ends):
        low, high = ends
        middle = (low + high) // 2
        at = jnp.take_along_axis(cdf, middle[None], 0)[0]
        less = at <= u
        return jnp.where(less, middle, low), jnp.where(less, high, middle)

    return lax.fori_loop(0, int(np.ceil(np.log2(size))), halve, (low, high))[0]


def _at(x, index):
    return jnp.take_along_axis(x, index[None], 0)[0]


def _log_mean_exp(step):
    """log((e^step - 1) / step): the mean of a density that grows from 1 by this exponent over a cell."""
    return 0.5 * step + log_sinhc(0.5 * step)


def _table_lanes(nodes, log_density):
    """CDF and normalised log density `[G, B]` of the density whose logarithm is linear between the nodes.

    In logs, since a density that falls by e^50 over a cell has next to no mass in it.
    """
    log_density = jnp.where(jnp.isnan(log_density), -jnp.inf, log_density)
    log_density = jnp.maximum(log_density - log_density.max(0)[None], _NOTHING)
    mass = jnp.exp(log_density[:-1] + _log_mean_exp(log_density[1:] - log_density[:-1])) * (nodes[1:] - nodes[:-1])
    total = mass.sum(0)
    cdf = jnp.concatenate([jnp.zeros_like(total)[None], jnp.cumsum(mass, 0)]) / total[None]
    return cdf, log_density - jnp.log(total)[None]


def _closer_lanes(nodes, log_density, count: int):
    """`count` new nodes: half at even steps of the CDF, half even over where the density is not negligible."""
    cdf, log_density = _table_lanes(nodes, log_density)
    inside = log_density - log_density.max(0)[None] > _FALL
    last = nodes.shape[0] - 1
    first_in = jnp.maximum(jnp.argmax(inside, 0).astype(jnp.int32) - 1, 0)
    last_in = jnp.minimum(last - jnp.argmax(inside[::-1], 0).astype(jnp.int32) + 1, last)
    low, high = _at(nodes, first_in), _at(nodes, last_in)
    even = jnp.clip((nodes - low[None]) / (high - low)[None], 0.0, 1.0)
    steps = jnp.linspace(0.0, 1.0, count, dtype=nodes.dtype)
    inner = jax.vmap(lambda c, x: jnp.interp(steps[1:-1], c, x), in_axes=-1, out_axes=-1)(0.5 * (cdf + even), nodes)
    return jnp.concatenate([low[None], jnp.clip(inner, low[None], high[None]), high[None]])


def _random(state, u):
    """Draw from the table's density by inverse CDF."""
    i = _search_lanes(state.cdf, u)
    j = jnp.minimum(i + 1, state.cdf.shape[0] - 1)
    x, width = _at(state.nodes, i), _at(state.nodes, j) - _at(state.nodes, i)
    below, above = _at(state.cdf, i), _at(state.cdf, j)
    share = jnp.clip((u - below) / jnp.maximum(above - below, jnp.finfo(u.dtype).tiny), 0.0, 1.0)
    step = _at(state.log_density, j) - _at(state.log_density, i)
    # the share s of a cell's mass lies below log(1 + s (e^step - 1)) / step of its width; mirrored where it falls
    size, from_left = jnp.abs(step), jnp.where(step > 0, 1.0 - share, share)
    flat = size < 1e-6
    some = jnp.where(flat, 1.0, size)
    part = jnp.where(flat, from_left, -jnp.log1p(from_left * jnp.expm1(-some)) / some)
    return x + width * jnp.clip(jnp.where(step > 0, 1.0 - part, part), 0.0, 1.0)


def _fine(coarse, more):
    """A uniform of 46 random bits from two of 23."""
    return coarse + (jnp.floor(more * 2.0**23) - 2.0**22) * 2.0**-46


def _shared(table, model, observed, chains: int):
    """One table per problem, repeated over its chains (outermost in the lanes)."""
    problems = observed.n.shape[-1] // chains
    one = jax.tree.map(lambda x: x[..., :problems], (model, observed))
    return jax.tree.map(lambda x: jnp.tile(x, (1,) * (x.ndim - 1) + (chains,)), table(*one))


@dataclass(frozen=True)
class Quadrature:
    """Settings (static): nodes of the final grid and of those that close in; lattice: length of the table of the
    exact law of a whole-number sum (0: the normal law)."""

    noise: LaplaceNoise | GaussianNoise = LaplaceNoise()
    nodes: int = 256
    search_nodes: int = 64
    lattice: int = 0
    name: str = "exact"

    float64 = True
    warmup_iterations = 0

    def __post_init__(self):
        if self.nodes < 16 or self.search_nodes < 16 or self.lattice < 0:
            raise InputError("nodes and search_nodes must be at least 16 and lattice at least 0")

    @property
    def law(self) -> str:
        """Which law of the sum the posterior is of."""
        return "exact law of the sum of whole numbers" if self.lattice else "normal law of the sum (CLT)"

    def log_density_lanes(self, model: Model, observed: Observed, phi: Float[Array, "1 B"]) -> Float[Array, " B"]:
        """Log posterior density of phi, up to a constant."""
        prior = model.log_prior_lanes(phi)
        if self.lattice:
            return prior + model.lattice_log_likelihood_lanes(phi, observed, self.lattice, self.noise.augmented)
        residual, covariance = model.residual_lanes(phi, observed)
        if self.noise.augmented:
            return prior + normal_laplace_log_density(residual[0], covariance[0, 0])
        variance = covariance[0, 0] + self.noise.mean_variance
        return prior - 0.5 * (jnp.log(variance) + residual[0] ** 2 / variance)

    def reach_lanes(self, model: Model, observed: Observed):
        """Ends of the first grid, where the prior has nothing left."""
        center = over_lanes(lambda m: m.prior_center())(model)[0]
        precision = over_lanes(lambda m: m.prior_precision())(model)[0, 0]
        # on one side the prior may fall like exp(-precision |phi|) only
        reach = jnp.minimum(_REACH / jnp.minimum(precision, jnp.sqrt(precision)), 600.0)
        return center - reach, center + reach

    def table_lanes(self, model: Model, observed: Observed) -> TableState:
        """The posterior of every lane as a table."""
        low, high = self.reach_lanes(model, observed)

        def log_density(nodes):
            return lax.map(lambda x: self.log_density_lanes(model, observed, x[None]), nodes)

        weights = jnp.linspace(0.0, 1.0, self.search_nodes, dtype=low.dtype)[:, None]
        nodes = low[None] * (1.0 - weights) + high[None] * weights

        def close_in(nodes, temper):
            return _closer_lanes(nodes, temper * log_density(nodes), self.search_nodes), None

        nodes, _ = lax.scan(close_in, nodes, jnp.asarray(_TEMPERS[:-1], low.dtype))
        nodes = _closer_lanes(nodes, _TEMPERS[-1] * log_density(nodes), self.nodes)
        return TableState(nodes[:1], nodes, *_table_lanes(nodes, log_density(nodes)))

    # ---- the engine's view ----------------------------------------------------------------------------------------
    def init_lanes(self, model: Model, observed: Observed, keys, chains: int) -> TableState:
        return _shared(self.table_lanes, model, observed, chains)

    def step_lanes(self, model: Model, observed: Observed, keys, state: TableState):
        """One independent draw."""
        _, u = normals_and_uniforms_lanes(keys, 0, 2, state.cdf.dtype)
        return state._replace(position=_random(state, _fine(u[0], u[1]))[None]), ()

    def iterate_lanes(self, model, observed, carry: TableState, keys, index, chains: int):
        carry, _ = self.step_lanes(model, observed, keys, carry)
        return carry, _draw(model, carry.position)

    def finite_lanes(self, carry: TableState):
        return jnp.isfinite(carry.position).all(0) & jnp.isfinite(carry.cdf).all(0)


def _draw(model, position) -> Draw:
    parameters = model.report_lanes(position)
    one = jnp.ones_like(parameters[0])
    return Draw(parameters, one, jnp.zeros(one.shape, bool))


@dataclass(frozen=True)
class OnePosteriorSampling(Quadrature):
    """Foulds et al. 2016 for binomial records: theta drawn with density [prior x likelihood]^rho on [edge, 1 - edge].

    rho = (epsilon / samples) / (2 D), D = log((1 - edge) / edge) the largest log-likelihood ratio of two records
    (SPEC A18: the factor 2 is needed, and the draw must be exact). `observed.z` holds the exact count and the noise
    scale gives epsilon = 1 / b; each of `samples` draws spends its part of it.
    """

    edge: float = 0.1
    samples: int = 100
    name: str = "ops"

    def __post_init__(self):
        super().__post_init__()
        if not 0.0 < self.edge < 0.5 or self.samples < 1:
            raise InputError("edge must lie in (0, 1/2) and samples be at least 1")

    def rho(self, epsilon):
        """Power of the density at a total budget epsilon."""
        return epsilon / self.samples / (2.0 * np.log((1.0 - self.edge) / self.edge))

    def log_density_lanes(self, model, observed, phi):
        b = observed.n / observed.n_over_b[0]
        s, rho = observed.z[0] * b, self.rho(1.0 / b)
        # the prior's exponents less one, tempered; the Jacobian of logit is not tempered
        alpha = rho * (model.prior.alpha - 1.0 + s) + 1.0
        beta = rho * (model.prior.beta - 1.0 + observed.n - s) + 1.0
        return alpha * jax.nn.log_sigmoid(phi[0]) + beta * jax.nn.log_sigmoid(-phi[0])

    def reach_lanes(self, model, observed):
        end = float(np.log((1.0 - self.edge) / self.edge))
        return jnp.full_like(observed.n, -end), jnp.full_like(observed.n, end)


@dataclass(frozen=True)
class Enumeration:
    """Settings (static): terms of the sum over counts. A model of binomial records with a beta prior."""

    noise: LaplaceNoise | GaussianNoise = LaplaceNoise()
    terms: int = 1024
    name: str = "exact"

    float64 = True
    warmup_iterations = 0

    def __post_init__(self):
        if self.terms < 2:
            raise InputError(f"terms must be at least 2; got {self.terms}")

    @property
    def law(self) -> str:
        """Which law of the sum the posterior is of."""
        return "exact law of the sum (binomial)"

    @property
    def widest_block(self) -> int:
        return max(2, 2**20 // self.terms)

    def init_lanes(self, model: Model, observed: Observed, keys, chains: int) -> TableState:
        return _shared(self.table_lanes, model, observed, chains)

    def table_lanes(self, model: Model, observed: Observed) -> TableState:
        """Counts and their posterior probabilities, by the ratio of neighbours."""
        n = observed.n
        b = n / observed.n_over_b[0]
        y = observed.z[0] * b
        span = self.terms - 1.0
        first = jnp.clip(jnp.round(jnp.clip(y, 0.0, n)) - jnp.floor(0.5 * span), 0.0, jnp.maximum(n - span, 0.0))
        s = first[None] + jnp.arange(self.terms, dtype=n.dtype)[:, None]
        inside = s <= n[None]
        alpha, beta = model.prior.alpha[None], model.prior.beta[None]
        past = jnp.maximum(s[1:], 1.0)  # C(n, s) B(alpha + s, beta + n - s) over the same at s - 1
        left = jnp.maximum(n[None] - past + 1.0, 1.0)
        ratio = jnp.log(left * (alpha + past - 1.0) / (past * (beta + left - 1.0)))
        logs = jnp.concatenate([jnp.zeros_like(n)[None], jnp.cumsum(jnp.where(inside[1:], ratio, 0.0), 0)])
        residual = (y[None] - s) / b[None]
        logs = logs - (jnp.abs(residual) if self.noise.augmented else 0.5 * residual**2)
        logs = jnp.where(inside, logs, -jnp.inf)
        cdf = jnp.cumsum(jnp.exp(logs - logs.max(0)[None]), 0)
        # the probability of all terms before each
        before = jnp.concatenate([jnp.zeros_like(cdf[:1]), cdf[:-1]]) / cdf[-1:]
        return TableState(jnp.zeros_like(n)[None], s, before, logs)

    def step_lanes(self, model: Model, observed: Observed, keys, state: TableState):
        """One independent draw: a count, then the probability given it."""
        some_normals, some_uniforms = model.conjugate_randoms
        normals, uniforms = normals_and_uniforms_lanes(keys, some_normals, 2 + some_uniforms, state.cdf.dtype)
        s = jnp.minimum(_at(state.nodes, _search_lanes(state.cdf, _fine(uniforms[0], uniforms[1]))), observed.n)
        position = model.conjugate_lanes((s / observed.n)[None], observed.n, keys, normals, uniforms[2:])
        return state._replace(position=position), ()

    def iterate_lanes(self, model, observed, carry: TableState, keys, index, chains: int):
        carry, _ = self.step_lanes(model, observed, keys, carry)
        return carry, _draw(model, carry.position)

    def finite_lanes(self, carry: TableState):
        return jnp.isfinite(carry.position).all(0) & jnp.isfinite(carry.cdf).all(0)


def terms_needed(n: np.ndarray, scale: np.ndarray) -> int:
    """Terms of `Enumeration` for these numbers of records and noise scales, rounded up to a power of two."""
    wanted = int(np.minimum(n[:, None], 2 * np.ceil(_NOISE_REACH * scale) + 2).max()) + 2
    return int(2 ** np.ceil(np.log2(max(wanted, 16))))


def build(model: Model, observed: Observed, settings: Any = None):
    """BlackJAX `SamplingAlgorithm(init, step)` of one chain; `init` makes the table and ignores the position.

    Args:
        model: model of one problem (one parameter, one statistic).
        observed: its released statistics in units of b; 64-bit arrays if small probabilities matter.
        settings: `Quadrature` (default), `Enumeration` or `OnePosteriorSampling`.
    """
    from blackjax.base import SamplingAlgorithm

    settings = Quadrature() if settings is None else settings
    table = batch_last(lambda m, o: settings.init_lanes(m, o, None, 1))
    step = batch_last(settings.step_lanes)

    def init(position, rng_key=None):
        del rng_key, position
        return table(model, observed)

    return SamplingAlgorithm(init, lambda rng_key, state: step(model, observed, rng_key, state))
