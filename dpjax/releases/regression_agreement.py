"""Whether one (theta, sigma2) makes the residual moments of every party 0, whatever its features' law."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpjax.releases.overidentified import p_value, quadratic, whitened
from dpjax.releases.party_records import Party, covariance_near, moments_of, simulated_entries

#: Steps of the estimate.
STEPS = 30


def regression_p_value(rng, parties: list[Party], places, q: int) -> float:
    intercept = bool((places[0] == 0).any())
    start = 0 if intercept else 1
    moments = [moments_of(party, places, q) for party in parties]
    theta, sigma2 = _least_squares(parties, moments, start)
    for one in moments:
        one[:q, :q] = covariance_near(one[:q, :q])
    best: Any = None
    for _ in range(STEPS):
        maps, deviations, covariances, designs = [], [], [], []
        for party, near in zip(parties, moments, strict=True):
            gradient, value, design = _residual_moments(party, places, q, theta, sigma2, start)
            k = len(theta)
            sampling = np.zeros((k + 1, k + 1))
            sampling[:k, :k] = sigma2 * near[start:q, start:q]
            sampling[k, k] = 2.0 * sigma2**2
            rows = slice(None, len(value))
            maps.append(gradient)
            deviations.append(value)
            covariances.append(sampling[rows, rows] / party.n + gradient @ party.noise @ gradient.T)
            designs.append(design)
        roots, basis = whitened(covariances, designs)
        white = np.concatenate([root @ value for root, value in zip(roots, deviations, strict=True)])
        statistic = float(white @ white)
        settled = best is not None and abs(best[0] - statistic) < 1e-6 * (1.0 + statistic)
        if best is None or statistic < best[0]:
            best = statistic, theta, sigma2, maps, roots, basis, deviations
        if settled:
            break
        stacked = np.concatenate([root @ design for root, design in zip(roots, designs, strict=True)])
        # much noise leaves directions of theta open: no step is longer than what the sums can tell
        step = np.linalg.lstsq(stacked, -white, rcond=1e-6)[0]
        theta = theta + step[:-1]
        sigma2 = float(np.clip(sigma2 + step[-1], 0.3 * sigma2, 3.0 * sigma2))
    _, theta, sigma2, maps, roots, basis, deviations = best
    observed = quadratic([value[None] for value in deviations], roots, basis)[0]
    models = [covariance_near(_with_regression(near, theta, sigma2, start)) for near in moments]

    def simulate(count: int) -> np.ndarray:
        drawn = [
            simulated_entries(rng, count, party, model, places, intercept) @ gradient.T
            for party, model, gradient in zip(parties, models, maps, strict=True)
        ]
        return quadratic(drawn, roots, basis)

    return p_value(observed, simulate, len(places[0]) * len(parties))


def _least_squares(parties: list[Party], moments, start: int) -> tuple[np.ndarray, float]:
    """Coefficients and residual variance of the parties' sums together, as released; q is the place of y."""
    weight = np.array([party.n for party in parties])
    gram = np.einsum("j,jab->ab", weight / weight.sum(), np.array(moments))
    x = gram[start:-1, start:-1]
    theta = np.linalg.solve(x + 1e-9 * np.trace(x) / len(x) * np.eye(len(x)), gram[start:-1, -1])
    b = np.r_[-theta, 1.0]
    rest = float(b @ gram[start:, start:] @ b)
    return theta, max(rest, 1e-3 * abs(float(gram[-1, -1])), 1e-12)


def _residual_moments(party: Party, places, q: int, theta, sigma2: float, start: int):
    """Derivative by the entries `[k (+ 1), d]`, value and derivative by (theta, sigma^2) of x~ e and e^2 - sigma^2; the
    last where y^2 is released."""
    a, b = places
    weights = np.zeros(q + 1)
    weights[start:q], weights[q] = -theta, 1.0
    rows = np.zeros((len(theta) + 1, len(a)))
    for k, i in enumerate(range(start, q)):  # x~_i e, by the products (a, b)
        rows[k] = np.where(a == i, weights[b], 0.0) + np.where((b == i) & (a != b), weights[a], 0.0)
    rows[-1] = weights[a] * weights[b] * np.where(a == b, 1.0, 2.0)
    squares = bool((party.kept == len(a) - 1).any())
    matrix = moments_of(party, places, q)
    first = matrix[start:q] @ weights
    residual = float(weights @ matrix @ weights)
    design = np.zeros((len(theta) + 1, len(theta) + 1))
    design[:-1, :-1] = -matrix[start:q, start:q]
    design[-1, :-1], design[-1, -1] = -2.0 * first, -1.0
    value = np.r_[first, residual - sigma2]
    count = len(theta) + (1 if squares else 0)
    return rows[:count][:, party.kept], value[:count], design[:count]


def _with_regression(moments: np.ndarray, theta, sigma2: float, start: int) -> np.ndarray:
    """The moments of x as they are, those of y by the regression."""
    out = moments.copy()
    x = moments[start:-1, start:-1]
    out[start:-1, -1] = out[-1, start:-1] = x @ theta
    out[-1, -1] = theta @ x @ theta + sigma2
    return out
