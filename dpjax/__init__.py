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
    from dpjax.calibration import Calibration, calibrate
    from dpjax.experiment import run
    from dpjax.inference import fit
    from dpjax.posterior import Posterior
    from dpjax.precompilation import precompile

__version__ = "0.1.0"
__all__ = [
    "Calibration",
    "Posterior",
    "Privacy",
    "PrivateQuantile",
    "Release",
    "calibrate",
    "fit",
    "precompile",
    "release",
    "run",
]
_LAZY = {
    "Calibration": "dpjax.calibration",
    "Posterior": "dpjax.posterior",
    "calibrate": "dpjax.calibration",
    "fit": "dpjax.inference",
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
