"""The transitions of one chain against an exact posterior, and against the lane code that the engine runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from normal_mean import LAPLACE, SIZE, NormalMean, Observed, collapsed_step, gibbs_step
from oracles.checks import assert_means
from oracles.noise import normal_laplace_log_density

from dpjax.kernels import collapsed, gibbs

CHAINS, DRAWS = 64, 1500
N, B, Z = 20.0, 3.0, (9.0, -4.0)
MODEL = NormalMean(jnp.asarray(0.5))
OBSERVED = Observed(jnp.asarray(Z) / B, jnp.full(SIZE, N / B), jnp.full(SIZE, N**0.5 / B), jnp.asarray(N))
PARAMETERS = MODEL.parameters(OBSERVED)
STEPS = {
    "gibbs": lambda key, state: gibbs_step(MODEL, OBSERVED, key, state),
    "collapsed": lambda key, state: collapsed_step(MODEL, OBSERVED, PARAMETERS, key, state),
}
INIT = {"gibbs": gibbs.init, "collapsed": collapsed.init}


def exact():
    """Means and variances of the posterior: the coordinates are independent, each by quadrature."""
    phi = np.linspace(-4.0, 4.0, 20_001)
    found = []
    for z in Z:
        log = normal_laplace_log_density(z, N * phi, N, B) - 0.25 * phi**2
        p = np.exp(log - log.max())
        p /= p.sum()
        mean = (p * phi).sum()
        found.append((mean, (p * (phi - mean) ** 2).sum()))
    return np.array(found).T


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_leaves_the_posterior_invariant(name):
    @jax.jit
    @jax.vmap
    def chain(key):
        start = INIT[name](jnp.zeros(SIZE), jnp.full(SIZE, 2.0))

        def one(state, key):
            state, _ = STEPS[name](key, state)
            return state, state.position

        return jax.lax.scan(one, start, jax.random.split(key, DRAWS))[1]

    draws = np.asarray(chain(jax.random.split(jax.random.key(0), CHAINS)), np.float64)[:, 200:]
    mean, variance = exact()
    assert_means(draws.mean(1), mean)
    assert_means(((draws - mean) ** 2).mean(1), variance)


@pytest.mark.parametrize("name", STEPS)
def test_is_the_lane_code(name):
    lane = lambda x: jax.tree.map(lambda leaf: leaf[..., None], x)
    key, state = jax.random.key(4), INIT[name](jnp.asarray([0.3, -0.2]), jnp.asarray([1.5, 2.5]))
    if name == "gibbs":
        many = lambda: gibbs.step_lanes(*lane((MODEL, OBSERVED, key, state)), update=LAPLACE)
    else:
        many = lambda: collapsed.step_lanes(*lane((MODEL, OBSERVED, PARAMETERS, key, state)), update=LAPLACE, steps=3)
    for one, lanes in zip(*map(jax.tree.leaves, (STEPS[name](key, state), jax.jit(many)())), strict=True):
        np.testing.assert_allclose(one, lanes[..., 0], rtol=2e-6)


def test_a_chain_that_is_launched_takes_its_first_step():
    """`launching` and `always` are traced: one program serves the way in and the rest."""
    state = collapsed.init(jnp.asarray([0.4, -0.1]), jnp.full(SIZE, 2.0))

    @jax.jit
    def step(launching, key):
        return collapsed.step(MODEL, OBSERVED, PARAMETERS, key, state, launching, update=LAPLACE, steps=3)[1].accepted

    keys = jax.random.split(jax.random.key(0), 20)
    assert all(bool(step(True, key)) for key in keys)
    assert bool(step(False, keys[0])) in (True, False)
