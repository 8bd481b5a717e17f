"""Exponential families: one class each, used by the release (without JAX) and by the model."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from ..errors import InputError
from ._quadrature import SummedFamily
from .base import Family

#: Name -> class. `register` adds to it.
FAMILIES: dict[str, type[Family]] = {}


def register(family: type[Family]) -> type[Family]:
    """Make a family known by its `kind`; usable as a class decorator.

    Raises:
        InputError: it is not a `Family`, or the name is taken by another class.
    """
    if not (isinstance(family, type) and issubclass(family, Family)):
        raise InputError(f"a family must be a subclass of dpjax.families.Family, got {family!r}")
    known = FAMILIES.get(family.kind)
    if known is not None and known.__qualname__ != family.__qualname__:
        raise InputError(f"there is a family called {family.kind!r} already: {known.__qualname__}")
    FAMILIES[family.kind] = family
    return family


def family_named(kind: str, **options: Any) -> Family:
    """The family of this name.

    Raises:
        InputError: unknown name, or options that it does not have or lacks.
    """
    if kind not in FAMILIES:
        raise InputError(f"model must be one of {', '.join(sorted(FAMILIES))}; got {kind!r}")
    try:
        return FAMILIES[kind](**options)
    except TypeError:
        import inspect

        known = ", ".join(inspect.signature(FAMILIES[kind]).parameters) or "none"
        raise InputError(f"{kind} takes these options: {known}; got {', '.join(options) or 'none'}") from None


def _discover() -> None:
    """Register the families of every module of this package: a new file is enough."""
    for module in pkgutil.iter_modules(__path__):
        content = vars(importlib.import_module(f"{__name__}.{module.name}"))
        for value in content.values():
            if (
                isinstance(value, type)
                and issubclass(value, Family)
                and value.__module__ == f"{__name__}.{module.name}"
            ):
                if "kind" in vars(value):
                    register(value)


_discover()

__all__ = ["FAMILIES", "Family", "SummedFamily", "family_named", "register"]
