"""Independent draws from tables of densities, and how a run on such tables goes through the engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from dpjax.engine.model import Model, Observed
from dpjax.engine.result_codes import NOT_RESOLVED, OK
from dpjax.engine.sampler import Draw
from dpjax.kernels.streams import normals_and_uniforms_lanes
from dpjax.samplers._panel_tables import Tables


class Computed:
    """Moments and quantiles of the reported parameter of T computed posteriors, in scaled units.

    Args:
        tables: of the posteriors.
        quantiles_of: indices of posteriors -> 5% and 95% quantile of the parameter, `[indices, 2]`.
    """

    def __init__(self, tables: Tables, quantiles_of: Callable[[np.ndarray], np.ndarray], index: Any = None):
        self._tables, self._quantiles_of = tables, quantiles_of
        self._index = np.arange(len(tables.mean)) if index is None else index

    def take(self, index: Any) -> Computed:
        """Of the posteriors at `index`."""
        return Computed(self._tables, self._quantiles_of, self._index[np.asarray(index)])

    def rows(self) -> dict[str, np.ndarray]:
        """mean, sd, q05 and q95 `[T, 1]` each."""
        low, high = self._quantiles_of(self._index).T
        values = {"mean": self._tables.mean[self._index], "sd": self._tables.sd[self._index], "q05": low, "q95": high}
        return {name: value[:, None] for name, value in values.items()}


class TableState(NamedTuple):
    """Latest draw `[P]`, and the table that draws come from: abscissae, distribution function, rise of the log density
    from each abscissa to the next `[G]`."""

    position: Float[Array, "P *B"]
    nodes: Float[Array, "G *B"]
    cdf: Float[Array, "G *B"]
    step: Float[Array, "G *B"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tabled(Model):
    """A model together with the table `[G]` of its posterior: what the engine cuts into blocks."""

    model: Any
    nodes: Any
    cdf: Any
    step: Any

    @property
    def statistic_dim(self) -> int:
        return self.model.statistic_dim

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return self.model.parameter_names

    @property
    def kind(self) -> str:
        return self.model.kind


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


def quantile_lanes(nodes, cdf, step, u):
    """The abscissa with this value of the distribution function, the log density linear between abscissae `[B]`."""
    i = _search_lanes(cdf, u)
    j = jnp.minimum(i + 1, cdf.shape[0] - 1)
    x, width = _at(nodes, i), _at(nodes, j) - _at(nodes, i)
    below, above = _at(cdf, i), _at(cdf, j)
    share = jnp.clip((u - below) / jnp.maximum(above - below, jnp.finfo(u.dtype).tiny), 0.0, 1.0)
    rise = _at(step, i)
    # the share s of a cell's mass lies below log(1 + s (e^rise - 1)) / rise of its width; mirrored where it falls
    size, from_left = jnp.abs(rise), jnp.where(rise > 0, 1.0 - share, share)
    flat = size < 1e-6
    some = jnp.where(flat, 1.0, size)
    part = jnp.where(flat, from_left, -jnp.log1p(from_left * jnp.expm1(-some)) / some)
    return x + width * jnp.clip(jnp.where(rise > 0, 1.0 - part, part), 0.0, 1.0)


def fine(coarse, more):
    """A uniform of 46 random bits from two of 23."""
    return coarse + (jnp.floor(more * 2.0**23) - 2.0**22) * 2.0**-46


@dataclass(frozen=True)
class TableSampler:
    """Draws from `Tabled` problems: no warm-up, everything in 64 bits."""

    name: str = "exact"

    float64 = True
    warmup_iterations = 0

    @property
    def widest_block(self) -> int:
        return 1024

    def init_lanes(self, model: Any, observed: Observed, keys, chains: int) -> TableState:
        return TableState(jnp.zeros_like(observed.n)[None], model.nodes, model.cdf, model.step)

    def step_lanes(self, model: Any, observed: Observed, keys, state: TableState):
        """One independent draw of the coordinate."""
        _, u = normals_and_uniforms_lanes(keys, 0, 2, state.cdf.dtype)
        position = quantile_lanes(state.nodes, state.cdf, state.step, fine(u[0], u[1]))
        return state._replace(position=position[None]), ()

    def iterate_lanes(self, model, observed, carry: TableState, keys, index, chains: int):
        carry, _ = self.step_lanes(model, observed, keys, carry)
        parameters = model.model.report_lanes(carry.position)
        one = jnp.ones_like(parameters[0])
        return carry, Draw(parameters, one, jnp.zeros(one.shape, bool))

    def finite_lanes(self, carry: TableState):
        return jnp.isfinite(carry.position).all(0) & jnp.isfinite(carry.cdf).all(0)


@dataclass(frozen=True)
class CountSampler(TableSampler):
    """As `TableSampler`, the table being one of binomial counts: the probability is drawn given the count."""

    def step_lanes(self, model, observed, keys, state: TableState):
        """One independent draw: a count, then the probability given it."""
        some_normals, some_uniforms = model.model.conjugate_randoms
        normals, uniforms = normals_and_uniforms_lanes(keys, some_normals, 2 + some_uniforms, state.cdf.dtype)
        s = quantile_lanes(state.nodes, state.cdf, state.step, fine(uniforms[0], uniforms[1]))
        s = jnp.clip(jnp.round(s), 0.0, observed.n)
        position = model.model.conjugate_lanes((s / observed.n)[None], observed.n, keys, normals, uniforms[2:])
        return state._replace(position=position), ()


@jax.jit
def _quantiles(nodes, cdf, step, u):
    return jax.vmap(lambda level: quantile_lanes(nodes, cdf, step, jnp.full(nodes.shape[1:], level)))(u)


def quantiles(tables: Tables, levels: tuple[float, ...] = (0.05, 0.95)) -> np.ndarray:
    """Quantiles of the coordinate of T posteriors, `[T, levels]`."""
    with jax.enable_x64(True):
        parts = (jnp.asarray(x.T) for x in (tables.nodes, tables.cdf, tables.step))
        return np.asarray(_quantiles(*parts, jnp.asarray(levels, jnp.float64))).T


def run(sampler: TableSampler, tables: Tables, computed: Computed, problems: Any, **options: Any) -> Any:
    """As `dpjax.engine.run.run_chains`, for problems whose posteriors have been made into tables.

    All chains of a posterior that is not resolved have the result code NOT_RESOLVED.
    """
    from dpjax.engine.run import run_chains

    model = Tabled(problems.batched_model(), tables.nodes, tables.cdf, tables.step)  # type: ignore[arg-type]
    made = run_chains(sampler, dataclasses.replace(problems, model=model, views={}), **options)
    wrong = (~tables.resolved)[:, None] & (made.codes == OK)
    made.codes = np.where(wrong, NOT_RESOLVED, made.codes)
    made.computed = computed
    return made
