"""The metric of HMC over the sums of several parties (`party_hmc`): Gauss-Newton, an arrow, factored party by party.

Metric: the prior's precision plus J' J with J the derivative of the sums in units of the noise, averaged over places
that the chains have been to; an entry whose noise has long tails counts less the further out it is. A party's sums
depend on its own coordinates a_j (latent variables, and the law of its features where that is its own) and the shared
parameters only, so that the metric is an arrow,
    [ K    C_1 C_2 ... ]        B_j = Lambda_j + J_aj' J_aj,  C_j = J_j' J_aj,  K = Lambda_0 + sum_j J_j' J_j,
    [ C_1' B_1         ]
    [ C_2'     B_2     ]
and is factored party by party: R_j = chol(B_j)^{-1}, Q_j = R_j C_j', R = chol(K - sum_j Q_j' Q_j)^{-1}. The metric is
learned in warm-up and then fixed; a step takes products with these factors only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from dpjax.engine.model import Observed
from dpjax.kernels.symmetric import (
    SWEEP_UP_TO,
    gram_lanes,
    inverse_cholesky,
    matmul_lanes,
    matvec_lanes,
    matvec_transposed_lanes,
)

#: Directions of a derivative that are taken side by side.
SIDE_BY_SIDE = 64


class Arrow(NamedTuple):
    """Factors of the metric, of all chains of a problem: R `[P, P, T]`, R_j `[D, D, J * T]`, Q_j `[D, P, J * T]`."""

    parameters: Float[Array, "P P T"]
    latent: Float[Array, "D D JT"]
    across: Float[Array, "D P JT"]


def factor_lanes(model: Any, inner, latent, across) -> Arrow:
    """The factors of the metric with K = inner `[P, P, B]`, B_j = latent `[D, D, J * B]`, C_j' = across
    `[D, P, J * B]`."""
    r = inverse_cholesky.lanes(latent)
    q = matmul_lanes(r, across)
    schur = inner - model.over_parties(gram_lanes(q, q))
    return Arrow(inverse_cholesky.lanes(schur), r, q)


def _times(m: Float[Array, "R C JT"], x: Float[Array, "N JCT"], parties: int, transposed: bool = False):
    """`m x`, or `m' x`, with one matrix for all chains of a problem (and party)."""
    lanes = m.shape[-1] // parties
    matrix = m.reshape(*m.shape[:2], parties, lanes)
    vector = x.reshape(x.shape[0], parties, -1, lanes)
    if max(m.shape[:2]) > SWEEP_UP_TO:
        letters = "krjt,kjct->rjct" if transposed else "rkjt,kjct->rjct"
        out = jnp.einsum(letters, matrix, vector, precision=lax.Precision.HIGHEST)
    else:
        product = matvec_transposed_lanes if transposed else matvec_lanes
        out = product(matrix[:, :, :, None], vector)
    return out.reshape(out.shape[0], -1)


def velocity_lanes(model: Any, arrow: Arrow, u):
    """M^{-1/2} u: a step in position from one in whitened coordinates `[P, B]`."""
    parties = model.parties
    first = _times(arrow.parameters, u[: model.shared_dim], 1, transposed=True)
    own = model.by_party(u[model.shared_dim :], model.own_dim)
    own = own - _times(arrow.across, model.to_parties(first), parties)
    return jnp.concatenate([first, model.stacked(_times(arrow.latent, own, parties, transposed=True))])


def force_lanes(model: Any, arrow: Arrow, gradient):
    """M^{-1/2}' g: the gradient in whitened coordinates `[P, B]`."""
    parties = model.parties
    own = _times(arrow.latent, model.by_party(gradient[model.shared_dim :], model.own_dim), parties)
    first = gradient[: model.shared_dim] - model.over_parties(_times(arrow.across, own, parties, transposed=True))
    return jnp.concatenate([_times(arrow.parameters, first, 1), model.stacked(own)])


def curvature_lanes(model: Any, observed: Observed, position, wider=None, tails=False):
    """J' J of the sums in units of the noise: K - Lambda_0, B_j - I and C_j' (see `Arrow`)."""
    work, dim, size = observed.root_n_over_b.dtype, model.shared_dim, model.own_dim
    x = position.astype(work)
    scale = model.information_lanes(x, observed)
    if wider is not None:
        scale = scale / model.to_parties(wider)[None]
    elif tails:
        missed = model.noise_lanes(x, observed).astype(work)
        scale = scale * model.released_lanes(observed)[2].bend(missed)
    function = lambda y: model.sums_lanes(y) * scale

    def directions(tangents):
        """Derivatives along `[N, P]` directions: `[D, N, J * B]`."""
        along = lambda t: jax.jvp(function, (x,), (jnp.broadcast_to(t[:, None], x.shape),))[1]
        if tangents.shape[0] <= SIDE_BY_SIDE:
            out = jax.vmap(along)(tangents)
        else:
            out = lax.map(along, tangents, batch_size=SIDE_BY_SIDE)
        return jnp.swapaxes(out, 0, 1)

    by_parameters = directions(jnp.eye(dim, model.dim, dtype=work))
    # latent variable i of every party at once: a party's sums depend on its own only
    every = np.tile(np.eye(size), (1, model.parties))
    by_latent = directions(jnp.asarray(np.concatenate([np.zeros((size, dim)), every], 1), work))
    inner = model.over_parties(gram_lanes(by_parameters, by_parameters))
    return inner, gram_lanes(by_latent, by_latent), gram_lanes(by_latent, by_parameters)
