"""Numbers at the ends of what floats hold: the guarantee survives them, or they are refused before epsilon is spent."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

import dpjax
from dpjax.errors import InputError, PrivacyWarning
from dpjax.families import FAMILIES, register
from dpjax.families.base import Family
from dpjax.mechanisms.matrix import Wishart
from dpjax.privacy import clipping
from dpjax.privacy.gaussian import analytic_gaussian_sigma, gaussian_delta, gaussian_epsilon
from dpjax.privacy.gaussian_proof import is_private
from dpjax.releases import drawing
from dpjax.statistics.kinds import make_statistic


@pytest.fixture
def no_noise(monkeypatch):
    """No noise may be drawn."""

    def refuse(*_, **__):
        raise AssertionError("noise was drawn")

    monkeypatch.setattr(drawing, "draw", refuse)


def release(table=None, **arguments):
    table = {"x": [1.0, 2.0, 3.0, 2.0], "y": [1.0, 2.0, 1.0, 2.0]} if table is None else table
    return dpjax.release(table, **{"target": "y", "epsilon": 1.0, "report": False, "accept": True} | arguments)


# ---- norms -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("bound", [5e-324, 1e-310, 2.2e-308, 1e-150, 1e-71, 1e71, 1e200])
def test_norm_bounds_that_rounding_would_break_are_refused(bound, no_noise):
    for norms in ({"features": bound, "target": 1.0}, {"features": 1.0, "target": bound}):
        with pytest.raises(InputError, match=r"norms must be .* from 1e-70 to 1e\+70"):
            release(features=["x"], norms=norms, intercept=False, mechanism="gaussian", delta=1e-6)
    rows, y = np.ones((2, 3)), np.ones(2)
    for call in (
        lambda: clipping.clip_rows(rows, y, bound, 1.0),
        lambda: clipping.clip_rows(rows, y, 1.0, bound),
        lambda: clipping.clip_whole_rows(rows, y, bound),
        lambda: Wishart.published(2, bound, 1.0, 1e-6),
    ):
        with pytest.raises(InputError, match=r"from 1e-70 to 1e\+70"):
            call()


@pytest.mark.parametrize("bound", [1e-70, 3e-70, 1e-35, 1.0, 1e70])
@pytest.mark.parametrize("direction", [(1, 1, 1), (1, 1e-9, -1), (0, 0, 1), (1, 2, 3)])
def test_clipped_rows_are_as_short_as_the_sensitivity_takes_them(bound, direction):
    rows = np.array([direction], float) * np.array([[1e-3], [1.0], [1e9], [1e300]])
    clipped, _ = clipping.clip_rows(rows, np.zeros(4), bound, bound)
    for row in clipped:
        assert sum(Fraction(float(v)) ** 2 for v in row) <= Fraction(bound) ** 2


# ---- Gaussian noise ------------------------------------------------------------------------------------------------
def delta_of(sigma, epsilon, sensitivity=1.0):
    """The exact delta, to 400 digits."""
    r, e = mp.mpf(sensitivity) / mp.mpf(sigma), mp.mpf(epsilon)
    upper = lambda x: mp.erfc(x / mp.sqrt(2)) / 2
    return upper(e / r - r / 2) - mp.exp(e) * upper(e / r + r / 2)


@pytest.mark.parametrize("epsilon", [1e-300, 1e-100, 1e-20, 1e-13, 1e-11, 1e-10, 1e-8, 1e-3, 1.0, 30.0, 100.0])
@pytest.mark.parametrize("delta", [0.9, 1e-5, 1e-15, 1e-20, 1e-50, 1e-300])
def test_gaussian_scale_is_private_and_not_wasteful(epsilon, delta):
    with mp.workdps(700):
        sigma = analytic_gaussian_sigma(1.0, epsilon, delta)
        assert delta_of(sigma, epsilon) <= delta
        assert delta_of(sigma * (1 - 1e-11), epsilon) > delta
        assert gaussian_delta(sigma, 1.0, epsilon) == pytest.approx(delta, rel=1e-8)
        assert gaussian_epsilon(sigma, 1.0, delta) <= epsilon * (1 + 1e-6)


@pytest.mark.parametrize("epsilon", [1e-12, 1.0, 99.0])
@pytest.mark.parametrize("delta", [0.5, 1e-6, 1e-200])
def test_proof_tells_what_is_private_from_what_is_not(epsilon, delta):
    sigma = analytic_gaussian_sigma(1.0, epsilon, delta)
    assert is_private(sigma, 1.0, epsilon, delta)
    assert not is_private(sigma * (1 - 1e-10), 1.0, epsilon, delta)


@pytest.mark.parametrize(
    ("sensitivity", "epsilon", "delta"), [(1.0, 5e-324, 5e-324), (1.0, 1e308, 1e-6), (1e308, 1e-6, 1e-6)]
)
def test_gaussian_scale_beyond_floats(sensitivity, epsilon, delta):
    with pytest.raises(InputError, match="beyond the range of a float"):
        analytic_gaussian_sigma(sensitivity, epsilon, delta)


def test_smallest_sensitivity():
    sigma = analytic_gaussian_sigma(5e-324, 1.0, 1e-6)
    with mp.workdps(60):
        assert delta_of(sigma, 1.0, 5e-324) <= 1e-6
    assert gaussian_delta(1e300, 5e-324, 1.0) == 0
    assert gaussian_epsilon(1e300, 5e-324, 1e-6) == 0
    assert gaussian_delta(5e-324, 1e300, 1.0) == 1
    with pytest.raises(InputError, match="next to nothing"):
        gaussian_epsilon(5e-324, 1e300, 1e-6)
    with pytest.raises(InputError, match=r"cannot be met|beyond the range"):
        from dpjax.mechanisms.gaussian import add_gaussian_noise

        add_gaussian_noise(np.zeros(2), 5e-324, 1.0, 1e-6)


# ---- a family whose records are logarithms within finite ends ----------------------------------------------------
@dataclass(frozen=True)
class _Decades(Family):
    """v = log x between 0 and log 100."""

    kind = "decades"
    parameters = ("rate",)
    prior = "gamma"
    support = (0.0, math.log(100.0))
    log = True

    def natural(self, theta):
        return -theta

    def log_partition(self, eta):
        return eta[0] * 0

    def update(self, prior, statistic, n):
        return prior


@pytest.fixture
def decades():
    register(_Decades)
    yield
    del FAMILIES["decades"]


def test_bounded_family_sums_logarithms(decades):
    statistic = make_statistic("decades")
    columns = {"x": np.array([1.0, 10.0, 100.0])}
    assert statistic.from_columns(columns) == pytest.approx([3 * math.log(10.0)])
    assert statistic.whole_from_columns(columns) == pytest.approx([3 * math.log(10.0)])
    # what one record moves the sum by is what noise is scaled to
    sums = [statistic.from_columns({"x": np.array([value])})[0] for value in (1.0, 100.0)]
    assert sums[1] - sums[0] <= statistic.sensitivity() == pytest.approx(math.log(100.0))
    for bad, words in (([0.0], "above 0"), ([-1.0], "above 0"), ([101.0], "logarithm"), ([0.99], "logarithm")):
        with pytest.raises(InputError, match=words):
            statistic.from_columns({"x": np.array(bad)})


@pytest.mark.parametrize(("changes", "words"), [({"affine": True}, "affine"), ({"discrete": True}, "log and discrete")])
def test_families_that_contradict_themselves_are_not_registered(changes, words):
    with pytest.raises(InputError, match=words):
        register(type("Odd", (_Decades,), {"kind": "odd", **changes}))


# ---- what fit would refuse after epsilon is spent ------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "exponential", "bounds": (0, 1e25)}, "default prior of exponential a rate of 5e\\+23"),
        ({"model": "exponential", "bounds": (0, 1e-12)}, "default prior"),
        ({"model": "gamma", "shape": 2.0, "bounds": (0, 1e15)}, "default prior"),
        ({"model": "poisson", "bounds": (0, 1e15)}, "default prior"),
        ({"model": "exponential", "bounds": dpjax.PrivateQuantile((0, 1e15), 0.5)}, "range of the private bounds"),
        ({"model": "exponential", "bounds": dpjax.PrivateQuantile((0, 1e-9), 0.5)}, "range of the private bounds"),
        ({"model": "normal", "bounds": (0, 1e100)}, "from -1e\\+70 to 1e\\+70"),
        ({"model": "normal", "bounds": (0, 1e-100)}, "at least 1e-70"),
        ({"features": ["x"], "bounds": {"x": (0, 1), "y": (0, 1e300)}}, "bounds of 'y' .* 1e\\+70"),
        ({"features": ["x"], "bounds": {"x": (0, 5e-324), "y": (0, 1)}}, "bounds of 'x' .* 1e-70"),
        ({"model": "exponential", "bounds": (0, 1), "epsilon": 1e20}, "too large to be fitted"),
        ({"features": [f"x{i}" for i in range(31)]}, "at most 30"),
        ({"features": [f"x{i}" for i in range(101)], "intercept": False}, "at most 100"),
    ],
)
def test_what_fit_would_refuse_is_not_released(arguments, message, no_noise):
    names = arguments.get("features", ["x"])
    table = {name: [0.1, 0.5, 0.7] for name in [*names, "y"]}
    bounds = dict.fromkeys(table, (0, 1))
    with pytest.raises(InputError, match=message), warnings.catch_warnings():
        warnings.simplefilter("error")  # the warning that epsilon is spent comes after all checks
        release(table, **{"bounds": bounds} | arguments)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        {"model": "exponential", "bounds": (0, 1e13)},
        {"model": "exponential", "bounds": (0, 1e-10)},
        {"model": "poisson", "bounds": (0, 9e11)},
        {"model": "normal", "bounds": (0, 1e70)},
        {"model": "normal", "bounds": (0, 1e-70)},
        {"features": ["x"], "bounds": {"x": (0, 1e-70), "y": (0, 1e70)}},
        {"features": ["x"], "norms": {"features": 1e-70, "target": 1e70}, "intercept": False},
    ],
)
def test_what_is_released_can_be_fitted(arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = release({"x": np.zeros(40), "y": np.zeros(40)}, mechanism="gaussian", delta=1e-3, **arguments)
        posterior = dpjax.fit(made, chains=2, draws=100)
    for row in posterior.summary()["parameters"].values():
        assert all(math.isfinite(row[key]) for key in ("mean", "sd", "q05", "q95"))


@pytest.mark.parametrize("share", [1e-320, 5e-324, 1e-310])
def test_share_that_buys_nothing(share, no_noise):
    bounds = dpjax.PrivateQuantile((0, 5), share)
    with pytest.raises(InputError, match="share of the private bounds"), warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        release(model="exponential", bounds=bounds)


def test_share_that_leaves_nothing(no_noise):
    with pytest.raises(InputError, match="leaves nothing"):
        release(model="exponential", bounds=dpjax.PrivateQuantile((0, 5), 0.9), epsilon=5e-324)


@pytest.mark.parametrize("shape", [10**400, -(10**400), math.inf, True, "2", 0])
def test_option_that_is_no_number(shape):
    with pytest.raises(InputError, match="shape must be a finite number above 0"):
        make_statistic("gamma", bounds=(0, 1), shape=shape)


def test_kind_is_not_an_argument_of_release():
    with pytest.raises(InputError, match="kind is not an argument of a release"):
        release(model="exponential", bounds=(0, 1), kind="poisson")


@pytest.mark.parametrize("value", [None, 1])
@pytest.mark.parametrize(
    "model", [{"model": "multinomial", "categories": 4}, {"features": ["x"], "bounds": {"x": (0, 5), "y": (0, 5)}}]
)
def test_unknown_names_are_refused_whatever_their_value(model, value):
    with pytest.raises(InputError, match="epsilom has no place"):
        release(epsilom=value, **model)


@pytest.mark.parametrize("name", ["bounds", "scaling"])
def test_arrays_where_none_are_wanted(name):
    with pytest.raises(InputError, match=name):
        release(features=["x"], norms={"features": 1, "target": 1}, intercept=False, **{name: np.array([1.0, 2.0])})
