"""Small symmetric matrices: every operation against NumPy in float64, column by column and in halves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.kernels import symmetric

SIZES = [1, 2, 5, 9, 20, 25, 41, 65]  # both sides of the thresholds for products (24) and for halving (40)


def problem(size, dtype, lanes=3, seed=0):
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(lanes, size, 2 * size))
    a = half @ half.swapaxes(1, 2) / size + 0.1 * np.eye(size)
    return jnp.asarray(a, dtype), jnp.asarray(rng.normal(size=(lanes, size)), dtype)


def tolerance(dtype):
    return 3e-4 if dtype == jnp.float32 else 1e-11


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    with jax.enable_x64(request.param == "float64"):
        yield jnp.dtype(request.param)


@pytest.mark.parametrize("size", SIZES)
def test_sweep_inverts_solves_and_gives_the_determinant(size, dtype):
    a, r = problem(size, dtype)
    log_det, inverse, solved = jax.jit(jax.vmap(symmetric.sweep))(a, r)
    exact = np.linalg.inv(np.asarray(a, np.float64))
    assert log_det.dtype == inverse.dtype == solved.dtype == dtype
    np.testing.assert_allclose(log_det, np.linalg.slogdet(np.asarray(a, np.float64))[1], rtol=0, atol=tolerance(dtype))
    np.testing.assert_allclose(inverse, exact, rtol=0, atol=tolerance(dtype))
    np.testing.assert_allclose(
        solved, np.einsum("tij,tj->ti", exact, np.asarray(r, np.float64)), rtol=0, atol=tolerance(dtype)
    )


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_factors(size, dtype):
    a, _ = problem(size, dtype)
    factor = jax.vmap(symmetric.cholesky)(a)
    inverse = jax.vmap(symmetric.inverse_cholesky)(a)
    exact = np.linalg.cholesky(np.asarray(a, np.float64))
    np.testing.assert_allclose(factor, exact, rtol=0, atol=tolerance(dtype))
    np.testing.assert_allclose(inverse, np.linalg.inv(exact), rtol=0, atol=tolerance(dtype))
    assert np.all(np.triu(np.asarray(inverse), 1) == 0)


@pytest.mark.slow
@pytest.mark.parametrize("rows, inner, cols", [(1, 1, 1), (3, 5, 2), (4, 30, 7), (65, 65, 65)])
def test_products(rows, inner, cols, dtype):
    rng = np.random.default_rng(1)
    a, b = (jnp.asarray(rng.normal(size=(2, *shape)), dtype) for shape in ((rows, inner), (inner, cols)))
    x, t = jnp.asarray(rng.normal(size=(2, inner)), dtype), jnp.swapaxes(a, 1, 2)
    exact = np.asarray(a, np.float64) @ np.asarray(b, np.float64)
    np.testing.assert_allclose(jax.vmap(symmetric.matmul)(a, b), exact, rtol=0, atol=tolerance(dtype))
    np.testing.assert_allclose(jax.vmap(symmetric.gram)(t, b), exact, rtol=0, atol=tolerance(dtype))
    vector = np.einsum("tij,tj->ti", np.asarray(a, np.float64), np.asarray(x, np.float64))
    np.testing.assert_allclose(jax.vmap(symmetric.matvec)(a, x), vector, rtol=0, atol=tolerance(dtype))
    np.testing.assert_allclose(jax.vmap(symmetric.matvec_transposed)(t, x), vector, rtol=0, atol=tolerance(dtype))


@pytest.mark.parametrize("size", [5, 65])
def test_an_indefinite_matrix_is_reported_by_a_nan_determinant(size):
    a, r = problem(size, jnp.float32, lanes=1)
    bad = a[0].at[size - 1, size - 1].set(-1.0)
    assert bool(jnp.isnan(symmetric.sweep(bad, r[0])[0]))


@pytest.mark.parametrize("size", [5, 65])
def test_one_lane_equals_many(size):
    a, r = problem(size, jnp.float32)
    for one, many in zip(symmetric.sweep(a[1], r[1]), jax.vmap(symmetric.sweep)(a, r), strict=True):
        np.testing.assert_allclose(one, many[1], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_derivatives_of_both_modes(x64):
    a, r = problem(4, jnp.float64)
    f = lambda x: symmetric.sweep(x, r[0])[0]
    np.testing.assert_allclose(jax.grad(f)(a[0]), np.linalg.inv(np.asarray(a[0])).T, atol=1e-10)
    np.testing.assert_allclose(jax.jacfwd(f)(a[0]), jax.grad(f)(a[0]), atol=1e-12)
