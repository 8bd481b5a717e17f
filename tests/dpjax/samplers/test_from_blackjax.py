"""A user's BlackJAX algorithm in the engine: the density that it gets, agreement with quadrature, calibration."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import normal_sums, quadrature
from oracles.checks import assert_means

import dpjax
from dpjax.engine.run import run_chains
from dpjax.errors import InputError
from dpjax.inference.methods import METHODS
from dpjax.inference.own_methods import name_of, register
from dpjax.inference.run_method import run_method
from dpjax.mechanisms import GAUSSIAN, LAPLACE
from dpjax.models import LinearRegression, Observed, model_for
from dpjax.models.regression.problems import make_problems
from dpjax.samplers import from_blackjax
from dpjax.samplers.blackjax_algorithms import LogDensity, log_density_lanes
from dpjax.statistics.kinds import make_statistic

NORMAL = {"mean": 0.0, "kappa": 2.0, "shape": 4.0, "scale": 0.5}
GAMMA = {"shape": 10.0, "rate": 10.0}


def walk(sigma):
    return lambda log_density: blackjax.normal_random_walk(log_density, jnp.float32(sigma))


def normal_problem():
    statistic = make_statistic("normal", bounds=(-1.0, 1.0), rule="clamp")
    z, n, scale = np.array([[20.0, 30.0]]), np.array([200.0]), np.array([[4.0, 4.0]])
    return make_problems(z, n, scale, model_for(statistic, NORMAL), "laplace", statistic=statistic)


def exponential_problem():
    statistic = make_statistic("exponential", bounds=(0.0, 3.0), rule="clamp")
    z, n, scale = np.array([[170.0]]), np.array([200.0]), np.array([[30.0]])
    return make_problems(z, n, scale, model_for(statistic, GAMMA), "laplace", statistic=statistic)


def regression(noise_scale=5.0):
    z = jnp.asarray([1.0, 20.0, -3.0, 4.0, 9.0], jnp.float32) / noise_scale
    ones = jnp.ones(5, jnp.float32)
    n = jnp.float32(200.0)
    return LinearRegression.s0(1), Observed(z, n / noise_scale * ones, jnp.sqrt(n) / noise_scale * ones, n)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN])
def test_density_has_the_gradient_of_the_density(noise):
    model, observed = regression()
    density = LogDensity(noise, model, observed)
    size = 10 if noise.augmented else 5
    x = 0.1 + 0.2 * jax.random.normal(jax.random.key(0), (size,))
    value, gradient = jax.value_and_grad(density)(x)
    assert jnp.isfinite(value) and value.dtype == x.dtype
    for i in range(size):
        step = 1e-2 * jnp.eye(size, dtype=x.dtype)[i]
        np.testing.assert_allclose(gradient[i], (density(x + step) - density(x - step)) / 2e-2, rtol=2e-2, atol=0.05)
    many = jnp.stack([x, x + jnp.float32(0.1), x - jnp.float32(0.1)])
    mapped = jax.vmap(jax.value_and_grad(density))(many)
    np.testing.assert_allclose(mapped[0], [density(y) for y in many], rtol=1e-5)
    np.testing.assert_allclose(mapped[1], [jax.grad(density)(y) for y in many], rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_density_of_one_sum_is_the_one_of_quadrature():
    problems = exponential_problem()
    model, observed = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (problems.model, problems.observed()))
    rate = np.array([0.5, 1.0, 1.7])
    lanes = jax.tree.map(lambda x: jnp.broadcast_to(x[..., None], (*x.shape, 3)), model)
    seen = jax.tree.map(lambda x: jnp.broadcast_to(x[0][..., None], (*x.shape[1:], 3)), observed)
    ours = log_density_lanes(LAPLACE, lanes, seen, jnp.asarray(np.log(rate)[None], jnp.float32))
    mean, variance = np.array([quadrature.exponential_moments(r, 0.0, 3.0, "clamp") for r in rate]).T
    theirs = quadrature.log_normal_laplace((170.0 - 200 * mean) / 30.0, 200 * variance / 900.0)
    theirs = theirs + 10.0 * np.log(rate) - 10.0 * rate
    np.testing.assert_allclose(np.diff(ours), np.diff(theirs), rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_random_walk_agrees_with_quadrature_of_one_sum():
    problems = exponential_problem()
    sampler = from_blackjax(walk(0.4), warmup=200, name="walk")
    run = run_chains(sampler, problems, seed=1, chains=32, draws=1000)
    draws = run.draws[0, :, :, 0].astype(float)
    mean, sd = quadrature.posterior("exponential", 170.0, 200.0, 30.0, GAMMA, 0.0, 3.0, "clamp")[:2]
    assert run.method == "walk" and 0.2 < run.accept.mean() < 0.8 and (run.codes == 0).all()
    assert_means(draws.mean(1), mean), assert_means(((draws - mean) ** 2).mean(1), sd**2)


@pytest.mark.slow
def test_random_walk_over_noise_variances_agrees_with_quadrature_of_two_sums():
    """Positions are (phi, log w): their marginal is the posterior given Laplace noise."""
    sampler = from_blackjax(walk(0.35), warmup=1000, name="walk")
    run = run_chains(sampler, normal_problem(), seed=2, chains=64, draws=1000, thin=4)
    draws = run.draws[0].astype(float)
    mean, sd = normal_sums.posterior((20.0, 30.0), 200, 4.0, NORMAL, -1, 1, "clamp", points=81)[:2]
    assert_means(draws.mean(1), mean), assert_means(((draws - mean) ** 2).mean(1), sd**2)


@pytest.mark.slow
def test_gradients_serve_hamiltonian_samplers():
    """HMC of BlackJAX on the same density."""
    make = lambda density: blackjax.hmc(density, jnp.float32(0.5), jnp.array([0.002, 0.1, 1.5, 1.5], jnp.float32), 6)
    run = run_chains(from_blackjax(make, warmup=100), normal_problem(), seed=3, chains=32, draws=200)
    draws = run.draws[0].astype(float)
    mean, sd = normal_sums.posterior((20.0, 30.0), 200, 4.0, NORMAL, -1, 1, "clamp", points=81)[:2]
    assert_means(draws.mean(1), mean), assert_means(((draws - mean) ** 2).mean(1), sd**2)


@pytest.mark.slow
def test_a_random_walk_is_calibrated_in_one_call():
    sampler = from_blackjax(walk(0.5), warmup=200, name="walk")
    study = dpjax.calibrate(
        "exponential",
        records=100,
        epsilon=0.5,
        trials=300,
        method=sampler,
        bounds=(0.0, 3.0),
        rule="clamp",
        thin=5,
        seed=4,
    )
    (cell,) = study.cells
    (found,) = cell["parameters"].values()
    assert study.method == "walk" and found["ks"] < found["ks_critical"] and found["p_value"] > 0.01, cell
    assert all(abs(rate - float(level)) < 0.07 for level, rate in found["coverage"].items()), found
    assert "make" not in str(study.to_dict())


def test_own_density_start_and_report():
    """`problem=True`: the algorithm, its density and its positions are the user's own."""

    def make(model, observed):
        del observed
        return blackjax.normal_random_walk(lambda x: -0.5 * (x["free"] ** 2).sum(), jnp.float32(1.0))

    sampler = from_blackjax(
        make, warmup=20, problem=True, name="own",
        start=lambda model, observed: {"free": model.prior_center()},
        report=lambda model, state: model.report(state.position["free"]),
    )  # fmt: skip
    run = run_chains(sampler, exponential_problem(), seed=1, chains=16, draws=200)
    assert 0.7 < np.log(run.draws).std() < 1.3  # the model's rate is exp of a standard normal here


@pytest.mark.slow
def test_as_a_method():
    sampler = from_blackjax(walk(0.4), warmup=20, name="walk of a test")
    try:
        assert name_of(sampler) == name_of("walk of a test") == "walk of a test" and name_of(None) is None
        assert METHODS["walk of a test"].make(LAPLACE) == sampler
        run = run_method("walk of a test", exponential_problem(), seed=1, draws=20, settings={"warmup": 40})
        assert run.settings["method"]["warmup"] == 40 and "make" not in run.settings["method"]
    finally:
        METHODS.pop("walk of a test", None)


def test_errors():
    good = from_blackjax(walk(0.4), warmup=20)
    taken = from_blackjax(walk(1.0), warmup=0, name="gibbs")
    for wrong, said in ((object(), "sampler"), (type(good), "sampler"), (taken, "gibbs")):
        with pytest.raises(InputError, match=said):
            register(wrong)
    for warmup in (-1, 2.5, True):
        with pytest.raises(InputError, match="warmup"):
            from_blackjax(walk(0.4), warmup=warmup)
    with pytest.raises(InputError, match="make"):
        from_blackjax(3, warmup=1)
    with pytest.raises(InputError, match="SamplingAlgorithm"):
        from_blackjax(lambda density: 3, warmup=1).algorithm(*regression())
