"""`collapsed` on the sums of parties against exact moments: prior draws of records, weighted by the noise's density."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.diagnostics.ranks import diagnose
from dpjax.engine.result_codes import OK
from dpjax.errors import InputError
from dpjax.inference.matrix_release import matrix_problems
from dpjax.inference.methods import METHODS
from dpjax.inference.run_method import run_method
from dpjax.mechanisms.matrix import InverseWishart, Wishart
from dpjax.models import LinearRegression, OriginRegression
from dpjax.models.regression.problems import party_problems
from dpjax.samplers.arrow import curvature_lanes, factor_lanes, force_lanes, velocity_lanes
from dpjax.samplers.party_hmc import PartyHmc
from tests.oracles import parties as oracle

COMMON = {"theta_mean": 0.4, "theta_precision": 1.2, "sigma2_shape": 8.0, "sigma2_scale": 2.0}
ORIGIN = OriginRegression.create(2, psi=[[4.0, 1.5], [1.5, 5.0]], nu=12.0, **COMMON)
CHUNK, CHUNKS = 50_000, 6
SETTINGS = {"chains": 8, "draws": 1000, "seed": 5, "rerun": False}


def _close(run, exact):
    """Means and variances of the one problem within 4.5 standard errors of both sides."""
    draws = run.draws[0].astype(np.float64)
    assert exact.draws > 2000
    for values, expected, error in (
        (draws, exact.mean, exact.mean_error),
        ((draws - draws.mean((0, 1))) ** 2, exact.variance, exact.variance_error),
    ):
        ess = diagnose(values[None], run.names).ess_bulk[0]
        own = values.std((0, 1)) / np.sqrt(ess)
        off = (values.mean((0, 1)) - expected) / np.hypot(own, error)
        assert (np.abs(off) < 4.5).all(), dict(zip(run.names, np.round(off, 2), strict=True))
    assert (run.codes == OK).all() and run.diagnostics.rhat.max() < 1.02


def _exact(base, log_noise, sizes, seed=0):
    """Weighted draws: parties of these sizes, log_noise(list of rows [N, n, q]) `[N]`."""
    rng = np.random.default_rng(seed)
    logs, parameters = [], []
    for _ in range(CHUNKS):
        drawn = oracle.prior_draws(rng, base, CHUNK)
        logs.append(log_noise([oracle.records(rng, base, n, *drawn) for n in sizes]))
        parameters.append(oracle.reported(*drawn, intercept=hasattr(base, "x_mean")))
    return oracle.weighted(np.concatenate(logs), np.concatenate(parameters))


def _gram(rows):
    return np.einsum("kni,knj->kij", rows, rows)


@pytest.mark.slow
def test_two_parties_of_unlike_noise_units_and_size():
    """n = 1 (singular sums), Laplace and all entries; n = 6, Gaussian, in other units and without y^2."""
    half = np.array([[1.0, 1.0, 1.0], [2.0, 0.5, 1.5]])
    places = [(0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)]
    z = np.array([[2.0, -1.5, 1.0, 3.0, -1.0, 4.0], [1.0, 4.0, 9.0, 2.0, 5.0, 0.0]])
    scale = np.array([[1.0, 1.5, 1.0, 1.2, 1.0, 2.0], [0.8, 3.0, 9.0, 1.5, 6.0, 1.0]])
    present = np.ones((2, 6))
    present[1, 5] = 0

    def log_noise(parties):
        log = 0.0
        for j, rows in enumerate(parties):
            gram = _gram(rows / half[j])
            for d, (a, b) in enumerate(places):
                if present[j, d]:
                    law = stats.laplace if j == 0 else stats.norm
                    log = log + law.logpdf(z[j, d], gram[:, a, b], scale[j, d])
        return log

    problems = party_problems(
        z[None], [1.0, 6.0], scale[None], ORIGIN, ["laplace", "gaussian"], half=half, present=present
    )
    run = run_method("collapsed", problems, **SETTINGS)
    assert run.names == ("theta[1]", "theta[2]", "sigma2", "tau2[1,1]", "tau2[2,1]", "tau2[2,2]")
    _close(run, _exact(ORIGIN, log_noise, (1, 6)))


@pytest.mark.slow
def test_parties_with_an_intercept_and_own_centres():
    base = LinearRegression.create(1, x_mean=0.2, kappa=1.5, psi=3.0, nu=10.0, **COMMON)
    half, centre = np.array([[1.0, 1.0], [0.5, 2.0]]), np.array([[0.0, 0.0], [0.3, -0.4]])
    places = [(0, 1), (1, 1), (0, 2), (1, 2), (2, 2)]
    z = np.array([[2.0, 3.0, 1.0, 2.0, 5.0], [4.0, 12.0, 2.0, 1.0, 2.0]])
    scale = np.array([[1.5, 1.5, 1.5, 1.5, 1.5], [4.0, 8.0, 1.0, 3.0, 1.0]])

    def log_noise(parties):
        log = 0.0
        for j, rows in enumerate(parties):
            rows = (rows - centre[j]) / half[j]
            gram = _gram(np.concatenate([np.ones((*rows.shape[:2], 1)), rows], 2))
            law = stats.norm if j == 0 else stats.laplace
            log = log + sum(law.logpdf(z[j, d], gram[:, a, b], scale[j, d]) for d, (a, b) in enumerate(places))
        return log

    problems = party_problems(z[None], [5.0, 3.0], scale[None], base, ["gaussian", "laplace"], half=half, centre=centre)
    _close(run_method("collapsed", problems, **SETTINGS), _exact(base, log_noise, (5, 3)))


@pytest.mark.slow
@pytest.mark.parametrize("inverse", [False, True])
def test_matrices_with_wishart_noise(inverse):
    """The released matrix has its own density given the Gram matrix; units are those of the row bound."""
    bound = 1.5
    mechanism = InverseWishart(bound, 9.0, 11, 3, "replace-one") if inverse else Wishart(bound, 7, 3, "replace-one")
    released = np.array([[14.0, 2.0, 6.0], [2.0, 20.0, -3.0], [6.0, -3.0, 26.0]]) * (0.15 if inverse else 1.5)
    density = jax.jit(jax.vmap(mechanism.log_density, (None, 0)))

    def log_noise(parties):
        return np.asarray(density(jnp.asarray(released), jnp.asarray(_gram(parties[0] * bound))), np.float64)

    run = run_method("collapsed", matrix_problems(released[None], 8, mechanism, ORIGIN), **SETTINGS)

    def safe(parties):  # matrices that additive noise cannot have led from have density 0
        log = log_noise(parties)
        return np.where(np.isfinite(log), log, -np.inf)

    _close(run, _exact(ORIGIN, safe, (8,)))


@pytest.mark.slow
def test_released_sums_of_a_thousand_records():
    """The fixed release of the acceptance list. Exact by importance sampling of S and sigma2, theta integrated out."""
    base = OriginRegression.create(2, theta_precision=1 / 38, independent=True, psi=1.0, nu=3.0)
    z = np.array([1030.0, 210.0, 980.0, 470.0, -170.0])
    problems = party_problems(z[None, None], [1000.0], 20.0, base, "gaussian", squares=False)
    run = run_method("collapsed", problems, **SETTINGS)
    rng = np.random.default_rng(0)
    count = 200_000
    a, b, c = z[:3, None] + 20 * rng.standard_normal((3, count))
    s = np.moveaxis(np.array([[a, b], [b, c]]), -1, 0)
    s2 = stats.invgamma(20, scale=0.5).rvs(count, random_state=rng)
    eye = np.eye(2)
    log = (1000 - 3) / 2 * np.linalg.slogdet(s)[1] - 1003 / 2 * np.linalg.slogdet(s + eye)[1]
    spread = 38 * s @ s + s2[:, None, None] * s + 400 * eye
    cross = z[3:]
    log += -0.5 * np.linalg.slogdet(spread)[1] - 0.5 * np.einsum("i,nij,j->n", cross, np.linalg.inv(spread), cross)
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    gain = s @ np.linalg.inv(s2[:, None, None] * s + 400 * eye)
    covariance = np.linalg.inv(gain @ s + eye / 38)
    means = np.einsum("nij,njk,k->ni", covariance, gain, cross)
    mean = weight @ means
    sd = np.sqrt(weight @ (np.diagonal(covariance, axis1=1, axis2=2) + (means - mean) ** 2))
    theta = run.draws[0, :, :, :2].astype(np.float64)
    np.testing.assert_allclose(mean, [0.5157, -0.2849], atol=2e-4)
    np.testing.assert_allclose(theta.mean((0, 1)), mean, atol=4 * 0.026 / np.sqrt(run.diagnostics.ess_bulk[0].min()))
    np.testing.assert_allclose(theta.std((0, 1)), sd, rtol=0.03)


@pytest.mark.slow
def test_the_arrow_is_the_metric():
    """M^{-1/2}' M M^{-1/2} = I with M written out from the whole Jacobian; two parties, two chains of two problems."""
    rng = np.random.default_rng(1)
    problems = party_problems(rng.normal(size=(2, 2, 6)) * 5, [30.0, 60.0], 3.0, ORIGIN, ["laplace", "gaussian"])
    last = lambda x: jnp.moveaxis(jnp.asarray(x, jnp.float32), 0, -1)
    model, observed = jax.tree.map(last, (problems.batched_model(), problems.observed()))
    lanes = model, observed = model.given(observed), observed
    x = jnp.asarray(rng.normal(size=(model.dim, 2)) * 0.3, jnp.float32)
    inner, latent, across = curvature_lanes(model, observed, x)
    eye = jnp.eye(6, dtype=jnp.float32)[..., None]
    prior = 2.0 * jnp.eye(model.base.dim, dtype=jnp.float32)[..., None]
    arrow = factor_lanes(model, inner + prior, latent + eye, across)
    for t in range(2):
        one = jax.tree.map(lambda leaf, t=t: leaf[..., t : t + 1], lanes)

        def sums(position, one=one):
            return (one[0].sums_lanes(position[:, None]) * one[0].information_lanes(position[:, None], one[1])).ravel()

        jacobian = np.asarray(jax.jacfwd(sums)(x[:, t]), np.float64)
        diagonal = np.r_[np.full(model.base.dim, 2.0), np.ones(12)]
        metric = jacobian.T @ jacobian + np.diag(diagonal)
        whole = jnp.eye(model.dim, dtype=jnp.float32)
        # direction i in chain i of problem t, zeros for the other problem
        u = jnp.zeros((model.dim, model.dim, 2), jnp.float32).at[..., t].set(whole).reshape(model.dim, -1)
        many = jax.tree.map(lambda leaf: jnp.tile(leaf, (1,) * (leaf.ndim - 1) + (model.dim,)), model)
        half = np.asarray(velocity_lanes(many, arrow, u), np.float64).reshape(model.dim, model.dim, 2)[..., t]
        np.testing.assert_allclose(half.T @ metric @ half, np.eye(model.dim), atol=3e-3)
        forced = np.asarray(force_lanes(many, arrow, u), np.float64).reshape(model.dim, model.dim, 2)[..., t]
        np.testing.assert_allclose(forced, half.T, atol=1e-5)


def test_settings():
    for wrong in (
        {"leapfrogs": 0},
        {"warmup": 90},
        {"warmup": 60},
        {"target": 1.0},
        {"jitter": 1.0},
        {"mode_steps": 1},
    ):
        with pytest.raises(InputError):
            PartyHmc(**wrong)
    assert PartyHmc().leapfrogs_for(12) == 4 and PartyHmc().leapfrogs_for(992) == 10
    assert PartyHmc(leapfrogs=3).leapfrogs_for(992) == 3


@pytest.mark.slow
def test_64_bits_where_sums_dwarf_the_noise():
    """Such sums are formed in 64 bits: the posterior does not widen."""
    base = OriginRegression.create(1, psi=1.0, nu=5.0)
    sums = np.array([[[1e6, 5e5, 3.5e5]]])
    fine, rough = (party_problems(sums, [1e6], scale, base, "gaussian") for scale in (1.0, 1e3))
    assert METHODS["collapsed"].check(fine).float64 and not METHODS["collapsed"].check(rough).float64
    run = run_method("collapsed", fine, chains=4, draws=500, seed=1)
    sd = np.sqrt(1e-6 * 0.1)  # of theta given 10^6 records with x^2 of mean 1, residual variance .1
    np.testing.assert_allclose(run.draws[0, ..., 0].std(), sd, rtol=0.1)
