"""Whether parties agree, from their releases alone: p-values under equality, power, units, words."""

import numpy as np
import pytest
from scipy import stats

from dpjax.releases.parties import Parties
from dpjax.releases.party_agreement import LIMIT, Agreement, agreement
from dpjax.statistics.base import SCALING
from dpjax.statistics.origin import OriginStatistic
from dpjax.statistics.regression import RegressionStatistic

ENTRIES = {True: [(0, 1), (0, 2), (1, 1), (1, 2), (2, 2), (0, 3), (1, 3), (2, 3), (3, 3)],
           False: [(1, 1), (1, 2), (2, 2), (1, 3), (2, 3), (3, 3)]}  # fmt: skip
COVARIANCE = np.array([[0.10, 0.04], [0.04, 0.08]])
THETA, SIGMA2 = np.array([0.1, 0.5, -0.3]), 0.05


def parties(
    rng, n=(300, 300, 300), *, means=None, thetas=None, sigma2s=None, factors=None, scale=4.0, noise="laplace",
    intercept=True, squares=True, units=False,
):  # fmt: skip
    """Records drawn one by one, two features, summed in each party's own units; noise added."""
    count, q = len(n), 3
    a, b = np.array(ENTRIES[intercept]).T
    half = rng.uniform(0.4, 1.0, (count, q)) if units else np.ones((count, q))
    centre = rng.uniform(-0.5, 0.5, (count, q)) if units and intercept else np.zeros((count, q))
    z = np.zeros((count, len(a)))
    for j in range(count):
        mean = np.zeros(2) if not intercept else np.array([0.2, -0.1]) if means is None else np.array(means[j])
        spread = 1.0 if factors is None else factors[j]
        x = rng.multivariate_normal(mean, spread**2 * COVARIANCE, n[j])
        theta = THETA if thetas is None else np.array(thetas[j])
        sd = np.sqrt(SIGMA2 if sigma2s is None else sigma2s[j])
        y = theta[0] * intercept + x @ theta[1:] + sd * rng.normal(size=n[j])
        rows = np.c_[np.ones(n[j]), (np.c_[x, y] - centre[j]) / half[j]]
        z[j] = (rows[:, a] * rows[:, b]).sum(0)
    scales = np.full(z.shape, scale)
    z = z + scales * (rng.laplace(size=z.shape) if noise == "laplace" else rng.normal(size=z.shape))
    present = np.ones(z.shape)
    present[:, -1] = squares
    kind = RegressionStatistic if intercept else OriginStatistic
    statistic = kind(("u", "v"), "y", dict.fromkeys(("u", "v", "y"), (-1, 1)), SCALING)
    number = np.array(n, float)
    return Parties(statistic, z, scales, present, number, (noise,) * count, centre, half)


EQUAL = {
    "noise like sampling": {},
    "much noise, Laplace": {"scale": 60.0},
    "much noise, Gaussian, units": {"scale": 40.0, "noise": "gaussian", "units": True},
    "little noise, units": {"scale": 0.3, "units": True, "n": (900, 200)},
    "origin": {"intercept": False, "units": True, "noise": "gaussian", "n": (300, 100, 500, 200)},
    "no squares": {"intercept": False, "squares": False},
    "few records": {"n": (12, 9, 15), "scale": 0.2},
}


QUICK = ("noise like sampling", "few records")


@pytest.mark.slow
@pytest.mark.parametrize(
    "what", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in EQUAL]
)
def test_p_values_under_equality(what):
    """Not below a level more often than it says; and uniform, but where few records or much noise make them careful."""
    found = np.array([
        list(agreement(parties(np.random.default_rng([5, i]), **EQUAL[what]), i).as_dict().values()) for i in range(60)
    ])  # fmt: skip
    for level in (0.01, 0.05, 0.2):
        assert ((found <= level).sum(0) <= stats.binom.ppf(0.9995, len(found), level)).all(), (level, found.min(0))
    assert (found > LIMIT).sum() >= found.size - 1
    uniform = stats.kstest(found, "uniform", axis=0).pvalue > 1e-3
    if what != "no squares":  # the variance of y is then taken for the largest there may be
        assert uniform[0]
    if not what.startswith("much noise"):
        assert uniform[1]


MEANS = ((0.4, -0.1), (0.0, -0.1), (0.2, 0.3))
DIFFERENT = {
    "means": ({"means": MEANS}, True, False),
    "spreads": ({"factors": (1.0, 1.5, 0.6)}, True, False),
    "coefficients": ({"thetas": ((0.1, 0.5, -0.3), (0.1, 0.0, -0.3), (0.1, 0.5, 0.2))}, True, True),
    "residual variances": ({"sigma2s": (0.02, 0.05, 0.15)}, True, True),
    "means and coefficients": (
        {"means": MEANS, "thetas": ((0.1, 0.5, -0.3), (0.5, 0.1, -0.3), (0.1, 0.5, 0.2))}, True, True
    ),
    "spreads, origin": ({"factors": (1.0, 1.6, 0.6), "intercept": False}, True, False),
    "coefficients, origin": ({"thetas": ((0, 0.5, -0.3), (0, 0.0, -0.3), (0, 0.5, 0.2)), "intercept": False,
                              "squares": False}, True, True),
}  # fmt: skip


@pytest.mark.parametrize("what", DIFFERENT)
def test_parties_that_differ(what):
    """The first p-value is small where anything differs, the second only where the regressions do."""
    settings, records, regression = DIFFERENT[what]
    found = [
        agreement(parties(np.random.default_rng([6, i]), (3000, 2500, 3500), units=True, **settings)) for i in range(3)
    ]
    assert all((one.records < LIMIT) == records for one in found)
    assert all((one.regression < LIMIT) == regression for one in found)


def test_units_do_not_matter():
    """Sums without noise to speak of, in units of their own and in common ones."""
    one = agreement(parties(np.random.default_rng(1), scale=1e-6))
    rng = np.random.default_rng(1)
    found = parties(rng, scale=1e-6)
    half, centre = np.array([[0.5, 0.8, 0.7]] * 3), np.array([[0.1, -0.2, 0.3]] * 3)
    a, b = np.array(ENTRIES[True]).T
    z = []
    for j, n in enumerate(found.records):
        m = np.zeros((4, 4))
        m[a, b] = m[b, a] = found.z[j]
        m[0, 0] = n
        turn = np.eye(4)
        turn[1:, 0], turn[range(1, 4), range(1, 4)] = -centre[j] / half[j], 1 / half[j]
        z.append((turn @ m @ turn.T)[a, b])
    other = agreement(Parties(found.statistic, np.array(z), found.scale, found.present, found.records, found.mechanisms,
                              centre, half))  # fmt: skip
    np.testing.assert_allclose(list(other.as_dict().values()), list(one.as_dict().values()), atol=0.05)


def test_words():
    assert Agreement(0.3, 0.4).doubts(False) == Agreement(1e-4, 0.4).doubts(True) == []
    (shared,) = Agreement(1e-4, 0.4).doubts(False)
    assert "--parties own" in shared and "p = 0.0001" in shared
    differ, apart = Agreement(1e-4, 2e-4).doubts(False)
    assert "differ" in differ and "Fit every release by itself" in apart and "--parties own" in apart
    assert "regressions of the parties differ" in Agreement(1e-4, 2e-4).doubts(True)[0]
    assert Agreement(0.3, 2e-4).doubts(False) == Agreement(0.3, 2e-4).doubts(True)
    assert "p = 0.3" in Agreement(0.3, 0.42).note and "p = 0.42" in Agreement(0.3, 0.42).note
