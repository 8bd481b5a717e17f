"""Wishart and inverse Wishart: densities, draws, and the proposal of a Metropolis-Hastings move
(docs/formulas.md#wishart-densities, #wishart-proposal).

W(V, k): scale V, k > d - 1 degrees of freedom, mean k V; the sum of k products x x' with x ~ N(0, V) has it.
InvWishart(psi, nu): the inverse of a W(psi^{-1}, nu) matrix; in one dimension InvGamma(nu / 2, psi / 2).

Draws are Bartlett's: A lower triangular with A_ii^2 ~ chi^2(k - i), i = 0..d-1, and standard normals below has
A A' ~ W(I, k). Everything costs O(d^3). Chains keep the lower Cholesky factor of their matrix: a proposal multiplies
it by a triangle, so that no factorisation is needed inside the move.

Annotations show the lane form (`f.lanes`, last axis over chains); the functions themselves take one chain.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from .batching import batch_last
from .random import chi_square, lane_normals, lane_split
from .symmetric import (
    cholesky,
    inverse_cholesky,
    lower_inverse,
    lower_triangle_lanes,
    matmul_lanes,
    sweep,
    triangle_places,
)


class InverseWishartDraw(NamedTuple):
    """A draw `[d, d]`, its lower Cholesky factor F `[d, d]`, and F^{-1} `[d, d]`."""

    matrix: Array
    factor: Array
    inverse_factor: Array


class WishartProposal(NamedTuple):
    """A proposed matrix S' `[d, d]`, its lower Cholesky factor, log|S'| - log|S| and log q(S | S') - log q(S' | S)."""

    matrix: Array
    factor: Array
    log_det_change: Array
    log_ratio: Array


def _log_multigamma(a: Float[Array, " B"], d: int) -> Float[Array, " B"]:
    terms = [jax.scipy.special.gammaln(a - 0.5 * i) for i in range(d)]
    return 0.25 * d * (d - 1) * math.log(math.pi) + sum(terms[1:], terms[0])


def _outside(value: Float[Array, " B"], log_det: Float[Array, " B"], dof: Float[Array, " B"], d: int):
    """Minus infinity where the matrix is not positive definite, NaN where the degrees of freedom are too few."""
    value = jnp.where(jnp.isfinite(log_det), value, jnp.full_like(value, -jnp.inf))
    return jnp.where(dof > d - 1, value, jnp.full_like(value, jnp.nan))


@batch_last
def log_density(x: Float[Array, "D D B"], scale: Float[Array, "D D B"], dof: Float[Array, " B"]) -> Float[Array, " B"]:
    """Log density of W(scale, dof) at x, normalised.

    Args:
        x: symmetric matrix `[d, d]`; one that is not positive definite has density 0.
        scale: positive definite V `[d, d]`; the mean is dof V.
        dof: degrees of freedom `[]`, more than d - 1 (else NaN).
    """
    d = x.shape[0]
    zero = jnp.zeros_like(x[0])
    log_det, _, _ = sweep.lanes(x, zero)
    log_det_scale, inverse, _ = sweep.lanes(scale, zero)
    value = 0.5 * ((dof - (d + 1.0)) * log_det - (inverse * x).sum((0, 1)) - dof * log_det_scale)
    return _outside(value - 0.5 * d * math.log(2.0) * dof - _log_multigamma(0.5 * dof, d), log_det, dof, d)


@batch_last
def inverse_log_density(
    x: Float[Array, "D D B"], psi: Float[Array, "D D B"], nu: Float[Array, " B"]
) -> Float[Array, " B"]:
    """Log density of InvWishart(psi, nu) at x, normalised (docs/formulas.md#wishart-densities; arguments as in
    `log_density`).

    For nu > d + 1 the mean is psi / (nu - d - 1).
    """
    d = x.shape[0]
    zero = jnp.zeros_like(x[0])
    log_det, inverse, _ = sweep.lanes(x, zero)
    log_det_psi, _, _ = sweep.lanes(psi, zero)
    value = 0.5 * (nu * log_det_psi - (nu + (d + 1.0)) * log_det - (inverse * psi).sum((0, 1)))
    return _outside(value - 0.5 * d * math.log(2.0) * nu - _log_multigamma(0.5 * nu, d), log_det, nu, d)


def degrees_of_freedom_lanes(dof: Float[Array, "*S B"], d: int, reverse: bool = False) -> Float[Array, "D *S B"]:
    """Degrees of freedom dof, dof - 1, ..., dof - d + 1 of a Bartlett diagonal `[d]`.

    reverse: dof - d + 1 first, for the factorisation T' T that `inverse_draw_from` uses.
    """
    steps = jnp.arange(d, dtype=dof.dtype)
    steps = steps[::-1] if reverse else steps
    return dof[None] - steps.reshape(d, *([1] * dof.ndim))


@batch_last
def draw_from(
    scale_factor: Float[Array, "D D B"], chi_squares: Float[Array, "D B"], normals: Float[Array, "M B"]
) -> Float[Array, "D D B"]:
    """Lower Cholesky factor of a W(scale, dof) draw, from numbers drawn beforehand.

    Args:
        scale_factor: lower Cholesky factor of the scale `[d, d]`.
        chi_squares: chi-square draws with dof, dof - 1, ..., dof - d + 1 degrees of freedom `[d]`.
        normals: standard normals `[d (d - 1) / 2]`.
    """
    return matmul_lanes(scale_factor, lower_triangle_lanes(jnp.sqrt(chi_squares), normals))


@batch_last
def draw(key: Key[Array, " B"], scale: Float[Array, "D D B"], dof: Float[Array, " B"]) -> Float[Array, "D D B"]:
    """Draw a matrix from W(scale, dof): scale `[d, d]`, dof `[]` > d - 1 (else NaN)."""
    d = scale.shape[0]
    chi_squares, normals = _bartlett(key, dof, d, False)
    root = draw_from.lanes(cholesky.lanes(scale), chi_squares, normals)
    return matmul_lanes(root, jnp.swapaxes(root, 0, 1))


def _bartlett(key, dof, d: int, reverse: bool):
    keys = lane_split(key, 2)
    chi_squares = chi_square.lanes(keys[0], degrees_of_freedom_lanes(dof, d, reverse))
    return chi_squares, lane_normals(keys[1], (d * (d - 1) // 2,), dof.dtype)


@batch_last
def inverse_draw_from(
    psi: Float[Array, "D D B"], chi_squares: Float[Array, "D B"], normals: Float[Array, "M B"]
) -> InverseWishartDraw:
    """Draw from InvWishart(psi, nu), from numbers drawn beforehand.

    With psi = C C' and T lower triangular, T' T ~ W(I, nu), F = C T^{-1} is the Cholesky factor of the draw.

    Args:
        psi: positive definite `[d, d]`.
        chi_squares: chi-square draws with nu - d + 1, ..., nu degrees of freedom `[d]`.
        normals: standard normals `[d (d - 1) / 2]`.
    """
    inverse_factor = matmul_lanes(lower_triangle_lanes(jnp.sqrt(chi_squares), normals), inverse_cholesky.lanes(psi))
    root = lower_inverse.lanes(inverse_factor)
    return InverseWishartDraw(matmul_lanes(root, jnp.swapaxes(root, 0, 1)), root, inverse_factor)


@batch_last
def inverse_draw(key: Key[Array, " B"], psi: Float[Array, "D D B"], nu: Float[Array, " B"]) -> InverseWishartDraw:
    """Draw from InvWishart(psi, nu): psi `[d, d]`, nu `[]` > d - 1 (else NaN)."""
    return inverse_draw_from.lanes(psi, *_bartlett(key, nu, psi.shape[0], True))


def _sinh_minus(v: Array) -> Array:
    """sinh(v) - v without cancellation."""
    square = v * v
    series = jnp.ones_like(v)
    for k in (10, 8, 6, 4):
        series = 1.0 + square * series / (k * (k + 1.0))
    small = jnp.abs(v) < 1.0
    safe = jnp.where(small, jnp.ones_like(v), v)
    return jnp.where(small, v * square / 6.0 * series, jnp.sinh(safe) - safe)


@batch_last
def propose_from(
    factor: Float[Array, "D D B"],
    alpha: Float[Array, " B"],
    chi_squares: Float[Array, "D B"],
    normals: Float[Array, "M B"],
) -> WishartProposal:
    """Propose S' ~ W(S / alpha, alpha), mean S, from numbers drawn beforehand.

    With S = L L' and B = A / sqrt(alpha), S' = (L B)(L B)', and the ratio of docs/formulas.md#wishart-proposal depends
    on B alone: log q(S | S') - log q(S' | S) = sum_i [alpha (sinh 2 u_i - 2 u_i) + (d + 1) u_i]
    + (alpha / 2)(sum of squares below the diagonal of B, minus those of B^{-1}), u_i = log B_ii,
    where nothing large cancels, so that float32 serves any alpha.

    Args:
        factor: lower Cholesky factor L of the current matrix `[d, d]`.
        alpha: degrees of freedom `[]`, more than d - 1; the larger, the shorter the step.
        chi_squares: chi-square draws with alpha, alpha - 1, ..., alpha - d + 1 degrees of freedom `[d]`.
        normals: standard normals `[d (d - 1) / 2]`.
    """
    d = factor.shape[0]
    ratio = chi_squares / alpha[None]
    step = lower_triangle_lanes(jnp.sqrt(ratio), normals / jnp.sqrt(alpha)[None])
    u = 0.5 * jnp.log(ratio)
    log_ratio = alpha * _sinh_minus(2.0 * u).sum(0) + (d + 1.0) * u.sum(0)
    if d > 1:
        below = jnp.asarray(triangle_places(d)[1], step.dtype)[..., None]
        back = lower_inverse.lanes(step)
        log_ratio = log_ratio + 0.5 * alpha * (below * (step - back) * (step + back)).sum((0, 1))
    root = matmul_lanes(factor, step)
    return WishartProposal(matmul_lanes(root, jnp.swapaxes(root, 0, 1)), root, 2.0 * u.sum(0), log_ratio)


@batch_last
def propose(key: Key[Array, " B"], factor: Float[Array, "D D B"], alpha: Float[Array, " B"]) -> WishartProposal:
    """Propose S' ~ W(S / alpha, alpha) (arguments as in `propose_from`)."""
    return propose_from.lanes(factor, alpha, *_bartlett(key, alpha, factor.shape[0], False))


def acceptance(log_ratio: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """Metropolis' acceptance probability: 0 where the ratio is NaN."""
    return jnp.where(jnp.isnan(log_ratio), jnp.zeros_like(log_ratio), jnp.exp(jnp.minimum(log_ratio, 0.0)))


def adapt_alpha(
    alpha: Float[Array, "*B"], acceptance: Float[Array, "*B"], gain: Float[Array, ""], d: int, target: float = 0.2
) -> Float[Array, "*B"]:
    """Robbins-Monro step for the degrees of freedom of the proposal (Andrieu and Thoms 2008, algorithm 4).

    log(alpha - d + 1) moves by gain (target - acceptance), so that alpha stays above d - 1; the excess is kept within
    [1, 1e12]. Adapt during warm-up only: a chain that adapts for ever needs a gain that vanishes.

    Args:
        alpha, acceptance: of each chain, last step's.
        gain: positive step of the Robbins-Monro iteration `[]`.
        d: size of the matrix; target: acceptance rate aimed at.
    """
    excess = (alpha - (d - 1.0)) * jnp.exp(gain * (target - acceptance))
    return jnp.clip(excess, 1.0, 1e12) + (d - 1.0)
