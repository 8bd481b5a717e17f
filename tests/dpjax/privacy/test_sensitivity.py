"""Sensitivities: the tables of docs/formulas.md#box-sensitivity and #moment-sensitivity, a search that must not exceed
them, and rounding up."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dpjax.errors import InputError
from dpjax.privacy.sensitivity import (
    add_remove_l1,
    add_remove_l2,
    entry_ranges,
    feature_moment_exponents,
    moment_exponents,
    regression_exponents,
    replace_one_is_exact,
    replace_one_l1,
    replace_one_l2,
    rounding_allowance,
)
from dpjax.statistics.regression import RegressionStatistic

UNIT = (-1, 1)


def products(exponents, u):
    """The statistic of one record, or of rows of records [k, m] -> [k, D]."""
    u = np.asarray(u, float)
    return np.stack([np.prod(u ** np.array(row), axis=-1) for row in exponents], axis=-1)


# docs/formulas.md#box-sensitivity: bounds (x...; y), intercept, sum of ranges, exact joint
A1 = [
    ([UNIT, UNIT], False, 4, 3),
    ([UNIT, UNIT], True, 8, 16 / 3),
    ([(0, 1), (0, 1)], True, 5, 5),
    ([(1, 2), (1, 2)], False, 9, 9),
    ([(1, 2), (1, 2)], True, 11, 11),
    ([UNIT, UNIT, UNIT], False, 9, 6),
    ([UNIT, UNIT, UNIT], True, 15, 9.375),
    ([UNIT, (2, 5), (-3, 4)], False, 91, 68.3333333),
    ([(-2, 3), (1, 4)], True, 52, 43),
]


@pytest.mark.parametrize(("bounds", "intercept", "ranges", "joint"), A1)
def test_table_of_spec_a1(bounds, intercept, ranges, joint):
    exponents = regression_exponents(len(bounds) - 1, intercept)
    assert replace_one_l1(exponents, bounds, method="ranges") == pytest.approx(ranges, rel=1e-12)
    assert entry_ranges(exponents, bounds).sum() == pytest.approx(ranges, rel=1e-12)
    assert replace_one_l1(exponents, bounds, method="joint") == pytest.approx(joint, abs=1e-7)
    assert replace_one_l1(exponents, bounds) == replace_one_l1(exponents, bounds, method="joint")


# docs/formulas.md#moment-sensitivity: powers of one variable: bounds, ranges, exact joint of x..x^4, exact joint of
# x^3, x^4
A2 = [
    (UNIT, [2, 1, 2, 1], 4.3264467, 2.10546875),
    ((0, 1), [1, 1, 1, 1], 4, 2),
    ((1, 2), [1, 3, 7, 15], 26, 22),
]


@pytest.mark.parametrize(("bounds", "ranges", "joint", "joint_high"), A2)
def test_table_of_spec_a2(bounds, ranges, joint, joint_high):
    exponents = moment_exponents(1, 4)
    assert exponents == ((1,), (2,), (3,), (4,))
    np.testing.assert_allclose(entry_ranges(exponents, [bounds]), ranges, rtol=1e-12)
    assert replace_one_l1(exponents, [bounds], method="ranges") == pytest.approx(sum(ranges), rel=1e-12)
    assert replace_one_l1(exponents, [bounds]) == pytest.approx(joint, abs=1e-7)
    assert replace_one_l1(exponents[2:], [bounds]) == pytest.approx(joint_high, rel=1e-8)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_number_of_fourth_moments(p):
    assert len(moment_exponents(p, 4)) == math.comb(p + 4, 4) - 1
    assert len(set(moment_exponents(p, 4))) == len(moment_exponents(p, 4))


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_exponents_follow_the_order_of_the_statistic(p):
    statistic = RegressionStatistic(tuple("abcde"[:p]), "y")
    rng = np.random.default_rng(p)
    X, y = rng.uniform(-1, 1, (7, p)), rng.uniform(-1, 1, 7)
    exponents = regression_exponents(p)
    np.testing.assert_allclose(
        products(exponents, np.column_stack([X, y])).sum(axis=0), statistic.from_records(X, y), rtol=1e-13
    )
    bare = regression_exponents(p, intercept=False)
    assert len(bare) == len(exponents) - (p + 1)
    assert bare == tuple(row for row in exponents if sum(row) == 2)


BOXES = [
    ([UNIT, UNIT], True),
    ([(-2, 3), (1, 4)], True),
    ([(-0.3, 0.1), (-2, 5)], True),
    ([(0.2, 0.9), (-4, -1)], False),
    ([(-1.5, 0.5), (-0.7, 2.0)], False),
    ([UNIT, UNIT, UNIT], True),
    ([UNIT, (2, 5), (-3, 4)], False),
    ([(-0.5, 2), (-1, 0.3), (0.1, 1)], True),
]


@pytest.mark.parametrize("bounds", [UNIT, (0, 1), (1, 2), (-0.4, 1.3), (-2, 0.5), (-1e-3, 3)])
@pytest.mark.parametrize("powers", [(1, 2, 3, 4), (3, 4), (1, 3), (2, 4, 6), (1, 2), (1, 2, 3, 4, 5, 6)])
def test_powers_of_one_variable_against_a_grid(bounds, powers):
    exponents = tuple((k,) for k in powers)
    x = np.linspace(*bounds, 20_001)
    t = products(exponents, x[:, None])
    grid = max(np.ptp(t @ np.array(signs)) for signs in itertools.product((1, -1), repeat=len(powers)))
    joint = replace_one_l1(exponents, [bounds])
    assert grid * (1 - 1e-12) <= joint <= grid * (1 + 1e-6)


@pytest.mark.parametrize(("bounds", "intercept"), BOXES)
def test_order_of_the_bounds(bounds, intercept):
    exponents = regression_exponents(len(bounds) - 1, intercept)
    joint = replace_one_l1(exponents, bounds)
    assert max(entry_ranges(exponents, bounds)) <= joint <= replace_one_l1(exponents, bounds, method="ranges")
    assert joint <= 2 * add_remove_l1(exponents, bounds)
    wider = [(lo - 0.1, hi + 0.2) for lo, hi in bounds]
    assert replace_one_l1(exponents, wider) > joint


@pytest.mark.parametrize(("bounds", "intercept"), BOXES)
def test_add_remove_and_l2_against_search(bounds, intercept):
    exponents = regression_exponents(len(bounds) - 1, intercept)
    lo, hi = np.array(bounds, float).T
    u = np.random.default_rng(1).uniform(lo, hi, (4000, len(bounds)))
    u = np.concatenate([u, list(itertools.product(*np.array(bounds, float)))])
    t = products(exponents, u)
    for norm, value in ((1, add_remove_l1(exponents, bounds)), (2, add_remove_l2(exponents, bounds))):
        sizes = np.linalg.norm(t, ord=norm, axis=1)
        assert sizes.max() <= value * (1 + 1e-12)
        assert sizes.max() >= value * (1 - 1e-12)
    gaps = np.linalg.norm(t[:2000] - t[2000:4000], axis=1)
    assert gaps.max() <= replace_one_l2(exponents, bounds) <= replace_one_l1(exponents, bounds, "ranges")


def test_half_vectorised_norm_counts_a_product_once():
    # [-1, 1]^2 without intercept, from (1, 1) to (1, -1): x y moves by 2; the Frobenius norm would count it twice
    assert replace_one_l2(regression_exponents(1, False), [UNIT, UNIT]) == 2.0


# [-1, 1]^d with intercept: d (d + 2)^2 / (2 (d + 1)) and the root of (d + 1)^2 less 1 for even d
@pytest.mark.parametrize(
    ("d", "l1", "squared"), [(2, 16 / 3, 8), (3, 9.375, 16), (4, 14.4, 24), (6, 192 / 7, 48), (31, 527.484375, 1024)]
)
def test_cube_with_intercept(d, l1, squared):
    exponents, box = regression_exponents(d - 1), [UNIT] * d
    assert replace_one_l1(exponents, box) == pytest.approx(l1, rel=1e-15)
    assert replace_one_l2(exponents, box) == pytest.approx(math.sqrt(squared), rel=1e-15)
    assert replace_one_is_exact(exponents, box, "l1") and replace_one_is_exact(exponents, box, "l2")
    # both are reached: all variables from 1 to 1 - (d + 2) / (d + 1); half of them from 1 to -1
    far = np.full(d, 1 - (d + 2) / (d + 1))
    assert np.abs(products(exponents, np.ones(d)) - products(exponents, far)).sum() == pytest.approx(l1, rel=1e-12)
    half = np.where(np.arange(d) < (d + 1) // 2, -1.0, 1.0)
    assert np.sum((products(exponents, np.ones(d)) - products(exponents, half)) ** 2) == pytest.approx(squared)


@pytest.mark.parametrize(("d", "l1", "squared"), [(2, 3, 4), (3, 6, 8), (4, 10, 16), (5, 15, 24)])
@pytest.mark.parametrize("squares", [True, False])
def test_cube_without_intercept(d, l1, squared, squares):
    exponents, box = regression_exponents(d - 1, False), [(-3, 3)] * d
    if squares:
        assert replace_one_l1(exponents, box) == pytest.approx(9 * l1, rel=1e-15)
    else:
        exponents = exponents[:-1]
    assert replace_one_l2(exponents, box) == pytest.approx(9 * math.sqrt(squared), rel=1e-15)


def searched(exponents, bounds, norm, starts=3000, climbs=60):
    """The largest distance of two records that a search finds: random records and corners, then ascent in one variable
    at a time on finer and finer grids from the best and from others."""
    lo, hi = np.tile(np.array(bounds, float), (2, 1)).T
    m, rng = len(bounds), np.random.default_rng(0)
    corners = rng.choice([0.0, 1.0], (starts, 2 * m)) * (hi - lo) + lo
    pairs = np.concatenate([rng.uniform(lo, hi, (starts, 2 * m)), corners])

    def distance(pairs):
        moved = products(exponents, pairs[..., :m]) - products(exponents, pairs[..., m:])
        return np.linalg.norm(moved, ord=norm, axis=-1)

    values = distance(pairs)
    best = values.max()
    pairs = np.concatenate([pairs[np.argsort(values)[-climbs // 2 :]], pairs[: climbs // 2]])
    for width in np.repeat(0.5 ** np.arange(0, 21, 3), 2):
        for i in range(2 * m):
            tried = np.repeat(pairs[:, None], 33, axis=1)
            tried[..., i] = np.clip(tried[..., i] + np.linspace(-width, width, 33) * (hi - lo)[i], lo[i], hi[i])
            pairs = tried[np.arange(len(pairs)), distance(tried).argmax(axis=1)]
    return max(best, distance(pairs).max())


SEARCHED = [
    (regression_exponents(3), [UNIT] * 4),
    (regression_exponents(3), [(-2, 1), (0.1, 1), (-1, 3), (-0.4, 0.6)]),
    (regression_exponents(4, False), [(-1, 0.3), (-0.2, 1), UNIT, (-1, 0.9), (0, 1)]),
    (regression_exponents(2, False)[:-1], [(-1, 0.5), (-0.1, 1), (-1, 0.8)]),
    (regression_exponents(1), [(-3, 3), (-3, 3)]),
    (regression_exponents(1), [(-0.5, 0.5), (-0.5, 0.5)]),
    (moment_exponents(1, 2), [(-0.7, 1.9)]),
    (moment_exponents(1, 4), [(-1.2, 0.9)]),
    (feature_moment_exponents(2), [UNIT, (-0.6, 1)]),
    (((1, 0), (0, 2), (1, 1)), [(-1, 0.5), (-2, 3)]),
    *((regression_exponents(len(bounds) - 1, intercept), bounds) for bounds, intercept in BOXES),
]


@pytest.mark.slow
@pytest.mark.parametrize(("exponents", "bounds"), SEARCHED)
@pytest.mark.parametrize("norm", [1, 2])
def test_supremum_is_what_a_search_finds(exponents, bounds, norm):
    value = (replace_one_l1 if norm == 1 else replace_one_l2)(exponents, bounds)
    found = searched(exponents, bounds, norm)
    assert replace_one_is_exact(exponents, bounds, f"l{norm}")
    assert found <= value * (1 + 1e-12)
    assert found >= value * (1 - 1e-5)


@pytest.mark.parametrize(("d", "points"), [(2, 61), (3, 13)])
@pytest.mark.parametrize("intercept", [True, False])
def test_all_sign_patterns_on_a_grid(d, points, intercept):
    # L1 distance = largest difference of a signed sum of the entries: all 2^(D - 1) of them, on a grid of records
    exponents = regression_exponents(d - 1, intercept)
    t = products(exponents, np.array(list(itertools.product(np.linspace(-1, 1, points), repeat=d))))
    best = max(np.ptp(t @ (1, *signs)) for signs in itertools.product((1, -1), repeat=len(exponents) - 1))
    value = replace_one_l1(exponents, [UNIT] * d)
    assert best <= value * (1 + 1e-12)
    assert best >= value * (1 - 0.02)


@pytest.mark.slow
def test_safe_bounds_beyond():
    # no closed form: six variables of different bounds, in L2; still below what was stated before, and above a search
    exponents, bounds = regression_exponents(5), [(-1, 0.5), (-0.3, 1), UNIT, (-1, 0.9), (-0.5, 1), (-0.8, 1)]
    value = replace_one_l2(exponents, bounds)
    assert not replace_one_is_exact(exponents, bounds, "l2") and replace_one_is_exact(exponents, bounds, "l1")
    assert searched(exponents, bounds, 2) <= value <= math.sqrt(np.sum(entry_ranges(exponents, bounds) ** 2))
    many = feature_moment_exponents(6)
    assert not replace_one_is_exact(many, [UNIT] * 6, "l1")
    assert replace_one_l1(many, [UNIT] * 6) == replace_one_l1(many, [UNIT] * 6, method="ranges")
    with pytest.raises(InputError, match="joint"):
        replace_one_l1(many, [UNIT] * 6, method="joint")


def test_bounds_of_one_sign_move_every_entry_by_its_range():
    for bounds in ([(0, 1)] * 7, [(-2, -1), (0, 3), (1, 2), (-5, 0), (2, 3), (0, 1), (0, 2)]):
        exponents = regression_exponents(6)
        ranges = entry_ranges(exponents, bounds)
        assert replace_one_l1(exponents, bounds) == pytest.approx(ranges.sum(), rel=1e-14)
        assert replace_one_l2(exponents, bounds) == pytest.approx(math.sqrt(np.sum(ranges**2)), rel=1e-14)
        assert replace_one_is_exact(exponents, bounds, "l2")


def test_results_are_rounded_up():
    joint = replace_one_l1(regression_exponents(1), [UNIT, UNIT])
    assert Fraction(joint) >= Fraction(16, 3) > Fraction(math.nextafter(joint, 0))
    rng = np.random.default_rng(3)
    for _ in range(200):
        bounds = [tuple(sorted(rng.normal(size=2))) for _ in range(2)]
        corners = [Fraction(a) * Fraction(b) for a in bounds[0] for b in bounds[1]]
        ranges = entry_ranges(((1, 1), (1, 0)), bounds)
        assert Fraction(ranges[0]) >= max(corners) - min(corners) > Fraction(math.nextafter(ranges[0], 0))
        assert Fraction(ranges[1]) >= Fraction(bounds[0][1]) - Fraction(bounds[0][0])
        largest = [max(abs(Fraction(lo)), abs(Fraction(hi))) for lo, hi in bounds]
        square = (largest[0] * largest[1]) ** 2 + largest[0] ** 2
        assert Fraction(add_remove_l2(((1, 1), (1, 0)), bounds)) ** 2 >= square


@pytest.mark.parametrize("size", [1e-200, 1e-30, 1e30, 1e150])
def test_extreme_bounds(size):
    exponents = regression_exponents(1)
    bounds = [(-size, size)] * 2
    values = [replace_one_l1(exponents, bounds), replace_one_l2(exponents, bounds)]
    values += [add_remove_l1(exponents, bounds), add_remove_l2(exponents, bounds)]
    assert all(math.isfinite(v) and v > 0 for v in values)
    assert min(values) >= size


def test_rounding_allowance_covers_float_sums_and_is_needed():
    statistic = RegressionStatistic(("x",), "y")
    exact = Fraction(16, 3)
    rng = np.random.default_rng(5)
    n = 20_000
    worst = Fraction(0)
    for _ in range(8):
        X, y = rng.uniform(-1, 1, (n, 1)), rng.uniform(-1, 1, n)
        sums = []
        for value in (1.0, -1 / 3):
            X[0, 0] = y[0] = value
            sums.append([Fraction(v) for v in statistic.from_records(X, y)])
        gap = sum(abs(a - b) for a, b in zip(*sums, strict=True))
        worst = max(worst, gap)
        assert gap <= exact + Fraction(rounding_allowance(5, n))
    assert worst > Fraction(math.nextafter(16 / 3, 9))  # the sum of floats is more sensitive than the sum
    assert rounding_allowance(5, 442) < 1e-12


@pytest.mark.parametrize(
    ("exponents", "bounds"),
    [
        (((1,),), [(1, 1)]),
        (((1,),), [(2, 1)]),
        (((1,),), [(math.nan, 1)]),
        (((1,),), [(0, math.inf)]),
        (((0,),), [UNIT]),
        (((1,), (1,)), [UNIT]),
        (((1, 0),), [UNIT]),
        (((-1,),), [(1, 2)]),
        ((), [UNIT]),
        (((1,),), []),
        (((1,),), [("a", "b")]),
        (((4,),), [(-1e200, 1e200)]),
    ],
)
def test_malformed_input(exponents, bounds):
    with pytest.raises(InputError):
        replace_one_l1(exponents, bounds)


def test_unknown_method_and_bad_p():
    with pytest.raises(InputError, match="method"):
        replace_one_l1(((1,),), [UNIT], method="paper")
    for p in (0, -1, 1.5, True):
        with pytest.raises(InputError, match="p must"):
            regression_exponents(p)
