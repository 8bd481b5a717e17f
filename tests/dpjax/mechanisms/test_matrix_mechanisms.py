"""Wishart mechanisms: the numbers of docs/formulas.md#wishart-mechanism, exact privacy losses against simulation,
densities, estimates."""

import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from oracles.checks import assert_means
from scipy import stats

from dpjax.errors import InputError
from dpjax.mechanisms.base import PrivacyStatement
from dpjax.mechanisms.matrix import InverseWishart, Wishart, gram_matrix, theta_plug_in
from dpjax.privacy import clipping
from dpjax.privacy import wishart as privacy

CHAINS, PER_CHAIN, DRAWS = 32, 250, 20_000
EPSILONS = np.array([0.1, 0.8])


@pytest.fixture
def x64():
    """64-bit mode for one test."""
    with jax.enable_x64(True):
        yield


# --- numbers of the specification ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("d", "epsilon", "delta", "tail"),
    [(3, 0.1, 0.1, 1e-36), (6, 1, 1e-6, 1e-41), (6, 0.1, 1e-6, 1e-146), (31, 0.1, 0.1, 1e-36), (6, 2, 1e-6, 1e-19)],
)
def test_published_dof_is_private_with_huge_slack(d, epsilon, delta, tail):
    mechanism = Wishart.published(d - 1, 2.5, epsilon, delta)
    assert mechanism.dof == math.floor(d + 14 / epsilon**2 * 2 * math.log(4 / delta))
    found = privacy.wishart_loss_tail(d, mechanism.dof, epsilon)
    assert tail / 50 < found <= tail
    assert mechanism.delta(epsilon, "add-remove") <= found
    # more than the theorem by group privacy: the published k is (epsilon, delta)-DP under replace-one as well
    assert mechanism.delta(epsilon) < delta / 1000
    assert mechanism.adjacency == "replace-one"


@pytest.mark.parametrize(
    ("n", "epsilon", "delta", "tail"), [(10, 0.1, 0.1, 1e-19), (100, 0.1, 0.1, 1e-28), (1000, 1, 1e-6, 1e-130)]
)
def test_published_ridge_is_private_with_huge_slack(n, epsilon, delta, tail):
    mechanism = InverseWishart.published(5, n, 2.5, epsilon, delta)
    assert mechanism.dof == n + 6
    log = math.log(4 / delta)
    assert mechanism.ridge == pytest.approx(2 * 2.5**2 / epsilon * (2 * math.sqrt(2 * (n + 6) * log) + 2 * log))
    found = privacy.inverse_wishart_loss_tail(mechanism.dof, 2.5**2 / mechanism.ridge, epsilon)
    assert tail / 1e4 < found <= 1.5 * tail
    assert mechanism.delta(epsilon, "add-remove") <= found
    assert mechanism.delta(epsilon) < delta / 1000


@pytest.mark.parametrize(("epsilon", "delta", "published", "smallest"), [(0.1, 0.1, 10334, 12), (1, 1e-3, 238, 22)])
def test_smallest_dof_of_the_specification(epsilon, delta, published, smallest):
    assert Wishart.published(5, 1, epsilon, delta).dof == published
    mechanism = Wishart.calibrated(5, 1, epsilon, delta, "add-remove")
    assert mechanism.dof == smallest and mechanism.adjacency == "add-remove"
    assert mechanism.delta(epsilon) <= delta
    assert Wishart(1.0, smallest - 1, 6, "add-remove").delta(epsilon) > delta


def test_rows_longer_than_the_bound_of_the_specification():
    dof = privacy.published_dof(6, 0.1, 0.1)
    for size, delta in ((6, 1.4e-4), (26, 3.5e-2)):
        exact = max(direction(0.1) for direction in privacy.wishart_deltas(6, dof, size))
        assert exact == pytest.approx(delta, rel=0.04)


# --- calibration and accounting ------------------------------------------------------------------------------------

BUDGETS = [(0.1, 0.1), (1.0, 1e-3), (0.4, 1e-6), (3.0, 1e-9)]


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_replace_one_beats_plain_group_privacy(epsilon, delta):
    half = epsilon / 2, delta / (1 + math.exp(epsilon / 2))
    mechanism = Wishart.calibrated(4, 2, epsilon, delta)
    plain = Wishart.calibrated(4, 2, *half, "add-remove")
    assert Wishart.calibrated(4, 2, epsilon, delta, "add-remove").dof <= mechanism.dof <= plain.dof
    assert mechanism.delta(epsilon) <= delta < Wishart(2.0, mechanism.dof - 1, 5, "replace-one").delta(epsilon)
    assert plain.delta(epsilon, "replace-one") <= delta
    inverse = InverseWishart.calibrated(4, 50, 2, epsilon, delta)
    plain = InverseWishart.calibrated(4, 50, 2, *half, "add-remove")
    alone = InverseWishart.calibrated(4, 50, 2, epsilon, delta, "add-remove")
    assert alone.ridge <= inverse.ridge <= plain.ridge * (1 + 1e-9)
    for found in (inverse, alone):
        assert (
            found.delta(epsilon)
            <= delta
            < InverseWishart(2.0, found.ridge * (1 - 1e-6), 55, 5, found.adjacency).delta(epsilon)
        )


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_privacy_map_inverts_delta(adjacency):
    for mechanism in (Wishart.calibrated(4, 1, 0.7, 1e-5, adjacency), InverseWishart.calibrated(4, 90, 1, 0.7, 1e-5)):
        epsilon = mechanism.privacy_map(1e-5, adjacency)
        assert 0.6 < epsilon <= 0.7 * (1 + 1e-9) or isinstance(mechanism, InverseWishart)
        assert mechanism.delta(epsilon, adjacency) <= 1e-5 < mechanism.delta(epsilon * (1 - 1e-9), adjacency)
    assert Wishart(1.0, 10_000, 5, adjacency).privacy_map(0.9) == 0
    assert Wishart(1.0, 6, 5, adjacency).privacy_map(1e-3) == math.inf  # c below 1 shows the record for certain


def test_delta_grows_with_the_record_and_falls_with_epsilon():
    epsilons = np.linspace(0, 2, 9)
    for direction in range(2):
        deltas = [privacy.wishart_deltas(4, 9, size)[direction](epsilons) for size in (0.2, 0.5, 0.8, 1.0)]
        assert np.all(np.diff(deltas, axis=0) >= 0) and np.all(np.diff(deltas, axis=1) <= 0)
        deltas = [privacy.inverse_wishart_deltas(9, ratio)[direction](epsilons) for ratio in (0.1, 0.2, 0.8)]
        assert np.all(np.diff(deltas, axis=0) >= 0) and np.all(np.diff(deltas, axis=1) <= 0)


def precise(q, low, high):
    """P(low < chi2_q < high) to 40 digits."""
    return mpmath.gammainc(mpmath.mpf(q) / 2, mpmath.mpf(low) / 2, high if high is mpmath.inf else high / 2, True)


@pytest.mark.parametrize(
    ("d", "dof", "epsilon"), [(6, 12, 0.1), (6, 238, 1), (6, 10334, 0.1), (3, 9, 0.05), (3, 4, 0.3)]
)
def test_deltas_against_mpmath(d, dof, epsilon):
    with mpmath.workdps(60):
        q, e = dof - d + 1, mpmath.mpf(epsilon)
        half = mpmath.mpf(q - 2) / 2
        edge = -1 / mpmath.expm1(-(e + 0.5) / half) if half else mpmath.mpf(1)
        exact = [precise(q, 0, edge) - mpmath.exp(e) * precise(q, 0, edge - 1)]
        exact.append(mpmath.mpf(0))
        if epsilon < 0.5 and half:
            edge = -1 / mpmath.expm1(-(0.5 - e) / half)
            exact[1] = precise(q, edge - 1, mpmath.inf) - mpmath.exp(e) * precise(q, edge, mpmath.inf)
        elif epsilon < 0.5:  # q = 2: the ratio is exp(1/2) wherever both densities are positive
            exact[1] = 1 - mpmath.exp(e) * precise(q, 1, mpmath.inf)
    for found, truth in zip(privacy.wishart_deltas(d, dof), exact, strict=True):
        value = float(found(epsilon))
        assert float(truth) <= value <= float(truth) * (1 + 1e-6)


@pytest.mark.parametrize(
    ("nu", "ratio", "epsilon"), [(16, 0.1, 0.1), (106, 1 / 1266, 0.1), (9, 0.8, 0.5), (5006, 0.01, 1)]
)
def test_inverse_deltas_against_mpmath(nu, ratio, epsilon):
    with mpmath.workdps(60):
        e, h = mpmath.mpf(epsilon), mpmath.mpf(ratio)
        grown = nu * mpmath.log1p(h)
        edge = (grown + 2 * e) / h
        exact = [precise(nu, edge, mpmath.inf) - mpmath.exp(e) * precise(nu, (1 + h) * edge, mpmath.inf)]
        edge = max((grown - 2 * e) / h, mpmath.mpf(0))
        exact.append(precise(nu, 0, (1 + h) * edge) - mpmath.exp(e) * precise(nu, 0, edge))
    for found, truth in zip(privacy.inverse_wishart_deltas(nu, ratio), exact, strict=True):
        value = float(found(epsilon))
        assert float(truth) <= value <= float(truth) * (1 + 1e-6)


# --- the actual privacy loss ---------------------------------------------------------------------------------------


@jax.jit  # the mechanism is a pytree: one compilation for all of a kind
def draws(mechanism, keys, gram):
    return jax.vmap(mechanism.simulate, (0, None))(keys, gram)


@jax.jit
def losses(mechanism, keys, first, second):
    def loss(key):
        released = mechanism.simulate(key, first)
        return mechanism.log_density(released, first) - mechanism.log_density(released, second)

    return jax.vmap(loss)(keys)


def hockey_stick(mechanism, first, second, seed):
    """Simulated delta of two Gram matrices at `EPSILONS` from `log_density`, and its standard error."""
    keys = jax.random.split(jax.random.key(seed), DRAWS)
    gain = np.maximum(0, -np.expm1(EPSILONS[:, None] - np.asarray(losses(mechanism, keys, first, second))))
    return gain.mean(1), gain.std(1) / math.sqrt(DRAWS)


def neighbours(length, scale=1.0):
    """A Gram matrix, and it with one row or another, orthogonal one of this length added."""
    rng = np.random.default_rng(4)
    rows = scale * rng.normal(size=(5, 3))
    u, v = length * np.linalg.qr(rng.normal(size=(3, 2)))[0].T
    gram = rows.T @ rows
    return [jnp.asarray(a) for a in (gram, gram + np.outer(u, u), gram + np.outer(v, v))]


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism",
    [Wishart(1.5, 8, 3, "replace-one"), InverseWishart(1.5, 4.0, 9, 3, "replace-one")],
    ids=lambda m: m.kind,
)
def test_simulated_privacy_loss(x64, mechanism):
    inverse = isinstance(mechanism, InverseWishart)
    # the worst Gram matrix of the inverse mechanism is 0 where the record lies; of the other, all are alike
    without, within, other = neighbours(1.5, scale=0.0 if inverse else 1.0)
    exact = [direction(EPSILONS) for direction in mechanism._deltas()]
    for pair, delta in zip([(without, within), (within, without)], exact, strict=True):
        found, error = hockey_stick(mechanism, *pair, 0)
        assert np.all(np.abs(found - delta) <= 4 * error + 1e-12)
    bound = np.array([mechanism.delta(epsilon) for epsilon in EPSILONS])
    found, error = hockey_stick(mechanism, within, other, 1)
    assert np.all(found - 4 * error < bound) and np.all(found > bound / 8)  # and the bound is of the right size
    if inverse:  # with other records around, less is seen
        found, error = hockey_stick(mechanism, *neighbours(1.5, scale=1.0)[:2], 2)
        assert np.all(found < exact[0] + 4 * error)


# --- densities, draws, estimates -----------------------------------------------------------------------------------


def records(n=60, p=3):
    rng = np.random.default_rng(7)
    features = rng.normal(size=(n, p)) / 3
    target = features @ np.linspace(1, -0.5, p) + 0.1 * rng.normal(size=n)
    return clipping.clip_whole_rows(features, target, 1.0)


@pytest.mark.parametrize("p", [1, 3, 12])
def test_densities_are_scipys(x64, p):
    d = p + 1
    gram = gram_matrix(*records(n=40, p=p))
    for mechanism in (Wishart(0.7, d + 5, d, "replace-one"), InverseWishart(0.7, 1.3, 40 + d, d, "add-remove")):
        if isinstance(mechanism, Wishart):
            law, origin = stats.wishart(d + 5, 0.49 * np.eye(d)), gram
        else:
            law, origin = stats.invwishart(40 + d, gram + 1.3 * np.eye(d)), 0 * gram
        noise = law.rvs(random_state=p)
        found = jax.jit(mechanism.log_density)(jnp.asarray(origin + noise), jnp.asarray(gram))
        assert float(found) == pytest.approx(law.logpdf(noise), rel=1e-10)


def test_densities_outside_the_support(x64):
    gram = jnp.eye(3)
    assert Wishart(1.0, 7, 3, "replace-one").log_density(gram - 0.1 * jnp.eye(3), gram) == -jnp.inf
    assert InverseWishart(1.0, 1.0, 9, 3, "replace-one").log_density(-jnp.eye(3), gram) == -jnp.inf


@pytest.mark.slow
def test_debiased_matrices_are_unbiased_and_published_ones_are_not(x64):
    features, target = records()
    gram = gram_matrix(features, target)
    keys = jax.random.split(jax.random.key(0), CHAINS * PER_CHAIN)
    for mechanism in (Wishart.calibrated(3, 1, 1, 1e-3), InverseWishart.calibrated(3, 60, 1, 1, 1e-3)):
        released = draws(mechanism, keys, jnp.asarray(gram))
        means = [
            np.asarray(jax.vmap(estimate)(released), np.float64).reshape(CHAINS, PER_CHAIN, 4, 4).mean(1)
            for estimate in (mechanism.debiased, mechanism.undebiased)
        ]
        assert_means(means[0], gram)
        np.testing.assert_allclose(released, jnp.swapaxes(released, 1, 2), rtol=1e-9, atol=1e-9)
        with pytest.raises(AssertionError):
            assert_means(means[1], gram)


@pytest.mark.slow
def test_plug_in_estimate_of_a_large_table(x64):
    """The ridge of Zhang and Reiter's own estimate pulls theta towards 0; without it theta is unbiased up to the
    curvature, here 1e-4."""
    gram = 2e4 * gram_matrix(*records())
    theta = np.linalg.solve(gram[:3, :3], gram[:3, 3])
    keys = jax.random.split(jax.random.key(1), CHAINS * PER_CHAIN)
    mechanism = Wishart.published(3, 1, 0.5, 1e-5)
    released = draws(mechanism, keys, jnp.asarray(gram))
    for estimate, fits in ((mechanism.debiased, True), (mechanism.undebiased, False)):
        found = jax.vmap(lambda m, estimate=estimate: theta_plug_in(estimate(m), 3))(released)
        means = np.asarray(found).reshape(CHAINS, PER_CHAIN, 3).mean(1)
        if fits:
            assert_means(means, theta, floor=1e-6)
        else:
            with pytest.raises(AssertionError):
                assert_means(means, theta, floor=1e-6)


def test_scale_of_an_inverse_release_cancels_in_theta(x64):
    gram = jnp.asarray(gram_matrix(*records()))
    np.testing.assert_allclose(theta_plug_in(7.0 * gram, 3), theta_plug_in(gram, 3), rtol=1e-12)
    features, target = records()
    np.testing.assert_allclose(theta_plug_in(gram, 3), np.linalg.lstsq(features, target, rcond=None)[0], rtol=1e-9)


def test_mechanisms_are_pytrees_with_a_statement():
    for mechanism in (Wishart.calibrated(3, 1, 1, 1e-3), InverseWishart.calibrated(3, 60, 1, 1, 1e-3, "add-remove")):
        leaves, tree = jax.tree.flatten(mechanism)
        assert jax.tree.unflatten(tree, leaves) == mechanism
        assert mechanism.adjacency in mechanism.statement.adjacency
        assert isinstance(mechanism.statement, PrivacyStatement)
    assert Wishart.kind == "wishart" and InverseWishart.kind == "inverse-wishart"
    # k is a leaf: one compiled call for many of them
    dof = jnp.array([6.0, 60.0, 6000.0])
    found = jax.vmap(lambda k: Wishart(1.0, k, 2, "replace-one").log_density(2 * jnp.eye(2), jnp.eye(2)))(dof)
    np.testing.assert_allclose(found, [stats.wishart.logpdf(np.eye(2), float(k), np.eye(2)) for k in dof], rtol=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Wishart.published(0, 1, 1, 0.1), "p must"),
        (lambda: Wishart.calibrated(3, 0, 1, 0.1), "bound must"),
        (lambda: Wishart.calibrated(3, 1, -1, 0.1), "epsilon must"),
        (lambda: Wishart.calibrated(3, 1, 1, 0), "delta must"),
        (lambda: Wishart.calibrated(3, 1, 1, 0.1, "unbounded"), "adjacency must"),
        (lambda: InverseWishart.published(3, 0, 1, 1, 0.1), "records must"),
        (lambda: Wishart(1.0, 4, 4, "replace-one").delta(1), "dof must"),
        (lambda: Wishart(1.0, 9, 4, "replace-one").delta(-1), "epsilon must"),
        (lambda: InverseWishart(1.0, 0.0, 9, 4, "replace-one").delta(1), "ridge must"),
        (lambda: Wishart(1.0, 9, 4, "replace-one").privacy_map(1), "delta must"),
        (lambda: gram_matrix([[1.0]], [math.nan]), "finite"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(InputError, match=message):
        call()
