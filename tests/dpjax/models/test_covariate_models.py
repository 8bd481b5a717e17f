"""Models of the covariates beside the hierarchical normal: known laws, free moments, exact sums."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.errors import InputError
from dpjax.kernels.order import pairs
from dpjax.models import (
    ExactSums,
    FreeMoments,
    KnownCovariates,
    LinearRegression,
    Model,
    Observed,
    WeakRegression,
    model_for,
)
from dpjax.models.regression import laws as covariate_laws
from dpjax.models.regression.free_moments import _points, higher_exponents
from dpjax.statistics.regression import RegressionStatistic


@pytest.fixture
def x64():
    """64-bit mode for one test."""
    with jax.enable_x64(True):
        yield


def statistic(p, moments=False):
    names = tuple(f"x{i}" for i in range(1, p + 1))
    return RegressionStatistic(names, "y", dict.fromkeys((*names, "y"), (-1.0, 1.0)), None, moments)


def normal(p, dtype=jnp.float64):
    return LinearRegression.create(
        p, theta_precision=0.4, sigma2_shape=4.0, sigma2_scale=0.7, kappa=2.0, psi=1.0, nu=p + 6.0, dtype=dtype
    )


def draw(model, seed=1):
    return jax.jit(model.sample_prior)(jax.random.key(seed))


# ---- known laws ----------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_moments_of_laws_are_those_of_many_records():
    rng = np.random.default_rng(0)
    mean, covariance = [0.3, -0.2], [[0.5, 0.1], [0.1, 0.4]]
    count, cases = 2_000_000, []
    cases.append((covariate_laws.normal_moments(mean, covariance), rng.multivariate_normal(mean, covariance, count)))
    cases.append((covariate_laws.uniform_moments([0, -1], [1, 2]), rng.uniform([0, -1], [1, 2], (count, 2))))
    kappa, psi, nu = 2.0, np.array([[1.0, 0.3], [0.3, 0.5]]), 40.0
    sigma = stats.invwishart(nu, psi).rvs(count // 10, random_state=rng)
    factor = np.linalg.cholesky(sigma * (1 + 1 / kappa))
    records = np.array(mean) + np.einsum("nij,nj->ni", factor, rng.normal(size=(len(sigma), 2)))
    cases.append((covariate_laws.marginal_moments(mean, kappa, psi, nu), records))
    for (eta, xi), sample in cases:
        seen_eta, seen_xi = covariate_laws.sampled_moments(sample)
        extended = np.concatenate([np.ones((len(sample), 1)), sample], axis=1)
        products = np.einsum("ni,nj->nij", extended, extended).reshape(len(sample), -1)
        error = products.std(0).reshape(3, 3) / np.sqrt(len(sample))
        assert (np.abs(seen_eta - eta) <= 5 * error + 1e-12).all()
        centred = (products - eta.reshape(-1)) ** 2
        size = np.sqrt(np.einsum("ni,nj->ij", centred, centred) / len(sample) ** 2).reshape((3,) * 4)
        assert (np.abs(seen_xi - xi) <= 5 * size + 1e-12).all()
    # docs/formulas.md#normal-moments
    eta, xi = covariate_laws.normal_moments(mean, covariance)
    four = xi + np.einsum("ij,kl->ijkl", eta, eta)
    assert four[1, 1, 1, 1] == pytest.approx(1.0281, abs=1e-12)
    assert four[1, 1, 1, 2] == pytest.approx(0.0816, abs=1e-12)
    assert four[1, 1, 2, 2] == pytest.approx(0.2556, abs=1e-12)


@pytest.mark.slow
def test_known_normal_covariates_have_the_moments_of_the_normal_model(x64):
    for p in (1, 2):
        base = normal(p)
        phi = draw(base)
        lanes = jax.tree.map(lambda x: x[..., None], base)
        covariance = np.asarray(lanes.record_lanes(phi[:, None])[2])[:p, :p, 0]
        eta, xi = covariate_laws.normal_moments(phi[:p], covariance)
        known = KnownCovariates.create(eta, xi, theta_precision=0.4, law="normal", dtype=jnp.float64)
        position = phi[p : 2 * p + 2]
        for a, b in zip(known.moments(position), base.moments(phi), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-13)
        np.testing.assert_allclose(known.report(position), base.report(phi)[: p + 2], atol=1e-13)


@pytest.mark.slow
def test_known_covariates_prior_is_normal_inverse_gamma(x64):
    eta, xi = covariate_laws.normal_moments([0.4], [[0.3]])
    known = KnownCovariates.create(
        eta, xi, theta_mean=[0.5, -1.0], theta_precision=[[2.0, 0.3], [0.3, 1.0]], sigma2_shape=3.0, sigma2_scale=0.8,
        dtype=jnp.float64,
    )  # fmt: skip

    def density(phi):
        theta, s2 = np.asarray(known.report(phi))[:2], float(np.exp(phi[2]))
        value = stats.invgamma(3.0, scale=0.8).logpdf(s2) + np.log(s2)
        covariance = s2 * np.linalg.inv([[2.0, 0.3], [0.3, 1.0]])
        return value + stats.multivariate_normal([0.5, -1.0], covariance).logpdf(theta)

    one, two = draw(known, 1), draw(known, 2)
    assert float(known.log_prior(one) - known.log_prior(two)) == pytest.approx(density(one) - density(two), abs=1e-9)
    hessian = jax.jit(lambda: -jax.hessian(known.log_prior)(known.prior_center()))()
    np.testing.assert_allclose(jax.jit(known.prior_precision)(), hessian, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("law", ["normal", "uniform"])
def test_known_covariates_simulate_their_law(law, x64):
    if law == "normal":
        moments = covariate_laws.normal_moments([0.2], [[0.09]])
    else:
        moments = covariate_laws.uniform_moments([-0.3], [0.7])
    known = KnownCovariates.create(*moments, sigma2_shape=5.0, law=law, dtype=jnp.float64)
    phi = draw(known)
    mean, covariance = known.moments(phi)
    one = jax.jit(jax.vmap(lambda key: known.simulate(key, phi, jnp.float64(3.0))[0]))
    sums = np.asarray(one(jax.random.split(jax.random.key(0), 20_000)))
    error = np.sqrt(3 * np.diag(covariance) / len(sums))
    assert (np.abs(sums.mean(0) - 3 * mean) < 5 * error).all()
    spread = np.cov(sums.T)
    size = np.sqrt(((sums - sums.mean(0)) ** 2).T @ ((sums - sums.mean(0)) ** 2)) / len(sums)
    assert (np.abs(spread - 3 * covariance) < 6 * size).all()


@pytest.mark.slow
def test_a_known_law_comes_from_the_prior():
    made = model_for(statistic(1), {"covariates": {"law": "uniform", "low": [0], "high": [1]}})
    assert isinstance(made, KnownCovariates) and made.law == "uniform"
    np.testing.assert_allclose(made.eta, [[1, 0.5], [0.5, 1 / 3]], atol=1e-6)
    from numpyro.distributions import Beta

    sampled = model_for(statistic(1), {"covariates": {"law": Beta(2.0, 2.0)}})
    np.testing.assert_allclose(sampled.eta, [[1, 0.5], [0.5, 0.3]], atol=2e-3)
    assert isinstance(model_for(statistic(2)), WeakRegression)


@pytest.mark.parametrize(
    "covariates, message",
    [
        ({"law": "normal", "mean": [0], "covariance": [[1]], "nu": 50}, "hierarchical"),
        ({"law": lambda: None}, "hierarchical"),
        ({"law": "normal", "mean": [0]}, "covariance is missing"),
        ({"law": "normal", "mean": [0], "covariance": [[-1]]}, "positive definite"),
        ({"law": "uniform", "low": [1], "high": [0]}, "low must be below high"),
        ({"law": "cauchy"}, "law must be"),
        ({"law": "uniform", "low": [0], "high": [1], "scale": 2}, "unknown name 'scale'"),
        ({"tilt_scale": 1.0}, "unknown name 'tilt_scale'"),
    ],
)
def test_what_is_no_known_law_is_refused(covariates, message):
    with pytest.raises(InputError, match=message):
        model_for(statistic(1), {"covariates": covariates})


@pytest.mark.parametrize(
    "eta, xi, message",
    [
        ([[1.0, 0.0], [0.0, -1.0]], np.zeros((2,) * 4), "eta must be positive"),
        ([[2.0, 0.0], [0.0, 1.0]], np.zeros((2,) * 4), "unit feature"),
        ([[1.0, 0.0], [0.0, 1.0]], -np.eye(4).reshape((2,) * 4), "unit feature|positive"),
        ([[1.0]], np.zeros((1,) * 4), "shapes"),
        ([[1.0, np.nan], [np.nan, 1.0]], np.zeros((2,) * 4), "finite"),
    ],
)
def test_moments_of_no_law_are_refused(eta, xi, message):
    with pytest.raises(InputError, match=message):
        KnownCovariates.create(eta, xi)


# ---- free moments --------------------------------------------------------------------------------------------
def enumerated(model, phi, nodes=20):
    """Moments of one record's extended statistic by summing over the points of x and Gauss-Hermite points of y."""
    p, base = model.p, model.base
    lanes = jax.tree.map(lambda x: x[..., None], model)
    w, u = (np.asarray(x)[..., 0] for x in lanes._law_lanes(phi[base.dim :, None]))
    report = dict(zip(base.parameter_names, np.asarray(base.report(phi[: base.dim])), strict=True))
    theta = np.array([report[f"theta[{i}]"] for i in range(p + 1)])
    mean = np.array([report[f"mu_x[{i}]"] for i in range(1, p + 1)])
    covariance = np.zeros((p, p))
    for i in range(1, p + 1):
        for j in range(1, i + 1):
            covariance[i - 1, j - 1] = covariance[j - 1, i - 1] = report[f"tau2[{i},{j}]"]
    x = mean + u.T @ np.linalg.cholesky(covariance).T
    e, v = np.polynomial.hermite_e.hermegauss(nodes)
    y = (theta[0] + x @ theta[1:])[:, None] + np.sqrt(report["sigma2"]) * e
    weight = (w[:, None] * (v / v.sum())).ravel()
    record = [np.ones_like(y), *(np.broadcast_to(c[:, None], y.shape) for c in x.T), y]
    a, b = pairs(p)
    entries = [record[i] * record[j] for i, j in zip(a, b, strict=True)]
    entries += [np.prod([record[1 + i] ** k for i, k in enumerate(row)], axis=0) for row in higher_exponents(p)]
    t = np.stack([entry.ravel() for entry in entries])
    centre = t @ weight
    return centre, (t * weight) @ t.T - np.outer(centre, centre), mean, covariance, x, w


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 2, 3])
def test_free_moments_are_those_of_their_law(p, x64):
    model = FreeMoments.create(normal(p), 0.4)
    assert model.statistic_dim == model.dim == statistic(p, True).dim
    phi = draw(model)
    mean, covariance = model.moments(phi)
    by_hand, spread, centre, scatter, x, w = enumerated(model, phi)
    np.testing.assert_allclose(mean, by_hand, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(covariance, spread, rtol=1e-8, atol=1e-9 * np.abs(spread).max())
    # mean and covariance of x are parameters whatever the tilts
    np.testing.assert_allclose(w @ x, centre, atol=1e-12)
    np.testing.assert_allclose((x - centre).T @ ((x - centre) * w[:, None]), scatter, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 2])
def test_without_tilts_the_moments_are_the_normal_ones(p, x64):
    model = FreeMoments.create(normal(p))
    phi = draw(model).at[model.base.dim :].set(0.0)
    size = model.base.statistic_dim
    mean, covariance = model.moments(phi)
    plain_mean, plain = model.base.moments(phi[: model.base.dim])
    np.testing.assert_allclose(mean[:size], plain_mean, atol=1e-12)
    np.testing.assert_allclose(covariance[:size, :size], plain, atol=1e-12)
    # degree 8: E (x - m)^8 = 105 v^4
    if p == 1:
        report = np.asarray(model.base.report(phi[: model.base.dim]))
        m, v = report[3], report[4]
        x, w = np.polynomial.hermite_e.hermegauss(40)
        x, w = m + np.sqrt(v) * x, w / w.sum()
        fourth = (w * x**8).sum() - (w * x**4).sum() ** 2
        assert float(covariance[-1, -1]) == pytest.approx(fourth, rel=1e-10)


def test_tilts_reach_skewed_flat_and_heavy_laws(x64):
    """Standardised skewness and kurtosis from two points (1) and uniform (1.8) to skewed and heavy ones."""
    model = FreeMoments.create(normal(1))
    lanes = jax.tree.map(lambda x: x[..., None], model)

    def shape(tilts):
        w, u = (x[..., 0] for x in lanes._law_lanes(tilts[:, None]))
        return (w * u[0] ** 3).sum(), (w * u[0] ** 4).sum()

    shape = jax.jit(jax.vmap(shape))
    tilts = np.stack(np.meshgrid(np.linspace(0, 5, 201), np.linspace(-5, 8, 261)), -1).reshape(-1, 2)
    skew, kurtosis = (np.asarray(x) for x in shape(jnp.asarray(tilts)))
    assert kurtosis.min() < 1.1 and skew.max() > 2.0
    for name, wanted in {"uniform": (0, 1.8), "gamma": (1, 4.5), "heavy": (0, 12)}.items():
        assert np.hypot(skew - wanted[0], (kurtosis - wanted[1]) / 3).min() < 0.1, name


@pytest.mark.slow
def test_free_moments_prior_and_simulation(x64):
    model = FreeMoments.create(normal(1), 0.3)
    hessian = jax.jit(lambda: -jax.hessian(model.log_prior)(model.prior_center()))()
    np.testing.assert_allclose(jax.jit(model.prior_precision)(), hessian, atol=1e-9)
    phi = draw(model)
    mean, covariance = (np.asarray(x) for x in jax.jit(model.moments)(phi))
    one = jax.jit(jax.vmap(lambda key: model.simulate(key, phi, jnp.float64(2.0))[0]))
    sums = np.asarray(one(jax.random.split(jax.random.key(0), 20_000)))
    error = np.sqrt(2 * np.diag(covariance) / len(sums))
    assert (np.abs(sums.mean(0) - 2 * mean) < 5 * error).all()
    deviation = (sums - sums.mean(0)) ** 2
    size = np.sqrt(deviation.T @ deviation) / len(sums)
    assert (np.abs(np.cov(sums.T) - 2 * covariance) < 6 * size).all()


def test_points_are_a_rule_of_high_degree():
    grid, log_weight, tilts = _points(2)
    w = np.exp(log_weight)
    assert w.sum() == pytest.approx(1.0)
    # nearly orthogonal, though they level off
    gram = (w[:, None] * tilts).T @ tilts
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=0.03)
    assert (np.abs(tilts) <= 2).all() and (np.diag(gram) > 0.25).all()
    assert (w * grid[:, 0] ** 8).sum() == pytest.approx(105.0)


def test_free_moments_refuse_a_bad_scale():
    for bad in (0.0, -1.0, np.nan, "wide"):
        with pytest.raises(InputError, match="tilt_scale"):
            FreeMoments.create(normal(1, jnp.float32), bad)


# ---- exact sums ----------------------------------------------------------------------------------------------
def latent(rng, n, q, count):
    """Draws of (v, h, a) from their laws `[count, q + q + q (q - 1) / 2]`."""
    k = n - 1.0 - np.arange(q)
    chi = np.sqrt(rng.chisquare(k, (count, q)))
    h = np.sqrt(2 * k) * np.log(chi / np.sqrt(k))
    return np.concatenate([rng.normal(size=(count, q)), h, rng.normal(size=(count, q * (q - 1) // 2))], axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("p, n", [(1, 3), (1, 10), (2, 8)])
def test_exact_sums_have_the_moments_of_sums_of_records(p, n, x64):
    base = normal(p)
    model = ExactSums.create(base, float(n))
    phi = draw(base)
    count = 20_000
    positions = np.concatenate([np.tile(phi, (count, 1)), latent(np.random.default_rng(0), n, p + 1, count)], axis=1)
    one = jax.jit(jax.vmap(lambda x: model.moments(x)[0]))
    sums = n * np.asarray(one(jnp.asarray(positions)))
    mean, covariance = (np.asarray(x) for x in base.moments(phi))
    error = np.sqrt(n * np.diag(covariance) / count)
    assert (np.abs(sums.mean(0) - n * mean) < 5 * error).all()
    deviation = (sums - sums.mean(0)) ** 2
    size = np.sqrt(deviation.T @ deviation) / count
    assert (np.abs(np.cov(sums.T) - n * covariance) < 6 * size).all()


@pytest.mark.slow
def test_latent_density_is_that_of_normals_and_chis(x64):
    base, n = normal(1), 7
    model = ExactSums.create(base, float(n))
    phi = draw(base)
    rows = latent(np.random.default_rng(1), n, 2, 2)

    def by_hand(row):
        v, h, a = row[:2], row[2:4], row[4:]
        k = n - 1.0 - np.arange(2)
        diagonal = np.sqrt(k) * np.exp(h / np.sqrt(2 * k))
        jacobian = np.log(diagonal / np.sqrt(2 * k))
        return (
            stats.norm.logpdf(v).sum() + stats.norm.logpdf(a).sum() + (stats.chi(k).logpdf(diagonal) + jacobian).sum()
        )

    one, two = (float(model.log_prior(jnp.concatenate([phi, row]))) for row in rows)
    assert one - two == pytest.approx(by_hand(rows[0]) - by_hand(rows[1]), abs=1e-9)
    hessian = jax.jit(lambda: -jax.hessian(model.log_prior)(model.prior_center()))()
    np.testing.assert_allclose(jax.jit(model.prior_precision)(), hessian, atol=1e-8)


def test_the_set_of_bounded_sums_holds_what_records_inside_give(x64):
    """Sums of any records in the box are inside; a mean of squares above the bound, or a mean beyond it, is not."""
    n, box = 6, np.array([[-1.0, 2.0], [0.0, 3.0]])
    model = ExactSums.create(normal(1), float(n), box)
    lanes = jax.tree.map(lambda x: x[..., None], model)
    rng = np.random.default_rng(0)

    def inside(records):
        first, second = records.mean(0), records.T @ records / len(records)
        replaced = object.__new__(type(model))
        replaced.__dict__.update(lanes.__dict__)
        moments = (jnp.asarray(first)[:, None], jnp.asarray(second)[..., None])
        replaced.__dict__["_moments_of_sums"] = lambda phi: moments
        return bool(replaced.inside_lanes(jnp.zeros((model.dim, 1)))[0])

    for _ in range(50):
        assert inside(box[:, 0] + (box[:, 1] - box[:, 0]) * rng.integers(0, 2, (n, 2)))
        assert inside(rng.uniform(*box.T, (n, 2)))
    good = rng.uniform(*box.T, (n, 2))
    assert not inside(good + np.array([4.0, 0.0]))
    assert not inside(np.where(np.arange(n)[:, None] < 3, box[:, 1] + 2.0, box[:, 0] - 2.0) + 0.0 * good)
    assert not inside(np.stack([np.full(n, 0.5), np.array([5.0, -2.0, 1.5, 1.5, 1.5, 1.5])], 1))


def test_exact_sums_need_enough_records():
    with pytest.raises(InputError, match="at least p \\+ 2 = 3 records; got 2"):
        ExactSums.create(normal(1, jnp.float32), np.array(2.0))


# ---- closed-form gradients against the generic code of the base class --------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 2])
def test_gradient_and_jacobian_of_free_moments_are_the_derivatives(p, x64):
    model = FreeMoments.create(normal(p), 0.4)
    phi = draw(model)
    rng = np.random.default_rng(p)
    b, n = np.linspace(3.0, 5.0, model.statistic_dim), 60.0
    z = n / b * np.asarray(jax.jit(model.moments)(phi)[0]) + 2 * rng.normal(size=len(b))
    observed = Observed(jnp.asarray(z), jnp.asarray(n / b), jnp.asarray(n**0.5 / b), jnp.asarray(n))
    w = jnp.asarray(rng.uniform(0.5, 3, len(b)))
    lanes = lambda tree: jax.tree.map(lambda x: x[..., None], tree)
    arguments = lanes(phi), lanes(w), lanes(observed)
    value, gradient = jax.jit(lambda *a: lanes(model).log_density_and_grad_lanes(*a))(*arguments)
    wanted, generic = jax.jit(lambda *a: Model.log_density_and_grad_lanes(lanes(model), *a))(*arguments)
    np.testing.assert_allclose(value, wanted, rtol=1e-12)
    np.testing.assert_allclose(gradient, generic, rtol=1e-8, atol=1e-8)
    jacobian = jax.jit(lambda x: lanes(model).mean_jacobian_lanes(x))(lanes(phi))[..., 0]
    np.testing.assert_allclose(jacobian, jax.jit(jax.jacfwd(lambda x: model.moments(x)[0]))(phi), atol=1e-10)


@pytest.mark.slow
def test_gradient_of_exact_sums_is_the_derivative(x64):
    model = ExactSums.create(normal(1), 9.0)
    phi = draw(model) + 0.1 * jnp.arange(10.0)
    b, n = np.full(5, 2.0), 9.0
    observed = Observed(jnp.arange(5.0), jnp.asarray(n / b), jnp.asarray(n**0.5 / b), jnp.asarray(n))
    w = jnp.linspace(0.5, 3.0, 5)
    lanes = lambda tree: jax.tree.map(lambda x: x[..., None], tree)
    value, gradient = jax.jit(lanes(model).log_density_and_grad_lanes)(lanes(phi), lanes(w), lanes(observed))

    def by_hand(x):
        residual = observed.z - observed.n_over_b * model.moments(x)[0]
        return model.log_prior(x) - 0.5 * (residual**2 / w).sum()

    expected, slope = jax.jit(jax.value_and_grad(by_hand))(phi)
    np.testing.assert_allclose(value[0], expected, rtol=1e-12)
    np.testing.assert_allclose(gradient[:, 0], slope, rtol=1e-9, atol=1e-9)
    jacobian = jax.jit(lanes(model).mean_jacobian_lanes)(lanes(phi))[..., 0]
    np.testing.assert_allclose(jacobian, jax.jit(jax.jacfwd(lambda x: model.moments(x)[0]))(phi), atol=1e-12)


@pytest.mark.slow
def test_laws_without_fourth_moments_or_in_other_units_are_refused():
    from numpyro.distributions import Cauchy, Normal, StudentT

    for law in (Cauchy(0.0, 1.0), StudentT(3.0, 0.0, 0.1)):
        with pytest.raises(InputError, match="four finite moments"):
            model_for(statistic(1), {"covariates": {"law": law}})
    with pytest.raises(InputError, match="law must be"):
        model_for(statistic(1), {"covariates": {"law": Normal}})
    with pytest.raises(InputError, match="units of the statistic"):
        model_for(statistic(1), {"covariates": {"law": "uniform", "low": [15], "high": [45]}})
