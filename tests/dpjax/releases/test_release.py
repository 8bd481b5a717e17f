"""Releases of a table: sensitivity, noise, guarantee, and what errors and files may say."""

import ast
import inspect
import json
import math
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import dpjax.errors
from dpjax.errors import InputError, MissingExtraError, PrivacyWarning
from dpjax.mechanisms import laplace as _noise
from dpjax.mechanisms.laplace import add_laplace_noise
from dpjax.privacy.quantile import PrivateQuantile
from dpjax.privacy.sensitivity import regression_exponents, replace_one_l1, rounding_allowance
from dpjax.releases.guarantee import Privacy
from dpjax.releases.owner import release
from dpjax.releases.release import Release, describe_problems
from dpjax.statistics.kinds import make_statistic
from dpjax.statistics.regression import RegressionStatistic

ROOT = Path(dpjax.errors.__file__).parent
BOUNDS = {"bmi": (15, 45), "progression": (0, 350)}


def table(n=200, seed=0):
    rng = np.random.default_rng(seed)
    bmi = rng.normal(27, 6, n)
    return {"bmi": bmi, "progression": 150 + 8 * (bmi - 27) + rng.normal(0, 80, n)}


def call(data=None, **changes):
    arguments = {"target": "progression", "features": ["bmi"], "bounds": BOUNDS, "epsilon": 1.0} | changes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return release(table() if data is None else data, **arguments)


@pytest.fixture
def exact(monkeypatch):
    """The exact statistics that would be noised, instead of noise."""
    seen = []

    def capture(values, sensitivity, epsilon):
        seen.append((values, sensitivity))
        return values, sensitivity / epsilon, epsilon

    monkeypatch.setattr(_noise, "add_laplace_noise", capture)
    return seen


# --- noise ---


def test_noise_of_a_release_has_its_law():
    """Unseeded by nature: every threshold below fails a correct build less than once in 10^9 runs."""
    n = 60_000
    noised, scale, _ = add_laplace_noise(np.full(n, 3.0), 2.0, 0.5)
    e = (noised - 3.0) / scale
    assert scale == pytest.approx(4.0, rel=1e-12)
    assert stats.kstest(e, stats.laplace.cdf).pvalue > 1e-9
    assert abs(np.abs(e).mean() - 1) < 7 / math.sqrt(n)  # a scale wrong by 3 % fails
    assert abs(np.corrcoef(e[1:], e[:-1])[0, 1]) < 7 / math.sqrt(n)
    assert len(np.unique(e)) == n


def test_whole_releases_have_the_stated_noise(monkeypatch):
    seen = []
    draw = add_laplace_noise
    monkeypatch.setattr(
        _noise, "add_laplace_noise", lambda values, *rest: (seen.append(values), draw(values, *rest))[1]
    )
    releases = [call() for _ in range(150)]
    e = np.array([(r.z - s) / r.scale for r, s in zip(releases, seen, strict=True)])
    assert stats.kstest(e.ravel(), stats.laplace.cdf).pvalue > 1e-9
    assert (np.abs(np.abs(e).mean(axis=0) - 1) < 7 / math.sqrt(150)).all()


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1 / 3, 0.7, 1, 3, 1e3, np.float64(2), np.int64(2), 1e-9, 1e9])
def test_recorded_epsilon_is_opendps_and_at_most_the_target(epsilon):
    r = call(epsilon=epsilon)
    assert float(epsilon) * (1 - 1e-12) <= r.privacy.epsilon <= float(epsilon)
    assert r.scale[0] >= r.privacy.sensitivity / float(epsilon) * (1 - 1e-15)
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float)
    assert dp.m.make_laplace(*space, r.noise_scale).map(r.privacy.sensitivity) == r.privacy.epsilon
    assert type(r.privacy.epsilon) is float and np.isfinite(r.z).all()


@pytest.mark.parametrize("values", [[math.nan, 1.0], [1.0, math.inf], [-math.inf], []])
def test_noise_is_not_added_to_what_opendp_would_swallow(values):
    with pytest.raises(InputError, match="statistics"):
        add_laplace_noise(np.array(values), 1.0, 1.0)


@pytest.mark.parametrize(("sensitivity", "epsilon"), [(5.0, 5e-324), (1e-308, 1e300), (1e308, 1e-5)])
def test_noise_beyond_floats_is_refused(sensitivity, epsilon):
    with pytest.raises(InputError, match="beyond the range"):
        add_laplace_noise(np.ones(2), sensitivity, epsilon)


def test_missing_opendp_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(MissingExtraError, match="pip install opendp"):
        call()


# --- statistics and sensitivity ---


def test_records_are_clipped_and_scaled(exact):
    call({"bmi": [15, 30, 60, -1e300], "progression": [0, 175, 350, 1e308]})
    s = dict(zip(Release.names.fget(call()), exact[0][0], strict=True))
    # scaled: bmi -1, 0, 1, -1; progression -1, 0, 1, 1
    assert s == {
        "bmi": -1,
        "bmi*bmi": 3,
        "progression": 1,
        "bmi*progression": 1,
        "progression*progression": 3,
    }


def test_worst_neighbours_reach_the_sensitivity_and_none_exceed_it(exact):
    data = table(50)
    middle = {"bmi": 30 - 15 / 3, "progression": 175 - 175 / 3}  # -1/3, -1/3 scaled (docs/formulas.md#box-sensitivity)
    call({k: np.append(v, BOUNDS[k][1]) for k, v in data.items()})
    call({k: np.append(v, middle[k]) for k, v in data.items()})
    (a, sensitivity), (b, _) = exact
    assert 16 / 3 * (1 - 1e-12) <= np.abs(a - b).sum() <= sensitivity <= 16 / 3 * (1 + 1e-12)
    rng = np.random.default_rng(0)
    for _ in range(50):
        row = {k: rng.normal(100, 1000) for k in data}
        call({k: np.append(v, row[k]) for k, v in data.items()})
        assert np.abs(exact[-1][0] - a).sum() <= sensitivity


@pytest.mark.parametrize(("p", "sensitivity"), [(1, 16 / 3), (2, 9.375), (3, 14.4), (9, 720 / 11)])
def test_sensitivity_by_number_of_features(p, sensitivity):
    names = [f"x{i}" for i in range(p)]
    data = {name: np.linspace(0, 1, 20) for name in [*names, "y"]}
    r = call(data, features=names, target="y", bounds=dict.fromkeys([*names, "y"], (0, 1)))
    assert r.privacy.sensitivity == pytest.approx(sensitivity, rel=1e-11)
    exact = replace_one_l1(regression_exponents(p), [(-1, 1)] * (p + 1))
    assert r.privacy.sensitivity >= exact + rounding_allowance(len(r.z), 20) > exact
    assert len(r.z) == len(r.scale) == len(r.names) == p + p * (p + 1) // 2 + 2 + p
    assert np.allclose(r.scale, r.privacy.sensitivity)


def test_release_says_everything_and_nothing_private():
    r = call(epsilon=0.5)
    assert (r.records, r.p, r.features, r.target) == (200, 1, ("bmi",), "progression")
    assert (r.mechanism, r.scaling, r.simulated) == ("laplace", "bounds-to-[-1,1]", False)
    assert r.bounds == {"bmi": (15.0, 45.0), "progression": (0.0, 350.0)}
    assert (r.privacy.delta, r.privacy.adjacency, r.privacy.norm) == (0.0, "replace-one", "l1")
    data = r.to_dict()
    assert list(data) == [
        "format",
        "version",
        "model",
        "records",
        "scaling",
        "statistics",
        "mechanism",
        "privacy",
        "bounds",
    ]
    assert tuple(data["statistics"]) == r.names
    assert list(data["statistics"].values()) == r.z.tolist()


def test_one_record():
    r = call({"bmi": [20.0], "progression": [100.0]})
    assert r.records == 1 and np.isfinite(r.z).all()


def test_every_release_warns_of_composition():
    for _ in range(2):
        with pytest.warns(PrivacyWarning, match=r"epsilon = 0\.25 under replace-one .*adds its epsilon"):
            release(table(), target="progression", features=["bmi"], bounds=BOUNDS, epsilon=0.25)


def test_warning_as_error_stops_before_the_noise(exact):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PrivacyWarning):
            release(table(), target="progression", features=["bmi"], bounds=BOUNDS, epsilon=0.25)
    assert not exact


# --- no seed, no JAX ---


def test_noise_cannot_be_seeded():
    for function in (release, add_laplace_noise):
        assert not {"seed", "key", "rng", "random_state"} & set(inspect.signature(function).parameters)
    # the global generator has no effect
    np.random.seed(0)  # noqa: NPY002
    first = call().z
    np.random.seed(0)  # noqa: NPY002
    assert not np.isclose(first, call().z).any()


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_release_path_imports_no_generator():
    """Follows every import of dpjax from owner.py, at any depth and inside functions too."""
    todo, seen = [ROOT / "releases" / "owner.py"], set()
    while todo:
        path = todo.pop()
        seen.add(path.relative_to(ROOT).as_posix())
        for name in imported(path):
            root, *rest = name.split(".")
            assert root not in ("jax", "random", "secrets", "numpyro", "blackjax"), (path.name, name)
            assert "random" not in rest, (path.name, name)
            if root == "dpjax" and rest:
                allowed = name.startswith("dpjax.kernels.order")  # NumPy only
                assert rest[0] not in ("kernels", "models", "samplers") or allowed, (path.name, name)
                module = ROOT.joinpath(*rest).with_suffix(".py")
                if module.name == "_jax.py":
                    continue  # what loads JAX at its first use: test_import_is_light
                if module.exists() and module.relative_to(ROOT).as_posix() not in seen:
                    todo.append(module)
        assert "np.random" not in path.read_text()
    needed = {"releases/owner.py", "releases/plan.py", "releases/release.py", "releases/file.py", "releases/table.py"}
    needed |= {"privacy/opendp_noise.py", "privacy/quantile.py"}
    assert seen >= needed | {"statistics/kinds.py", "statistics/regression.py", "statistics/family.py"}


SCRIPT = """
import sys, warnings
import jax, jax.random, numpy as np
import opendp.prelude  # its optional imports draw examples for their documentation
def refuse(*a, **k): raise AssertionError("generator used")
for module in (jax.random, np.random):
    for name in dir(module):
        if callable(getattr(module, name)) and not isinstance(getattr(module, name), type) and name[0] != "_":
            setattr(module, name, refuse)
np.random.default_rng = refuse
warnings.simplefilter("ignore")
from dpjax.releases.owner import release
r = release({"x": [1.0, 2.0], "y": [0.0, 1.0]}, target="y", features=["x"], bounds={"x": (0, 3), "y": (0, 3)},
            epsilon=1.0)
print(len(r.z))
"""


def test_release_runs_with_seedable_generators_poisoned():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, cwd=ROOT.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "5"


def test_import_is_light():
    code = "import sys, dpjax.releases.owner; print([m for m in ('jax', 'opendp', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT.parent)
    assert done.stdout.strip() == "[]", done.stderr


# --- arguments ---


@pytest.mark.parametrize(
    "epsilon",
    [
        0,
        -1,
        math.nan,
        math.inf,
        True,
        "1",
        None,
        1j,
        [1.0],
        10**400,
        pytest.param(10**5000, id="huge"),
        np.bool_(True),
    ],
)
def test_bad_epsilon(epsilon, exact):
    with pytest.raises(InputError, match="epsilon must be a finite number > 0"):
        call(epsilon=epsilon)
    assert not exact


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "lasso"}, "model 'lasso' is not known: linear-regression, multinomial, "),
        ({"model": None}, "model None is not known"),
        ({"model": "binomial"}, "features has no place in a release of binomial"),
        ({"mechanism": "wishart"}, "mechanism must be 'laplace' or 'gaussian' or 'discrete-laplace', got 'wishart'"),
        ({"mechanism": None}, "mechanism must be"),
        ({"mechanism": "gaussian"}, "delta is missing"),
        ({"mechanism": "gaussian", "delta": 0}, r"delta must lie inside \(0, 1\), got 0"),
        ({"mechanism": "gaussian", "delta": 1.0}, "delta must lie inside"),
        ({"mechanism": "gaussian", "delta": math.nan}, "delta must lie inside"),
        ({"mechanism": "gaussian", "delta": "1e-6"}, "delta must lie inside"),
        ({"delta": 1e-6}, "delta has no place in a release with laplace noise"),
        ({"mechanism": "discrete-laplace"}, "for sums of whole numbers, which linear-regression does not have"),
        ({"rule": "clamp"}, "rule has no place in a release of linear-regression"),
        ({"categories": 3}, "categories has no place"),
        ({"shape": 2}, "shape has no place"),
        ({"bounds": PrivateQuantile((0, 1), 0.5)}, "bounds must map"),
        ({"bounds": BOUNDS | {"bmi": PrivateQuantile((0, 1), 0.5)}}, "one column"),
        (
            {"adjacency": "add-remove"},
            "'add-remove' is refused.*number of records is private.*noised statistic",
        ),
        ({"adjacency": "bounded"}, "adjacency must be 'replace-one'"),
        ({"intercept": False, "moments": True}, "with an intercept"),
        ({"intercept": 1}, "intercept must be True"),
        ({"bounds": {"bmi": (15, 45)}}, "bounds are missing for column 'progression'"),
        ({"bounds": BOUNDS | {"age": (0, 1)}}, "'age', which the model does not use"),
        ({"bounds": BOUNDS | {"bmi": (45, 15)}}, "bounds of 'bmi'"),
        ({"bounds": None}, "bounds are missing for column 'bmi'"),
        ({"bounds": [(15, 45)]}, "bounds must map"),
        ({"features": "bmi"}, "features must be"),
        ({"features": None}, "features is missing"),
        ({"features": []}, "features must be"),
        ({"features": ["bmi", "bmi"]}, "more than once"),
        ({"features": ["progression"]}, "also among the features"),
        ({"features": ["a*b"]}, "rename the column"),
        ({"target": 3}, "column name"),
    ],
)
def test_bad_arguments_are_refused_in_one_line_before_the_table_is_read(changes, message, exact):
    with pytest.raises(InputError, match=message) as caught:
        call(object(), **changes)
    assert "\n" not in str(caught.value) and not exact


def test_epsilon_delta_and_bounds_have_no_default():
    parameters = inspect.signature(release).parameters
    for name in ("epsilon", "target"):
        assert parameters[name].default is inspect.Parameter.empty
    for name in ("bounds", "delta"):  # some models have no bounds, most mechanisms no delta
        assert parameters[name].default is None


# --- saving ---


def test_round_trip_and_no_overwriting(tmp_path):
    r, path = call(), tmp_path / "release.json"
    r.save(path)
    assert Release.load(path) == r and describe_problems(path) == []
    assert json.loads(path.read_text()) == r.to_dict()
    other = call()
    with pytest.raises(InputError, match="exists"):
        other.save(path)
    assert Release.load(path) == r
    other.save(path, force=True)
    assert Release.load(path) == other != r


def test_release_by_hand_is_checked_like_a_file():
    arguments = {
        "statistic": RegressionStatistic(["x"], "y"),
        "records": np.int64(10),
        "statistics": dict.fromkeys(["y*y", "x*y", "y", "x*x", "x"], np.float64(1)),
        "mechanism": "gaussian",
        "noise_scale": {"x": 1, "x*x": 2, "y": 3, "x*y": 4, "y*y": 5},
    }
    r = Release(**arguments)
    assert r.scale.tolist() == [1, 2, 3, 4, 5] and r.names == ("x", "x*x", "y", "x*y", "y*y")
    assert type(r.records) is int and r.features == ("x",) and r.privacy is None
    assert Release.from_dict(r.to_dict()) == r
    for changes in (
        {"records": 0},
        {"records": True},
        {"noise_scale": -1.0},
        {"noise_scale": {"x": 1.0}},
        {"statistics": {"x": 1.0}},
        {"statistics": arguments["statistics"] | {"x": math.nan}},
        {"statistics": 3},
        {"mechanism": "wishart"},
        {"mechanism": "discrete-laplace"},
        {"statistic": None},
        {"statistic": make_statistic("poisson", bounds=(0, 3))},
        {"privacy": Privacy(1.0, 0.0, "add-remove", "l2", 1.0)},
        {"privacy": 1.0},
        {"simulated": "yes"},
        {"privacy": Privacy(1.0, 1e-6, "replace-one", "l2", 1.0, 2.0)},
    ):
        with pytest.raises(InputError):
            Release(**arguments | changes)
    with pytest.raises(AttributeError):
        r.records = 3
