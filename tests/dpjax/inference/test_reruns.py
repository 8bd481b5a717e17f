"""Reruns: what is said of convergence is said of the chains as they ran, and which problems are run again."""

import warnings

import numpy as np
import pytest

import dpjax
from dpjax.diagnostics.ranks import Diagnostics, diagnose
from dpjax.engine.results import Run
from dpjax.engine.run import run_chains
from dpjax.errors import ConvergenceWarning
from dpjax.inference.methods import METHODS
from dpjax.inference.reruns import failed
from dpjax.samplers.collapsed import Collapsed
from dpjax.statistics.kinds import make_statistic

arviz = pytest.importorskip("arviz")
#: Chains that hardly move: short steps, and no search for the mode.
LAME = {"leapfrogs": 1, "max_step": 0.02, "mode_steps": 2}
PRIOR = {"theta_precision": 0.15, "sigma2_shape": 3.0, "sigma2_scale": 0.3}
KEYS = ("rhat", "ess_bulk", "ess_tail")
AGAIN = np.array([True, False, True, False])


def _releases():
    rng = np.random.default_rng(4)
    found = []
    for n in (300, 400, 500, 600):
        statistic = make_statistic("linear-regression", target="y", features=["x"], bounds={"x": (0, 10), "y": (1, 3)})
        x = rng.uniform(-1, 1, (n, 1))
        sums = statistic.from_records(x, 0.4 * x[:, 0] + 0.3 * rng.standard_normal(n))
        values = dict(zip(statistic.names, sums.tolist(), strict=True))
        found.append(dpjax.Release(statistic, n, values, "laplace", 5.0, simulated=True))
    return found


@pytest.fixture(scope="module")
def fitted():
    """Four releases of which the first and the third are run again, by chains that do not mix either."""
    calls = []
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setattr(
            "dpjax.inference.run_method._failed", lambda run, available: AGAIN & (calls.append(run) or len(calls) == 1)
        )
        warnings.simplefilter("ignore", ConvergenceWarning)
        return dpjax.fit_many(_releases(), prior=PRIOR, draws=60, seed=3, settings=LAME)


def _arviz(draws):
    """R-hat, bulk and tail ESS of `[C, S]`."""
    if int(arviz.__version__.split(".")[0]) < 1:
        return [
            float(arviz.rhat(draws, method="rank")),
            *(float(arviz.ess(draws, method=m)) for m in ("bulk", "tail")),
        ]
    from arviz_stats.base import array_stats as stats

    ends = {"method": "tail", "prob": (0.05, 0.95)}
    return [float(stats.rhat(draws)), float(stats.ess(draws, method="bulk")), float(stats.ess(draws, **ends))]


@pytest.mark.slow
def test_rhat_of_reruns_is_arviz_on_the_chains_as_they_ran(fitted):
    """The rerun's chains, run here on their own; interleaved into the first run's slots they would hide it all."""
    make, factor = METHODS["collapsed"].escalate[0]
    problems = fitted.problems.take([0, 2])
    sampler = make(Collapsed(**LAME), problems.model_template().dim)
    first = fitted.run.settings["segment"]
    alone = run_chains(
        sampler, fitted.problems, seed=3 + 7919, chains=2, replicates=factor, draws=60, only=np.array([0, 2]),
        segment=first,
    ).draws  # fmt: skip
    summary = fitted.summary()
    for place, problem in enumerate((0, 2)):
        posterior = fitted[problem]
        assert posterior.rerun and posterior.draws.shape == (8, 60, 5) and posterior.codes.shape == (8,)
        np.testing.assert_array_equal(posterior.draws, alone[place])
        users = fitted.releases[problem].statistic.to_user_units(np.asarray(alone[place], np.float64))
        hidden = diagnose(fitted.user_draws[[problem]], fitted.names).rhat[0]
        for k, name in enumerate(fitted.names):
            expected = _arviz(users[:, :, k])
            for found in (
                [getattr(posterior.diagnostics, key)[0, k] for key in KEYS],
                [getattr(fitted.diagnostics, key)[problem, k] for key in KEYS],
                [summary["parameters"][name][key][problem] for key in KEYS],
            ):
                np.testing.assert_allclose(found, expected, rtol=1e-6)
            row = posterior.summary()["parameters"][name]
            for key in ("mean", "sd", "q05", "q95"):
                assert summary["parameters"][name][key][problem] == pytest.approx(row[key], rel=1e-9)
        assert fitted.diagnostics.max_rhat[problem] > 1.1 * hidden.max()  # the fault that this is about
        assert posterior.warnings() and not fitted.converged[problem]
    # in scaled units, as a calibration study takes them
    scaled = diagnose(alone, fitted.names)
    np.testing.assert_allclose(fitted.run.diagnostics.rhat[[0, 2]], scaled.rhat, rtol=1e-12)
    assert fitted.run.diagnostics.draws[:, 0].tolist() == [480, 120, 480, 120]


@pytest.mark.slow
def test_problems_that_are_not_run_again_keep_their_chains(fitted):
    for problem in (1, 3):
        posterior = fitted[problem]
        assert not posterior.rerun and posterior.draws.shape == (2, 60, 5)
        np.testing.assert_array_equal(posterior.draws, fitted.draws[problem])
        np.testing.assert_allclose(posterior.diagnostics.rhat[0], fitted.diagnostics.rhat[problem], rtol=1e-12)
    assert fitted.draws.shape == (4, 2, 60, 5) and fitted.run.rerun_mask.tolist() == AGAIN.tolist()


@pytest.mark.parametrize("which", ["rhat", "ess_bulk", "ess_tail", "codes"])
def test_what_causes_a_rerun(which):
    """Each of R-hat, bulk ESS, tail ESS and codes by itself."""
    values = {"rhat": np.full((3, 2), 1.01), "ess_bulk": np.full((3, 2), 400.0), "ess_tail": np.full((3, 2), 300.0)}
    codes = np.zeros((3, 2), int)
    if which == "codes":
        codes[1, 1] = 1
    else:
        values[which][1, 0] = 1.06 if which == "rhat" else 99.0
    diagnostics = Diagnostics(("a", "b"), 1000, mcse_mean=np.ones((3, 2)), constant=np.zeros((3, 2), bool), **values)
    empty = np.zeros((3, 2))
    run = Run("collapsed", ("a", "b"), np.zeros((3, 2, 1, 2)), codes, empty, empty, 0.0, 0.0, 2, 500)
    run.diagnostics = diagnostics
    assert failed(run, 1000).tolist() == [False, True, False]
