"""Sensitivities: the tables of SPEC A1 and A2, a search that must not exceed them, and rounding up."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize

from dpjax.errors import InputError
from dpjax.sensitivity import (
    add_remove_l1,
    add_remove_l2,
    entry_ranges,
    moment_exponents,
    regression_exponents,
    replace_one_l1,
    replace_one_l2,
    rounding_allowance,
)
from dpjax.statistics import RegressionStatistic

UNIT = (-1, 1)


def products(exponents, u):
    """The statistic of one record, or of rows of records [k, m] -> [k, D]."""
    u = np.asarray(u, float)
    return np.stack([np.prod(u ** np.array(row), axis=-1) for row in exponents], axis=-1)


# SPEC A1: bounds (x...; y), intercept, sum of ranges, exact joint
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


# SPEC A2: powers of one variable: bounds, ranges, exact joint of x..x^4, exact joint of x^3, x^4
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


@pytest.mark.parametrize(("bounds", "intercept"), BOXES)
def test_joint_sensitivity_is_what_a_search_finds(bounds, intercept):
    exponents = regression_exponents(len(bounds) - 1, intercept)
    lo, hi = np.array(bounds, float).T
    m = len(bounds)
    joint = replace_one_l1(exponents, bounds)
    rng = np.random.default_rng(0)

    def distance(pair):
        pair = np.clip(pair.reshape(*pair.shape[:-1], 2, m), lo, hi)
        t = products(exponents, pair)
        return np.abs(t[..., 0, :] - t[..., 1, :]).sum(axis=-1)

    starts = rng.uniform(np.tile(lo, 2), np.tile(hi, 2), (4000, 2 * m))
    corners = np.array(list(itertools.product(*np.tile(np.array(bounds, float), (2, 1)))))
    starts = np.concatenate([starts, corners])
    values = distance(starts)
    assert values.max() <= joint
    best = values.max()
    for start in starts[np.argsort(values)[-12:]]:
        found = minimize(lambda v: -distance(v), start, method="Nelder-Mead", options={"maxiter": 3000})
        best = max(best, -found.fun)
    assert best <= joint * (1 + 1e-12)
    assert best >= joint * (1 - 1e-4)


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
    # [-1, 1]^2 without intercept: x^2, x y, y^2 have ranges 1, 2, 1; the Frobenius norm would count x y twice
    assert replace_one_l2(regression_exponents(1, False), [UNIT, UNIT]) == pytest.approx(math.sqrt(6))


def test_default_is_joint_up_to_three_variables_and_ranges_beyond():
    assert replace_one_l1(regression_exponents(2), [UNIT] * 3) == 9.375
    assert replace_one_l1(regression_exponents(3), [UNIT] * 4) == 24
    with pytest.raises(InputError, match="joint"):
        replace_one_l1(regression_exponents(3), [UNIT] * 4, method="joint")


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
