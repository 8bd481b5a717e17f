"""The seconds of an experiment's methods: measured, kept for a resumed run, and shown."""

import json
import time
from types import SimpleNamespace

import pytest

from dpjax.runner.run import run
from dpjax.runner.seconds import WallSeconds, seconds_table

STUDY = {"model": "binomial", "records": [20, 50], "epsilon": 1.0, "trials": 4, "methods": ["naive", "non-private"]}


def test_wall_seconds(tmp_path):
    (tmp_path / "parts").mkdir()
    wall = WallSeconds.read(tmp_path)
    assert wall.seconds == {}
    with wall.measured("simulation"):
        time.sleep(0.02)
    with pytest.raises(KeyError), wall.measured("figures"):  # what did not finish took no time
        raise KeyError
    with wall.measured("calibration naive"):
        pass
    again = WallSeconds.read(tmp_path)
    assert again.seconds == wall.seconds and list(again.seconds) == ["simulation", "calibration naive"]
    assert 0.02 <= again.seconds["simulation"] < 2.0
    (tmp_path / "parts" / "wall_seconds.npz").write_bytes(b"broken")
    assert WallSeconds.read(tmp_path).seconds == {}
    nowhere = WallSeconds()
    with nowhere.measured("simulation"):
        pass
    assert list(nowhere.seconds) == ["simulation"]


def test_seconds_table():
    item = lambda seconds, compiled: SimpleNamespace(seconds=seconds, compile_seconds=compiled)
    text = seconds_table(
        {}, {"naive": item(0.5, 6.25), "gibbs": item(10.0, None)}, {"calibration naive": 7.0, "figures": 2.0}
    )
    assert text.splitlines() == [
        "seconds              run  compilation  wall",
        "calibration naive   0.50         6.25  7.00",
        "calibration gibbs  10.00            -     -",
        "figures                -            -  2.00",
    ]
    assert seconds_table({}, {"naive": item(0.5, 6.25)}, {}) == ""


@pytest.mark.slow
def test_run_shows_seconds(tmp_path):
    """At the end of results.txt, in results.json, and as they were in a resumed run."""
    config = {"name": "a", "calibration": {**STUDY, "draws": 40}}
    first = run(config, tmp_path / "out")
    kept = json.loads((tmp_path / "out" / "results.json").read_text())["wall_seconds"]
    assert set(kept) == {
        "simulation", "non-private draws for the MMD", "calibration naive", "calibration non-private", "figures"
    }  # fmt: skip
    assert all(value > 0 for value in kept.values()) and sum(kept.values()) < first.seconds
    text = (tmp_path / "out" / "results.txt").read_text()
    assert text.rstrip() == first.table() and text.rstrip().splitlines()[-1].startswith("figures")
    again = run(config, tmp_path / "out", resume=True)
    assert again.wall["calibration naive"] == kept["calibration naive"] and again.wall["figures"] != kept["figures"]
    for name in ("ks.png", "coverage.png", "mmd.png", "seconds.png"):
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")
