"""Draws of every method, bit by bit: a refactoring must not change one of them.

The last bits depend on the processor (XLA chooses its vector instructions) and on the versions of what computes, so
nothing is compared but on a machine for which they were stored. `draws.json` is written by the switch of
tests/golden/stored.py, which keeps the hashes of other machines only while those of this one stay what they were.
"""

import hashlib
import json
import platform
import re
import sys
import warnings
from pathlib import Path

import jax
import jaxlib
import numpy as np
import pytest

from dpjax.calibration.study_design import study_design
from dpjax.inference.fit import inferred_model
from dpjax.inference.matrix_release import matrix_problems
from dpjax.inference.methods import METHODS
from dpjax.inference.run_method import run_method
from dpjax.mechanisms.matrix import InverseWishart, Wishart
from dpjax.models import model_for
from dpjax.models.regression.problems import make_problems, party_problems
from dpjax.releases.parties import gather
from dpjax.releases.release import Release
from tests.golden import stored

pytestmark = pytest.mark.slow  # each compiles

FILE = stored.FOLDER / "draws.json"
SHAPE = {"chains": 2, "draws": 20, "thin": 1, "seed": 7, "devices": 1, "rerun": False}
CONJUGATE = {
    "theta_precision": [[0.15, 0], [0, 0.15]],
    "sigma2_shape": 3,
    "sigma2_scale": 0.3,
    "covariates": {"kappa": 1, "psi": [[1]], "nu": 6},
}
KNOWN = CONJUGATE | {"covariates": {"law": "uniform", "low": [-1], "high": [1]}}
WISHART = Wishart.calibrated(1, 3.0, 1.0, 1e-3)
INVERSE = InverseWishart.calibrated(1, 4000, 3.0, 1.0, 1e-3)
GRAM = np.array([[3900.0, 2300.0], [2300.0, 2500.0]])
WARMUP = {"warmup": 100}
BURN_IN = {"burn_in": 40}


# ---- problems: how they are made may change, the draws may not -----------------------------------------------------
def release(name):
    return Release.load(stored.OLD / f"{name}.json")


def one(name, method, prior=None, **more):
    made = release(name)
    return make_problems(
        made.z[None], np.array([float(made.records)]), made.scale[None],
        inferred_model(made.statistic, prior, method), made.mechanism, statistic=made.statistic, **more,
    )  # fmt: skip


def several(own):
    gathered = gather([release("regression"), release("regression-other")])
    return party_problems(
        gathered.z[None], gathered.records[None], gathered.scale[None],
        inferred_model(gathered.statistic, CONJUGATE, "collapsed", conjugate=True), gathered.mechanisms,
        centre=gathered.centre, half=gathered.half, present=gathered.present, own=own,
    )  # fmt: skip


def matrix(mechanism):
    return matrix_problems(GRAM[None], 4000.0, mechanism, model_for(release("origin").statistic))


def simulated():
    design = study_design("exponential", bounds=(0.0, 2.5), rule="redact")
    return design.study([(50, 1.0), (200, 1.0)], 2, 3).problems


SUMS = np.array([[2.0, 29.0, 1.0, 11.0, 6.0]])
#: Name -> (method, problems, settings of the sampler).
CASES = {
    "collapsed": ("collapsed", lambda: one("regression", "collapsed"), WARMUP),
    "collapsed, conjugate prior": ("collapsed", lambda: one("regression", "collapsed", CONJUGATE), WARMUP),
    "collapsed, Gaussian noise": ("collapsed", lambda: one("regression-gaussian", "collapsed"), WARMUP),
    "collapsed, through the origin": ("collapsed", lambda: one("origin", "collapsed"), WARMUP),
    "collapsed, exponential": ("collapsed", lambda: one("exponential", "collapsed"), WARMUP),
    "collapsed, normal": ("collapsed", lambda: one("normal", "collapsed"), WARMUP),
    "collapsed, multinomial": ("collapsed", lambda: one("multinomial-all", "collapsed"), {}),
    "collapsed, parties": ("collapsed", lambda: several(False), WARMUP),
    "collapsed, own parties": ("collapsed", lambda: several(True), WARMUP),
    "collapsed, Wishart noise": ("collapsed", lambda: matrix(WISHART), WARMUP),
    "naive, inverse Wishart noise": ("naive", lambda: matrix(INVERSE), {}),
    "normal-x": ("normal-x", lambda: one("origin", "normal-x"), BURN_IN),
    "fixed-s": ("fixed-s", lambda: one("origin", "fixed-s"), BURN_IN),
    "fixed-s-fast": ("fixed-s-fast", lambda: one("origin", "fixed-s-fast"), {}),
    "clt": ("clt", lambda: one("origin", "clt"), BURN_IN),
    "prior": ("prior", lambda: one("regression", "prior", KNOWN), WARMUP),
    "noisy": ("noisy", lambda: one("regression-moments", "noisy", CONJUGATE), WARMUP),
    "plug-in": ("plug-in", lambda: one("regression-moments", "plug-in", CONJUGATE), WARMUP),
    "wishart": ("wishart", lambda: one("regression", "wishart", CONJUGATE), WARMUP),
    "wishart-bounded": ("wishart-bounded", lambda: one("regression", "wishart-bounded", CONJUGATE), WARMUP),
    "individual": ("individual", lambda: one("regression", "individual", CONJUGATE), {"warmup": 20}),
    "gibbs": ("gibbs", lambda: one("regression", "gibbs", CONJUGATE), BURN_IN),
    "gibbs, exponential": ("gibbs", lambda: one("exponential", "gibbs"), BURN_IN),
    "gibbs-literal": ("gibbs-literal", lambda: one("exponential", "gibbs-literal"), BURN_IN),
    "exact": ("exact", lambda: one("exponential", "exact"), {}),
    "exact, binomial": ("exact", lambda: one("binomial", "exact"), {}),
    "naive": ("naive", lambda: one("regression", "naive", CONJUGATE), {}),
    "naive-untruncated": ("naive-untruncated", simulated, {}),
    "non-private": ("non-private", lambda: one("regression", "non-private", CONJUGATE, exact=SUMS), {}),
    "ops": ("ops", lambda: one("binomial", "ops", exact=np.array([[20.0]])), {}),
}


# ---- machines ----------------------------------------------------------------------------------------------------
def machine():
    """What the last bits depend on, as text."""
    try:
        facts = dict(re.findall(r"(?m)^(model name|flags|Features)\s*: (.*)$", Path("/proc/cpuinfo").read_text()))
    except OSError:
        facts = {}
    flags = (facts.get("flags") or facts.get("Features") or "").split()
    vector = sorted(flag for flag in flags if re.match(r"avx|fma|amx|sve|asimd", flag))
    return "; ".join(
        [
            platform.system(), platform.machine(), facts.get("model name", platform.processor()).strip(),
            " ".join(vector), f"Python {sys.version_info.major}.{sys.version_info.minor}", f"JAX {jax.__version__}",
            f"jaxlib {jaxlib.__version__}", f"NumPy {np.__version__}",
        ]
    )  # fmt: skip


def known():
    return json.loads(FILE.read_text()) if FILE.exists() else {"draws": {}, "machines": {}}


def store(case, facts, digest):
    content = known()
    mine = content["machines"].get(machine(), {})
    if mine.get(case, digest) != digest or content["draws"].get(case, facts) != facts:
        for other in content["machines"].values():
            other.pop(case, None)  # of the draws before
    content["draws"] = {name: facts if name == case else content["draws"].get(name) for name in CASES}
    content["draws"] = {name: value for name, value in content["draws"].items() if value}
    content["machines"][machine()] = {
        name: digest if name == case else mine[name] for name in CASES if name == case or name in mine
    }
    FILE.write_text(json.dumps(content, indent=1) + "\n")


# ---- draws -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", CASES)
def test_draws(case):
    if jax.config.jax_enable_x64:
        pytest.skip("draws are stored for the usual 32 bits")
    here = known()["machines"].get(machine(), {}).get(case)
    if here is None and not stored.RENEW:
        pytest.skip(f"no draws of {case!r} are stored for this machine: {machine()}")
    method, make, settings = CASES[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = run_method(method, make(), settings=settings, **SHAPE)
    draws = np.ascontiguousarray(run.draws, "<f4")
    facts = {"names": list(run.names), "shape": list(draws.shape)}
    digest = hashlib.sha256(draws.tobytes()).hexdigest()
    assert np.isfinite(draws).all()
    if stored.RENEW:
        store(case, facts, digest)
    content = known()
    assert facts == content["draws"].get(case), f"{case}: other parameters or numbers of draws than stored"
    assert digest == content["machines"][machine()][case], (
        f"draws of {case!r} (method {method}) are not bit by bit those that are stored"
    )


def test_every_method_is_here():
    assert {method for method, _, _ in CASES.values()} == set(METHODS)
    assert set(known()["draws"]) == set(CASES)
