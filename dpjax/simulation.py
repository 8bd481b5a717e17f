"""Simulated studies: parameters from the prior, statistics given them, noise on top. All of it in 64 bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .engine import Problems, precision
from .errors import InputError
from .mechanisms import MECHANISMS
from .models._regression_simulation import simulate_clipped, simulate_clt
from .models.linear_regression import LinearRegression

SIMULATIONS = ("exact", "clt", "clipped")


@dataclass(frozen=True)
class Study:
    """Simulated problems, cell after cell: cell c holds problems c * trials to (c + 1) * trials - 1.

    cells: (records, epsilon) of each; truth: reported parameters `[T, K]`.
    """

    problems: Problems
    truth: np.ndarray
    cells: tuple[tuple[int, float], ...]
    trials: int
    sensitivity: float
    simulate: str

    def slice(self, cell: int) -> slice:
        """Problems of one cell."""
        return slice(cell * self.trials, (cell + 1) * self.trials)


@lru_cache(maxsize=16)
def _program(kind: str, simulate: str, bounds: tuple[float, float]):
    def one(model: LinearRegression, key, n, scale):
        k_prior, k_data, k_noise = jax.random.split(key, 3)
        phi = model.sample_prior(k_prior)
        draws: dict[str, Callable[..., Any]] = {
            "exact": LinearRegression.simulate,
            "clt": simulate_clt,
            "clipped": partial(simulate_clipped, bounds=bounds),
        }
        exact = draws[simulate](model, k_data, phi, n)
        noise = MECHANISMS[kind](scale).simulate(k_noise, (), scale.dtype)
        return model.report(phi), exact, exact + noise

    if simulate == "clipped":  # work grows with n: one trial after the other, each vectorised over records
        return jax.jit(lambda m, k, n, s: jax.lax.map(lambda x: one(m, *x), (k, n, s)))
    return jax.jit(jax.vmap(one, in_axes=(None, 0, 0, 0)))


def simulate_study(
    model: LinearRegression,
    cells: Sequence[tuple[int, float]],
    trials: int,
    *,
    sensitivity: float,
    seed: int,
    mechanism: str = "laplace",
    simulate: str = "exact",
    bounds: tuple[float, float] = (-1.0, 1.0),
) -> Study:
    """Draw `trials` problems for each cell (records, epsilon).

    Args:
        model: prior of one problem, in scaled units; parameters and data are drawn from it.
        cells: records and epsilon of each cell.
        trials: problems per cell.
        sensitivity: of the statistic in the mechanism's norm; the noise scale is sensitivity / epsilon.
        seed: problem i is keyed by (seed, i) whatever the number of problems.
        mechanism: "laplace".
        simulate: "exact" (records from the model, unclipped, as in S0), "clipped" (the same, clipped to `bounds`) or
            "clt" (statistics from the normal approximation that the samplers use).

    Raises:
        InputError: a size, epsilon or sensitivity out of range, unknown mechanism or simulation.
    """
    if mechanism != "laplace":
        raise InputError(f"calibration simulates the laplace mechanism; got {mechanism!r}")
    if simulate not in SIMULATIONS:
        raise InputError(f"simulate must be one of {', '.join(SIMULATIONS)}; got {simulate!r}")
    trials = whole("trials", trials)
    positive("sensitivity", sensitivity)
    cells = tuple((whole("records", n), positive("epsilon", e)) for n, e in cells)
    if not cells:
        raise InputError("records and epsilon must name at least one cell")
    n = np.repeat([float(n) for n, _ in cells], trials)
    scale = np.repeat([sensitivity / e for _, e in cells], trials)
    size = model.statistic_dim
    scale = np.broadcast_to(scale[:, None], (len(n), size))
    with precision(True):
        keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), i))(
            jnp.arange(len(n), dtype=jnp.uint32)
        )
        out = _program(mechanism, simulate, tuple(bounds))(
            model.astype(jnp.float64), keys, jnp.asarray(n), jnp.asarray(scale)
        )
        truth, exact, z = (np.asarray(x) for x in out)
    return Study(Problems(z, n, scale, model, mechanism, exact), truth, cells, trials, sensitivity, simulate)


def whole(name: str, value: Any) -> int:
    """Check a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{name} must be a whole number, at least 1; got {value!r}")
    return int(value)


def positive(name: str, value: Any) -> float:
    """Check a finite number above 0."""
    bad = isinstance(value, bool) or not isinstance(value, int | float | np.number)
    if bad or not np.isfinite(value) or value <= 0:
        raise InputError(f"{name} must be a finite number above 0; got {value!r}")
    return float(value)
