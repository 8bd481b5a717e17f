"""The registered mechanisms: statement, privacy map, simulation, density, scale mixture; budgets of Gaussian noise
(docs/formulas.md#gaussian-scale)."""

import math
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from dpjax.errors import InputError
from dpjax.mechanisms import GAUSSIAN, LAPLACE, MECHANISMS, Mechanism, mechanism_named, register, released_kinds
from dpjax.mechanisms.laplace import Laplace
from dpjax.privacy.gaussian import analytic_gaussian_sigma, gaussian_delta, gaussian_epsilon

SCALE = jnp.array([0.5, 2.0, 7.0])
LAWS = {"laplace": stats.laplace, "gaussian": stats.norm}
TAILS = LAWS | {"discrete-laplace": stats.dlaplace}

# docs/formulas.md#gaussian-scale: epsilon, delta, sigma at sensitivity 1
H3 = [
    (0.1, 1e-5, 30.7495661320),
    (0.1, 1e-6, 36.3046904262),
    (0.5, 1e-5, 7.0318266756),
    (1, 1e-5, 3.7306316348),
    (1, 1e-6, 4.2246788893),
    (1, 1e-2, 1.8778755609),
    (2, 1e-5, 1.9938124456),
    (5, 1e-5, 0.8918682650),
    (10, 1e-5, 0.4998886197),
    (0.1, 0.1, 2.8469244358),
    (1 / 3, 1e-5 / 3, 10.9706972976),
    (1 / 3, 1e-6 / 3, 12.4712287009),
]


@pytest.mark.parametrize(("epsilon", "delta", "sigma"), H3)
def test_analytic_gaussian_of_spec_h3(epsilon, delta, sigma):
    found = analytic_gaussian_sigma(1, epsilon, delta)
    assert found == pytest.approx(sigma, abs=1e-10)
    assert gaussian_delta(found, 1, epsilon) <= delta
    assert gaussian_delta(found * (1 - 1e-9), 1, epsilon) > delta
    assert gaussian_epsilon(found, 1, delta) == pytest.approx(epsilon, rel=1e-10)
    assert analytic_gaussian_sigma(2.5, epsilon, delta) == pytest.approx(2.5 * sigma, rel=1e-10)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1e-3, 1e-5), (1e3, 1e-5), (1e-6, 1e-9), (1, 1e-300), (100, 1e-12), (1e-4, 0.9)]
)
def test_analytic_gaussian_at_the_edges(epsilon, delta):
    sigma = analytic_gaussian_sigma(3, epsilon, delta)
    assert gaussian_delta(sigma, 3, epsilon) == pytest.approx(delta, rel=1e-5)
    assert gaussian_delta(sigma, 3, epsilon) <= delta


def test_gaussian_delta_against_the_privacy_loss():
    # delta = E max(0, 1 - exp(epsilon - loss)), loss = (mu^2 / 2 + mu u) with mu = sensitivity / sigma
    sigma, sensitivity, epsilon = 2.0, 1.5, 0.7
    mu = sensitivity / sigma
    loss = lambda u: max(0.0, -math.expm1(epsilon - mu * mu / 2 - mu * u)) * stats.norm.pdf(u)
    expected = integrate.quad(loss, (epsilon - mu * mu / 2) / mu, 12)[0]
    assert gaussian_delta(sigma, sensitivity, epsilon) == pytest.approx(expected, rel=1e-8)


def test_gaussian_epsilon_is_zero_where_delta_allows_it():
    assert gaussian_epsilon(1e6, 1, 0.1) == 0


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, True, "1", None])
def test_bad_privacy_arguments(bad):
    for arguments in ((bad, 1, 1e-5), (1, bad, 1e-5), (1, 1, bad)):
        with pytest.raises(InputError):
            analytic_gaussian_sigma(*arguments)
    with pytest.raises(InputError):
        analytic_gaussian_sigma(1, 1, 1.0)


# --- the registry ---------------------------------------------------------------------------------------------------
def test_registered_mechanisms():
    assert list(MECHANISMS) == ["laplace", "gaussian", "discrete-laplace"] == list(released_kinds())
    assert all(mechanism_named(kind).kind == kind for kind in MECHANISMS)
    for wrong in ("wishart", None, ["laplace"]):
        with pytest.raises(InputError, match="mechanism must be one of laplace, gaussian, discrete-laplace; got"):
            mechanism_named(wrong)


def made(**changes):
    """An instance of a mechanism that is Laplace's but for these attributes."""
    return type("Other", (Laplace,), {"kind": "other", "__module__": "test"} | changes)()


BAD = {
    "a class": (Laplace, "must be an instance"),
    "no kind": (made(kind=""), "kind must be a name"),
    "kind of another": (made(kind="gaussian"), "there is a mechanism called 'gaussian' already: Gaussian"),
    "norm": (made(norm="l3"), "norm must be 'l1' or 'l2'"),
    "mixing": (made(mixing="cauchy"), "mixing must be"),
    "no scale": (made(scale=Mechanism.scale), "scale must be written"),
    "no draw": (made(draw=Mechanism.draw), "draw must be written"),
    "no mixture": (made(update_lanes=Mechanism.update_lanes), "update_lanes must be written"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_no_mechanism_is_refused(what):
    mechanism, says = BAD[what]
    with pytest.raises(InputError, match=says):
        register(mechanism)
    assert list(MECHANISMS) == ["laplace", "gaussian", "discrete-laplace"]


def test_registering_again_changes_nothing():
    assert register(LAPLACE) is LAPLACE and MECHANISMS["laplace"] is LAPLACE


def test_owners_half_loads_no_jax():
    script = """if True:
        import sys
        import numpy as np
        from dpjax.mechanisms import MECHANISMS
        for noise in MECHANISMS.values():
            noise.release_scale(2.0, 0.5, 1e-6 if noise.needs_delta else 0.0), noise.tail(3.0), noise.sum_tail(3.0, 2)
            noise.sample(np.random.default_rng(0), 2.0, (3,))
        print("jax" in sys.modules)
    """
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_noise_without_releases_is_not_drawn():
    analysed = made(draw=Mechanism.draw, released=False)
    with pytest.raises(InputError, match="other noise is for analysis"):
        analysed.draw(np.ones(2), 1.0, 1.0)


# --- what each promises ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", MECHANISMS)
def test_statement_names_metric_map_and_source(kind):
    statement, norm = MECHANISMS[kind].statement, MECHANISMS[kind].norm
    assert statement.norm == norm == {"gaussian": "l2"}.get(kind, "l1")
    assert norm.upper() in statement.input_metric
    assert statement.reference and statement.privacy_map and statement.output_measure
    assert statement.adjacency[0] == "replace-one"


@pytest.mark.parametrize("kind", MECHANISMS)
def test_scale_and_privacy_map_are_inverse(kind):
    noise = MECHANISMS[kind]
    delta = 1e-5 if noise.needs_delta else None
    scale = noise.scale(3.0, 0.7, delta)
    assert noise.spent(scale, 3.0, delta) == pytest.approx(0.7, rel=1e-9)
    assert noise.holds(scale, 3.0, 0.7, delta or 0.0) and not noise.holds(scale / 1.001, 3.0, 0.7, delta or 0.0)
    assert noise.release_scale(3.0, 0.7, delta or 0.0) == scale
    with pytest.raises(InputError, match="delta"):
        noise.scale(3.0, 0.7, None if noise.needs_delta else 1e-5)


@pytest.mark.parametrize("kind", MECHANISMS)
def test_tails_are_bounds(kind):
    noise, b, entries = MECHANISMS[kind], 3.0, 4
    law = TAILS[kind](1 / b) if noise.integer else TAILS[kind](scale=b)
    for k in (0.5, 2.0, 7.0):
        assert 2 * law.sf(np.nextafter(k * b, 0)) <= noise.tail(k) * (1 + 1e-9)
    rng = np.random.default_rng(5)
    sums = np.abs(noise.sample(rng, b, (100_000, entries)).sum(1)) / b
    for k in (3.0, 6.0, 9.0):
        assert (sums >= k).mean() <= 2 * noise.sum_tail(k, entries) + 1e-4
        assert (sums >= k).mean() <= 2 * Mechanism.sum_tail(noise, k, entries) + 1e-4


# --- its law --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", LAWS)
def test_simulated_noise_has_its_law(kind):
    noise = MECHANISMS[kind]
    draws = np.asarray(noise.simulate(jax.random.key(1), SCALE, (4000,)))
    assert draws.shape == (4000, 3) and draws.dtype == np.asarray(SCALE).dtype
    on_host = noise.sample(np.random.default_rng(1), np.asarray(SCALE), (4000, 3))
    for j in range(3):
        law = LAWS[kind](scale=float(SCALE[j])).cdf
        assert stats.kstest(draws[:, j], law).pvalue > 1e-3
        assert stats.kstest(on_host[:, j], law).pvalue > 1e-3
    assert abs(np.corrcoef(draws.T)[0, 1]) < 0.06
    assert noise.simulate(jax.random.key(2), SCALE).shape == (3,)
    assert noise.simulate(jax.random.key(2), SCALE, dtype=jnp.float16).dtype == jnp.float16


def test_simulated_discrete_noise_has_its_law():
    noise = MECHANISMS["discrete-laplace"]
    draws = np.asarray(noise.simulate(jax.random.key(1), SCALE, (4000,)))
    assert draws.shape == (4000, 3) and draws.dtype == np.asarray(SCALE).dtype
    for found in (draws, noise.sample(np.random.default_rng(1), np.asarray(SCALE, float), (4000, 3))):
        assert (found == np.round(found)).all()
        for j, b in enumerate(np.asarray(SCALE, float)):
            k = np.arange(-int(2 * b) - 1, int(2 * b) + 2)
            inner = stats.dlaplace.pmf(k, 1 / b)
            seen = np.array([(found[:, j] == i).sum() for i in k])
            observed, expected = [*seen, 4000 - seen.sum()], 4000 * np.array([*inner, 1 - inner.sum()])
            assert stats.chisquare(observed, expected).pvalue > 1e-3
        np.testing.assert_allclose(found.std(axis=0), [stats.dlaplace.std(1 / b) for b in np.asarray(SCALE)], rtol=0.08)
    assert noise.density is LAPLACE and noise.integer  # the kernel of Laplace noise in s
    assert noise.simulate(jax.random.key(2), SCALE).shape == (3,)


def test_sample_by_default_is_the_simulation():
    draws = Mechanism.sample(LAPLACE, np.random.default_rng(3), np.asarray(SCALE), (4000, 3))
    for j in range(3):
        assert stats.kstest(draws[:, j], stats.laplace(scale=float(SCALE[j])).cdf).pvalue > 1e-3


@pytest.mark.parametrize("kind", LAWS)
def test_density_and_its_slope(kind):
    e = np.array([-3.0, -0.2, 0.5, 4.0])
    value, slope = (np.asarray(x) for x in MECHANISMS[kind].log_density_and_grad(jnp.asarray(e)))
    exact = LAWS[kind].logpdf(e)
    np.testing.assert_allclose(value - value[0], exact - exact[0], rtol=1e-6)
    np.testing.assert_allclose(slope, (LAWS[kind].logpdf(e + 1e-5) - LAWS[kind].logpdf(e - 1e-5)) / 2e-5, rtol=1e-4)
    whole = MECHANISMS[kind].distribution(jnp.zeros(4), jnp.full(4, 2.0)).log_prob(jnp.asarray(2 * e))
    np.testing.assert_allclose(whole, exact - np.log(2), rtol=1e-5)


@pytest.mark.slow
def test_laplace_is_the_stated_scale_mixture():
    """Variances drawn given noise leave the noise's law as it is: e' ~ N(0, w), w | e, has the law of e."""
    count = 40_000
    keys = jax.random.split(jax.random.key(4), 4)
    noise = jax.random.laplace(keys[0], (1, count))
    normals, uniforms = jax.random.normal(keys[1], (1, count)), jax.random.uniform(keys[2], (1, count))
    w = LAPLACE.update_lanes(noise, normals, uniforms)
    assert abs(float(w.mean()) - LAPLACE.variance) < 5 * float(w.std()) / math.sqrt(count)
    again = np.asarray(jnp.sqrt(w) * jax.random.normal(keys[3], (1, count)))[0]
    assert stats.kstest(again, stats.laplace.cdf).pvalue > 1e-3
    assert (GAUSSIAN.update_lanes(noise, normals, uniforms) == GAUSSIAN.variance).all()


def test_only_known_densities_pass_for_laplace_or_gaussian():
    assert LAPLACE.exponential and not GAUSSIAN.exponential and MECHANISMS["discrete-laplace"].exponential
    other = made(mixing="other")
    assert other.augmented and not other.closed_form
    with pytest.raises(InputError, match="noise must be laplace or gaussian here, got 'other'"):
        other.exponential  # noqa: B018
