"""Sums of every party's records, released or simulated, per record and in common units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from dpjax.mechanisms import Mechanism, mechanism_named
from dpjax.releases.parties import Parties

#: Smallest eigenvalue of an estimated correlation matrix, and smallest variance beside the largest one.
FLOOR = 1e-5


@dataclass(frozen=True)
class Party:
    """The released sums of one party, per record and in common units.

    Args:
        n: number of records.
        entries: sums per record `[d]`.
        noise: the covariance of their noise `[d, d]`.
        turn: map `[d, D]` from independent noise to them.
        scale: of that noise `[D]`, per record.
        law: of that noise.
        kept: places of the d entries among all D.
    """

    n: float
    entries: Float64[np.ndarray, " d"]
    noise: Float64[np.ndarray, "d d"]
    turn: Float64[np.ndarray, "d D"]
    scale: Float64[np.ndarray, " D"]
    law: Mechanism
    kept: Any


def entry_places(q: int, intercept: bool) -> tuple[np.ndarray, np.ndarray]:
    """Places in (1, x, y) of the factors of every entry."""
    from dpjax.kernels.order import index_pairs

    a, b = np.array([pair for pair in index_pairs(q - 1) if intercept or pair[0]]).T
    return a, b


def party_of(parties: Parties, j: int, places) -> Party:
    """Products of (1, x, y) in common units, v = half v' + centre, are linear in those in the party's own units."""
    a, b = places
    n, size = float(parties.records[j]), len(a)
    centre, half = np.r_[0.0, parties.centre[j]], np.r_[1.0, parties.half[j]]
    number = {pair: k for k, pair in enumerate(zip(a.tolist(), b.tolist(), strict=True))}
    turn, constant = np.zeros((size, size)), np.zeros(size)
    for (first, second), k in number.items():
        turn[k, k] += half[first] * half[second]
        if first == 0:  # the unit feature
            constant[k] = centre[second]
        elif centre.any():
            turn[k, number[0, first]] += half[first] * centre[second]
            turn[k, number[0, second]] += centre[first] * half[second]
            constant[k] = centre[first] * centre[second]
    kept = np.flatnonzero(parties.present[j] > 0)
    turn = turn[kept]
    scale = parties.scale[j] / n
    law = mechanism_named(parties.mechanisms[j])
    variance = scale**2 * law.variance * (parties.present[j] > 0)
    entries = turn @ (parties.z[j] / n) + constant[kept]
    return Party(n, entries, (turn * variance) @ turn.T, turn, scale, law, kept)


def moment_matrix(entries: np.ndarray, places, q: int) -> np.ndarray:
    """Second moments of (1, x, y) `[q + 1, q + 1]`, 0 where an entry is missing."""
    a, b = places
    moments = np.zeros((q + 1, q + 1))
    moments[a, b] = moments[b, a] = entries
    moments[0, 0] = 1.0
    return moments


def covariance_near(moments: np.ndarray) -> np.ndarray:
    """The moments `[..., q + 1, q + 1]` with the covariance of (x, y) made positive definite."""
    mean = moments[..., 0, 1:]
    product = mean[..., :, None] * mean[..., None, :]
    covariance = moments[..., 1:, 1:] - product
    variance = np.diagonal(covariance, axis1=-2, axis2=-1)
    top = np.maximum(np.maximum(variance.max(-1), FLOOR * (mean * mean).max(-1)), 1e-12)
    size = np.sqrt(np.maximum(variance, FLOOR * top[..., None]))
    outer = size[..., :, None] * size[..., None, :]
    values, vectors = np.linalg.eigh(covariance / outer)
    near = outer * ((vectors * np.maximum(values, FLOOR)[..., None, :]) @ np.swapaxes(vectors, -1, -2))
    out = moments.copy()
    out[..., 1:, 1:] = near + product
    return out


def product_covariance(moments: np.ndarray, places) -> np.ndarray:
    """Covariance of the products of one normal record `[..., D, D]`."""
    a, b = places
    mean = moments[..., 0]
    c = moments - mean[..., :, None] * mean[..., None, :]
    four = lambda x, y: c[..., x[:, None], y[None, :]]
    m = lambda x, y: mean[..., x][..., :, None] * mean[..., y][..., None, :]
    return (
        four(a, a) * four(b, b) + four(a, b) * four(b, a)
        + m(a, a) * four(b, b) + m(a, b) * four(b, a) + m(b, a) * four(a, b) + m(b, b) * four(a, a)
    )  # fmt: skip


def simulated_entries(rng, count: int, party: Party, moments: np.ndarray, places, intercept: bool) -> np.ndarray:
    """Released entries per record minus their means `[count, d]`, of normal records with these moments."""
    q, n = len(moments) - 1, party.n
    mean = moments[0, 1:]
    factor = np.linalg.cholesky(moments[1:, 1:] - np.outer(mean, mean))
    dof = n - float(intercept) - np.arange(q)
    bartlett = np.zeros((count, q, q))
    i, k = np.tril_indices(q, -1)
    bartlett[:, i, k] = rng.standard_normal((count, len(i)))
    bartlett[:, range(q), range(q)] = np.sqrt(rng.chisquare(np.maximum(dof, 1e-300), (count, q))) * (dof > 0)
    bartlett[:, :, dof <= 0] = 0.0  # fewer records than variables: singular
    half = factor @ bartlett
    full = np.zeros((count, q + 1, q + 1))
    full[:, 1:, 1:] = half @ np.swapaxes(half, 1, 2) / n
    if intercept:
        average = mean + rng.standard_normal((count, q)) @ factor.T / np.sqrt(n)
        full[:, 0, 1:] = average
        full[:, 1:, 1:] += average[:, :, None] * average[:, None]
    a, b = places
    noise = party.law.density.sample(rng, 1.0, (count, len(party.scale))) * party.scale
    return full[:, a, b][:, party.kept] - moments[a, b][party.kept] + noise @ party.turn.T


def moments_of(party: Party, places, q: int) -> np.ndarray:
    entries = np.zeros(len(places[0]))
    entries[party.kept] = party.entries
    return moment_matrix(entries, places, q)
