"""A regression whose chains all sit in a minor mode, away from a tight prior that the release contradicts."""

from dataclasses import replace

import numpy as np
import pytest

from dpjax.engine.problems import Problems, precision
from dpjax.engine.result_codes import MODE_MISSING, OK, WORSE_MODE
from dpjax.inference import second_modes
from dpjax.inference.run_method import run_method
from dpjax.models import LinearRegression, WeakRegression

#: Release and tight prior: R-hat 1.005 and 1.02, in a mode that holds exp(-80) of the mass of the other.
TIGHT = {
    "n": 6491.0, "b": 0.30716762, "z": [-1799.903062, 793.918892, -454.851101, 57.458743, 574.904104],
    "prior": {"theta_mean": [-1.00439138, 8.14813003], "theta_precision": 23.4097769 * np.eye(2),
              "sigma2_shape": 1181.4569, "sigma2_scale": 57.912713, "x_mean": -0.37391579, "kappa": 481.117556,
              "psi": 2.56403996, "nu": 47.064363},
    "chains": [-0.1, -0.11, 0.0833, -0.2773, 0.0454],
}  # fmt: skip
#: Both modes matter: by Laplace's approximation with exact second derivatives, exp(-8.2) in the prior's.
BOTH = {
    "n": 16803.0, "b": 336.338849, "z": [6034.698542, 989.456236, 9478.343347, 3477.575966, 6404.782793],
    "prior": {"theta_mean": [2.61959751, -1.85945739], "theta_precision": 4.0 * np.eye(2), "sigma2_shape": 20.0,
              "sigma2_scale": 0.0137763, "x_mean": 0.65593369, "kappa": 5.0, "psi": 0.16722404, "nu": 20.0},
    "chains": [1.9201, -2.2595, 0.0605, 0.6066, 0.0087],
}  # fmt: skip


def problem(case, **change):
    model = LinearRegression.create(1, **(case["prior"] | change))
    scale = np.full((1, 5), case["b"])
    return Problems(np.array([case["z"]]), np.array([case["n"]]), scale, model, "laplace")


def looked_at(problems, typical):
    draws = np.broadcast_to(np.array(typical), (1, 2, 30, 5)) * (1 + 1e-6 * np.arange(30)[:, None])
    with precision(True):
        return second_modes.look(problems, draws, np.zeros((1, 2), int))


@pytest.mark.slow
def test_mass_of_the_mode_on_the_priors_side():
    """Log ratios of a trust-region search with exact Hessians: 79.9 and -8.2."""
    with precision(True):
        found = [second_modes._log_ratio(problem(c), np.array([c["chains"]]))[0] for c in (TIGHT, BOTH)]
    np.testing.assert_allclose(found, [79.9, -8.2], atol=8.0)
    assert (looked_at(problem(TIGHT), TIGHT["chains"]) == WORSE_MODE).all()
    assert (looked_at(problem(BOTH), BOTH["chains"]) == MODE_MISSING).all()
    # a chain's own failure stays what it is
    with precision(True):
        draws = np.broadcast_to(np.array(TIGHT["chains"]), (1, 2, 30, 5))
        codes = second_modes.look(problem(TIGHT), draws, np.array([[1, OK]]))
    assert codes.tolist() == [[1, WORSE_MODE]]


def test_no_search_without_conflict(monkeypatch):
    monkeypatch.setattr(second_modes, "_log_ratio", None)
    near = [*TIGHT["prior"]["theta_mean"], 57.9 / 1181, -0.374, 0.0545]
    assert (looked_at(problem(TIGHT), near) == OK).all()
    for far in range(5):  # of any parameter
        with pytest.raises(TypeError):
            looked_at(problem(TIGHT), [x + (far == k) * (5.0 if k != 4 else 0.5) for k, x in enumerate(near)])
    assert not second_modes.can_look(replace(problem(TIGHT), model=WeakRegression.create(1)))


@pytest.mark.slow
def test_chains_of_the_minor_mode_are_marked_and_others_are_not():
    run = run_method("collapsed", problem(TIGHT), seed=1, chains=4, draws=500, rerun=False)
    assert (run.codes == WORSE_MODE).all() and run.diagnostics.max_rhat[0] < 1.1  # that was all there was to see
    # the same prior with a hundredth of its weight gives way to the data: one mode
    weak = {"theta_precision": 0.2 * np.eye(2), "sigma2_shape": 12.0, "sigma2_scale": 0.58, "kappa": 5.0}
    run = run_method("collapsed", problem(TIGHT, **weak), seed=1, chains=4, draws=500)
    assert (run.codes == OK).all()
