"""The command line."""

from dpjax._base.lazy import attach

_MODULES = {
    "main": "dpjax.cli.app",
}
__getattr__, __dir__ = attach(__name__, _MODULES)
