"""Models of the sums of several parties: densities, gradients, curvature, simulation, units, conjugate update."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from scipy import stats

from dpjax.engine.model import Observed
from dpjax.engine.problems import precision
from dpjax.errors import InputError
from dpjax.mechanisms.noise import Noise
from dpjax.models import LinearRegression, MatrixSums, OriginRegression, PartySums
from dpjax.models.regression.party_layout import party_facts
from dpjax.models.regression.wishart import MatrixFacts

LANES = 3


def _lanes(model, count=LANES):
    return jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x)[..., None], (*jnp.shape(x), count)), model)


def _base(kind, p):
    common = {"theta_mean": 0.2, "sigma2_shape": 4.0, "sigma2_scale": 0.5, "psi": 0.7, "nu": p + 3.0}
    common["dtype"] = jnp.float64
    if kind == "intercept":
        return LinearRegression.create(p, x_mean=0.3, kappa=2.0, theta_precision=0.8, **common)
    return OriginRegression.create(p, theta_precision=0.8, independent=kind == "independent", **common)


def _given(base, records, **units):
    """The model of parties of which this is known."""
    facts = jax.tree.map(jnp.asarray, party_facts(base, records, **units))
    return PartySums(base, len(records), facts=facts)


def _model(kind, p, records=(1.0, 2.0, 50.0, 1e4)):
    rng = np.random.default_rng(p)
    q, parties = p + 1, len(records)
    centre = rng.normal(size=(parties, q)) if kind == "intercept" else 0.0
    return _given(_base(kind, p), records, half=rng.uniform(0.5, 2, (parties, q)), centre=centre)


LAWS = ("laplace", "gaussian")


def _noise(model, count=LANES):
    """In turn Laplace and Gaussian; the last entry of the first party is not released."""
    seen = np.ones((model.parties, model.entries, count))
    seen[0, -1] = 0
    names = np.array([LAWS[j % 2] for j in range(model.parties)], object)[:, None, None]
    noise = Noise.of(names, seen, seen).in_units()
    return jax.tree.map(lambda x: jnp.asarray(np.broadcast_to(x, seen.shape).reshape(-1, count)), noise)


def _observed(model, rng, count=LANES):
    total = float(model.records.sum())
    scale = np.broadcast_to(rng.uniform(1, 3, (model.statistic_dim, 1)), (model.statistic_dim, count))
    z = rng.normal(size=scale.shape) * 5
    n = jnp.full(count, total)
    numbers = (jnp.asarray(x) for x in (z, total / scale, np.sqrt(total) / scale, n))
    return Observed(*numbers, _noise(model, count))


def _value_and_gradient(density, x):
    """Of every lane, in one compiled program: operation by operation would be a hundred."""

    def both(x):
        value, pull = jax.vjp(density, x)
        return value, pull(jnp.ones_like(value))[0]

    return jax.jit(both)(x)


CASES = [("origin", 1), ("origin", 3), ("independent", 2), ("intercept", 1), ("intercept", 2)]


@pytest.mark.slow
@pytest.mark.parametrize("kind, p", CASES)
def test_gradient_is_that_of_the_density(kind, p):
    rng = np.random.default_rng(0)
    with precision(True):
        model = _model(kind, p)
        lanes, observed = _lanes(model), _observed(model, rng)
        x = jnp.asarray(rng.normal(size=(model.dim, LANES)) * 0.4)
        for cooling in (None, jnp.full(LANES, 3.0)):

            def density(x, cooling=cooling):
                noise, _ = lanes.log_noise_and_grad_lanes(lanes.sums_lanes(x), observed, cooling)
                return lanes.log_prior_lanes(x) + noise

            expected, slope = _value_and_gradient(density, x)
            value, gradient = jax.jit(lanes.log_density_and_grad_lanes)(x, cooling, observed)
            np.testing.assert_allclose(value, expected, rtol=1e-12)
            np.testing.assert_allclose(gradient, slope, rtol=1e-9, atol=1e-9)


def test_noise_density_is_laplace_or_normal_and_skips_what_is_absent():
    rng = np.random.default_rng(1)
    with precision(True):
        model = _model("origin", 2)
        lanes, observed = _lanes(model), _observed(model, rng)
        sums = jnp.asarray(rng.normal(size=(model.entries, model.parties * LANES)))
        noise = jax.jit(lambda sums: lanes.log_noise_and_grad_lanes(sums, observed, None)[0])
        value = noise(sums)
        other = sums.at[-1, :LANES].add(7.0)  # of the first party: not released
        np.testing.assert_array_equal(value, noise(other))
    scale = (np.asarray(observed.n)[None] / np.asarray(observed.n_over_b))[:, 0].reshape(4, -1)
    z = np.asarray(observed.z)[:, 0].reshape(4, -1) * scale
    s = np.asarray(sums).reshape(model.entries, 4, LANES)[..., 0].T
    assert z.shape == s.shape == scale.shape
    laws = [stats.laplace, stats.norm, stats.laplace, stats.norm]
    log = np.stack([law.logpdf(z[j], s[j], scale[j]) + np.log(scale[j]) for j, law in enumerate(laws)])
    log += np.array([np.log(2), 0.5 * np.log(2 * np.pi)] * 2)[:, None]  # constants are left out
    log[0, -1] = 0
    np.testing.assert_allclose(value[0], log.sum(), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["origin", "independent", "intercept"])
def test_prior_precision_is_its_curvature_at_the_centre(kind):
    with precision(True):
        base = _base(kind, 3)
        curvature = jax.jit(lambda: -jax.hessian(base.log_prior)(base.prior_center()))()
        np.testing.assert_allclose(jax.jit(base.prior_precision)(), curvature, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("independent", [True, False])
def test_origin_prior_is_normal_inverse_gamma_and_inverse_wishart(independent):
    """The density against SciPy's, Jacobian included, up to one constant."""
    with precision(True):
        base = _base("independent" if independent else "origin", 2)
        phi = np.asarray(jax.jit(jax.vmap(base.sample_prior))(random.split(random.key(0), 6)))
        value = np.asarray(jax.jit(jax.vmap(base.log_prior))(jnp.asarray(phi)))
    expected = []
    for theta0, theta1, log_s2, l0, l1, c in phi:
        lower = np.array([[np.exp(l0), 0], [c * np.exp(l1), np.exp(l1)]])
        s2 = np.exp(log_s2)
        cov = np.linalg.inv(np.asarray(base.theta_precision)) * (1 if independent else s2)
        log = stats.multivariate_normal.logpdf([theta0, theta1], np.asarray(base.theta_mean), cov)
        log += stats.invgamma(4, scale=0.5).logpdf(s2) + log_s2
        log += stats.invwishart(5, 0.7 * np.eye(2)).logpdf(lower @ lower.T)
        # d Sigma = 4 L11^2 L22 dL, dL = L11 L22 L22 d(l, c)
        expected.append(log + 2 * l0 + l1 + l0 + 2 * l1)
    np.testing.assert_allclose(np.diff(value), np.diff(expected), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["origin", "intercept"])
def test_latent_variables_give_the_law_of_the_sums(kind):
    """Drawn from their prior they must give what `simulate` draws, singular (n = 1, 2) or not: moments and KS."""
    count = 20_000
    with precision(True):
        model = _model(kind, 2, (1.0, 2.0, 5.0, 40.0))
        q, base = 3, model.base
        phi = jax.jit(base.sample_prior)(random.key(3))
        whole = jnp.concatenate([phi, jnp.zeros(model.dim - base.dim)])
        simulate = jax.jit(jax.vmap(lambda k: model.simulate(k, whole, model.records.sum())[0]))
        drawn = simulate(random.split(random.key(1), count))
        rng = np.random.default_rng(2)
        latent = rng.normal(size=(model.parties, model.latent_dim, count))
        start = q if kind == "intercept" else 0
        for j, n in enumerate(np.asarray(model.records)):
            for i in range(q):
                k = n - i - (kind == "intercept")
                if k > 0:  # h = log(chi / sqrt(k)) sqrt(2 k)
                    latent[j, start + i] = np.log(np.sqrt(rng.chisquare(k, count) / k)) * np.sqrt(2 * k)
        x = jnp.concatenate([jnp.broadcast_to(phi[:, None], (base.dim, count)), jnp.asarray(latent.reshape(-1, count))])
        sums = np.asarray(jax.jit(_lanes(model, count).sums_lanes)(x)).reshape(model.entries, model.parties, count)
    drawn = np.asarray(drawn).reshape(count, model.parties, model.entries)
    p_values = [stats.ks_2samp(sums[d, j], drawn[:, j, d]).pvalue for j in range(4) for d in range(model.entries)]
    assert min(p_values) > 1e-3 / len(p_values) * 10, np.round(p_values, 4)


def test_the_density_of_latent_variables_is_normal_and_log_chi():
    with precision(True):
        model = _given(_base("origin", 1), [7.0])
        grid = jnp.linspace(-3, 3, 7)
        x = jnp.zeros((model.dim, 7)).at[model.base.dim].set(grid)
        base = _lanes(model, 7)
        value = jax.jit(base.log_prior_lanes)(x)
    chi2 = 7 * np.exp(2 * np.asarray(grid) / np.sqrt(14))
    expected = stats.chi2(7).logpdf(chi2) + np.log(chi2)
    np.testing.assert_allclose(np.diff(value), np.diff(expected), rtol=1e-9)


@pytest.mark.parametrize("kind", ["origin", "intercept"])
def test_sums_of_parties_add_up_in_common_units(kind):
    """What the conjugate update is given equals the sums of all records in common units."""
    rng = np.random.default_rng(4)
    parts = [rng.normal(size=(n, 3)) for n in (6, 9)]
    half, centre = rng.uniform(0.5, 2, (2, 3)), rng.normal(size=(2, 3)) * (kind == "intercept")
    places = [(0, 1), (0, 2), (1, 1), (1, 2), (2, 2), (0, 3), (1, 3), (2, 3), (3, 3)]  # 0 is the unit feature
    if kind == "origin":
        places = [(0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)]
    with precision(True):
        base = _base(kind, 2)
        model = _given(base, [6.0, 9.0], half=half, centre=centre)
        z = []
        for rows, c, h in zip(parts, centre, half, strict=True):
            own = (rows - c) / h
            if kind == "intercept":
                own = np.column_stack([np.ones(len(own)), own])
            z.append(np.array([own[:, a] @ own[:, b] for a, b in places]))
        pooled = jax.jit(_lanes(model, 1).valid_lanes)(jnp.asarray(np.concatenate(z)[:, None] / 15))[:, 0]
    rows = np.concatenate(parts)
    if kind == "intercept":
        rows = np.column_stack([np.ones(15), rows])
        expected = np.array([rows[:, a] @ rows[:, b] for a, b in places])
    else:
        expected = (rows.T @ rows).ravel()
    np.testing.assert_allclose(np.asarray(pooled) * 15, expected, rtol=1e-10)


@pytest.mark.slow
def test_gradient_given_a_matrix_with_wishart_noise():
    rng = np.random.default_rng(5)
    with precision(True):
        base = _base("origin", 2)
        facts = MatrixFacts(*party_facts(base, [30.0]), 20.0, 4.0)
        for inverse in (False, True):
            model = MatrixSums(base, 1, facts=jax.tree.map(jnp.asarray, facts), inverse=inverse)
            lanes = _lanes(model)
            x = jnp.asarray(rng.normal(size=(model.dim, LANES)) * 0.2)
            z = jax.jit(lanes.sums_lanes)(x) * 1.1
            one = jnp.ones_like(z)
            n = jnp.full(LANES, 30.0)
            observed = Observed(z, 30.0 * one, one, n, Noise.of("gaussian", one).in_units())

            def density(x, lanes=lanes, observed=observed):
                return lanes.log_prior_lanes(x) + lanes.log_noise_and_grad_lanes(lanes.sums_lanes(x), observed, None)[0]

            expected, slope = _value_and_gradient(density, x)
            value, gradient = jax.jit(lanes.log_density_and_grad_lanes)(x, None, observed)
            np.testing.assert_allclose(value, expected, rtol=1e-12)
            np.testing.assert_allclose(gradient, slope, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"records": [0.5]}, "records"),
        ({"records": 3.0}, "records"),
        ({"half": 0.0}, "half"),
        ({"centre": 1.0}, "centre"),
    ],
)
def test_bad_parties(change, message):
    with pytest.raises(InputError, match=message):
        party_facts(OriginRegression.create(1), **({"records": [5.0]} | change))


def test_bad_priors():
    for change in ({"p": 0}, {"p": 101}, {"nu": 0.5, "p": 2}, {"independent": 1}, {"psi": -1.0}):
        with pytest.raises(InputError):
            OriginRegression.create(**({"p": 1} | change))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["origin", "intercept"])
def test_refreshing_the_parameters_keeps_sums_and_law(kind):
    """The sums of all parties (one singular) stay; parameters from the prior keep its law, given those sums too."""
    count = 4000
    with precision(True):
        model = _model(kind, 2, (2.0, 9.0))
        lanes, base, q = _lanes(model, count), model.base, 3
        phi = jax.jit(jax.vmap(base.sample_prior))(random.split(random.key(0), count)).T
        rng = np.random.default_rng(2)
        latent = rng.normal(size=(2, model.latent_dim, count))
        start = q if kind == "intercept" else 0
        for j, n in enumerate((2, 9)):
            for i in range(q):
                k = n - i - (kind == "intercept")
                if k > 0:
                    latent[j, start + i] = np.log(np.sqrt(rng.chisquare(k, count) / k)) * np.sqrt(2 * k)
        x = jnp.concatenate([phi, jnp.asarray(latent.reshape(-1, count))])
        keys = random.split(random.key(5), count)
        randoms = model.conjugate_randoms
        normals, uniforms = rng.normal(size=(randoms[0], count)), rng.uniform(size=(randoms[1], count))
        y = jax.jit(lanes.refresh_lanes)(x, keys, jnp.asarray(normals), jnp.asarray(uniforms))
        sums = jax.jit(lanes.sums_lanes)
        before, after = np.asarray(sums(x)), np.asarray(sums(y))
        np.testing.assert_allclose(after, before, rtol=1e-7, atol=1e-7 * np.abs(before).max())
        report = jax.jit(jax.vmap(base.report, 1, 1))
        old, new = (np.asarray(report(z[: base.dim])) for z in (x, y))
    assert np.abs(old - new).max() > 0.1
    # pairs are dependent, each side has the prior's law: compare with fresh draws of it
    with precision(True):
        drawn = jax.jit(jax.vmap(lambda k: base.report(base.sample_prior(k))))
        fresh = np.asarray(drawn(random.split(random.key(9), count))).T
    total = before.reshape(model.entries, 2, count)[-1].sum(0)  # given the sums old and new are alike
    p_values = [stats.ks_2samp(a, b).pvalue for a, b in zip(new, fresh, strict=True)]
    p_values += [stats.spearmanr(old[k] - new[k], total).pvalue for k in range(len(old))]
    assert min(p_values) > 1e-3 / len(p_values) * 5, np.round(p_values, 4)
