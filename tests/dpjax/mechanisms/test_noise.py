"""Noise entry by entry: codes, densities of every entry's own law, and parties that mix three mechanisms."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import dpjax
from dpjax.engine.problems import Problems
from dpjax.engine.result_codes import OK
from dpjax.errors import InputError
from dpjax.inference.methods import METHODS
from dpjax.inference.run_method import run_method
from dpjax.mechanisms import GAUSSIAN, LAPLACE, MECHANISMS, Mechanism, register
from dpjax.mechanisms.noise import Noise
from dpjax.models import OriginRegression
from dpjax.models.regression.problems import party_problems
from dpjax.releases.release import Release
from dpjax.statistics.base import SCALING
from dpjax.statistics.origin import OriginStatistic
from tests.dpjax.mechanisms.test_own_mechanism import FREEDOM, StudentT
from tests.oracles import mixed_noise
from tests.oracles.checks import assert_means

THREE = ["laplace", "gaussian", "student-t"]


@dataclass(frozen=True)
class Bare(Mechanism):
    """Noise of which only the variance is known."""

    kind = "bare"
    norm = "l1"
    formula = "sensitivity / epsilon"
    variance = 1.0

    def scale(self, sensitivity, epsilon, delta=None):
        return sensitivity / epsilon

    def tail(self, scales):
        return 1.0

    def simulate(self, key, scale, shape=(), dtype=None):
        return jnp.zeros((*shape, *jnp.shape(scale)), dtype)


@dataclass(frozen=True)
class Logistic(Bare):
    """Noise whose density is known and which is not used as a mixture."""

    kind = "logistic"
    variance = np.pi**2 / 3

    def log_density_and_grad(self, e):
        return -e - 2 * jax.nn.softplus(-e), -jnp.tanh(0.5 * e)


@pytest.fixture(autouse=True)
def more_mechanisms():
    added = [register(one()).kind for one in (StudentT, Bare, Logistic)]
    yield
    for kind in added:
        del MECHANISMS[kind]


# ---- entries -----------------------------------------------------------------------------------------------------
def test_codes_of_entries():
    scale = np.array([[1.0, 2.0], [3.0, 4.0]])
    mixed = Noise.of([["student-t", "gaussian"], ["discrete-laplace", "laplace"]], scale, [[1, 1], [1, 0]])
    kinds = [law.kind for law in mixed.laws]
    assert kinds == ["laplace", "gaussian", "student-t"]  # discrete noise has Laplace's kernel; order of registration
    assert mixed.code.tolist() == [[2, 1], [0, 0]] and mixed.seen.tolist() == [[1, 1], [1, 0]]
    by_party = Noise.of([["gaussian"], ["student-t"]], scale)
    assert by_party.code.tolist() == [[0], [1]] and [law.kind for law in by_party.laws] == ["gaussian", "student-t"]


def test_the_code_is_static_where_there_is_one_law():
    alike = Noise.of("student-t", np.ones(3))
    assert alike.code is None and len(jax.tree.leaves(alike.in_units())) == 1
    assert alike.augmented() is True and alike.randoms == (1, 2)
    jaxpr = str(jax.make_jaxpr(lambda noise, e: noise.log_density_and_grad(e))(alike.in_units(), jnp.ones(3)))
    assert "select_n" not in jaxpr
    closed = Noise.of("gaussian", np.ones(3))  # one program for all mixtures of the two
    assert closed.laws == (LAPLACE, GAUSSIAN) and closed.code.tolist() == [1]


@pytest.mark.slow
def test_every_entry_has_its_own_law():
    names = ["laplace", "gaussian", "student-t", "logistic"]
    noise = Noise.of(names, np.ones(4)).in_units()
    noise = jax.tree.map(lambda x: jnp.asarray(x)[:, None], noise)
    e = np.random.default_rng(0).normal(size=(4, 7)) * 3
    laws = [stats.laplace, stats.norm, stats.t(FREEDOM), stats.logistic]
    expected = np.stack([law.logpdf(row) - law.logpdf(0.0) for law, row in zip(laws, e, strict=True)])
    with jax.enable_x64(True):
        value, slope = noise.log_density_and_grad(jnp.asarray(e))
        zero, _ = noise.log_density_and_grad(jnp.zeros((4, 1)))
        numeric = jax.grad(lambda x: noise.log_density_and_grad(x)[0].sum())(jnp.asarray(e))
        np.testing.assert_allclose(value - zero, expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(slope, numeric, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(noise.variance(jnp.float64)[:, 0], [2.0, 1.0, 2.0, np.pi**2 / 3])
        bend = np.asarray(noise.bend(jnp.asarray([[0.1, 9.0]] * 4)))
    np.testing.assert_allclose(bend[:2], [[1.0, 1 / 3], [1.0, 1.0]], rtol=1e-6)
    assert (bend[2:] <= 1.0).all() and (bend[2:, 1] < 0.5).all()


@pytest.mark.slow
def test_mixing_variances_are_those_of_every_entrys_law():
    count, keys = 20_000, jax.random.split(jax.random.key(4), 5)
    noise = jax.tree.map(lambda x: jnp.asarray(x)[:, None], Noise.of(THREE, np.ones(3)).in_units())
    e = jnp.concatenate(
        [MECHANISMS[k].simulate(key, jnp.ones(1), (count,)).T for k, key in zip(THREE, keys, strict=False)]
    )
    some, few = noise.randoms
    assert (some, few) == (1, 2)
    w = noise.update_lanes(
        e, jax.random.normal(keys[3], (3 * some, count)), jax.random.uniform(keys[4], (3 * few, count))
    )
    again = np.sqrt(np.asarray(w)) * np.random.default_rng(1).normal(size=w.shape)
    for row, law in zip(again, (stats.laplace, stats.norm, stats.t(FREEDOM)), strict=True):
        assert stats.kstest(row, law.cdf).pvalue > 1e-3


def test_shapes_that_do_not_fit():
    with pytest.raises(InputError, match="does not fit"):
        Noise.of(["laplace", "gaussian"], np.ones(3))
    with pytest.raises(InputError, match="mechanism must be one of"):
        Noise.of(["laplace", "cauchy"], np.ones(2))
    base = OriginRegression.create(1)
    made = problems()
    with pytest.raises(InputError, match="noise must be of entries"):
        Problems(made.z, made.n, made.scale, made.model, None, noise=Noise.of("laplace", np.ones((2, 9))))
    with pytest.raises(InputError, match="one for each of 2 parties"):
        party_problems(np.ones((1, 2, 3)), [5.0, 5.0], 1.0, base, THREE)


# ---- parties -----------------------------------------------------------------------------------------------------
BASE = OriginRegression.create(
    1, theta_mean=0.4, theta_precision=1.2, sigma2_shape=8.0, sigma2_scale=2.0, psi=4.0, nu=12.0
)
RECORDS = (5, 3, 4)
Z = np.array([[3.0, 1.5, 2.0], [2.0, -1.0, 3.0], [9.0, 2.5, 1.5]])
SCALE = np.array([[1.0, 0.8, 1.2], [0.7, 1.0, 1.5], [1.0, 0.6, 0.9]])
SEEN = np.array([[1, 1, 1], [1, 1, 0], [1, 1, 1]])


def problems(mechanism=THREE):
    return party_problems(Z[None], RECORDS, SCALE[None], BASE, mechanism, present=SEEN)


def reference(target: bool, seed: int, power: int = 12, noise_power: int = 15):
    """Posterior moments by Sobol points; target: whether sums of y^2 are looked at."""
    laws = (stats.laplace, stats.norm, stats.t(FREEDOM))
    parties = [(Z[j], SCALE[j], RECORDS[j], laws[j], target and bool(SEEN[j, 2])) for j in range(3)]
    return mixed_noise.moments(BASE, parties, power, noise_power, seed)


@pytest.mark.slow
@pytest.mark.parametrize("method, target", [("collapsed", True), ("normal-x", False)])
def test_three_mechanisms_against_sobol_points(method, target):
    """normal-x does not look at sums of y^2."""
    found = [reference(target, seed) for seed in (0, 10)]
    assert min(draws for *_, draws in found) > 400
    expected = [np.mean([one[k] for one in found], 0) for k in (0, 1)]
    error = [np.abs(found[0][k] - found[1][k]) for k in (0, 1)]
    made = problems()
    assert made.mechanism is None and [law.kind for law in made.noise.laws] == THREE
    run = run_method(method, made, chains=32, draws=2000, seed=3, rerun=False)
    assert (run.codes == OK).all() and run.names == ("theta[1]", "sigma2", "tau2[1,1]")
    draws = run.draws[0].astype(np.float64)
    for k, values in enumerate((draws, (draws - expected[0]) ** 2)):
        assert_means(values.mean(1), expected[k], floor=2 * error[k])


@pytest.mark.slow
def test_releases_with_three_mechanisms(tmp_path):
    statistic = OriginStatistic(("x",), "y", {"x": (-3, 3), "y": (-3, 3)}, SCALING)
    paths = []
    for j, name in enumerate(THREE):
        entries = dict(zip(statistic.names, (Z[j] / 2).tolist(), strict=True))
        Release(statistic, RECORDS[j], entries, name, 1.0).save(tmp_path / f"{name}.json")
        paths.append(tmp_path / f"{name}.json")
    with pytest.raises(InputError, match="method 'fixed-s-fast' does not know student-t noise"):
        dpjax.fit(paths, method="fixed-s-fast")
    found = dpjax.fit(paths, chains=2, draws=200)
    assert found.mechanism == "gaussian, laplace, student-t" and np.isfinite(found.draws).all()


@pytest.mark.parametrize(
    "method, mechanism, refused",
    [
        ("collapsed", "bare", True),
        ("normal-x", "bare", True),
        ("fixed-s", "bare", True),
        ("collapsed", "logistic", False),
        ("normal-x", "logistic", True),
        ("clt", "logistic", True),
        ("fixed-s-fast", "student-t", True),
        ("fixed-s", "student-t", False),
        ("collapsed", "discrete-laplace", False),
    ],
)
def test_noise_that_a_sampler_does_not_know_is_refused(method, mechanism, refused):
    """Whether it is that of one party or of all."""
    for names in (["laplace", "gaussian", mechanism], mechanism):
        if refused:
            with pytest.raises(InputError, match=f"method '{method}' does not know {mechanism} noise"):
                METHODS[method].check(problems(names))
        else:
            METHODS[method].check(problems(names))
