"""Releases: what public facts decide, in which order rows are averaged, and which arguments there are."""

import itertools
import warnings

import numpy as np
import pytest

from dpjax.errors import InputError, PrivacyWarning
from dpjax.mechanisms import MECHANISMS
from dpjax.privacy.quantile import PrivateQuantile
from dpjax.releases import drawing
from dpjax.releases.owner import release

GAUSS = {"mechanism": "gaussian", "delta": 1e-5}
REGRESSION = {"features": ["x"], "target": "y"}
AVERAGED = {"intercept": False, "norms": {"features": 1.0, "target": 1.0}, **GAUSS}


def call(table, **changes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return release(table, **{"epsilon": 1.0, "accept": True, "report": False} | changes)


@pytest.fixture
def exact(monkeypatch):
    """The sums that would be noised."""
    seen = []

    def capture(mechanism, values, sensitivity, epsilon, delta):
        seen.append(np.array(values))
        return values, sensitivity / epsilon, epsilon

    for noise in MECHANISMS.values():
        monkeypatch.setattr(type(noise), "draw", capture)
    return seen


# --- averaged rows ------------------------------------------------------------------------------------------------


def sorted_table(keys, n=400, k=4):
    """A table that was exported in the order of its keys; rows of a group are alike."""
    x = np.where(np.arange(n) // k % 2, -1.0, 1.0)
    order = np.argsort(keys, kind="stable")
    return {"x": x[order], "y": x[order]}


def neighbours(n=400):
    """Two tables of the same records but for the key of one, who goes from the first place to the last."""
    keys = np.arange(n)
    return sorted_table(keys), sorted_table(np.where(keys == 0, n, keys))


def test_the_order_of_a_table_has_no_effect_on_averaged_rows(exact):
    """Consecutive rows moved the sums by 515 where 5.2 were claimed."""
    means = []
    for table in neighbours():
        for _ in range(20):
            made = call(table, averaged=4, **REGRESSION, **AVERAGED)
        means.append(np.mean(exact[-20:], axis=0))
    assert made.privacy.sensitivity == pytest.approx(5.196, abs=1e-3)
    assert np.linalg.norm(means[0] - means[1]) < 60  # each with a standard deviation of about 5


def test_neighbours_meet_in_a_permutation_of_each(monkeypatch, exact):
    """What the guarantee rests on: whatever the order of one, the other has one that gives the same groups."""
    tables, order = neighbours(), np.random.default_rng(0).permutation(400)
    for table, chosen in ((tables[0], order), (tables[1], (order - 1) % 400)):
        monkeypatch.setattr(drawing, "_permutation", lambda size, chosen=chosen: chosen)
        call(table, averaged=4, **REGRESSION, **AVERAGED)
    np.testing.assert_allclose(exact[0], exact[1], rtol=1e-12)


def test_rows_are_averaged_in_an_order_of_the_operating_system(monkeypatch, exact):
    values = np.sin(np.arange(1.0, 401.0))  # no two groupings have equal sums, as those of a table of +-1 may have
    table = {"x": values, "y": values**2}
    for _ in range(3):
        call(table, averaged=4, **REGRESSION, **AVERAGED)
    assert not np.isclose(exact[0], exact[1]).all() and not np.isclose(exact[1], exact[2]).all()
    asked = []
    monkeypatch.setattr(drawing.os, "urandom", lambda size: asked.append(size) or bytes(range(256)) * (size // 256))
    call({"x": np.ones(16), "y": np.ones(16)}, averaged=4, **REGRESSION, **AVERAGED)
    assert asked == [16 * 16]
    call({"x": np.ones(16), "y": np.ones(16)}, **REGRESSION, **AVERAGED)  # nothing depends on the order
    assert asked == [16 * 16]


def test_permutations_are_uniform(monkeypatch):
    found = [tuple(drawing._permutation(3)) for _ in range(6000)]
    counts = [found.count(order) for order in itertools.permutations(range(3))]
    assert sum((count - 1000) ** 2 / 1000 for count in counts) < 30  # chi square with 5 degrees of freedom: p = 1.5e-5
    assert sorted(drawing._permutation(1000)) == list(range(1000))
    # equal keys would be put in the order of the table: drawn again
    answers = [bytes(32), bytes([1] * 8 + [0] * 24)]
    monkeypatch.setattr(drawing.os, "urandom", lambda size: answers.pop(0))
    assert drawing._permutation(2).tolist() == [1, 0] or not answers


# --- what decides errors --------------------------------------------------------------------------------------------

HUGE = [
    {"model": "exponential", "target": "x", "bounds": (0, 1e308)},
    {"model": "exponential", "target": "x", "bounds": (0, 1e308), "rule": "redact"},
    {"model": "exponential", "target": "x", "bounds": (0, 9e299)},  # two of them
    {"model": "geometric", "target": "x", "bounds": (0, 2**52), "mechanism": "discrete-laplace"},
]


@pytest.mark.parametrize("changes", HUGE)
def test_sizes_are_judged_from_bounds_and_number_of_records(changes):
    says = []
    for column in ([0.0, 0.0], [1e308, 1e308], [0.0, 1e308]):
        with pytest.raises(InputError, match="bounds") as caught:
            call({"x": column}, **changes)
        says.append(str(caught.value))
    assert len(set(says)) == 1


@pytest.mark.parametrize("changes", HUGE[:3])
def test_bounds_too_wide_for_one_record_are_refused_before_the_table_is_read(changes):
    with pytest.raises(InputError, match="bounds"):
        call("no/such/table.csv", **changes)


EXTREME = (1.7e308, -1.7e308, 5e-324, 0.0, 1e160, -1e-160)


@pytest.mark.parametrize(
    "changes",
    [
        {**REGRESSION, "bounds": {"x": (-1, 1), "y": (-9e69, 9e69)}},
        {**REGRESSION, "bounds": {"x": (-1, 1), "y": (1e-65, 2e-65)}, "moments": True},
        {**REGRESSION, "bounds": {"x": (-1, 1), "y": (-9e69, 9e69)}, "intercept": False},
        {**REGRESSION, **AVERAGED, "averaged": 2, "norms": {"features": 1e65, "target": 1e-65}},
        {"model": "exponential", "target": "x", "bounds": (0, 1e11)},
        {"model": "exponential", "target": "x", "bounds": PrivateQuantile((0, 1e11), 0.5)},
        {"model": "log-normal", "target": "x", "bounds": (1e-69, 1e69)},
        {"model": "log-normal", "target": "x", "bounds": PrivateQuantile((1e-69, 1e69), 0.5)},
        {"model": "normal", "target": "x", "bounds": (-9e69, 9e69)},
    ],
    ids=str,
)
def test_no_number_in_a_table_decides_whether_it_is_released(changes):
    """Nor what is warned of: whatever NumPy has to say about a sum is about the data."""
    rng = np.random.default_rng(1)
    for _ in range(4):
        table = {name: rng.choice(EXTREME, 12) for name in ("x", "y")}
        with warnings.catch_warnings(), np.errstate(all="raise"):
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", PrivacyWarning)
            assert release(table, epsilon=1.0, accept=True, report=True, **changes).records in (6, 12)


def test_private_bounds_that_could_not_be_used_are_refused_before_they_are_bought():
    """Neighbours on the grid of which one logarithm is that of the other."""
    narrow = PrivateQuantile((3200, 3200 * (1 + 1.5e-12)), 0.5)
    with pytest.raises(InputError, match="too narrow"):
        call({"x": [3200, 3200]}, model="log-normal", target="x", bounds=narrow)


# --- arguments ------------------------------------------------------------------------------------------------------

BOXES = {"x": (0, 1), "y": (0, 1)}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({**REGRESSION, "bounds": BOXES, "scaling": None}, "scaling is not an argument of a release, got None"),
        ({**REGRESSION, "bounds": BOXES, "intercept": False, "scaling": None}, "scaling is not an argument"),
        ({**REGRESSION, **AVERAGED, "scaling": None}, "scaling is not an argument"),
        ({"model": "normal", "target": "x", "bounds": (0, 1), "scaling": None}, "scaling is not an argument"),
        ({"model": "multinomial", "target": "x", "categories": 2, "scaling": None}, "scaling is not an argument"),
        ({**REGRESSION, "bounds": BOXES, "kind": "normal"}, "kind is not an argument"),
        ({**REGRESSION, "bounds": BOXES, "clip": None}, "clip has no place in a release of 'linear-regression'"),
        ({**REGRESSION, "bounds": BOXES, "released": [0]}, "released has no place"),
        ({"model": "exponential", "target": "x", "bounds": (0, 1), "shape": None}, "has no option 'shape'"),
    ],
)
def test_arguments_that_no_documentation_names_are_refused(given, says, exact):
    with pytest.raises(InputError, match=says) as caught:
        call(object(), **given)
    assert not exact and "\n" not in str(caught.value)


def test_counts_that_are_released_are_those_that_were_asked_for():
    made = call({"x": [0, 1, 2, 2]}, model="multinomial", target="x", categories=3, released=[0, 2])
    assert made.names == ("count[0]", "count[2]") and made.privacy.sensitivity == 2
