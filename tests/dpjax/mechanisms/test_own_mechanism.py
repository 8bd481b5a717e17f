"""A mechanism that the package does not have, as one class and one `register` line: noise with Student's t law.

Everything from a release file to a calibration study then takes it, and what does not know its law refuses it.
"""

import json
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import dpjax
from dpjax.calibration.study import calibrate
from dpjax.errors import InputError, PrivacyWarning
from dpjax.inference.run_method import run_method
from dpjax.mechanisms import MECHANISMS, Mechanism, register
from dpjax.models import LinearRegression
from dpjax.models.regression.problems import make_problems
from dpjax.releases.release import Release, describe_problems

FREEDOM = 4


@dataclass(frozen=True)
class StudentT(Mechanism):
    """z = s + b t, t with 4 degrees of freedom; e | w ~ N(0, w), w ~ InvGamma(2, 2). For analysis only.

    The log density has a slope of at most 5/4: epsilon = 5/4 L1 sensitivity / b.
    """

    kind = "student-t"
    norm = "l1"
    formula = "5/4 sensitivity / epsilon"
    variance = 2.0
    mixing = "other"
    randoms = (1, 2)

    def scale(self, sensitivity, epsilon, delta=None):
        self.no_delta(delta)
        return 1.25 * sensitivity / epsilon

    def spent(self, scale, sensitivity, delta=0.0):
        return 1.25 * sensitivity / scale

    def tail(self, scales):
        return 2 * stats.t(FREEDOM).sf(scales)

    def simulate(self, key, scale, shape=(), dtype=None):
        scale = jnp.asarray(scale, dtype)
        size = (*shape, *scale.shape)
        return jax.random.t(key, FREEDOM, size, scale.dtype) * jnp.broadcast_to(scale, size)

    def log_density_and_grad(self, e):
        return -2.5 * jnp.log1p(e * e / 4.0), -5.0 * e / (4.0 + e * e)

    def update_lanes(self, residual, normals, uniforms):
        """w | e ~ InvGamma(5/2, 2 + e^2 / 2); Gamma(5/2) is half a squared normal and two exponentials."""
        size = residual.shape[0]
        gamma = 0.5 * normals**2 - jnp.log1p(-uniforms[:size]) - jnp.log1p(-uniforms[size:])
        return (2.0 + 0.5 * residual**2) / gamma


@pytest.fixture(autouse=True)
def student_t():
    noise = register(StudentT())
    yield noise
    del MECHANISMS[noise.kind]


@pytest.fixture
def file(tmp_path):
    """The release file of a count with this noise, which somebody else has drawn."""
    content = {
        "format": "dpjax-release", "version": 1, "model": {"kind": "binomial", "column": "yes"}, "records": RECORDS,
        "scaling": None, "statistics": {"successes": SUM}, "mechanism": {"kind": "student-t", "scale": SCALE},
        "privacy": {"epsilon": 1.25 / SCALE, "delta": 0.0, "adjacency": "replace-one", "norm": "l1",
                    "sensitivity": 1.0},
    }  # fmt: skip
    path = tmp_path / "release.json"
    path.write_text(json.dumps(content))
    return path


RECORDS, SUM, SCALE = 50, 44.0, 4.0


def reference():
    """Mean and sd of the probability: quadrature over it and over the sum, which is normal given it; flat prior."""
    p, s = np.linspace(1e-4, 1 - 1e-4, 2001)[:, None], np.linspace(-40, 90, 2601)[None]
    law = stats.norm(RECORDS * p, np.sqrt(RECORDS * p * (1 - p))).pdf(s)
    weight = (law * stats.t(FREEDOM).pdf((SUM - s) / SCALE)).sum(1)
    weight, p = weight / weight.sum(), p[:, 0]
    mean = (weight * p).sum()
    return mean, np.sqrt((weight * (p - mean) ** 2).sum())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["collapsed", "gibbs"])
def test_posterior_of_a_release_file_against_quadrature(file, method):
    found = dpjax.fit(file, method=method, prior={"alpha": 1.0, "beta": 1.0}, draws=4000, seed=3)
    draws = found.draws.reshape(-1)
    mean, sd = reference()
    assert found.mechanism == "student-t" and not found.warnings()
    assert abs(draws.mean() - mean) < 0.06 * sd
    assert draws.std() == pytest.approx(sd, rel=0.05)


@pytest.mark.slow
def test_calibrated():
    kwargs = {"records": [30, 300], "epsilon": [0.1, 1.0], "trials": 200, "mechanism": "student-t", "mmd": False}
    study = calibrate("binomial", method="collapsed", seed=5,
                      **kwargs)  # fmt: skip
    assert study.verdict()["passed"], study.table()
    assert study.settings["mechanism"] == "student-t"


@pytest.mark.slow
def test_mixture_is_the_law(student_t):
    """Variances drawn given noise leave the noise's law as it is: e' ~ N(0, w), w | e, has the law of e."""
    count, keys = 40_000, jax.random.split(jax.random.key(4), 4)
    noise = student_t.simulate(keys[0], jnp.ones(1), (count,)).T
    w = student_t.update_lanes(noise, jax.random.normal(keys[1], (1, count)), jax.random.uniform(keys[2], (2, count)))
    again = np.asarray(jnp.sqrt(w) * jax.random.normal(keys[3], (1, count)))[0]
    assert stats.kstest(again, stats.t(FREEDOM).cdf).pvalue > 1e-3
    assert (
        stats.kstest(student_t.sample(np.random.default_rng(1), 3.0, (4000,)) / 3, stats.t(FREEDOM).cdf).pvalue > 1e-3
    )


def test_file_is_checked_and_doubted(file):
    assert describe_problems(file) == [] and Release.load(file).mechanism == "student-t"
    content = json.loads(file.read_text())
    content["privacy"]["epsilon"] = 1 / SCALE  # what Laplace noise would give
    file.write_text(json.dumps(content))
    with pytest.warns(PrivacyWarning, match=r"below 5/4 sensitivity / epsilon = 5: the stated epsilon = 0.25"):
        Release.load(file)
    content["privacy"]["norm"] = "l2"
    file.write_text(json.dumps(content))
    assert "'privacy.norm' must be 'l1' for student-t noise" in "".join(describe_problems(file))


def test_there_are_no_releases_with_it():
    words = "mechanism must be 'laplace' or 'gaussian' or 'discrete-laplace'"
    table = {"yes": np.array([0, 1, 1])}
    with pytest.raises(InputError, match=words):
        dpjax.release(table, model="binomial", target="yes", epsilon=1.0, mechanism="student-t")


@pytest.mark.parametrize("method", ["exact", "ops"])
def test_methods_that_do_not_know_its_law_refuse(file, method):
    with pytest.raises(InputError, match=f"method '{method}' does not know student-t noise"):
        dpjax.fit(file, method=method)


def test_models_that_do_not_know_its_law_refuse():
    problems = make_problems(np.ones((1, 5)), np.array([10.0]), np.ones((1, 5)), LinearRegression.s0(1), "student-t")
    with pytest.raises(InputError, match="method 'individual' does not know student-t noise"):
        run_method("individual", problems, seed=1, chains=1, draws=20)


def test_unknown_noise_is_refused_by_name():
    problems = make_problems(np.ones((1, 5)), np.array([10.0]), np.ones((1, 5)), LinearRegression.s0(1), "cauchy")
    with pytest.raises(InputError, match="must be one of laplace, gaussian, discrete-laplace, student-t; got"):
        run_method("collapsed", problems, seed=1)
