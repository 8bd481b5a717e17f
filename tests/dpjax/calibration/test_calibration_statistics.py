"""Ranks, uniformity, coverage, MMD and family-wise verdicts against closed forms and SciPy."""

import json

import numpy as np
import pytest
from scipy import stats

from dpjax._base.files import to_json
from dpjax.calibration import mmd, uniformity
from dpjax.calibration import statistics as cs
from dpjax.calibration.ranks import rank_fractions, rank_statistics, thin, thin_indices
from dpjax.diagnostics.ranks import diagnose
from dpjax.errors import InputError


def conjugate(rng, trials, chains, draws, spread=1.0, shift=0.0):
    """Normal mean with known variance: truth, exact posterior draws (spread and shift plant a fault)."""
    truth = rng.normal(size=(trials, 2))
    data = truth + 0.5 * rng.normal(size=(trials, 2))
    mean, sd = data / 1.25, np.sqrt(0.2)
    noise = rng.normal(size=(trials, chains, draws, 2))
    return truth, mean[:, None, None] + sd * (spread * noise + shift)


def test_thinning_is_even_over_chains():
    indices = thin_indices(2, 500)
    assert len(indices) == 50 and set(np.diff(indices)) == {10} and indices[-1] < 500
    assert len(thin_indices(4, 10)) == 10
    draws = np.arange(2 * 2 * 500).reshape(2, 2, 500, 1)
    assert thin(draws).shape == (2, 100, 1)


def test_rank_fractions_count_ties_half():
    draws = np.array([0.0, 1.0, 1.0, 2.0], dtype=np.float32).reshape(1, 1, 4, 1)
    assert rank_fractions(draws, np.array([[1.0]])).tolist() == [[0.5]]
    assert rank_fractions(draws, np.array([[5.0]])).tolist() == [[1.0]]
    third = np.full((1, 1, 3, 1), 1 / 3, dtype=np.float32)
    assert rank_fractions(third, np.array([[1 / 3]])).tolist() == [[0.5]]


def test_randomised_ranks_are_uniform_for_a_discrete_posterior():
    """Beta-binomial with the posterior rounded to three values: plain ranks are far from uniform."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, size=(3000, 1)).astype(float)
    draws = rng.integers(0, 3, size=(3000, 2, 60, 1)).astype(float)
    ranks = rank_statistics(["p"], draws, truth, seed=1)
    assert stats.kstest(ranks.pit[:, 0], "uniform").pvalue > 0.001
    assert stats.kstest(ranks.fractions[:, 0], "uniform").pvalue < 1e-12
    again = rank_statistics(["p"], draws, truth, seed=1)
    assert (ranks.pit == again.pit).all() and ranks.pit.min() > 0 and ranks.pit.max() < 1


def test_critical_value_of_the_specification():
    assert uniformity.ks_critical(300) == pytest.approx(0.0784, abs=5e-5)  # docs/formulas.md#uniform-ranks


def test_coverage_equals_quantile_intervals():
    truth, draws = conjugate(np.random.default_rng(3), 400, 2, 500)
    ranks = rank_statistics("ab", draws, truth)
    got = uniformity.coverage(ranks.fractions)
    flat = draws.reshape(400, -1, 2)
    for level in uniformity.LEVELS:
        low, high = np.quantile(flat, [(1 - level) / 2, (1 + level) / 2], axis=1)
        expected = ((low <= truth) & (truth <= high)).mean(axis=0)
        np.testing.assert_allclose(got[f"{level:g}"], expected, atol=4.01 / 400)  # ranks are multiples of 1/1000


def test_holm_and_binomial_band():
    p = np.array([[0.01, 0.04], [0.03, 0.005]])
    np.testing.assert_allclose(uniformity.holm(p), [[0.03, 0.06], [0.06, 0.02]])  # the textbook example
    assert uniformity.holm([]).size == 0
    with pytest.raises(InputError):
        uniformity.holm([0.5, np.nan])
    low, high = uniformity.binomial_band(1000, 0.95)
    assert stats.binom.cdf(round(low * 1000) - 1, 1000, 0.95) <= 0.0005
    assert stats.binom.sf(round(high * 1000), 1000, 0.95) <= 0.0005
    wide = uniformity.binomial_band(1000, 0.95, family=80)
    assert wide[0] < low and wide[1] > high


def test_mmd_is_the_closed_form():
    """docs/formulas.md#mmd: N(0, 1) against N(.3, .5^2), unit bandwidth: .0869152857."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(4000, 60, 1))
    y = 0.3 + 0.5 * rng.normal(size=(4000, 60, 1))
    values = mmd.mmd_squared(x, y)
    error = values.std() / np.sqrt(len(values))
    assert error < 1e-3
    assert abs(values.mean() - 0.0869152857) < 4 * error


def test_mmd_is_unbiased_when_equal_and_may_be_negative():
    rng = np.random.default_rng(5)
    values = mmd.mmd_squared(rng.normal(size=(2000, 40, 2)) + 1e4, rng.normal(size=(2000, 40, 2)) + 1e4)
    assert abs(values.mean()) < 4 * values.std() / np.sqrt(2000) and (values < 0).any()


def test_mmd_by_hand():
    x, y = np.array([[[0.0], [1.0]]]), np.array([[[2.0], [4.0]]])

    def k(a, b, h):
        return np.exp(-((a - b) ** 2) / (2 * h * h))

    def expected(h):
        return k(0, 1, h) + k(2, 4, h) - k(0, 4, h) - k(2, 1, h)

    assert mmd.mmd_squared(x, y)[0] == pytest.approx(expected(1.0))
    # pooled distances: 1 (twice), 2 (twice), and 2, 4, 1, 3 between x and y
    assert mmd.mmd_squared(x, y, "median")[0] == pytest.approx(expected(2.0))
    with pytest.raises(InputError):
        mmd.mmd_squared(x, y[:, :1])


def test_mmd_to_nonprivate_does_not_depend_on_units():
    """docs/formulas.md#mmd: sd .02 one sd apart is 3.9948e-4 with unit bandwidth; standardised it is as for unit sd."""
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(500, 2, 50, 1)), 1.0 + rng.normal(size=(500, 2, 50, 1))
    wide, narrow = mmd.mmd_to_nonprivate(y, x), mmd.mmd_to_nonprivate(0.02 * y, 0.02 * x)
    np.testing.assert_allclose(wide, narrow, rtol=1e-9)
    # 2 (k0 - k1) with k(d) = E exp(-(d + sqrt(2) N)^2 / 2) = exp(-d^2 / 6) / sqrt(3)
    expected = 2 * (1 - np.exp(-1 / 6)) / np.sqrt(3)
    assert wide.mean() == pytest.approx(expected, abs=0.02)
    unit = mmd.mmd_squared(thin(0.02 * x), thin(0.02 * y)).mean()
    assert unit == pytest.approx(3.9948e-4, rel=0.05)


def test_cell_has_the_layout_of_calibration_json():
    rng = np.random.default_rng(7)
    truth, draws = conjugate(rng, 300, 2, 100)
    _, other = conjugate(rng, 300, 2, 100)
    cell = cs.summarise_cell(100, 0.1, ["a", "b"], draws, truth, nonprivate=other, reruns=2)
    assert {
        "records", "epsilon", "parameters", "trials", "min_ess_median", "min_ess_below_50", "rhat_above_1_05",
        "rhat_below_1_01", "reruns", "mmd",
    } <= set(cell)  # fmt: skip
    assert set(cell["parameters"]["a"]) == {"ks", "ks_critical", "p_value", "coverage"}
    assert set(cell["parameters"]["a"]["coverage"]) == {"0.5", "0.8", "0.9", "0.95"}
    assert cell["trials"] == 300 and cell["reruns"] == 2 and cell["failed"] == 0 and cell["mmd"] > 0
    assert json.loads(to_json(cell)) == cell
    assert cs.verdict([cell])["passed"]


def test_failed_trials_are_counted_and_not_passed():
    truth, draws = conjugate(np.random.default_rng(8), 200, 2, 50)
    draws[3, 1, 7] = np.nan
    cell = cs.summarise_cell(100, 0.1, "ab", draws, truth)
    assert cell["trials"] == 199 and cell["failed"] == 1
    assert json.loads(to_json(cell))["rhat_above_1_05"] >= 1 / 200
    assert not cs.verdict([cell])["passed"]
    broken = cs.summarise_cell(100, 0.1, "ab", np.full_like(draws, np.nan), truth)
    assert broken["trials"] == 0 and not cs.verdict([broken])["passed"]
    json.loads(to_json(broken))


@pytest.mark.parametrize("fault,name", [({"spread": 0.6}, "both"), ({"shift": 0.4}, "uniformity"), ({}, None)])
def test_verdict_finds_the_faulty_cell(fault, name):
    rng = np.random.default_rng(9)
    cells = []
    for records in (10, 100, 1000):
        truth, draws = conjugate(rng, 500, 2, 100, **(fault if records == 100 else {}))
        diagnostics = diagnose(draws, "ab")
        cells.append(cs.summarise_cell(records, 1.0, "ab", draws, truth, diagnostics=diagnostics))
    found = cs.verdict(cells, min_records=100)
    assert found["tests"] == 4
    assert found["passed"] == (name is None)
    if name:
        assert {row["records"] for row in found["uniformity_rejected"]} == {100}
    if name == "both":
        assert {row["records"] for row in found["coverage_outside"]} == {100}
    elif name is None:
        assert found["smallest_adjusted_p"] > 0.01 and not found["coverage_outside"]


@pytest.mark.parametrize("trials", [300, 1000])
def test_ecdf_band_of_both_arviz_lines_holds_uniform_curves(trials):
    pytest.importorskip("arviz")
    x, low, high = uniformity.ecdf_band(trials)
    assert x.shape == low.shape == high.shape == (99,) and (low < x).all() and (high > x).all()
    # about 1.48 at the middle for both sizes, on ArviZ 0.x and 1.x
    assert (high - x).max() * np.sqrt(trials) == pytest.approx(1.48, abs=0.08)
    rng = np.random.default_rng(10)
    inside = [
        ((low <= curve) & (curve <= high)).all()
        for curve in (uniformity.ecdf(rng.uniform(size=trials), x) for _ in range(2000))
    ]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.02)


def test_shapes_are_checked():
    with pytest.raises(InputError, match="draws, truth, names"):
        rank_statistics("a", np.zeros((3, 2, 10, 2)), np.zeros((3, 2)))
