"""Models of exponential families: moments against quadrature and simulation, gradients, conjugate draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import quadrature
from scipy import stats

from dpjax.engine.model import Model, Observed
from dpjax.families import family_named
from dpjax.models import Multinomial, family_model, model_for
from dpjax.models.priors import PRIORS, DirichletPrior, GammaPrior, NormalInverseGammaPrior
from dpjax.statistics.kinds import make_statistic

MIDDLE = (-np.log(0.975), -np.log(0.025))
SCALAR = [
    ("exponential", {}, MIDDLE),
    ("poisson", {}, (1, 9)),
    ("poisson", {}, (0, 80)),  # too many counts to be summed one by one
    ("geometric", {}, (0, 4)),
    ("gamma", {"shape": 2.5}, (0.3, 6.0)),
]


def made(kind, options, bounds, rule):
    family = family_named(kind, **options)
    return family_model(family, PRIORS[family.prior].create(**family.study_prior()), *bounds, rule)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options", "bounds", "rule"),
    [(*SCALAR[0], "clamp"), (*SCALAR[1], "redact"), (*SCALAR[2], "clamp"), (*SCALAR[3], "clamp")],
)
def test_moments_of_one_record_equal_the_oracle(kind, options, bounds, rule):
    model = made(kind, options, bounds, rule)
    theta = np.array([0.1, 0.5, 0.9]) if kind == "geometric" else np.array([0.3, 1.0, 4.0])
    phi = np.log(theta) - (np.log1p(-theta) if kind == "geometric" else 0.0)
    mean, variance = quadrature.moments(kind, theta, *bounds, rule)
    for dtype, tolerance in ((jnp.float64, 3e-8), (jnp.float32, 1e-3)):
        with jax.enable_x64(True):
            lanes = jax.tree.map(lambda x: jnp.full(3, x, dtype), model)  # noqa: B023
            x = jnp.asarray(phi, dtype)[None]
            got = jax.jit(lambda m, x: (m.moments_lanes(x), m.mean_jacobian_lanes(x)))(lanes, x)
            one = jax.jit(jax.vmap(lambda x: model.astype(dtype).moments(x)))(x.T)  # noqa: B023
        np.testing.assert_allclose(got[0][0][0], mean, rtol=tolerance)
        np.testing.assert_allclose(got[0][1][0, 0], variance, rtol=tolerance)
        np.testing.assert_allclose(one[0][:, 0], mean, rtol=tolerance)
        np.testing.assert_allclose(one[1][:, 0, 0], variance, rtol=tolerance)
        if dtype == jnp.float64:
            step = 1e-5
            shift = [quadrature.constrain(kind, phi + h) for h in (step, -step)]
            up, down = (quadrature.moments(kind, t, *bounds, rule)[0] for t in shift)
            np.testing.assert_allclose(got[1][0, 0], (up - down) / (2 * step), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options", "bounds", "rule"),
    [(*SCALAR[0], "redact"), (*SCALAR[1], "clamp"), (*SCALAR[3], "redact"), (*SCALAR[4], "clamp")],
)
def test_the_short_gradient_is_the_general_one(kind, options, bounds, rule):
    with jax.enable_x64(True):
        model = jax.tree.map(lambda x: jnp.full(4, x, jnp.float64), made(kind, options, bounds, rule))
        x = jnp.linspace(-1.0, 1.0, 4, dtype=jnp.float64)[None]
        w = jnp.full((1, 4), 1.7, jnp.float64)
        observed = Observed(*(jnp.full((1, 4), v, jnp.float64) for v in (120.0, 80.0, 2.5)), jnp.full(4, 1000.0))
        ours = jax.jit(lambda m, x: m.log_density_and_grad_lanes(x, w, observed))(model, x)
        general = jax.jit(lambda m, x: Model.log_density_and_grad_lanes(m, x, w, observed))(model, x)
    np.testing.assert_allclose(ours[0], general[0], rtol=1e-10)
    np.testing.assert_allclose(ours[1], general[1], rtol=1e-7)


@pytest.mark.slow
def test_joint_moments_of_the_regions():
    """docs/formulas.md#joint-parts: exponential of rate 1, middle 95%: Cov(s_c, s_u) / n = -.10344405, Cov(s_c, s_l) /
    n = -.00027810."""
    with jax.enable_x64(True):
        model = made("exponential", {}, MIDDLE, "redact").astype(jnp.float64)
        model = type(model)(model.prior, *(jnp.float64(end) for end in MIDDLE), model.family, "redact")
        joint = model.joint(jnp.zeros(1))
    np.testing.assert_allclose(joint.cross[0, 0] - joint.released_covariance[0, 0], -0.10344405 - 0.00027810, atol=1e-8)
    np.testing.assert_allclose(joint.whole_covariance[0, 0], 1.0, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options", "bounds", "rule"),
    [
        ("exponential", {}, MIDDLE, "clamp"),
        ("poisson", {}, (2, 7), "redact"),
        ("normal", {}, (-0.6, 0.4), "redact"),
    ],
)
def test_simulated_sums_have_the_joint_moments(kind, options, bounds, rule):
    """Sums of 60 records, 20,000 times: means, covariances and cross-covariance within 5 standard errors."""
    n, trials = 60.0, 20_000
    with jax.enable_x64(True):
        model = made(kind, options, bounds, rule).astype(jnp.float64)
        phi = jnp.asarray([0.2, -1.5][: model.dim])
        draw = jax.jit(lambda keys: jax.lax.map(lambda k: model.simulate(k, phi, jnp.float64(n)), keys, batch_size=500))
        c, t = (np.asarray(x) for x in draw(jax.random.split(jax.random.key(0), trials)))
        joint = jax.tree.map(np.asarray, model.joint(phi))
    for got, mean, covariance in (
        (c, joint.released_mean, joint.released_covariance),
        (t, joint.whole_mean, joint.whole_covariance),
    ):
        sd = np.sqrt(np.diag(covariance) / n)
        assert (np.abs(got.mean(0) / n - mean) < 5 * sd / np.sqrt(trials)).all()
        check_covariance(got / np.sqrt(n), got / np.sqrt(n), covariance)
    check_covariance(t / np.sqrt(n), c / np.sqrt(n), joint.cross)


def check_covariance(a, b, truth):
    """Cross-covariance of samples within 5 standard errors, entry by entry."""
    products = (a - a.mean(0))[:, :, None] * (b - b.mean(0))[:, None]
    error = products.std(0) / np.sqrt(len(a))
    np.testing.assert_array_less(np.abs(products.mean(0) - truth), 5 * error + 1e-12)


@pytest.mark.slow
def test_conjugate_draws_have_the_posteriors_laws():
    """Each prior's draw of float32 lanes against SciPy's distribution function."""
    lanes = 20_000
    keys = jax.random.split(jax.random.key(5), lanes)
    from dpjax.kernels.streams import normals_and_uniforms_lanes

    def draw(prior):
        spread = jax.tree.map(lambda x: jnp.broadcast_to(x[..., None], (*x.shape, lanes)), prior)
        normals, uniforms = normals_and_uniforms_lanes(keys, *spread.randoms)
        phi = jax.jit(lambda p: p.draw_lanes(keys, normals, uniforms))(spread)
        return np.asarray(jax.vmap(prior.constrain, in_axes=-1)(phi), np.float64)

    laws = [
        (GammaPrior.create(shape=0.4, rate=2.0), [stats.gamma(0.4, scale=0.5)]),
        (DirichletPrior.create(concentration=[2.0, 1.0, 4.0]), [stats.beta(2, 5), stats.beta(1, 6), stats.beta(4, 3)]),
        (
            NormalInverseGammaPrior.create(mean=0.5, kappa=2.0, shape=4.0, scale=3.0),
            [stats.t(8, 0.5, np.sqrt(3 / (4 * 2))), stats.invgamma(4, scale=3)],
        ),
    ]
    for prior, marginals in laws:
        got = draw(prior)
        for k, law in enumerate(marginals):
            assert stats.kstest(got[:, k], law.cdf).pvalue > 1e-3, (prior, k)
        sampled = jax.jit(jax.vmap(lambda key, p=prior: p.constrain(p.sample(key))))(keys)
        assert stats.kstest(np.asarray(sampled[:, 0]), marginals[0].cdf).pvalue > 1e-3


@pytest.mark.slow
def test_multinomial_moments_counts_and_missing_category():
    model = Multinomial(DirichletPrior.create(concentration=[2.0, 3.0, 4.0]), (2, 0))
    phi = jnp.asarray([0.3, -0.2], jnp.float32)
    p = np.asarray(model.report(phi), np.float64)
    np.testing.assert_allclose(p.sum(), 1, rtol=1e-6)
    mean, covariance = model.moments(phi)
    np.testing.assert_allclose(mean, p[[2, 0]], rtol=1e-6)
    np.testing.assert_allclose(covariance, np.diag(p[[2, 0]]) - np.outer(p[[2, 0]], p[[2, 0]]), atol=1e-7)
    shares = model.all_shares_lanes(jnp.asarray([[0.5], [0.2]]))
    np.testing.assert_allclose(shares[:, 0], [0.2, 0.3, 0.5], rtol=1e-6)
    counts, _ = jax.vmap(lambda k: model.simulate(k, phi, jnp.float32(500)))(jax.random.split(jax.random.key(1), 4000))
    np.testing.assert_allclose(counts.mean(0) / 500, p[[2, 0]], atol=5 * 0.5 / np.sqrt(500 * 4000))
    np.testing.assert_allclose(np.cov(counts.T) / 500, covariance, atol=0.02)
    np.testing.assert_allclose(model.prior_precision(), Model.prior_precision(model), atol=1e-5)


def test_default_priors_follow_the_bounds():
    """Exponential: half a record of a tenth of the middle of the bounds; normal: one prior in both units."""
    waits = make_statistic("exponential", target="wait", bounds={"wait": (0.0, 40.0)})
    np.testing.assert_allclose(model_for(waits).prior.rate, 2.0)
    study = model_for(waits, default="calibration").as_dict()
    assert study == {"shape": 10.0, "rate": 10.0}
    changed = model_for(waits, {"rate": 3.0}).as_dict()
    assert changed == {"shape": 0.5, "rate": 3.0}
    scaled = model_for(make_statistic("normal", target="x", bounds={"x": (10.0, 30.0)}))
    raw = model_for(make_statistic("normal", target="x", bounds={"x": (10.0, 30.0)}, scaling=None))
    np.testing.assert_allclose(raw.prior.mean, 20.0)
    np.testing.assert_allclose(raw.prior.scale, 100 * scaled.prior.scale, rtol=1e-6)
