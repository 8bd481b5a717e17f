"""Bayesian linear regression with a prior that is weak in every unit: the default of `fit`.

A conjugate prior that is weak for variables that fill their bounds is a strong, wrong statement for those that do not:
a feature with a standard deviation of .04 of half its range, or a residual variance of .007. This prior says little
about scales. Record r = (x, y) ~ N(m, C) in scaled units, C = S R S with S the diagonal of standard deviations and R
the correlations:

- means m_i ~ N(mean, mean_sd^2): by default the middle of the bounds and 3/4 of half their width;
- standard deviations: density proportional to s^(sd_power - 1) exp(-s^2 / (2 sd_scale^2)), level under `SD_LEVEL` times
  sd_scale, by default 6/10 of half the width of the bounds (a uniform variable has .58, the largest possible is 1);
- correlations of the features: LKJ(correlation) (Lewandowski et al. 2009; 1: uniform over correlation matrices);
- R^2, the share of the variance of y that the features explain: Beta(explained, residual), but for the ends of (0, 1),
  where the density levels off (`EXPLAINED_EDGE`, `RESIDUAL_EDGE`); every direction of the coefficients of standardised
  features alike. The coefficients follow, in units of y per unit of x.

By default the density of a deviation s is proportional to s^.5 and R^2 ~ Beta(.5, .75): between flat in a deviation
and flat in a variance. Where the noise hides a variance, a density that is flat over decades puts it at the smallest
decade that is allowed, and intervals miss the usual values from below.

Unconstrained: phi = (m [q], s [q], omega [q (q - 1) / 2]), q = p + 1. Row i of the factor of C is s_i times
(sin omega_i0, cos omega_i0 sin omega_i1, ..., cos omega_i0 cos omega_i1 ...): deviations of either sign and angles
all around the circle, so that a variance or a residual variance that the noise leaves open is passed through zero, not
approached. Several phi mean the same; `canonical_lanes` gives the one with s >= 0 and angles within a quarter turn.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import PRNGKeyArray

from dpjax.engine.model import Observed
from dpjax.errors import InputError
from dpjax.kernels.coordinates import scatter_below
from dpjax.kernels.order import below_diagonal
from dpjax.kernels.symmetric import diagonal_lanes, lower_inverse, matmul_lanes, matvec_transposed_lanes
from dpjax.models.hyperparameters import check_sizes, features, positive, vector
from dpjax.models.regression.normal_record import NormalRecord, extended, spanned_jacobian, unit_vectors
from dpjax.models.regression.weak_tables import TABLE, draw_table
from dpjax.statistics.products import MOST_FEATURES

#: Default standard deviation of a mean, and scale of a standard deviation, in half the width of the bounds.
MEAN_SD, SD_SCALE = 0.75, 0.6
#: R^2 under which the density of R^2 levels off.
EXPLAINED_EDGE = 0.02
#: 1 - R^2 under which it does, and the share of sd_scale under which the density of a deviation does.
RESIDUAL_EDGE, SD_LEVEL = 0.005, 0.01
#: Settings of few features: with much noise scales are open over decades, and shorter trajectories leave one release
#: in a hundred with a tenth of the usual effective draws.
FEW_FEATURES: dict[str, Any] = {"leapfrogs": 6, "target": 0.78}
#: Smallest cosine of an angle that is divided by.
_SMALLEST = 1e-6


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WeakRegression(NormalRecord):
    """Prior of the regression; every field is an array leaf, so problems of one call may have different priors.

    mean: [q] prior mean of the mean of each variable (features, then target), in the units of the statistic.
    mean_sd: [q] its standard deviation.
    sd_scale: [q] scale of the standard deviation of each variable.
    sd_power: [] s^(sd_power - 1) is the density of a standard deviation (1: flat; near 0: flat over decades).
    correlation: [] LKJ parameter of the features' correlations.
    explained: [] first parameter of the beta law of R^2.
    residual: [] second parameter of the beta law of R^2.
    """

    mean: Any
    mean_sd: Any
    sd_scale: Any
    sd_power: Any
    correlation: Any
    explained: Any
    residual: Any

    usual_prior = False

    @property
    def hmc_settings(self) -> dict[str, Any]:
        return FEW_FEATURES if self.dim <= 9 else {}

    @classmethod
    def create(
        cls,
        p: int,
        *,
        mean=0.0,
        mean_sd=MEAN_SD,
        sd_scale=SD_SCALE,
        sd_power=1.5,
        correlation=1.0,
        explained=0.5,
        residual=0.75,
        dtype=jnp.float32,
    ) -> WeakRegression:
        """Build and check a prior for p features; scalars stand for a constant vector.

        Raises:
            InputError: wrong shape, not finite, or not positive.
        """
        features(p, MOST_FEATURES, "(the statistic has (p + 1)(p + 4)/2 entries and a step costs their cube)")
        leaves: dict[str, Any] = {
            "mean": vector("mean", mean, p + 1),
            "mean_sd": vector("mean_sd", mean_sd, p + 1),
            "sd_scale": vector("sd_scale", sd_scale, p + 1),
            "sd_power": positive("sd_power", sd_power),
            "correlation": positive("correlation", correlation),
            "explained": positive("explained", explained),
            "residual": positive("residual", residual),
        }
        for name in ("mean_sd", "sd_scale"):
            if not (leaves[name] > 0).all():
                raise InputError(f"{name} must be positive; got {leaves[name].tolist()}")
        check_sizes(leaves)
        return cls(**{name: jnp.asarray(value, dtype) for name, value in leaves.items()})

    @classmethod
    def over(cls, low: Any, high: Any, **given: Any) -> WeakRegression:
        """The default for variables with these bounds `[q]` each, in the units of the statistic; given: fields of
        `create` instead.

        Raises:
            InputError: as `create`.
        """
        low, half = np.asarray(low, np.float64), 0.5 * (np.asarray(high, np.float64) - np.asarray(low, np.float64))
        values = {"mean": low + half, "mean_sd": MEAN_SD * half, "sd_scale": SD_SCALE * half} | given
        return cls.create(len(low) - 1, **values)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Names of the hyperparameters."""
        return tuple(f.name for f in fields(cls))

    def as_dict(self) -> dict[str, Any]:
        plain = {f.name: np.asarray(getattr(self, f.name), np.float64).tolist() for f in fields(self)}
        return {"kind": "weak", **plain}

    @property
    def p(self) -> int:
        return self.mean.shape[0] - 1

    # ---- coordinates ---------------------------------------------------------------------------------------
    def _split(self, phi):
        q = self.p + 1
        return phi[:q], phi[q : 2 * q], phi[2 * q :]

    def _rows_lanes(self, phi):
        """Sines and cosines of the angles `[K, B]`, the product over k < j of cos omega_ik and the rows T of the factor
        with length 1, both by row and column `[q, q, B]`."""
        q, angles = self.p + 1, self._split(phi)[2]
        sin, cos = jnp.sin(angles), jnp.cos(angles)
        cos = jnp.where(jnp.abs(cos) < _SMALLEST, jnp.full_like(cos, _SMALLEST), cos)
        before = _products_before(cos, q)
        unit = jnp.broadcast_to(jnp.eye(q, dtype=phi.dtype)[..., None], (q, q, phi.shape[-1]))
        return sin, cos, before, before * (unit + scatter_below(sin, q))

    def record_lanes(self, phi):
        m, s, _ = self._split(phi)
        g = s[:, None] * self._rows_lanes(phi)[3]
        return m, g, matmul_lanes(g, jnp.swapaxes(g, 0, 1))

    def canonical_lanes(self, phi):
        """The position with s >= 0 and angles within a quarter turn that has the same record covariance."""
        q = self.p + 1
        m, s, angles = self._split(phi)
        turns = jnp.round(angles / np.pi)
        side = 1.0 - 2.0 * jnp.mod(turns, 2.0)  # the sign of the cosine
        before = _products_before(side, q)
        sign = jnp.where(s < 0, jnp.full_like(s, -1.0), jnp.ones_like(s))
        diagonal = sign * diagonal_lanes(before)  # sign of G_ii: columns are turned so that it is positive
        rows, cols = below_diagonal(q)
        angles = (angles - np.pi * turns) * before[rows, cols] * side * sign[rows] * diagonal[cols]
        return jnp.concatenate([m, jnp.abs(s), angles])

    def mean_jacobian_lanes(self, phi):
        """Every direction changes E of (1, x, y) by u h' + h u': no differentiation needed."""
        q = self.p + 1
        m, s, _ = self._split(phi)
        sin, cos, before, t = self._rows_lanes(phi)
        g = s[:, None] * t
        rows, cols = below_diagonal(q)
        unit = unit_vectors(q + 1, phi)
        means = jnp.broadcast_to(jnp.concatenate([jnp.ones_like(m[:1]), m])[:, None], (q + 1, q, m.shape[-1]))
        # omega_ij moves row i of the factor: its entry j, and all later ones by -tan omega_ij
        later = (np.arange(q)[None, :] > cols[:, None])[..., None]
        own = (np.arange(q)[None, :] == cols[:, None])[..., None]
        by_angle = jnp.where(own, (s[rows] * before[rows, cols] * cos)[:, None], 0.0)
        by_angle = by_angle - jnp.where(later, (sin / cos)[:, None] * g[rows], 0.0)  # [K, q, B]
        along = matmul_lanes(g, jnp.swapaxes(jnp.concatenate([t, by_angle]), 0, 1))  # [q, q + K, B]
        u = jnp.concatenate([unit[:, 1:], unit[:, 1:], unit[:, 1 + rows]], axis=1)
        return spanned_jacobian(u, jnp.concatenate([means, extended(along)], axis=1))

    # ---- prior ---------------------------------------------------------------------------------------------
    def _exponents(self):
        """Power of the cosine of each angle in the prior density `[K, *B]`, the law of R^2 apart."""
        p = self.p
        rows, cols = below_diagonal(p + 1)
        shape = (-1, *[1] * jnp.ndim(self.correlation))
        last = (rows == p).reshape(shape)
        rest = np.where(rows == p, p - 1.0 - cols, p - 3.0 - cols).reshape(shape).astype(self.correlation.dtype)
        return jnp.where(last, jnp.zeros_like(self.correlation), 2.0 * self.correlation) + rest

    def _prior_lanes(self, phi, sin, cos):
        """Log prior `[B]` and its gradient `[P, B]`."""
        m, s, _ = self._split(phi)
        by_mean, by_sd = (self.mean - m) / self.mean_sd**2, -s / self.sd_scale**2
        power, square = self.sd_power[None] - 1.0, s * s + (SD_LEVEL * self.sd_scale) ** 2
        exponents, log_cos = self._exponents(), jnp.log(jnp.abs(cos))
        last = slice(cos.shape[0] - self.p, None)
        rest = jnp.prod(cos[last] ** 2, axis=0)  # 1 - R^2
        up, down = self.explained - 0.5 * self.p, self.residual - 0.5
        explained, left = 1.0 - rest + EXPLAINED_EDGE, rest + RESIDUAL_EDGE
        value = 0.5 * (by_mean * (m - self.mean) + by_sd * s + power * jnp.log(square)).sum(0)
        value = value + (exponents * log_cos).sum(0) + up * jnp.log(explained) + down * jnp.log(left)
        slopes = exponents.at[last].add(2.0 * (rest * (down / left - up / explained))[None])
        return value, jnp.concatenate([by_mean, by_sd + power * s / square, -slopes * sin / cos])

    def log_prior_lanes(self, phi):
        phi = phi.astype(self.mean.dtype)
        sin, cos, _, _ = self._rows_lanes(phi)
        return self._prior_lanes(phi, sin, cos)[0]

    def log_density_and_grad_lanes(self, phi, w, observed: Observed):
        value, (_, g, _), d_m, d_c = self.marginal_and_grad_lanes(phi, w, observed)
        phi = phi.astype(value.dtype)
        q, s = self.p + 1, self._split(phi)[1]
        sin, cos, before, t = self._rows_lanes(phi)
        d_g = 2.0 * matmul_lanes(d_c, g)  # its upper triangle is not used
        by_row = d_g * t  # zero above the diagonal
        sums = [jnp.zeros_like(s)]  # over the later columns, from the last one back
        for k in range(q - 1, 0, -1):
            sums.insert(0, sums[0] + by_row[:, k])
        d_s = sums[0] + by_row[:, 0]
        rows, cols = below_diagonal(q)
        later = jnp.stack(sums, axis=1)[rows, cols]
        d_angle = s[rows] * ((d_g * before)[rows, cols] * cos - later * sin / cos)
        prior, by_prior = self._prior_lanes(phi, sin, cos)
        return value + prior, jnp.concatenate([d_m, d_s, d_angle]) + by_prior

    def report_lanes(self, phi):
        p = self.p
        m, g, c = self.record_lanes(phi)
        beta = matvec_transposed_lanes(lower_inverse.lanes(g[:p, :p]), g[p, :p])
        tau2 = [c[i, j] for i in range(p) for j in range(i + 1)]
        intercept = m[p] - (m[:p] * beta).sum(0)
        return jnp.concatenate([intercept[None], beta, (g[p, p] ** 2)[None], m[:p], jnp.stack(tau2)])

    # ---- one chain -----------------------------------------------------------------------------------------
    def prior_center(self):
        return jnp.concatenate([self.mean, 0.7 * self.sd_scale, jnp.zeros_like(self._exponents())])

    def prior_precision(self):
        """Inverse prior variances: at a flat centre the curvature says nothing about the prior's reach."""
        of_angles = self._exponents() + float(12.0 / np.pi**2)  # a flat angle within a quarter turn has pi^2 / 12
        return jnp.diag(jnp.concatenate([1.0 / self.mean_sd**2, 1.0 / self.sd_scale**2, of_angles]))

    def sample_prior(self, key: PRNGKeyArray):
        p = self.p
        k_mean, k_sd, k_one, k_other, k_explained, k_direction = random.split(key, 6)
        means = self.mean + self.mean_sd * random.normal(k_mean, self.mean.shape, self.mean.dtype)
        deviation = jnp.linspace(0.0, 7.0, TABLE, dtype=means.dtype)
        density = (deviation**2 + SD_LEVEL**2) ** (0.5 * (self.sd_power - 1.0)) * jnp.exp(-0.5 * deviation**2)
        draws = jax.vmap(draw_table, (0, None, None))(random.split(k_sd, p + 1), deviation, density)
        sds = self.sd_scale * draws
        below = self._exponents().shape[0] - p
        shape = 0.5 * (self._exponents()[:below] + 1.0)
        r = jnp.tanh(0.5 * (random.loggamma(k_one, shape) - random.loggamma(k_other, shape)))
        dtype = means.dtype
        turn = jnp.linspace(0.0, 0.5 * np.pi, TABLE, dtype=dtype)
        sin = jnp.sin(turn)
        density = (
            sin ** (p - 1.0)
            * (sin * sin + EXPLAINED_EDGE) ** (self.explained - 0.5 * p)
            * (jnp.cos(turn) ** 2 + RESIDUAL_EDGE) ** (self.residual - 0.5)
        )
        direction = random.normal(k_direction, (p,), dtype)
        row = jnp.sin(draw_table(k_explained, turn, density)) * direction / jnp.sqrt((direction * direction).sum())
        left = 1.0 - jnp.concatenate([jnp.zeros(1, dtype), jnp.cumsum(row * row)[:-1]])
        last = row / jnp.sqrt(jnp.maximum(left, _SMALLEST))
        angles = jnp.arcsin(jnp.clip(jnp.concatenate([r.astype(dtype), last]), -1.0, 1.0))
        return jnp.concatenate([means, sds, angles])


def _products_before(x, q: int):
    """Product of the entries of the row before each place `[q, q, B]`, from the entries below the diagonal `[K, B]`."""
    below = np.tril(np.ones((q, q), bool), -1)[..., None]
    full = jnp.where(below, scatter_below(x, q), jnp.ones((1, 1, 1), x.dtype))
    out = [jnp.ones_like(full[:, 0])]  # a cumulative product over a middle axis is far slower
    for k in range(q - 1):
        out.append(out[-1] * full[:, k])
    return jnp.stack(out, axis=1)
