"""Draws from densities given at even points."""

from __future__ import annotations

import jax.numpy as jnp
from jax import random

#: Points of the tables that prior draws of means, deviations and R^2 come from.
TABLE = 4096


def draw_table(key, grid, density):
    """A draw by inverse CDF from a density given at even points."""
    cdf = jnp.cumsum(0.5 * (density[1:] + density[:-1]))
    cdf = jnp.concatenate([jnp.zeros_like(cdf[:1]), cdf]) / cdf[-1]
    return jnp.interp(random.uniform(key, (), grid.dtype), cdf, grid)
