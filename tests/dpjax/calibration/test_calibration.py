"""Calibration tells a right method from a wrong one, and reports what `calibration.json` must hold."""

import json

import numpy as np
import pytest

from dpjax.calibration.simulation import noise_scale, simulate_study
from dpjax.calibration.study import calibrate
from dpjax.calibration.study_design import study_design
from dpjax.errors import InputError
from dpjax.models import LinearRegression

TRIALS = 256


@pytest.mark.slow
def test_collapsed_is_calibrated_and_naive_is_not():
    kwargs = {"records": [100, 1000], "epsilon": [0.1, 1.0], "trials": TRIALS, "seed": 11}
    good = calibrate(method="collapsed", **kwargs)
    verdict = good.verdict()
    assert verdict["passed"] and verdict["tests"] == 20
    assert all(cell["min_ess_below_50"] == 0 for cell in good.cells)
    assert good.chains_in_call == 4 * TRIALS * 2
    bad = calibrate(method="naive", **kwargs)
    assert not bad.verdict()["uniformity_passed"] and not bad.verdict()["coverage_passed"]
    # noise-aware posteriors are at least as close to the non-private one
    assert np.mean([c["mmd"] for c in good.cells]) < np.mean([c["mmd"] for c in bad.cells])


@pytest.mark.slow
def test_a_wrong_noise_scale_is_found(monkeypatch):
    """Planted bug: the sampler believes in half the noise. The same test that passes above must fail."""
    study = simulate_study(LinearRegression.s0(1), [(1000, 1.0)], TRIALS, sensitivity=16 / 3, seed=3)
    from dataclasses import replace

    from dpjax.calibration.study import calibrate_study

    halved = replace(study, problems=replace(study.problems, scale=study.problems.scale / 2))
    assert not calibrate_study(halved, "collapsed", mmd=False).verdict()["passed"]


@pytest.mark.slow
def test_layout_of_the_result():
    study = calibrate(records=100, epsilon=1.0, trials=16, method="non-private", draws=60)
    out = json.loads(json.dumps(study.to_dict(), default=float))
    assert out["records"] == 100 and out["trials"] == 16  # a single cell also stands at the top level
    row = out["cells"][0]["parameters"]["theta[1]"]
    assert set(row) == {"ks", "ks_critical", "p_value", "coverage"} and set(row["coverage"]) == {
        "0.5",
        "0.8",
        "0.9",
        "0.95",
    }
    assert out["settings"]["sensitivity"] == pytest.approx(16 / 3)
    assert "theta[1]" in study.table() and "ESS/s" in study.table()


@pytest.mark.slow
def test_streaming_gives_the_same_ranks_under_its_own_names():
    kwargs = {"records": 1000, "epsilon": 1.0, "trials": 64, "method": "naive", "seed": 2, "mmd": False}
    stored = calibrate(draws=200, thin=20, **kwargs)
    streamed = calibrate(draws=200, thin=20, stream=True, **kwargs)
    np.testing.assert_allclose(streamed.ranks[0].fractions, stored.ranks[0].fractions, atol=0.02)
    assert streamed.cells[0]["ess"] == "batch means" and streamed.cells[0]["rhat"] == "split R-hat"


@pytest.mark.slow
def test_clipping_changes_the_data_and_only_them():
    free = simulate_study(LinearRegression.s0(1), [(500, 1.0)], 8, sensitivity=5.0, seed=4)
    clipped = simulate_study(LinearRegression.s0(1), [(500, 1.0)], 8, sensitivity=5.0, seed=4, simulate="clipped")
    np.testing.assert_array_equal(free.truth, clipped.truth)
    assert (clipped.problems.exact[:, [1, 4]] <= 500).all()  # sums of squares of clipped variables
    assert (free.problems.exact[:, 4] > 500).any()


@pytest.mark.slow
def test_clipped_records_without_clipping_have_the_models_moments():
    """The record-by-record path, with bounds nobody reaches, is the model: means within 4 standard errors."""
    import jax
    import jax.numpy as jnp

    from dpjax.models.regression.simulation import simulate_clipped

    model = LinearRegression.s0(2)
    phi = model.sample_prior(jax.random.key(3))
    keys = jax.random.split(jax.random.key(4), 2000)
    sums = np.asarray(
        jax.jit(jax.vmap(lambda k: simulate_clipped(model, k, phi, jnp.float32(37.0), bounds=(-1e3, 1e3), chunk=16)))(
            keys
        )
    )
    mean, covariance = (np.asarray(x) for x in model.moments(phi))
    error = np.sqrt(37 * np.diag(covariance) / 2000)
    assert (np.abs(sums.mean(0) - 37 * mean) < 4 * error).all()


@pytest.mark.slow
def test_trial_i_does_not_depend_on_the_number_of_trials():
    few = simulate_study(LinearRegression.s0(1), [(50, 1.0)], 3, sensitivity=5.0, seed=4)
    many = simulate_study(LinearRegression.s0(1), [(50, 1.0)], 9, sensitivity=5.0, seed=4)
    np.testing.assert_allclose(few.problems.z, many.problems.z[:3], rtol=1e-12)


@pytest.mark.slow
def test_defaults_of_a_study():
    assert study_design().sensitivity == pytest.approx(16 / 3)
    assert study_design(features=2).sensitivity == pytest.approx(9.375)
    assert study_design("binomial").sensitivity == 1 and study_design("binomial").statistic.bounds is None
    assert study_design("multinomial", categories=3).sensitivity == 2
    # the middle 95% of records at rate 1, the centre of Gamma(10, 10); redacted records may move the sum by b
    # (docs/formulas.md#truncated-sensitivity)
    clamped, redacted = study_design("exponential"), study_design("exponential", rule="redact")
    a, b = -np.log(0.975), -np.log(0.025)
    np.testing.assert_allclose(clamped.statistic.bounds, (a, b), rtol=1e-9)
    assert clamped.sensitivity == pytest.approx(b - a) and redacted.sensitivity == pytest.approx(b)
    assert clamped.settings["truncation"]["rule"] == "clamp" and "0.0253178:3.68888" in clamped.describe()
    assert all(float(end).is_integer() for end in study_design("poisson").statistic.bounds)
    low, high = study_design("log-normal").statistic.bounds
    assert low > 0 and low * high == pytest.approx(1)
    given = study_design("exponential", bounds=(0, 2), prior={"shape": 3})
    assert given.statistic.bounds == (0, 2) and given.model.as_dict()["shape"] == 3
    assert study_design("multinomial", categories=3, released=[0, 2]).model.released == (0, 2)


@pytest.mark.slow
def test_noise_of_each_mechanism():
    assert noise_scale("laplace", 2.0, 0.5) == noise_scale("discrete-laplace", 2.0, 0.5) == 4.0
    assert noise_scale("gaussian", 2.0, 1.0, 1e-5) == pytest.approx(2 * 3.7306316348)
    whole = study_design("binomial", mechanism="discrete-laplace").study([(40, 0.5)], 5, 1).problems
    np.testing.assert_array_equal(whole.z, np.round(whole.z))
    assert (whole.z != whole.exact).any()


@pytest.mark.slow
def test_families_are_simulated_whole_and_as_released():
    """The same records and the same noise, with and without the bounds."""
    study = study_design("exponential", bounds=(0.5, 1.5)).study([(20, 1.0), (500, 1.0)], 4, 1)
    problems = study.problems
    released = problems.z - (problems.untruncated - problems.exact)
    assert ((released >= 0.5 * problems.n[:, None]) & (released <= 1.5 * problems.n[:, None])).all()
    assert (np.abs(released - problems.exact) > 1e-3).all()
    # exact sums of n records: within 5 standard deviations of n / rate
    rate, n = study.truth[:, 0], problems.n
    assert (np.abs(problems.exact[:, 0] - n / rate) < 5 * np.sqrt(n) / rate).all()
    whole = study_design("binomial").study([(20, 1.0)], 4, 1).problems
    np.testing.assert_array_equal(whole.untruncated, whole.z)


@pytest.mark.slow
def test_families_go_through_calibrate():
    kwargs = {"records": [100, 1000], "epsilon": 0.1, "trials": 100, "seed": 5}
    study = calibrate("binomial", mmd=False, **kwargs)
    assert study.method == "exact" and study.verdict()["passed"]
    assert study.settings["prior"] == {"alpha": 10, "beta": 10} and study.settings["mechanism"] == "laplace"
    redacted = calibrate("exponential", rule="redact", method="naive", draws=60, **kwargs)
    assert not redacted.verdict()["passed"] and redacted.cells[0]["mmd"] is not None
    assert all(0 <= cell["multimodal"] <= 1 for cell in redacted.cells)
    assert "rule redact" in redacted.table() and "sensitivity 3.68888" in redacted.table()


@pytest.mark.parametrize(
    "change, match",
    [
        ({"records": 0}, "records"),
        ({"records": []}, "at least one cell"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"epsilon": float("inf")}, "epsilon"),
        ({"trials": 0}, "trials"),
        ({"features": 0}, "features"),
        ({"method": "magic"}, "method"),
        ({"model": "ridge"}, "model"),
        ({"model": "binomial", "bounds": (0, 1)}, "bounds"),
        ({"model": "binomial", "features": 1}, "features"),
        ({"model": "binomial", "rule": "clamp"}, "rule"),
        ({"model": "binomial", "clip": True}, "clip"),
        ({"model": "binomial", "method": "gibbs-literal"}, "gibbs-literal"),
        ({"model": "multinomial"}, "categories"),
        ({"model": "multinomial", "categories": 1}, "categories"),
        ({"model": "multinomial", "categories": 3, "released": [0]}, "released"),
        ({"model": "multinomial", "categories": 3, "method": "exact"}, "exact"),
        ({"model": "exponential", "rule": "drop"}, "rule"),
        ({"model": "exponential", "bounds": (-1, 2)}, "support"),
        ({"model": "exponential", "method": "ops"}, "ops"),
        ({"model": "exponential", "prior": {"alpha": 1}}, "alpha"),
        ({"model": "exponential", "mechanism": "discrete-laplace"}, "discrete-laplace"),
        ({"model": "gamma"}, "shape"),
        ({"model": "gamma", "options": {"shape": -1}}, "shape"),
        ({"model": "gamma", "options": {"bounds": (0, 1)}}, "options: bounds"),
        ({"model": "poisson", "bounds": (0.5, 3)}, "whole"),
        ({"mechanism": "gaussian"}, "delta"),
        ({"mechanism": "gaussian", "delta": 2.0}, "delta"),
        ({"delta": 1e-5}, "delta"),
        ({"mechanism": "uniform"}, "mechanism"),
        ({"rule": "clamp"}, "rule"),
        ({"simulate": "clipped"}, "simulate"),
        ({"bounds": (1.0, -1.0)}, "bounds"),
        ({"bounds": (0.0, float("nan"))}, "bounds"),
        ({"sensitivity": 0.0}, "sensitivity"),
        ({"simulate": "magic"}, "simulate"),
        ({"clip": True, "simulate": "clt"}, "clip"),
        ({"prior": {"theta": 1.0}}, "prior"),
    ],
)
def test_bad_arguments_are_refused(change, match):
    with pytest.raises(InputError, match=match):
        calibrate(**({"records": 10, "epsilon": 1.0, "trials": 2} | change))
