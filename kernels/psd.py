"""Make a noisy moment matrix positive semi-definite (docs/formulas.md#consistent-sums), and eigenvalues of small
symmetric matrices.

The eigen-decomposition is Jacobi's method with a fixed number of sweeps, written on lanes: LAPACK under
`vmap` costs microseconds per 5 x 5 matrix. Each round of a sweep rotates disjoint pairs at once (round-robin
order, so that one loop body serves all rounds), and 2 x 2 takes one exact rotation.

Annotations show the lane form (`f.lanes`, last axis over chains); the functions themselves take one chain.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from .batching import batch_last
from .symmetric import diagonal_lanes, matmul_lanes, matvec_lanes, matvec_transposed_lanes, take


def sweeps(size: int) -> int:
    """Sweeps that make float64 matrices of this size (up to 100) diagonal to rounding: measured, plus one or more."""
    return min(4 + (size + 1) // 3, 14)


def _rotate(a: Array, vectors: Array, half: int) -> tuple[Array, Array]:
    """Rotate the pairs (i, half + i) of a symmetric matrix so that their off-diagonal entries vanish."""
    i = np.arange(half)
    low, high, off = a[i, i], a[half + i, half + i], a[i, half + i]
    nonzero = off != 0
    tau = (high - low) / (2.0 * jnp.where(nonzero, off, jnp.ones_like(off)))
    sign = jnp.where(tau < 0, -jnp.ones_like(tau), jnp.ones_like(tau))
    tangent = jnp.where(nonzero, sign / (jnp.abs(tau) + jnp.sqrt(1.0 + tau * tau)), jnp.zeros_like(off))
    cosine = lax.rsqrt(1.0 + tangent * tangent)
    sine = tangent * cosine

    def columns(x):
        c, s = cosine[None], sine[None]
        first, second = x[:, :half], x[:, half:]
        return jnp.concatenate([c * first - s * second, s * first + c * second], axis=1)

    a = columns(jnp.swapaxes(columns(a), 0, 1))
    return a, columns(vectors)


def _jacobi(a: Array) -> tuple[Array, Array]:
    size = a.shape[0]
    half = (size + 1) // 2
    identity = jnp.broadcast_to(jnp.eye(size, dtype=a.dtype)[..., None], a.shape)
    if size == 1:
        return a[0], identity
    if size == 2:
        a, vectors = _rotate(a, identity, 1)
        return jnp.stack([a[0, 0], a[1, 1]]), vectors
    padding = ((0, 2 * half - size), (0, 2 * half - size), (0, 0))
    a = jnp.pad(a, padding)
    vectors = jnp.broadcast_to(jnp.eye(2 * half, dtype=a.dtype)[..., None], a.shape)
    # round robin: seat 0 stays, the others move on by one; after 2 half - 1 rounds all are back
    seats = np.arange(2 * half)
    top, bottom = seats[:half], seats[half:]
    order = np.concatenate([top[:1], bottom[:1], top[1:-1], bottom[1:], top[-1:]])

    def round_(_, carry):
        a, vectors = _rotate(*carry, half)
        return a[order][:, order], vectors[:, order]

    a, vectors = lax.fori_loop(0, sweeps(size) * (2 * half - 1), round_, (a, vectors))
    i = np.arange(size)
    return a[i, i], vectors[:size, :size]


@batch_last
def eigh_jacobi(a: Float[Array, "M M B"]) -> tuple[Float[Array, "M B"], Float[Array, "M M B"]]:
    """Eigenvalues `[m]` (not sorted) and eigenvectors (columns, `[m, m]`) of a symmetric matrix.

    Args:
        a: symmetric matrix `[m, m]`, m up to about 100 for full accuracy.
    """
    return _jacobi(a)


@batch_last
def solve_symmetric(a: Float[Array, "M M B"], b: Float[Array, "M B"]) -> Float[Array, "M B"]:
    """Solution x `[m]` of a x = b for a symmetric matrix that need not be definite; infinite where it is singular."""
    values, vectors = _jacobi(a)
    return matvec_lanes(vectors, matvec_transposed_lanes(vectors, b) / values)


@batch_last
def square_root(a: Float[Array, "M M B"]) -> Float[Array, "M M B"]:
    """Symmetric square root `[m, m]` of a positive semi-definite matrix (negative eigenvalues, rounding, are 0)."""
    values, vectors = _jacobi(a)
    scaled = vectors * jnp.sqrt(jnp.maximum(values, jnp.zeros_like(values)))[None]
    return matmul_lanes(scaled, jnp.swapaxes(vectors, 0, 1))


def _smallest_pivot(a: Array) -> Array:
    """Smallest pivot of Gaussian elimination, positive exactly when the matrix is positive definite."""

    def pivot(k, carry):
        x, smallest = carry
        column = take(x, k, 1)
        d = take(column, k, 0)
        safe = jnp.where(d > 0, d, jnp.ones_like(d))
        return x - column[:, None] * column[None] / safe[None, None], jnp.minimum(smallest, d)

    infinite = jnp.full_like(a[0, 0], jnp.inf)
    return lax.fori_loop(0, a.shape[0], pivot, (a, infinite))[1]


@batch_last
def clip_eigenvalues(a: Float[Array, "M M B"], floor: Float[Array, " B"]) -> Float[Array, "M M B"]:
    """Raise the eigenvalues of a symmetric matrix that lie under `floor` to it.

    A matrix without such eigenvalues comes back bit for bit. Applied to a whole moment matrix this also moves
    its known entry n (docs/formulas.md#consistent-sums): `clip_schur` does not.

    Args:
        a: symmetric matrix `[m, m]`.
        floor: smallest eigenvalue allowed, in the units of `a`, >= 0 `[]`.
    """
    below = floor[None, None] * jnp.eye(a.shape[0], dtype=a.dtype)[..., None]
    broken = ~(_smallest_pivot(a - below) > 0)

    def correct(_):
        values, vectors = _jacobi(a)
        lift = jnp.maximum(floor[None] - values, jnp.zeros_like(values))
        change = matmul_lanes(vectors * lift[None], jnp.swapaxes(vectors, 0, 1))
        # by the chain's own test, so that its result does not depend on the other chains
        return jnp.where(broken[None, None], change, jnp.zeros_like(change))

    if a.shape[0] <= 2:
        return a + correct(None)
    return a + lax.cond(jnp.any(broken), correct, lambda _: jnp.zeros_like(a), None)


@batch_last
def clip_schur(moments: Float[Array, "M M B"], floor: Float[Array, " B"]) -> Float[Array, "M M B"]:
    """Make [[n, s'], [s, R]] positive semi-definite, keeping the count n and the first sums s.

    The centred scatter R - s s'/n (the Schur complement of n) has its eigenvalues clipped
    (docs/formulas.md#consistent-sums).

    Args:
        moments: moment matrix of (1, x, y) `[m, m]`, sums or means per record, first entry > 0.
        floor: smallest eigenvalue of the centred scatter, in the units of `moments`, >= 0 `[]`.

    Returns:
        Moment matrix `[m, m]`; bit for bit the argument when nothing had to be clipped.
    """
    first = moments[0, 1:]
    scatter = moments[1:, 1:] - first[:, None] * first[None] / moments[0, 0][None, None]
    change = clip_eigenvalues.lanes(scatter, floor) - scatter
    return moments + jnp.pad(change, ((1, 0), (1, 0), (0, 0)))


@batch_last
def semidefinite_factor(a: Float[Array, "M M B"]) -> Float[Array, "M M B"]:
    """Factor F with F F' = a for a positive semi-definite matrix, singular ones included
    (docs/formulas.md#singular-counts).

    Cholesky with the largest remaining diagonal entry as pivot: without the exchange a small pivot that is mostly
    rounding blows up the rest of its column. F is triangular up to the order of its rows.

    Args:
        a: positive semi-definite matrix `[m, m]` (multinomial covariances, for example).
    """
    size = a.shape[0]
    i = jnp.arange(size, dtype=jnp.int32)[:, None]
    smallest = size * jnp.finfo(a.dtype).eps * jnp.max(diagonal_lanes(a), axis=0)

    def pivot(k, carry):
        rest, factor = carry
        left = diagonal_lanes(rest)
        chosen = (i == jnp.argmax(left, axis=0)[None].astype(jnp.int32)).astype(a.dtype)
        column, d = matvec_lanes(rest, chosen), jnp.max(left, axis=0)
        keep = d > smallest
        inverse = jnp.where(keep, lax.rsqrt(jnp.where(keep, d, jnp.ones_like(d))), jnp.zeros_like(d))
        column = column * inverse[None]
        factor = jnp.where(i[None] == k, column[:, None], factor)
        return rest - column[:, None] * column[None], factor

    return lax.fori_loop(0, size, pivot, (a, jnp.zeros_like(a)))[1]
