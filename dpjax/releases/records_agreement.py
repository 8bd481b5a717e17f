"""Whether all parties' released sums have common moments of (1, x, y)."""

from __future__ import annotations

import numpy as np

from dpjax.releases.overidentified import p_value, quadratic, whitened
from dpjax.releases.party_records import Party, covariance_near, product_covariance, simulated_entries

#: Steps of the estimate.
ROUNDS = 3
#: Up to so many records, and entries of one party, simulated sums are followed by estimates of their own.
FEW_RECORDS, FEW_ENTRIES = 200, 30


def records_p_value(rng, parties: list[Party], places, q: int, largest: float) -> float:
    intercept = bool((places[0] == 0).any())
    size = len(places[0])
    known = np.sum([np.isin(np.arange(size), party.kept) for party in parties], axis=0) > 0
    observed, moments, covariances = _common([party.entries[None] for party in parties], parties, places, q, largest)
    model = moments[0]
    roots, basis = whitened([v[0] for v in covariances], [np.eye(size)[party.kept][:, known] for party in parties])
    few = sum(party.n for party in parties) <= FEW_RECORDS and size <= FEW_ENTRIES

    def simulate(count: int) -> np.ndarray:
        drawn = [simulated_entries(rng, count, party, model, places, intercept) for party in parties]
        if not few:
            return quadratic(drawn, roots, basis)
        # the covariance that is estimated from few records is uncertain itself
        back = [d + model[places][party.kept] for d, party in zip(drawn, parties, strict=True)]
        return _common(back, parties, places, q, largest)[0]

    return p_value(observed[0], simulate, size * len(parties))


def _common(entries: list[np.ndarray], parties: list[Party], places, q: int, largest: float):
    """T `[N]` of released entries per record of every party `[N, d_j]`, the common moments' matrix, the V_j."""
    size = len(places[0])
    count = len(entries[0])
    weight, nu = np.zeros(size), np.zeros((count, size))
    for party, x in zip(parties, entries, strict=True):
        weight[party.kept] += party.n
        nu[:, party.kept] += party.n * x
    known = weight > 0
    nu = nu / np.maximum(weight, 1e-300)
    nu[:, ~known] = largest  # without y^2 anywhere: the most that its mean can be
    for _ in range(ROUNDS):
        moments = np.zeros((count, q + 1, q + 1))
        moments[:, places[0], places[1]] = moments[:, places[1], places[0]] = nu
        moments[:, 0, 0] = 1.0
        moments = covariance_near(moments)
        sampling = product_covariance(moments, places)
        information, linear, covariances = np.zeros((count, size, size)), np.zeros((count, size)), []
        total = np.zeros(count)
        for party, x in zip(parties, entries, strict=True):
            rows = np.ix_(range(count), party.kept, party.kept)
            covariances.append(sampling[rows] / party.n + party.noise)
            inverse = np.linalg.inv(covariances[-1])
            d = x - nu[:, party.kept]
            pulled = (inverse @ d[..., None])[..., 0]
            information[rows] += inverse
            linear[:, party.kept] += pulled
            total += (d * pulled).sum(1)
        step = np.linalg.solve(information[:, known][:, :, known], linear[:, known][..., None])[..., 0]
        statistic = total - (linear[:, known] * step).sum(1)
        nu[:, known] += step
    return statistic, moments, covariances
