"""Exponential families: one class each, used by the release (without JAX) and by the model."""

from __future__ import annotations

import importlib
import math
import pkgutil
from dataclasses import fields
from typing import Any

from dpjax.errors import InputError
from dpjax.families._quadrature import SummedFamily
from dpjax.families.base import Family

#: Conjugate priors and how many parameters they are of (`dpjax.models.priors`).
PRIOR_PARAMETERS = {"gamma": 1, "beta": 1, "normal-inverse-gamma": 2}
#: Name -> class. `register` adds to it.
FAMILIES: dict[str, type[Family]] = {}


def register(family: type[Family]) -> type[Family]:
    """Make a family known by its `kind`; usable as a class decorator.

    Raises:
        InputError: it is not a `Family`, lacks something, or its name is taken by another class.
    """
    if not (isinstance(family, type) and issubclass(family, Family)):
        raise InputError(f"a family must be a subclass of dpjax.families.Family, got {family!r}")
    _check_class(family)
    known = FAMILIES.get(family.kind)
    if known is not None and known.__qualname__ != family.__qualname__:
        raise InputError(f"there is a family called {family.kind!r} already: {known.__qualname__}")
    FAMILIES[family.kind] = family
    return family


def _check_class(family: type[Family]) -> None:
    """What can be checked without JAX, so that no epsilon is spent on a family that cannot be fitted."""
    kind = getattr(family, "kind", None)
    if not isinstance(kind, str) or not kind or kind in ("linear-regression", "multinomial"):
        raise InputError(f"family {family.__qualname__}: kind must be a name of its own, got {kind!r}")
    place = f"family {kind!r} ({family.__qualname__})"
    prior, parameters = getattr(family, "prior", None), getattr(family, "parameters", None)
    if prior not in PRIOR_PARAMETERS:
        raise InputError(f"{place}: prior must be one of {', '.join(PRIOR_PARAMETERS)}; got {prior!r}")
    if not isinstance(parameters, tuple) or len(parameters) != PRIOR_PARAMETERS[prior]:
        raise InputError(
            f"{place}: parameters must be a tuple of {PRIOR_PARAMETERS[prior]} names, those of the {prior} prior; "
            f"got {parameters!r}"
        )
    statistics = family.statistics
    powers = [p for p in statistics.values() if isinstance(p, int) and not isinstance(p, bool) and p > 0]
    if not statistics or len(powers) < len(statistics) or len(set(powers)) < len(powers):
        raise InputError(f"{place}: statistics must map entry names to different whole powers of v; got {statistics!r}")
    if isinstance(family.support, tuple) and not (len(family.support) == 2 and family.support[0] < family.support[1]):
        raise InputError(f"{place}: support must be (smallest, largest); got {family.support!r}")
    finite = isinstance(family.support, tuple) and all(math.isfinite(end) for end in family.support)
    if family.affine and finite:
        raise InputError(f"{place}: affine families have no finite support, got {family.support!r}")
    if family.log and family.discrete:
        raise InputError(f"{place}: log and discrete exclude each other: no record is a whole number and its logarithm")
    needed = ["natural", "log_partition", "update"]
    if not finite:
        needed += ["log_cdf", "log_survival"]
    missing = [name for name in needed if getattr(family, name) is getattr(Family, name)]
    if missing:
        raise InputError(f"{place}: {', '.join(missing)} must be written (docs/adding_a_family.md)")


def family_named(kind: str, **options: Any) -> Family:
    """The family of this name.

    Raises:
        InputError: unknown name, or options that it does not have or lacks.
    """
    if kind not in FAMILIES:
        raise InputError(f"model must be one of {', '.join(sorted(FAMILIES))}; got {kind!r}")
    known = {f.name for f in fields(FAMILIES[kind])}
    for name in options:
        if name not in known:
            raise InputError(f"{kind} has no option {name!r}; it has {', '.join(sorted(known)) or 'none'}")
    for name in sorted(known - set(options)):
        raise InputError(f"{kind} needs the option {name!r} (--option {name}=VALUE, {name}=VALUE)")
    return FAMILIES[kind](**options)


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
