"""Noise-aware Bayesian inference from differentially private statistics.

    release = dpjax.release(table, target=..., features=[...], bounds={...}, epsilon=1.0)   # data owner
    posterior = dpjax.fit(release)                                                          # analyst
    study = dpjax.calibrate(records=1000, epsilon=0.1)                                      # methodologist

`dpjax.kernels` holds the pure transitions. Importing this package is light: samplers, OpenDP, ArviZ and matplotlib
load when used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpjax._base.version import VERSION
from dpjax.privacy.quantile import PrivateQuantile
from dpjax.releases.guarantee import Privacy
from dpjax.releases.owner import plan_release, release
from dpjax.releases.plan import Plan
from dpjax.releases.release import Release

if TYPE_CHECKING:
    from dpjax.calibration.precompilation import precompile
    from dpjax.calibration.result import Calibration
    from dpjax.calibration.study import calibrate
    from dpjax.inference.fit import fit
    from dpjax.inference.many import fit_many
    from dpjax.inference.posterior import Posterior
    from dpjax.inference.posterior_file import load_posterior
    from dpjax.inference.prediction import Prediction
    from dpjax.inference.predictive import RegressionPosterior
    from dpjax.runner.run import run

__version__ = VERSION
__all__ = [
    "Calibration",
    "Plan",
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
    "plan_release",
    "precompile",
    "release",
    "run",
]
_LAZY = {
    "Calibration": "dpjax.calibration.result",
    "Posterior": "dpjax.inference.posterior",
    "Prediction": "dpjax.inference.prediction",
    "RegressionPosterior": "dpjax.inference.predictive",
    "calibrate": "dpjax.calibration.study",
    "fit": "dpjax.inference.fit",
    "fit_many": "dpjax.inference.many",
    "load_posterior": "dpjax.inference.posterior_file",
    "precompile": "dpjax.calibration.precompilation",
    "run": "dpjax.runner.run",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'dpjax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
