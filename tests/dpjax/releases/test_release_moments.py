"""Releases that also hold third and fourth moments of the features: entries, sensitivities, budgets, noise."""

import itertools
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpjax.calibration.scales import noise_scales
from dpjax.errors import InputError, PrivacyWarning
from dpjax.mechanisms import laplace as _noise
from dpjax.privacy.budget import spent_together, split
from dpjax.privacy.gaussian import gaussian_delta
from dpjax.privacy.sensitivity import moment_exponents, rounding_allowance
from dpjax.releases.owner import release
from dpjax.releases.release import Release
from dpjax.statistics.kinds import make_statistic, simulated_statistic
from dpjax.statistics.regression import RegressionStatistic

BOUNDS = {"a": (0.0, 4.0), "b b": (-3.0, 1.0), "y": (-1.0, 5.0)}
UNIT = (-1.0, 1.0)


def statistic(p=1, box=UNIT, scaling=None):
    names = [f"x{i}" for i in range(1, p + 1)]
    return RegressionStatistic(tuple(names), "y", dict.fromkeys([*names, "y"], box), scaling, True)


def table(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return {"a": rng.exponential(1, n), "b b": rng.normal(-1, 1, n), "y": rng.normal(2, 2, n)}


def call(data=None, features=("a", "b b"), **changes):
    bounds = {name: BOUNDS[name] for name in (*features, "y")}
    arguments = {"target": "y", "features": features, "bounds": bounds, "epsilon": 1.0, "moments": True} | changes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return release(table() if data is None else data, **arguments)


@pytest.fixture
def exact(monkeypatch):
    """The exact sums of each part that would be noised, instead of noise."""
    seen = []

    def capture(values, sensitivity, epsilon):
        seen.append((values, sensitivity, epsilon))
        return values, sensitivity / epsilon, epsilon

    monkeypatch.setattr(_noise, "add_laplace_noise", capture)
    return seen


# --- entries ---


def test_names_of_two_features():
    two = RegressionStatistic(("a", "b b"), "y", moments=True)
    assert two.names == (
        *("a", "b b", "a*a", "a*b b", "b b*b b", "y", "a*y", "b b*y", "y*y"),
        *("a*a*a", "a*a*b b", "a*b b*b b", "b b*b b*b b"),
        *("a*a*a*a", "a*a*a*b b", "a*a*b b*b b", "a*b b*b b*b b", "b b*b b*b b*b b"),
    )
    usual = two.base
    assert usual == RegressionStatistic(("a", "b b"), "y") and usual.base is usual
    assert two.parameter_names == two.base.parameter_names and two.variables == two.base.variables


@pytest.mark.parametrize("p", [1, 2, 3, 9])
def test_dimension_and_order(p):
    one = statistic(p)
    assert one.dim == one.base.dim + math.comb(p + 2, 3) + math.comb(p + 3, 4) == len(one.names) == len(set(one.names))
    rows = [row for row in moment_exponents(p, 4) if sum(row) >= 3]
    assert list(one.exponents[: one.base.dim]) == list(one.base.exponents)
    assert list(one.exponents[one.base.dim :]) == [(*row, 0) for row in rows]
    assert one.names[one.base.dim :] == tuple(
        "*".join(name for name, e in zip(one.features, row, strict=True) for _ in range(e)) for row in rows
    )


def test_moment_exponents_are_all_monomials_in_their_order():
    """Against plain enumeration: the rows are those of degree 1 to 4, larger powers of earlier variables first."""
    for variables, degree in ((1, 4), (2, 4), (3, 3), (4, 2)):
        rows = itertools.product(range(degree + 1), repeat=variables)
        ordered = sorted((r for r in rows if 1 <= sum(r) <= degree), key=lambda r: (sum(r), tuple(-e for e in r)))
        assert moment_exponents(variables, degree) == tuple(ordered)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_sums_are_those_of_the_records(p):
    rng = np.random.default_rng(p)
    X, y = rng.uniform(-1, 1, (40, p)), rng.uniform(-1, 1, 40)
    one = statistic(p)
    s = one.from_records(X, y)
    assert s.tolist()[: one.base.dim] == one.base.from_records(X, y).tolist()
    record = np.column_stack([X, y])
    direct = [np.prod(record ** np.array(row), axis=1).sum() for row in one.exponents]
    np.testing.assert_allclose(s, direct, rtol=1e-12, atol=1e-12)


def test_records_are_clipped_and_scaled_first():
    one = make_statistic(
        "linear-regression", target="y", features=["a"], bounds={"a": (0, 4), "y": (0, 2)}, moments=True
    )
    s = dict(zip(one.names, one.from_columns({"a": [3.0, 9.0], "y": [0.0, 0.0]}), strict=True))
    assert (s["a*a*a"], s["a*a*a*a"]) == (0.125 + 1, 0.0625 + 1)  # 0.5 and 1 on [-1, 1]


# --- sensitivity ---


@pytest.mark.parametrize(("box", "usual", "moments"), [(UNIT, 16 / 3, 2.10546875), ((0, 1), 5, 2), ((1, 2), 11, 22)])
def test_sensitivities_of_spec_a1_and_a2(box, usual, moments):
    one = statistic(1, box)
    assert one.base.sensitivity() == pytest.approx(usual, rel=1e-12)
    assert one.feature_moments.sensitivity() == pytest.approx(moments, rel=1e-12)
    assert one.feature_moments.sensitivity() >= moments
    assert one.feature_moments.is_exact("l1") and one.feature_moments.is_exact("l2") and not one.is_exact("l1")


def test_sensitivity_of_several_features():
    two = statistic(2).feature_moments
    # the sums of degree 3 and 4 at (1, 1) are 9; their least value is at x = z = t, 4 t^3 + 5 t^4 at t = -3/5
    assert two.sensitivity() == pytest.approx(9 + 4 * 0.216 - 5 * 0.1296, rel=1e-10)
    assert two.is_exact("l1") and two.is_exact("l2") and statistic(2).base.is_exact("l1")
    assert two.sensitivity("l2") == pytest.approx(4, rel=1e-12)  # from (1, 1) to (1, -1): x^2 z, z^3, x^3 z, x z^3
    many = statistic(6).feature_moments  # on [-1, 1] an even monomial has range 1, any other 2
    assert many.sensitivity() == 56 * 2 + (126 - 21) * 2 + 21 and not many.is_exact("l1")


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize(("p", "box"), [(1, UNIT), (1, (1, 2)), (2, UNIT), (2, (-0.5, 2))])
def test_no_record_moves_the_sums_further(p, box, norm, adjacency):
    """What the statistic says of itself holds for the whole vector, and what its parts say for each part."""
    one = statistic(p, box)
    rng = np.random.default_rng(3)
    grid = np.linspace(*box, 5)
    points = np.array(list(itertools.product(grid, repeat=p + 1)))
    points = np.vstack([points, rng.uniform(*box, (300, p + 1))])
    t = np.stack([np.prod(points ** np.array(row), axis=1) for row in one.exponents], axis=1)
    moves = t[:, None] - t[None] if adjacency == "replace-one" else t
    ranges = {"whole": (one, slice(None))}
    ranges |= {"usual": (one.base, slice(0, one.base.dim)), "moments": (one.feature_moments, slice(one.base.dim, None))}
    for name, (part, where) in ranges.items():
        largest = np.linalg.norm(moves[..., where], 1 if norm == "l1" else 2, axis=-1).max()
        stated = part.sensitivity(norm, adjacency)
        assert largest <= stated * (1 + 1e-12), name
        assert largest >= 0.55 * stated, name  # the L2 bound is not attained
    assert one.sensitivity(norm, adjacency) > max(part.sensitivity(norm, adjacency) for part in one.parts)


def test_rounding_allowance_of_four_factors_is_enough_and_needed():
    """Alone in its table a record's products are summed exactly, so all that is rounded are the products."""
    one = statistic(2).feature_moments
    rng = np.random.default_rng(0)
    X = np.vstack([rng.uniform(0.9, 1, (1500, 2)) * rng.choice([-1, 1], (1500, 2)), [[1, 1]]])
    errors = []
    for x in X:
        computed = statistic(2).from_records(x[None], [0.0])[-one.dim :]
        true = [math.prod(Fraction(x[i]) for i in row) for row in one.factors]
        errors.append([Fraction(c) - t for c, t in zip(computed, true, strict=True)])
    spread = [max(column) - min(column) for column in zip(*errors, strict=True)]  # of the worst pair of neighbours
    ulp = Fraction(math.ulp(0.75))
    of_products = Fraction(one.rounding_allowance(1)) - one.dim * 2 * Fraction(math.ulp(1.0))  # the rest is of the sums
    assert sum(spread) <= of_products
    assert sum(spread) > one.dim * ulp  # what products of two can be off by would not do
    assert one.rounding_allowance(1) == rounding_allowance(one.dim, 1, 1.0, 4)
    whole = statistic(2).rounding_allowance(10)
    assert whole > statistic(2).base.rounding_allowance(10) + one.rounding_allowance(10)


# --- budgets ---


@pytest.mark.parametrize("total", [1.0, 0.1, 1 / 3, 1e-9, 1e9, 5e-324])
@pytest.mark.parametrize("share", [0.5, 0.3, 1e-12, 1 - 1e-12, 1e-300])
def test_a_split_never_exceeds_the_total(total, share):
    try:
        rest, part = split(total, share, "share")
    except InputError as error:
        assert total * share == 0 or "nothing" in str(error)
        return
    assert rest > 0 < part and Fraction(rest) + Fraction(part) <= Fraction(total)
    assert spent_together(rest, part) <= total
    assert Fraction(spent_together(rest, part)) >= Fraction(rest) + Fraction(part)
    assert rest == pytest.approx((1 - share) * total, rel=1e-3)


@pytest.mark.parametrize("share", [0.5, 0.2, 0.77])
@pytest.mark.parametrize("epsilon", [1.0, 0.1, 1 / 3])
def test_recorded_epsilon_is_the_sum_of_opendps_maps(epsilon, share):
    import opendp.prelude as dp

    r = call(epsilon=epsilon, moments_share=share)
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float)
    size = r.statistic.base.dim
    scales = r.scale[0], r.scale[-1]
    assert (r.scale[:size] == scales[0]).all() and (r.scale[size:] == scales[1]).all()
    own = r.privacy.moments
    maps = [
        dp.m.make_laplace(*space, scale).map(d)
        for scale, d in zip(scales, (r.privacy.sensitivity, own.sensitivity), strict=True)
    ]
    assert own.epsilon == maps[1]
    assert Fraction(maps[0]) + Fraction(maps[1]) <= Fraction(r.privacy.epsilon) <= Fraction(epsilon)
    assert r.privacy.epsilon == pytest.approx(epsilon, rel=1e-12)
    assert own.epsilon == pytest.approx(share * epsilon, rel=1e-12)
    statistic = r.statistic
    assert statistic.base.sensitivity() <= r.privacy.sensitivity <= statistic.base.sensitivity() * (1 + 1e-11)
    assert statistic.feature_moments.sensitivity() <= own.sensitivity
    assert own.sensitivity <= statistic.feature_moments.sensitivity() * (1 + 1e-11)
    assert own.delta == r.privacy.delta == 0


def test_gaussian_noise_splits_epsilon_and_delta():
    r = call(mechanism="gaussian", epsilon=0.8, delta=1e-5, moments_share=0.25)
    own, whole = r.privacy.moments, r.privacy
    assert (whole.epsilon, own.epsilon) == (0.8, 0.2) and (whole.delta, own.delta) == (1e-5, 2.5e-6)
    assert gaussian_delta(r.scale[0], whole.sensitivity, 0.6) == pytest.approx(7.5e-6, rel=1e-8)
    assert gaussian_delta(r.scale[-1], own.sensitivity, 0.2) == pytest.approx(2.5e-6, rel=1e-8)
    assert own.sensitivity == pytest.approx(r.statistic.feature_moments.sensitivity("l2"), rel=1e-11)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Release.from_dict(r.to_dict()) == r


@pytest.mark.parametrize("features", [("a",), ("a", "b b")])
def test_no_neighbour_loses_more_than_epsilon(features, exact):
    """The privacy loss of one replaced record, over both parts: sum of |difference| / scale of its entry."""
    rng = np.random.default_rng(1)
    data = table(20)
    r = call(data, features=features)
    start = np.concatenate([values for values, *_ in exact])
    losses = []
    for _ in range(120):
        # corners and the like of the box, and values far outside of it
        row = {k: rng.choice([*BOUNDS[k], np.mean(BOUNDS[k]), rng.normal(0, 100)]) for k in data}
        exact.clear()
        call({k: np.append(v[1:], row[k]) for k, v in data.items()}, features=features)
        moved = np.concatenate([values for values, *_ in exact])
        losses.append(np.sum(np.abs(moved - start) / r.scale))
    assert max(losses) <= r.privacy.epsilon == 1.0
    assert max(losses) > 0.4


def test_worst_neighbours_of_the_moments_reach_their_sensitivity(exact):
    # x = -1 and x = 3/4 on [-1, 1]: x^3 moves by 1.421875, x^4 by 0.68359375, together 2.10546875
    # (docs/formulas.md#moment-sensitivity)
    rest = {"a": np.array([1.0, 2.0]), "y": np.zeros(2)}
    for value in (0.0, 2 + 2 * 0.75):
        call({"a": np.append(rest["a"], value), "y": np.append(rest["y"], 0.0)}, features=("a",))
    (one, stated, _), (two, _, _) = exact[1], exact[3]
    assert len(one) == 2 and 2.10546875 * (1 - 1e-12) <= np.abs(one - two).sum() <= stated


def test_noise_of_both_parts_has_its_law(monkeypatch):
    """Unseeded by nature: every threshold fails a correct build less than once in 10^9 runs."""
    seen, draw = [], _noise.add_laplace_noise
    monkeypatch.setattr(
        _noise, "add_laplace_noise", lambda values, *rest: (seen.append(values), draw(values, *rest))[1]
    )
    releases = [call() for _ in range(60)]
    sums = [np.concatenate(pair) for pair in zip(seen[::2], seen[1::2], strict=True)]
    e = np.array([(r.z - s) / r.scale for r, s in zip(releases, sums, strict=True)])
    size = releases[0].statistic.base.dim
    for part in (e[:, :size], e[:, size:]):
        assert stats.kstest(part.ravel(), stats.laplace.cdf).pvalue > 1e-9
        assert abs(np.abs(part).mean() - 1) < 7 / math.sqrt(part.size)


def test_the_warning_says_the_total_and_comes_before_the_noise(exact):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PrivacyWarning, match=r"spends epsilon = 0\.25 under"):
            release(table(), target="y", features=["a", "b b"], bounds=BOUNDS, epsilon=0.25, moments=True)
    assert not exact


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"moments": 1}, "moments must be True or False, got 1"),
        ({"moments": "yes"}, "moments must be True or False"),
        ({"moments": False, "moments_share": 0.5}, "moments_share is of use only with moments"),
        ({"moments_share": 0}, r"moments_share must lie inside \(0, 1\), got 0"),
        ({"moments_share": 1.0}, "moments_share must lie inside"),
        ({"moments_share": math.nan}, "moments_share must lie inside"),
        ({"moments_share": "half"}, "moments_share must lie inside"),
        ({"moments_share": True}, "moments_share must lie inside"),
        ({"mechanism": "discrete-laplace"}, "sums of whole numbers, which linear-regression does not have"),
        ({"mechanism": "gaussian"}, "delta is missing"),
        ({"model": "poisson", "features": None}, "moments has no place in a release of poisson"),
        ({"model": "multinomial", "features": None, "bounds": None, "categories": 3}, "moments has no place"),
    ],
)
def test_bad_arguments(changes, message, exact):
    arguments = {"target": "y", "features": ["a", "b b"], "bounds": BOUNDS, "epsilon": 1.0, "moments": True} | changes
    with pytest.raises(InputError, match=message) as caught:
        release(object(), **arguments)
    assert "\n" not in str(caught.value) and not exact


def test_a_share_that_leaves_nothing_is_refused_before_the_noise(exact):
    with pytest.raises(InputError, match=r"epsilon = .* beyond the range"):
        call(moments_share=1e-320)
    with pytest.raises(InputError, match=r"moments_share = 1e-320 leaves nothing"):
        call(epsilon=1e-9, moments_share=1e-320)
    assert not exact


# --- for simulations ---


@pytest.mark.parametrize("share", [None, 0.3])
@pytest.mark.parametrize(("mechanism", "delta"), [("laplace", None), ("gaussian", 1e-5)])
def test_noise_scales_are_those_of_a_release(mechanism, delta, share):
    r = call(mechanism=mechanism, delta=delta, moments_share=share)
    np.testing.assert_allclose(noise_scales(r.statistic, mechanism, 1.0, delta, share), r.scale, rtol=1e-10)
    plain = call(mechanism=mechanism, delta=delta, moments=False)
    np.testing.assert_allclose(noise_scales(plain.statistic, mechanism, 1.0, delta), plain.scale, rtol=1e-10)


def test_noise_scales_take_other_sensitivities():
    one = simulated_statistic("linear-regression", moments=True)
    assert one == RegressionStatistic(("x1",), "y", {"x1": UNIT, "y": UNIT}, None, True)
    # Bernstein and Sheldon 2019, sections 3.3 and 3.4.4
    paper = noise_scales(one, "laplace", 0.5, sensitivities=(24.0, 80.0))
    assert paper.tolist() == [96.0] * 5 + [320.0] * 2
    for arguments in (
        {"share": 0.0},
        {"epsilon": 0.0},
        {"epsilon": "1"},
        {"sensitivities": (24.0,)},
        {"sensitivities": 24.0},
        {"sensitivities": (24.0, -1.0)},
        {"kind": "wishart"},
        {"kind": "gaussian"},
        {"delta": 1e-5},
        {"statistic": one.base, "share": 0.5},
    ):
        with pytest.raises(InputError):
            noise_scales(**{"statistic": one, "kind": "laplace", "epsilon": 1.0} | arguments)
