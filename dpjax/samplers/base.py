"""What a sampler offers to the engine, and the noise models it meets, in units of the noise scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from ..kernels.augmentation import laplace_scales_from
from ..models.base import Model, Observed


class Draw(NamedTuple):
    """One iteration's output per lane: reported parameters `[K, B]`, acceptance rate and divergence `[B]`."""

    parameters: Float[Array, "K B"]
    acceptance: Float[Array, " B"]
    divergent: Bool[Array, " B"]


class LaneSampler(Protocol):
    """A sampler as the engine runs it: lane code over `chains x problems` lanes, chains outermost.

    A problem's chains sit at lanes `c * problems + t`, so that pooling over chains is a reshape.
    """

    name: str

    @property
    def warmup_iterations(self) -> int:
        """Iterations before the first draw that counts."""
        ...

    def init_lanes(self, model: Model, observed: Observed, keys: Key[Array, " B"], chains: int) -> Any:
        """State of all lanes before the first iteration."""
        ...

    def iterate_lanes(
        self, model: Model, observed: Observed, carry: Any, keys: Key[Array, " B"], index: Array, chains: int
    ) -> tuple[Any, Draw]:
        """Iteration number `index` (traced scalar, warm-up included)."""
        ...

    def finite_lanes(self, carry: Any) -> Bool[Array, " B"]:
        """Whether each lane's state is still usable."""
        ...


@dataclass(frozen=True)
class LaplaceNoise:
    """Laplace noise as a scale mixture: e | w ~ N(0, w), w ~ Exponential(rate 1/2), in units of b (SPEC B10)."""

    mean_variance: float = 2.0
    augmented: bool = True

    def update_lanes(self, residual: Float[Array, "D B"], normals: Float[Array, "N B"], uniforms: Float[Array, "D B"]):
        """Draw w | e from 2 D normals and D uniforms."""
        size = residual.shape[0]
        w = laplace_scales_from.lanes(residual, normals[:size], uniforms, normals[size:])
        return jnp.maximum(w, 1e-10)


@dataclass(frozen=True)
class GaussianNoise:
    """Gaussian noise of standard deviation one in units of its own scale: nothing to augment."""

    mean_variance: float = 1.0
    augmented: bool = False

    def update_lanes(self, residual: Float[Array, "D B"], normals: Float[Array, "N B"], uniforms: Float[Array, "D B"]):
        """The variance is known."""
        return jnp.ones_like(residual)


NOISES = {"laplace": LaplaceNoise(), "gaussian": GaussianNoise()}
