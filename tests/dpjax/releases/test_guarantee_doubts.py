"""Guarantees that are read: what no noise of the stated scales can give is doubted, what a release gives is not."""

from __future__ import annotations

import itertools
import json
import warnings

import numpy as np
import pytest

import dpjax
from dpjax.cli.app import main
from dpjax.errors import PrivacyWarning
from dpjax.releases.guarantee import MomentsPrivacy, Privacy
from dpjax.statistics.kinds import make_statistic

BOUNDS = {"x": (0, 10), "y": (-5, 5)}
TABLE = {"x": [1.0, 2.0, 3.0, 9.0] * 20, "y": [1.0, -2.0, 1.0, 4.0] * 20, "w": [0.5, 1.0, 2.0, 0.0] * 20}
STATISTICS = [
    make_statistic("linear-regression", features=["x"], target="y", bounds=BOUNDS),
    make_statistic("linear-regression", features=["x"], target="y", bounds=BOUNDS, scaling=None),
    make_statistic("linear-regression", features=["x"], target="y", bounds=BOUNDS, moments=True),
    make_statistic("linear-regression", features=["x", "w"], target="y", bounds=BOUNDS | {"w": (1, 2)}),
    make_statistic(
        "linear-regression", features=["x", "w"], target="y", bounds=BOUNDS | {"w": (1, 2)}, intercept=False
    ),
    make_statistic(
        "linear-regression", features=["x", "w"], target="y", norms={"features": 3.0, "target": 2.0}, intercept=False
    ),
    make_statistic("linear-regression", features=["x"], target="y", bounds=BOUNDS, intercept=False, squares=False),
    make_statistic("normal", bounds=(2, 7), scaling=None),
    make_statistic("normal", bounds=(-3, 7), rule="redact"),
    make_statistic("exponential", bounds=(1, 7), rule="redact"),
    make_statistic("poisson", bounds=(0, 7)),
    make_statistic("binomial"),
    make_statistic("multinomial", categories=4),
]


def noisy(statistic, scale, kind="laplace", **privacy):
    norm = "l2" if kind == "gaussian" else "l1"
    sensitivity = privacy.pop("sensitivity", 1e6)
    stated = {"epsilon": 1.0, "delta": 1e-6 if kind == "gaussian" else 0.0, **privacy}
    moments = MomentsPrivacy(stated["epsilon"] / 2, sensitivity, stated["delta"] / 2)
    block = Privacy(
        adjacency="replace-one", norm=norm, sensitivity=sensitivity,
        moments=moments if len(statistic.parts) > 1 else None, **stated,
    )  # fmt: skip
    return dpjax.Release(statistic, 80, dict.fromkeys(statistic.names, 1.0), kind, scale, block)


def doubts(made):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dpjax.Release.from_dict(made.to_dict())
    return [str(item.message) for item in caught if item.category is PrivacyWarning]


@pytest.mark.parametrize("statistic", STATISTICS, ids=lambda s: f"{s.kind}-{s.dim}")
def test_ranges_are_what_one_record_moves_an_entry_by(statistic):
    """Brute force over records on a grid."""
    rng = np.random.default_rng(0)
    ends = statistic.column_bounds or {}
    grids = []
    for name in statistic.variables:
        low, high = ends.get(name, (0.0, 3.0) if statistic.kind == "multinomial" else (0.0, 1.0))
        if getattr(statistic, "norms", None):
            low, high = -3.0, 3.0
        inside = np.linspace(low, high, 5) if not statistic.integer else np.arange(int(low), int(high) + 1.0)
        also = [0.0] if low < 0 < high and not statistic.integer else []
        outside = [low - 1.0] if getattr(statistic, "redacts", False) else []
        grids.append([*inside, *also, *outside])
    records = list(itertools.product(*grids))
    if getattr(statistic, "norms", None):
        records += [
            tuple(v) for v in np.concatenate([rng.choice([-1, 1], (64, 2)) * 3 / 2**0.5, np.full((64, 1), 2.0)], 1)
        ]
    sums = np.array(
        [
            statistic.from_columns({n: np.array([v]) for n, v in zip(statistic.variables, r, strict=True)})
            for r in records
        ]
    )
    moved, ranges = np.ptp(sums, axis=0), statistic.entry_ranges()
    assert (ranges >= moved * (1 - 1e-12)).all()
    assert ranges == pytest.approx(moved, rel=1e-9)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("statistic", STATISTICS, ids=lambda s: f"{s.kind}-{s.dim}")
def test_scales_by_entry_that_give_nothing_are_doubted(statistic, kind):
    enough = 1e7
    scales = dict.fromkeys(statistic.names, enough)
    honest = {"sensitivity": 1e5}
    assert doubts(noisy(statistic, scales | {statistic.names[0]: 2 * enough}, kind, **honest)) == []
    assert doubts(noisy(statistic, dict.fromkeys(statistic.names, 1e-9), kind, **honest))
    if statistic.dim == 1:
        return
    for name in statistic.names:  # one entry without noise is enough
        found = doubts(noisy(statistic, scales | {name: 1e-9}, kind, **honest))
        assert len(found) == 1 and repr(name) in found[0] and "does not hold" in found[0]
    # five different scales, all of them next to nothing
    tiny = {name: 1e-9 * (1 + k) for k, name in enumerate(statistic.names)}
    assert doubts(noisy(statistic, tiny, kind, **honest))


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_sensitivity_without_an_exact_value_is_doubted_from_below(kind):
    wide = {f"x{i}": (-1 - i, 3) for i in range(9)} | {"y": (-2, 5)}
    statistic = make_statistic(
        "linear-regression", features=list(wide)[:-1], target="y", bounds=wide, scaling=None, moments=True
    )
    part = statistic.parts[1]
    assert not part.is_exact("l2")
    found = doubts(noisy(statistic, 1e9, kind, sensitivity=float(part.entry_ranges().max()) * 0.999))
    assert any("of the moments is below" in text for text in found)
    assert doubts(noisy(statistic, 1e9, kind, sensitivity=float(statistic.sensitivity("l1")))) == []


def test_guarantee_without_bounds_is_doubted():
    statistic = make_statistic("linear-regression", features=["x"], target="y", scaling=None)
    found = doubts(noisy(statistic, 5.0, sensitivity=5.0))
    assert len(found) == 1 and "no bounds are stated" in found[0]


@pytest.mark.parametrize("mechanism", [{}, {"mechanism": "gaussian", "delta": 1e-6}], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("arguments", [
    {"features": ["x"], "bounds": BOUNDS}, {"features": ["x"], "bounds": BOUNDS, "moments": True},
    {"features": ["x", "w"], "bounds": BOUNDS | {"w": (0, 2)}, "moments": True, "moments_share": 0.1},
    {"features": ["x"], "norms": {"features": 1.0, "target": 2.0}, "intercept": False},
    {"model": "normal", "bounds": (-5, 5), "rule": "redact"},
    {"model": "exponential", "bounds": dpjax.PrivateQuantile((0, 10), 0.3)},
])  # fmt: skip
def test_own_releases_are_not_doubted(arguments, mechanism):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = dpjax.release(TABLE, target="y", epsilon=1.0, report=False, accept=True, **arguments, **mechanism)
    assert doubts(made) == []


def test_check_and_fit_read_the_same_doubts(tmp_path, capsys):
    content = noisy(STATISTICS[0], dict.fromkeys(STATISTICS[0].names, 1.0), sensitivity=5.5).to_dict()
    content["mechanism"]["scale"] = {name: 1e-9 for name in STATISTICS[0].names}
    path = tmp_path / "release.json"
    path.write_text(json.dumps(content))
    main(["check", str(path)])
    assert "does not hold" in capsys.readouterr().err
    with pytest.warns(PrivacyWarning, match="does not hold"):
        dpjax.Release.load(path)
