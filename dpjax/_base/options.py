"""What a user may choose, written once: a `msgspec.Struct` whose fields have a type, a default and, in `option`, a help
text, a check and what stands for the value in a help text. Keywords, keys of a config and options of a command are made
from it or compared with it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from dpjax._base.checks import shown
from dpjax.errors import InputError

#: A check of one value: name and value -> nothing, or an `InputError` that begins with the name.
Check = Callable[[str, Any], object]


def option(help: str, *, metavar: str | None = None, check: Check | None = None) -> msgspec.Meta:
    """What is said about a field, as the second argument of `Annotated`.

    Args:
        help: one sentence for the help of a command.
        metavar: what stands for the value there.
        check: refuses values that the option cannot have.
    """
    return msgspec.Meta(description=help, extra={"metavar": metavar, "check": check})


class Option(NamedTuple):
    """A field of a struct of options.

    name: of the field, the keyword and the key; type: without what `option` says; default: `inspect.Parameter.empty` if
    it must be given; help, metavar, check: as of `option`.
    """

    name: str
    type: Any
    default: Any
    help: str
    metavar: str | None
    check: Check | None


@functools.cache
def options_of(struct: type[msgspec.Struct]) -> dict[str, Option]:
    """The fields of a struct by name, in its order; those that are structs themselves give way to their own fields."""
    found: dict[str, Option] = {}
    hints = get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        hint = hints[field.name]
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            found |= options_of(hint)
            continue
        kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        said = _said(struct, field.name)
        extra = {} if said is None or said.extra is None else said.extra
        found[field.name] = Option(
            field.name, kind, _default(field), "" if said is None else said.description or "",
            extra.get("metavar"), extra.get("check"),
        )  # fmt: skip
    return found


def _said(struct: type, name: str) -> msgspec.Meta | None:
    """What the struct, or the first of its bases that says something, says about a field."""
    for one in struct.__mro__:
        hint = (
            get_type_hints(one, include_extras=True).get(name) if name in vars(one).get("__annotations__", {}) else None
        )
        for part in get_args(hint)[1:] if get_origin(hint) is Annotated else ():
            if isinstance(part, msgspec.Meta):
                return part
    return None


def _default(field: Any) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    return inspect.Parameter.empty if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def check_options(struct: msgspec.Struct) -> None:
    """Run the check of every field.

    Raises:
        InputError: the first that refuses its value.
    """
    for name, one in options_of(type(struct)).items():
        if one.check is not None and name in struct.__struct_fields__:
            one.check(name, getattr(struct, name))


def chosen_of(struct: type[msgspec.Struct], keywords: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Those of the keywords that are fields of the struct, and the others."""
    own = {name: value for name, value in keywords.items() if name in struct.__struct_fields__}
    return own, {name: value for name, value in keywords.items() if name not in own}


def true_or_false(name: str, value: Any) -> None:
    """Refuse what is neither True nor False.

    Raises:
        InputError: it is neither.
    """
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False, got {shown(value)}")
