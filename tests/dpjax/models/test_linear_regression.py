"""The regression model: closed forms against derivatives, simulation and the generic code of the base class."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.errors import InputError
from dpjax.models import LinearRegression, Model, Observed

FEATURES = [1, 2, 5]
# compiled once per size, whatever test asks
draw_prior = jax.jit(lambda model, keys: jax.vmap(model.sample_prior)(keys))
moments = jax.jit(lambda model, phi: model.moments(phi))
simulate = jax.jit(lambda model, keys, phi, n: jax.vmap(lambda k, m: model.simulate(k, phi, m)[0])(keys, n))


@pytest.fixture
def x64():
    """64-bit mode for one test."""
    with jax.enable_x64(True):
        yield


def prior(p, dtype=jnp.float64, seed=0):
    """A prior with nothing at zero or proportional to the identity."""
    rng = np.random.default_rng(seed + p)
    a, c = rng.normal(size=(p, p)), rng.normal(size=(p + 1, p + 1))
    return LinearRegression.create(
        p,
        theta_mean=rng.normal(size=p + 1),
        theta_precision=c @ c.T + np.eye(p + 1),
        sigma2_shape=rng.uniform(3, 20),
        sigma2_scale=rng.uniform(0.3, 2),
        x_mean=0.3 * rng.normal(size=p),
        kappa=rng.uniform(0.5, 3),
        psi=a @ a.T + np.eye(p),
        nu=p + rng.uniform(2, 9),
        dtype=dtype,
    )


def case(p, dtype=jnp.float64, seed=0):
    """Prior, parameters, observation and noise variances of one problem."""
    model = prior(p, dtype, seed)
    phi = draw_prior(model, jax.random.key(seed + 1)[None])[0]
    rng = np.random.default_rng(seed + 2)
    b, n = np.linspace(3.0, 5.0, model.dim), 100.0
    z = np.asarray(moments(model, phi)[0], np.float64) * n / b + 3.0 * rng.normal(size=model.dim)
    observed = Observed(
        jnp.asarray(z, dtype), jnp.asarray(n / b, dtype), jnp.asarray(n**0.5 / b, dtype), jnp.asarray(n, dtype)
    )
    return model, phi, observed, jnp.asarray(rng.uniform(0.5, 3, model.dim), dtype)


def to_lanes(tree):
    return jax.tree.map(lambda x: x[..., None], tree)


def log_density(model, observed, w):
    def f(phi):
        mean, covariance = model.moments(phi)
        root = observed.root_n_over_b
        r = observed.z - observed.n_over_b * mean
        a = covariance * root[:, None] * root[None] + jnp.diag(w)
        return model.log_prior(phi) - 0.5 * jnp.linalg.slogdet(a)[1] - 0.5 * r @ jnp.linalg.solve(a, r)

    return f


@pytest.mark.slow
@pytest.mark.parametrize("p", FEATURES)
def test_prior_precision_is_minus_the_hessian(p, x64):
    model = prior(p)
    precision, hessian = jax.jit(lambda m: (m.prior_precision(), jax.hessian(m.log_prior)(m.prior_center())))(model)
    np.testing.assert_allclose(precision, -hessian, rtol=1e-9, atol=1e-8)
    assert np.linalg.eigvalsh(precision)[0] > 0


@pytest.mark.slow
@pytest.mark.parametrize("p", FEATURES)
def test_mean_jacobian(p, x64):
    model, phi, _, _ = case(p)
    closed = jax.jit(lambda m, x: to_lanes(m).mean_jacobian_lanes(x[:, None])[..., 0])(model, phi)
    automatic = jax.jit(jax.jacfwd(lambda x: model.moments(x)[0]))(phi)
    np.testing.assert_allclose(closed, automatic, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("p", FEATURES)
def test_density_and_gradient(p, x64):
    """The closed form, the generic code of the base class and automatic differentiation, at two points each."""
    closed = jax.jit(lambda m, x, w, o: m.log_density_and_grad_lanes(x, w, o))
    generic = jax.jit(lambda m, x, w, o: Model.log_density_and_grad_lanes(m, x, w, o))
    automatic = jax.jit(lambda m, x, w, o: jax.value_and_grad(log_density(m, o, w))(x))
    for seed in (0, 1):
        model, phi, observed, w = case(p, seed=seed)
        lanes = to_lanes((model, phi, w, observed))
        value, gradient = automatic(model, phi, w, observed)
        for f in (closed, generic):
            result = f(*lanes)
            np.testing.assert_allclose(result[0][0], value, rtol=1e-10)
            np.testing.assert_allclose(result[1][:, 0], gradient, rtol=0, atol=1e-10 * np.abs(gradient).max())


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 4])
def test_float32_density_and_gradient(p):
    model, phi, observed, w = case(p, jnp.float32)
    lanes = to_lanes((model, observed, w))
    value, gradient = jax.jit(lambda m, x, w, o: m.log_density_and_grad_lanes(x, w, o))(
        lanes[0], phi[:, None], lanes[2], lanes[1]
    )
    assert value.dtype == gradient.dtype == jnp.float32
    with jax.enable_x64(True):
        high = jax.tree.map(lambda x: x.astype(jnp.float64), (model, observed, w, phi))
        f = log_density(high[0], high[1], high[2])
        exact_value, exact = jax.jit(jax.value_and_grad(f))(high[3])
    np.testing.assert_allclose(value[0], exact_value, rtol=1e-4)
    np.testing.assert_allclose(gradient[:, 0], exact, atol=1e-3 * float(np.abs(exact).max()))


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 3])
def test_simulated_statistics_have_the_moments(p, x64):
    model, phi, _, _ = case(p)
    n, draws = 50.0, 40_000
    keys = jax.random.split(jax.random.key(2), draws)
    s = np.asarray(simulate(model, keys, phi, jnp.full(draws, n)))
    mean, covariance = (np.asarray(x) for x in moments(model, phi))
    error = np.sqrt(n * np.diag(covariance) / draws)
    assert np.abs((s.mean(0) - n * mean) / error).max() < 4.5
    white = (s - n * mean) @ np.linalg.inv(np.linalg.cholesky(n * covariance)).T
    assert np.abs(white.T @ white / draws - np.eye(model.dim)).max() < 6 / np.sqrt(draws) * 2


@pytest.mark.slow
def test_simulated_statistics_are_of_some_table(x64):
    """The matrix of sums of products, unit feature included, is positive semidefinite of rank at most n."""
    model, phi, _, _ = case(2)
    records = np.array([1.0, 2.0, 3.0, 40.0])
    statistics = simulate(model, jax.random.split(jax.random.key(0), 4), phi, jnp.asarray(records))
    for n, s in zip(records, np.asarray(statistics), strict=True):
        x1, x2, x11, x12, x22, y, x1y, x2y, yy = s
        gram = np.array([[n, x1, x2, y], [x1, x11, x12, x1y], [x2, x12, x22, x2y], [y, x1y, x2y, yy]])
        values = np.linalg.eigvalsh(gram)
        assert values[0] > -1e-9 * values[-1]
        assert np.sum(values > 1e-9 * values[-1]) == min(n, 4)


@pytest.mark.slow
@pytest.mark.parametrize("p", FEATURES)
def test_deviation_has_the_covariance(p, x64):
    model, phi, _, _ = case(p)
    d = model.dim
    many = jax.tree.map(lambda x: jnp.broadcast_to(x[..., None], (*x.shape, d)), (model, phi))
    factor = np.asarray(jax.jit(lambda m, x: m.deviation_lanes(x, jnp.eye(d)))(*many))
    np.testing.assert_allclose(factor @ factor.T, moments(model, phi)[1], rtol=1e-9, atol=1e-10)


@pytest.mark.slow
def test_log_prior_is_the_density_of_prior_draws(x64):
    """p = 1: differences of the log prior against textbook densities and the Jacobian written out."""
    model = prior(1)

    def textbook(phi):
        mu, alpha, beta, log_s2, ell = (float(x) for x in phi)
        s2, tau2, theta = np.exp(log_s2), np.exp(2 * ell), np.array([alpha - mu * beta, beta])
        psi, nu = float(model.psi[0, 0]), float(model.nu)
        out = stats.invgamma(float(model.sigma2_shape), scale=float(model.sigma2_scale)).logpdf(s2) + log_s2
        out += stats.multivariate_normal(model.theta_mean, s2 * np.linalg.inv(model.theta_precision)).logpdf(theta)
        out += stats.invgamma(nu / 2, scale=psi / 2).logpdf(tau2) + np.log(2) + 2 * ell
        return out + stats.norm(float(model.x_mean[0]), np.sqrt(tau2 / float(model.kappa))).logpdf(mu)

    draws = draw_prior(model, jax.random.split(jax.random.key(3), 6))
    gap = np.asarray(jax.jit(jax.vmap(model.log_prior))(draws)) - [textbook(x) for x in np.asarray(draws)]
    np.testing.assert_allclose(gap, gap[0], atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 3])
def test_prior_draws_have_the_prior_moments(p, x64):
    model = LinearRegression.create(p, sigma2_shape=6.0, sigma2_scale=2.0, nu=p + 9.0, psi=2.0, x_mean=0.4, kappa=2.0)
    model = model.astype(jnp.float64)
    keys = jax.random.split(jax.random.key(5), 40_000)
    reported = jax.jit(jax.vmap(lambda k: model.report(model.sample_prior(k))))(keys)
    named = dict(zip(model.parameter_names, np.asarray(reported).T, strict=True))
    expected = {"sigma2": 0.4, "theta[0]": 0.0, "theta[1]": 0.0, "mu_x[1]": 0.4, f"tau2[{p},{p}]": 2.0 / 8.0}
    if p > 1:
        expected["tau2[2,1]"] = 0.0
    for name, value in expected.items():
        x = named[name]
        assert abs(x.mean() - value) < 4.5 * x.std() / np.sqrt(x.size), name
    # theta | sigma2 ~ N(0, sigma2 I), mu | Sigma ~ N(., Sigma / 2)
    ratio = named["theta[1]"] ** 2 / named["sigma2"]
    assert abs(ratio.mean() - 1) < 4.5 * ratio.std() / np.sqrt(ratio.size)
    ratio = 2 * (named["mu_x[1]"] - 0.4) ** 2 / named["tau2[1,1]"]
    assert abs(ratio.mean() - 1) < 4.5 * ratio.std() / np.sqrt(ratio.size)


@pytest.mark.parametrize(
    "bad",
    [
        {"theta_precision": -1.0},
        {"theta_mean": np.zeros(5)},
        {"psi": np.array([[1.0, 2.0], [2.0, 1.0]])},
        {"nu": 1.0},
        {"sigma2_shape": 0.0},
        {"kappa": np.nan},
    ],
)
def test_a_bad_prior_is_refused_by_name(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        LinearRegression.create(2, **bad)


@pytest.mark.parametrize("p", [0, -1, True])
def test_a_bad_number_of_features_is_refused(p):
    with pytest.raises(InputError, match="p must be"):
        LinearRegression.create(p)
