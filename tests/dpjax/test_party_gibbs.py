"""Alparslan et al.'s samplers for several data holders: invariance, and an exact posterior
(docs/formulas.md#several-data-holders)."""

import subprocess
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.engine.model import Observed
from dpjax.engine.run import run_chains
from dpjax.errors import InputError
from dpjax.inference.methods import METHODS
from dpjax.kernels import psd
from dpjax.kernels.batching import repeat_lanes
from dpjax.kernels.order import origin_places
from dpjax.mechanisms import LAPLACE
from dpjax.mechanisms.noise import Noise
from dpjax.models.regression.linear import LinearRegression
from dpjax.models.regression.origin import OriginRegression
from dpjax.models.regression.parties import PartySums
from dpjax.models.regression.party_layout import party_facts
from dpjax.models.regression.problems import party_problems
from dpjax.samplers import fixed_s, party_gibbs
from dpjax.samplers._party_parts import Coefficients, fold, log_marginal, released_lanes, root_of, theta_law
from dpjax.samplers.fixed_s import FixedS, FixedSFast
from dpjax.samplers.party_clt import Clt
from dpjax.samplers.party_gibbs import NormalX

GRAM, CROSS, SQUARE = np.array([[1030.0, 210.0], [210.0, 980.0]]), np.array([470.0, -170.0]), 315.0
NOISE, RECORDS = 20.0, 1000


# ---- invariance: parameters, sums and noise from the joint law stay in it ------------------------------------------
RECORDS_BY_PARTY = np.array([4.0, 15.0, 60.0])


def joint_draw(independent, lanes, seed=0):
    """Everything drawn from the model: parties of other sizes, noise and units; float32, lanes last."""
    p, parties, rng = 2, 3, np.random.default_rng(seed)
    base = OriginRegression.create(
        p, theta_mean=[0.3, -0.2], theta_precision=[[4.0, 1.0], [1.0, 3.0]], sigma2_shape=6.0, sigma2_scale=2.0,
        psi=[[4.0, 1.0], [1.0, 3.0]], nu=9.0, independent=independent,
    )  # fmt: skip
    noise = np.array(["laplace", "gaussian", "laplace"], object)
    present = np.ones((parties, 6))
    present[:, -1], present[0, 3], present[1, 1] = 0, 0, 0
    half = np.array([[1.0, 1.0, 1.0], [2.0, 0.5, 1.5], [1.0, 3.0, 0.7]])
    model, facts = PartySums(base, parties), party_facts(base, RECORDS_BY_PARTY, half=half)
    psi, precision = np.asarray(base.psi, float), np.asarray(base.theta_precision, float)
    sigma2 = 2.0 / rng.gamma(6.0, size=lanes)
    root = np.linalg.cholesky(np.linalg.inv(precision))
    theta = np.sqrt(np.ones(lanes) if independent else sigma2)[:, None] * (rng.normal(size=(lanes, p)) @ root.T) + [
        0.3,
        -0.2,
    ]
    cov = stats.invwishart.rvs(9.0, psi, size=lanes, random_state=rng)
    scale = np.array([2.0, 3.0, 5.0])[:, None] * np.linspace(1.0, 2.0, 6)
    grams, z, scales = [], [], []
    i, j = origin_places(p)
    for k, n in enumerate(RECORDS_BY_PARTY.astype(int)):
        x = np.einsum("lij,lnj->lni", np.linalg.cholesky(cov), rng.normal(size=(lanes, n, p)))
        y = np.einsum("lnj,lj->ln", x, theta) + np.sqrt(sigma2)[:, None] * rng.normal(size=(lanes, n))
        r = np.concatenate([x, y[..., None]], axis=-1)
        sums = np.einsum("lni,lnj->lij", r, r)
        w = rng.exponential(2.0, size=(lanes, 6)) if noise[k] == "laplace" else np.ones((lanes, 6))
        e = np.sqrt(w) * rng.normal(size=(lanes, 6)) * scale[k]
        # released in the party's own units
        z.append((sums[:, i, j] / (half[k][i] * half[k][j]) + e) / scale[k] * present[k])
        grams.append(sums[:, :p, :p])
        scales.append(w[:, 3:5])
    z = np.concatenate(z, axis=1).T
    n = np.full(lanes, RECORDS_BY_PARTY.sum())
    flat = np.where(present > 0, scale, 1.0).reshape(-1)[:, None]
    spread = lambda tree: jax.tree.map(
        lambda x: jnp.broadcast_to(jnp.asarray(x)[..., None], (*np.shape(x), lanes)), tree
    )
    law = jax.tree.map(lambda x: x.reshape(-1), Noise.of(noise[:, None], scale, present).in_units())
    numbers = (jnp.asarray(x, jnp.float32) for x in (z, n / flat, np.sqrt(n) / flat, n))
    observed = Observed(*numbers, *jax.tree.map(lambda x: x.astype(jnp.float32), spread((law, facts))))
    gram = np.stack(grams).transpose(2, 3, 0, 1)
    scales = np.stack(scales).transpose(2, 0, 1)
    f32 = lambda x: jnp.asarray(x, jnp.float32)
    coefficients = Coefficients(f32(theta.T), f32(sigma2), jnp.full(lanes, 0.2, jnp.float32), fold(f32(scales)))
    return spread(model), observed, coefficients, fold(f32(gram)), f32(cov.transpose(1, 2, 0))


@pytest.mark.slow
@pytest.mark.parametrize("independent", [True, False])
def test_theta_integrated_out(independent):
    """log p(z^ | S, sigma2) of all parties, by the whole covariance of z^, at two values of S."""
    model, observed, coefficients, gram, _ = joint_draw(independent, 2)
    with jax.enable_x64(True):
        wide = lambda tree: jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), tree)
        model, observed, coefficients, gram = wide((model, observed, coefficients, gram))
        base, seen, s2 = model.base, released_lanes(model, observed), coefficients.sigma2
        ours, exact = [], []
        for g in (gram, 1.3 * gram):
            root = root_of(seen, g, repeat_lanes(s2, 3), coefficients.scales)
            law = theta_law(base, seen, g, root, s2, 3)
            ours.append(np.asarray(log_marginal(base, seen, g, root, s2, law, 3))[0])
            s, w, k = (np.asarray(x)[..., ::2] for x in (g, coefficients.scales, seen.cross_seen))
            v, z = (np.asarray(x)[..., ::2] for x in (seen.cross_scale, seen.cross))
            stacked = np.concatenate([s[..., j] for j in range(3)])
            covariance = np.linalg.inv(base.theta_precision[..., 0]) * (1.0 if independent else float(s2[0]))
            total = stacked @ covariance @ stacked.T + np.diag((w * v**2).T.reshape(-1))
            for j in range(3):
                total[2 * j : 2 * j + 2, 2 * j : 2 * j + 2] += float(s2[0]) * s[..., j]
            keep = k.T.reshape(-1) > 0
            mean = stacked @ np.asarray(base.theta_mean)[:, 0]
            exact.append(stats.multivariate_normal.logpdf(z.T.reshape(-1)[keep], mean[keep], total[np.ix_(keep, keep)]))
    assert keep.sum() == 5 and abs((ours[0] - ours[1]) - (exact[0] - exact[1])) < 1e-5


def functionals(model, observed, coefficients, gram, covariance=None):
    """Numbers per lane that involve the release and every block of the state `[F, lanes]`."""
    wide = lambda tree: jax.tree.map(lambda x: np.asarray(x, np.float64), tree)
    seen, coefficients, gram = wide((released_lanes(model, observed), coefficients, gram))
    theta, sigma2 = coefficients.theta, coefficients.sigma2
    repeat = lambda x: np.tile(x, 3)
    residual = seen.cross_seen * (seen.cross - (gram * repeat(theta)[None]).sum(1))
    noise = seen.gram_seen * (seen.gram - gram) / seen.gram_scale
    white = residual / np.sqrt(seen.cross_scale**2 + repeat(sigma2) * gram[[0, 1], [0, 1]])
    last_first = np.moveaxis(gram, -1, 0)
    rows = [
        theta,
        theta[0] * theta[1],
        np.log(sigma2),
        np.sqrt(sigma2),
        np.log(coefficients.scales[:, seen.cross_noise.code[0] == seen.cross_noise.laws.index(LAPLACE)]),
    ]
    rows += [
        white**2,
        np.abs(residual / seen.cross_scale),
        np.abs(noise),
        np.log(gram[0, 0]),
        np.linalg.slogdet(last_first)[1],
    ]
    if covariance is not None:
        covariance = np.moveaxis(wide(covariance), -1, 0)
        inverse = np.tile(np.moveaxis(np.linalg.inv(covariance), 0, -1), 3)
        diagonal = np.sqrt(covariance[:, 0, 0] * covariance[:, 1, 1])
        rows += [(inverse * gram).sum((0, 1)), np.log(diagonal), covariance[:, 0, 1] / diagonal]
    return np.concatenate([x.reshape(-1, theta.shape[-1]) for x in rows])


def assert_unchanged(before, after, limit=4.2):
    change = after - before
    moved = change.std(axis=1)
    error = change.mean(axis=1) / (moved / np.sqrt(change.shape[1]) + 1e-12)
    assert np.isfinite(after).all() and np.abs(error).max() < limit, np.round(error, 1)


def iterated(step, keys, carry, count):
    def body(carry, k):
        return step(jax.vmap(lambda key: jax.random.fold_in(key, k))(keys), carry), None

    return jax.jit(lambda c: jax.lax.scan(body, c, jnp.arange(count, dtype=jnp.uint32))[0])(carry)


def threefry(lanes):
    return jax.random.split(jax.random.key(3, impl="threefry2x32"), lanes)


@pytest.mark.slow
@pytest.mark.parametrize(("independent", "joint"), [(True, True), (False, False)])
def test_normal_x_keeps_the_joint_law(independent, joint):
    lanes = 20_000
    model, observed, coefficients, gram, cov = joint_draw(independent, lanes)
    factor = jnp.moveaxis(jnp.linalg.cholesky(jnp.moveaxis(gram, -1, 0)), 0, -1)
    alpha = jnp.repeat(jnp.asarray([9.0, 14.0, 50.0], jnp.float32), lanes)
    both = jnp.full(lanes, 20.0, jnp.float32)
    state = party_gibbs.NormalXState(gram, factor, alpha, cov, both, coefficients)
    sampler, still = NormalX(moves=1 if joint else 2, joint=joint), jnp.zeros((), jnp.float32)
    step = lambda keys, carry: sampler.step_lanes(model, observed, keys, carry, still)[0]
    end = iterated(step, threefry(lanes), state, 6)
    before = functionals(model, observed, coefficients, gram, cov)
    assert np.array_equal(end.alpha, alpha) and np.array_equal(end.joint_alpha, both)
    np.testing.assert_allclose(jnp.einsum("ikb,jkb->ijb", end.factor, end.factor), end.gram, rtol=1e-4, atol=1e-3)
    assert_unchanged(before, functionals(model, observed, end.coefficients, end.gram, end.covariance))


@pytest.mark.slow
@pytest.mark.parametrize("independent", [True, False])
def test_fixed_s_keeps_the_joint_law(independent):
    """Given the true S, theta, sigma2 and the mixing variances have their posterior."""
    lanes = 40_000
    model, observed, coefficients, gram, _ = joint_draw(independent, lanes, seed=1)
    state = fixed_s.FixedState(gram, psd.square_root.lanes(gram), coefficients)
    sampler, still = FixedS(), jnp.zeros((), jnp.float32)
    step = lambda keys, carry: sampler.step_lanes(model, observed, keys, carry, still)[0]
    end = iterated(step, threefry(lanes), state, 6)
    before = functionals(model, observed, coefficients, gram)
    assert_unchanged(before, functionals(model, observed, end.coefficients, gram))


# ---- a posterior that is known -----------------------------------------------------------------------------------
def exact_posterior(fixed=False, square=False, draws=200_000):
    """Mean and sd of theta, and mean of sigma2, by importance sampling around the release (prior of `problem`)."""
    rng = np.random.default_rng(0)
    e = np.zeros((draws, 3)) if fixed else rng.normal(size=(draws, 3)) * NOISE
    s = np.broadcast_to(GRAM, (draws, 2, 2)).copy()
    s[:, 0, 0] -= e[:, 0]
    s[:, 1, 1] -= e[:, 2]
    s[:, 0, 1] -= e[:, 1]
    s[:, 1, 0] = s[:, 0, 1]
    sigma2 = 0.5 / rng.gamma(20.0, size=draws)
    z = CROSS - NOISE * rng.normal(size=(draws, 2)) * square
    m = sigma2[:, None, None] * s + (0.0 if square else NOISE**2) * np.eye(2)
    total = m + 38.0 * s @ s.transpose(0, 2, 1)
    log_det = lambda a: np.linalg.slogdet(a)[1]
    log_w = -0.5 * log_det(total) - 0.5 * np.einsum("ni,nij,nj->n", z, np.linalg.inv(total), z)
    if not fixed:
        log_w += 0.5 * (RECORDS - 3) * log_det(s) - 0.5 * (3 + RECORDS) * log_det(s + np.eye(2))
    if square:  # y'y - z' S^-1 z ~ sigma2 chi2(n - p)
        u = np.einsum("ni,nij,nj->n", z, np.linalg.inv(s), z) + sigma2 * rng.chisquare(RECORDS - 2, size=draws)
        log_w += stats.norm.logpdf(SQUARE, u, NOISE)
    w = np.exp(log_w - log_w.max())
    w /= w.sum()
    gain = s @ np.linalg.inv(m)
    v = np.linalg.inv(gain @ s + np.eye(2) / 38.0)
    centre = np.einsum("nij,njk,nk->ni", v, gain, z)
    mean = w @ centre
    spread = centre - mean
    var = np.einsum("n,nii->i", w, v) + w @ spread**2
    return mean, np.sqrt(var), w @ sigma2


def problem(reports=None, square=False):
    base = OriginRegression.create(
        2, theta_precision=1 / 38, sigma2_shape=20.0, sigma2_scale=0.5, psi=1.0, nu=3.0, independent=True
    )
    present = np.array([1.0, 1, 1, 1, 1, square])
    z = np.array([*GRAM[np.triu_indices(2)], *CROSS, SQUARE])
    made = party_problems(z[None, None], [float(RECORDS)], NOISE, base, "gaussian", present=present)
    return replace(made, model=replace(made.model, reports=reports))


def posterior(sampler, problems, draws=1000, chains=64, seed=1):
    run = run_chains(sampler, problems, seed=seed, chains=chains, draws=draws)
    return np.asarray(run.draws, np.float64)[0], run.names


def assert_posterior(draws, mean, sd, sigma2=None, tolerance=0.05):
    by_chain = draws.mean(axis=1)
    error = by_chain.std(axis=0, ddof=1) / np.sqrt(len(by_chain))
    # of the oracle: 200,000 draws of nearly equal weight
    assert (np.abs(by_chain.mean(axis=0)[:2] - mean) < 4.5 * error[:2] + sd / 50).all()
    np.testing.assert_allclose(draws[..., :2].std(axis=(0, 1)), sd, rtol=tolerance)
    if sigma2 is not None:
        assert abs(draws[..., 2].mean() / sigma2 - 1) < 0.03


NAMES = ("theta[1]", "theta[2]", "sigma2", "tau2[1,1]", "tau2[2,1]", "tau2[2,2]")


@pytest.mark.slow
def test_many_parties_on_two_devices():
    """In a process of its own: with batched LAPACK in the program it never ended (see test_package)."""
    script = """
import numpy as np
from dpjax.inference.run_method import run_method
from dpjax.models.regression.origin import OriginRegression
from dpjax.models.regression.problems import party_problems
z = np.broadcast_to(np.array([99.0, 1, 1, 1, 99, 1, 1, 99, 1, 99, 50, 50, 50, 50]), (100, 10, 14))
base = OriginRegression.create(
    4, theta_mean=np.zeros(4), theta_precision=np.eye(4), sigma2_shape=3.0, sigma2_scale=1.0, psi=np.eye(4), nu=9.0
)
problems = party_problems(z, np.full((100, 10), 300.0), np.full(z.shape, 5.0), base, "gaussian", squares=False)
run = run_method("fixed-s", problems, seed=1, chains=2, draws=4, thin=1, rerun=False, settings={"burn_in": 4})
assert np.isfinite(run.draws).all()
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
def test_normal_x_posterior():
    mean, sd, sigma2 = exact_posterior()
    draws, names = posterior(NormalX(burn_in=1000), problem())
    assert names == NAMES
    assert_posterior(draws, mean, sd, sigma2)
    # the published figures of this release, to their own accuracy
    np.testing.assert_allclose(sd, (0.0254, 0.0266), rtol=0.02)


@pytest.mark.slow
def test_fixed_s_posterior():
    mean, sd, sigma2 = exact_posterior(fixed=True)
    draws, names = posterior(FixedS(), problem(NAMES[:3]))
    assert names == NAMES[:3]
    assert_posterior(draws, mean, sd, sigma2)
    assert (sd < 0.9 * exact_posterior()[1]).all()  # it is too sure: docs/formulas.md#fixed-s


@pytest.mark.slow
def test_clt_posterior():
    """With and without y'y; the normal approximation is harmless at 1000 records."""
    for square in (False, True):
        mean, sd, sigma2 = exact_posterior(square=square)
        draws, _ = posterior(Clt(burn_in=1000), problem(square=square), draws=4000)
        assert_posterior(draws, mean, sd, sigma2, tolerance=0.08)


@pytest.mark.slow
def test_fixed_s_fast_posterior():
    """sigma2 = 1/9 by default, a variance (docs/formulas.md#residual-variance-third)."""
    for setting, sigma2 in ((None, 1 / 9), (0.03, 0.03)):
        draws, names = posterior(FixedSFast(setting), problem(NAMES[:2]))
        assert names == NAMES[:2]
        gain = GRAM @ np.linalg.inv(sigma2 * GRAM + NOISE**2 * np.eye(2))
        covariance = np.linalg.inv(gain @ GRAM + np.eye(2) / 38)
        assert_posterior(draws, covariance @ gain @ CROSS, np.sqrt(np.diag(covariance)), tolerance=0.02)
        assert abs(np.corrcoef(draws[:, :-1, 0].ravel(), draws[:, 1:, 0].ravel())[0, 1]) < 0.02


@pytest.mark.slow
def test_many_records_and_laplace_noise_in_64_bits():
    """3e6 records of two parties with Laplace noise: the engine keeps the statistics in 64 bits."""
    base = OriginRegression.create(2, theta_precision=0.5, psi=1.0, nu=5.0, independent=True)
    n, truth = np.array([1e6, 2e6]), np.array([0.5, -0.3])
    present = np.ones((2, 6))
    present[:, -1] = 0
    gram = np.array([[0.3, 0.1], [0.1, 0.2]])
    one = np.array([*gram[np.triu_indices(2)], *(gram @ truth), 0.0])
    problems = party_problems(n[None, :, None] * one, n, 5.0, base, "laplace", present=present)
    draws, _ = posterior(NormalX(burn_in=600), problems, draws=400, chains=8)
    sigma2 = draws[..., 2].mean()
    sd = np.sqrt(sigma2 / n.sum() * np.diag(np.linalg.inv(gram)))
    assert (np.abs(draws[..., :2].mean((0, 1)) - truth) < 0.5 * sd).all()
    np.testing.assert_allclose(draws[..., :2].std((0, 1)), sd, rtol=0.3)


def test_wrong_use_is_refused():
    base = LinearRegression.s0(1)
    wrong = party_problems(np.ones((1, 1, 5)), [100.0], 1.0, base, "gaussian")
    for sampler in (NormalX(), FixedS(), FixedSFast(), Clt()):
        with pytest.raises(InputError, match="intercept"):
            run_chains(sampler, wrong, seed=0, chains=2, draws=20)
    with pytest.raises(InputError, match="theta"):
        run_chains(FixedS(), problem(), seed=0, chains=2, draws=20)
    few = party_problems(np.ones((1, 2, 6)), [2.0, 1.0], 1.0, OriginRegression.create(2), "gaussian")
    with pytest.raises(InputError, match="at least 2 records"):
        METHODS["normal-x"].check(few)
    METHODS["collapsed"].check(few), METHODS["clt"].check(few)
    for bad in (lambda: NormalX(burn_in=-1), lambda: NormalX(moves=0), lambda: FixedSFast(sigma2=0.0)):
        with pytest.raises(InputError):
            bad()
