"""What every kernel keeps to, whatever it computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.kernels.registry import KERNELS

LANES = 4


def example(name, seed=0, dtype=jnp.float32):
    return KERNELS[name].function, KERNELS[name].example(seed, dtype)


def stacked(name, dtype=jnp.float32, axis=0):
    function, _ = example(name)
    rows = [KERNELS[name].example(seed, dtype) for seed in range(LANES)]
    return function, rows, jax.tree.map(lambda *x: jnp.stack(x, axis=axis), *rows)


def is_key(x):
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def assert_close(actual, expected, rtol=2e-5, atol=2e-5):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(e), rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", KERNELS)
def test_jit_equals_eager_dtype_kept_and_finite(name):
    function, args = example(name)
    eager = function(*args)
    assert_close(jax.jit(function)(*args), eager)
    for leaf in jax.tree.leaves(eager):
        assert leaf.dtype == jnp.float32
        assert bool(jnp.isfinite(leaf).all())


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("axis", [0, -1])
def test_vmap_equals_loop(name, axis):
    function, rows, batch = stacked(name, axis=axis)
    mapped = jax.jit(jax.vmap(function, in_axes=axis))(*batch)
    loop = [jax.jit(function)(*args) for args in rows]
    assert_close(mapped, jax.tree.map(lambda *x: jnp.stack(x), *loop))


@pytest.mark.parametrize("name", KERNELS)
def test_one_trace_and_repeatable(name):
    function, args = example(name)
    traces = []

    def counted(*args):
        traces.append(1)
        return function(*args)

    compiled = jax.jit(counted)
    first = compiled(*args)
    compiled(*KERNELS[name].example(1, jnp.float32))
    again = compiled(*args)
    assert len(traces) == 1
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        assert np.array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("name", KERNELS)
def test_lane_result_does_not_depend_on_other_lanes(name):
    function, rows, batch = stacked(name)
    mapped = jax.jit(jax.vmap(function))
    same = jax.tree.map(lambda x: jnp.stack([x] * LANES), rows[1])
    for a, b in zip(jax.tree.leaves(mapped(*batch)), jax.tree.leaves(mapped(*same)), strict=True):
        assert np.array_equal(np.asarray(a)[1], np.asarray(b)[1])


@pytest.mark.parametrize("name", KERNELS)
def test_float64(name):
    with jax.enable_x64(True):
        function, rows, batch = stacked(name, jnp.float64)
        mapped = jax.vmap(function)(*batch)
        for leaf in jax.tree.leaves(mapped):
            assert leaf.dtype == jnp.float64
        loop = [function(*args) for args in rows]
        assert_close(mapped, jax.tree.map(lambda *x: jnp.stack(x), *loop), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_a_random_kernel_depends_on_its_key(name):
    function, args = example(name)
    if not any(is_key(x) for x in jax.tree.leaves(args)) or name == "random.gamma_from":
        pytest.skip("no key, or a key that only rare proposals use")
    other = tuple(jax.random.key(99) if is_key(jax.tree.leaves(x)[0]) else x for x in args)
    a, b = jax.tree.leaves(function(*args))[0], jax.tree.leaves(function(*other))[0]
    assert not np.array_equal(np.asarray(a), np.asarray(b))
