"""Simulated studies: parameters from the prior, statistics given them, noise on top. All of it in 64 bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax._base.checks import LARGEST_RECORDS, check_number, check_size, shown
from dpjax.engine.model import Model
from dpjax.engine.problems import Problems, precision
from dpjax.errors import InputError
from dpjax.inference.modes import can_find_modes, find_modes
from dpjax.mechanisms import MECHANISMS, mechanism_named

#: How statistics are drawn -> the model's method that draws them: (key, phi, n[, bounds]) -> (released, full).
LAWS = {
    "exact": "simulate",
    "clt": "simulate_clt",
    "clipped": "simulate_clipped",
    "normal": "simulate_normal",
    "uniform": "simulate_uniform",
    "skewed": "simulate_skewed",
}
#: Problems drawn side by side: few enough that those beside each other have about the same number of records, on
#: which the work may depend; the last lanes are padding, so that the number of trials seldom compiles anew.
LANES = 64
#: Trials of a cell whose posteriors are searched for several modes.
MODES_TRIALS = 300


@dataclass(frozen=True)
class Study:
    """Simulated problems, cell after cell: cell c holds problems c * trials to (c + 1) * trials - 1.

    cells: (records, epsilon) of each; truth: reported parameters `[T, K]`; settings: what was simulated, for JSON.
    """

    problems: Problems
    truth: np.ndarray
    cells: tuple[tuple[int, float], ...]
    trials: int
    sensitivity: float
    simulate: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def truth_of(self, names: Sequence[str]) -> np.ndarray:
        """True values of these parameters `[T, K']`, whatever a method reports."""
        known = self.problems.model_template().parameter_names
        return self.truth[:, [known.index(name) for name in names]]

    def slice(self, cell: int) -> slice:
        """Problems of one cell."""
        return slice(cell * self.trials, (cell + 1) * self.trials)

    @cached_property
    def multimodal(self) -> list[float] | None:
        """Share of each cell's posteriors with several modes, among its first `MODES_TRIALS` trials; None where there
        cannot be several."""
        if not can_find_modes(self.problems):
            return None
        first = min(self.trials, MODES_TRIALS)
        chosen = np.arange(len(self.problems)).reshape(len(self.cells), -1)[:, :first]
        counts = np.array([len(modes) for modes in find_modes(self.problems.take(chosen.ravel()))])
        return (counts.reshape(len(self.cells), first) > 1).mean(1).tolist()


@lru_cache(maxsize=16)
def _program(mechanism: str, simulate: str, bounds: tuple[float, float] | None):
    def one(model: Model | Any, key, n, scale):
        k_prior, k_data, k_noise = jax.random.split(key, 3)
        phi = model.sample_prior(k_prior)
        drawn = getattr(model, LAWS[simulate])(k_data, phi, n, *(() if bounds is None else (bounds,)))
        noise = MECHANISMS[mechanism].simulate(k_noise, scale, (), scale.dtype)
        return model.report(phi), *drawn, noise

    lanes = jax.vmap(one, in_axes=(None, 0, 0, 0))
    return jax.jit(lambda model, *arrays: jax.lax.map(lambda x: lanes(model, *x), arrays))


def simulate_study(
    model: Model,
    cells: Sequence[tuple[int, float]],
    trials: int,
    *,
    sensitivity: float,
    seed: int,
    mechanism: str = "laplace",
    delta: float | Any | None = None,
    simulate: str = "exact",
    bounds: tuple[float, float] | Any | None = (-1.0, 1.0),
    settings: Mapping[str, Any] | None = None,
    scales: Callable[[float], np.ndarray] | None = None,
    truth: Any = None,
) -> Study:
    """Draw `trials` problems for each cell (records, epsilon).

    Args:
        model: prior of one problem, in the units of the statistic; parameters and data are drawn from it.
        cells: records and epsilon of each cell.
        trials: problems per cell.
        sensitivity: of the statistic in the mechanism's norm.
        seed: problem i is keyed by (seed, i) whatever the number of problems.
        mechanism: one of `dpjax.mechanisms.MECHANISMS`; it sets the noise scale.
        delta: of Gaussian noise, which needs it.
        simulate: "exact" (records from the model), "clipped" (the same, clipped to `bounds`; regression), "clt"
            (statistics from the normal approximation that the samplers use), or of regressions with moments the law of
            the covariates, "normal", "uniform" or "skewed" (exponential).
        bounds: of every variable, for "clipped".
        settings: kept in the study.
        scales: epsilon -> noise scale of every entry `[D]`, where there is not one scale for all.
        truth: another model (`dpjax.calibration.truth`) that parameters and data are drawn from; `model` is then
            that of the inference alone.

    Raises:
        InputError: a size, epsilon, delta or sensitivity out of range, unknown mechanism or simulation, or one that
            the model does not have.
    """
    source = model if truth is None else truth
    check_simulation(source, simulate)
    trials = check_size("trials", trials)
    cells = tuple((check_size("records", n, most=LARGEST_RECORDS), positive("epsilon", e)) for n, e in cells)
    if not cells:
        raise InputError("records and epsilon must name at least one cell")
    n = np.repeat([float(n) for n, _ in cells], trials)
    of_cell = scales or (lambda e: np.full(model.statistic_dim, noise_scale(mechanism, sensitivity, e, delta)))
    scale = np.repeat([of_cell(e) for _, e in cells], trials, axis=0)
    blocks = -(-len(n) // LANES)
    index = np.minimum(np.arange(blocks * LANES), len(n) - 1).reshape(blocks, LANES)
    with precision(True):
        keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), i))(
            jnp.arange(blocks * LANES, dtype=jnp.uint32)
        ).reshape(blocks, LANES)
        program = _program(mechanism, simulate, (bounds[0], bounds[1]) if simulate == "clipped" and bounds else None)
        wide = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), source)
        out = program(wide, keys, jnp.asarray(n[index]), jnp.asarray(scale[index]))
        drawn, released, full, noise = (np.asarray(x).reshape(-1, x.shape[-1])[: len(n)] for x in out)
    drawn = drawn[:, [source.parameter_names.index(name) for name in model.parameter_names]]
    problems = Problems(released + noise, n, scale, model, mechanism, exact=full, untruncated=full + noise)
    return Study(problems, drawn, cells, trials, sensitivity, simulate, dict(settings or {}))


def check_simulation(model: Model | Any, simulate: str) -> None:
    """Refuse a way to simulate that does not exist or that the model does not have."""
    if simulate not in LAWS:
        raise InputError(f"simulate must be one of {', '.join(LAWS)}; got {simulate!r}")
    if not hasattr(model, LAWS[simulate]):
        if simulate == "clipped":
            raise InputError("clip is for models whose records are not bounded by their statistic (linear-regression)")
        raise InputError(f"simulate = {simulate!r} is for regressions with moments")


def noise_scale(mechanism: str, sensitivity: float, epsilon: float, delta: float | None = None) -> float:
    """Noise scale of a mechanism that spends (epsilon, delta) on a statistic of this sensitivity (in its norm).

    Raises:
        InputError: unknown mechanism, a number out of range, delta missing or superfluous.
    """
    return mechanism_named(mechanism).scale(positive("sensitivity", sensitivity), positive("epsilon", epsilon), delta)


def positive(name: str, value: Any) -> float:
    """Check a finite number above 0."""
    try:
        number = check_number(value, name)
    except InputError:
        number = 0.0
    if not number > 0:
        raise InputError(f"{name} must be a finite number above 0; got {shown(value)}")
    return number
