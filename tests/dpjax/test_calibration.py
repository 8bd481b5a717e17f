"""Calibration tells a right method from a wrong one, and reports what DESIGN section 9 lists."""

import json

import numpy as np
import pytest

from dpjax.calibration import calibrate, default_sensitivity
from dpjax.errors import InputError
from dpjax.models import LinearRegression
from dpjax.simulation import simulate_study

TRIALS = 256


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


def test_a_wrong_noise_scale_is_found(monkeypatch):
    """Planted bug: the sampler believes in half the noise. The same test that passes above must fail."""
    study = simulate_study(LinearRegression.s0(1), [(1000, 1.0)], TRIALS, sensitivity=16 / 3, seed=3)
    from dataclasses import replace

    from dpjax.calibration import calibrate_study

    halved = replace(study, problems=replace(study.problems, scale=study.problems.scale / 2))
    assert not calibrate_study(halved, "collapsed", mmd=False).verdict()["passed"]


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


def test_streaming_gives_the_same_ranks_under_its_own_names():
    kwargs = {"records": 1000, "epsilon": 1.0, "trials": 64, "method": "naive", "seed": 2, "mmd": False}
    stored = calibrate(draws=200, thin=20, **kwargs)
    streamed = calibrate(draws=200, stream=True, **kwargs)
    np.testing.assert_allclose(streamed.ranks[0].fractions, stored.ranks[0].fractions, atol=0.02)
    assert streamed.cells[0]["ess"] == "batch means" and streamed.cells[0]["rhat"] == "split R-hat"


def test_clipping_changes_the_data_and_only_them():
    free = simulate_study(LinearRegression.s0(1), [(500, 1.0)], 8, sensitivity=5.0, seed=4)
    clipped = simulate_study(LinearRegression.s0(1), [(500, 1.0)], 8, sensitivity=5.0, seed=4, simulate="clipped")
    np.testing.assert_array_equal(free.truth, clipped.truth)
    assert (clipped.problems.exact[:, [1, 4]] <= 500).all()  # sums of squares of clipped variables
    assert (free.problems.exact[:, 4] > 500).any()


def test_clipped_records_without_clipping_have_the_models_moments():
    """The record-by-record path, with bounds nobody reaches, is the model: means within 4 standard errors."""
    import jax
    import jax.numpy as jnp

    from dpjax.models._regression_simulation import simulate_clipped

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


def test_trial_i_does_not_depend_on_the_number_of_trials():
    few = simulate_study(LinearRegression.s0(1), [(50, 1.0)], 3, sensitivity=5.0, seed=4)
    many = simulate_study(LinearRegression.s0(1), [(50, 1.0)], 9, sensitivity=5.0, seed=4)
    np.testing.assert_allclose(few.problems.z, many.problems.z[:3], rtol=1e-12)


def test_default_sensitivities():
    assert default_sensitivity(1) == pytest.approx(16 / 3) and default_sensitivity(2) == pytest.approx(9.375)


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
        ({"model": "poisson"}, "model"),
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
