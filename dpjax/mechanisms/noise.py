"""The noise of released entries, entry by entry: its scale, its law and whether the entry was released at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.errors import InputError
from dpjax.mechanisms import GAUSSIAN, LAPLACE, MECHANISMS, mechanism_named
from dpjax.mechanisms.base import Mechanism

#: Laws that are always there together: one compiled program serves every mixture of them, also of one of them alone,
#: and rounds alike (a program with one law only differs in the last bits, which is how sums are fused).
TOGETHER: tuple[Mechanism, ...] = (LAPLACE, GAUSSIAN)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Noise:
    """Independent noise of D entries, each of its own scale and of one of a few laws; a pytree of arrays `[..., D]`, or
    with lanes `[D, B]`.

    scale: of every entry, in the units of the released sums; None where all is in units of it.
    code: the place in `laws` of every entry's law, or one for each of C runs of D / C entries `[..., C]`, as of C
        parties; None where there is one law: then nothing is chosen while a program runs.
    seen: 1 where an entry was released, 0 else.
    laws (static): the mechanisms, as functions of the exact sums (`Mechanism.density`).
    """

    scale: Any
    code: Any
    seen: Any
    laws: tuple[Mechanism, ...] = field(metadata={"static": True})

    @classmethod
    def of(cls, mechanism: Any, scale: Any, seen: Any = 1.0) -> Noise:
        """Noise by the names of mechanisms, on the host.

        Args:
            mechanism: the name of all entries' mechanism, or names that broadcast to the shape of `scale`; where their
                last axis is 1, `code` has one for all entries of that axis.
            scale: `[..., D]`.
            seen: whether an entry is released, what broadcasts to the shape of `scale`.

        Raises:
            InputError: no mechanism has this name, or shapes that do not fit.
        """
        scale = np.asarray(scale, np.float64)
        seen = _spread("seen", np.asarray(seen, np.float64), scale.shape)
        names = np.asarray(mechanism, object)
        densities = {name: mechanism_named(name).density for name in dict.fromkeys(names.reshape(-1).tolist())}
        found = {law.kind: law for law in densities.values()}
        if not found:
            raise InputError("mechanism must be named for at least one entry")
        # in the order in which they were registered, whichever comes first here
        laws = tuple(found[kind] for kind in MECHANISMS if kind in found)
        laws = TOGETHER if all(law in TOGETHER for law in laws) else laws
        code = None
        if len(laws) > 1:
            each = np.array([laws.index(densities[name]) for name in names.reshape(-1).tolist()], np.int32)
            last = names.shape[-1:] if names.ndim else (1,)
            code = _spread("mechanism", each.reshape(names.shape), (*scale.shape[:-1], *last))
            _spread("mechanism", code, scale.shape)
        return cls(scale, code, seen, laws)

    def in_units(self) -> Noise:
        """The same where all is in units of the scales."""
        return Noise(None, self.code, self.seen, self.laws)

    def over(self, entries: Callable[[Any], Any]) -> Noise:
        """The noise of entries that lie elsewhere, by a map of arrays `[D, B]`; a code of all entries stays one."""
        one = self.code if self.code is None or self.code.shape[0] > 1 else None
        found = jax.tree.map(entries, Noise(self.scale, one, self.seen, self.laws))
        if one is None and self.code is not None:
            return replace(found, code=self.code.reshape((1,) * (found.seen.ndim - 1) + self.code.shape[1:]))
        return found

    def augmented(self) -> Any:
        """Whether an entry has mixing variances to draw; True or False where all laws agree, else an array `[]`."""
        each = {law.augmented for law in self.laws}
        if len(each) == 1:
            return each.pop()
        return jnp.any(self.each(lambda law: jnp.asarray(law.augmented)))

    @property
    def randoms(self) -> tuple[int, int]:
        """Standard normals and uniforms per entry that `update_lanes` takes; an entry has one law, so that all laws
        share them."""
        return max(law.randoms[0] for law in self.laws), max(law.randoms[1] for law in self.laws)

    def each(self, of: Callable[[Mechanism], Any]) -> Any:
        """`of(law)`, an array or a tree of them that broadcast to the entries, of every entry's own law."""
        found = of(self.laws[0])
        for place, law in enumerate(self.laws[1:], 1):
            choose = lambda one, other, place=place: jnp.where(self.code == place, other, one)
            found = jax.tree.map(choose, found, of(law))
        return found

    def log_density_and_grad(self, e: Any) -> tuple[Any, Any]:
        """log density of noise e in units of its scale, each entry up to a constant, and its derivative."""
        return self.each(lambda law: law.log_density_and_grad(e))

    def variance(self, dtype: Any) -> Any:
        """Variance in squares of the scale, of every entry or of all of them."""
        return self.each(lambda law: jnp.asarray(law.variance, dtype))

    def bend(self, e: Any) -> Any:
        """How much less than of Gaussian noise the root of the curvature of the log density is that counts for noise e:
        1 around 0, sqrt(slope / |e|) further out (for Laplace noise, which has a slope and no curvature there,
        1 / sqrt(|e|))."""
        away, one = jnp.abs(e), jnp.ones_like(e)

        def of(law: Mechanism) -> Any:
            if not law.closed_form:
                _, slope = law.log_density_and_grad(jnp.maximum(away, one))
                return jnp.sqrt(jnp.clip(-slope / jnp.maximum(away, one), 1e-6, 1.0))
            return jnp.where(away > 1.0, jax.lax.rsqrt(away), one) if law.exponential else one

        return self.each(of)

    def update_lanes(self, e: Any, normals: Any, uniforms: Any) -> Any:
        """Draw the mixing variances w | e `[D, B]`, in squares of the scale; 1 of Gaussian noise.

        normals, uniforms: `[a D, B]` and `[b D, B]`, (a, b) = `randoms`.
        """
        size = e.shape[0]
        return self.each(
            lambda law: law.update_lanes(e, normals[: law.randoms[0] * size], uniforms[: law.randoms[1] * size])
        )


def _spread(name: str, x: Any, shape: tuple[int, ...]) -> np.ndarray:
    try:
        return np.broadcast_to(x, shape)
    except ValueError:
        raise InputError(f"{name} of shape {np.shape(x)} does not fit entries of shape {shape}") from None


__all__ = ["Noise"]
