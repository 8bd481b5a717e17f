"""The default prior of regressions: density and coordinates against autodiff and quadrature, posteriors against an
independent reference, coverage where the conjugate default fails."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from dpjax.engine.lane_model import jacobian_of_lanes
from dpjax.engine.model import Model, Observed
from dpjax.engine.problems import Problems
from dpjax.errors import InputError
from dpjax.inference.fit import inferred_model
from dpjax.inference.prior_predictive import prior_predictive_p
from dpjax.inference.run_method import run_method
from dpjax.models import LinearRegression, WeakRegression, model_for
from dpjax.models.regression.weak import EXPLAINED_EDGE, RESIDUAL_EDGE, SD_LEVEL
from dpjax.statistics.kinds import make_statistic

LANES = 6


def lanes(p, turns=1.0):
    """Model over lanes, positions away from the canonical ones if turns > 1, data and noise variances, in 64 bits."""
    model = WeakRegression.create(p, dtype=jnp.float64)
    key = jax.random.key(p)
    phi = turns * jax.vmap(model.sample_prior)(jax.random.split(key, LANES)).T
    many = jax.tree.map(lambda x: jnp.broadcast_to(x[..., None], (*x.shape, LANES)), model)
    size = (model.statistic_dim, LANES)
    n, b = 100.0, 5.0
    one = jnp.ones(size, jnp.float64)
    z = jax.random.normal(key, size, jnp.float64)
    observed = Observed(z, one * n / b, one * n**0.5 / b, jnp.full(LANES, n, jnp.float64))
    return many, phi, observed, 1.3 * one


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 2, 3])
def test_gradient_and_jacobian(p):
    with jax.enable_x64(True):
        model, phi, observed, w = lanes(p, 2.5)
        value, gradient = jax.jit(lambda *a: model.log_density_and_grad_lanes(*a))(phi, w, observed)
        plain, automatic = jax.jit(lambda *a: Model.log_density_and_grad_lanes(model, *a))(phi, w, observed)
        np.testing.assert_allclose(value, plain, rtol=1e-12)
        np.testing.assert_allclose(gradient, automatic, rtol=1e-9, atol=1e-9 * np.abs(automatic).max())
        by_hand = model.mean_jacobian_lanes(phi)
        np.testing.assert_allclose(by_hand, jacobian_of_lanes(lambda x: model.moments_lanes(x)[0], phi), atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 2, 4])
def test_canonical_positions_mean_the_same(p):
    with jax.enable_x64(True):
        model, phi, _, _ = lanes(p, 4.0)
        there = model.canonical_lanes(phi)
        q = p + 1
        assert (there[q : 2 * q] >= 0).all() and (jnp.abs(there[2 * q :]) <= np.pi / 2 + 1e-12).all()
        np.testing.assert_allclose(model.record_lanes(there)[2], model.record_lanes(phi)[2], atol=1e-12)
        np.testing.assert_allclose(model.log_prior_lanes(there), model.log_prior_lanes(phi), rtol=1e-12)
        np.testing.assert_allclose(model.canonical_lanes(there), there, atol=1e-14)


@pytest.mark.slow
def test_report_is_that_of_the_covariance():
    with jax.enable_x64(True):
        model, phi, _, _ = lanes(2)
        m, _, c = (np.asarray(x)[..., 0] for x in model.record_lanes(phi))
        beta = np.linalg.solve(c[:2, :2], c[:2, 2])
        wanted = [m[2] - m[:2] @ beta, *beta, c[2, 2] - c[2, :2] @ beta, *m[:2], c[0, 0], c[1, 0], c[1, 1]]
        np.testing.assert_allclose(model.report_lanes(phi)[:, 0], wanted, rtol=1e-10)


def summaries(model, draws):
    """Means, deviations, R^2 and the features' correlations of prior draws `[N, P]`."""
    p = model.p
    m, _, c = (np.moveaxis(np.asarray(x, np.float64), -1, 0) for x in jax.jit(batched_record)(model, draws))
    sd = np.sqrt(np.diagonal(c, axis1=1, axis2=2))
    beta = np.linalg.solve(c[:, :p, :p], c[:, :p, p:])[..., 0]
    return m, sd, (beta * c[:, :p, p]).sum(1) / c[:, p, p], c / (sd[:, :, None] * sd[:, None])


def batched_record(model, draws):
    many = jax.tree.map(lambda x: jnp.broadcast_to(x[..., None], (*x.shape, len(draws))), model)
    return many.record_lanes(draws.T)


def cdf(density, high):
    total = integrate.quad(density, 0, high, limit=200)[0]
    return lambda x: np.array([integrate.quad(density, 0, v, limit=200)[0] / total for v in np.atleast_1d(x)])


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 3])
def test_prior_draws_have_the_stated_laws(p):
    model = WeakRegression.create(p)
    draws = jax.vmap(model.sample_prior)(jax.random.split(jax.random.key(2), 4000))
    m, sd, explained, correlation = summaries(model, draws)
    assert stats.kstest(m[:, 0] / 0.75, "norm").pvalue > 0.001
    of_sd = cdf(lambda s: ((s / 0.6) ** 2 + SD_LEVEL**2) ** 0.25 * np.exp(-0.5 * (s / 0.6) ** 2), 6.0)
    of_r2 = cdf(
        lambda r: r ** (0.5 * p - 1) * (r + EXPLAINED_EDGE) ** (0.5 - 0.5 * p)
        * (1 - r) ** -0.5 * (1 - r + RESIDUAL_EDGE) ** 0.25,
        1.0,
    )  # fmt: skip
    points = np.array([0.05, 0.2, 0.4, 0.6, 0.8, 0.95])
    for law, values in ((of_sd, sd[:, -1]), (of_r2, explained)):
        at = np.quantile(values, points)
        np.testing.assert_allclose(law(at), points, atol=4 * np.sqrt(0.25 / 4000))
    if p == 3:  # a correlation under LKJ(1) in three dimensions: (1 + r) / 2 ~ Beta(3/2, 3/2)
        assert stats.kstest(0.5 + 0.5 * correlation[:, 1, 0], stats.beta(1.5, 1.5).cdf).pvalue > 0.001


@pytest.mark.slow
def test_posterior_of_nothing_is_the_prior():
    """With noise that hides the sums the sampler must give back the law that prior draws come from."""
    model = WeakRegression.create(2)
    z = np.zeros((24, model.statistic_dim))
    run = run_method("collapsed", Problems(z, np.full(24, 10.0), np.full(z.shape, 1e6), model, "laplace"), seed=3)
    draws = run.draws.reshape(-1, len(run.names))
    prior = np.asarray(
        jax.vmap(lambda k: model.report(model.sample_prior(k)))(jax.random.split(jax.random.key(0), 20000))
    )
    ess = np.minimum(run.diagnostics.ess_bulk, run.diagnostics.ess_tail).sum(0)
    for level in (0.05, 0.25, 0.5, 0.75, 0.95):
        below = (draws <= np.quantile(prior, level, axis=0)).mean(0)
        error = np.sqrt(level * (1 - level) * (1 / ess + 1 / 20000))
        assert (np.abs(below - level) < 4.5 * error).all(), (level, run.names, (below - level) / error)


# ---- as the default ---------------------------------------------------------------------------------------------
def statistic(scaling=...):
    return make_statistic(
        "linear-regression", features=["a"], target="y", bounds={"a": (0, 10), "y": (-5, 5)}, scaling=scaling
    )


def test_which_prior_is_the_default():
    assert isinstance(inferred_model(statistic()), WeakRegression)
    assert isinstance(inferred_model(statistic(), method="collapsed"), WeakRegression)
    assert isinstance(inferred_model(statistic(), method="gibbs"), LinearRegression)
    assert isinstance(inferred_model(statistic(), {"sigma2_shape": 5.0}), LinearRegression)
    weak = inferred_model(statistic(), {"kind": "weak", "sd_power": 1.0})
    assert isinstance(weak, WeakRegression) and float(weak.sd_power) == 1.0
    problems = Problems(np.zeros((1, 5)), np.array([10.0]), np.ones((1, 5)), weak, "laplace")
    with pytest.raises(InputError, match="conjugate"):
        run_method("gibbs", problems, seed=0)


def test_default_in_raw_units_is_over_the_bounds():
    raw = model_for(statistic(scaling=None))
    np.testing.assert_allclose(raw.mean, [5.0, 0.0])
    np.testing.assert_allclose(raw.mean_sd, [3.75, 3.75])
    np.testing.assert_allclose(raw.sd_scale, [3.0, 3.0])


@pytest.mark.parametrize(
    ("prior", "word"),
    [
        ({"kind": "weak", "sd_scale": -1.0}, "sd_scale"),
        ({"kind": "weak", "mean": [0.0]}, "mean"),
        ({"kind": "weak", "psi": 1.0}, "psi"),
        ({"kind": "weak", "covariates": {"nu": 3.0}}, "covariates"),
        ({"kind": "strong"}, "kind"),
    ],
)
def test_bad_hyperparameters(prior, word):
    with pytest.raises(InputError, match=word):
        inferred_model(statistic(), prior)


def narrow_table(releases, epsilon=1.0, seed=4):
    """Released sums of a table whose features fill a twentieth of their bounds, and its own slopes."""
    rng = np.random.default_rng(seed)
    a, b = 0.55 + 0.04 * rng.normal(size=6719), -0.3 + 0.05 * rng.normal(size=6719)
    y = 0.2 + 1.5 * (a - 0.55) - (b + 0.3) + 0.35 * rng.normal(size=6719)
    s = np.array([v.sum() for v in (a, b, a * a, a * b, b * b, y, a * y, b * y, y * y)])
    slopes = np.linalg.lstsq(np.column_stack([np.ones(6719), a, b]), y, rcond=None)[0]
    scale = np.full((releases, 9), 9.375 / epsilon)
    return s + scale * rng.laplace(size=scale.shape), np.full(releases, 6719.0), scale, slopes


@pytest.mark.slow
def test_coverage_where_features_fill_little_of_their_bounds():
    z, n, scale, slopes = narrow_table(40, 10.0)
    held = {}
    for name, model in (("weak", WeakRegression.create(2)), ("conjugate", LinearRegression.weak(2))):
        run = run_method("collapsed", Problems(z, n, scale, model, "laplace"), seed=1)
        low, high = np.quantile(run.draws.reshape(40, -1, 9)[..., :3], [0.05, 0.95], axis=1)
        held[name] = ((low <= slopes) & (slopes <= high)).mean(0)
    assert (held["weak"] > 0.75).all() and (held["conjugate"] < 0.3).all()


@pytest.mark.slow
def test_conflict_of_prior_and_release():
    z, n, scale, _ = narrow_table(1, 10.0)
    fits, conflicts = (
        prior_predictive_p(Problems(z, n, scale, model, "laplace"), 1)[1]
        for model in (WeakRegression.create(2), LinearRegression.weak(2))
    )
    assert fits > 0.01 and conflicts < 0.002


@pytest.mark.slow
def test_conflict_is_rare_where_there_is_none():
    model, rng, p = LinearRegression.weak(1), np.random.default_rng(0), []
    for i in range(60):
        key = jax.random.key(i)
        s = np.asarray(model.simulate(key, model.sample_prior(jax.random.fold_in(key, 1)), jnp.float32(500))[0], float)
        z = (s + 5.0 * rng.laplace(size=5))[None]
        p.append(prior_predictive_p(Problems(z, np.array([500.0]), np.full((1, 5), 5.0), model, "laplace"), i)[1])
    assert stats.kstest(p, "uniform").pvalue > 0.001
