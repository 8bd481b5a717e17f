"""A user's samplers as methods: `register` gives one a name; `fit`, `fit_many` and `calibrate` take it as it is."""

from __future__ import annotations

import dataclasses
from typing import Any

from dpjax.engine.sampler import LaneSampler
from dpjax.errors import InputError
from dpjax.inference.method import Method
from dpjax.inference.methods import METHODS, method_named

_BUILT_IN = frozenset(METHODS)


def register(sampler: Any, *, thin: int = 1, summary: str = "a sampler of the user's") -> Method:
    """Make a sampler a method under its own name (`sampler.name`), in the place of one registered before.

    Args:
        sampler: a frozen dataclass that keeps to `dpjax.engine.sampler.LaneSampler`, such as
            `dpjax.samplers.from_blackjax` makes; a field `noise` is set to the release's.
        thin: keep every thin-th step unless the call says otherwise.
        summary: what it is, in one line.

    Returns:
        The method: for one release, any prior, and judged as the methods of this package are.

    Raises:
        InputError: it is no sampler, or its name is that of a method of this package.
    """
    if isinstance(sampler, type) or not dataclasses.is_dataclass(sampler) or not isinstance(sampler, LaneSampler):
        raise InputError(f"method must be a name or a sampler (a dataclass with lane code); got {sampler!r:.80}")
    if sampler.name in _BUILT_IN:
        raise InputError(f"a sampler must not be called as a method of this package is; got {sampler.name!r}")
    has_noise = any(field.name == "noise" for field in dataclasses.fields(sampler))
    make = (lambda noise: dataclasses.replace(sampler, noise=noise)) if has_noise else (lambda noise: sampler)
    METHODS[sampler.name] = Method(sampler.name, summary, make, thin=thin, reference=False, any_prior=True)
    return METHODS[sampler.name]


def name_of(method: Any) -> str | None:
    """The name of a method given by its name (None stays None) or as a sampler, which is registered.

    Raises:
        InputError: there is none of this name, or it is no sampler.
    """
    if method is None:
        return None
    return method_named(method).name if isinstance(method, str) else register(method).name
