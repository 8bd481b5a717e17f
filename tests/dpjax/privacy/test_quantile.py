"""Private bounds: OpenDP's accounting and law, the grid, and the composition in a release.

OpenDP's noise has no seed: every threshold below fails a correct build less than once in 10^6 runs.
"""

import math
import warnings
from collections import Counter

import numpy as np
import pytest
from scipy import integrate, stats

import dpjax
from dpjax.errors import InputError, PrivacyWarning
from dpjax.mechanisms import MECHANISMS
from dpjax.privacy import quantile
from dpjax.privacy.quantile import PrivateQuantile, find_bounds, quantile_measurement
from dpjax.releases.release import Release


def permute_and_flip(scores, scale):
    """Probabilities of the candidates: noise Exponential(1), the largest score / scale + noise wins."""
    s = np.asarray(scores) / scale
    found = []
    for i in range(len(s)):
        others = np.delete(s, i)
        density = lambda t, i=i, others=others: (
            math.exp(-t) * np.prod(np.clip(-np.expm1(-(t + s[i] - others)), 0, None))
        )
        found.append(integrate.quad(density, max(0.0, others.max() - s[i]), 80, limit=400)[0])
    return np.array(found)


def rank_scores(data, candidates, alpha):
    """Minus the rank error of each candidate (Smith 2011)."""
    below = np.array([np.sum(data < c) for c in candidates])
    equal = np.array([np.sum(data == c) for c in candidates])
    return -np.abs(below - alpha * (len(data) - equal))


@pytest.mark.slow
def test_law_of_a_private_quantile_against_its_exact_probabilities():
    data, candidates, epsilon, draws = np.array([1.0, 1, 2, 3, 9]), [0.0, 1.0, 2.0, 3.0, 4.0], 2.0, 10_000
    for alpha in (0.3, 0.975):
        measurement, spent = quantile_measurement(len(data), candidates, alpha, epsilon)
        assert spent == pytest.approx(epsilon, rel=1e-12) and spent <= epsilon
        seen = Counter(measurement(data.tolist()) for _ in range(draws))
        counts = np.array([seen[c] for c in candidates])
        scores = rank_scores(data, candidates, alpha)
        expected = permute_and_flip(scores, 2 / epsilon)
        assert expected.sum() == pytest.approx(1, abs=1e-6)
        assert stats.chisquare(counts, expected / expected.sum() * draws).pvalue > 1e-6
        # never worse than the exponential mechanism of the same epsilon
        exponential = np.exp(scores * epsilon / 2)
        assert expected @ -scores <= exponential / exponential.sum() @ -scores


def test_guarantee_over_all_neighbours_of_a_small_table():
    """Log ratios of the exact probabilities stay within epsilon when one record is replaced, and come near it."""
    candidates, epsilon, alpha = [0.0, 1.0, 2.0, 3.0], 1.0, 0.5
    law = lambda data: permute_and_flip(rank_scores(np.array(data), candidates, alpha), 2 / epsilon)
    rest = [1.0, 2.0]
    laws = [law([*rest, x]) for x in (-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 9.0)]
    worst = max(np.abs(np.log(p / q)).max() for p in laws for q in laws)
    assert worst <= epsilon * (1 + 1e-6)


def test_bounds_are_near_the_quantiles_when_epsilon_is_large():
    data = np.random.default_rng(0).exponential(1.0, 2000)
    search = PrivateQuantile((0, 10), 0.5)
    bounds, spent = find_bounds(data, search.candidates(), search.quantiles, 100.0)
    assert spent <= 100.0
    np.testing.assert_allclose(bounds, np.quantile(data, search.quantiles), atol=0.05)


@pytest.mark.parametrize(
    ("values", "bounds"), [([0.0] * 50, (0, 1)), ([5.0] * 50, (4, 6)), ([10.0] * 50, (9, 10)), ([99.0] * 50, (9, 10))]
)
def test_bounds_that_coincide_are_widened(values, bounds):
    candidates = [float(c) for c in range(11)]
    assert find_bounds(np.array(values), candidates, (0.4, 0.6), 1e6)[0] == bounds
    # out of order: sorted
    assert find_bounds(np.array([1.0, 9.0] * 50), candidates, (0.9, 0.1), 1e6)[0] == pytest.approx((1, 9), abs=1)


def test_grid():
    assert PrivateQuantile((0, 5), 0.5).candidates(whole=True) == [0, 1, 2, 3, 4, 5]
    wide = PrivateQuantile((0, 10**6), 0.5).candidates(whole=True)
    assert wide[0] == 0 and wide[-1] == 10**6 and len(wide) < 1100 and all(c.is_integer() for c in wide)
    fine = PrivateQuantile((-1, 3), 0.5).candidates()
    assert fine[0] == -1 and fine[-1] == 3 and np.allclose(np.diff(fine), 4 / 1024)
    logarithmic = PrivateQuantile((0.01, 100), 0.5).candidates(log=True)
    assert logarithmic[0] == 0.01 and logarithmic[-1] == 100 and logarithmic[512] == pytest.approx(1)
    with pytest.raises(InputError, match="whole numbers"):
        PrivateQuantile((0, 2.5), 0.5).candidates(whole=True)
    with pytest.raises(InputError, match="too narrow"):
        PrivateQuantile((1, math.nextafter(1, 2)), 0.5).candidates()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"range": (3, 1)}, "range"),
        ({"range": (0, math.inf)}, "range"),
        ({"range": None}, "range"),
        ({"share": 0}, "share"),
        ({"share": 1}, "share"),
        ({"share": math.nan}, "share"),
        ({"share": "0.5"}, "share"),
        ({"quantiles": (0.9, 0.1)}, "quantiles"),
        ({"quantiles": (-0.1, 0.5)}, "quantiles"),
        ({"quantiles": 0.5}, "quantiles"),
    ],
)
def test_refused_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        PrivateQuantile(**{"range": (0, 1), "share": 0.5} | arguments)


def call(**changes):
    table = {"x": np.random.default_rng(0).poisson(3, 400)}
    arguments = {"model": "exponential", "target": "x", "bounds": {"x": PrivateQuantile((0, 20), 0.25)}, "epsilon": 2.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return dpjax.release(table, **arguments | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"bounds": PrivateQuantile((0, 20), 0.25)},
        {"model": "poisson", "mechanism": "discrete-laplace"},
        {"model": "geometric", "rule": "redact"},
        {"mechanism": "gaussian", "delta": 1e-6},
        {"model": "normal", "bounds": {"x": PrivateQuantile((-5, 20), 0.25)}},
        {"model": "log-normal", "bounds": {"x": PrivateQuantile((0.5, 20), 0.25)}},
        {"epsilon": 1e-3},
        {"epsilon": 1e3},
    ],
)
def test_release_with_private_bounds(changes):
    r = call(**changes)
    budget, privacy = changes.get("epsilon", 2.0), r.privacy
    assert budget * (1 - 1e-12) <= privacy.epsilon <= budget
    assert budget * 0.25 * (1 - 1e-12) <= privacy.bounds_epsilon <= budget * 0.25
    a, b = r.statistic.bounds
    assert -5 <= a < b <= 20 and r.bounds == {"x": (a, b)}
    exact = r.statistic.sensitivity(privacy.norm)
    assert exact <= privacy.sensitivity <= exact * (1 + 1e-9)
    rest = privacy.epsilon - privacy.bounds_epsilon
    if r.mechanism == "gaussian":
        scale = dpjax.privacy.gaussian.analytic_gaussian_sigma(privacy.sensitivity, rest, 1e-6)
    else:
        scale = privacy.sensitivity / rest
    assert r.noise_scale == pytest.approx(scale, rel=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Release.from_dict(r.to_dict()) == r
    assert r.to_dict()["truncation"]["bounds"] == [a, b]
    assert r.to_dict()["privacy"]["bounds_epsilon"] == privacy.bounds_epsilon


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "binomial"}, "no bounds"),
        ({"model": "multinomial", "categories": 9}, "bounds has no place"),
        ({"model": "exponential", "bounds": {"x": PrivateQuantile((-1, 5), 0.5)}}, "support"),
        ({"model": "poisson", "bounds": {"x": PrivateQuantile((0, 5.5), 0.5)}}, "whole numbers"),
        ({"model": "log-normal"}, "above 0"),
        ({"bounds": {"y": PrivateQuantile((0, 5), 0.5)}}, "bounds are missing for column 'x'"),
        ({"epsilon": 1e-320}, "epsilon"),
    ],
)
def test_refused_before_anything_is_drawn(changes, message, monkeypatch):
    monkeypatch.setattr(quantile, "find_bounds", lambda *_: pytest.fail("bounds were drawn"))
    for noise in MECHANISMS.values():
        monkeypatch.setattr(type(noise), "draw", lambda *_: pytest.fail("noise was drawn"))
    with pytest.raises(InputError, match=message):
        call(**changes)


def test_warning_as_error_stops_before_the_bounds(monkeypatch):
    monkeypatch.setattr(quantile, "find_bounds", lambda *_: pytest.fail("bounds were drawn"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PrivacyWarning, match="epsilon = 2 "):
            dpjax.release(
                {"x": [1.0]}, model="exponential", target="x", bounds={"x": PrivateQuantile((0, 9), 0.5)}, epsilon=2
            )
