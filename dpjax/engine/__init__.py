"""Runs chains of many problems at once: layout over lanes and devices, compiled blocks of steps, checkpoints."""

from dpjax._base.lazy import attach

_MODULES = {
    "Model": "dpjax.engine.model",
    "Observed": "dpjax.engine.model",
    "Problems": "dpjax.engine.run",
    "Progress": "dpjax.engine.run",
    "Run": "dpjax.engine.run",
    "run_chains": "dpjax.engine.run",
}
__getattr__, __dir__ = attach(__name__, _MODULES)
