"""Reruns compile nothing, and neither does a further fit: what they change is an input of the programs."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import dpjax
from dpjax.engine import programs
from dpjax.engine.cutting import _turned
from dpjax.engine.layout import Layout
from dpjax.engine.problems import Problems
from dpjax.engine.run import run_chains
from dpjax.errors import ConvergenceWarning, InputError
from dpjax.families import family_named
from dpjax.inference.methods import METHODS
from dpjax.inference.run_method import run_method
from dpjax.models import LinearRegression, family_model
from dpjax.models.priors import PRIORS
from dpjax.samplers.conjugate import Conjugate
from dpjax.statistics.kinds import make_statistic
from tests.golden.test_golden_draws import CASES

SHORT = {"warmup": 80, "mode_steps": 4}
PRIOR = {"theta_precision": 0.15, "sigma2_shape": 3.0, "sigma2_scale": 0.3}
ONE_OF_EACH = {"init": 1, "segment": 1}


def _release(i, scale=5.0):
    rng = np.random.default_rng(i)
    n = 300 + 100 * i
    statistic = make_statistic("linear-regression", target="y", features=["x"], bounds={"x": (0, 10), "y": (1, 3)})
    x = rng.uniform(-1, 1, (n, 1))
    sums = statistic.from_records(x, 0.4 * x[:, 0] + 0.3 * rng.standard_normal(n))
    values = dict(zip(statistic.names, sums.tolist(), strict=True))
    return dpjax.Release(statistic, n, values, "laplace", scale, simulated=True)


@pytest.fixture
def traced(monkeypatch):
    """Runs a function, with some problems said to have failed or not, and says what was traced; twice at most."""

    def run(function, fail=None):
        """fail: number of problems -> those that fail, in the first run and in the first rerun; None: as they do."""
        calls = []

        def failed(run, available):
            calls.append(run)
            mask = np.zeros(len(run.codes), bool)
            return mask | fail(len(mask)) if fail is not None and len(calls) <= 2 else mask

        monkeypatch.setattr("dpjax.inference.run_method._failed", failed)
        before = dict(programs.TRACES)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            result = function()
        assert fail is None or len(calls) == 2  # both harder settings were at work
        return result, {name: count - before[name] for name, count in programs.TRACES.items()}

    programs._PROGRAMS.clear()
    return run


@pytest.mark.slow
def test_reruns_of_some_releases_compile_nothing(traced):
    fit = lambda: dpjax.fit_many([_release(i) for i in range(4)], prior=PRIOR, draws=60, seed=3, settings=SHORT)
    some, new = traced(fit, fail=lambda count: np.arange(count) % 2 == 0)
    assert some.run.rerun_mask.tolist() == [True, False, True, False] and new == ONE_OF_EACH
    assert some[0].draws.shape == (16, 60, 5) and some[1].draws.shape == (2, 60, 5)
    none, new = traced(fit)
    assert none.run.reruns == 0 and new == {"init": 0, "segment": 0} and none.run.compile_seconds == 0


@pytest.mark.slow
def test_rerun_of_one_release_compiles_nothing(traced):
    fit = lambda i, **how: dpjax.fit(_release(i, **how), prior=PRIOR, draws=60, seed=3)
    one, new = traced(lambda: fit(0), fail=lambda count: True)
    assert one.rerun and one.draws.shape == (32, 60, 5) and new == ONE_OF_EACH
    # nor does a fit of other sums, records, noise and epsilon
    other, new = traced(lambda: fit(7, scale=50.0))
    assert not other.rerun and new == {"init": 0, "segment": 0} and other.compile_seconds == 0


@pytest.mark.slow
def test_reruns_of_a_study_compile_nothing(traced):
    study = lambda: dpjax.calibrate(records=100, epsilon=1.0, trials=300, draws=60, mmd=False, seed=2)
    reruns = lambda found: sum(cell["reruns"] for cell in found.cells)
    some, new = traced(study, fail=lambda count: np.arange(count) == 7)
    assert reruns(some) == 1 and new == ONE_OF_EACH
    none, new = traced(study)
    assert reruns(none) == 0 and new == {"init": 0, "segment": 0}


@pytest.mark.slow
@pytest.mark.parametrize("case", [name for name, (method, _, _) in CASES.items() if METHODS[method].escalate])
def test_reruns_of_every_method_compile_nothing(traced, case):
    method, make, settings = CASES[case]
    run, new = traced(
        lambda: run_method(method, make(), chains=2, draws=20, seed=7, settings=settings), fail=lambda count: True
    )
    assert run.reruns == len(run.codes) and run.chains == 16 and np.isfinite(run.draws).all() and new == ONE_OF_EACH


# ---- replicates in the layout of the first run ---------------------------------------------------------------------
def _some(count):
    z = np.random.default_rng(1).normal([0.0, 30.0, 0.0, 10.0, 10.0], size=(count, 5))
    return Problems(z, np.full(count, 100.0), np.ones((count, 5)), LinearRegression.s0(1), "laplace")


@pytest.mark.slow
def test_replicates_are_the_further_chains_of_a_problem():
    """Whatever the layout, the chains are those of a run with as many: the sampler draws independently."""
    problems, kwargs = _some(40), {"seed": 3, "draws": 40}
    wide = run_chains(Conjugate(), problems, chains=6, **kwargs)
    chosen = np.array([3, 4, 39])
    some = run_chains(Conjugate(), problems, chains=2, only=chosen, replicates=3, chains_per_batch=10, **kwargs)
    assert some.draws.shape == (3, 6, 40, 5) and some.chains == 6 and some.codes.shape == (3, 6)
    np.testing.assert_allclose(some.draws, wide.draws[chosen], rtol=2e-4, atol=1e-6)
    with pytest.raises(InputError, match="replicates"):
        run_chains(Conjugate(), problems, chains=2, replicates=2, stream=True, **kwargs)


def test_single_chains_of_replicates_start_on_both_sides():
    """Chain number r is odd for odd r, also where each replicate has one chain only."""
    model = family_model(family_named("exponential"), PRIORS["gamma"].create(shape=2.0, rate=2.0), 0.0, 3.0, "redact")
    problems = Problems(np.full((3, 1), 20.0), np.full(3, 50.0), np.ones((3, 1)), model, "laplace")
    odd = np.array([False, True, False])
    assert _turned(problems, odd) is problems  # nowhere to start from was looked for
    starts = np.arange(6.0).reshape(3, 2, 1)
    problems = replace(problems, model=replace(problems.batched_model(), starts=starts))
    turned = _turned(problems, odd).model.starts
    np.testing.assert_array_equal(turned, np.stack([starts[0], starts[1, ::-1], starts[2]]))


@pytest.mark.parametrize("devices", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 4, 47, 48, 200])
def test_few_problems_fill_few_blocks(devices, count):
    """Every problem has its own place in the blocks that are in use, and these are spread over the devices."""
    plan = Layout(2, 8, 6, devices, 9).for_count(count)
    assert plan.calls == -(-count // (48 * devices))
    for group in range(plan.calls):
        live, used, here = plan.filled(group, count)
        assert here == min(48 * devices, count - group * 48 * devices)
        assert live == -(-here // (8 * devices)) and len(used) == live * devices
        assert sorted(used.tolist()) == [d * 6 + b for d in range(devices) for b in range(live)]
