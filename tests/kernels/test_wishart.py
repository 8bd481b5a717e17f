"""Wishart and inverse Wishart: densities, draws and the proposal of a Metropolis-Hastings move
(docs/formulas.md#wishart-densities, #wishart-proposal)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.checks import assert_law, assert_means
from scipy import special, stats

from dpjax.kernels import symmetric, wishart
from dpjax.kernels.symmetric import cholesky

SIGMA = np.array([[1.0, 0.3], [0.3, 0.5]])  # W(SIGMA, 12) has mean (12, 3.6, 6): docs/formulas.md#wishart-proposal
CHAINS = 512


def definite(d, seed=0, shift=1.0):
    root = np.random.default_rng(seed).normal(size=(d, d))
    return root @ root.T + shift * np.eye(d)


@pytest.mark.parametrize("d", [1, 2, 3, 7])
def test_densities_equal_scipy(d, x64):
    x, scale, dof = definite(d, 1), definite(d, 2), d + 2.3
    arrays = [jnp.asarray(a) for a in (x, scale, dof)]
    ours, theirs = wishart.log_density(*arrays), stats.wishart.logpdf(x, dof, scale)
    assert abs(float(ours) - theirs) < 1e-10 * max(1, abs(theirs))
    ours, theirs = wishart.inverse_log_density(*arrays), stats.invwishart.logpdf(x, dof, scale)
    assert abs(float(ours) - theirs) < 1e-10 * max(1, abs(theirs))


def test_densities_outside_of_the_support(x64):
    bad, good = jnp.asarray([[1.0, 2.0], [2.0, 1.0]]), jnp.eye(2)
    for density in (wishart.log_density, wishart.inverse_log_density):
        assert density(bad, good, jnp.asarray(5.0)) == -jnp.inf
        assert density(-good, good, jnp.asarray(5.0)) == -jnp.inf
        assert jnp.isnan(density(good, good, jnp.asarray(1.0)))


@pytest.mark.slow
def test_densities_have_gradients(x64):
    x, scale = jnp.asarray(definite(3, 1)), jnp.asarray(definite(3, 2))
    by_x = jax.grad(wishart.log_density)(x, scale, jnp.asarray(9.0))
    exact = 0.5 * (9 - 3 - 1) * np.linalg.inv(x) - 0.5 * np.linalg.inv(scale)
    np.testing.assert_allclose(by_x, exact, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 5, 41, 100])
def test_triangular_inverse_and_factor(d, x64):
    """Above 40 other code runs."""
    a = definite(d, 3, shift=d)
    root = np.linalg.cholesky(a)
    many = jnp.asarray(np.stack([a, 2 * a]))
    np.testing.assert_allclose(jax.vmap(cholesky)(many)[0], root, atol=1e-10)
    np.testing.assert_allclose(symmetric.lower_inverse(jnp.asarray(root)), np.linalg.inv(root), atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 3, 9])
def test_laws_of_draws(d):
    """Diagonals are scaled chi-squares; means and log determinants are known; the factors are factors."""
    scale, dof, per = definite(d, 4), d + 6.5, 12
    keys = jax.random.split(jax.random.key(1), CHAINS * per)
    by_chain = lambda x: np.asarray(x, np.float64).reshape(CHAINS, per, *x.shape[1:])
    args = [jnp.asarray(x, jnp.float32) for x in (scale, dof)]
    over = lambda f: jax.tree.map(by_chain, jax.jit(jax.vmap(lambda k: f(k, *args)))(keys))
    x = over(wishart.draw)
    for i in (0, d - 1):
        assert_law(x[..., i, i] / scale[i, i], stats.chi2(dof).cdf)
    assert_means(x.mean(1), dof * scale, limit=4.5, floor=1e-3)
    expected = np.linalg.slogdet(scale)[1] + sum(np.log(2) + special.digamma((dof - i) / 2) for i in range(d))
    assert_means(np.linalg.slogdet(x)[1].mean(1), expected, limit=4.5, floor=1e-3)
    inverse = over(wishart.inverse_draw)
    y = inverse.matrix
    for i in (0, d - 1):
        assert_law(y[..., i, i], stats.invgamma((dof - d + 1) / 2, scale=scale[i, i] / 2).cdf)
    assert_means(np.linalg.inv(y).mean(1), dof * np.linalg.inv(scale), limit=4.5, floor=1e-2)
    root, back = inverse.factor, inverse.inverse_factor
    assert np.array_equal(root, np.tril(root))
    assert np.abs(root @ back - np.eye(d)).max() < 1e-4
    np.testing.assert_allclose(root @ root.swapaxes(-1, -2), y, rtol=1e-4, atol=1e-5 * y.max())


def log_proposal_ratio(x, proposed, alpha):
    """log q(x | proposed) - log q(proposed | x), proposed ~ W(x / alpha, alpha), as docs/formulas.md#wishart-proposal
    has it; float64 only: it cancels for large alpha."""
    d = len(x)
    change = np.linalg.slogdet(x)[1] - np.linalg.slogdet(proposed)[1]
    trace = np.trace(np.linalg.solve(x, proposed)) - np.trace(np.linalg.solve(proposed, x))
    return (alpha - 0.5 * (d + 1)) * change + 0.5 * alpha * trace


def test_proposal_ratio_of_the_specification():
    """The final expression of Alparslan et al. 2023, section A.3, is the ratio of scipy's densities
    (docs/formulas.md#wishart-proposal)."""
    for d, alpha in ((1, 3.0), (2, 9.5), (4, 30.0)):
        x, y = definite(d, 5), definite(d, 6)
        exact = stats.wishart.logpdf(x, alpha, y / alpha) - stats.wishart.logpdf(y, alpha, x / alpha)
        assert abs(log_proposal_ratio(x, y, alpha) - exact) < 1e-10 * max(1, abs(exact))


@pytest.mark.parametrize("alpha", [3.5, 40.0, 1e4, 1e6, 1e8])
@pytest.mark.parametrize("d", [1, 3])
def test_ratio_inside_the_proposal(d, alpha):
    """The form without cancellation in float32 against the plain one in float64, up to alpha = 1e8."""
    rng = np.random.default_rng(7)
    chi_squares, normals = rng.chisquare(alpha - np.arange(d)), rng.normal(size=d * (d - 1) // 2)
    root = np.linalg.cholesky(definite(d, 8))
    small = wishart.propose_from(*(jnp.asarray(a, jnp.float32) for a in (root, alpha, chi_squares, normals)))
    with jax.enable_x64(True):
        wide = wishart.propose_from(*(jnp.asarray(a) for a in (root, alpha, chi_squares, normals)))
        plain = log_proposal_ratio(root @ root.T, np.asarray(wide.matrix), alpha)
        if alpha <= 1e6:
            np.testing.assert_allclose(wide.log_ratio, plain, rtol=1e-7, atol=1e-7)
        change = np.linalg.slogdet(wide.matrix)[1] - np.linalg.slogdet(root @ root.T)[1]
        np.testing.assert_allclose(wide.log_det_change, change, atol=1e-9)
        np.testing.assert_allclose(np.linalg.cholesky(wide.matrix), wide.factor, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(small.log_ratio, wide.log_ratio, rtol=2e-3, atol=2e-3)


def move(key, density, state, alpha, ratio=None):
    """One Metropolis-Hastings step of (matrix, its factor, log density); ratio: in place of the proposal's own."""
    for_proposal, for_choice = jax.random.split(key)
    matrix, root, value = state
    proposal = wishart.propose(for_proposal, root, alpha)
    there = density(proposal.matrix, proposal.factor)
    of_proposal = proposal.log_ratio if ratio is None else ratio(matrix, proposal.matrix, alpha)
    rate = wishart.acceptance(there - value + of_proposal)
    taken = jax.random.uniform(for_choice, dtype=jnp.float32) < rate
    new = (proposal.matrix, proposal.factor, there)
    return jax.tree.map(lambda a, b: jnp.where(taken, a, b), new, state), rate


def start_at(matrix, density):
    root = cholesky(matrix)
    return matrix, root, density(matrix, root)


def run_move(ratio=None, alpha=15.0, steps=1500, warm=100, dof=12.0):
    """Mean over steps of a chain on W(SIGMA, dof), per chain `[CHAINS, 2, 2]`."""
    d = 2
    precision = jnp.asarray(np.linalg.inv(SIGMA), jnp.float32)

    def density(matrix, root):
        return (dof - d - 1) * jnp.log(jnp.diagonal(root)).sum() - 0.5 * (precision * matrix).sum()

    def chain(key):
        def step(state, key):
            state, rate = move(key, density, state, jnp.float32(alpha), ratio)
            return state, (state[0], rate)

        start = start_at(jnp.asarray(dof * SIGMA, jnp.float32), density)
        return jax.lax.scan(step, start, jax.random.split(key, steps + warm))[1]

    draws, rate = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(9), CHAINS))
    return np.asarray(draws[:, warm:], np.float64).mean(1), float(rate.mean())


@pytest.mark.slow
def test_move_has_the_known_target():
    means, rate = run_move()
    assert 0.15 < rate < 0.6
    assert_means(means, 12 * SIGMA)


@pytest.mark.slow
def test_published_ratio_is_noticed():
    """The intermediate line of the paper (A.3) exchanges |S| and |S'| in the proposals' normalisers
    (docs/formulas.md#wishart-proposal)."""

    def published(x, y, alpha):
        change = jnp.linalg.slogdet(x)[1] - jnp.linalg.slogdet(y)[1]
        trace = (jnp.linalg.inv(x) * y - jnp.linalg.inv(y) * x).sum()
        # (|S| / |S'|)^((alpha - d - 1)/2) (|S'| / |S|)^(alpha / 2)
        return (0.5 * (alpha - 3.0) - 0.5 * alpha) * change + 0.5 * alpha * trace

    means, _ = run_move(published, steps=400)
    with pytest.raises(AssertionError):
        assert_means(means, 12 * SIGMA)


def test_a_ratio_that_is_no_number_is_refused():
    rates = wishart.acceptance(jnp.asarray([jnp.nan, -jnp.inf, jnp.inf, 0.0], jnp.float32))
    assert np.array_equal(rates, [0, 0, 1, 1])


@pytest.mark.slow
def test_adaptation_reaches_its_target():
    """From too long and too short steps alike, the acceptance rate ends near 0.2."""
    dof = 400.0

    def density(matrix, root):
        return (dof - 3.0) * jnp.log(jnp.diagonal(root)).sum() - 0.5 * jnp.trace(matrix)

    def chain(key, alpha):
        def step(carry, x):
            state, alpha = carry
            state, rate = move(x[0], density, state, alpha)
            gain = jnp.float32(8.0) * (x[1] + 1.0) ** -0.7
            return (state, wishart.adapt_alpha(alpha, rate, jnp.minimum(gain, 2.0), 2)), rate

        start = start_at(dof * jnp.eye(2, dtype=jnp.float32), density)
        xs = (jax.random.split(key, 800), jnp.arange(800, dtype=jnp.float32))
        return jax.lax.scan(step, (start, alpha), xs)[1]

    keys = jax.random.split(jax.random.key(3), 64)
    rates = jax.jit(jax.vmap(chain))(keys, jnp.repeat(jnp.asarray([3.0, 1e7], jnp.float32), 32))
    means = np.asarray(rates[:, 400:].reshape(2, -1).mean(1))
    assert (means > 0.15).all() and (means < 0.26).all()
    assert wishart.adapt_alpha(jnp.float32(1.5), jnp.float32(1.0), jnp.float32(99.0), 2) > 1.0
