"""Families against 40-digit moments, their samples, quantiles and conjugate updates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.families import truth
from scipy import stats

from dpjax.families import FAMILIES, Family, family_named
from dpjax.kernels.special import normal_laplace_log_density
from dpjax.kernels.truncated import mixture_moments, truncated_moments
from dpjax.models.priors import PRIORS

#: Kind and options -> reported parameters, a frozen scipy distribution of each.
CASES = {
    "exponential": ("exponential", {}, [[1.3], [0.01], [50.0]], lambda r: stats.expon(scale=1 / r)),
    "gamma-0.3": ("gamma", {"shape": 0.3}, [[1.0], [20.0]], lambda r: stats.gamma(0.3, scale=1 / r)),
    "gamma-2.5": ("gamma", {"shape": 2.5}, [[1.3], [0.02]], lambda r: stats.gamma(2.5, scale=1 / r)),
    "gamma-1000": ("gamma", {"shape": 1000.0}, [[30.0]], lambda r: stats.gamma(1000.0, scale=1 / r)),
    "normal": ("normal", {}, [[0.3, 0.2], [-0.9, 1e-4], [50.0, 4.0]], lambda m, v: stats.norm(m, v**0.5)),
    "log-normal": ("log-normal", {}, [[0.5, 0.04]], lambda m, v: stats.norm(m, v**0.5)),
    "poisson": ("poisson", {}, [[0.2], [3.0], [30.0], [1000.0], [5000.0]], stats.poisson),
    "geometric": ("geometric", {}, [[0.5], [0.9], [0.05], [0.01]], lambda p: stats.geom(p, loc=-1)),
}


def family_of(case):
    return family_named(CASES[case][0], **CASES[case][1])


def regions(family, law):
    """Central, narrow, in either tail, from the support's start."""
    start, sd, middle = family.support[0], law.std(), law.median()
    start = start if np.isfinite(start) else middle - 12 * sd
    pairs = [law.ppf([0.025, 0.975]), law.ppf([0.1, 0.3]), law.ppf([1e-13, 1 - 1e-10])]
    pairs += [(middle, middle + 1e-3 * sd), (middle - 0.1 * sd, middle + 0.01 * sd), (middle + sd, middle + 2 * sd)]
    pairs += [(law.ppf(1e-15), law.ppf(1e-12)), (law.isf(1e-12), law.isf(1e-15)), (law.isf(1e-12), law.isf(1e-12) + sd)]
    pairs += [(start, law.ppf(1e-12)), (start, law.ppf(0.01)), (start, middle), (start, law.isf(1e-3))]
    pairs += [(start + 1e-3 * sd, start + 3 * sd), (law.isf(1e-3), law.isf(1e-30))]
    if family.discrete:
        pairs = [(np.ceil(a), np.floor(max(b, np.ceil(a)))) for a, b in pairs]
        pairs += [(a, a + 1) for a, _ in pairs[:1]] + [(0.0, 0.0), (1.0, 1.0)]
    pairs = [(0.0 if 0 < a < 1e-25 else a, b) for a, b in pairs]
    return [(a, b) for a, b in pairs if 1e-25 < b < np.inf and (a < b or (family.discrete and a == b))]


def grid(case, dtype):
    """theta [G, K], low [G], high [G] in this dtype and the truth at each (the numbers rounded first)."""
    kind, options, thetas, law = CASES[case]
    rows = [
        (np.asarray(theta, dtype), dtype(low), dtype(high))
        for theta in thetas
        for low, high in regions(family_of(case), law(*theta))
    ]
    rows = [row for row in rows if row[1] < row[2] or FAMILIES[kind].discrete]
    truths = [truth(kind, *row, **options) for row in rows]
    return *(np.stack(x) for x in zip(*rows, strict=True)), truths


def evaluated(family, theta, low, high):
    """Everything about each region, compiled once: masses, moments, gradient of the covariance."""

    def one(theta, low, high):
        eta = family.natural(theta)
        log_integral = lambda e: family.log_integral(e, low, high)
        mean, covariance = truncated_moments(log_integral, eta)
        masses = (family.log_mass_below(eta, low), family.log_mass(eta, low, high), family.log_mass_above(eta, high))
        slopes = jax.grad(lambda e: family.log_mass(e, low, high))(eta)
        return masses, mean, covariance, jax.jacrev(jax.hessian(log_integral))(eta), slopes

    return jax.tree.map(lambda x: np.asarray(x, np.float64), jax.jit(jax.vmap(one))(theta, low, high))


def check(case, dtype, tolerance):
    family, (theta, low, high, truths) = family_of(case), grid(case, dtype)
    masses, mean, covariance, third, slopes = evaluated(family, theta, low, high)
    worst = {}

    def note(what, error, place):
        worst[what] = max(worst.get(what, (0.0, "")), (float(error) if np.isfinite(error) else np.inf, place))

    for g, true in enumerate(truths):
        place = f"theta {theta[g]} region [{low[g]!r}, {high[g]!r}]"
        for name, mine, exact in zip(("below", "mass", "above"), (m[g] for m in masses), true[:3], strict=True):
            if exact == -np.inf:
                assert mine == exact, (name, place)
            else:
                note(name, abs(mine - exact) / max(1.0, 1e-3 * abs(exact)), place)
        sd = np.sqrt(np.diag(true.covariance))
        bounds = np.stack([[end**p for p in family.powers] for end in np.float64([low[g], high[g]])])
        distance = np.abs(true.mean - bounds).min(0) + sd
        exact_point = sd == 0  # one count only
        rounding = 4 * np.finfo(dtype).eps * np.abs(true.mean)
        error = np.maximum(np.abs(mean[g] - true.mean) - rounding, 0.0)
        note("mean", (error / np.where(exact_point, 1.0, distance)).max(), place)
        scale = np.where(exact_point, 1.0, sd)
        note("covariance", (np.abs(covariance[g] - true.covariance) / np.outer(scale, scale)).max(), place)
        cube = scale[:, None, None] * scale[:, None] * scale
        note("third", (np.abs(third[g] - true.third) / cube).max(), place)
        note("slopes", 0.0 if np.isfinite(slopes[g]).all() else np.inf, place)
    for what, (error, place) in worst.items():
        assert error < tolerance, (what, error, place)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_regions_in_double_precision(case):
    with jax.enable_x64(True):
        check(case, np.float64, 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_regions_in_single_precision(case):
    check(case, np.float32, 1e-3)


def left_out_elsewhere(mass, mean, covariance):
    """Moments of t of a record that counts as 0 outside of the region."""
    both = (jnp.stack([x, jnp.zeros_like(x)]) for x in (mean, covariance))
    return mixture_moments(jnp.stack([mass, 1.0 - mass]), *both)


@pytest.mark.slow
def test_truncated_exponential_to_the_digits():
    """docs/formulas.md#family-moments."""
    with jax.enable_x64(True):
        family, eta = family_named("exponential"), jnp.asarray([-1.3])
        low, high = jnp.float64(0.2), jnp.float64(1.5)
        mass = jnp.exp(family.log_mass(eta, low, high))
        moments = truncated_moments(lambda e: family.log_integral(e, low, high), eta)
        got = [mass, *moments, *left_out_elsewhere(mass, *moments)]
        exact = [0.628777514217, 0.675078562957, 0.122792587719, 0.424474220717, 0.183584300951]
        np.testing.assert_allclose([float(x.reshape(())) for x in got], exact, rtol=0, atol=5e-13)
        # [.5, inf) by its survival function
        eta, low = jnp.asarray([-2.0]), jnp.float64(0.5)
        mass = jnp.exp(family.log_mass_above(eta, low))
        moments = truncated_moments(lambda e: family.log_partition(e) + family.log_mass_above(e, low), eta)
        got = [mass, *moments, *left_out_elsewhere(mass, *moments)]
        exact = [0.367879441171, 1.0, 0.25, 0.367879441171, 0.324514018228]
        np.testing.assert_allclose([float(x.reshape(())) for x in got], exact, rtol=0, atol=6e-13)


def test_normal_laplace_to_the_digits():
    """docs/formulas.md#normal-laplace."""
    with jax.enable_x64(True):
        for y, m, v, b, exact in ((1.0, 0.0, 1.0, 1.0, -1.596461601220), (0.0, 10.0, 4.0, 0.5, -12.141667193681)):
            value = normal_laplace_log_density(jnp.float64((y - m) / b), jnp.float64(v / b**2)) - np.log(b)
            np.testing.assert_allclose(value, exact, rtol=0, atol=6e-13)


WHOLE = {**CASES, "binomial": ("binomial", {}, [[0.3]], stats.bernoulli)}


@pytest.mark.slow
@pytest.mark.parametrize("case", WHOLE)
def test_whole_law(case):
    """Gradient and Hessian of A, quantiles, and the mean of a sample."""
    kind, options, thetas, law = WHOLE[case]
    family, law = family_named(kind, **options), law(*thetas[0])
    with jax.enable_x64(True):
        theta = jnp.asarray(thetas[0])
        mean, covariance = truncated_moments(family.log_partition, family.natural(theta))
        m, v = law.mean(), law.var()
        if family.powers == (1, 2):
            exact = [m, m * m + v], [[v, 2 * m * v], [2 * m * v, 4 * m * m * v + 2 * v * v]]
        else:
            exact = [m], [[v]]
        np.testing.assert_allclose(mean, exact[0], rtol=1e-12)
        np.testing.assert_allclose(covariance, exact[1], rtol=1e-12)
        if kind != "binomial":
            u = np.array([1e-12, 1e-3, 0.31, 0.5, 0.97, 1 - 1e-9])
            np.testing.assert_allclose(jax.jit(family.quantile)(theta, u), law.ppf(u), rtol=1e-8, atol=1e-12)
    theta = jnp.asarray(thetas[0], jnp.float32)
    draws = np.float64(family.statistic(family.sample(jax.random.key(1), theta, (20_000,))))
    assert family.sample(jax.random.key(1), theta, (2,)).dtype == jnp.float32
    assert (np.abs(draws.mean(1) - exact[0]) < 5 * draws.std(1) / np.sqrt(draws.shape[1])).all()


HYPERPARAMETERS = {
    "gamma": {"shape": 2.0, "rate": 3.0},
    "beta": {"alpha": 2.0, "beta": 3.0},
    "normal-inverse-gamma": {"mean": 0.3, "kappa": 2.0, "shape": 3.0, "scale": 1.5},
}


@pytest.mark.parametrize("case", WHOLE)
def test_conjugate_update(case):
    """Prior times likelihood over posterior does not depend on the parameters."""
    kind, options, thetas, law = WHOLE[case]
    family, n = family_named(kind, **options), 5.0
    with jax.enable_x64(True):
        prior = PRIORS[family.prior].create(jnp.float64, **HYPERPARAMETERS[family.prior])
        records = law(*thetas[0]).rvs(int(n), random_state=np.random.default_rng(3)).astype(float)
        statistic = family.statistic(jnp.asarray(records)).sum(1)
        posterior = family.update(prior, statistic, jnp.float64(n))

        def evidence(phi):
            eta = family.natural(prior.constrain(phi))
            log_likelihood = eta @ statistic - n * family.log_partition(eta)
            return prior.log_density(phi) + log_likelihood - posterior.log_density(phi)

        values = jax.vmap(evidence)(jnp.asarray(np.random.default_rng(4).normal(size=(5, prior.dim))))
        np.testing.assert_allclose(values, np.full(5, values[0]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", ["gamma-2.5", "normal", "poisson", "geometric"])
def test_default_by_cdfs(case):
    """What a family gets that gives its CDF and survival function only."""
    family, (_, _, thetas, law) = family_of(case), CASES[case]
    law = law(*thetas[0])
    with jax.enable_x64(True):
        eta = family.natural(jnp.asarray(thetas[0]))
        for u, v in ((0.02, 0.97), (1e-9, 1e-3), (0.999, 1 - 1e-9)):
            low, high = (jnp.float64(law.ppf(x)) for x in (u, v))
            for default, own in ((Family.log_mass, family.log_mass), (Family.log_integral, family.log_integral)):
                np.testing.assert_allclose(default(family, eta, low, high), own(eta, low, high), rtol=1e-9, atol=1e-9)
