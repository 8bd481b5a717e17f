"""Options of a command from a struct of options: `takes`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, get_type_hints

import msgspec
import typer

from dpjax._base.options import Option, options_of

#: The argument of a command in whose place the options of a struct stand.
CHOSEN = "chosen"


class FromText(NamedTuple):
    """How a value that is no number, flag or plain text is written.

    parse: from the option's name and its text, or texts, to the value; several: whether it may be repeated; flag: its
    name if that is not the field's.
    """

    parse: Callable[[str, Any], Any]
    several: bool = False
    flag: str | None = None


def takes(
    struct: type[msgspec.Struct],
    texts: Mapping[str, FromText] | None = None,
    following: Mapping[str, tuple[str, ...]] | None = None,
    without: tuple[str, ...] = (),
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a command an option for every field of a struct. It gets their values, by name, as its argument `chosen`.

    Args:
        struct: what can be chosen.
        texts: how values are written, by field.
        following: by field, what stands behind it in the help of the command: other fields, or arguments of its own.
            All else is in the order of the struct, between the command's arguments before and after `chosen`.
        without: fields that are no options.
    """
    written = texts or {}
    options = {name: one for name, one in options_of(struct).items() if name not in without}

    def with_options(command: Callable[..., int]) -> Callable[..., int]:
        parameters = _own_parameters(command)
        place = [*parameters].index(CHOSEN)
        del parameters[CHOSEN]
        order = [*parameters]
        order[place:place] = options
        parameters |= {name: _parameter(one, written.get(name)) for name, one in options.items()}
        for name, behind in (following or {}).items():
            order = [one for one in order if one not in behind]
            order[order.index(name) + 1 : order.index(name) + 1] = behind

        def run(**arguments: Any) -> int:
            chosen = {name: _value(one, written.get(name), arguments.pop(name)) for name, one in options.items()}
            return command(**arguments, **{CHOSEN: chosen})

        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__signature__ = inspect.Signature([parameters[name] for name in order])  # type: ignore[attr-defined]
        run.__annotations__ = {name: parameters[name].annotation for name in order}
        return run

    return with_options


def _own_parameters(command: Callable[..., int]) -> dict[str, inspect.Parameter]:
    """Those of a command, as keywords, with their types in place of the texts of those."""
    hints = get_type_hints(command, include_extras=True)
    return {
        name: one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints.get(name, Any))
        for name, one in inspect.signature(command).parameters.items()
    }


def _parameter(one: Option, text: FromText | None) -> inspect.Parameter:
    kind: Any = one.type
    if text is not None:
        kind = list[str] | None if text.several else str | None
    flag = _flag(one, text)
    if kind in (bool, bool | None) and one.default is not False:
        flag = f"{flag}/--no-{flag[2:]}"
    said = typer.Option(flag, metavar=one.metavar, help=one.help)
    default = one.default if text is None else None
    return inspect.Parameter(
        one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, said]
    )


def _flag(one: Option, text: FromText | None) -> str:
    name = one.name if text is None or text.flag is None else text.flag
    return f"--{name.replace('_', '-')}"


def _value(one: Option, text: FromText | None, given: Any) -> Any:
    """The value that is chosen; of a text that is not given, the usual one."""
    if text is None:
        return given
    return text.parse(_flag(one, text), given) if given not in (None, []) else one.default
