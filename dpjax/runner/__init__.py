"""Experiments from a config file."""

from dpjax._base.lazy import attach

_MODULES = {
    "Results": "dpjax.runner.run",
}
__getattr__, __dir__ = attach(__name__, _MODULES)
