"""Calibration studies: simulate, fit, compare ranks."""

from dpjax._base.lazy import attach

_MODULES = {
    "Calibration": "dpjax.calibration.result",
    "calibrate": "dpjax.calibration.study",
}
__getattr__, __dir__ = attach(__name__, _MODULES)
