"""A prior as it was given: a mapping or a TOML file, with names that are known."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dpjax._base.files import read_toml
from dpjax.errors import InputError
from dpjax.models.prior_units import OTHER_WORDS

PriorGiven = Mapping[str, Any] | str | os.PathLike | None


def given_prior(prior: Any) -> dict[str, Any]:
    """A prior as it was given, as a mapping: nothing, a mapping or a TOML file."""
    if prior is None:
        return {}
    if isinstance(prior, str | os.PathLike):
        prior = read_toml(Path(prior))
    if not isinstance(prior, Mapping):
        raise InputError(f"prior must be a mapping or a file; got {type(prior).__name__}", where="prior")
    return dict(prior)


def refuse_unknown(given: Any, known: tuple[str, ...], where: str = "prior") -> None:
    """Refuse names of hyperparameters that are not known.

    Raises:
        InputError: there is one.
    """
    unknown = sorted(set(given) - set(known))
    if unknown:
        if where == "prior":
            known = (*known, *(word for word, name in OTHER_WORDS.items() if name in known), "units")
        raise InputError(
            f"{where}: unknown name {unknown[0]!r}; allowed: {', '.join(known)}", where=where.partition(",")[0]
        )


def created(build: Callable[..., Any], *args: Any, **values: Any) -> Any:
    """What `build` makes of these values; its errors say that they are about the prior."""
    try:
        return build(*args, **values)
    except InputError as error:
        raise InputError(f"prior: {error}", where="prior") from None
