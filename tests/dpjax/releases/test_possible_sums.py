"""Sums that no table has: distances against linear programs over records on a grid, no false alarm, and who says so."""

import itertools
import json
import math
import re
import warnings

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import dlaplace, laplace, norm

import dpjax
from dpjax.cli.app import main
from dpjax.errors import ConvergenceWarning, InputError
from dpjax.inference import released
from dpjax.releases import possible_sums
from dpjax.releases.moment_conditions import of_statistic
from dpjax.releases.possible_sums import doubts_about_sums, misfit
from dpjax.releases.release import Release
from dpjax.statistics.kinds import make_statistic


def made(statistic, z, n=100, scale=1.0, mechanism="laplace"):
    return Release(statistic, n, dict(zip(statistic.names, map(float, z), strict=True)), mechanism, float(scale))


def regression(p=1, bounds=(-1, 1), **options):
    names = [f"x{i}" for i in range(p)]
    limits = None if bounds is None or "norms" in options else dict.fromkeys([*names, "y"], bounds)
    if bounds is None:
        options["scaling"] = None
    return make_statistic("linear-regression", features=names, target="y", bounds=limits, **options)


def grid_distance(records, z, n, scale):
    """Distance of z from n times the means of records on a grid: from above, as records off the grid are left out."""
    count, size = records.shape
    cost = np.r_[np.zeros(count), 1.0]
    near = np.vstack([np.c_[records.T, -np.full(size, scale / n)], np.c_[-records.T, -np.full(size, scale / n)]])
    found = linprog(
        cost, A_ub=near, b_ub=np.r_[z / n, -z / n], A_eq=np.r_[np.ones(count), 0.0][None], b_eq=[1.0], method="highs"
    )
    return found.fun


def of_grid(statistic, box, points):
    grid = np.array(list(itertools.product(*[np.linspace(lo, hi, points) for lo, hi in box])))
    return np.stack([np.prod(grid ** np.array(row), axis=1) for row in statistic.exponents], axis=1)


@pytest.mark.parametrize(
    ("statistic", "box", "points", "close"),
    [
        (regression(), [(-1, 1)] * 2, 41, 0.02),
        (regression(scaling=None, bounds=(0, 2)), [(0, 2)] * 2, 41, 0.02),
        (regression(intercept=False), [(-1, 1)] * 2, 41, 0.15),
        (regression(2), [(-1, 1)] * 3, 13, 0.1),
        (make_statistic("normal", bounds=(0, 10)), [(-1, 1)], 2001, 0.01),
        (make_statistic("exponential", bounds=(1, 3)), [(1, 3)], 3, 1e-6),
        (regression(moments=True), [(-1, 1)] * 2, 41, 0.4),
    ],
)
def test_distance_is_that_of_the_nearest_table(statistic, box, points, close):
    records = of_grid(statistic, box, points)
    rng = np.random.default_rng(5)
    n, ratios = 100, []
    for _ in range(12):
        z = n * rng.dirichlet(np.ones(5)) @ records[rng.integers(len(records), size=5)]
        z += rng.choice([-1, 1], len(z)) * rng.choice([0, 60], len(z))
        wanted = grid_distance(records, z, n, 0.5)
        found = misfit(made(statistic, z, n, 0.5))
        far = 0.0 if found is None else found.scales
        assert far <= wanted * (1 + 1e-6) + 1e-6  # never further than the nearest table
        if wanted > 25:
            assert found is not None
            ratios.append(far / wanted)
    assert len(ratios) > 0 and np.median(ratios) >= 1 - close


@pytest.mark.parametrize(
    ("statistic", "box"),
    [
        (regression(3), [(-1, 1)] * 4),
        (regression(scaling=None, bounds=(-1, 3)), [(-1, 3)] * 2),
        (regression(scaling=None, bounds=(2, 3)), [(2, 3)] * 2),
        (regression(2, moments=True), [(-1, 1)] * 3),
        (regression(2, intercept=False, squares=False), [(-1, 1)] * 3),
        (regression(2, intercept=False, norms={"features": 9, "target": 4}), [(-(0.5**0.5), 0.5**0.5)] * 2 + [(-1, 1)]),
        (make_statistic("normal", bounds=(3, 9)), [(-1, 1)]),
        (make_statistic("normal", bounds=(3, 9), rule="redact", scaling=None), [(3, 9)]),
        (make_statistic("normal", bounds=(3, 9), rule="redact", scaling=None), [(0, 0.1)]),
    ],
)
def test_single_records_meet_all_conditions(statistic, box):
    records = of_grid(statistic, box, 9 if len(box) > 1 else 101)
    if box == [(0, 0.1)]:
        records = records[:1]  # left out
    conditions, units = of_statistic(statistic, records[0], np.ones(statistic.dim))
    records = records / units
    small = 1e-9
    assert (records <= conditions.high + small).all() and (records >= conditions.low - small).all()
    assert (records @ conditions.rows[:, :-1].T + conditions.rows[:, -1] <= conditions.tops + small).all()
    assert all(len(conditions.planes(record)) == 0 for record in records)
    # and the centre with room to spare
    inside = conditions.centre
    assert (inside < conditions.high).all() and (inside > conditions.low).all()
    assert (conditions.rows[:, :-1] @ inside + conditions.rows[:, -1] < conditions.tops).all()
    assert len(conditions.matrices) > 0 and len(conditions.planes(inside)) == 0


# what the sums are, and how many noise scales the nearest table is away
CASES = [
    (make_statistic("binomial"), [1e6], 57, 10.0, (1e6 - 57) / 10),
    (make_statistic("poisson", bounds=(0, 10)), [-300], 50, 4.0, 75.0),
    (make_statistic("poisson", bounds=(2, 10), rule="redact"), [50], 100, 1.0, None),  # fewer than 2 each: left out
    (make_statistic("poisson", bounds=(2, 10), rule="clamp"), [50], 100, 1.0, 150.0),
    (regression(), [0, 150, 0, 0, 10], 100, 1.0, 50.0),  # x * x above n
    (regression(), [0, -50, 0, 0, 10], 100, 1.0, 50.0),
    (regression(), [0, 20, 0, 60, 30], 100, 1.0, (60 - math.sqrt(600)) / (1 + 25 / math.sqrt(600) * 1.0)),
    (regression(bounds=None), [0, -50, 0, 0, 10], 100, 1.0, 50.0),
    (regression(bounds=None), [0, 2e6, 0, 6e6, 3e6], 100, 1e5, (60 - math.sqrt(600)) / (1 + 25 / math.sqrt(600) * 1.0)),
    (regression(intercept=False, squares=False), [-40, 0], 100, 1.0, 40.0),
    (regression(intercept=False, norms={"features": 1, "target": 2}), [130, 0, 10], 100, 1.0, 30.0),
    (make_statistic("multinomial", categories=4), [100, 100, 0, 0], 100, 1.0, 50.0),
    (make_statistic("multinomial", categories=3, released=[0, 1]), [90, 90], 100, 1.0, 40.0),
    (make_statistic("multinomial", categories=3, released=[0, 1]), [20, 30], 100, 1.0, None),
]


@pytest.mark.parametrize(("statistic", "z", "n", "scale", "far"), CASES)
def test_sums_that_no_table_has(statistic, z, n, scale, far):
    found = misfit(made(statistic, z, n, scale))
    if far is None:
        assert found is None
        return
    assert found.scales == pytest.approx(far, rel=0.03)
    assert found.probability <= 1e-6
    (text,) = doubts_about_sums(made(statistic, z, n, scale))
    said = re.search(r"([\d.,]+(?:e\+\d+)?) noise scales away", text)
    assert float(said.group(1).replace(",", "")) == pytest.approx(found.scales, rel=5e-3) and "\n" not in text


@pytest.mark.parametrize("bounds", [None, (-1e70, 1e70), (1e9, 1e9 + 1), (-1, 1)])
def test_numbers_beyond_all_measure_end_in_no_error(bounds):
    statistic = regression(bounds=bounds, scaling=None)
    rng = np.random.default_rng(1)
    for _ in range(60):
        n = int(10 ** rng.uniform(0, 15.9))
        z = rng.choice([-1, 1], statistic.dim) * 10 ** rng.uniform(-5, rng.choice([3, 20, 300]), statistic.dim)
        doubts = doubts_about_sums(made(statistic, z, n, max(np.abs(z).max(), n) / 10 ** rng.uniform(-3, 15)))
        assert all("nan" not in text for text in doubts)


def test_many_counts_of_one_sign_are_seen_by_their_total():
    statistic = make_statistic("multinomial", categories=400)
    noise = np.random.default_rng(0).laplace(size=400)
    counts = np.full(400, 25.0)
    assert misfit(made(statistic, counts + noise, 10_000)) is None
    found = misfit(made(statistic, counts + noise + 0.6, 10_000))  # 240 in all, where noise has an sd of 28
    assert found is not None and found.probability < 1e-6 and "add up to" in found.words


@pytest.mark.parametrize(
    ("mechanism", "law"), [("laplace", laplace()), ("gaussian", norm()), ("discrete-laplace", dlaplace(1))]
)
def test_probability_is_above_that_of_noise(mechanism, law):
    for k in (1.0, 3.0, 5.0, 8.0):
        for entries in (1, 5, 60):
            largest = -np.expm1(entries * np.log1p(-2 * law.sf(k - (mechanism == "discrete-laplace"))))
            bound = possible_sums._tail(k, entries, mechanism)
            assert largest <= bound * (1 + 1e-9) and bound <= max(2 * entries * 2 * law.sf(k - 1), 1e-3)
    sums = np.abs(law.rvs((20_000, 8), random_state=1).sum(axis=1))
    for total in (4.0, 8.0, 16.0):
        assert np.mean(sums >= total) <= 2 * possible_sums._sum_tail(total, 8, mechanism) + 1e-3


def tables():
    """Statistics, and columns of n records in their bounds."""
    rng = np.random.default_rng(11)
    for p, n, spread in itertools.product((1, 3), (1, 4, 10_000), (0.003, 0.5)):
        x = np.clip(rng.uniform(-0.9, 0.9, p) + spread * rng.normal(size=(n, p)), -1, 1)
        y = np.clip(x @ rng.uniform(-1, 1, p) + spread / 10 * rng.normal(size=n), -1, 1)
        columns = {f"x{i}": x[:, i] for i in range(p)} | {"y": y}
        yield regression(p), columns
        yield regression(p, bounds=None), columns
        yield regression(p, intercept=False), columns
        yield regression(p, intercept=False, squares=False, norms={"features": 1.5, "target": 1}), columns
        if n % 4 == 0:
            yield regression(p, intercept=False, norms={"features": 0.5, "target": 2}, averaged=4), columns
        if p == 1:
            yield regression(p, moments=True), columns
    for n in (1, 20, 5000):
        for rule in ("clamp", "redact"):
            yield make_statistic("normal", bounds=(2, 9), rule=rule), {"x": rng.normal(7, 2, n)}
            yield make_statistic("poisson", bounds=(2, 9), rule=rule), {"x": rng.poisson(1.5, n).astype(float)}
        yield make_statistic("binomial"), {"x": (rng.random(n) < 0.01).astype(float)}
        yield make_statistic("multinomial", categories=30), {"x": rng.integers(0, 2, n)}


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 300.0])
def test_no_table_is_doubted(epsilon):
    rng = np.random.default_rng(int(epsilon * 100))
    for number, (statistic, columns) in enumerate(tables()):
        n = len(next(iter(columns.values())))
        z = statistic.from_columns(columns)
        mechanism = "laplace" if number % 2 else "gaussian"
        draw = rng.laplace if number % 2 else rng.normal
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scale = {2: 1.0, 3: 4.0}.get(number % 4, 2.0) / epsilon * len(z) ** 0.5
        noisy = z + draw(0, scale, len(z))
        records = n // getattr(statistic, "averaged", 1)
        assert misfit(made(statistic, noisy, records, scale, mechanism)) is None
        assert misfit(made(statistic, z, records, 1e-9 * max(1, np.abs(z).max()))) is None  # nearly no noise


def test_a_false_alarm_has_the_probability_it_states():
    # all records at a corner: every sum is at its largest, and noise is seen as it is
    statistic = regression()
    z, rng = np.full(5, 100.0), np.random.default_rng(2)
    far = [possible_sums.misfit(made(statistic, z + rng.laplace(0, 1, 5), 100)) for _ in range(200)]
    assert far == [None] * 200
    noise = np.array([0, 16.0, 0, 0, 0])
    found = misfit(made(statistic, z + noise, 100))
    assert found is not None and found.scales == pytest.approx(16, rel=1e-3)
    assert found.probability == pytest.approx(5 * math.exp(-16), rel=0.02)


BINOMIAL = {
    "format": "dpjax-release",
    "version": 1,
    "model": {"kind": "binomial"},
    "records": 57,
    "scaling": None,
    "statistics": {"successes": 1e6},
    "mechanism": {"kind": "laplace", "scale": 10.0},
}


def write(tmp_path, **changes):
    path = tmp_path / "release.json"
    path.write_text(json.dumps(BINOMIAL | changes))
    return path


@pytest.mark.slow
def test_check_fit_and_fit_many_say_so(tmp_path, capsys):
    path = write(tmp_path)
    assert main(["check", str(path)]) == 1
    shown = capsys.readouterr()
    assert "can be used" not in shown.out and "99,994 noise scales away" in shown.err
    with pytest.warns(ConvergenceWarning, match="no table of 57 records"):
        posterior = dpjax.fit(path, method="naive")
    assert len(posterior.doubts) == 1 and not posterior.summary()["converged"]
    good = Release.from_dict(BINOMIAL | {"statistics": {"successes": 30.0}})
    with pytest.warns(ConvergenceWarning, match="no table can have these sums"):
        many = dpjax.fit_many([good, Release.load(path)], method="naive")
    assert many.converged.tolist() == [True, False] and len(many[0].doubts) == 0 and len(many[1].doubts) == 1
    assert main(["check", str(write(tmp_path, statistics={"successes": 130.0}))]) == 0  # 7 scales: noise does that


def test_check_refuses_what_fit_refuses(tmp_path, capsys):
    path = write(tmp_path, records=2**53, statistics={"successes": 4e15}, mechanism={"kind": "laplace", "scale": 1.0})
    assert main(["check", str(path)]) == 2
    assert "at most 1e+15 noise scales" in capsys.readouterr().err
    with pytest.raises(InputError, match="at most 1e\\+15 noise scales"):
        dpjax.fit(path)
    path = write(tmp_path, records=2**53, statistics={"successes": 4e15})
    assert main(["check", str(path)]) == 0
    assert main(["check", str(write(tmp_path, records=57.0, statistics={"successes": 30}, version=1.0))]) == 0


def test_a_party_is_named():
    statistic = regression(intercept=False)
    good, bad = made(statistic, [30, 5, 20]), made(statistic, [-80, 5, 20])
    (text,) = released.stated([good, bad], statistic)["doubts"]
    assert text.startswith("party 2: no table of 100 records")
