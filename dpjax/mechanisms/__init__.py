"""Noise that a release may have: one file per mechanism, with privacy, draws, density and simulation.

A new one is a file here and one `register` line below; the matrix mechanisms are apart.
"""

from __future__ import annotations

from typing import Any

from dpjax._base.lazy import attach
from dpjax.errors import InputError
from dpjax.mechanisms.base import Mechanism, PrivacyStatement
from dpjax.mechanisms.discrete_laplace import DISCRETE_LAPLACE, DiscreteLaplace
from dpjax.mechanisms.gaussian import GAUSSIAN, Gaussian
from dpjax.mechanisms.laplace import LAPLACE, Laplace

#: Kind -> mechanism. `register` adds to it.
MECHANISMS: dict[str, Mechanism] = {}
#: The noise of releases and studies if none is named.
DEFAULT = LAPLACE.kind


def register(mechanism: Mechanism | Any) -> Mechanism:
    """Make a mechanism known by its `kind`.

    Raises:
        InputError: it is not a `Mechanism`, lacks something, or its name is taken by another class.
    """
    if not isinstance(mechanism, Mechanism):
        raise InputError(f"a mechanism must be an instance of dpjax.mechanisms.Mechanism, got {mechanism!r}")
    name, kind = type(mechanism).__qualname__, getattr(mechanism, "kind", None)
    if not isinstance(kind, str) or not kind:
        raise InputError(f"mechanism {name}: kind must be a name of its own, got {kind!r}")
    place = f"mechanism {kind!r} ({name})"
    if missing := [what for what in ("norm", "formula", "variance") if getattr(mechanism, what, None) is None]:
        raise InputError(f"{place}: {', '.join(missing)} must be given")
    if mechanism.norm not in ("l1", "l2"):
        raise InputError(f"{place}: norm must be 'l1' or 'l2', got {mechanism.norm!r}")
    if mechanism.mixing not in (None, "point", "exponential", "other"):
        raise InputError(f"{place}: mixing must be 'point', 'exponential', 'other' or None, got {mechanism.mixing!r}")
    needed = ["scale", "tail", "simulate"]
    needed += ["draw", "spent"] if mechanism.released else []
    needed += ["update_lanes"] if mechanism.mixing is not None else []
    if missing := [what for what in needed if getattr(type(mechanism), what) is getattr(Mechanism, what)]:
        raise InputError(f"{place}: {', '.join(missing)} must be written")
    known = MECHANISMS.get(kind)
    if known is not None and type(known).__qualname__ != name:
        raise InputError(f"there is a mechanism called {kind!r} already: {type(known).__qualname__}")
    MECHANISMS[kind] = mechanism
    return mechanism


def mechanism_named(kind: Any) -> Mechanism:
    """The mechanism of this name.

    Raises:
        InputError: there is none.
    """
    if not isinstance(kind, str) or kind not in MECHANISMS:
        raise InputError(f"mechanism must be one of {', '.join(MECHANISMS)}; got {kind!r}")
    return MECHANISMS[kind]


def released_kinds() -> tuple[str, ...]:
    """Names of the mechanisms that releases can be drawn with."""
    return tuple(kind for kind, mechanism in MECHANISMS.items() if mechanism.released)


register(LAPLACE)
register(GAUSSIAN)
register(DISCRETE_LAPLACE)

_MATRIX = {"InverseWishart": "dpjax.mechanisms.matrix", "Wishart": "dpjax.mechanisms.matrix"}
__getattr__, __dir__ = attach(__name__, _MATRIX)

__all__ = [
    "DEFAULT", "GAUSSIAN", "LAPLACE", "MECHANISMS", "DiscreteLaplace", "Gaussian", "InverseWishart", "Laplace",
    "Mechanism", "PrivacyStatement", "Wishart", "mechanism_named", "register", "released_kinds",
]  # fmt: skip
