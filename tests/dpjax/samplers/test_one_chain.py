"""Every sampler in BlackJAX's form: its protocol, purity, one trace, vmap equal to a loop, and the engine's draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.base import SamplingAlgorithm

from dpjax.engine.cutting import chain_keys
from dpjax.engine.run import run_chains
from dpjax.engine.sampler import KEY_BLOCK
from dpjax.errors import InputError
from dpjax.inference.methods import METHODS
from dpjax.mechanisms import LAPLACE
from dpjax.models import LinearRegression, model_for
from dpjax.models.regression.problems import make_problems, party_problems
from dpjax.samplers import SAMPLERS, as_blackjax, warm_up
from dpjax.statistics.kinds import make_statistic, simulated_statistic

BURN_IN = {"burn_in": KEY_BLOCK}
#: Settings of each sampler, and the method whose view of the problem it takes.
CASES = {
    "collapsed": ({"warmup": 80, "mode_steps": 10}, "collapsed"),
    "collapsed, counts": ({**BURN_IN, "length": 64, "categories": 3}, None),
    "collapsed, parties": ({"warmup": 100, "mode_steps": 10}, "collapsed"),
    "conjugate": ({}, "naive"),
    "gibbs": (BURN_IN, "gibbs"),
    "normal-x": (BURN_IN, "normal-x"),
    "fixed-s": (BURN_IN, "fixed-s"),
    "fixed-s-fast": ({}, "fixed-s-fast"),
    "clt": (BURN_IN, "clt"),
}
PARTIES = ("collapsed, parties", "normal-x", "fixed-s", "fixed-s-fast", "clt")


def problem_of(name):
    if name == "collapsed, counts":
        statistic = make_statistic("multinomial", categories=3)
        z, model = np.array([[12.0, 20.0, 9.0]])[:, : statistic.dim], model_for(statistic)
        return make_problems(z, np.array([40.0]), np.full(z.shape, 2.0), model, "laplace", statistic=statistic)
    if name in PARTIES:
        statistic = simulated_statistic("linear-regression", features=1, intercept=False)
        z = np.array([[[9.0, 5.0, 6.0], [12.0, 6.0, 7.0]]])
        return party_problems(z, np.array([[50.0, 60.0]]), np.full(z.shape, 2.0), model_for(statistic, {}), "laplace")
    z = np.array([[1.0, 20.0, -3.0, 4.0, 9.0]])
    return make_problems(z, np.array([200.0]), np.full((1, 5), 5.0), LinearRegression.s0(1), "laplace")


def ready(name):
    settings, method = CASES[name]
    sampler = SAMPLERS[name](**settings)
    problems = problem_of(name)
    problems = problems if method is None else METHODS[method].seen(problems)
    wide = jnp.float64 if getattr(sampler, "float64", False) else jnp.float32
    model = jax.tree.map(lambda x: jnp.asarray(x, wide), problems.model_template())
    observed = jax.tree.map(lambda x: jnp.asarray(x[0], wide), problems.observed())
    return sampler, problems, model, observed


def test_every_sampler_is_listed():
    assert set(CASES) == set(SAMPLERS)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_protocol_and_the_draws_of_the_engine(name):
    sampler, problems, *_ = ready(name)
    with jax.enable_x64(bool(getattr(sampler, "float64", False))):
        _, _, model, observed = ready(name)
        words = chain_keys(3, jnp.zeros(1, jnp.uint32), 1)[0, 0]
        key = jax.random.wrap_key_data(words, impl="threefry2x32")
        # the engine's key of chain 0 is `fold_in(problem, 0)`, which is `words`
        problem = jax.random.fold_in(jax.random.key(3, impl="threefry2x32"), jnp.uint32(0))
        state = warm_up(sampler, model, observed, problem)
        algorithm = as_blackjax(sampler, model, observed, state)
        assert isinstance(algorithm, SamplingAlgorithm)
        traces = []

        def counted(key, state):
            traces.append(1)
            return algorithm.step(key, state)

        step = jax.jit(counted)
        keys = jax.random.split(jax.random.fold_in(key, state.done.astype(jnp.uint32) // KEY_BLOCK), KEY_BLOCK)
        (once, _), (again, _) = step(keys[0], state), step(keys[0], state)
        assert len(traces) == 1 and jax.tree.structure(once) == jax.tree.structure(state)
        for a, b, c in zip(*(jax.tree.leaves(x) for x in (once, again, state)), strict=True):
            np.testing.assert_array_equal(a, b)  # pure: same key, same state, same result
            assert a.dtype == c.dtype and a.shape == c.shape
        other, info = step(keys[1], state)
        assert any(not np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (once, other)), strict=True))
        assert bool(jnp.isfinite(info.parameters).all())
        path = jax.jit(lambda s, k: jax.lax.scan(lambda x, y: algorithm.step(y, x), s, k))(state, keys)[1].parameters
        many = jax.tree.map(lambda x: jnp.stack([x] * 3), state)
        mapped = jax.jit(jax.vmap(algorithm.step))(keys[:3], many)[1].parameters
        np.testing.assert_allclose(mapped[0], path[0], rtol=2e-4, atol=2e-4)
    run = run_chains(sampler, problems, seed=3, chains=1, draws=KEY_BLOCK, devices=1)
    np.testing.assert_allclose(path[:5], run.draws[0, 0, :5], rtol=2e-3, atol=2e-3)


def test_starts():
    sampler, _, model, observed = ready("gibbs")
    algorithm = as_blackjax(sampler, model, observed)
    position = model.prior_center() + jnp.float32(0.5)
    state = algorithm.init(position)
    np.testing.assert_array_equal(state.carry.position, position)
    assert (np.asarray(state.carry.scales) == LAPLACE.variance).all()
    assert not np.array_equal(algorithm.init(None).carry.position, position)


def test_what_is_refused():
    sampler, _, model, observed = ready("collapsed")
    with pytest.raises(InputError, match="warm-up"):
        as_blackjax(sampler, model, observed)
    with pytest.raises(InputError, match=r"observed\.z"):
        warm_up(sampler, model, observed._replace(z=observed.z[:3]), jax.random.key(0))
