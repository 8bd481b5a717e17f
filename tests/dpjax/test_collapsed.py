"""The collapsed sampler against exact posteriors: quadrature, an independent sampler, and draws of the joint law."""

from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from oracles.checks import assert_law, assert_means
from oracles.noise import normal_laplace_log_density
from scipy import stats

from dpjax.errors import InputError
from dpjax.kernels.collapsed import Parameters, State
from dpjax.kernels.marginal import gaussian_marginal
from dpjax.kernels.suffstat import noise_draw_lanes
from dpjax.mechanisms import MECHANISMS
from dpjax.models import LinearRegression, Model, Observed
from dpjax.samplers import as_blackjax, warm_up
from dpjax.samplers.collapsed import WINDOW, Collapsed


class OneParameter(Model):
    """A model written with the plain methods alone: everything for lanes comes from the base class."""

    dim = statistic_dim = 1
    parameter_names = ("theta",)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BetaBinomial(OneParameter):
    """s ~ Binomial(n, theta), theta ~ Beta(a, b), phi = logit theta."""

    a: jax.Array
    b: jax.Array

    def moments(self, phi):
        theta = jax.nn.sigmoid(phi)
        return theta, (theta * (1 - theta))[:, None]

    def log_prior(self, phi):
        return self.a * jax.nn.log_sigmoid(phi[0]) + self.b * jax.nn.log_sigmoid(-phi[0])

    def report(self, phi):
        return jax.nn.sigmoid(phi)

    def prior_center(self):
        return jnp.log(self.a / self.b)[None]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ClampedExponential(OneParameter):
    """s = sum of x_i clamped to [low, high], x_i ~ Exponential(theta), theta ~ Gamma(10, 10), phi = log theta."""

    low: jax.Array
    high: jax.Array

    def moments(self, phi):
        t = jnp.exp(phi)
        below, above = jnp.exp(-t * self.low), jnp.exp(-t * self.high)
        mean = self.low + (below - above) / t
        second = self.low**2 + 2 * ((self.low / t + 1 / t**2) * below - (self.high / t + 1 / t**2) * above)
        return mean, (second - mean**2)[:, None]

    def log_prior(self, phi):
        return 10 * phi[0] - 10 * jnp.exp(phi[0])

    def report(self, phi):
        return jnp.exp(phi)

    def prior_center(self):
        return jnp.zeros_like(self.low)[None]


def observe(z, n, b, dtype=np.float32):
    """Observed statistics [D] or [D, T] of n [] or [T] records with noise scale b."""
    z = np.asarray(z, np.float64)
    n, b = np.broadcast_to(n, z.shape), np.broadcast_to(b, z.shape)
    return Observed(*(jnp.asarray(x, dtype) for x in (z / b, n / b, np.sqrt(n) / b, n[0])))


def run(settings, model, observed, chains, draws, seed=0):
    """Draws `[draws, K, chains, T]` of T problems (last axis of `observed`) from mode search and warm-up on."""
    problems = observed.z.shape[-1]
    lanes = problems * chains

    def spread(x, single):
        x = jnp.asarray(x)
        return (
            jnp.broadcast_to(x[..., None], (*x.shape, lanes))
            if single
            else jnp.tile(x, (1,) * (x.ndim - 1) + (chains,))
        )

    model = jax.tree.map(lambda x: spread(x, True), model)
    observed = jax.tree.map(lambda x: spread(x, False), observed)

    @jax.jit
    def go(keys):
        def step(carry, index):
            ks = jax.vmap(lambda k: random.fold_in(k, index.astype(jnp.uint32)))(keys)
            carry, draw = settings.iterate_lanes(model, observed, carry, ks, index, chains)
            return carry, (draw, settings.position_lanes(carry))

        def window(carry, number):
            index = number * WINDOW + jnp.arange(WINDOW, dtype=jnp.int32)
            carry, (draw, positions) = jax.lax.scan(step, carry, index)
            return settings.adapt_lanes(model, observed, carry, positions, index[-1] + 1, chains), draw

        windows = jnp.arange(-(-(settings.warmup_iterations + draws) // WINDOW), dtype=jnp.int32)
        carry, out = jax.lax.scan(window, settings.init_lanes(model, observed, keys, chains), windows)
        return carry, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), out)

    carry, out = go(random.split(random.key(seed), lanes))
    kept = np.asarray(out.parameters[settings.warmup_iterations :][:draws], np.float64)
    return kept.reshape(draws, -1, chains, problems), carry, out


def quadrature(model, z, n, b, gaussian=False):
    """Grid of reported values and their posterior weights for a one-parameter model."""
    with jax.enable_x64(True):
        high = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), model)
        phi = jnp.linspace(-9, 9, 60_001)[:, None]
        mean, var = jax.vmap(high.moments)(phi)
        mean, var = np.asarray(mean)[:, 0], np.asarray(var)[:, 0, 0]
        prior, value = np.asarray(jax.vmap(high.log_prior)(phi)), np.asarray(jax.vmap(high.report)(phi))[:, 0]
    var = np.maximum(var, 1e-12)
    likelihood = (
        stats.norm.logpdf(z, n * mean, np.sqrt(n * var + b * b))
        if gaussian
        else normal_laplace_log_density(z, n * mean, n * var, b)
    )
    log = prior + likelihood
    weight = np.exp(log - log.max())
    return value, weight / weight.sum()


def assert_posterior(draws, value, weight):
    """Mean, variance and three quantiles of `draws [S, C]` are those of the weighted grid."""
    mean = weight @ value
    order = np.argsort(value)
    cumulated = np.cumsum(weight[order])
    assert_means(draws.mean(0), mean)
    assert_means(((draws - mean) ** 2).mean(0), weight @ (value - mean) ** 2)
    for level in (0.1, 0.5, 0.9):
        at = np.searchsorted(cumulated, level)
        assert_means((draws <= value[order][at]).mean(0), cumulated[at])


EXPONENTIAL = ClampedExponential(jnp.float32(-np.log(0.975)), jnp.float32(-np.log(0.025)))
ONE_PARAMETER = {
    "beta-binomial": (
        BetaBinomial(jnp.float32(2), jnp.float32(3)),
        [37.25, -5.5, 512.7, 7.3],
        [100, 10, 1000, 10],
        [10, 10, 100, 1],
    ),
    "exponential": (EXPONENTIAL, [880.0, 900.0, 70.0], [1000, 1000, 100], [36.6, 3.66, 10.0]),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, noise", [("beta-binomial", "laplace"), ("exponential", "laplace"), ("beta-binomial", "gaussian")]
)
def test_quadrature(name, noise):
    """The CLT posterior with the normal-Laplace (normal) likelihood, several data sets at once."""
    model, z, n, b = ONE_PARAMETER[name]
    settings = Collapsed(noise=MECHANISMS[noise])
    draws, _, _ = run(settings, model, observe([z], [n], [b]), chains=96, draws=400)
    for t in range(len(z)):
        value, weight = quadrature(model, z[t], n[t], b[t], noise == "gaussian")
        assert_posterior(draws[:, 0, :, t], value, weight)


def regression_problem(n=100.0, b=16 / 3, seed=4):
    """One covariate, Bernstein and Sheldon's prior, statistics drawn exactly and Laplace noise."""
    model = LinearRegression.s0(1)
    phi = model.sample_prior(random.key(seed))
    s = np.asarray(jax.jit(model.simulate)(random.key(seed + 1), phi, jnp.float32(n))[0], np.float64)
    z = s + np.random.default_rng(seed).laplace(size=5) * b
    return model, z, n, b


def random_walk(model, observed, start, factor, steps, key):
    """Metropolis on (phi, log w) [D + D, B] in float64: shares nothing with the sampler but moments and prior."""

    def log_density(x):
        phi, log_w = x[:5], x[5:]
        r, s = model.residual_lanes(phi, observed)
        w = jnp.exp(log_w)
        # w ~ Exponential(rate 1/2), Jacobian w
        return model.log_prior_lanes(phi) + gaussian_marginal.lanes(r, s, w)[0] + (log_w - 0.5 * w).sum(0)

    def step(carry, key):
        x, log = carry
        k_x, k_a = random.split(key)
        y = x + factor @ random.normal(k_x, x.shape)
        new = log_density(y)
        accept = jnp.log(random.uniform(k_a, log.shape)) < new - log
        return (jnp.where(accept[None], y, x), jnp.where(accept, new, log)), None

    def block(carry, key):
        carry, _ = jax.lax.scan(step, carry, random.split(key, 20))
        return carry, (model.report_lanes(carry[0][:5]), carry[0][5:])

    start = start.astype(jnp.float64)
    return jax.lax.scan(block, (start, log_density(start)), random.split(key, steps // 20))[1]


@pytest.fixture(scope="module")
def regression_run():
    model, z, n, b = regression_problem()
    return run(Collapsed(), model, observe(z[:, None], n, b), chains=256, draws=300)


@pytest.mark.slow
def test_regression_equals_an_independent_sampler(regression_run):
    """Means and standard deviations of parameters and of w within 4 standard errors of a long random walk."""
    model, z, n, b = regression_problem()
    out, carry, _ = regression_run
    out = out[..., 0]  # [S, K, C]
    chains = out.shape[-1]
    state = np.concatenate([carry.state.position, np.log(carry.state.scales)]).astype(np.float64)
    with jax.enable_x64(True):
        spread = lambda x: jnp.broadcast_to(jnp.asarray(x, jnp.float64)[..., None], (*np.shape(x), chains))
        model_l, observed_l = jax.tree.map(spread, (model, observe(z, n, b, np.float64)))
        factor = jnp.asarray(np.linalg.cholesky(np.cov(state)) * 2.38 / np.sqrt(10) * 0.8)
        walk = jax.jit(random_walk, static_argnums=4)
        reported, log_w = walk(model_l, observed_l, jnp.asarray(state), factor, 24_000, random.key(9))
        walked = np.asarray(reported)[300:]  # [S', K, C]
        log_w = np.asarray(log_w)[300:]
    center, scale = walked.mean((0, 2))[None, :, None], walked.std((0, 2))[None, :, None]
    one, two = (out - center) / scale, (walked - center) / scale
    for power in (1, 2):
        a, c = (one**power).mean(0), (two**power).mean(0)  # [K, C]
        error = np.sqrt((a.var(1) + c.var(1)) / chains)
        assert np.all(np.abs(a.mean(1) - c.mean(1)) < 4 * error), (power, (a.mean(1) - c.mean(1)) / error)
    # w is seen at the end of each chain
    error = np.sqrt((state[5:].var(1) + log_w[-1].var(1)) / chains)
    assert np.all(np.abs(state[5:].mean(1) - log_w.mean((0, 2))) < 4 * error)


# ---- the joint law: a transition started from it must keep it ------------------------------------------------------
LANES = 16_000


@cache
def joint(p, lanes, n, b, seed):
    """Draw (phi, w, z) of every lane from the model, with s normal as the sampler believes."""
    model = LinearRegression.create(p, theta_precision=1.0, sigma2_shape=5.0, sigma2_scale=2.0, nu=p + 6.0)
    d = model.statistic_dim
    phi = jax.jit(jax.vmap(model.sample_prior, out_axes=-1))(random.split(random.key(seed), lanes))
    spread = jax.tree.map(lambda x: jnp.broadcast_to(x[..., None], (*x.shape, lanes)), model)
    k_w, k_e, k_s = random.split(random.key(seed + 1), 3)
    w = 2.0 * random.exponential(k_w, (d, lanes))
    empty = observe(np.zeros((d, lanes)), n, b)
    residual, _ = jax.jit(lambda m, x, o: m.residual_lanes(x, o))(spread, phi, empty)
    deviation = jax.jit(lambda m, x, u: m.deviation_lanes(x, u))(spread, phi, random.normal(k_s, (d, lanes)))
    z = -residual + deviation * empty.root_n_over_b + jnp.sqrt(w) * random.normal(k_e, (d, lanes))
    return model, spread, phi, w, empty._replace(z=z)


def fixed_parameters(model, spread, observed, step):
    """A metric from the prior's centre: any metric that ignores phi is valid."""
    lanes, d = observed.z.shape[-1], model.statistic_dim
    center = jnp.broadcast_to(model.prior_center()[:, None], (d, lanes))
    _, covariance = spread.residual_lanes(center, observed)
    jacobian = spread.mean_jacobian_lanes(center) * observed.n_over_b[:, None]
    precision = jnp.broadcast_to(model.prior_precision()[..., None], (d, d, lanes))
    return Parameters(
        jnp.full(lanes, step),
        precision,
        covariance,
        jacobian,
        jnp.full((d, d, lanes), 0.3) * observed.n_over_b[None] ** 2,
    )


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 2])
def test_transition_keeps_the_joint_law(p):
    """Start at exact draws of (phi, w, z), move (phi, w), and they must still be draws from the model."""
    lanes, steps = LANES, 25
    settings = Collapsed()
    model, spread, phi, w, observed = joint(p, lanes, 200.0, 20.0, 10 * p)

    @jax.jit
    def go(state, keys):
        parameters = fixed_parameters(model, spread, observed, 0.4)

        def step(state, i):
            ks = jax.vmap(lambda k: random.fold_in(k, i))(keys)
            return settings.step_lanes(spread, observed, parameters, ks, state)

        state, info = jax.lax.scan(step, state, jnp.arange(steps, dtype=jnp.uint32))
        residual, covariance = spread.residual_lanes(state.position, observed)
        at = gaussian_marginal.lanes(residual, covariance, state.scales)[1]
        return state, info.acceptance.mean(), (residual * at).sum(0), spread.report_lanes(state.position)

    state, acceptance, quadratic, reported = go(State(phi, w), random.split(random.key(77), lanes))
    moved = np.mean(np.asarray(state.position != phi).all(0))
    assert acceptance > 0.5 and moved > 0.95
    # z given the new (phi, w) is still N(n mu, n Sigma + W): its quadratic form is chi-square
    assert_law(quadratic, stats.chi2(model.statistic_dim).cdf)
    for x in np.asarray(state.scales):
        assert_law(x, stats.expon(scale=2).cdf)
    fresh = jax.jit(jax.vmap(lambda k: model.report(model.sample_prior(k))))(random.split(random.key(5), 200_000))
    for x, y in zip(np.asarray(reported), np.asarray(fresh).T, strict=True):
        distance = stats.ks_2samp(x, y).statistic
        assert distance * np.sqrt(lanes) < 2.1, distance * np.sqrt(lanes)


@pytest.mark.slow
def test_matheron_draw_has_the_law_of_the_noise_given_the_data():
    """e | phi, w, z is normal with mean W A^{-1} r and covariance W - W A^{-1} W."""
    lanes = LANES
    _, spread, phi, w, observed = joint(1, lanes, 200.0, 20.0, 10)
    one = jax.tree.map(lambda x: jnp.broadcast_to(x[..., :1], x.shape), (phi, w, observed))
    normals = random.normal(random.key(1), (10, lanes))
    e = np.asarray(jax.jit(lambda *a: noise_draw_lanes(spread, one[2], *a))(one[0], one[1], normals), np.float64)
    r, s = (np.asarray(x, np.float64)[..., 0] for x in jax.jit(lambda x: spread.residual_lanes(x, one[2]))(one[0]))
    noise = np.diag(np.asarray(w, np.float64)[:, 0])
    gain = noise @ np.linalg.inv(s + noise)
    covariance = noise - gain @ noise
    white = np.linalg.solve(np.linalg.cholesky(covariance), e - (gain @ r)[:, None])
    assert np.abs(white.mean(1)).max() < 4.5 / np.sqrt(lanes)
    assert np.abs(white @ white.T / lanes - np.eye(5)).max() < 8 / np.sqrt(lanes)


# ---- warm-up and the single-chain interface ------------------------------------------------------------------------
@pytest.fixture(scope="module")
def learned():
    model, z, n, b = regression_problem()
    observed = observe(z, n, b)
    states = warm_up(Collapsed(), model, observed, random.key(0), chains=6)
    return model, observed, states, jax.tree.map(lambda x: x[0], states.carry.parameters)


@pytest.mark.slow
def test_warmup_learns_and_chains_part(learned):
    _, _, states, parameters = learned
    states = states.carry.state
    assert states.position.shape == (6, 5) and states.scales.shape == (6, 5)
    assert parameters.jacobian.shape == (5, 5) and parameters.curvature.shape == (5, 5, 5)
    assert 0.1 < float(parameters.step_size) <= Collapsed().max_step
    assert len(np.unique(np.asarray(states.position)[:, 0])) == 6


@pytest.mark.slow
def test_chains_leave_the_mode_in_their_own_directions(regression_run):
    path = np.asarray(regression_run[2].parameters)  # [iterations, K, C]
    model, z, n, b = regression_problem()
    observed = observe(z, n, b)
    lanes = jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x)[..., None], (*jnp.shape(x), 4)), (model, observed))
    start = jax.jit(lambda m, o: Collapsed().init_lanes(m, o, None, 4))(*lanes)
    assert np.ptp(np.asarray(start.state.position), axis=1).max() < 1e-6
    # spread around the mode about as wide as the posterior, from the first iteration of the warm-up on
    assert np.all(path[0].std(1) > 0.7 * path[-100:].std((0, 2)))
    assert len(np.unique(path[0, 0])) > 0.9 * path.shape[2]


@pytest.mark.slow
def test_many_chains_of_the_blackjax_form(learned):
    model, observed, states, _ = learned
    first = jax.tree.map(lambda x: x[0], states)
    algorithm = as_blackjax(Collapsed(), model, observed, first)
    state = algorithm.init(states.carry.state.position[1], random.key(1))
    assert np.array_equal(state.carry.state.position, states.carry.state.position[1])
    keys = random.split(random.key(3), 6)
    many, info = jax.jit(jax.vmap(algorithm.step))(keys, states)
    assert info.acceptance_rate.shape == (6,) and info.is_divergent.dtype == bool
    one, _ = jax.jit(algorithm.step)(keys[2], jax.tree.map(lambda x: x[2], states))
    np.testing.assert_allclose(one.carry.state.position, many.carry.state.position[2], rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(one.carry.state.scales, many.carry.state.scales[2], rtol=2e-3)


@pytest.mark.slow
def test_float64_positions_at_large_n():
    """n = 10^8: z - n mu cancels 24 bits; positions in float64, algebra in float32."""
    with jax.enable_x64(True):
        model, b, n = LinearRegression.s0(1), 16 / 3, 1e8
        high = model.astype(jnp.float64)
        phi = jax.jit(high.sample_prior)(random.key(3))
        mean, covariance = (np.asarray(x) for x in jax.jit(high.moments)(phi))
        rng = np.random.default_rng(0)
        z = n * mean + np.sqrt(n) * np.linalg.cholesky(covariance) @ rng.normal(size=5) + rng.laplace(size=5) * b
        observed = observe(z, n, b, np.float64)._replace(root_n_over_b=jnp.full(5, np.sqrt(n) / b, jnp.float32))
        states, parameters, _ = warm_up(Collapsed(), model, observed, random.key(0), chains=32).carry
        assert states.position.dtype == jnp.float64 and states.scales.dtype == jnp.float32
        assert 0.1 < float(parameters.step_size[0])
        report = jax.jit(jax.vmap(high.report))
        true, found = np.asarray(report(phi[None]))[0], np.asarray(report(states.position))
        spread = found.std(0)
        assert np.all(np.abs(found.mean(0) - true) < 6 * spread) and np.all(spread < 1e-3)


@pytest.mark.slow
def test_bad_settings_and_shapes_are_refused(learned):
    model, observed, _, _ = learned
    for bad in ({"leapfrogs": 0}, {"warmup": 90}, {"target": 1.0}, {"jitter": 1.0}, {"mode_steps": 1}):
        with pytest.raises(InputError):
            Collapsed(**bad)
    with pytest.raises(InputError, match="chains"):
        warm_up(Collapsed(), model, observed, random.key(0), chains=0)
    with pytest.raises(InputError, match=r"observed\.z"):
        warm_up(Collapsed(), model, observed._replace(z=observed.z[:3]), random.key(0), chains=2)
    with pytest.raises(InputError, match="learns in warm-up"):
        as_blackjax(Collapsed(), model, observed)


def test_trajectories_lengthen_with_dimension():
    assert [Collapsed().leapfrogs_for(d) for d in (1, 5, 9, 20, 65)] == [4, 4, 4, 6, 10]
    assert Collapsed(leapfrogs=7).leapfrogs_for(5) == 7
