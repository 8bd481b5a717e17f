"""The options of a release as one struct: what it refuses, and what it makes of keywords."""

import pytest

import dpjax
from dpjax._base.reading import ReadingOptions
from dpjax.errors import InputError
from dpjax.releases.options import ReleaseOptions, check_family_options

BOUNDS = {"x": (0.0, 1.0), "y": (0.0, 2.0)}
LINE = {"target": "y", "features": ["x"], "bounds": BOUNDS, "epsilon": 1.0}
SEARCH = dpjax.PrivateQuantile((0.0, 8.0), share=0.25)


@pytest.mark.parametrize(
    "changes, match",
    [
        ({"epsilon": 0}, "epsilon must be a finite number > 0, got 0"),
        ({"mechanism": "laplacian"}, "mechanism must be 'laplace' or"),
        ({"mechanism": "gaussian"}, "delta is missing: gaussian noise needs one"),
        ({"delta": 0.1}, "delta has no place in a release with laplace noise"),
        ({"mechanism": "gaussian", "delta": 1.0}, "delta must lie inside"),
        ({"adjacency": "add-remove"}, "add-remove"),
        ({"intercept": 1}, "intercept must be True or False, got 1"),
        ({"moments": 1}, "moments must be True or False, got 1"),
        ({"moments_share": 0.5}, "moments_share is of use only with moments"),
        ({"bounds": {"x": SEARCH, "y": (0, 1)}}, "give no other bounds"),
        ({"accept": 1}, "accept must be True or False, got 1"),
        ({"report": "yes"}, "report must be None or True or False, got 'yes'"),
        ({"reading": ReadingOptions(separator="ab")}, "separator must be one sign"),
        ({"options": {"scaling": None}}, "scaling is not an argument of a release"),
        ({"options": {"rule": "clamp"}}, "rule is not an option of a family"),
        ({"options": {"shape": None}}, "shape has no place in a release of 'linear-regression'"),
    ],
)
def test_it_is_checked_when_it_is_made(changes, match):
    with pytest.raises(InputError, match=match):
        ReleaseOptions(**LINE | changes)


def test_keywords_are_sorted():
    chosen = ReleaseOptions.of(
        {
            "target": "t",
            "epsilon": 2,
            "model": "gamma",
            "shape": 2.0,
            "decimal": ",",
            "separator": ";",
            "bounds": (0, 9),
        }
    )
    assert chosen.options == {"shape": 2.0} and chosen.reading == ReadingOptions(decimal=",", separator=";")
    assert chosen.statistic.family.shape == 2.0 and chosen.budget == 2.0 and chosen.slack == 0.0


@pytest.mark.parametrize("name", ["target", "epsilon"])
def test_what_has_no_default_is_asked_for(name):
    with pytest.raises(InputError, match=f"{name} is missing"):
        dpjax.plan_release({}, **{key: value for key, value in LINE.items() if key != name})


def test_private_bounds_and_their_range():
    for bounds in (SEARCH, {"t": SEARCH}):
        chosen = ReleaseOptions(target="t", epsilon=1.0, model="exponential", bounds=bounds)
        assert chosen.search is SEARCH and chosen.statistic.bounds == (0.0, 8.0)


def test_counts_may_be_said_by_themselves_or_among_the_options():
    three = {"target": "t", "epsilon": 1.0, "model": "multinomial", "categories": 3}
    assert ReleaseOptions.of(three | {"released": [0, 2]}).statistic.released == (0, 2)
    assert ReleaseOptions(**three, options={"released": [0, 2]}).statistic.released == (0, 2)
    check_family_options({"released": [0, 2]})


@pytest.mark.parametrize("name", ["epsilon", "norms", "separator", "report", "table", "middle"])
def test_names_that_no_option_of_a_family_may_have(name):
    with pytest.raises(InputError, match=f"options: {name} is not an option of a family"):
        check_family_options({name: 1})
