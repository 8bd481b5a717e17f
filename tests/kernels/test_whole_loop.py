"""The whole-loop kernel against the step-by-step samplers, its random numbers, and what it must not depend on."""

import functools

import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax import random

from dpjax.kernels import _whole_loop_collapsed as collapsed_written_out
from dpjax.kernels import _whole_loop_gibbs as written_out
from dpjax.kernels import _whole_loop_random as numbers
from dpjax.kernels import whole_loop
from dpjax.kernels.streams import normals_and_uniforms_lanes
from dpjax.models import LinearRegression
from dpjax.models.base import Observed
from dpjax.samplers.collapsed import Collapsed, CollapsedParameters, CollapsedState
from dpjax.samplers.gibbs import Gibbs, GibbsState

LANES = 40


def problem(lanes=LANES, records=(3.0, 30.0, 1000.0, 1e5), seed=0):
    """Problems that differ in everything: prior, records, noise scale per entry; some need projection."""
    rng = np.random.default_rng(seed)
    f32 = lambda x: jnp.asarray(x, jnp.float32)
    n = np.resize(records, lanes)
    b = rng.uniform(2.0, 20.0, (5, lanes))
    mu, beta = rng.normal(0, 0.5, lanes), rng.normal(0, 1.0, lanes)
    alpha = rng.normal(0, 0.5, lanes)
    mean = np.stack([mu, mu**2 + 0.3, alpha, mu * alpha + 0.3 * beta, alpha**2 + 0.3 * beta**2 + 0.2])
    z = n * mean + rng.laplace(0, 1, (5, lanes)) * b
    observed = Observed(f32(z / b), f32(n / b), f32(np.sqrt(n) / b), f32(n))
    off = rng.uniform(-0.2, 0.2, lanes)
    model = LinearRegression(
        f32(rng.normal(0, 0.3, (2, lanes))),
        f32([[1.0 + off**2, off], [off, 0.7 + 0 * off]]),
        f32(rng.uniform(0.3, 20, lanes)),  # below 1 with few records: the boosted gamma
        f32(rng.uniform(0.1, 2, lanes)),
        f32(rng.normal(0, 0.2, (1, lanes))),
        f32(rng.uniform(0.5, 2, lanes)),
        f32(rng.uniform(0.5, 2, (1, 1, lanes))),
        f32(rng.uniform(3, 50, lanes)),
    )
    position = jnp.stack([f32(x) for x in (mu, alpha, beta, rng.normal(-1, 0.5, lanes), rng.normal(-0.5, 0.3, lanes))])
    scales = f32(rng.exponential(2.0, (5, lanes)) + 1e-3)
    return model, observed, position, scales


def packed(model, observed):
    hyper = whole_loop.pack(
        model.theta_mean, model.theta_precision, model.sigma2_shape, model.sigma2_scale,
        model.x_mean, model.kappa, model.psi, model.nu,
    )  # fmt: skip
    rows = [observed.z, observed.n_over_b, observed.root_n_over_b, observed.n[None]]
    return hyper, jnp.concatenate(rows)


def key_words(lanes, seed=5):
    keys = random.split(random.key(seed, impl="threefry2x32"), lanes)
    return jnp.asarray(np.asarray(random.key_data(keys)).T)


@jax.jit
def both_ways(model, observed, keys, state):
    """One step of `Gibbs` and of the code written out, given the same numbers; and what `Gibbs` says of it.

    Lanes whose first gamma proposals all fail come back as NaN from the second.
    """
    expected, info = Gibbs().step_lanes(model, observed, keys, state)
    work = state.scales.dtype
    normals, uniforms = normals_and_uniforms_lanes(keys, written_out.NORMALS, written_out.UNIFORMS, work)
    hyper, rows = packed(model, observed)
    released = written_out.Released(list(rows[:5]), list(rows[5:10]), list(rows[10:15]), rows[15])
    nan = jnp.full(LANES, jnp.nan, work)
    found = written_out.step(
        written_out.Hyper(*hyper), released, list(state.position), list(state.scales), list(normals), list(uniforms),
        lambda attempt: ([nan, nan], [nan, nan]),
    )  # fmt: skip
    return GibbsState(jnp.stack(found[0]), jnp.stack(found[1])), expected, info


def test_step_equals_the_samplers_given_the_same_numbers():
    model, observed, position, scales = problem()
    state, moved, projected = GibbsState(position, scales), 0, 0
    for seed in range(20):
        keys = random.split(random.key(seed, impl="threefry2x32"), LANES)
        found, expected, info = both_ways(model, observed, keys, state)
        same = np.isfinite(np.asarray(found.position)).all(0)
        moved, projected = moved + same.sum(), projected + np.asarray(info.projected)[same].sum()
        np.testing.assert_allclose(found.position[:, same], expected.position[:, same], rtol=2e-3, atol=2e-3)
        # the noise is a difference of sums in units of b, which float32 knows to about 1e-7 n / b
        slack = 2e-6 * np.asarray(observed.n_over_b).max(0) + 2e-4
        w, w_expected = np.sqrt(np.asarray(found.scales)), np.sqrt(np.asarray(expected.scales))
        close = np.abs(w - w_expected) <= slack * (1 + w_expected)
        assert close[:, same].mean() > 0.997  # a draw at the edge between the two roots may fall either way
        state = expected
    assert moved > 0.9 * 20 * LANES and projected > 20


@pytest.mark.slow
def test_step_equals_the_samplers_in_double_precision(x64):
    """Without rounding the two are the same function: nothing is left to tolerance."""
    model, observed, position, scales = jax.tree.map(lambda x: x.astype(jnp.float64), problem())
    state = GibbsState(position, scales)
    for seed in range(10):
        keys = random.split(random.key(seed, impl="threefry2x32"), LANES)
        found, expected, _ = both_ways(model, observed, keys, state)
        same = np.isfinite(np.asarray(found.position)).all(0)
        assert same.mean() > 0.8
        np.testing.assert_allclose(found.position[:, same], expected.position[:, same], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(found.scales[:, same], expected.scales[:, same], rtol=1e-6, atol=1e-9)
        state = expected


def frozen_parameters(model, observed, position):
    """A reference point beside the state, and curvatures of rank two."""
    work = observed.root_n_over_b.dtype
    at = position + 0.1
    covariance = model.residual_lanes(at, observed)[1]
    jacobian = model.mean_jacobian_lanes(at) * observed.n_over_b[:, None]
    precision = jax.vmap(lambda m: m.prior_precision(), in_axes=-1, out_axes=-1)(model).astype(work)
    rng = np.random.default_rng(2)
    factors = jnp.asarray(rng.normal(size=(2, 5, 5, LANES)), work) * 0.1 * jnp.abs(jacobian).mean()
    curvature = (factors[:, :, :, None] * factors[:, :, None]).sum(0)
    step_size = jnp.asarray(rng.uniform(0.3, 1.5, LANES), work)
    return CollapsedParameters(step_size, precision, covariance, jacobian, curvature)


@jax.jit
def collapsed_both_ways(model, observed, parameters, keys, state):
    expected, info = Collapsed().step_lanes(model, observed, parameters, keys, state)
    work = state.scales.dtype
    normals, uniforms = normals_and_uniforms_lanes(
        keys, collapsed_written_out.NORMALS, collapsed_written_out.UNIFORMS, work
    )
    hyper, rows = packed(model, observed)
    h = written_out.Hyper(*hyper)
    released = written_out.Released(list(rows[:5]), list(rows[5:10]), list(rows[10:15]), rows[15])
    frozen = whole_loop.pack_frozen(*parameters)
    before = [list(x) for x in (state.position, state.scales, normals, uniforms)]
    position, scales, acceptance = collapsed_written_out.step(h, released, lambda k: frozen[k], *before, 4, 0.3)
    metric = collapsed_written_out.metric(lambda k: frozen[k], list(state.scales))
    metric = jnp.stack([x for row in metric for x in row])
    value, gradient = collapsed_written_out.log_density_and_grad(
        h, released, list(state.scales), list(state.position)
    )  # fmt: skip
    lanes_first = lambda x: jnp.moveaxis(x, -1, 0)
    j, w = lanes_first(parameters.jacobian), lanes_first(state.scales)
    s = lanes_first(parameters.covariance)
    a = s + w[:, :, None] * jnp.eye(5, dtype=work)[None]
    weights = 1.0 / jnp.diagonal(a, axis1=1, axis2=2)
    metric_expected = lanes_first(parameters.prior_precision) + jnp.swapaxes(j, 1, 2) @ jnp.linalg.solve(a, j)
    metric_expected = metric_expected + (weights[:, :, None, None] * lanes_first(parameters.curvature)).sum(1)
    value_expected, gradient_expected = model.log_density_and_grad_lanes(state.position, state.scales, observed)
    return (
        (jnp.stack(position), jnp.stack(scales), acceptance, metric, value, jnp.stack(gradient)),
        (*expected, info.acceptance, metric_expected[:, *np.tril_indices(5)].T, value_expected,
         gradient_expected),
    )  # fmt: skip


@pytest.mark.slow
def test_collapsed_iteration_equals_the_samplers_in_double_precision(x64):
    model, observed, position, scales = jax.tree.map(lambda x: x.astype(jnp.float64), problem())
    state = CollapsedState(position, scales)
    parameters = frozen_parameters(model, observed, position)
    accepted = 0.0
    for seed in range(6):
        keys = random.split(random.key(seed, impl="threefry2x32"), LANES)
        found, expected = collapsed_both_ways(model, observed, parameters, keys, state)
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-8)
        accepted += float(found[2].mean()) / 6
        state = CollapsedState(expected[0], expected[1])
    assert 0.05 < accepted < 0.99  # proposals are neither all taken nor all refused


@pytest.mark.slow
def test_collapsed_iteration_equals_the_samplers():
    model, observed, position, scales = problem(records=(30.0, 1000.0))
    state = CollapsedState(position, scales)
    parameters = frozen_parameters(model, observed, position)
    keys = random.split(random.key(8, impl="threefry2x32"), LANES)
    found, expected = collapsed_both_ways(model, observed, parameters, keys, state)
    for x, y in zip(found[:3], expected[:3], strict=True):
        assert np.isclose(x, y, rtol=5e-3, atol=5e-3).mean() > 0.95  # float32, five gradients apart


@pytest.mark.slow
def test_collapsed_kernel_equals_the_plain_loop():
    model, observed, position, scales = problem(records=(30.0, 1000.0))
    frozen = whole_loop.pack_frozen(*frozen_parameters(model, observed, position))
    hyper, rows = packed(model, observed)
    state = jnp.concatenate([position, scales, jnp.zeros((1, LANES), jnp.float32)])
    arrays = [hyper, rows, frozen, key_words(LANES), state, jnp.zeros((5, LANES), jnp.float32), np.uint32(0)]

    def loop(**options):
        return jax.jit(lambda *x: whole_loop.collapsed_regression_loop(*x, 2, 1, **options))(*arrays)

    kernel, plain = loop(interpret=True, lanes=32), loop(plain=True)
    for found, expected in zip(kernel, plain, strict=True):
        assert np.isclose(found, expected, rtol=5e-3, atol=5e-3).mean() > 0.98


def test_threefry_is_jaxs():
    keys = key_words(7)
    counters = jnp.asarray([[3, 0, 1, 7, 2**31, 5, 2**32 - 1], [0, 1, 2, 3, 4, 2**32 - 1, 6]], jnp.uint32)
    found = numbers.threefry2x32(keys[0], keys[1], counters[0], counters[1])
    bind = jax.extend.random.threefry2x32_p.bind
    expected = bind(keys[0], keys[1], counters[0], counters[1])
    np.testing.assert_array_equal(np.stack(found), np.stack(expected))


def test_normals_and_uniforms_have_their_laws():
    keys = key_words(500)
    made = jnp.stack([jnp.stack(numbers.words((keys[0], keys[1]), np.uint32(s), 38)) for s in range(1, 11)])
    assert len(np.unique(np.asarray(made))) > 0.9999 * made.size  # chains, steps and places all differ
    u = np.asarray(numbers.uniform(made)).astype(np.float64)
    z = np.asarray(numbers.normal(made)).astype(np.float64)
    assert scipy.stats.kstest(u.ravel(), "uniform").pvalue > 1e-3
    assert scipy.stats.kstest(z.ravel(), "norm").pvalue > 1e-3
    assert 0.0 < u.min() and u.max() < 1.0
    np.testing.assert_allclose(z, scipy.stats.norm.ppf(u), rtol=2e-6, atol=2e-7)
    for axis in range(3):  # neighbours along steps, places and chains
        first, second = np.moveaxis(z, axis, 0)[:-1], np.moveaxis(z, axis, 0)[1:]
        assert abs((first * second).mean()) < 4.0 / np.sqrt(first.size)


def test_tails_of_the_normal():
    word = jnp.asarray([0, 2**9, 2**32 - 1, 2**31, 2**31 - 1, 2**20], jnp.uint32)
    u = np.asarray(numbers.uniform(word)).astype(np.float64)
    np.testing.assert_allclose(np.asarray(numbers.normal(word)), scipy.stats.norm.ppf(u), rtol=3e-6)


@functools.cache
def compiled(steps, thin, **options):
    return jax.jit(lambda first, *arrays: whole_loop.gibbs_regression_loop(*arrays, first, steps, thin, **options))


def run(steps, thin, chains=slice(None), first=0, state=None, **options):
    model, observed, position, scales = problem()
    hyper, rows = packed(model, observed)
    state = jnp.concatenate([position, scales]) if state is None else state
    arrays = [hyper, rows, key_words(LANES), state, jnp.zeros((5, LANES), jnp.float32)]
    return compiled(steps, thin, **options)(np.uint32(first), *[x[:, chains] for x in arrays])


KERNEL = {"interpret": True, "lanes": 16}  # 40 chains: the last program is padded


@pytest.mark.slow
def test_kernel_equals_the_plain_loop():
    kernel, plain = run(6, 2, **KERNEL), run(6, 2, plain=True)
    for found, expected in zip(kernel, plain, strict=True):
        # compiled apart: roundings differ, and a draw at an edge may fall the other way
        assert np.isclose(found, expected, rtol=2e-3, atol=2e-3).mean() > 0.99
    draws = np.asarray(kernel.draws)
    assert draws.shape == (3, 5, LANES)
    np.testing.assert_allclose(kernel.total, draws.sum(0), rtol=1e-5)
    np.testing.assert_allclose(kernel.squares, (draws**2).sum(0), rtol=1e-5)
    summed = run(6, 2, keep_draws=False, **KERNEL)
    assert summed.draws is None
    np.testing.assert_allclose(summed.total, kernel.total, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_numbers_of_a_chain_do_not_depend_on_the_layout():
    whole = run(6, 2, **KERNEL)
    other = run(6, 2, interpret=True, lanes=8, chains=slice(3, 20))
    np.testing.assert_allclose(np.asarray(whole.draws)[..., 3:20], other.draws, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_calls_count_on():
    once = run(6, 2, plain=True)
    first = run(2, 2, plain=True)
    second = run(2, 2, plain=True, first=2, state=first.state)
    repeated = run(2, 2, plain=True, first=0, state=first.state)
    assert not np.isclose(repeated.draws, second.draws).any()  # numbers of other steps are other numbers
    np.testing.assert_allclose(np.asarray(once.draws)[:2], [first.draws[0], second.draws[0]], rtol=1e-4, atol=1e-5)


def test_wrong_sizes_are_refused():
    with pytest.raises(ValueError, match="multiple of thin"):
        run(5, 2)
    with pytest.raises(ValueError, match="power of two"):
        run(4, 2, lanes=24)


def test_gamma_draws_are_exact_where_the_first_proposals_fail():
    """All first proposals rejected by hand: the loop's draws follow the law, below shape 1 too."""
    count = 20_000
    keys = key_words(count)
    shapes = [jnp.full(count, 0.4, jnp.float32), jnp.full(count, 3.0, jnp.float32)]
    bad = [jnp.full(count, -50.0, jnp.float32)] * 4
    last = numbers.words((keys[0], keys[1]), np.uint32(9), 2)
    uniforms = [jnp.full(count, 0.5, jnp.float32)] * 4 + [numbers.uniform(x) for x in last]

    def again(attempt):
        made = numbers.words((keys[0], keys[1]), np.uint32(1), 4, first=attempt * np.uint32(2))
        return [numbers.normal(x) for x in made[:2]], [numbers.uniform(x) for x in made[2:]]

    found = jax.jit(lambda: written_out.gammas(shapes, bad, uniforms, again))()
    for draws, shape in zip(found, (0.4, 3.0), strict=True):
        assert scipy.stats.kstest(np.asarray(draws), scipy.stats.gamma(shape).cdf).pvalue > 1e-3
