"""Posteriors that are computed, not explored: independent draws, no warm-up, nothing to converge.

- `Quadrature`: any model of one parameter and one statistic: the density of z given theta on panels of theta
  (`_panels`), by the normal-Laplace density (docs/formulas.md#normal-laplace, the normal law of the sum) or, for
  whole-number statistics of few records, by the exact law of the sum; draws by inverse CDF.
- `Enumeration`: binomial counts (`_counts`). p(theta | z) = sum over s of w_s Beta(alpha + s, beta + n - s) with
  w_s proportional to C(n, s) B(alpha + s, beta + n - s) p(z | s): the exact law of the sum
  (docs/formulas.md#exact-binomial).
- `OnePosteriorSampling`: the exponential mechanism over theta (docs/formulas.md#one-posterior-sampling): a baseline
  that is private by itself.

All run in float64. Moments and quantiles of the computed density go with the draws (`Computed`).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dpjax.engine.model import Model, Observed, over_lanes
from dpjax.errors import InputError
from dpjax.kernels.special import normal_laplace_log_density
from dpjax.mechanisms import LAPLACE, Mechanism
from dpjax.samplers import _counts
from dpjax.samplers._intervals import Looked
from dpjax.samplers._looking import Values, first_nodes, programs
from dpjax.samplers._panel_tables import Tables, tables
from dpjax.samplers._panels import NODES, ORDER, Panels, integrate
from dpjax.samplers._tables import Computed, CountSampler, TableSampler, quantiles, run

#: Problems whose posteriors are computed together, and intervals that go through one compiled call: the largest of
#: these sizes that is filled.
_TOGETHER, _SIZES = 2048, (2048, 128, 8)
#: Numbers of a table of the exact law of a sum, times intervals, that go through one call.
_LATTICE = 2**19


@dataclass(frozen=True)
class Quadrature:
    """Settings (static): panels: number of panels that tables have room for (more are made room for where they are
    needed); lattice: longest table of the exact law of a whole-number sum (0: the normal law). Of several problems,
    those that need a longer one have the normal law."""

    noise: Mechanism = LAPLACE
    panels: int = 8
    lattice: int = 0
    name: str = "exact"

    warmup_iterations = 0

    def __post_init__(self):
        if self.panels < 1 or self.lattice < 0:
            raise InputError(f"panels must be at least 1 and lattice at least 0; got {self.panels} and {self.lattice}")

    @property
    def law(self) -> str:
        """Which law of the sum the posterior is of."""
        return "exact law of the sum of whole numbers" if self.lattice else "normal law of the sum (CLT)"

    def values_lanes(self, model: Model, observed: Observed, phi: Float[Array, " B"]) -> Values:
        """What the log posterior density at phi is made of."""
        # the likelihood is constant beyond: means of records are the same to the last digit
        near = jnp.clip(phi, *model.finite)[None]
        residual, covariance = model.residual_lanes(near, observed)
        residual, variance = residual[0], jnp.maximum(covariance[0, 0], 0.0)
        if self.lattice:
            likelihood = model.lattice_log_likelihood_lanes(near, observed, self.lattice, self.noise.exponential)
        elif self.noise.exponential:
            likelihood = normal_laplace_log_density(residual, variance)
        else:
            total = variance + self.noise.variance
            likelihood = -0.5 * (jnp.log(total) + residual**2 / total)
        return Values(
            model.log_prior_lanes(phi[None]), likelihood, residual, variance, model.report_lanes(phi[None])[0]
        )

    def center_lanes(self, model: Model):
        """Where the log prior, or what stands for it in `values_lanes`, has its top, and its value there."""
        center = over_lanes(lambda m: m.prior_center())(model)
        return center[0], model.log_prior_lanes(center)

    def ends_lanes(self, low, high):
        """Ends of the coordinate, given those that the prior reaches to."""
        return low, high

    def panels_of(self, problems: Any) -> Panels:
        """The panels of the posteriors of T problems, each with its own law of the sum."""
        lengths = problems.model.lattice_lengths(problems.n) if self.lattice else np.zeros(len(problems), int)
        parts = []
        for length in np.unique(lengths):
            sampler = replace(self, lattice=int(length))
            size = _TOGETHER if not length else max(64, _TOGETHER * 64 // int(length))
            index = np.flatnonzero(lengths == length)
            parts += [_Part(sampler, problems, index[start : start + size]) for start in range(0, len(index), size)]
        with ThreadPoolExecutor(2 if len(parts) > 1 else 1) as pool:  # compiled calls leave the interpreter's lock
            return Panels.join(list(pool.map(_Part.integrate, parts)), [part.index for part in parts])

    def tables(self, problems: Any) -> Tables:
        """The posteriors of T problems as tables."""
        from dpjax.engine.problems import precision

        with precision(True):
            return tables(self.panels_of(problems), self.panels)

    def run(self, problems: Any, **options: Any) -> Any:
        """As `dpjax.engine.run_chains`; the chains of a posterior whose error is not under its bound have the result
        code NOT_RESOLVED."""
        made = self.tables(problems)
        computed = Computed(made, lambda index: _quantiles_of(problems.take(index), made.take(index)))
        return run(TableSampler(self.name), made, computed, problems, **options)


def _quantiles_of(problems: Any, made: Tables) -> np.ndarray:
    """5% and 95% quantile of the reported parameter `[T, 2]`."""
    from dpjax.engine.problems import precision

    phi = quantiles(made)
    with precision(True):
        last = lambda x: jnp.moveaxis(jnp.asarray(x, jnp.float64), 0, -1)
        model = jax.tree.map(last, problems.batched_model())
        return np.sort(np.stack([np.asarray(_reported(model, jnp.asarray(x))) for x in phi.T], 1), 1)


@jax.jit
def _reported(model, phi):
    return model.report_lanes(phi[None])[0]


class _Part:
    """Problems whose panels are made together: hands intervals to the compiled programs in few sizes."""

    def __init__(self, sampler: Quadrature, problems: Any, index: np.ndarray):
        here, self.index = problems.take(index), index
        last = lambda x: np.moveaxis(np.asarray(x, np.float64), 0, -1)
        self.data = jax.tree.map(last, (here.batched_model(), here.observed()))
        self.bends = here.model_template().may_have_modes
        self.count = len(index)
        self.programs = programs(sampler)
        self.sizes: tuple[int, ...] = _SIZES if len(problems) >= _SIZES[-2] else _SIZES[-1:]
        if sampler.lattice:
            self.sizes = tuple(s for s in self.sizes if s * sampler.lattice <= _LATTICE) or _SIZES[-1:]

    def integrate(self) -> Panels:
        from dpjax.engine.problems import precision

        with precision(True):
            return integrate(self._panels, self._first())

    def _first(self) -> Looked:
        """The first look, from end to end."""
        places, reach, look = self.programs
        everyone = np.arange(self.count)
        place, width = self._in_sizes(places, everyone)
        few = np.concatenate([place, np.repeat(place[:1], ORDER - len(place), 0)])
        seen = Looked(*self._in_sizes(look, everyone, few))
        low, high = self._in_sizes(reach, everyone, np.nan_to_num(seen.log_density, nan=-1e300).max(0))
        nodes = first_nodes(place, width, low, high, self.bends)
        groups = len(nodes) // (ORDER - 1)
        parts = np.concatenate([nodes[g * (ORDER - 1) : g * (ORDER - 1) + ORDER] for g in range(groups)], 1)
        seen = Looked(*self._in_sizes(look, np.tile(everyone, groups), parts))

        def rows(x):  # nodes, or gaps, of all groups behind each other, without each group's last node
            return x[: ORDER - 1].reshape(-1, groups, self.count).transpose(1, 0, 2).reshape(-1, self.count)

        inner = [rows(x) for x in seen[:5]]
        ends = [x[-1:, -self.count :] for x in seen[:3]]
        whole = [np.concatenate(pair) for pair in zip(inner[:3], ends, strict=True)]
        whole += [*inner[3:], seen.rounding[:, : self.count]]
        return Looked(*whole)

    def _panels(self, owner: np.ndarray, low: np.ndarray, high: np.ndarray) -> Looked:
        nodes = low + (high - low) * (0.5 * (NODES + 1.0))[:, None]
        nodes[-1] = high
        return Looked(*self._in_sizes(self.programs[2], owner, nodes))

    def _in_sizes(self, program: Any, owner: np.ndarray, *arrays: np.ndarray) -> list[np.ndarray]:
        """The program's arrays for these problems; arrays have them in the last axis."""
        pieces, start = [], 0
        while start < len(owner):
            left = len(owner) - start
            size = next((s for s in self.sizes if s <= left), self.sizes[-1])
            used = min(size, left)
            index = np.arange(start, start + size)
            index[used:] = start
            data = jax.tree.map(lambda x, who=owner[index]: x[..., who], self.data)
            out = program(*data, *(x[..., index] for x in arrays))
            pieces.append([np.asarray(x)[..., :used] for x in out])
            start += used
        return [np.concatenate(rows, -1) for rows in zip(*pieces, strict=True)]


@dataclass(frozen=True)
class OnePosteriorSampling(Quadrature):
    """Foulds et al. 2016 for binomial records: theta drawn with density [prior x likelihood]^rho on [edge, 1 - edge].

    rho = (epsilon / samples) / (2 D), D = log((1 - edge) / edge) the largest log-likelihood ratio of two records
    (docs/formulas.md#one-posterior-sampling: the factor 2 is needed, and the draw must be exact). `observed.z` holds
    the exact count and the noise scale gives epsilon = 1 / b; each of `samples` draws spends its part of it.
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

    def _exponents(self, model, observed):
        b = observed.n / observed.n_over_b[0]
        s, rho = observed.z[0] * b, self.rho(1.0 / b)
        # the prior's exponents less one, tempered; the Jacobian of logit is not tempered
        alpha = rho * (model.prior.alpha - 1.0 + s) + 1.0
        return alpha, rho * (model.prior.beta - 1.0 + observed.n - s) + 1.0

    def values_lanes(self, model, observed, phi):
        alpha, beta = self._exponents(model, observed)
        density = alpha * jax.nn.log_sigmoid(phi) + beta * jax.nn.log_sigmoid(-phi)
        none = jnp.zeros_like(phi)
        return Values(density, none, none, none, model.report_lanes(phi[None])[0])

    def ends_lanes(self, low, high):
        end = float(np.log((1.0 - self.edge) / self.edge))
        return jnp.full_like(low, -end), jnp.full_like(high, end)


@dataclass(frozen=True)
class Enumeration:
    """Settings (static): terms: blocks of counts that the sum over counts is made of. A model of binomial records with
    a beta prior."""

    noise: Mechanism = LAPLACE
    terms: int = 256
    name: str = "exact"

    warmup_iterations = 0

    def __post_init__(self):
        if self.terms < 64:
            raise InputError(f"terms must be at least 64; got {self.terms}")

    @property
    def law(self) -> str:
        """Which law of the sum the posterior is of."""
        return "exact law of the sum (binomial)"

    def tables(self, problems: Any) -> Tables:
        """The posteriors of the counts of T problems as tables."""
        return _counts.tables(problems, self.noise.exponential, self.terms)

    def run(self, problems: Any, **options: Any) -> Any:
        """As `dpjax.engine.run.run_chains`; with NOT_RESOLVED where too much of the counts is left out."""
        made = self.tables(problems)
        prior = problems.batched_model().prior
        data = (problems.n, *(np.asarray(x, np.float64) for x in (prior.alpha, prior.beta)))
        quantiles_of = lambda index: _counts.probability_quantiles(made.take(index), *(x[index] for x in data))
        return run(CountSampler(self.name), made, Computed(made, quantiles_of), problems, **options)
