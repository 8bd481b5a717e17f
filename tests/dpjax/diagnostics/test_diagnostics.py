"""Diagnostics against ArviZ (both lines), one variable at a time."""

import logging
import time

import numpy as np
import pytest

from dpjax.diagnostics.batch_means import batch_means_ess, split_rhat
from dpjax.diagnostics.ranks import diagnose, worst
from dpjax.diagnostics.tails import HEAVY_TAIL, tail_index
from dpjax.errors import InputError

arviz = pytest.importorskip("arviz")
OLD = int(arviz.__version__.split(".")[0]) < 1


def reference(draws):
    """R-hat, bulk, tail, MCSE of [C, S] by ArviZ."""
    if OLD:
        return (
            float(arviz.rhat(draws, method="rank")),
            float(arviz.ess(draws, method="bulk")),
            float(arviz.ess(draws, method="tail")),
            float(arviz.mcse(draws, method="mean")),
        )
    from arviz_stats.base import array_stats as stats

    axes = {"chain_axis": 0, "draw_axis": 1}
    return (
        float(stats.rhat(draws, method="rank", **axes)),
        float(stats.ess(draws, method="bulk", **axes)),
        float(stats.ess(draws, method="tail", prob=(0.05, 0.95), **axes)),
        float(stats.mcse(draws, method="mean", **axes)),
    )


def autoregressive(rng, shape, rho, axis=2):
    noise = np.moveaxis(rng.normal(size=shape), axis, 0)
    out = np.empty_like(noise)
    out[0] = noise[0]
    for s in range(1, len(noise)):
        out[s] = rho * out[s - 1] + np.sqrt(1 - rho**2) * noise[s]
    return np.moveaxis(out, 0, axis)


def rejected_moves(rng, shape, share=0.3):
    draws = rng.normal(size=shape)
    stay = rng.uniform(size=shape[:3]) < share
    for s in range(1, shape[2]):
        draws[:, :, s] = np.where(stay[:, :, s, None], draws[:, :, s - 1], draws[:, :, s])
    return draws


def assert_matches(draws):
    names = [f"p{k}" for k in range(draws.shape[3])]
    found = diagnose(draws, names)
    for t in range(draws.shape[0]):
        for k in range(draws.shape[3]):
            expected = reference(draws[t, :, :, k])
            got = [getattr(found, f)[t, k] for f in ("rhat", "ess_bulk", "ess_tail", "mcse_mean")]
            np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.6, 0.97])
@pytest.mark.parametrize("chains,length", [(2, 200), (4, 101)])
def test_autoregressive_chains_match_arviz(rho, chains, length):
    rng = np.random.default_rng(int(100 * rho) % 97)
    assert_matches(autoregressive(rng, (3, chains, length, 2), rho))


@pytest.mark.parametrize("length", [4, 5, 6, 7, 8, 9, 11, 20])
def test_short_chains_match_arviz(length):
    assert_matches(np.random.default_rng(length).normal(size=(4, 2, length, 2)))


@pytest.fixture
def exact_quantile(monkeypatch):
    """ArviZ 0.x rounds its quantile of equal draws below them; with NumPy's it must agree to all digits."""
    if OLD:
        import arviz.stats.diagnostics as module

        def quantile(values, q):
            return np.atleast_1d(np.quantile(values, q))

        monkeypatch.setattr(module, "_quantile", quantile)


@pytest.mark.parametrize("length", [120, 121])
def test_rejected_moves_have_average_ranks(exact_quantile, length):
    rng = np.random.default_rng(3)
    assert_matches(rejected_moves(rng, (3, 2, length, 2)))
    assert_matches(np.round(rng.normal(size=(3, 3, length, 2)), 1))


def test_shifted_and_scaled_chains_are_seen(exact_quantile):
    rng = np.random.default_rng(4)
    draws = rng.normal(size=(2, 4, 150, 2)) + np.array([0, 0, 0, 2.0])[None, :, None, None]
    draws[1] = rng.normal(size=(4, 150, 2)) * np.array([1, 1, 1, 5.0])[:, None, None]
    assert_matches(draws)
    assert (diagnose(draws, "ab").max_rhat > 1.1).all()  # the second problem only through the folded draws


def test_heavy_tails_and_large_offsets_match_arviz():
    rng = np.random.default_rng(5)
    draws = rng.standard_cauchy(size=(2, 2, 200, 2))
    draws[..., 1] = 1e6 + rng.normal(size=(2, 2, 200))
    assert_matches(draws)


def test_parameter_that_never_moved():
    draws = np.random.default_rng(6).normal(size=(2, 2, 50, 2))
    draws[1, :, :, 0] = 3.0
    draws[0, :, :, 1] = np.array([1.0, 2.0])[:, None]
    logging.disable(logging.WARNING)
    _, bulk, tail, _ = reference(draws[1, :, :, 0])
    logging.disable(logging.NOTSET)
    found = diagnose(draws, "ab")
    assert np.isnan(found.rhat[1, 0]) and found.ess_bulk[1, 0] == bulk == 100 == found.ess_tail[1, 0] == tail
    assert found.constant.tolist() == [[False, False], [True, False]]
    assert found.max_rhat[1] == np.inf and found.min_ess[1] == 0 and found.min_ess_tail[1] == 0
    assert found.max_rhat[0] == np.inf  # two chains frozen in different places
    assert found.unreliable().tolist() == [True, True]
    first = worst(found, 2)[0]
    assert (first.problem, first.name, first.rhat, first.ess_bulk) == (1, "a", np.inf, 0)


def test_not_finite_too_short_and_one_chain():
    rng = np.random.default_rng(7)
    draws = rng.normal(size=(3, 2, 40, 2))
    draws[1, 0, 5, 0] = np.nan
    draws[2, 0, 5, 1] = np.inf
    found = diagnose(draws, "ab")
    assert np.isnan(found.ess_bulk).tolist() == [[False, False], [True, False], [False, True]]
    assert found.min_ess[1] == 0 and found.max_rhat[2] == np.inf and np.isfinite(found.max_rhat[0])
    assert np.isnan(diagnose(draws[:, :, :3], "ab").rhat).all()
    one = diagnose(draws[:1, :1], "ab")
    assert np.isfinite(one.rhat).all()
    np.testing.assert_allclose(one.ess_bulk[0, 0], reference(draws[0, :1, :, 0])[1], rtol=1e-6)


def test_capped_at_the_number_of_draws():
    draws = autoregressive(np.random.default_rng(8), (3, 2, 300, 1), -0.8)
    found = diagnose(draws, ["x"])
    assert (found.ess_bulk > 600).all()
    assert (found.capped_bulk == 600).all() and (found.min_ess == 600).all()


def test_chunks_threads_and_dtype_do_not_matter(monkeypatch):
    draws = rejected_moves(np.random.default_rng(9), (40, 2, 60, 3)).astype(np.float32)
    whole = diagnose(draws, "abc", threads=1)
    monkeypatch.setattr("dpjax.diagnostics.ranks.CHUNK_ELEMENTS", 1000)
    for other in (diagnose(draws, "abc"), diagnose(draws.astype(np.float64), "abc")):
        for field in ("rhat", "ess_bulk", "ess_tail", "mcse_mean"):
            np.testing.assert_allclose(getattr(other, field), getattr(whole, field), rtol=1e-12)


def test_speed_of_a_calibration_study():
    draws = np.random.default_rng(10).normal(size=(1000, 2, 500, 5)).astype(np.float32)
    diagnose(draws[:10], "abcde")
    start = time.perf_counter()
    diagnose(draws, "abcde")
    assert time.perf_counter() - start < 6  # about 0.4 s on two idle cores


def test_wrong_shapes_are_refused():
    with pytest.raises(InputError, match="draws: shape"):
        diagnose(np.zeros((2, 3, 4)), "abcd")
    with pytest.raises(InputError, match="names: 2 names"):
        diagnose(np.zeros((1, 2, 10, 2)), "a")
    with pytest.raises(InputError, match="at least two batches"):
        split_rhat(np.zeros((1, 2, 1, 1)), np.zeros((1, 2, 1, 1)), 5)
    with pytest.raises(InputError, match="two arrays"):
        batch_means_ess(np.zeros((1, 2, 4, 1)), np.zeros((1, 2, 3, 1)), 5)


def batches(draws, length):
    problems, chains, size, parameters = draws.shape
    cut = draws.reshape(problems, chains, size // length, length, parameters)
    return cut.mean(axis=3), cut.var(axis=3), length


def test_streaming_split_rhat_is_the_plain_one():
    draws = autoregressive(np.random.default_rng(11), (2, 3, 120, 2), 0.9)
    got = split_rhat(*batches(draws, 10))
    for t in range(2):
        for k in range(2):
            if OLD:
                expected = float(arviz.rhat(draws[t, :, :, k], method="split"))
            else:
                from arviz_stats.base import array_stats as stats

                expected = float(stats.rhat(draws[t, :, :, k], method="split", chain_axis=0, draw_axis=1))
            np.testing.assert_allclose(got[t, k], expected, rtol=1e-10)


def test_streaming_ess_of_an_autoregression():
    """Expected ESS of an AR(1) chain is N (1 - rho) / (1 + rho); median over 40 problems within 20%."""
    rho = 0.6
    draws = autoregressive(np.random.default_rng(12), (40, 2, 2000, 1), rho)
    got = batch_means_ess(*batches(draws, 50))
    assert np.median(got) == pytest.approx(4000 * (1 - rho) / (1 + rho), rel=0.2)
    apart = draws + np.array([0.0, 3.0])[None, :, None, None]
    disagree = batch_means_ess(*batches(apart, 50))
    assert (disagree < 200).all() and (disagree > 79).all()  # never under the number of batches minus one
    assert (split_rhat(*batches(apart, 50)) > 1.5).all()


def test_tail_index_is_that_of_the_law():
    """A power a of the tail: 1 / a; normal, uniform and exponential: 0, whatever their unit."""
    rng = np.random.default_rng(13)
    size = (200_000,)
    laws = {0.5: 1 / rng.gamma(2, size=size), 1 / 3: -7e3 * rng.pareto(3, size=size), 0.0: rng.normal(size=size)}
    found = tail_index(np.stack(list(laws.values()), 1), share=0.002)
    np.testing.assert_allclose(found, list(laws), atol=0.07)
    light = tail_index(np.stack([rng.normal(size=4000), rng.exponential(size=4000), rng.uniform(size=4000)], 1))
    assert (light < HEAVY_TAIL).all() and (tail_index(np.ones((4000, 2))) == 0).all()
