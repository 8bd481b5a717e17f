"""Runs that are killed, spread over processes and compiled ahead give what an undisturbed run gives, bit for bit."""

import io
import itertools
import re
import socket

import jax
import numpy as np
import pytest
import scale_run as scale

import dpjax
from dpjax.calibration.simulation import simulate_study
from dpjax.cli.progress import Bar
from dpjax.engine import programs
from dpjax.engine.checkpoint import Checkpoint
from dpjax.engine.layout import layout
from dpjax.engine.loop import Progress
from dpjax.engine.problems import Problems
from dpjax.engine.run import run_chains
from dpjax.errors import InputError
from dpjax.models import LinearRegression
from dpjax.samplers.gibbs import Gibbs

pytestmark = pytest.mark.slow
GIBBS = Gibbs(burn_in=40)
DONE = (0, 1)  # 1: so few draws that some trials have not converged
KWARGS = {"seed": 3, "chains": 2, "draws": 80, "chains_per_batch": 16}


class Stop(Exception):
    pass


def stop_after(calls):
    """A progress callback that ends the run at its n-th call."""
    left = [calls]

    def progress(_):
        left[0] -= 1
        if left[0] == 0:
            raise Stop

    return progress


def run_calls(run):
    """Progress reports of the whole run."""
    segments = 40 // run.settings["segment"] + -(-80 // run.settings["segment"])
    blocks = -(-300 * 2 // (16 * run.settings["devices"]))  # per device
    return segments * -(-blocks // 8)


@pytest.fixture(scope="module")
def study():
    return simulate_study(LinearRegression.s0(1), [(1000, 0.1)], 300, sensitivity=16 / 3, seed=1)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Config, compilation cache and results of the experiment run once, on one device."""
    folder = tmp_path_factory.mktemp("scale")
    config, cache = folder / "config.toml", folder / "cache"
    config.write_text(scale.QUICK)
    code, out = scale.finish(scale.start(config, folder / "whole", devices=1, cache=cache))
    assert code in DONE, out
    found = scale.results(folder / "whole")
    assert len(found) == 4 and not list((folder / "whole" / "parts").glob("*.ckpt"))
    return config, cache, found


# ---- checkpoints -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("calls", [1, 5, 13])
def test_interrupted_run_goes_on_bit_for_bit(study, tmp_path, monkeypatch, stream, calls):
    """In warm-up, between draws and in a later group; with all kinds of results."""
    monkeypatch.setattr("dpjax.engine.checkpoint.SHARE", np.inf)  # a checkpoint at every call
    kwargs = KWARGS | ({"stream": True, "truth": study.truth} if stream else {})
    whole = run_chains(GIBBS, study.problems, **kwargs)
    with pytest.raises(Stop):
        run_chains(
            GIBBS, study.problems, progress=stop_after(calls + 1), checkpoint=Checkpoint(tmp_path, "x", 0.0), **kwargs
        )
    assert (tmp_path / "x.state.ckpt").exists()
    seen = []
    again = run_chains(GIBBS, study.problems, progress=seen.append, checkpoint=Checkpoint(tmp_path, "x", 1e9), **kwargs)
    assert len(seen) + calls == run_calls(whole)  # it went on from the last checkpoint, and did not begin again
    for name in ("draws", "codes", "accept", "divergences"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(again, name))
    if stream:
        for name, value in vars(whole.streamed).items():
            np.testing.assert_array_equal(value, getattr(again.streamed, name))


def test_what_lays_the_quantile_cells_survives_a_kill(study, tmp_path, monkeypatch):
    """Killed where several segments of warm-up have been merged into where the cells lie."""
    monkeypatch.setattr("dpjax.engine.checkpoint.SHARE", np.inf)
    sampler, kwargs = Gibbs(burn_in=160), KWARGS | {"stream": True, "truth": study.truth, "segment": 20}
    whole = run_chains(sampler, study.problems, **kwargs)
    with pytest.raises(Stop):
        run_chains(sampler, study.problems, progress=stop_after(7), checkpoint=Checkpoint(tmp_path, "x", 0.0), **kwargs)
    again = run_chains(sampler, study.problems, checkpoint=Checkpoint(tmp_path, "x", 1e9), **kwargs)
    np.testing.assert_array_equal(whole.streamed.quantiles, again.streamed.quantiles)


def test_checkpoints_of_another_run_and_broken_ones_are_refused(study, tmp_path):
    def go(problems=study.problems, **change):
        run_chains(GIBBS, problems, checkpoint=Checkpoint(tmp_path, "x", 1e9), **(KWARGS | change))

    with pytest.raises(Stop):
        run_chains(GIBBS, study.problems, progress=stop_after(3), checkpoint=Checkpoint(tmp_path, "x", 0.0), **KWARGS)
    path = tmp_path / "x.state.ckpt"
    good = path.read_bytes()
    with pytest.raises(InputError, match=r"x\.state\.ckpt: was written by another run .*seed: 3 there, 4 here"):
        go(seed=4)
    with pytest.raises(InputError, match="draws: 80 there, 100 here"):
        go(draws=100)
    other = Problems(study.problems.z + 1, study.problems.n, study.problems.scale, study.problems.model, "laplace")
    with pytest.raises(InputError, match="the data differ"):
        go(other)
    for broken in (good[:1000], good[:-200] + bytes(200), b"", b"nonsense", _flipped(good)):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=r"x\.state\.ckpt: is broken .*remove it"):
            go()
    path.write_bytes(good)
    go()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.state.ckpt"]  # no temporary file is left
    Checkpoint(tmp_path, "x").discard()
    assert not list(tmp_path.iterdir())


def _flipped(content: bytes) -> bytes:
    """One bit of the largest array turned."""
    place = len(content) // 2
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_run_is_continued_bit_for_bit(undisturbed, tmp_path, seed):
    """kill -9 at random moments of a real process, again and again, until a resumed one reaches the end."""
    config, cache, whole = undisturbed
    output, rng = tmp_path / "out", np.random.default_rng(seed)
    options, kills = ["--checkpoint", "0.05"], 0
    for attempt in range(3):
        process = scale.start(config, output, *options, cache=cache)
        kills += scale.kill_after(process, rng.uniform(0.2, 3.0), begun=output / "run.json")
        options = ["--checkpoint", "0.05", "--resume"]
        assert attempt or kills
    code, out = scale.finish(scale.start(config, output, *options, cache=cache))
    assert code in DONE, out
    assert scale.same(whole, scale.results(output))


# ---- devices and processes -------------------------------------------------------------------------------------
def test_two_processes_give_what_one_gives(undisturbed, tmp_path):
    config, cache, whole = undisturbed
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    together = ["--distributed", "--coordinator", address, "--processes", "2"]
    processes = [
        scale.start(config, tmp_path / "out", *together, "--process", str(i), devices=1, cache=cache) for i in range(2)
    ]
    outs = [scale.finish(process) for process in processes]
    assert all(code in DONE for code, _ in outs), outs
    assert "calibration of gibbs" in outs[0][1] and "calibration of" not in outs[1][1]  # process 0 speaks
    assert scale.same(whole, scale.results(tmp_path / "out"))
    assert '"processes": 2' in (tmp_path / "out" / "calibration_gibbs.json").read_text()


@pytest.mark.parametrize(
    "options, match",
    [
        (["--processes", "2"], "are for --distributed"),
        (["--distributed", "--processes", "2"], "belong together"),
        (["--distributed", "--coordinator", "here", "--processes", "1", "--process", "0"], "HOST:PORT"),
        (["--distributed", "--coordinator", "localhost:1", "--processes", "2", "--process", "2"], "process must lie"),
    ],
)
def test_bad_distribution_is_refused(tmp_path, capsys, options, match):
    from dpjax.cli.app import main

    (tmp_path / "c.toml").write_text(scale.CONFIG)
    assert main(["run", str(tmp_path / "c.toml"), "--output", str(tmp_path / "out"), *options]) == 2
    assert match in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_devices_and_platforms_that_are_not_there_are_refused(capsys):
    from dpjax.cli.app import main

    cheap = ["calibrate", "binomial", "--records", "50", "--epsilon", "1", "--trials", "20"]
    assert main([*cheap, "--devices", "99"]) == 2
    assert "devices must lie in 1..2; got 99" in capsys.readouterr().err
    assert main([*cheap, "--platform", "abacus"]) == 2
    assert "platform must be one of cpu, gpu, tpu; got 'abacus'" in capsys.readouterr().err


@pytest.mark.parametrize("count, chains", [(1, 4), (3, 2), (40, 2), (300, 2), (2400, 2), (100_000, 2)])
def test_layout_does_not_depend_on_the_devices(count, chains):
    plans = [layout(count, chains, 5, devices, None) for devices in (1, 2, 4)]
    assert len({plan.problems_per_block for plan in plans}) == 1
    for plan in plans:
        slots = plan.problems_per_call * plan.calls
        assert count <= slots and plan.devices <= max(count, 1)
        assert slots <= max(1.35 * count, count + 4 * plan.problems_per_block)


# ---- compiled ahead --------------------------------------------------------------------------------------------
def test_precompiled_programs_serve_the_later_call(study):
    programs._PROGRAMS.clear()
    kwargs = {"features": 1, "method": "gibbs", "chains": 2, "draws": 60}
    assert dpjax.precompile("linear-regression", trials=64, **kwargs).seconds > 0
    before = dict(programs.TRACES)
    assert dpjax.precompile("linear-regression", trials=64, **kwargs).seconds == 0
    later = dpjax.calibrate(records=100, epsilon=1.0, trials=64, method="gibbs", draws=60, mmd=False)
    assert later.compile_seconds == 0 and dict(programs.TRACES) == before


@pytest.mark.parametrize(
    "change, match",
    [({"method": "non-private"}, "exact statistics"), ({"trials": 0}, "trials"), ({"model": "cubic"}, "model")],
)
def test_precompile_refuses(change, match):
    with pytest.raises(InputError, match=match):
        dpjax.precompile(**change)


def test_a_grid_of_everything_that_varies_compiles_once():
    kwargs = {"method": "gibbs", "trials": 16, "draws": 40, "mmd": False, "chains_per_batch": 32}
    dpjax.calibrate(records=100, epsilon=1.0, **kwargs)
    before = dict(programs.TRACES)
    for records, epsilon, bounds, prior in (
        (10, 0.01, (-1.0, 1.0), None),
        (1000, 10.0, (-2.0, 3.0), {"sigma2_shape": 7.0}),
        (100_000, 0.3, (0.0, 1.0), {"theta_precision": 2.0, "sigma2_scale": 1.0}),
    ):
        study = dpjax.calibrate(records=records, epsilon=epsilon, bounds=bounds, prior=prior, **kwargs)
        assert study.compile_seconds == 0
    assert dict(programs.TRACES) == before


# ---- progress --------------------------------------------------------------------------------------------------
class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_bar_shows_rate_time_left_and_the_worst(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    clock = iter([10.0, 20.0])
    monkeypatch.setattr("dpjax.cli.progress.time.monotonic", lambda: next(clock))
    bar = Bar(Terminal())
    bar("2/3 fit gibbs", Progress(1_000_000, 9_000_000))
    bar("2/3 fit gibbs", Progress(5_000_000, 9_000_000, 1.237, 45.4))
    line = bar.stream.getvalue().split("\r")[-1]
    assert re.search(r"2/3 fit gibbs +\[#+\.+\] +56%  ETA 0:10  400\.0k steps/s  R-hat 1\.24  ESS 45", line)
    bar.clear()
    assert bar.stream.getvalue().endswith("\r")
    quiet = Bar(io.StringIO())
    quiet("x", Progress(1, 2))
    assert quiet.stream.getvalue() == ""


def test_progress_counts_chain_steps_and_looks_at_convergence(study, monkeypatch):
    monkeypatch.setattr("dpjax.engine.loop._LOOK_EVERY", 0.0)
    seen = []
    run = run_chains(GIBBS, study.problems, progress=seen.append, **(KWARGS | {"draws": 400}))
    steps = run.settings["segment"] * -(-400 // run.settings["segment"]) + 40
    assert seen[-1].done == seen[-1].total == steps * 600
    assert all(a.done < b.done for a, b in itertools.pairwise(seen))
    assert seen[-1].rhat > 1.1 and 1 < seen[-1].ess < 100  # the papers' sampler: it does not mix here
    assert jax.device_count() == 2
