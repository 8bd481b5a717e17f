"""Sensitivities under bounds on row norms against the numbers of docs/formulas.md#row-norm-sensitivity, #averaged-rows
and an optimiser over records."""

import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize

from dpjax.errors import InputError
from dpjax.privacy import clipping, row_norms

SPEC = [  # X, Y; d >= 2 with (S, z); with sum y^2; the paper's two, which are add-remove
    (1, 1, 2.1213203436, 2.1213203436, 1.4142135624, 1.7320508),
    (1, 2, 4.0, 4.6904157598, 2.2360679775, 4.5825757),
    (2, 1, 6.3639610307, 6.3639610307, 4.4721359550, 4.5825757),
    (1, 3, 6.0, 9.5916630466, math.sqrt(10), 9.5393920),
]
BOUNDS = [(1.0, 1.0), (1.0, 2.0), (2.0, 1.0), (1.0, 1.5), (3.0, 2.0)]


@pytest.mark.parametrize(("X", "Y", "joint", "squares", "paper", "paper_squares"), SPEC)
def test_numbers_of_the_specification(X, Y, joint, squares, paper, paper_squares):
    for d in (2, 3, 14):
        assert row_norms.l2_sensitivity(d, X, Y) == pytest.approx(joint, abs=1e-10)
        assert row_norms.l2_sensitivity(d, X, Y, squares=True) == pytest.approx(squares, abs=1e-10)
    for d in (1, 3):
        added = [row_norms.l2_sensitivity(d, X, Y, squares=flag, adjacency="add-remove") for flag in (False, True)]
        assert added[0] == pytest.approx(paper, abs=1e-10) and added[1] == pytest.approx(paper_squares, abs=1e-7)


def test_one_feature_of_the_specification():
    for X, Y, value in ((1, 1, 2.0), (1, 2, 4.0), (2, 1, 4.536345128)):
        assert row_norms.l2_sensitivity(1, X, Y) == pytest.approx(value, abs=1e-9)
    # docs/formulas.md#box-sensitivity: the joint L1 of ([-1, 1], [-1, 1]) without intercept
    assert row_norms.l1_sensitivity(1, 1, 1, squares=True) == 3.0


def test_parts_of_the_specification():
    assert (
        row_norms.matrix_l2_sensitivity(1, 3) == 9
        and row_norms.matrix_l2_sensitivity(2, 3, adjacency="add-remove") == 9
    )
    assert row_norms.matrix_l2_sensitivity(2, 3) == pytest.approx(9 * math.sqrt(2), rel=1e-15)
    assert (
        row_norms.cross_l2_sensitivity(3, 2) == 12 and row_norms.cross_l2_sensitivity(3, 2, adjacency="add-remove") == 6
    )
    assert row_norms.smallest_eigenvalue_sensitivity(3) == 9
    for k, value in ((2, 2.0), (4, 3.0), (10, 3.6), (100, 3.96)):
        assert row_norms.averaged_matrix_l2_sensitivity(1, 1, k) == pytest.approx(value, rel=1e-15)
        assert row_norms.averaged_cross_l2_sensitivity(1, 2, k) == pytest.approx(2 * value, rel=1e-15)
    for d in (1, 2):
        assert row_norms.averaged_l2_sensitivity(d, 1, 2, 1) == row_norms.l2_sensitivity(d, 1, 2)
        assert row_norms.averaged_matrix_l2_sensitivity(d, 3, 1) == row_norms.matrix_l2_sensitivity(d, 3)
    assert row_norms.averaged_cross_l2_sensitivity(3, 2, 1) == 12


# --- an optimiser over records -------------------------------------------------------------------------------------


def statistic(x, y, squares, half):
    """[..., D]: entries i <= j of xx' (with the Frobenius weight on off-diagonals unless `half`), xy, y^2."""
    i, j = np.triu_indices(x.shape[-1])
    weight = np.where((i == j) | half, 1.0, math.sqrt(2))
    parts = [weight * x[..., i] * x[..., j], x * y[..., None]]
    return np.concatenate([*parts, y[..., None] ** 2] if squares else parts, axis=-1)


def search(value, sizes, starts, seed=0):
    """Largest `value` of vectors with norms up to `sizes`: random points, then SLSQP from the best of them.

    value: function of a list of arrays [..., m], one for each (m, bound) of `sizes`, giving [...].
    """
    rng = np.random.default_rng(seed)
    ends = np.cumsum([m for m, _ in sizes])

    def cut(flat):
        return np.split(flat, ends[:-1], axis=-1)

    points = rng.normal(size=(4000, ends[-1]))
    parts = cut(points)
    for part, (_, bound) in zip(parts, sizes, strict=True):
        part *= bound * rng.choice([0.3, 1.0], size=(4000, 1)) / np.linalg.norm(part, axis=-1, keepdims=True)
    points = np.concatenate(parts, axis=-1)
    reached = value(parts)
    order = np.argsort(reached)[::-1]
    chosen = points[np.concatenate([order[: starts // 2], rng.choice(order, starts - starts // 2)])]
    balls = {
        "type": "ineq",
        "fun": lambda flat: [b * b - part @ part for part, (_, b) in zip(cut(flat), sizes, strict=True)],
    }
    best = reached.max()
    for point in chosen:
        found = minimize(
            lambda flat: -value(cut(flat)), point, method="SLSQP", constraints=balls, options={"ftol": 1e-13}
        )
        inside = [
            part * min(1.0, b / max(np.linalg.norm(part), 1e-300))
            for part, (_, b) in zip(cut(found.x), sizes, strict=True)
        ]
        best = max(best, value(inside))
    return best


def pair(squares, half, order=2):
    def value(parts):
        x, v, y, w = parts
        gap = statistic(x, y[..., 0], squares, half) - statistic(v, w[..., 0], squares, half)
        return np.linalg.norm(gap, ord=order, axis=-1)

    return value


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize(("X", "Y"), BOUNDS)
def test_l2_is_reached_and_never_exceeded(d, X, Y):
    sizes = [(d, X), (d, X), (1, Y), (1, Y)]
    for squares in (False, True):
        claimed = row_norms.l2_sensitivity(d, X, Y, squares=squares)
        found = search(pair(squares, half=True), sizes, 10)
        assert claimed * (1 - 1e-7) < found <= claimed * (1 + 1e-14)
    # Frobenius: the same number
    found = search(pair(False, half=False), sizes, 8, seed=1)
    assert found <= row_norms.l2_sensitivity(d, X, Y) * (1 + 1e-14)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("squares", [False, True])
def test_add_remove_is_reached_and_never_exceeded(d, squares):
    sizes = [(d, 1.5), (1, 0.8)]
    for order, name in ((2, row_norms.l2_sensitivity), (1, row_norms.l1_sensitivity)):
        claimed = name(d, 1.5, 0.8, squares=squares, adjacency="add-remove")
        found = search(
            lambda parts, order=order: np.linalg.norm(statistic(parts[0], parts[1][..., 0], squares, True), order, -1),
            sizes,
            12,
        )
        assert claimed * (1 - 1e-6) < found <= claimed * (1 + 1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 3, 6])
@pytest.mark.parametrize(("X", "Y"), [(1.0, 1.0), (1.0, 3.0), (2.0, 0.5)])
@pytest.mark.parametrize("squares", [False, True])
def test_l1_is_never_exceeded(d, X, Y, squares):
    claimed = row_norms.l1_sensitivity(d, X, Y, squares=squares)
    found = search(pair(squares, True, order=1), [(d, X), (d, X), (1, Y), (1, Y)], 8)
    assert found <= claimed * (1 + 1e-14)
    assert found > claimed * (1 - 1e-6 if d == 1 else 0.7)  # d = 1 is exact, beyond it a bound of the right size
    assert claimed <= 2 * row_norms.l1_sensitivity(d, X, Y, squares=squares, adjacency="add-remove")


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("squares", [False, True])
def test_averaged_rows_are_reached_and_never_exceeded(d, k, squares):
    X, Y = 1.5, 0.7

    def value(parts):  # m and e: sums over the other k - 1 records
        x, v, m, y, w, e = parts
        one = statistic(m + x, (e + y)[..., 0], squares, half=True)
        return np.linalg.norm(one - statistic(m + v, (e + w)[..., 0], squares, half=True), axis=-1) / k

    sizes = [(d, X), (d, X), (d, (k - 1) * X), (1, Y), (1, Y), (1, (k - 1) * Y)]
    claimed = row_norms.averaged_l2_sensitivity(d, X, Y, k, squares=squares)
    found = search(value, sizes, 12)
    assert claimed * (1 - 1e-7) < found <= claimed * (1 + 1e-14)


def test_averaging_raises_the_sensitivity_of_real_groups():
    # the number of docs/formulas.md#averaged-rows, from rows: x -> -x while the others stay at the bound
    k = 4
    rows, y = np.ones((k, 1)), np.ones(k)
    other = rows.copy()
    other[0] = -1
    first, second = (clipping.average_rows(r, y, k)[0] for r in (rows, other))
    assert first.T @ first - second.T @ second == pytest.approx(3.0)


def test_smallest_eigenvalue_moves_by_no_more():
    rng = np.random.default_rng(0)
    for _ in range(200):
        rows = rng.normal(size=(4, 3))
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1)
        other = rows.copy()
        other[0] = rng.normal(size=3)
        other[0] /= np.linalg.norm(other[0])
        change = np.linalg.eigvalsh(rows.T @ rows)[0] - np.linalg.eigvalsh(other.T @ other)[0]
        assert abs(change) <= row_norms.smallest_eigenvalue_sensitivity(1)
    lifted = np.diag([5.0, 0.0]) + np.diag([0.0, 1.0])
    assert np.linalg.eigvalsh(lifted)[0] == row_norms.smallest_eigenvalue_sensitivity(1)  # reached


def test_results_are_rounded_up():
    for X, Y in ((0.1, 0.3), (1 / 3, 1e-3), (1e-160, 1e-150), (1e70, 7e60), (1.1, 1.1)):
        a, b = Fraction(X) ** 2, Fraction(Y) ** 2
        squared = 2 * (a + b / 2) ** 2 if b <= 2 * a else 4 * a * b
        for value in (row_norms.l2_sensitivity(2, X, Y), row_norms.l2_sensitivity(5, X, Y)):
            assert squared <= Fraction(value) ** 2
            assert value < 1e-300 or Fraction(value) ** 2 <= squared * (1 + Fraction(1, 2**48))
        t = Fraction(1, 2) * (1 - Fraction(math.sqrt(max(0.0, 1 - 2 * float(b / a))))) if 2 * b < a else Fraction(1)
        inside = (1 - t**2) ** 2 * a**2 + a * b * (1 + t) ** 2
        assert inside <= Fraction(row_norms.l2_sensitivity(1, X, Y)) ** 2
    with pytest.raises(InputError, match="beyond the range"):
        row_norms.l2_sensitivity(2, 1e200, 1)


# --- clipping and averaging ----------------------------------------------------------------------------------------


def exact_square(row):
    return sum(Fraction(float(v)) ** 2 for v in row)


def test_clipped_rows_are_never_longer_in_exact_arithmetic():
    rng = np.random.default_rng(1)
    for X, size in ((0.1, 1.0), (1 / 3, 1 / 3), (1e-8, 1e200), (1e5, 1e5), (7.3, 7.3)):
        rows = rng.normal(size=(400, 5))
        rows *= size / np.linalg.norm(rows, axis=1, keepdims=True)  # many lie within rounding of the bound
        rows[0] = 0
        clipped, y = clipping.clip_rows(rows, rng.normal(size=400), X, 0.5)
        assert max(exact_square(row) for row in clipped) <= Fraction(X) ** 2
        assert np.abs(y).max() <= 0.5
        lengths = np.linalg.norm(clipped / X, axis=1)[1:]
        assert lengths == pytest.approx(np.ones(399), rel=1e-13)
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(clipped[1:] / X, rows[1:] / size, rtol=1e-12)


def test_short_rows_stay_bit_for_bit():
    rows, y = np.random.default_rng(2).normal(size=(50, 3)), np.linspace(-1, 1, 50)
    clipped, target = clipping.clip_rows(rows, y, 10, 1)
    np.testing.assert_array_equal(clipped, rows)
    np.testing.assert_array_equal(target, y)
    assert clipped is not rows and clipping.clip_rows(np.zeros((0, 2)), np.zeros(0), 1, 1)[0].shape == (0, 2)


def test_whole_rows_are_clipped_together():
    rows, y = np.array([[3.0, 0.0], [0.1, 0.2]]), np.array([4.0, 0.3])
    clipped, target = clipping.clip_whole_rows(rows, y, 1)
    assert [*clipped[0], target[0]] == pytest.approx([0.6, 0, 0.8])
    assert exact_square([*clipped[0], target[0]]) <= 1
    np.testing.assert_array_equal(clipped[1], rows[1])
    assert target[1] == y[1]


def test_averaged_rows():
    rows, y = np.arange(12.0).reshape(6, 2), np.arange(6.0)
    averaged, target = clipping.average_rows(rows, y, 3)
    averaging = np.kron(np.eye(2), np.ones((1, 3))) / math.sqrt(3)  # the paper's A
    np.testing.assert_allclose(averaged, averaging @ rows, rtol=1e-15)
    np.testing.assert_allclose(target, averaging @ y, rtol=1e-15)
    np.testing.assert_array_equal(clipping.average_rows(rows, y, 1)[0], rows)
    with pytest.raises(InputError, match="k must divide the number of records, got k = 4 and 6"):
        clipping.average_rows(rows, y, 4)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: row_norms.l2_sensitivity(0, 1, 1), "d must"),
        (lambda: row_norms.l2_sensitivity(2.0, 1, 1), "d must"),
        (lambda: row_norms.l2_sensitivity(2, 0, 1), "X must"),
        (lambda: row_norms.l2_sensitivity(2, 1, math.inf), "Y must"),
        (lambda: row_norms.l2_sensitivity(2, True, 1), "X must"),
        (lambda: row_norms.l2_sensitivity(2, 1, 1, adjacency="unbounded"), "adjacency must"),
        (lambda: row_norms.l1_sensitivity(2, 1, -1), "Y must"),
        (lambda: row_norms.averaged_l2_sensitivity(2, 1, 1, 0), "k must"),
        (lambda: clipping.clip_rows([[1.0]], [1.0, 2.0], 1, 1), "shapes"),
        (lambda: clipping.clip_rows([["a"]], [1.0], 1, 1), "numbers only"),
        (lambda: clipping.clip_whole_rows([[1.0]], [1.0], 0), "bound must"),
    ],
)
def test_bad_arguments(call, name):
    with pytest.raises(InputError, match=name):
        call()


def test_no_private_value_is_shown():
    with pytest.raises(InputError) as caught:
        clipping.clip_rows([[12345.678, math.nan]], [98765.4], 1, 1)
    assert "12345" not in str(caught.value) and "98765" not in str(caught.value)


def test_import_is_light():
    heavy = "('jax', 'scipy', 'numpyro', 'opendp')"
    code = f"import sys, dpjax.privacy.row_norms; print([m for m in {heavy} if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
