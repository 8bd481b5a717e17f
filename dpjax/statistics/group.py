"""What a group of models tells about its statistics: how one is made, simulated and read from a release file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dpjax._base.checks import shown
from dpjax.errors import InputError
from dpjax.statistics.base import Statistic

#: Named tuples of a file's block "model": (name, type) or (name, type, default).
Fields = list[tuple[Any, ...]]


class FieldError(InputError):
    """Its message names the field of the release file itself."""


class StatisticGroup:
    """Base class of groups of models, as a data owner sees them. No JAX: a release needs it.

    A subclass writes `kinds`, `make`, `fields` and `read`; one instance is registered with
    `dpjax.statistics.kinds.register`.
    """

    #: The block of the release file that bounds of the records stand in: "bounds" or "truncation".
    bounds_block = "truncation"

    def kinds(self) -> tuple[str, ...]:
        """Names of its models, as users say them; it may become longer at any time."""
        raise NotImplementedError

    def make(self, kind: str, given: Mapping[str, Any], scaling: Any, options: Mapping[str, Any]) -> Statistic:
        """The statistic of a model.

        Args:
            kind: one of `kinds()`.
            given: by name the fields of `dpjax.statistics.options.StatisticOptions` but "released", None where nothing
                was given.
            scaling: `SCALING`, None for raw units, or ... for what a release has by default.
            options: further arguments by name, "released" among them, none of which may pass unnoticed
                (`refuse_options`).

        Raises:
            InputError: an argument that is missing, has no place in this model, or a wrong value.
        """
        raise NotImplementedError

    def simulated(
        self,
        kind: str,
        features: int | None,
        bounds: tuple[float, float] | None,
        middle: Callable[[Any], Any] | None,
        arguments: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Arguments of `make_statistic` for records that are simulated, in raw units.

        Args:
            kind: one of `kinds()`.
            features: number of features, or None.
            bounds: checked pair (lo, hi) of every column, or None.
            middle: bounds that hold most of what the prior of a study gives, of a family; or None.
            arguments: further ones of `make_statistic`.
        """
        return {"features": features, "bounds": bounds, **arguments}

    def fields(self, kind: str) -> Fields:
        """Fields of the block "model" of a release file but its kind."""
        raise NotImplementedError

    def read(self, content: Mapping[str, Any]) -> Statistic:
        """The statistic of the typed content of a release file.

        Raises:
            InputError: the first thing that does not fit; a `FieldError` where the message names the field.
        """
        raise NotImplementedError

    def needs_truncation(self, kind: str) -> bool:
        """Whether a release file of this model must have the block "truncation"."""
        return False


def refuse(kind: str, given: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    """Refuse arguments that have no place in a model.

    Raises:
        InputError: one is given.
    """
    for name, value in given.items():
        if value is not None and name not in allowed:
            raise InputError(f"{name} has no place in a release of {kind}; got {shown(value)}")


def refuse_options(kind: str, options: Mapping[str, Any], allowed: tuple[str, ...] = ()) -> None:
    """Refuse names that nothing knows, whatever their value: a misspelt argument must not pass for its default.

    Raises:
        InputError: there is one.
    """
    for name, value in options.items():
        if name not in allowed:
            raise InputError(f"{name} has no place in a release of {kind}; got {shown(value)}")


def refuse_block(name: str, value: Any, kind: str) -> None:
    """Refuse a block of a release file that has no place in a model.

    Raises:
        InputError: it is there.
    """
    if value is not None:
        raise FieldError(f"'{name}' has no place in a release of {kind}")
