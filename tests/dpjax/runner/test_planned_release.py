"""The release of a run is planned before anything is written: no noise whatever the filters of warnings say."""

import threading
import warnings

import pytest

from dpjax.errors import InputError
from dpjax.mechanisms import laplace
from dpjax.releases.owner_report import OwnerReport
from dpjax.runner import config
from dpjax.runner.checks import Prepared


@pytest.fixture
def content(tmp_path, monkeypatch):
    """A config with a private table."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text("wait\n" + "\n".join(f"{i % 9 + 1}" for i in range(40)) + "\n")
    return {
        "name": "planned",
        "data": {"csv": "table.csv"},
        "release": {"model": "exponential", "target": "wait", "bounds": [0.0, 10.0], "epsilon": 1.0},
    }


@pytest.fixture
def no_noise(monkeypatch):
    for name in ("opendp", "add_laplace_noise"):
        monkeypatch.setattr(laplace, name, lambda *_: pytest.fail("noise was drawn"))


def test_another_thread_that_leaves_catch_warnings_draws_no_noise(content, no_noise, monkeypatch):
    """A rehearsal that warnings as errors had to stop drew noise here: the filters are those of the whole process."""
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()

    def other():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            entered.set()
            leave.wait(30)
        left.set()

    def show(_):
        leave.set()
        assert left.wait(30)

    monkeypatch.setattr(OwnerReport, "show", show)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        thread = threading.Thread(target=other)
        thread.start()
        assert entered.wait(30)
        prepared = Prepared(*config.load(content))
        thread.join()
    assert left.is_set() and "not drawn yet" in repr(prepared.planned)


def test_what_a_run_prepares_holds_a_private_table_in_its_plan_only(content, no_noise, capsys):
    prepared = Prepared(*config.load(content))
    assert prepared.table is None and prepared.records == 40 and prepared._exact(prepared.planned.statistic) is None
    assert "for your eyes only" in capsys.readouterr().err


def test_a_run_draws_its_release_once(content):
    prepared = Prepared(*config.load(content))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert prepared.draw().records == 40
        with pytest.raises(InputError, match="was drawn before"):
            prepared.draw()


def test_what_the_plan_refuses_is_said_of_the_section(content, no_noise):
    content["release"]["mechanism"] = "discrete-laplace"
    with pytest.raises(InputError, match=r"^\[release\]: mechanism 'discrete-laplace' is for sums of whole numbers"):
        Prepared(*config.load(content))
