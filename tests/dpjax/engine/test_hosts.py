"""What processes of a run tell each other: plain data, and nothing of a private table."""

import warnings
from pathlib import Path

import numpy as np
import pytest

import dpjax
from dpjax.engine import hosts
from dpjax.errors import InputError

CONFIG = {
    "name": "two",
    "data": {"csv": "table.csv"},
    "release": {"target": "y", "features": ["x"], "epsilon": 1.0, "bounds": {"x": [0, 10], "y": [-5, 25]}},
    "calibration": {
        "records": 50,
        "epsilon": 1,
        "trials": 40,
        "methods": ["naive"],
        "draws": 20,
        "chains_per_batch": 20,
    },
}


class Line:
    """The channel between two processes, one of which runs after the other."""

    def __init__(self, monkeypatch):
        self.said: list[bytes] = []
        monkeypatch.setattr(hosts, "count", lambda: 2)
        self._patch = monkeypatch

    def process(self, number):
        heard = iter(list(self.said))
        self._patch.setattr(hosts, "first", lambda: number == 0)
        self._patch.setattr(
            hosts, "_tell", (lambda x: (self.said.append(x), x)[1]) if number == 0 else lambda _: next(heard)
        )


def run(**options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dpjax.run(CONFIG, **options)


@pytest.mark.slow
def test_the_table_stays_on_process_0(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    x = rng.uniform(1, 9, 80)
    y = 2 * x + rng.normal(0, 3, 80)
    Path("table.csv").write_text(
        "\n".join(["x,y", *(f"{a!r},{b!r}" for a, b in zip(x.tolist(), y.tolist(), strict=True))])
    )
    line = Line(monkeypatch)
    line.process(0)
    zero = run(output="out")
    said = b"".join(line.said)
    assert said and b"numpy" not in said and b"dpjax._" not in said  # no names of classes: nothing to unpickle
    for value in (*x, *y):
        for form in (
            value.tobytes(),
            value.astype(">f8").tobytes(),
            np.float32(value).tobytes(),
            f"{value}"[:9].encode(),
        ):
            assert form not in said
    Path("table.csv").unlink()  # process 1 needs no table
    line.process(1)
    one = run(output="out")
    assert one.release == zero.release
    assert one.calibrations["naive"].cells == zero.calibrations["naive"].cells
    # resumed: what lies in the folder is told too
    Path("table.csv").write_text(
        "\n".join(["x,y", *(f"{a!r},{b!r}" for a, b in zip(x.tolist(), y.tolist(), strict=True))])
    )
    line.said.clear()
    line.process(0)
    run(output="out", resume=True)
    line.process(1)
    again = run(output="out", resume=True)
    assert again.calibrations["naive"].cells == zero.calibrations["naive"].cells


def test_plain_data_comes_back_and_objects_are_not_sent():
    value = {
        "a": [None, True, 3, 0.1, "é", b"\x00\xff"],
        "b": np.arange(6, dtype=">f4").reshape(2, 3),
        "c": float("inf"),
    }
    back = hosts._decoded(hosts._encoded(value))
    assert back["a"] == value["a"] and back["c"] == value["c"]
    assert back["b"].dtype == np.dtype(">f4") and (back["b"] == value["b"]).all()
    for bad in (object(), np.array([object()]), Path("x")):
        with pytest.raises(TypeError, match="no plain form"):
            hosts._encoded({"a": bad})


def test_what_is_no_plain_data_is_refused(monkeypatch):
    import pickle

    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("it was unpickled",))

    for content in (
        pickle.dumps((True, Trap())),
        b"",
        b"\xc1",
        hosts._encoded([True, {"$array": ["|O", [1], b"12345678"]}]),
    ):
        with pytest.raises(InputError, match="cannot be read"):
            hosts._decoded(content)
    for file in Path(dpjax.__file__).parent.rglob("*.py"):
        assert "import pickle" not in file.read_text() and "allow_pickle=True" not in file.read_text()


def test_a_refusal_of_process_0_is_everybodys(monkeypatch):
    line = Line(monkeypatch)

    def refuse():
        raise InputError("no such thing")

    for number in (0, 1):
        line.process(number)
        with pytest.raises(InputError, match="no such thing"):
            hosts.decide(refuse)


@pytest.mark.parametrize(("coordinator", "bound"), [("localhost:77", "localhost:77"), ("10.0.0.1:77", None)])
def test_the_coordinator_of_one_machine_listens_there_only(monkeypatch, coordinator, bound):
    seen = {}
    monkeypatch.setattr("jax.distributed.initialize", lambda *words, **options: seen.update(options))
    hosts.initialize(coordinator, 2, 0)
    assert seen["coordinator_bind_address"] == bound
