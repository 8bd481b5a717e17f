"""Noise-aware Bayesian inference from differentially private statistics.

    release = dpjax.release(table, target=..., features=[...], bounds={...}, epsilon=1.0)   # data owner
    posterior = dpjax.fit(release)                                                          # analyst
    study = dpjax.calibrate(records=1000, epsilon=0.1)                                      # methodologist

`dpjax.kernels` holds the pure transitions. Importing this package is light: samplers, OpenDP, ArviZ and matplotlib
load when used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# eager on purpose: the function must win over the submodule of the same name
from dpjax.release import Privacy, PrivateQuantile, Release, release

if TYPE_CHECKING:
    from dpjax._posterior_file import load_posterior
    from dpjax.calibration import Calibration, calibrate
    from dpjax.experiment import run
    from dpjax.inference import fit
    from dpjax.many import fit_many
    from dpjax.posterior import Posterior
    from dpjax.precompilation import precompile
    from dpjax.prediction import Prediction, RegressionPosterior

__version__ = "0.1.0"
__all__ = [
    "Calibration",
    "Posterior",
    "Prediction",
    "Privacy",
    "PrivateQuantile",
    "RegressionPosterior",
    "Release",
    "calibrate",
    "fit",
    "fit_many",
    "load_posterior",
    "precompile",
    "release",
    "run",
]
_LAZY = {
    "Calibration": "dpjax.calibration",
    "Posterior": "dpjax.posterior",
    "Prediction": "dpjax.prediction",
    "RegressionPosterior": "dpjax.prediction",
    "calibrate": "dpjax.calibration",
    "fit": "dpjax.inference",
    "fit_many": "dpjax.many",
    "load_posterior": "dpjax._posterior_file",
    "precompile": "dpjax.precompilation",
    "run": "dpjax.experiment",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'dpjax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
