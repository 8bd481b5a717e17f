"""Parties with feature laws of their own (`OwnPartySums`): densities, posterior against weighted draws, coverage."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import dpjax
from dpjax.diagnostics.ranks import diagnose
from dpjax.engine.result_codes import OK
from dpjax.errors import InputError
from dpjax.inference.methods import METHODS
from dpjax.inference.run_method import run_method
from dpjax.models import LinearRegression, OriginRegression, OwnPartySums, PartySums
from dpjax.models.regression.problems import party_problems
from dpjax.releases.parties import gather
from dpjax.releases.release import Release
from dpjax.statistics.base import SCALING
from dpjax.statistics.regression import RegressionStatistic
from tests.oracles import parties as oracle

COMMON = {"theta_mean": 0.4, "theta_precision": 1.2, "sigma2_shape": 8.0, "sigma2_scale": 2.0}
LINE = LinearRegression.create(1, x_mean=0.2, kappa=1.5, psi=3.0, nu=10.0, **COMMON)
PLANE = LinearRegression.create(2, x_mean=[0.2, -0.1], kappa=1.5, psi=[[4.0, 1.5], [1.5, 5.0]], nu=12.0, **COMMON)
ORIGIN = OriginRegression.create(2, psi=[[4.0, 1.5], [1.5, 5.0]], nu=12.0, **COMMON)
SHAPE = {"chains": 4, "draws": 1000}
THETA, SIGMA2 = np.array([0.1, 0.5]), 0.04
MEANS, SDS = (-0.4, 0.3), (0.15, 0.25)


def problems(base, own=True, seed=0, parties=2, **more):
    rng = np.random.default_rng(seed)
    q = base.p + 1
    z = rng.normal(size=(1, parties, base.statistic_dim)) * 5
    units = {"half": rng.uniform(0.5, 2, (parties, q))}
    if isinstance(base, LinearRegression):
        units["centre"] = rng.normal(size=(parties, q)) * 0.3
    return party_problems(
        z,
        [30.0, 60.0, 4.0][:parties],
        3.0,
        base,
        ["laplace", "gaussian", "laplace"][:parties],
        own=own,
        **units,
        **more,
    )


def lanes_of(found, count, seed=1):
    """The one problem as lanes, and positions near the centre `[P, count]`."""
    last = lambda x: jnp.moveaxis(jnp.repeat(jnp.asarray(x, jnp.float32), count, 0), 0, -1)
    model, observed = jax.tree.map(last, (found.batched_model(), found.observed()))
    x = jnp.asarray(np.random.default_rng(seed).normal(size=(model.dim, count)) * 0.3, jnp.float32)
    return model.given(observed), observed, x


# ---- density -----------------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("base", [PLANE, pytest.param(ORIGIN, marks=pytest.mark.slow)], ids=["intercept", "origin"])
def test_gradient_is_the_derivative(base):
    model, observed, x = lanes_of(problems(base, parties=3), 4)
    density = jax.jit(lambda y: model.log_density_and_grad_lanes(y, None, observed))
    _, gradient = density(x)
    expected = jax.jit(jax.grad(lambda y: model.log_density_and_grad_lanes(y, None, observed)[0].sum()))(x)
    np.testing.assert_allclose(gradient, expected, rtol=2e-3, atol=2e-2)
    assert model.shared_dim + 3 * (model.features_dim + model.latent_dim) == model.dim == x.shape[0]


@pytest.mark.slow
def test_precisions_are_those_of_the_prior():
    """Minus the second derivative of the log prior at its centre, by automatic differentiation."""
    model, _, _ = lanes_of(problems(PLANE), 1)
    one = jax.tree.map(lambda leaf: leaf[..., 0], model)
    hessian = -np.asarray(
        jax.jit(jax.hessian(lambda x: model.parameter_prior_lanes(x[:, None])[0][0]))(one.prior_center())
    )
    k, f = model.shared_dim, model.features_dim
    np.testing.assert_allclose(one.prior_precision(), hessian[:k, :k], rtol=2e-3, atol=2e-2)
    own = np.asarray(one.own_precision())
    np.testing.assert_allclose(own[:f, :f], hessian[k : k + f, k : k + f], rtol=2e-3, atol=2e-2)
    np.testing.assert_array_equal(own[f:, f:], np.eye(model.latent_dim))


@pytest.mark.slow
@pytest.mark.parametrize("base", [pytest.param(PLANE, marks=pytest.mark.slow), ORIGIN], ids=["intercept", "origin"])
def test_with_one_party_it_is_the_shared_model(base):
    """The same density at the same parameters and latent variables, up to a constant."""
    own, observed, x = lanes_of(problems(base, parties=1), 3)
    shared = lanes_of(problems(base, own=False, parties=1), 3)[0]
    phi = own.joined(x[: own.shared_dim], x[own.shared_dim : base.dim])
    y = jnp.concatenate([phi, x[base.dim :]])
    value = jax.jit(lambda model, v: (model.sums_lanes(v), model.log_density_and_grad_lanes(v, None, observed)[0]))
    (sums, density), (expected, other) = value(own, x), value(shared, y)
    np.testing.assert_allclose(sums, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose((density - other)[1:], (density - other)[0], atol=2e-2)


@pytest.mark.slow
@pytest.mark.parametrize("base", [PLANE, ORIGIN], ids=["intercept", "origin"])
def test_a_draw_of_the_parameters_keeps_the_sums(base):
    model, _, x = lanes_of(problems(base, parties=3), 50)
    rng = np.random.default_rng(3)
    normals, uniforms = (
        jnp.asarray(draw((size, 50)), jnp.float32)
        for draw, size in zip((rng.standard_normal, rng.random), model.conjugate_randoms, strict=True)
    )
    keys = jax.random.split(jax.random.key(0), 50)
    fresh = jax.jit(lambda y: model.refresh_lanes(y, keys, normals, uniforms))(x)
    k = model.shared_dim
    assert (np.abs(np.asarray(fresh - x)[:k]) > 1e-6).all()
    before, after = (np.asarray(jax.jit(model.sums_lanes)(v)) for v in (x, fresh))
    np.testing.assert_allclose(after, before, rtol=3e-3, atol=3e-3 * np.abs(before).max())
    # parties draw numbers of their own
    first, second = (
        np.asarray(fresh[k : k + model.own_dim]),
        np.asarray(fresh[k + model.own_dim : k + 2 * model.own_dim]),
    )
    assert abs(np.corrcoef(first[0], second[0])[0, 1]) < 0.5


# ---- posterior ---------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_posterior_is_that_of_weighted_draws():
    """Two parties of 5 and 3 records in units of their own, Gaussian and Laplace noise; records drawn one by one, each
    party's mean and covariance from the prior anew."""
    half, centre = np.array([[1.0, 1.0], [0.5, 2.0]]), np.array([[0.0, 0.0], [0.3, -0.4]])
    places = [(0, 1), (1, 1), (0, 2), (1, 2), (2, 2)]
    z = np.array([[2.0, 3.0, 1.0, 2.0, 5.0], [4.0, 12.0, 2.0, 1.0, 2.0]])
    scale = np.array([[1.5, 1.5, 1.5, 1.5, 1.5], [4.0, 8.0, 1.0, 3.0, 1.0]])
    rng = np.random.default_rng(0)
    logs, parameters = [], []
    for _ in range(6):
        theta, sigma2, mean, factor = oracle.prior_draws(rng, LINE, 50_000)
        other = oracle.prior_draws(rng, LINE, 50_000)[2:]
        log = 0.0
        for j, (n, law) in enumerate(((5, stats.norm), (3, stats.laplace))):
            rows = oracle.records(rng, LINE, n, theta, sigma2, *((mean, factor), other)[j])
            rows = (rows - centre[j]) / half[j]
            gram = np.concatenate([np.ones((*rows.shape[:2], 1)), rows], 2)
            gram = np.einsum("kni,knj->kij", gram, gram)
            log = log + sum(law.logpdf(z[j, d], gram[:, a, b], scale[j, d]) for d, (a, b) in enumerate(places))
        logs.append(log)
        parameters.append(np.c_[theta, sigma2])
    exact = oracle.weighted(np.concatenate(logs), np.concatenate(parameters))
    assert exact.draws > 2000
    found = party_problems(
        z[None], [5.0, 3.0], scale[None], LINE, ["gaussian", "laplace"], half=half, centre=centre, own=True
    )
    run = run_method("collapsed", found, seed=5, rerun=False, **SHAPE)
    assert run.names == ("theta[0]", "theta[1]", "sigma2") and (run.codes == OK).all()
    assert run.diagnostics.rhat.max() < 1.02
    draws = run.draws[0].astype(np.float64)
    for values, expected, error in (
        (draws, exact.mean, exact.mean_error),
        ((draws - draws.mean((0, 1))) ** 2, exact.variance, exact.variance_error),
    ):
        own = values.std((0, 1)) / np.sqrt(diagnose(values[None], run.names).ess_bulk[0])
        off = (values.mean((0, 1)) - expected) / np.hypot(own, error)
        assert (np.abs(off) < 4.5).all(), dict(zip(run.names, np.round(off, 2), strict=True))


def simulated(seed, means=MEANS, sds=SDS, theta=(THETA, THETA), n=(2000, 1000), scale=5.0):
    """Releases of parties whose one feature has a mean and spread of its own, within [-1, 1]."""
    rng = np.random.default_rng(seed)
    statistic = RegressionStatistic(("x",), "y", {"x": (-1, 1), "y": (-1, 1)}, SCALING)
    out = []
    for size, mean, sd, own in zip(n, means, sds, theta, strict=True):
        x = rng.normal(mean, sd, size)
        y = own[0] + own[1] * x + np.sqrt(SIGMA2) * rng.normal(size=size)
        sums = np.array([x.sum(), (x * x).sum(), y.sum(), (x * y).sum(), (y * y).sum()])
        z = sums + scale * rng.laplace(size=5)
        out.append(Release(statistic, size, dict(zip(statistic.names, z.tolist(), strict=True)), "laplace", scale, None,
                           simulated=True))  # fmt: skip
    return out


def many(count, base, own, **settings):
    found = [gather(simulated(seed, **settings)) for seed in range(count)]
    stack = lambda name: np.array([getattr(one, name) for one in found])
    return party_problems(stack("z"), found[0].records, stack("scale"), base, "laplace", own=own)


@pytest.mark.slow
def test_intervals_hold_the_truth():
    """150 releases of one truth, parties unlike each other; half a percent of the coverages lie outside."""
    run = run_method("collapsed", many(150, LinearRegression.weak(1), True), seed=2, chains=2, draws=500)
    assert run.diagnostics.rhat.max() < 1.05
    low, high = np.quantile(run.draws.reshape(150, -1, 3), [0.05, 0.95], axis=1)
    truth = np.r_[THETA, SIGMA2]
    held = ((low < truth) & (truth < high)).sum(0)
    assert (held >= stats.binom.ppf(0.0025, 150, 0.9)).all() and (held <= stats.binom.ppf(0.9975, 150, 0.9)).all(), held
    # and they are no wider than what the sums of both parties tell
    sd = run.draws.reshape(150, -1, 3).std(1).mean(0)
    assert sd[1] < 0.08


@pytest.mark.slow
def test_at_equal_parties_both_models_agree():
    equal = {"means": (0.1, 0.1), "sds": (0.2, 0.2), "scale": 1.0}
    base = LinearRegression.weak(1)
    own, shared = (run_method("collapsed", many(8, base, kind, **equal), seed=3, **SHAPE) for kind in (True, False))
    for k in range(3):
        a, b = own.draws[..., k], shared.draws[..., k]
        sd = b.std((1, 2))
        # noise on the features' sums counts a little differently; Monte Carlo error is 2-3% of an sd
        assert (np.abs(a.mean((1, 2)) - b.mean((1, 2))) < 0.35 * sd).all()
        np.testing.assert_allclose(a.std((1, 2)), sd, rtol=0.2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dpjax.errors.ConvergenceWarning")
def test_fit_offers_it_and_the_shared_model_says_where_it_is_wrong(tmp_path):
    releases = simulated(1)
    own = dpjax.fit(releases, parties="own", **SHAPE)
    assert own.warnings() == [] and own.summary()["converged"] and own.agreement["regression"] > 0.001
    found = own.summary()["parameters"]
    assert list(found) == ["theta[0]", "theta[1]", "sigma2"]
    assert abs(found["theta[1]"]["mean"] - THETA[1]) < 4 * found["theta[1]"]["sd"] < 0.4
    assert "a mean and a covariance of their own" in own.table() and "their regressions: p = " in own.table()
    own.save(tmp_path / "own.nc")
    again = dpjax.load_posterior(tmp_path / "own.nc").predict({"x": [0.2]})
    np.testing.assert_allclose(again.mean, THETA[0] + 0.2 * THETA[1], atol=0.1)

    shared = dpjax.fit(releases, **SHAPE)
    summary = shared.summary()
    assert summary["agreement"]["records"] < 0.001 and not summary["converged"] and not shared.rerun
    assert "--parties own" in shared.doubts[0] and shared.warnings()[0] == shared.doubts[0]
    assert not any("run more draws" in sentence for sentence in shared.warnings())
    assert (shared.diagnostics.rhat < 1.05).all()


def test_what_is_refused():
    with pytest.raises(InputError, match="parties must be 'shared' or 'own', got 'each'"):
        dpjax.fit(simulated(0), parties="each")
    for method in ("normal-x", "clt", "fixed-s"):
        with pytest.raises(InputError, match="share the law of their features"):
            METHODS[method].check(problems(ORIGIN))
    assert isinstance(problems(LINE).model, OwnPartySums) and type(problems(LINE, own=False).model) is PartySums


@pytest.mark.slow
def test_naive_takes_the_sums_for_exact():
    """Normal-inverse-gamma posterior of all sums together, whatever the parties' features."""
    rng = np.random.default_rng(4)
    z, gram, total = [], np.zeros((3, 3)), 0
    for n, mean in ((400, -0.5), (300, 0.6)):
        x = rng.normal(mean, 0.3, n)
        y = 0.2 + 0.5 * x + 0.2 * rng.normal(size=n)
        rows = np.c_[np.ones(n), x, y]
        m = rows.T @ rows
        gram, total = gram + m, total + n
        z.append([m[0, 1], m[1, 1], m[0, 2], m[1, 2], m[2, 2]])
    found = party_problems(np.array(z)[None], [400.0, 300.0], 1.0, LINE, "gaussian", own=True)
    run = run_method("naive", found, seed=1, **SHAPE)
    precision = gram[:2, :2] + 1.2 * np.eye(2)
    mean = np.linalg.solve(precision, gram[:2, 2] + 1.2 * 0.4)
    rest = 2.0 + 0.5 * (gram[2, 2] + 1.2 * 2 * 0.16 - mean @ precision @ mean)
    sd = np.sqrt(np.diag(np.linalg.inv(precision)) * rest / (8 + total / 2))
    draws = run.draws[0].reshape(-1, 3).astype(np.float64)
    np.testing.assert_allclose(draws.mean(0)[:2], mean, atol=4.5 * sd.max() / np.sqrt(len(draws)))
    np.testing.assert_allclose(draws.std(0)[:2], sd, rtol=0.06)
