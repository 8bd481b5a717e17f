"""Projection onto consistent statistics (docs/formulas.md#consistent-sums) and the eigen-decomposition under it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.kernels import nig, psd


def symmetric_stack(size, count=60, seed=0):
    rng = np.random.default_rng(seed + size)
    a = rng.normal(size=(count, size, size))
    a = a + np.swapaxes(a, 1, 2)
    scale = np.where(np.arange(count) % 2, np.exp(2 * rng.normal(size=(count, size))).T, 1.0).T
    return a * scale[:, :, None] * scale[:, None, :]


@pytest.mark.slow
@pytest.mark.parametrize("size", [*range(1, 12), 14, 31, 64])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_eigenvalues_against_numpy(size, dtype, x64):
    a = symmetric_stack(size)
    values, vectors = (np.asarray(x, np.float64) for x in jax.jit(jax.vmap(psd.eigh_jacobi))(jnp.asarray(a, dtype)))
    scale = np.abs(np.linalg.eigvalsh(a)).max(axis=1)
    # rounding adds up over rotations; how much depends on the processor (3 to 3.5 per row at 64 rows)
    tolerance = max(30, 6 * size) * np.finfo(dtype).eps
    assert np.all(np.abs(np.sort(values) - np.linalg.eigvalsh(a)).max(1) < tolerance * scale)
    rebuilt = np.einsum("nik,nk,njk->nij", vectors, values, vectors)
    assert np.all(np.abs(rebuilt - a).max((1, 2)) < tolerance * scale)
    assert np.abs(np.einsum("nki,nkj->nij", vectors, vectors) - np.eye(size)).max() < tolerance


@pytest.mark.parametrize(
    "matrix",
    [np.zeros((3, 3)), np.eye(4), np.ones((5, 5)), np.diag([3.0, -1.0, 2.0]), [[0.0, 1.0], [1.0, 0.0]]],
)
def test_eigenvalues_of_special_matrices(matrix):
    values, vectors = psd.eigh_jacobi(jnp.asarray(matrix, jnp.float32))
    np.testing.assert_allclose(np.sort(values), np.linalg.eigvalsh(matrix), atol=2e-6)
    assert bool(jnp.isfinite(vectors).all())


@pytest.mark.parametrize("size", [1, 2, 5, 20])
def test_solution_and_root(size, x64):
    """Of an indefinite system, and of a semi-definite matrix with a direction missing."""
    a, rng = symmetric_stack(size)[::2], np.random.default_rng(size)
    b = rng.normal(size=(len(a), size))
    solved = jax.jit(jax.vmap(psd.solve_symmetric))(jnp.asarray(a), jnp.asarray(b))
    np.testing.assert_allclose(np.einsum("nij,nj->ni", a, solved), b, atol=1e-8)
    half = rng.normal(size=(len(a), size, max(size - 1, 1)))
    square = half @ np.swapaxes(half, 1, 2)
    root = np.asarray(jax.jit(jax.vmap(psd.square_root))(jnp.asarray(square)))
    np.testing.assert_allclose(root, np.swapaxes(root, 1, 2), atol=1e-10)
    np.testing.assert_allclose(root @ root, square, atol=1e-10 * max(1.0, square.max()))
    assert np.linalg.eigvalsh(root).min() > -1e-10


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3, 6, 11, 20])
def test_clip_is_the_projection(size, x64):
    a, floor = symmetric_stack(size), 0.1
    clipped = np.asarray(jax.jit(jax.vmap(psd.clip_eigenvalues, (0, None)))(jnp.asarray(a), jnp.asarray(floor)))
    values, vectors = np.linalg.eigh(a)
    expected = np.einsum("nik,nk,njk->nij", vectors, np.maximum(values, floor), vectors)
    np.testing.assert_allclose(clipped, expected, atol=1e-12 * np.abs(a).max())


@pytest.mark.parametrize("size", [2, 4])
def test_clip_returns_a_definite_matrix_bit_for_bit(size):
    a = np.einsum("nij,nkj->nik", symmetric_stack(size), symmetric_stack(size)) + np.eye(size)
    a = jnp.asarray((a + np.swapaxes(a, 1, 2)) / 2, jnp.float32)
    # alone (the branch is skipped) and beside matrices that need clipping (it is not)
    f = jax.jit(jax.vmap(psd.clip_eigenvalues, (0, None)))
    assert np.array_equal(f(a, jnp.float32(1e-3)), a)
    both = jnp.concatenate([a, -a])
    assert np.array_equal(f(both, jnp.float32(1e-3))[: len(a)], a)


@pytest.mark.slow
def test_clip_of_a_borderline_matrix_does_not_depend_on_its_neighbours():
    """Smallest eigenvalue equal to the floor up to rounding: both branches must decide alike."""
    rng = np.random.default_rng(2)
    vectors = np.linalg.qr(rng.normal(size=(3000, 4, 4)))[0]
    values = np.r_[0.5, 1.0, 2.0, 4.0]
    a = np.einsum("nik,k,njk->nij", vectors, values, vectors).astype(np.float32)
    a = jnp.asarray((a + np.swapaxes(a, 1, 2)) / 2)
    floor = jnp.float32(0.5)
    pivots = psd._smallest_pivot(jnp.moveaxis(a - floor * jnp.eye(4, dtype=jnp.float32)[None], 0, -1))
    passed = a[np.asarray(pivots) > 0]
    assert 500 < len(passed) < 2500
    f = jax.jit(jax.vmap(psd.clip_eigenvalues, (0, None)))
    assert np.array_equal(f(passed, floor), passed)
    assert np.array_equal(f(jnp.concatenate([passed, -a]), floor)[: len(passed)], passed)


@pytest.mark.parametrize("p", [1, 2, 4, 9])
def test_clip_schur_keeps_count_and_sums(p, x64):
    rng = np.random.default_rng(p)
    count, floor = 50, 1e-6
    m = rng.normal(size=(count, p + 1)) * 0.3
    scatter = symmetric_stack(p + 1, count, seed=3)
    moments = np.zeros((count, p + 2, p + 2))
    moments[:, 0, 0], moments[:, 0, 1:], moments[:, 1:, 0] = 7.0, 7.0 * m, 7.0 * m
    moments[:, 1:, 1:] = scatter + 7.0 * np.einsum("ni,nj->nij", m, m)
    out = np.asarray(jax.jit(jax.vmap(psd.clip_schur, (0, None)))(jnp.asarray(moments), jnp.asarray(floor)))
    assert np.array_equal(out[:, 0], moments[:, 0]) and np.array_equal(out[:, :, 0], moments[:, :, 0])
    assert np.array_equal(out, np.swapaxes(out, 1, 2)) or np.allclose(out, np.swapaxes(out, 1, 2), atol=1e-12)
    centred = out[:, 1:, 1:] - 7.0 * np.einsum("ni,nj->nij", m, m)
    values, vectors = np.linalg.eigh(scatter)
    expected = np.einsum("nik,nk,njk->nij", vectors, np.maximum(values, floor), vectors)
    np.testing.assert_allclose(centred, expected, atol=1e-11 * np.abs(scatter).max())


def test_after_clipping_the_conjugate_scale_does_not_fall(x64):
    """b_n - b_0 >= 0 exactly when the statistic is consistent (docs/formulas.md#consistent-sums)."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(200, 4, 4)) * 0.5
    a = (a + np.swapaxes(a, 1, 2)) / 2
    a[:, 0, 0] = 1.0
    law = nig.NIG(jnp.zeros(3), 1e-3 * jnp.eye(3), jnp.asarray(20.0), jnp.asarray(0.5))

    def scale(moments):
        return nig.update(law, moments[:3, :3], moments[:3, 3], moments[3, 3], jnp.asarray(10.0)).scale

    clipped = jax.jit(jax.vmap(psd.clip_schur, (0, None)))(jnp.asarray(a), jnp.asarray(1e-9))
    scales = jax.jit(jax.vmap(scale))
    assert float(scales(clipped).min()) >= 0.5
    broken = np.asarray(scales(jnp.asarray(a)))
    assert (~(broken >= 0.5)).mean() > 0.2


def test_semidefinite_factor_of_singular_and_definite_matrices(x64):
    p = np.array([0.2, 0.5, 0.3])
    multinomial = np.diag(p) - np.outer(p, p)
    duplicated = np.ones((2, 2))
    zero_row = np.array([[1.0, 0.0, 0.5], [0.0, 0.0, 0.0], [0.5, 0.0, 2.0]])
    for a in (multinomial, duplicated, zero_row, np.eye(4) + 0.5):
        factor = np.asarray(psd.semidefinite_factor(jnp.asarray(a)))
        np.testing.assert_allclose(factor @ factor.T, a, atol=1e-14)


def test_semidefinite_factor_of_rank_deficient_matrices_in_float32():
    """A pivot that is pure rounding must not be divided by: it would blow the rest of its column up."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4000, 5, 2)).astype(np.float32)
    a = np.einsum("nik,njk->nij", root, root)
    factor = np.asarray(jax.jit(jax.vmap(psd.semidefinite_factor))(jnp.asarray(a)))
    error = np.abs(np.einsum("nik,njk->nij", factor, factor) - a).max((1, 2))
    assert np.all(error < 2e-6 * np.abs(a).max((1, 2)))
