"""Posteriors given a noisy Gram matrix: arguments, and one fit of each mechanism from end to end."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.errors import InputError
from dpjax.inference.matrix_release import fit_matrix, matrix_problems
from dpjax.mechanisms.matrix import InverseWishart, Wishart, gram_matrix
from dpjax.models import MatrixSums, origin_prior
from dpjax.privacy.clipping import clip_whole_rows

N, BOUND, SLOPE = 4000, 3.0, 0.6
MECHANISMS = {
    "wishart": Wishart.calibrated(1, BOUND, 1.0, 1e-3),
    "inverse-wishart": InverseWishart.calibrated(1, N, BOUND, 1.0, 1e-3),
}


def gram(n=N):
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    rows = clip_whole_rows(x[:, None], SLOPE * x + rng.normal(0, 0.5, n), BOUND)
    return gram_matrix(*rows)


def released(mechanism, seed=1):
    return np.array(mechanism.simulate(jax.random.key(seed), jnp.asarray(gram(), jnp.float32)), np.float64)


def call(matrix=None, mechanism=MECHANISMS["wishart"], **changes):
    given = {"records": N, "features": ["x"], "target": "y", "draws": 300} | changes
    return fit_matrix(released(MECHANISMS["wishart"]) if matrix is None else matrix, mechanism, **given)


W, IW = MECHANISMS["wishart"], MECHANISMS["inverse-wishart"]
BAD = {
    "a string for a mechanism": ({"mechanism": "wishart"}, "mechanism must be a Wishart or an InverseWishart; got str"),
    "a vector": ({"matrix": np.ones(4)}, r"released must have shape \[2, 2\]; got \(4,\)"),
    "a larger matrix": ({"matrix": np.eye(3)}, r"released must have shape \[2, 2\]; got \(3, 3\)"),
    "several matrices": ({"matrix": np.ones((1, 2, 2))}, r"released must have shape \[2, 2\]"),
    "nan": ({"matrix": np.array([[1, np.nan], [np.nan, 1]])}, "released must be finite and symmetric"),
    "infinity": ({"matrix": np.array([[np.inf, 0], [0, 1]])}, "released must be finite and symmetric"),
    "not symmetric": ({"matrix": np.array([[2.0, 1.0], [0.0, 2.0]])}, "released must be finite and symmetric"),
    "text": ({"matrix": [["a", "b"], ["c", "d"]]}, "released must hold numbers only"),
    "not definite": ({"matrix": np.array([[1.0, 2.0], [2.0, 1.0]]), "mechanism": IW}, "must be positive definite"),
    "no records": ({"records": 0}, "records must be a whole number from 1"),
    "half a record": ({"records": 10.5}, "records must be a whole number from 1"),
    "true records": ({"records": True}, "records must be a whole number from 1"),
    "records nan": ({"records": np.nan}, "records must be a whole number from 1"),
    "a name for the features": ({"features": "x"}, "features must be a non-empty list"),
    "no features": ({"features": []}, "features must be a non-empty list"),
    "too many features": ({"features": ["a", "b"]}, "features must be 1 names, as many as the mechanism has; got 2"),
    "the target as a feature": ({"features": ["y"]}, "'y' is also among the features"),
    "no target": ({"target": None}, "a column name must be non-empty text"),
    "epsilon 0": ({"epsilon": 0.0}, "epsilon must be a finite number > 0, got 0"),
    "epsilon nan": ({"epsilon": np.nan}, "epsilon must be a finite number > 0"),
    "delta 1": ({"delta": 1.0}, r"delta must lie in \[0, 1\), got 1"),
    "delta below 0": ({"delta": -0.1}, r"delta must lie in \[0, 1\)"),
    "seed": ({"seed": -1}, "seed must be"),
    "an unknown method": ({"method": "magic"}, "method must be one of"),
    "a method for other noise": ({"method": "gibbs"}, "method 'gibbs' does not know the noise of matrices"),
    "Alparslan et al.'s method": ({"method": "normal-x"}, "method 'normal-x' does not"),
    "Alparslan et al.'s normal approximation": ({"method": "clt"}, "method 'clt' does not"),
    "bound 0": ({"mechanism": dataclasses.replace(W, bound=0.0)}, "bound of the wishart mechanism must be"),
    "bound nan": ({"mechanism": dataclasses.replace(W, bound=np.nan)}, "bound of the wishart mechanism must be"),
    "few degrees of freedom": ({"mechanism": dataclasses.replace(W, dof=2)}, "dof of the wishart must be at least"),
    "no mean": ({"mechanism": dataclasses.replace(IW, dof=3), "matrix": np.eye(2)}, "dof of the inverse-wishart must"),
    "ridge": ({"mechanism": dataclasses.replace(IW, ridge=-1.0)}, "ridge of the inverse-wishart mechanism must be"),
    "a prior of another size": ({"prior": {"theta_mean": [0.0, 0.0]}}, "theta_mean"),
    "an unknown prior": ({"prior": {"theta": 0.0}}, "theta"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_bad_arguments_are_one_line(what):
    changes, message = BAD[what]
    with pytest.raises(InputError, match=message) as error:
        call(**changes)
    assert "\n" not in str(error.value)


def test_problems_are_in_units_of_the_bound_and_debiased():
    base = origin_prior(1, None)
    for kind, mechanism in MECHANISMS.items():
        matrix = released(mechanism)
        found = matrix_problems(matrix[None], float(N), mechanism, base)
        assert isinstance(found.model, MatrixSums) and found.model.inverse == (kind == "inverse-wishart")
        wanted = np.asarray(mechanism.debiased(jnp.asarray(matrix, jnp.float32)))[[0, 0, 1], [0, 1, 1]] / BOUND**2
        np.testing.assert_allclose(found.z[0], wanted, rtol=1e-3)
        # what the noise does to an entry: drawn again and again
        draws = [jnp.asarray(released(mechanism, seed), jnp.float32) for seed in range(60)]
        again = np.stack([np.asarray(mechanism.debiased(one)) for one in draws])
        spread = again.std(0)[[0, 0, 1], [0, 1, 1]] / BOUND**2
        np.testing.assert_allclose(found.scale[0], spread, rtol=0.4)
    with pytest.raises(InputError, match="of 1 features, the prior of 2"):
        matrix_problems(matrix[None], float(N), mechanism, origin_prior(2, None))
    for records in (0.0, np.nan, np.inf):
        with pytest.raises(InputError, match="records must be finite and at least 1"):
            matrix_problems(matrix[None], records, mechanism, base)
    with pytest.raises(InputError, match="released must have shape"):
        matrix_problems(np.ones((0, 2, 2)), 5.0, mechanism, base)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MECHANISMS)
def test_a_noisy_gram_matrix_is_fitted(kind):
    mechanism = MECHANISMS[kind]
    found = call(released(mechanism), mechanism, epsilon=1.0, delta=1e-3)
    exact = gram()
    assert found.names == ("theta[1]", "sigma2", "tau2[1,1]") and not found.warnings()
    summary = found.summary()
    assert summary["mechanism"] == kind and summary["bounds"] == {"x": [-3, 3], "y": [-3, 3]}
    assert (summary["epsilon"], summary["delta"], summary["records"]) == (1.0, 1e-3, N)
    rows = summary["parameters"]
    for name, truth in (("theta[1]", exact[0, 1] / exact[0, 0]), ("tau2[1,1]", exact[0, 0] / N)):
        assert abs(rows[name]["mean"] - truth) < 4 * rows[name]["sd"], name
        assert rows[name]["sd"] < 0.5 * rows[name]["prior_sd"], name
    assert found.predict({"x": [0.0]}).mean[0] == 0
    naive = call(released(mechanism), mechanism, method="naive")
    assert naive.summary()["parameters"]["theta[1]"]["sd"] < rows["theta[1]"]["sd"]
    assert np.isnan(naive.epsilon)  # not stated
