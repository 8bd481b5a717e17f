"""What every sampler keeps to: BlackJAX's protocol, purity, one compile, and vmap equal to a loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.base import SamplingAlgorithm

from dpjax.models import LinearRegression, Observed
from dpjax.samplers import SAMPLERS, collapsed

SETTINGS = collapsed.Collapsed(warmup=80, mode_steps=10)


def _problem(z=(1.0, 20.0, -3.0, 4.0, 9.0), n=200.0, b=5.0):
    z = jnp.asarray(z, jnp.float32) / b
    ones = jnp.ones(5, jnp.float32)
    return LinearRegression.s0(1), Observed(z, n / b * ones, np.float32(np.sqrt(n) / b) * ones, jnp.float32(n))


@pytest.fixture(scope="module")
def parameters():
    model, observed = _problem()
    return collapsed.warmup(jax.random.key(0), model, observed, chains=2, settings=SETTINGS)[1]


def _algorithm(name, parameters):
    model, observed = _problem()
    if name == "collapsed":
        return SAMPLERS[name].build(model, observed, parameters, SETTINGS)
    return SAMPLERS[name].build(model, observed)


@pytest.mark.parametrize("name", SAMPLERS)
def test_protocol(name, parameters):
    algorithm = _algorithm(name, parameters)
    assert isinstance(algorithm, SamplingAlgorithm)
    position = LinearRegression.s0(1).prior_center()
    state = algorithm.init(position)
    np.testing.assert_array_equal(state.position, position)
    traces = []

    def counted(key, state):
        traces.append(1)
        return algorithm.step(key, state)

    step = jax.jit(counted)
    key = jax.random.key(1)
    once, info = step(key, state)
    again, _ = step(key, state)
    assert len(traces) == 1
    assert jax.tree.structure(once) == jax.tree.structure(state)
    for a, b, c in zip(*(jax.tree.leaves(x) for x in (once, again, state)), strict=True):
        np.testing.assert_array_equal(a, b)  # pure: same key, same state, same result
        assert a.dtype == c.dtype and a.shape == c.shape and bool(jnp.isfinite(a).all())
    other, _ = step(jax.random.key(2), state)
    assert not np.array_equal(other.position, once.position)
    # a scan over many steps carries the state
    final, _ = jax.lax.scan(lambda s, k: (step(k, s)[0], None), state, jax.random.split(key, 5))
    assert bool(jnp.isfinite(final.position).all())

    # many chains: vmap equals a loop
    keys = jax.random.split(jax.random.key(3), 6)
    states = jax.tree.map(lambda x: jnp.stack([x] * 6), once)
    mapped, _ = jax.jit(jax.vmap(algorithm.step))(keys, states)
    for i in range(6):
        alone, _ = step(keys[i], once)
        np.testing.assert_allclose(mapped.position[i], alone.position, rtol=2e-4, atol=2e-4)
    del info


def test_warmup_returns_what_build_takes(parameters):
    model, observed = _problem()
    assert parameters.jacobian.shape == (5, 5) and float(parameters.step_size) > 0
    from dpjax.errors import InputError

    with pytest.raises(InputError, match="chains"):
        collapsed.warmup(jax.random.key(0), model, observed, chains=0)
    with pytest.raises(InputError, match="observed"):
        collapsed.warmup(jax.random.key(0), model, observed._replace(z=observed.z[:3]))
