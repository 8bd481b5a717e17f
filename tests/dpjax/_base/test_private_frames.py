"""Exceptions out of `release` and `run`: no frame, no exception behind them and no words hold a private value."""

import dataclasses
import re
import traceback
import warnings

import numpy as np
import pytest

from dpjax._base import private_frames
from dpjax._base.private_frames import HIDDEN, without_private_frames, without_private_values
from dpjax.errors import InputError, PrivacyWarning
from dpjax.mechanisms import laplace as _noise
from dpjax.releases import drawing
from dpjax.releases.owner import release
from dpjax.runner import run as experiment

SECRET = 27.390625
GIVEN = {"target": "y", "features": ["x"], "bounds": {"x": (0, 100), "y": (0, 100)}, "epsilon": 1.0, "report": False}


def table():
    return {"x": np.array([SECRET, *range(1, 40)]), "y": np.array([SECRET, *range(1, 40)])}


def holds(value, depth=4, secret=SECRET):
    """Whether the private value is in a local variable, or in what it holds."""
    if isinstance(value, str | bytes):
        return str(secret) in str(value)
    if isinstance(value, int | float | np.number):
        return abs(float(value) - secret) < 1e-9
    if depth == 0 or value is None:
        return False
    if isinstance(value, np.ndarray):
        return any(holds(item, depth - 1) for item in value.ravel().tolist())
    if isinstance(value, dict):
        return any(holds(item, depth - 1) for pair in value.items() for item in pair)
    if isinstance(value, list | tuple | set):
        return any(holds(item, depth - 1) for item in value)
    if dataclasses.is_dataclass(value) or hasattr(value, "__dict__"):
        return any(holds(item, depth - 1) for item in list(vars(value).values()))
    return False


def leaks(error):
    """Frames of an exception, and of those behind it, with a private value; and those whose words have one."""
    found, seen, todo = [], set(), [error]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if str(SECRET) in str(one) or holds(list(one.args)):
            found.append(f"words of {type(one).__name__}")
        for frame, line in traceback.walk_tb(one.__traceback__):
            place = frame.f_code.co_filename
            ours = place != __file__ and "jaxtyping" not in place and "beartype" not in place
            if ours and any(holds(item) for item in list(frame.f_locals.values())):
                found.append(f"{place}:{line}")
        todo += [one.__cause__, one.__context__]
    return found


def fails(error):
    def act(*_, **__):
        held = SECRET  # noqa: F841
        raise error

    return act


class Coded(Exception):
    """With words that are not its arguments, as those of some libraries."""

    def __str__(self):
        return f"value {SECRET}"


CASES = {
    "missing": ({}, {"x": [SECRET, None]}, InputError),
    "text": ({}, {"x": [SECRET, "a"], "y": [1, SECRET]}, InputError),
    "infinite": ({}, {"x": [SECRET, np.inf], "y": [1, SECRET]}, InputError),
    "lengths": ({}, {"x": [SECRET, 2], "y": [SECRET]}, InputError),
    "argument": ({"epsilon": 0}, None, InputError),
    "bounds": ({"bounds": {"x": (0, 1)}}, None, InputError),
    "looks wrong": ({"bounds": {"x": (0, 1), "y": (0, 1)}}, None, InputError),
    "noise": ({"epsilon": 5e-324}, None, InputError),
}


@pytest.mark.parametrize("name", CASES)
def test_no_frame_of_a_refused_release_holds_a_value(name):
    changes, data, kind = CASES[name]
    with pytest.raises(kind) as caught, warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        release(table() if data is None else data, **GIVEN | changes)
    assert leaks(caught.value) == []
    assert len(traceback.extract_tb(caught.value.__traceback__)) > 2  # where it was is still said


@pytest.mark.parametrize(
    "error",
    [RuntimeError(f"value {SECRET}"), KeyError(SECRET), Coded(SECRET), ValueError(np.array([SECRET])),
     UnicodeDecodeError("utf-8", str(SECRET).encode(), 0, 1, "bad"), KeyboardInterrupt(), OSError(28, "disk is full")],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
@pytest.mark.parametrize("module, place", [(_noise, "add_laplace_noise"), (drawing, "exact_sums")])
def test_no_frame_of_a_failed_release_holds_a_value(monkeypatch, error, module, place):
    monkeypatch.setattr(module, place, fails(error))
    with pytest.raises(BaseException) as caught, warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        release(table(), **GIVEN)
    assert leaks(caught.value) == []
    if isinstance(error, KeyboardInterrupt | OSError):
        assert caught.value is error
    else:
        assert HIDDEN in str(caught.value)
    assert any(place == item.name or item.name == "act" for item in traceback.extract_tb(caught.value.__traceback__))


@pytest.mark.parametrize("kind", [InputError, RuntimeError])
@pytest.mark.parametrize("link", ["__cause__", "__context__"])
def test_no_exception_behind_another_holds_a_value(monkeypatch, kind, link):
    error = kind("words")
    setattr(error, link, ValueError(SECRET))
    monkeypatch.setattr(_noise, "add_laplace_noise", fails(error))
    with pytest.raises(kind) as caught, warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        release(table(), **GIVEN)
    assert leaks(caught.value) == [] and caught.value.__cause__ is caught.value.__context__ is None


def test_no_frame_of_a_warning_as_error_holds_a_value():
    with pytest.raises(PrivacyWarning) as caught, warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        release(table(), **GIVEN)
    assert leaks(caught.value) == []


def test_warnings_stand_at_the_callers_line():
    with pytest.warns(PrivacyWarning) as caught:
        release(table(), **GIVEN)
    named = {warning.filename for warning in caught}
    assert len(named) == 1 and re.search("test_private_frames|jaxtyping", named.pop())


@pytest.fixture
def config(tmp_path):
    """Of a run with a private table, which is written by what it gives."""
    (tmp_path / "config.toml").write_text(
        """
name = "private"
seed = 1
[data]
csv = "table.csv"
[release]
target = "y"
features = ["x"]
bounds = {x = [0, 100], y = [0, 100]}
epsilon = 1.0
"""
    )

    def write(content):
        (tmp_path / "table.csv").write_text(content)
        return tmp_path / "config.toml"

    return write


@pytest.mark.parametrize("content", [f"x,y\n{SECRET},1\n2,\n", f"x,y\n{SECRET},1\n2,abc\n", f"x,y\n{SECRET},1\n2\n"])
def test_no_frame_of_a_refused_run_holds_a_value(config, content):
    with pytest.raises(InputError, match=r"column|fields") as caught:
        experiment.run(config(content))
    assert leaks(caught.value) == []


def test_no_frame_of_a_run_that_fails_later_holds_a_value(config, monkeypatch):
    rows = "".join(f"{x},{x}\n" for x in (SECRET, *range(1, 40)))
    monkeypatch.setattr(experiment, "_release", fails(RuntimeError("of JAX")))
    with pytest.raises(RuntimeError, match="of JAX") as caught:
        experiment.run(config(f"x,y\n{rows}"))
    assert leaks(caught.value) == []


def test_with_debugging_exceptions_are_left_as_they_are(monkeypatch):
    monkeypatch.setenv(private_frames.DEBUG_VARIABLE, "1")
    monkeypatch.setattr(_noise, "add_laplace_noise", fails(RuntimeError(f"value {SECRET}")))
    with pytest.raises(RuntimeError, match=str(SECRET)) as caught, warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        release(table(), **GIVEN)
    assert leaks(caught.value)


def test_functions_keep_what_they_are():
    def plain(one: int, *, two: int = 2) -> int:
        """Words."""
        return one + two

    for guard in (without_private_frames, without_private_values):
        guarded = guard(plain)
        with pytest.raises(TypeError, match="missing 1 required positional argument"):
            guarded()
        assert guarded(1) == 3 and guarded.__doc__ == "Words." and guarded.__name__ == "plain"
