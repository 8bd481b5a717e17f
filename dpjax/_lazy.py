"""Modules that load when they are first used: the release path and `import dpjax` must not load JAX."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


class LazyModule(ModuleType):
    """Stands for a module and imports it at the first attribute that is asked for."""

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self.__name__), attribute)
