"""Noise mechanisms: simulation, densities, scale mixtures for samplers, and what they promise.

The noise drawn here is for simulation and calibration: it comes from a seedable generator in floating point
and protects nobody. A real release draws its noise through OpenDP (`dpjax.release`), which never imports this
module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Key

from dpjax._budget import checked_share, split
from dpjax._checks import check_number
from dpjax._gaussian import analytic_gaussian_sigma, gaussian_delta, gaussian_epsilon
from dpjax.errors import InputError
from dpjax.kernels.augmentation import laplace_scales, laplace_scales_from
from dpjax.statistics import MOMENTS_SHARE, Statistic

__all__ = [
    "DiscreteLaplace",
    "Gaussian",
    "GaussianNoise",
    "Laplace",
    "LaplaceNoise",
    "PrivacyStatement",
    "analytic_gaussian_sigma",
    "gaussian_delta",
    "gaussian_epsilon",
    "mechanism",
    "noise_scales",
]


@dataclass(frozen=True)
class PrivacyStatement:
    """What a mechanism promises, in OpenDP's terms: inputs at distance d_in give outputs at distance at most
    `privacy_map(d_in)`. The adjacency of records enters through the sensitivity of the statistic."""

    input_domain: str
    input_metric: str
    output_measure: str
    privacy_map: str
    norm: str
    adjacency: tuple[str, ...]
    reference: str


@dataclass(frozen=True)
class LaplaceNoise:
    """Laplace noise as a scale mixture: e | w ~ N(0, w), w ~ Exponential(rate 1/2), in units of b (SPEC B10)."""

    mean_variance: float = 2.0
    augmented: bool = True

    def update_lanes(self, residual: Float[Array, "D B"], normals: Float[Array, "N B"], uniforms: Float[Array, "D B"]):
        """Draw w | e from D normals and D uniforms."""
        return jnp.maximum(laplace_scales_from.lanes(residual, normals, uniforms), 1e-10)


@dataclass(frozen=True)
class GaussianNoise:
    """Gaussian noise of standard deviation one in units of its own scale: nothing to augment."""

    mean_variance: float = 1.0
    augmented: bool = False

    def update_lanes(self, residual: Float[Array, "D B"], normals: Float[Array, "N B"], uniforms: Float[Array, "D B"]):
        """The variance is known."""
        return jnp.ones_like(residual)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Laplace:
    """z = s + Laplace noise of scale b per entry.

    Args:
        scale: b, [D], > 0, in the units of the statistic (leading axes allowed under `vmap`).
    """

    scale: Any  # an array; JAX also rebuilds pytrees with placeholders, which a narrower type would refuse

    kind: ClassVar[str] = "laplace"
    unit_noise: ClassVar[LaplaceNoise] = LaplaceNoise()
    random_scales: ClassVar[bool] = True
    whole_numbers: ClassVar[bool] = False
    statement: ClassVar[PrivacyStatement] = PrivacyStatement(
        input_domain="vectors of D finite numbers, D public",
        input_metric="L1 distance between the statistics of adjacent tables",
        output_measure="pure differential privacy (max divergence)",
        privacy_map="epsilon = L1 sensitivity / smallest scale",
        norm="l1",
        adjacency=("replace-one", "add-remove (the number of records then needs noise of its own)"),
        reference="Dwork, McSherry, Nissim and Smith 2006, Theorem 1; in releases OpenDP's"
        " make_laplace (discrete Laplace noise on a fine grid: Canonne, Kamath and Steinke 2020)",
    )

    def simulate(self, key: Key[Array, ""], shape: tuple[int, ...] = (), dtype: Any = None) -> Float[Array, "*shape D"]:
        """Draw noise for a simulation; it protects nobody.

        Args:
            key: typed key.
            shape: leading axes of independent draws.
            dtype: of the result; that of `scale` if None.

        Returns:
            z - s, [*shape, D], in the units of the statistic.
        """
        scale = jnp.asarray(self.scale, dtype)
        return jax.random.laplace(key, (*shape, *scale.shape), scale.dtype) * _lift(scale, len(shape) + scale.ndim)

    def log_density(self, z: Float[Array, "*shape D"], s: Float[Array, "*shape D"]) -> Float[Array, "*shape"]:
        """log p(z | s), summed over entries."""
        scale = _lift(jnp.asarray(self.scale, z.dtype), z.ndim)
        return jnp.sum(-jnp.abs(z - s) / scale - jnp.log(2 * scale), axis=-1)

    def noise_sd(self) -> Float[Array, " D"]:
        """Standard deviation of the noise, sqrt(2) b."""
        return jnp.asarray(self.scale) * math.sqrt(2.0)

    def init_scales(self, residual: Float[Array, " D"]) -> Float[Array, " D"]:
        """Start of the mixing variances w: their conditional mean |e| + 1 (SPEC B10).

        Args:
            residual: e = (z - s) / b, in units of the scale.

        Returns:
            w = omega^2 / b^2; e | w ~ N(0, w), w ~ Exponential(rate 1/2).
        """
        return jnp.abs(residual) + 1

    def noise_variance(self, scales: Float[Array, " D"]) -> Float[Array, " D"]:
        """Variance of e given the mixing variances, in units of b^2: w itself."""
        return scales

    def update_scales(self, key: Key[Array, ""], residual: Float[Array, " D"]) -> Float[Array, " D"]:
        """Exact draw of w | e (`dpjax.kernels.augmentation.laplace_scales`)."""
        return laplace_scales(key, residual)

    @classmethod
    def scale_for(cls, sensitivity: float, epsilon: float, delta: float | None = None) -> float:
        """Scale that spends epsilon on a statistic of this L1 sensitivity; there is no delta (None or 0).

        Raises:
            InputError: a delta above 0.
        """
        if delta:
            raise InputError(f"delta is for gaussian noise; {cls.kind} noise has none, got {delta!r}")
        return sensitivity / epsilon

    def privacy_map(self, sensitivity: Any) -> float:
        """epsilon = sensitivity / smallest scale, rounded up.

        Args:
            sensitivity: L1, > 0, in the units of the statistic.
        """
        return math.nextafter(_sensitivity(sensitivity) / _smallest(self.scale), math.inf)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Gaussian:
    """z = s + normal noise of standard deviation sigma per entry.

    Args:
        scale: sigma, [D], > 0, in the units of the statistic (leading axes allowed under `vmap`).
    """

    scale: Any

    kind: ClassVar[str] = "gaussian"
    unit_noise: ClassVar[GaussianNoise] = GaussianNoise()
    random_scales: ClassVar[bool] = False
    whole_numbers: ClassVar[bool] = False
    statement: ClassVar[PrivacyStatement] = PrivacyStatement(
        input_domain="vectors of D finite numbers, D public",
        input_metric="L2 distance between the statistics of adjacent tables (half-vectorised, SPEC A4)",
        output_measure="approximate differential privacy (epsilon, delta)",
        privacy_map="delta = Phi(D/2s - eps s/D) - exp(eps) Phi(-D/2s - eps s/D), s the smallest scale",
        norm="l2",
        adjacency=("replace-one", "add-remove (the number of records then needs noise of its own)"),
        reference="Balle and Wang 2018, Theorem 8",
    )

    def simulate(self, key: Key[Array, ""], shape: tuple[int, ...] = (), dtype: Any = None) -> Float[Array, "*shape D"]:
        """Draw noise for a simulation; it protects nobody. Arguments as `Laplace.simulate`."""
        scale = jnp.asarray(self.scale, dtype)
        return jax.random.normal(key, (*shape, *scale.shape), scale.dtype) * _lift(scale, len(shape) + scale.ndim)

    def log_density(self, z: Float[Array, "*shape D"], s: Float[Array, "*shape D"]) -> Float[Array, "*shape"]:
        """log p(z | s), summed over entries."""
        scale = _lift(jnp.asarray(self.scale, z.dtype), z.ndim)
        return jnp.sum(-0.5 * ((z - s) / scale) ** 2 - jnp.log(scale) - 0.5 * math.log(2 * math.pi), axis=-1)

    def noise_sd(self) -> Float[Array, " D"]:
        """Standard deviation of the noise: the scale itself."""
        return jnp.asarray(self.scale)

    def init_scales(self, residual: Float[Array, " D"]) -> Float[Array, " D"]:
        """Mixing variances in units of sigma^2: always 1."""
        return jnp.ones_like(residual)

    def noise_variance(self, scales: Float[Array, " D"]) -> Float[Array, " D"]:
        """Variance of e = (z - s) / sigma given the mixing variances."""
        return scales

    def update_scales(self, key: Key[Array, ""], residual: Float[Array, " D"]) -> Float[Array, " D"]:
        """Always 1: normal noise is no mixture."""
        return jnp.ones_like(residual)

    @classmethod
    def scale_for(cls, sensitivity: float, epsilon: float, delta: float | None = None) -> float:
        """Standard deviation that spends (epsilon, delta) on a statistic of this L2 sensitivity.

        Raises:
            InputError: delta missing or outside (0, 1).
        """
        if delta is None:
            raise InputError("delta is missing: gaussian noise needs one, inside (0, 1)")
        return analytic_gaussian_sigma(sensitivity, epsilon, delta)

    def privacy_map(self, sensitivity: Any, delta: Any) -> float:
        """Smallest epsilon at this delta (`gaussian_epsilon`).

        Args:
            sensitivity: L2, > 0, in the units of the statistic.
            delta: inside (0, 1).
        """
        return gaussian_epsilon(_smallest(self.scale), _sensitivity(sensitivity), delta)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DiscreteLaplace(Laplace):
    """z = s + whole-numbered noise k per entry, P(k) = tanh(1 / (2 b)) exp(-|k| / b), for whole-numbered s.

    Given whole-numbered s the likelihood is exact, and as a function of s it has the kernel of `Laplace`: what
    samples s treats both alike (`unit_noise`), on the whole numbers or, by the normal approximation, on the reals.

    Args:
        scale: b, [D], > 0 (leading axes allowed under `vmap`).
    """

    kind: ClassVar[str] = "discrete-laplace"
    whole_numbers: ClassVar[bool] = True
    statement: ClassVar[PrivacyStatement] = PrivacyStatement(
        input_domain="vectors of D whole numbers, D public",
        input_metric="L1 distance between the statistics of adjacent tables",
        output_measure="pure differential privacy (max divergence)",
        privacy_map="epsilon = L1 sensitivity / smallest scale",
        norm="l1",
        adjacency=("replace-one", "add-remove (the number of records then needs noise of its own)"),
        reference="Ghosh, Roughgarden and Sundararajan 2012 (geometric mechanism); in releases OpenDP's"
        " make_laplace on whole numbers (exact sampling: Canonne, Kamath and Steinke 2020)",
    )

    def simulate(self, key: Key[Array, ""], shape: tuple[int, ...] = (), dtype: Any = None) -> Float[Array, "*shape D"]:
        """Draw noise for a simulation: the difference of two geometric variables, floor(Exponential(1) b) each. It
        protects nobody. Arguments as `Laplace.simulate`; the result holds whole numbers."""
        scale = jnp.asarray(self.scale, dtype)
        waiting = jax.random.exponential(key, (2, *shape, *scale.shape), scale.dtype)
        steps = jnp.floor(waiting * _lift(scale, len(shape) + scale.ndim + 1))
        return steps[0] - steps[1]

    def log_density(self, z: Float[Array, "*shape D"], s: Float[Array, "*shape D"]) -> Float[Array, "*shape"]:
        """log P(z | s) of whole numbers z and s, summed over entries."""
        scale = _lift(jnp.asarray(self.scale, z.dtype), z.ndim)
        return jnp.sum(-jnp.abs(z - s) / scale + jnp.log(jnp.tanh(0.5 / scale)), axis=-1)

    def noise_sd(self) -> Float[Array, " D"]:
        """Standard deviation of the noise, 1 / (sqrt(2) sinh(1 / (2 b))); just below sqrt(2) b for large b."""
        return 1.0 / (math.sqrt(2.0) * jnp.sinh(0.5 / jnp.asarray(self.scale)))


MECHANISMS: dict[str, type[Laplace] | type[Gaussian]] = {
    noise.kind: noise for noise in (Laplace, Gaussian, DiscreteLaplace)
}


def mechanism(kind: str, scale: Any) -> Laplace | Gaussian:
    """The mechanism of a release file.

    Args:
        kind: "laplace", "gaussian" or "discrete-laplace".
        scale: [D] numbers > 0 (`Release.scale`), in the units of the statistic.

    Raises:
        InputError: unknown kind; a scale that is not finite and > 0.
    """
    if kind not in MECHANISMS:
        raise InputError(f"mechanism must be one of {', '.join(MECHANISMS)}, got {kind!r}")
    values = np.asarray(scale)
    if values.dtype.kind not in "iuf" or not np.all(np.isfinite(values) & (values > 0)):
        raise InputError("noise scales must be finite numbers > 0")
    return MECHANISMS[kind](jnp.asarray(values, jnp.result_type(float)))


def noise_scales(
    statistic: Statistic,
    kind: Any,
    epsilon: Any,
    delta: Any = None,
    share: Any = None,
    sensitivities: Any = None,
) -> Float64[np.ndarray, " D"]:
    """Noise scale of every entry when a whole statistic is released with a budget, as `dpjax.release` splits it: for
    simulations.

    Args:
        statistic: what is summed, with D entries and bounds.
        kind: "laplace", "gaussian" or "discrete-laplace".
        epsilon: > 0, of the release as a whole.
        delta: of Gaussian noise, of the release as a whole.
        share: inside (0, 1), of a statistic with moments: the share of epsilon and delta that the moments get;
            None is `MOMENTS_SHARE`.
        sensitivities: one number > 0 for each of `statistic.parts` (without moments one, with them the usual sums
            first), in the mechanism's norm, under replace-one, in place of the statistic's own.

    Raises:
        InputError: an argument outside its range; a share or a number of sensitivities that do not fit the statistic.
    """
    if not isinstance(kind, str) or kind not in MECHANISMS:
        raise InputError(f"mechanism must be one of {', '.join(MECHANISMS)}, got {kind!r}")
    noise, parts = MECHANISMS[kind], statistic.parts
    budget = check_number(epsilon, "epsilon must be a finite number > 0")
    if not budget > 0:
        raise InputError(f"epsilon must be a finite number > 0, got {epsilon!r}")
    if sensitivities is None:
        sensitivities = [part.sensitivity(noise.statement.norm) for part in parts]
    if np.shape(sensitivities) != (len(parts),):
        raise InputError(f"sensitivities: {len(parts)} are needed, got {sensitivities!r}")
    sizes = [_sensitivity(size) for size in sensitivities]
    budgets = [(budget, delta)]
    if len(parts) > 1:
        part_of = checked_share(MOMENTS_SHARE if share is None else share, "share")
        deltas = split(delta, part_of, "share") if delta else (delta, delta)
        budgets = list(zip(split(budget, part_of, "share"), deltas, strict=True))
    elif share is not None:
        raise InputError(f"share is for a statistic with moments, which this one has not; got {share!r}")
    scales = [noise.scale_for(size, *spent) for size, spent in zip(sizes, budgets, strict=True)]
    return np.repeat(scales, [part.dim for part in parts])


def _lift(scale: Array, ndim: int) -> Array:
    """Leading axes of length 1 up to `ndim` axes: ranks are never broadcast silently here."""
    return scale.reshape((1,) * max(ndim - scale.ndim, 0) + scale.shape)


def _smallest(scale: Any) -> float:
    return float(np.min(np.asarray(scale, dtype=np.float64)))


def _sensitivity(value: Any) -> float:
    number = check_number(value, "sensitivity must be a finite number > 0")
    if not number > 0:
        raise InputError(f"sensitivity must be a finite number > 0, got {value!r}")
    return number
