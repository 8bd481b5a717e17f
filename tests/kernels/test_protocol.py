"""What every kernel keeps to, whatever it computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import KERNELS

LANES = 4


def compiled(function):
    # this file compiles hundreds of small programs and runs each once: optimising them is most of its time
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def stacked(name, dtype, axis=0):
    rows = [KERNELS[name].example(seed, dtype) for seed in range(LANES)]
    return rows, jax.tree.map(lambda *x: jnp.stack(x, axis=axis), *rows)


def is_key(x):
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def assert_close(actual, expected, tolerance=2e-5):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(e), rtol=tolerance, atol=tolerance)


def equal(a, b):
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(np.asarray(x), np.asarray(y)) for x, y in pairs)


@pytest.mark.parametrize("name", KERNELS)
def test_one_chain(name):
    """float32 is kept, results are finite, one trace serves, keys decide."""
    function, example = KERNELS[name]
    args, traces = example(0, jnp.float32), []

    def counted(*args):
        traces.append(1)
        return function(*args)

    run = compiled(counted)
    first = run(*args)
    run(*example(1, jnp.float32))
    assert equal(first, run(*args)) and len(traces) == 1
    for leaf in jax.tree.leaves(first):
        assert leaf.dtype in (jnp.float32, bool) and bool(jnp.isfinite(leaf).all())
    # gamma_from uses its key only when every proposal given to it is rejected
    if any(is_key(x) for x in jax.tree.leaves(args)) and name != "random.gamma_from":
        other = jax.tree.map(lambda x: jax.random.key(99) if is_key(x) else x, args)
        assert not equal(first, run(*other))


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_compiled_equals_eager(name):
    function, example = KERNELS[name]
    args = example(0, jnp.float32)
    eager = function(*args)
    assert_close(compiled(function)(*args), eager)
    assert all(leaf.dtype in (jnp.float32, bool) for leaf in jax.tree.leaves(eager))


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_many_chains(name):
    """vmap over the first or the last axis equals a loop, and a chain does not see its neighbours."""
    function = KERNELS[name].function
    rows, batch = stacked(name, jnp.float32)
    run, one = compiled(jax.vmap(function)), compiled(function)
    mapped = run(*batch)
    assert_close(mapped, jax.tree.map(lambda *x: jnp.stack(x), *[one(*args) for args in rows]))
    _, last = stacked(name, jnp.float32, axis=-1)
    assert_close(compiled(jax.vmap(function, in_axes=-1))(*last), mapped)
    same = run(*jax.tree.map(lambda x: jnp.stack([x] * LANES), rows[1]))
    assert equal(*(jax.tree.map(lambda x: x[1], y) for y in (mapped, same)))


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_float64(name):
    with jax.enable_x64(True):
        function = KERNELS[name].function
        rows, batch = stacked(name, jnp.float64)
        mapped, one = compiled(jax.vmap(function))(*batch), compiled(function)
        assert all(leaf.dtype in (jnp.float64, bool) for leaf in jax.tree.leaves(mapped))
        loop = jax.tree.map(lambda *x: jnp.stack(x), *[one(*args) for args in rows])
        assert_close(mapped, loop, tolerance=1e-12)
