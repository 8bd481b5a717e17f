"""The engine: what a chain draws depends on its own number only; nothing that varies recompiles; sums equal draws."""

import jax
import numpy as np
import pytest

from dpjax.calibration.simulation import simulate_study
from dpjax.diagnostics.batch_means import batch_means_ess, split_rhat
from dpjax.engine import programs
from dpjax.engine.layout import layout, segment_length
from dpjax.engine.problems import Problems
from dpjax.engine.result_codes import NON_FINITE, OK
from dpjax.engine.run import run_chains
from dpjax.errors import InputError
from dpjax.inference.methods import METHODS
from dpjax.inference.run_method import run_method
from dpjax.models import LinearRegression
from dpjax.samplers.collapsed import Collapsed
from dpjax.samplers.conjugate import Conjugate
from dpjax.samplers.gibbs import Gibbs

SHORT = Collapsed(warmup=80, mode_steps=20)
GIBBS = Gibbs(burn_in=60)  # cheaper to compile, for what does not depend on the sampler


@pytest.fixture(scope="module")
def study():
    return simulate_study(LinearRegression.s0(1), [(1000, 0.1)], 64, sensitivity=16 / 3, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [SHORT, GIBBS, Conjugate()], ids=lambda s: s.name)
def test_problem_of_8_equals_problem_of_64_bit_for_bit(study, sampler):
    kwargs = {"seed": 3, "chains": 2, "draws": 40, "chains_per_batch": 16}
    few = run_chains(sampler, study.problems.take(np.arange(8)), **kwargs)
    many = run_chains(sampler, study.problems, **kwargs)
    assert few.draws.shape == (8, 2, 40, 5)
    np.testing.assert_array_equal(few.draws, many.draws[:8])


@pytest.mark.slow
def test_another_block_width_agrees_in_distribution(study):
    narrow = run_chains(Collapsed(), study.problems, seed=3, draws=200, chains_per_batch=32)
    wide = run_chains(Collapsed(), study.problems, seed=4, draws=200, chains_per_batch=128)
    sd = wide.draws.std((1, 2))
    gap = (narrow.draws.mean((1, 2)) - wide.draws.mean((1, 2))) / sd
    # 400 draws each, ESS of the worst about 150: sd of one gap at most .12; mean over 64 problems .015
    assert np.abs(gap.mean(0)).max() < 0.06
    assert np.abs(np.log(narrow.draws.std((1, 2)) / sd).mean(0)).max() < 0.08


@pytest.mark.slow
def test_draws_do_not_depend_on_the_segment_or_the_devices(study):
    one = study.problems.take(np.arange(4))
    kwargs = {"seed": 3, "draws": 40, "chains_per_batch": 8}
    base = run_chains(GIBBS, one, segment=20, devices=1, **kwargs)
    np.testing.assert_array_equal(base.draws, run_chains(GIBBS, one, segment=60, devices=1, **kwargs).draws)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [SHORT, GIBBS], ids=lambda s: s.name)
def test_one_device_and_two_give_the_same_bits(study, sampler):
    assert len(jax.devices()) == 2
    one, two = (run_chains(sampler, study.problems, seed=3, draws=40, devices=d) for d in (1, 2))
    assert (one.settings["devices"], two.settings["devices"]) == (1, 2)
    np.testing.assert_array_equal(one.draws, two.draws)


@pytest.mark.slow
def test_longer_run_continues_the_shorter_one(study):
    one = study.problems.take(np.arange(4))
    short = run_chains(GIBBS, one, seed=3, draws=40, chains_per_batch=8)
    long = run_chains(GIBBS, one, seed=3, draws=80, chains_per_batch=8)
    np.testing.assert_array_equal(short.draws, long.draws[:, :, :40])


@pytest.mark.slow
def test_what_varies_over_a_study_does_not_retrace(study):
    problems = study.problems
    run_chains(GIBBS, problems, seed=1, draws=20, chains_per_batch=64)
    before = dict(programs.TRACES)
    model = LinearRegression.create(1, theta_precision=0.5, sigma2_shape=7.0, nu=30.0)
    other = Problems(problems.z * 1.5, problems.n * 2, problems.scale * 3, model, "laplace")
    run = run_chains(GIBBS, other, seed=2, draws=20, chains_per_batch=64)
    assert dict(programs.TRACES) == before
    assert run.compile_seconds == 0
    run_chains(GIBBS, other, seed=2, draws=20, chains_per_batch=32)
    assert programs.TRACES["segment"] == before["segment"] + 1  # the counter does count


@pytest.mark.slow
def test_old_programs_are_forgotten_before_memory_maps_run_out(study, monkeypatch):
    """They stay while there is room; without it the next compilation starts afresh, and gives the same draws."""
    one = study.problems.take(np.arange(2))
    run = lambda width: run_chains(Conjugate(), one, seed=3, draws=20, chains_per_batch=width)
    first = run(4)
    held = len(programs._PROGRAMS)
    run(8)
    assert len(programs._PROGRAMS) > held
    monkeypatch.setattr(programs, "MOST_MAPS", 0)
    run(2)
    assert len(programs._PROGRAMS) == 2
    again = run(4)
    assert again.compile_seconds > 0
    np.testing.assert_array_equal(first.draws, again.draws)


@pytest.mark.slow
def test_thinning_takes_every_kth_step(study):
    one = study.problems.take(np.arange(4))
    kwargs = {"seed": 3, "chains_per_batch": 8}
    every = run_chains(Conjugate(), one, draws=200, **kwargs)
    for thin in (5, 20, 40):
        kept = run_chains(Conjugate(), one, draws=200 // thin, thin=thin, **kwargs)
        np.testing.assert_array_equal(every.draws[:, :, thin - 1 :: thin], kept.draws)


@pytest.mark.slow
def test_streaming_sums_equal_the_draws(study):
    kwargs = {"seed": 3, "chains": 2, "draws": 120, "chains_per_batch": 64}
    stored = run_chains(GIBBS, study.problems, **kwargs)
    summed = run_chains(GIBBS, study.problems, stream=True, truth=study.truth, **kwargs)
    assert summed.draws is None and summed.draws_per_chain == 120
    sums, draws = summed.streamed, stored.draws.astype(np.float64)
    np.testing.assert_allclose(sums.mean, draws.mean(2), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(sums.variance, draws.var(2), rtol=1e-3, atol=1e-7)
    below = (stored.draws < study.truth.astype(np.float32)[:, None, None]).sum(2)
    np.testing.assert_array_equal(sums.below, below)
    per_batch = 120 // sums.thinned.shape[2]
    np.testing.assert_array_equal(sums.thinned, stored.draws[:, :, per_batch - 1 :: per_batch])
    batches = draws.reshape(64, 2, -1, per_batch, 5)
    np.testing.assert_allclose(sums.ess, batch_means_ess(batches.mean(3), batches.var(3), per_batch), rtol=1e-3)
    np.testing.assert_allclose(sums.rhat, split_rhat(batches.mean(3), batches.var(3), per_batch), rtol=1e-3)


@pytest.mark.slow
def test_streamed_quantiles(study):
    """Within .03 sd of those of the draws; none where the chains have left the range of the sketch."""
    kwargs = {"seed": 3, "chains": 2, "draws": 2000, "chains_per_batch": 64}
    stored = run_chains(Conjugate(), study.problems, **kwargs)
    summed = run_chains(Conjugate(), study.problems, stream=True, truth=study.truth, **kwargs)
    flat = stored.draws.reshape(64, -1, 5)
    exact = np.moveaxis(np.quantile(flat, (0.05, 0.5, 0.95), axis=1), 0, -1)
    # the first segment, which lays the cells, is counted too only from the second on
    assert np.nanmax(np.abs(summed.streamed.quantiles - exact) / flat.std(1)[..., None]) < 0.1
    assert np.isfinite(summed.streamed.quantiles).all()
    slow = run_chains(Gibbs(burn_in=20), study.problems, stream=True, truth=study.truth, seed=3, draws=4000)
    assert np.isnan(slow.streamed.quantiles).any()


@pytest.mark.slow
def test_streaming_memory_does_not_grow_with_draws(study):
    kwargs = {"seed": 3, "stream": True, "truth": study.truth, "chains_per_batch": 64, "segment": 20}
    runs = [run_chains(GIBBS, study.problems, draws=draws, **kwargs) for draws in (640, 6400)]
    shapes = [{name: getattr(run.streamed, name).shape for name in vars(run.streamed)} for run in runs]
    assert shapes[0] == shapes[1] and shapes[0]["thinned"] == (64, 2, 32, 5)
    assert runs[1].draws_per_chain == 6400 and runs[1].draws is None
    below = runs[1].streamed.below
    assert ((below >= 0) & (below <= 6400)).all() and (runs[1].accept == 1).all()


@pytest.mark.slow
def test_float64_positions_above_a_million_records():
    """n over a million switches positions to float64: where the noise is negligible, the conjugate posterior."""
    big = simulate_study(LinearRegression.s0(1), [(2_000_000, 1000.0)], 16, sensitivity=16 / 3, seed=2)
    run = run_method("collapsed", big.problems, seed=1, draws=200, rerun=False)
    assert run.settings["float64_positions"] and (run.codes == OK).all()
    assert run.draws.dtype == np.float32
    exact = run_method("non-private", big.problems, seed=1, draws=200)
    # noise of .005 per entry is nothing beside n = 2e6: both posteriors coincide
    gap = (run.draws.mean((1, 2)) - exact.draws.mean((1, 2))) / exact.draws.std((1, 2))
    assert np.abs(gap).max() < 0.5


@pytest.mark.slow
def test_reruns_replace_the_unreliable_and_only_them(study, monkeypatch):
    problems = study.problems.take(np.arange(8))
    # two draws a chain can never reach the ESS asked for at 2 x 2 draws times .5 unless antithetic: force it
    monkeypatch.setattr("dpjax.inference.run_method._failed", _once(np.arange(8) < 3))
    plain = run_method("collapsed", problems, seed=5, draws=40, rerun=False)
    again = run_method("collapsed", problems, seed=5, draws=40)
    assert again.reruns == 3 and again.rerun_mask.tolist() == [True] * 3 + [False] * 5
    np.testing.assert_array_equal(again.draws[3:], plain.draws[3:])
    assert (again.draws[:3] != plain.draws[:3]).any((1, 2, 3)).all()
    assert again.diagnostics.rhat.shape == (8, 5) and again.rerun_seconds > 0
    assert again.seconds > plain.seconds * 0.1


def _once(mask):
    seen = []

    def failed(run, available):
        seen.append(1)
        return mask if len(seen) == 1 else np.zeros(len(mask), bool)

    return failed


@pytest.mark.slow
def test_non_finite_chains_get_a_code(monkeypatch):
    monkeypatch.setattr("dpjax.engine.problems.MOST_NOISE_UNITS", np.inf)  # else such a statistic is refused
    model = LinearRegression.s0(1)
    z = np.zeros((2, 5))
    z[1] = 1e38  # squares overflow float32
    run = run_chains(SHORT, Problems(z, np.array([100.0, 100.0]), np.ones((2, 5)), model, "laplace"), seed=1, draws=20)
    assert (run.codes[0] == OK).all() and (run.codes[1] != OK).all()


@pytest.mark.slow
def test_gibbs_that_blows_up_is_reported():
    z = np.array([[0.0, 50.0, 0.0, 0.0, -1e6]])
    problems = Problems(z, np.array([10.0]), np.ones((1, 5)), LinearRegression.s0(1), "laplace")
    wild = run_chains(Gibbs(burn_in=20, project=False), problems, seed=1, draws=20)
    assert (wild.codes == NON_FINITE).all()


@pytest.mark.parametrize(
    "change, match",
    [
        ({"chains": 0}, "chains"),
        ({"draws": 0}, "draws"),
        ({"thin": 7}, "thin"),
        ({"chains_per_batch": 1}, "chains_per_batch"),
        ({"devices": 99}, "devices"),
        ({"segment": 7}, "segment"),
    ],
)
def test_bad_sizes_are_refused(study, change, match):
    with pytest.raises(InputError, match=match):
        run_chains(SHORT, study.problems, seed=1, **change)


@pytest.mark.parametrize(
    "field, value",
    [
        ("z", np.zeros((2, 4))),
        ("z", np.zeros(5)),
        ("z", np.full((2, 5), np.nan)),
        ("n", np.array([0.0, 3.0])),
        ("n", np.array([np.nan, 3.0])),
        ("scale", np.zeros((2, 5))),
        ("scale", np.full((2, 5), np.inf)),
        ("scale", np.full((2, 5), 1e-30)),
    ],
)
def test_bad_problems_are_refused(field, value):
    good = {
        "z": np.zeros((2, 5)),
        "n": np.array([10.0, 10.0]),
        "scale": np.ones((2, 5)),
        "model": LinearRegression.s0(1),
        "mechanism": "laplace",
    }
    Problems(**good)
    with pytest.raises(InputError, match=field):
        Problems(**(good | {field: value}))


def test_unknown_methods_and_settings_are_refused(study):
    with pytest.raises(InputError, match="one of"):
        run_method("nuts", study.problems, seed=1)
    with pytest.raises(InputError, match="no setting"):
        run_method("collapsed", study.problems, seed=1, settings={"leapfrog": 3})
    with pytest.raises(InputError, match="exact statistics"):
        run_method(
            "non-private",
            Problems(np.zeros((1, 5)), np.array([9.0]), np.ones((1, 5)), LinearRegression.s0(1), "laplace"),
            seed=1,
        )
    unknown = Problems(np.zeros((1, 5)), np.array([9.0]), np.ones((1, 5)), LinearRegression.s0(1), "gauss")
    with pytest.raises(InputError, match=r"mechanism must be one of laplace, .*; got 'gauss'"):
        run_method("collapsed", unknown, seed=1)
    assert {"collapsed", "gibbs", "exact", "naive", "naive-untruncated", "non-private", "ops"} < set(METHODS)


def test_layout_pads_little_and_segments_divide_the_warmup():
    for count in (1, 8, 300, 2400, 20_000):
        plan = layout(count, 2, 5, 2, None)
        slots = plan.problems_per_call * plan.calls
        assert slots >= count and (count < 32 or slots <= 1.6 * count)
    for warm, sampling in ((240, 500), (240, 1000), (2000, 10_000), (0, 500), (480, 20)):
        size = segment_length(warm, sampling, 20)
        assert size % 20 == 0 and (warm % size == 0)
