"""Exact draw of the sufficient statistic given its noisy release (docs/formulas.md#distinct-entries, #singular-counts).

Prior s ~ N(mean, S), release z = s + noise, noise ~ N(0, diag(v)). The draw simulates both, s0 and e0, and
moves s0 by the gain times what is left of z (Matheron's rule): s = s0 + S (S + diag(v))^{-1} (z - s0 - e0).
S is never inverted, so it may be singular; the papers' product of normals needs S^{-1}, which does not exist
for a statistic with duplicated, constant or linearly dependent entries.

Annotations show the lane form (`f.lanes`, last axis over chains); the functions themselves take one chain.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from .batching import batch_last
from .marginal import add_diagonal_lanes
from .order import pairs
from .psd import semidefinite_factor
from .random import lane_normals
from .symmetric import matmul_lanes, matvec_lanes, sweep


class StatisticDraw(NamedTuple):
    """A draw of the statistic `[D]` and of the noise `[D]`; their sum is z up to rounding.

    Each is computed by its own formula, so neither loses digits when the other is much larger.
    """

    statistic: Array
    noise: Array


@batch_last
def draw_statistic_from(
    mean: Float[Array, "D B"],
    deviation: Float[Array, "D B"],
    covariance: Float[Array, "D D B"],
    noise_variance: Float[Array, "D B"],
    z: Float[Array, "D B"],
    normals: Float[Array, "D B"],
) -> StatisticDraw:
    """Draw s and e = z - s given z from numbers drawn beforehand.

    Args:
        mean: prior mean of s `[D]`, in any one unit (units of the noise scale keep float32 accurate).
        deviation: draw from N(0, covariance) `[D]` (`F u`, or `products.product_deviation`).
        covariance: covariance of s `[D, D]`, may be singular.
        noise_variance: positive noise variance per entry `[D]`.
        z: released statistic `[D]`.
        normals: standard normals for the noise `[D]`, independent of `deviation`.
    """
    s0 = mean + deviation
    e0 = jnp.sqrt(noise_variance) * normals
    _, _, gain = sweep.lanes(add_diagonal_lanes(covariance, noise_variance), z - s0 - e0)
    return StatisticDraw(s0 + matvec_lanes(covariance, gain), e0 + noise_variance * gain)


def noise_draw_lanes(model: Any, observed: Any, position, scales, normals: Float[Array, "N B"]) -> Float[Array, "D B"]:
    """e = (z - s) / b with s | phi, w, z, the statistic's law given phi being that of a model.

    Args:
        model: any object with the lane methods `residual_lanes(phi, observed)`, which gives (z - n mu) / b and the
            covariance of s / b, and `deviation_lanes(phi, normals)`, a draw from N(0, Sigma) of one record.
        observed: with root_n_over_b `[D, B]`, and what the model looks at.
        position: phi `[P, B]`; scales: w, variances of the noise in units of b^2 `[D, B]`.
        normals: standard normals `[2 D, B]`.
    """
    size = scales.shape[0]
    residual, covariance = model.residual_lanes(position, observed)
    deviation = model.deviation_lanes(position.astype(scales.dtype), normals[:size]) * observed.root_n_over_b
    # about n mu instead of 0: z - n mu cancels, which the model does in the precision of positions
    around = jnp.zeros_like(residual)
    return draw_statistic_from.lanes(around, deviation, covariance, scales, residual, normals[size:]).noise


@batch_last
def draw_statistic(
    key: Key[Array, " B"],
    mean: Float[Array, "D B"],
    factor: Float[Array, "D K B"],
    noise_variance: Float[Array, "D B"],
    z: Float[Array, "D B"],
) -> StatisticDraw:
    """Draw s and e = z - s given z, the covariance of s given by any factor F with F F' = S.

    Args:
        key: typed key.
        mean: prior mean of s `[D]`.
        factor: factor of the covariance of s `[D, K]`.
        noise_variance: positive noise variance per entry `[D]`.
        z: released statistic `[D]`.
    """
    size, columns = factor.shape[:2]
    normals = lane_normals(key, (columns + size,), mean.dtype)
    covariance = matmul_lanes(factor, jnp.swapaxes(factor, 0, 1))
    deviation = matvec_lanes(factor, normals[:columns])
    return draw_statistic_from.lanes(mean, deviation, covariance, noise_variance, z, normals[columns:])


@batch_last
def draw_statistic_covariance(
    key: Key[Array, " B"],
    mean: Float[Array, "D B"],
    covariance: Float[Array, "D D B"],
    noise_variance: Float[Array, "D B"],
    z: Float[Array, "D B"],
) -> StatisticDraw:
    """`draw_statistic` from the covariance `[D, D]` itself, which may be singular (factorised here)."""
    size = mean.shape[0]
    normals = lane_normals(key, (2 * size,), mean.dtype)
    deviation = matvec_lanes(semidefinite_factor.lanes(covariance), normals[:size])
    return draw_statistic_from.lanes(mean, deviation, covariance, noise_variance, z, normals[size:])


@batch_last
def moment_matrix(statistic: Float[Array, "D B"], count: Float[Array, " B"]) -> Float[Array, "M M B"]:
    """Moment matrix of (1, x, y) `[p + 2, p + 2]` from a regression statistic with intercept.

    Args:
        statistic: entries `[D]` in the order x_i; x_i x_j; y; x_i y; y^2.
        count: first entry of the matrix: n for sums, 1 for means per record `[]`.
    """
    p = covariates(statistic.shape[0])
    a, b = pairs(p)
    position = np.zeros((p + 2, p + 2), np.int32)
    position[a, b] = position[b, a] = np.arange(1, len(a) + 1, dtype=np.int32)
    return jnp.concatenate([count[None], statistic])[position]


@batch_last
def statistic_entries(moments: Float[Array, "M M B"]) -> Float[Array, "D B"]:
    """Regression statistic `[D]` from the moment matrix of (1, x, y); undoes `moment_matrix`."""
    return moments[pairs(moments.shape[0] - 2)]


def covariates(entries: int) -> int:
    """Number of covariates p of a regression statistic with intercept, D = (p + 1)(p + 4) / 2 entries.

    Raises:
        ValueError: no p has this number of entries.
    """
    p = round((np.sqrt(8 * entries + 9) - 5) / 2)
    if p < 1 or (p + 1) * (p + 4) != 2 * entries:
        raise ValueError(f"statistic has {entries} entries; allowed: 5, 9, 14, 20, ... = (p + 1)(p + 4)/2")
    return p
