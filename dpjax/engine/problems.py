"""What the engine is given: independent problems, each with a model, released statistics and the noise's scales."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax._base.checks import MOST_NOISE_UNITS
from dpjax.engine.model import Model, Observed
from dpjax.errors import InputError


def is_batched(model: Model) -> bool:
    """Whether every leaf of the model has a leading axis over problems."""
    return min(jnp.ndim(leaf) for leaf in jax.tree.leaves(model)) > model.smallest_rank


@dataclass(frozen=True)
class Problems:
    """T independent inference problems of one kind.

    z: released statistics `[T, D]` in scaled units.
    n: numbers of records `[T]`.
    scale: noise scale per entry `[T, D]` (Laplace b, Gaussian standard deviation).
    model: prior, leaves with or without a leading axis T.
    mechanism: kind of the noise, None where it differs over entries; samplers know its law, the engine does not.
    exact: the exact statistics `[T, D]`, in simulations and for public data only.
    untruncated: the noisy sums of all records `[T, D]`, in simulations of truncated ones.
    box: bounds (lo, hi) of each variable as it enters the statistic `[variables, 2]`, where the records were clipped
        to them.
    views: the same problems as other methods see them, by name: with more released entries or another model.
    noise: scale, law and presence of every entry, a pytree of arrays `[T, D]` (`dpjax.mechanisms.noise.Noise`), or None
        where all entries are there and have the law of `mechanism`. Its scale is always `scale`.
    facts: what else the model must know of the releases, a pytree of its own kind, problems first, or None.
    """

    z: np.ndarray
    n: np.ndarray
    scale: np.ndarray
    model: Model
    mechanism: str | None
    exact: np.ndarray | None = None
    untruncated: np.ndarray | None = None
    box: np.ndarray | None = None
    views: Mapping[str, Problems] = field(default_factory=dict)
    noise: Any = None
    facts: Any = None

    def __post_init__(self):
        z = np.asarray(self.z, np.float64)
        if z.ndim != 2 or z.shape[1] != self.model_template().statistic_dim:
            expected = self.model_template().statistic_dim
            raise InputError(f"z must have shape [problems, {expected}]; got {z.shape}")
        count = z.shape[0]
        n = np.broadcast_to(np.asarray(self.n, np.float64), (count,))
        scale = np.asarray(self.scale, np.float64)
        scale = np.broadcast_to(scale[:, None] if scale.ndim == 1 else scale, z.shape)
        if not np.isfinite(z).all():
            raise InputError("z must be finite")
        if not (np.isfinite(n).all() and (n >= 1).all()):
            raise InputError("n must be at least 1 record in every problem")
        if not (np.isfinite(scale).all() and (scale > 0).all()):
            raise InputError("scale must be positive and finite in every problem")
        with np.errstate(over="ignore"):
            largest = max((np.abs(z) / scale).max(initial=0.0), (n[:, None] / scale).max(initial=0.0))
        if len(z) and largest > MOST_NOISE_UNITS:
            raise InputError(
                f"z and n must be at most {MOST_NOISE_UNITS:g} noise scales; got {largest:g}: look at the noise scale"
            )
        object.__setattr__(self, "z", z)
        object.__setattr__(self, "n", n)
        object.__setattr__(self, "scale", scale)
        if self.noise is not None:
            object.__setattr__(self, "noise", replace(self.noise, scale=scale))
            shapes = {np.shape(leaf) for leaf in jax.tree.leaves(self.noise)}
            if any(len(s) != 2 or s[0] != count or not s[1] or z.shape[1] % s[1] for s in shapes):
                raise InputError(f"noise must be of entries {z.shape} or of equal runs of them; got {shapes}")

    def observed(self) -> Observed:
        """What samplers condition on, on the host in float64, problems first."""
        n = self.n[:, None]
        noise = None if self.noise is None else self.noise.in_units()
        arrays: Any = (self.z / self.scale, n / self.scale, np.sqrt(n) / self.scale, self.n, noise, self.facts)
        return Observed(*arrays)

    def model_template(self) -> Model:
        """The model of one problem (leaves without the leading axis T)."""
        return jax.tree.map(lambda x: x[0], self.model) if is_batched(self.model) else self.model

    def batched_model(self) -> Model:
        """The model with a leading axis T on every leaf."""
        count = self.z.shape[0]
        if is_batched(self.model):
            return self.model
        return jax.tree.map(lambda x: np.broadcast_to(np.asarray(x), (count, *x.shape)), self.model)

    def take(self, index: Sequence[int] | np.ndarray) -> Problems:
        """The problems at `index`."""
        index = np.asarray(index)
        exact, untruncated = (None if x is None else x[index] for x in (self.exact, self.untruncated))
        model, noise, facts = jax.tree.map(
            lambda x: np.asarray(x)[index], (self.batched_model(), self.noise, self.facts)
        )
        views = {name: view.take(index) for name, view in self.views.items()}
        return Problems(
            self.z[index],
            self.n[index],
            self.scale[index],
            model,
            self.mechanism,
            exact,
            untruncated,
            self.box,
            views,
            noise,
            facts,
        )

    def __len__(self) -> int:
        return len(self.z)


@contextlib.contextmanager
def precision(float64: bool):
    """64-bit arrays inside the context if asked for; otherwise leave the user's setting alone."""
    if float64 and not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        with jax.enable_x64(True):
            yield
    else:
        yield
