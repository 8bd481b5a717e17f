"""Releases in two steps: a plan checks everything and draws nothing, is drawn once, and shows public facts only."""

import copy
import inspect
import os
import pickle
import re
import subprocess
import sys
import threading
import traceback
import warnings
from pathlib import Path

import numpy as np
import pytest

import dpjax
from dpjax._base.private_frames import HIDDEN
from dpjax.errors import InputError, MissingExtraError, PrivacyWarning
from dpjax.mechanisms import discrete_laplace, gaussian, laplace
from dpjax.privacy import opendp_noise, quantile
from dpjax.privacy.quantile import PrivateQuantile
from dpjax.releases import drawing, owner
from dpjax.releases.plan import Plan

sys.path.insert(0, str(Path(__file__).parents[2] / "golden"))
from stored import RELEASES, table

del sys.path[0]

SEARCHED = {"exponential-private-bounds": {
    "model": "exponential", "target": "wait", "bounds": {"wait": PrivateQuantile((0.0, 8.0), 0.25)}, "epsilon": 4.0,
}}  # fmt: skip
KINDS = RELEASES | SEARCHED
SECRET = 27.390625
GIVEN = {"target": "y", "features": ["x"], "bounds": {"x": (0, 100), "y": (0, 100)}, "epsilon": 1.0, "report": False}
AVERAGED = {
    "intercept": False, "bounds": None, "averaged": 2, "norms": {"features": 9.0, "target": 9.0},
    "mechanism": "gaussian", "delta": 1e-5, "accept": True,
}  # fmt: skip


def secret_table():
    return {"x": [SECRET, *range(1, 40)], "y": [SECRET, *range(1, 40)]}


def arguments(name):
    return {**KINDS[name], "report": False, "accept": True}


def fail(*_, **__):
    pytest.fail("randomness was asked for")


@pytest.fixture
def no_randomness(monkeypatch):
    """Neither OpenDP nor the operating system may be asked for anything."""
    monkeypatch.setattr(os, "urandom", fail)
    monkeypatch.setattr(os, "getrandom", fail, raising=False)
    for module, names in {
        opendp_noise: ("opendp", "noised", "smallest_scale"),
        laplace: ("opendp", "add_laplace_noise"),
        gaussian: ("opendp", "add_gaussian_noise"),
        discrete_laplace: ("opendp", "add_discrete_laplace_noise"),
        quantile: ("find_bounds", "quantile_measurement"),
        drawing: ("draw", "_permutation"),
    }.items():  # fmt: skip
        for name in names:
            monkeypatch.setattr(module, name, fail)
    from opendp import mod

    monkeypatch.setattr(mod.Measurement, "__call__", fail)
    monkeypatch.setattr(mod.Measurement, "map", fail)


@pytest.mark.parametrize("name", KINDS)
def test_planning_asks_for_no_randomness(name, no_randomness):
    plan = dpjax.plan_release(table(), **arguments(name))
    assert isinstance(plan, Plan) and "not drawn yet" in repr(plan)
    assert plan.epsilon == KINDS[name]["epsilon"] and plan.records * (2 if "averaged" in name else 1) == 60


def test_planning_does_not_load_opendp(tmp_path):
    code = (
        "import sys, dpjax\n"
        "given = dict(model='exponential', target='x', bounds=(0, 9), epsilon=1, report=False)\n"
        "dpjax.plan_release({'x': [1.0, 2.0]}, **given)\n"
        "print([m for m in sys.modules if m.partition('.')[0] in ('opendp', 'jax')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(dpjax.__file__).parents[1]
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("name", KINDS)
def test_a_drawn_plan_is_a_release(name):
    plan = dpjax.plan_release(table(), **arguments(name))
    with pytest.warns(PrivacyWarning) as caught:
        made = plan.draw()
    assert tuple(str(warning.message) for warning in caught) == plan.warnings
    assert made.records == plan.records and made.mechanism == plan.mechanism and made.kind == plan.kind
    assert made.privacy.epsilon <= plan.epsilon and made.privacy.delta == pytest.approx(plan.delta)
    if name not in SEARCHED:
        assert made.statistic == plan.statistic and made.bounds == plan.bounds
        scales = dict.fromkeys(made.scale.tolist())
        assert list(scales) == pytest.approx(list(plan.noise_scale), rel=1e-12)
        assert made.privacy.sensitivity == plan.sensitivity[0]
    assert "drawn" in repr(plan) and "not" not in repr(plan)


def test_release_warns_as_a_plan_does():
    with pytest.warns(PrivacyWarning) as caught:
        dpjax.release(table(), **arguments("regression"))
    plan = dpjax.plan_release(table(), **arguments("regression"))
    assert tuple(str(warning.message) for warning in caught) == plan.warnings


# --- once -----------------------------------------------------------------------------------------------------------


def drawn(plan):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return plan.draw()


@pytest.mark.parametrize("name", ["regression", "origin-averaged", "exponential-private-bounds"])
def test_a_plan_is_drawn_once(name, monkeypatch):
    plan = dpjax.plan_release(table(), **arguments(name))
    drawn(plan)
    monkeypatch.setattr(drawing, "draw", fail)
    monkeypatch.setattr(quantile, "find_bounds", fail)
    with pytest.raises(InputError, match="was drawn before"):
        drawn(plan)


@pytest.mark.parametrize(
    "name, module, place",
    [
        ("regression", laplace, "add_laplace_noise"),
        ("regression-gaussian", gaussian, "add_gaussian_noise"),
        ("origin-averaged", drawing, "exact_sums"),
        ("exponential-private-bounds", quantile, "find_bounds"),
        ("exponential-private-bounds", drawing, "draw"),  # the bounds are drawn then
    ],
)
@pytest.mark.parametrize("error", [RuntimeError, InputError, KeyboardInterrupt, MemoryError])
def test_a_draw_that_failed_is_not_done_again(name, module, place, error, monkeypatch):
    plan = dpjax.plan_release(table(), **arguments(name))

    def broken(*_, **__):
        raise error("words")

    with monkeypatch.context() as patched:
        patched.setattr(module, place, broken)
        with pytest.raises(error):
            drawn(plan)
    assert "begun" in repr(plan) and "begun" in plan.table()
    monkeypatch.setattr(drawing, "draw", fail)
    with pytest.raises(InputError, match="has begun and did not end"):
        drawn(plan)


def test_of_two_threads_one_draws(monkeypatch):
    plan, made, refused, together = dpjax.plan_release(table(), **arguments("regression")), [], [], threading.Barrier(2)
    real = plan._check.__func__

    def both_have_looked(self):
        real(self)
        together.wait(30)

    monkeypatch.setattr(Plan, "_check", both_have_looked)

    def work():
        try:
            made.append(plan.draw())
        except InputError as error:
            refused.append(error)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(made) == len(refused) == 1


def test_a_forked_copy_of_a_plan_is_not_drawn(monkeypatch):
    plan = dpjax.plan_release(table(), **arguments("regression"))
    other = os.getpid() + 1
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: other)
        patched.setattr(drawing, "draw", fail)
        with pytest.raises(InputError, match="made by another process"):
            drawn(plan)
    assert drawn(plan).records == 60


def test_what_comes_before_noise_leaves_the_plan_as_it_is(monkeypatch):
    plan = dpjax.plan_release(table(), **arguments("regression"))
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "opendp.prelude", None)
        with pytest.raises(MissingExtraError, match="opendp"):
            drawn(plan)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        with pytest.raises(PrivacyWarning, match="spends epsilon"):
            plan.draw()
    assert drawn(plan).records == 60


def test_a_missing_opendp_is_said_before_the_table_is_read(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp", None)
    with pytest.raises(MissingExtraError, match="opendp"):
        dpjax.plan_release("no such file", **arguments("regression"))


def test_a_budget_of_private_bounds_beyond_floats_is_refused_by_the_plan(no_randomness):
    search = {"wait": PrivateQuantile((0.0, 8.0), 1e-308)}
    with pytest.raises(InputError, match="share of the private bounds leaves each of them epsilon = 5e-309, which"):
        dpjax.plan_release(table(), model="exponential", target="wait", bounds=search, epsilon=1.0, report=False)


# --- what it shows --------------------------------------------------------------------------------------------------


def reached(value, depth=5):
    """Whether the secret is in what a tool that shows variables walks through: dicts, lists, `vars` and slots."""
    if isinstance(value, str | bytes):
        return str(SECRET) in str(value)
    if isinstance(value, float | np.number):
        return abs(float(value) - SECRET) < 1e-9
    if isinstance(value, np.ndarray):
        return any(reached(item, depth - 1) for item in value.ravel().tolist())
    if depth == 0:
        return False
    if isinstance(value, dict):
        return any(reached(item, depth - 1) for pair in value.items() for item in pair)
    if isinstance(value, list | tuple):
        return any(reached(item, depth - 1) for item in value)
    return bool(getattr(value, "__dict__", None)) and reached(vars(value), depth - 1)


@pytest.mark.parametrize("changes", [{}, AVERAGED])
def test_a_plan_shows_public_facts_only(changes):
    plan = dpjax.plan_release(secret_table(), **GIVEN | changes)
    other = dpjax.plan_release({"x": [1.0] * 40, "y": [2.0] * 40}, **GIVEN | changes)
    assert plan.table() == other.table() and repr(plan) == repr(other) and str(plan) == str(other)
    assert plan.warnings == other.warnings
    assert not hasattr(plan, "__dict__") and not reached(repr(plan)) and not reached(plan.table())
    for name in (name for name in dir(plan) if not name.startswith("_")):
        assert callable(getattr(plan, name)) or not reached(getattr(plan, name)), name
    for line in ("model", "columns", "records", "adjacency", "sensitivity", "mechanism", "epsilon"):
        assert re.search(rf"^  {line} +\S", plan.table(), re.MULTILINE)


def test_a_plan_of_private_bounds_says_what_they_cost():
    text = dpjax.plan_release(table(), **arguments("exponential-private-bounds")).table()
    assert "private bounds  epsilon = 1 of it" in text and "range           wait 0:8" in text


@pytest.mark.parametrize("store", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_plan_cannot_be_stored_or_copied(store):
    plan = dpjax.plan_release(secret_table(), **GIVEN)
    with pytest.raises(TypeError, match="cannot be stored or copied"):
        store(plan)


@pytest.mark.parametrize("changes", [{}, AVERAGED])
def test_an_error_of_a_draw_holds_nothing_of_the_table(changes, monkeypatch):
    plan = dpjax.plan_release(secret_table(), **GIVEN | changes)

    def broken(values, *_):
        held = SECRET  # noqa: F841
        raise RuntimeError(f"{SECRET} {values.tolist()}")

    monkeypatch.setattr(laplace, "add_laplace_noise", broken)
    monkeypatch.setattr(gaussian, "add_gaussian_noise", broken)
    with pytest.raises(RuntimeError) as caught:
        drawn(plan)
    assert HIDDEN in str(caught.value) and caught.value.__cause__ is caught.value.__context__ is None
    ours = [f for f, _ in traceback.walk_tb(caught.value.__traceback__) if f.f_code.co_filename != __file__]
    ours = [f for f in ours if not any(part in f.f_code.co_filename for part in ("jaxtyping", "beartype"))]
    assert ours and not any(reached(value) for f in ours for value in list(f.f_locals.values()))


def test_a_drawn_plan_holds_nothing_of_the_table():
    plan = dpjax.plan_release(table(), **arguments("origin-averaged"))
    drawn(plan)
    assert plan._exact is None and plan._columns is None


def test_arguments_are_those_of_release():
    ours, theirs = (list(inspect.signature(f).parameters.values()) for f in (dpjax.plan_release, dpjax.release))
    assert ours == theirs


def test_every_argument_of_release_reaches_the_plan(monkeypatch):
    names = [name for name in inspect.signature(owner.release).parameters if name != "options"]
    seen = {}

    def stop(**given):
        seen.update(given)
        raise InputError("seen")

    monkeypatch.setattr(owner, "plan_release", stop)
    with pytest.raises(InputError, match="seen"):
        owner.release(**{name: f"<{name}>" for name in names}, shape=2.0)
    assert seen == {name: f"<{name}>" for name in names} | {"shape": 2.0}
