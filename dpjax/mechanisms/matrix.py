"""Wishart noise for a Gram matrix: the additive and the inverse Wishart mechanism of Zhang and Reiter, corrected as in
docs/formulas.md#wishart-mechanism.

Released is a noisy version of G = [X, y]'[X, y], the Gram matrix [d, d] of n whole rows (x, y), d = p + 1; B bounds the
norm of the WHOLE row (`dpjax.privacy.clipping.clip_whole_rows`; Zhang and Reiter bound x alone and count p where it
needs d).

- `Wishart`: M = G + sum of k outer products of N(0, B^2 I): G + Wishart(B^2 I, k).
- `InverseWishart`: M ~ InvWishart(G + psi I, nu), nu = n + d.

What is drawn here comes from a seedable generator in floating point: it is for simulation and protects nobody. There is
no `release` for these mechanisms: OpenDP, which draws the noise of releases, has none of them, and floating-point
matrices are no secure noise.

`published` gives the papers' constants, `calibrated` the smallest that keep (epsilon, delta), from exact tail
probabilities (`dpjax.privacy.wishart`). "add-remove" is exact; "replace-one" is a proven bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Key

from dpjax._base.checks import check_choice, check_length
from dpjax.errors import InputError
from dpjax.kernels import wishart
from dpjax.kernels.psd import solve_symmetric
from dpjax.mechanisms.base import PrivacyStatement
from dpjax.privacy import wishart as privacy
from dpjax.privacy.clipping import _records
from dpjax.privacy.row_norms import ADJACENCIES

__all__ = ["MATRIX_MECHANISMS", "InverseWishart", "MatrixMechanism", "Wishart", "gram_matrix", "theta_plug_in"]

_DOMAIN = "Gram matrices [p + 1, p + 1] of whole rows (x, y) with norm at most B"
_METRIC = "number of rows added, removed or replaced"
_MEASURE = "approximate differential privacy (epsilon, delta)"


class MatrixMechanism:
    """Base class: what such a mechanism promises, from the deltas of its two neighbourhoods."""

    kind: ClassVar[str]
    adjacency: str
    dim: int
    dof: Any
    ridge: Any  # added to the diagonal of G before the noise
    numbers: ClassVar[tuple[str, ...]]  # names of those above 0
    #: Whether an inverse Wishart matrix is released, in place of G and a Wishart matrix.
    inverse: ClassVar[bool] = False

    def _deltas(self) -> tuple[privacy.Delta, privacy.Delta]:
        raise NotImplementedError

    def delta(self, epsilon: Any, adjacency: str | None = None) -> float:
        """Smallest delta known for this epsilon: exact for "add-remove", a proven bound for "replace-one".

        Args:
            epsilon: at least 0.
            adjacency: None is that of the mechanism.
        """
        return privacy.delta_at(self._deltas(), epsilon, adjacency or self.adjacency)

    def privacy_map(self, delta: Any, adjacency: str | None = None) -> float:
        """Smallest epsilon known for this delta (rounded up); infinity where there is none.

        Args:
            delta: inside (0, 1).
            adjacency: None is that of the mechanism.
        """
        return privacy.epsilon_at(self._deltas(), delta, adjacency or self.adjacency)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Wishart(MatrixMechanism):
    """M = G + Wishart(B^2 I, k).

    Args:
        bound: B, on the norm of the whole row (x, y), > 0.
        dof: k, at least d + 1.
        dim: d = p + 1 (static).
        adjacency: the one that k was chosen for, "replace-one" or "add-remove" (static).
    """

    bound: Any
    dof: Any
    dim: int = field(metadata={"static": True})
    adjacency: str = field(metadata={"static": True})

    kind: ClassVar[str] = "wishart"
    numbers: ClassVar[tuple[str, ...]] = ("bound", "dof")
    ridge = 0.0
    statement: ClassVar[PrivacyStatement] = PrivacyStatement(
        input_domain=_DOMAIN,
        input_metric=_METRIC,
        output_measure=_MEASURE,
        privacy_map="add-remove, exact: delta = max(F(x) - exp(epsilon) F(x - 1), S(t - 1) - exp(epsilon) S(t)), F and"
        " S the tails of chi2 with k - d + 1 degrees of freedom, at the points where the loss is epsilon; replace-one:"
        " the best split of epsilon over removing one row and adding one",
        norm="L2 norm of the whole row (x, y)",
        adjacency=ADJACENCIES,
        reference="Sheffet 2019 as quoted by Zhang and Reiter, definition 4; privacy from the exact privacy loss "
        "(docs/formulas.md#wishart-mechanism)",
    )

    @classmethod
    def published(cls, p: Any, bound: Any, epsilon: Any, delta: Any, adjacency: str = "replace-one") -> Wishart:
        """k = floor(d + 28 log(4 / delta) / epsilon^2), d = p + 1, at least d + 1: Zhang and Reiter's with the right
        dimension, and very loose.

        Args:
            p: number of features, at least 1.
            bound: B > 0, stated a priori, never from the data.
            epsilon: > 0.
            delta: inside (0, 1).
            adjacency: what the result is used for; the formula is the same. `delta` says what it really gives.

        Raises:
            InputError: an argument outside its range.
        """
        d, B, budget = _arguments(p, bound, epsilon, delta, adjacency)
        return cls(B, max(privacy.published_dof(d, *budget), d + 1), d, adjacency)

    @classmethod
    def calibrated(cls, p: Any, bound: Any, epsilon: Any, delta: Any, adjacency: str = "replace-one") -> Wishart:
        """The smallest k of at least d + 1 that is (epsilon, delta)-DP by `delta`.

        Args, Raises: as `published`.
        """
        d, B, budget = _arguments(p, bound, epsilon, delta, adjacency)
        return cls(B, privacy.smallest_dof(d, *budget, adjacency), d, adjacency)

    def _deltas(self) -> tuple[privacy.Delta, privacy.Delta]:
        dof = privacy.positive(self.dof, "dof")
        if dof < self.dim + 1:
            raise InputError(f"dof must be at least p + 2 = {self.dim + 1}, got {self.dof!r}")
        return privacy.wishart_deltas(self.dim, dof)

    def simulate(self, key: Key[Array, ""], gram: Float[Array, "d d"]) -> Float[Array, "d d"]:
        """Draw M for a simulation; it protects nobody.

        Args:
            key: typed key.
            gram: G, symmetric.
        """
        return gram + wishart.draw(key, *self._noise(gram))

    def log_density(self, released: Float[Array, "d d"], gram: Float[Array, "d d"]) -> Float[Array, ""]:
        """log p(M | G), normalised, over the entries i <= j; -inf where M - G is not positive definite."""
        return wishart.log_density(released - gram, *self._noise(gram))

    def _noise(self, gram: Float[Array, "d d"]) -> tuple[Float[Array, "d d"], Float[Array, ""]]:
        bound, dof = (jnp.asarray(value, gram.dtype) for value in (self.bound, self.dof))
        return bound**2 * jnp.eye(self.dim, dtype=gram.dtype), dof

    def debiased(self, released: Float[Array, "d d"]) -> Float[Array, "d d"]:
        """M - k B^2 I: unbiased for G; positive semi-definite no longer."""
        excess = jnp.asarray(self.dof, released.dtype) * jnp.asarray(self.bound, released.dtype) ** 2
        return released - excess * jnp.eye(self.dim, dtype=released.dtype)

    def undebiased(self, released: Float[Array, "d d"]) -> Float[Array, "d d"]:
        """What Zhang and Reiter's plug-in estimator takes for G: M itself, a ridge of k B^2 on average. For
        comparison."""
        return released


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class InverseWishart(MatrixMechanism):
    """M ~ InvWishart(G + psi I, nu).

    Args:
        bound: B, on the norm of the whole row (x, y), > 0.
        ridge: psi > 0.
        dof: nu = n + d. It must be public: with "add-remove" choose it without the number of records.
        dim: d = p + 1 (static).
        adjacency: the one that psi was chosen for, "replace-one" or "add-remove" (static).
    """

    bound: Any
    ridge: Any
    dof: Any
    dim: int = field(metadata={"static": True})
    adjacency: str = field(metadata={"static": True})

    kind: ClassVar[str] = "inverse-wishart"
    numbers: ClassVar[tuple[str, ...]] = ("bound", "dof", "ridge")
    inverse: ClassVar[bool] = True
    statement: ClassVar[PrivacyStatement] = PrivacyStatement(
        input_domain=_DOMAIN,
        input_metric=_METRIC,
        output_measure=_MEASURE,
        privacy_map="add-remove with public degrees of freedom, exact: delta = max(S(x) - exp(epsilon) S(r x), F(r t) -"
        " exp(epsilon) F(t)), F and S the tails of chi2 with nu degrees of freedom, r = 1 + B^2 / psi, at the points"
        " where the loss is epsilon; replace-one: the best split of epsilon over removing one row and adding one",
        norm="L2 norm of the whole row (x, y)",
        adjacency=ADJACENCIES,
        reference="Sheffet 2019 as quoted by Zhang and Reiter, definition 5; privacy from the exact privacy loss "
        "(docs/formulas.md#wishart-mechanism)",
    )

    @classmethod
    def published(
        cls, p: Any, records: Any, bound: Any, epsilon: Any, delta: Any, adjacency: str = "replace-one"
    ) -> InverseWishart:
        """psi = 2 B^2 / epsilon (2 sqrt(2 (n + d) log(4 / delta)) + 2 log(4 / delta)) with d = p + 1, nu = n + d.

        Args:
            records: n, at least 1, public.
            p, bound, epsilon, delta, adjacency: as `Wishart.published`.

        Raises:
            InputError: an argument outside its range.
        """
        d, B, budget = _arguments(p, bound, epsilon, delta, adjacency)
        dof = privacy.count(records, "records") + d
        return cls(B, privacy.published_ridge(dof, B, *budget), dof, d, adjacency)

    @classmethod
    def calibrated(
        cls, p: Any, records: Any, bound: Any, epsilon: Any, delta: Any, adjacency: str = "replace-one"
    ) -> InverseWishart:
        """The smallest psi (to twelve digits, rounded up) that is (epsilon, delta)-DP by `delta`, at nu = n + d.

        Args, Raises: as `published`.
        """
        d, B, budget = _arguments(p, bound, epsilon, delta, adjacency)
        dof = privacy.count(records, "records") + d
        return cls(B, privacy.smallest_ridge(dof, B, *budget, adjacency), dof, d, adjacency)

    def _deltas(self) -> tuple[privacy.Delta, privacy.Delta]:
        dof = privacy.positive(self.dof, "dof")
        bound, ridge = privacy.positive(self.bound, "bound"), privacy.positive(self.ridge, "ridge")
        return privacy.inverse_wishart_deltas(dof, bound**2 / ridge)

    def simulate(self, key: Key[Array, ""], gram: Float[Array, "d d"]) -> Float[Array, "d d"]:
        """Draw M for a simulation; it protects nobody. Arguments as `Wishart.simulate`."""
        return wishart.inverse_draw(key, *self._law(gram)).matrix

    def log_density(self, released: Float[Array, "d d"], gram: Float[Array, "d d"]) -> Float[Array, ""]:
        """log p(M | G), normalised, over the entries i <= j; -inf where M is not positive definite."""
        return wishart.inverse_log_density(released, *self._law(gram))

    def _law(self, gram: Float[Array, "d d"]) -> tuple[Float[Array, "d d"], Float[Array, ""]]:
        ridge, dof = (jnp.asarray(value, gram.dtype) for value in (self.ridge, self.dof))
        return gram + ridge * jnp.eye(self.dim, dtype=gram.dtype), dof

    def debiased(self, released: Float[Array, "d d"]) -> Float[Array, "d d"]:
        """(nu - d - 1) M - psi I, that is (n - 1) M - psi I: unbiased for G (n > 1), and not always positive
        semi-definite."""
        factor = jnp.asarray(self.dof, released.dtype) - (self.dim + 1)
        ridge = jnp.asarray(self.ridge, released.dtype)
        return factor * released - ridge * jnp.eye(self.dim, dtype=released.dtype)

    def undebiased(self, released: Float[Array, "d d"]) -> Float[Array, "d d"]:
        """What Zhang and Reiter's plug-in estimator takes for G: M itself. The factor n - 1 cancels in theta, the ridge
        psi does not. For comparison."""
        return released


MATRIX_MECHANISMS: dict[str, type[Wishart] | type[InverseWishart]] = {
    noise.kind: noise for noise in (Wishart, InverseWishart)
}


def gram_matrix(features: Any, target: Any) -> Float64[np.ndarray, "d d"]:
    """[X, y]'[X, y], [p + 1, p + 1], of records whose whole rows have been clipped (`row_norms.clip_whole_rows`).

    Args:
        features: [n, p], finite.
        target: [n], finite.

    Raises:
        InputError: shapes that do not fit, entries that are not finite.
    """
    rows = np.column_stack(_records(features, target))
    return rows.T @ rows


def theta_plug_in(gram: Float[Array, "d d"], p: int) -> Float[Array, " p"]:
    """Least squares from a Gram matrix: (X'X)^{-1} X'y from its blocks.

    Args:
        gram: [p + 1, p + 1], such as `mechanism.debiased(released)`. A debiased matrix need not be positive definite;
            then this is the solution of an indefinite system, and may be far off.
        p: number of features (static).
    """
    return solve_symmetric(gram[:p, :p], gram[:p, p])


def _arguments(p: Any, bound: Any, epsilon: Any, delta: Any, adjacency: Any) -> tuple[int, float, tuple[float, float]]:
    check_choice("adjacency", adjacency, ADJACENCIES)
    budget = privacy.positive(epsilon, "epsilon"), privacy.probability(delta)
    return privacy.count(p, "p") + 1, check_length(bound, "bound must be a finite number > 0"), budget
