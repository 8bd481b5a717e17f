"""Transitions of Alparslan et al.'s samplers for the sums of several data holders (Alparslan et al. 2023, sections 4,
A, C.1; docs/formulas.md#several-data-holders, #consistent-sums).

Model: theta ~ N(m, P^{-1}), or N(m, sigma2 P^{-1}) given sigma2; sigma2 ~ InvGamma(a, b); Sigma_x ~ InvWishart(psi,
nu); and for each party, of n records x ~ N(0, Sigma_x), y | x ~ N(x' theta, sigma2), without an intercept,

    S = X'X ~ W(Sigma_x, n),  z = X'y | S ~ N(S theta, sigma2 S)  (Alparslan et al. 2023, proposition 3.1),

released as S^ = S + noise (upper triangle) and z^ = z + noise. z is integrated out: z^ ~ N(S theta, M) with
M = sigma2 S + diag(v) (docs/formulas.md#party-likelihood), v the variances of the noise (Alparslan et al. 2023:
sigma_z^2; with Laplace noise of scale b the latent w b^2 of its scale mixture). An entry of z^ that was not released
has v = infinity: its row and column of M are replaced by those of I and its residual by 0.

Every function is pure and takes plain arrays of one chain, and of one party where it says so; `jax.vmap` maps over
chains, and over parties. Its annotations show the lane form (`f.lanes`, last axis over lanes), where lanes may be
parties and chains together. All costs O(p^3), but for the normal approximation of the sums (`clt_draw`, O(p^6)).
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .batching import batch_last
from .coordinates import record_factor_lanes
from .marginal import add_diagonal_lanes
from .order import origin_places
from .psd import clip_eigenvalues
from .symmetric import (
    diagonal_lanes,
    gram_lanes,
    inverse_cholesky,
    matmul_lanes,
    matvec_lanes,
    matvec_transposed_lanes,
    sweep,
)
from .wishart import WishartProposal


def symmetric_lanes(entries: Float[Array, "T B"], size: int) -> Float[Array, "M M B"]:
    """Symmetric matrix from the entries of its upper triangle, row by row."""
    rows, cols = np.triu_indices(size)
    index = np.zeros((size, size), np.int32)
    index[rows, cols] = index[cols, rows] = np.arange(len(rows))
    return entries[index]


# ---- z^ given S ------------------------------------------------------------------------------------------------
@batch_last
def cross_root(
    gram: Float[Array, "P P B"], sigma2: Float[Array, " B"], variance: Float[Array, "P B"], seen: Float[Array, "P B"]
) -> Float[Array, "P P B"]:
    """K with K' K = M^{-1}, M = sigma2 S + diag(v) the covariance of z^ of one party
    (docs/formulas.md#party-likelihood).

    Args:
        gram: S `[p, p]`; sigma2 `[]`; variance: v > 0 `[p]`; seen: 1 for released entries, 0 else `[p]`.
    """
    covariance = sigma2[None, None] * gram * seen[:, None] * seen[None]
    return inverse_cholesky.lanes(add_diagonal_lanes(covariance, jnp.where(seen > 0, variance, jnp.ones_like(seen))))


@batch_last
def cross_log_density(
    root: Float[Array, "P P B"],
    gram: Float[Array, "P P B"],
    theta: Float[Array, "P B"],
    cross: Float[Array, "P B"],
    seen: Float[Array, "P B"],
) -> Float[Array, " B"]:
    """log N(z^; S theta, M) of one party, without -(p / 2) log 2 pi.

    Args:
        root: from `cross_root`; gram: S `[p, p]`; theta `[p]`; cross: z^ `[p]`; seen: as there.
    """
    white = matvec_lanes(root, seen * (cross - matvec_lanes(gram, theta)))
    return jnp.log(diagonal_lanes(root)).sum(0) - 0.5 * (white * white).sum(0)


@batch_last
def coefficient_information(
    root: Float[Array, "P P B"], gram: Float[Array, "P P B"], cross: Float[Array, "P B"], seen: Float[Array, "P B"]
) -> tuple[Float[Array, "P P B"], Float[Array, "P B"]]:
    """What one party says about theta: S M^{-1} S `[p, p]` and S M^{-1} z^ `[p]` (Alparslan et al. 2023, eq 12;
    arguments as above)."""
    white = matmul_lanes(root, seen[:, None] * gram)
    return gram_lanes(white, white), matvec_transposed_lanes(white, matvec_lanes(root, seen * cross))


@batch_last
def coefficient_law(
    theta_mean: Float[Array, "P B"],
    theta_precision: Float[Array, "P P B"],
    information: Float[Array, "P P B"],
    linear: Float[Array, "P B"],
) -> tuple[Float[Array, "P B"], Float[Array, "P P B"]]:
    """Law of theta given S, sigma2 and z^ of all parties (Alparslan et al. 2023, eq 12): mean `[p]`, and R `[p, p]`
    with R' R its covariance, so that mean + R' u with u ~ N(0, I) is a draw.

    Args:
        theta_mean, theta_precision: of the prior given sigma2 `[p]`, `[p, p]`.
        information, linear: sums over parties of `coefficient_information`.
    """
    inverse = inverse_cholesky.lanes(theta_precision + information)
    white = matvec_lanes(inverse, matvec_lanes(theta_precision, theta_mean) + linear)
    return matvec_transposed_lanes(inverse, white), inverse


@batch_last
def log_prior_variance(
    sigma2: Float[Array, " B"],
    shape: Float[Array, " B"],
    scale: Float[Array, " B"],
    theta: Float[Array, "P B"],
    theta_mean: Float[Array, "P B"],
    theta_precision: Float[Array, "P P B"],
    tied: Float[Array, " B"],
) -> Float[Array, " B"]:
    """log InvGamma(sigma2; shape, scale), and where `tied` is 1 that of theta ~ N(mean, sigma2 precision^{-1}), up to
    a constant; theta ~ N(mean, precision^{-1}) (tied 0) does not depend on sigma2."""
    offset = theta - theta_mean
    half = 0.5 * (offset * matvec_lanes(theta_precision, offset)).sum(0)
    p = theta.shape[0]
    return -(shape + 1.0 + 0.5 * p * tied) * jnp.log(sigma2) - (scale + tied * half) / sigma2


@batch_last
def cross_noise_draw(
    gram: Float[Array, "P P B"],
    gram_factor: Float[Array, "P P B"],
    root: Float[Array, "P P B"],
    theta: Float[Array, "P B"],
    sigma2: Float[Array, " B"],
    scales: Float[Array, "P B"],
    noise_scale: Float[Array, "P B"],
    cross: Float[Array, "P B"],
    seen: Float[Array, "P B"],
    normals: Float[Array, "N B"],
) -> Float[Array, "P B"]:
    """Draw the noise e = z^ - z of one party given S, theta, sigma2 and its variances, by Matheron's rule
    (docs/formulas.md#laplace-mixture: new mixing variances follow from it).

    Args:
        gram, gram_factor: S and any factor of it `[p, p]`; root: from `cross_root` with v = w b^2.
        theta `[p]`; sigma2 `[]`; scales: w `[p]`; noise_scale: b `[p]`; cross: z^ `[p]`; seen: as there.
        normals: standard normals `[2 p]`.

    Returns:
        e `[p]`, in units of b.
    """
    p = theta.shape[0]
    variance = scales * noise_scale * noise_scale
    z = matvec_lanes(gram, theta) + jnp.sqrt(sigma2)[None] * matvec_lanes(gram_factor, normals[:p])
    noise = jnp.sqrt(variance) * normals[p:]
    gain = matvec_transposed_lanes(root, matvec_lanes(root, seen * (cross - z - noise)))
    noise = noise + variance * seen * gain
    return noise / noise_scale


# ---- S given S^ ------------------------------------------------------------------------------------------------
@batch_last
def gram_noise(
    gram: Float[Array, "P P B"],
    released: Float[Array, "P P B"],
    noise_scale: Float[Array, "P P B"],
    seen: Float[Array, "P P B"],
) -> Float[Array, "P P B"]:
    """Noise of one party's S^ given S, in units of its scale: each entry on or above the diagonal once
    (docs/formulas.md#party-triangle).

    Args:
        gram, released: S and S^ `[p, p]`; noise_scale: b or standard deviation `[p, p]`.
        seen: 1 for released entries on or above the diagonal, 0 else `[p, p]`.
    """
    return seen * (released - gram) / noise_scale


@batch_last
def gram_log_ratio(
    proposal: WishartProposal, gram: Float[Array, "P P B"], precision: Float[Array, "P P B"], n: Float[Array, " B"]
) -> Float[Array, " B"]:
    """log W(S'; Sigma_x, n) - log W(S; Sigma_x, n) of one party's proposal (docs/formulas.md#wishart-proposal: scale
    Sigma_x, n degrees of freedom), and the ratio of the proposal (docs/formulas.md#wishart-proposal).

    Args:
        proposal: from `kernels.wishart.propose`; gram: S `[p, p]`; precision: Sigma_x^{-1} `[p, p]`; n: records `[]`.
    """
    p = gram.shape[0]
    trace = (precision * (proposal.matrix - gram)).sum((0, 1))
    return 0.5 * (n - (p + 1.0)) * proposal.log_det_change - 0.5 * trace + proposal.log_ratio


@batch_last
def covariance_log_ratio(
    proposal: WishartProposal, precision: Float[Array, "P P B"], proposed_precision: Float[Array, "P P B"],
    psi: Float[Array, "P P B"], nu: Float[Array, " B"],
) -> Float[Array, " B"]:  # fmt: skip
    """log InvWishart(Sigma'; psi, nu) - log InvWishart(Sigma; psi, nu), and the ratio of the proposal
    (docs/formulas.md#wishart-proposal).

    Args:
        proposal: of Sigma_x, from `kernels.wishart.propose`; precision, proposed_precision: Sigma^{-1}, Sigma'^{-1}
            `[p, p]`; psi `[p, p]`, nu `[]`: of the prior.
    """
    trace = (psi * (proposed_precision - precision)).sum((0, 1))
    return -0.5 * (nu + (psi.shape[0] + 1.0)) * proposal.log_det_change - 0.5 * trace + proposal.log_ratio


# ---- all sums under the normal approximation (C.1) ---------------------------------------------------------------
@batch_last
def clt_moments(
    theta: Float[Array, "P B"], sigma2: Float[Array, " B"], covariance: Float[Array, "P P B"],
    factor: Float[Array, "P P B"],
) -> tuple[Float[Array, "Q Q B"], Float[Array, "Q Q B"]]:  # fmt: skip
    """Covariance C of a record (x, y) `[p + 1, p + 1]` and a factor G of it, from Sigma_x `[p, p]` and its factor."""
    last = matvec_transposed_lanes(factor, theta)
    xy = matvec_lanes(covariance, theta)
    yy = (last * last).sum(0) + sigma2
    top = jnp.concatenate([covariance, xy[:, None]], axis=1)
    c = jnp.concatenate([top, jnp.concatenate([xy, yy[None]])[None]])
    return c, record_factor_lanes(factor, last, jnp.sqrt(sigma2))


@batch_last
def clt_draw(
    c: Float[Array, "Q Q B"],
    g: Float[Array, "Q Q B"],
    n: Float[Array, " B"],
    variance: Float[Array, "D B"],
    seen: Float[Array, "D B"],
    z: Float[Array, "D B"],
    normals: Float[Array, "N B"],
) -> Float[Array, "D B"]:
    """Draw one party's sums given their release, the sums being N(n mu, n Sigma) (Alparslan et al. 2023, section C.1;
    docs/formulas.md#party-clt), by Matheron's rule.

    mu_ab = C_ab and Sigma_ab,cd = C_ac C_bd + C_ad C_bc: the moments of products of N(0, C).

    Args:
        c, g: from `clt_moments`; n: records `[]`.
        variance: of the noise `[D]`; seen: 1 for released entries `[D]`; z: released entries `[D]`.
        normals: standard normals `[2 D]`.
    """
    q = c.shape[0]
    a, b = origin_places(q - 1)
    size = len(a)
    ca, cb = c[a], c[b]
    moments = n[None, None] * (ca[:, a] * cb[:, b] + ca[:, b] * cb[:, a])
    h = symmetric_lanes(normals[:size], q) * jnp.asarray(1.0 + (np.sqrt(2.0) - 1.0) * np.eye(q), c.dtype)[..., None]
    deviation = matmul_lanes(matmul_lanes(g, h), jnp.swapaxes(g, 0, 1))[a, b]
    s = n[None] * c[a, b] + jnp.sqrt(n)[None] * deviation
    # in units of the noise, which keeps the diagonal at 1
    unit = jnp.sqrt(jnp.where(seen > 0, variance, jnp.ones_like(variance)))
    scaled = seen / unit
    misfit = scaled * (z - s) - seen * normals[size:]
    system = add_diagonal_lanes(scaled[:, None] * moments * scaled[None], jnp.ones_like(unit))
    gain = sweep.lanes(system, misfit)[2]
    return s + matvec_lanes(moments, scaled * gain)


@batch_last
def project_sums(s: Float[Array, "D B"]) -> Float[Array, "D B"]:
    """Nearest sums whose matrix [[S, z], [z', y'y]] is positive semi-definite (docs/formulas.md#consistent-sums; no
    entry of it is known)."""
    p = round((np.sqrt(8.0 * s.shape[0] + 1.0) - 1.0) / 2.0) - 1
    a, b = origin_places(p)
    position = np.zeros((p + 1, p + 1), np.int32)
    position[a, b] = position[b, a] = np.arange(len(a))
    return clip_eigenvalues.lanes(s[position], jnp.zeros_like(s[0]))[a, b]


def robbins_monro(index: Array, dtype) -> Float[Array, ""]:
    """Gain of adaptation at warm-up iteration `index`: 1 at first, 20 t^{-0.7} later."""
    t = index.astype(dtype) + 1.0
    return jnp.minimum(20.0 * t**-0.7, 1.0)


def accept_lanes(taken: Bool[Array, " B"], new: Array, old: Array) -> Array:
    """`new` in the lanes that take it."""
    return jnp.where(taken.reshape((1,) * (new.ndim - 1) + taken.shape), new, old)
