"""Types of public functions and classes that are those of good values, while bad ones get an answer in our words."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])


def no_type_check(function: Function) -> Function:
    """As `typing.no_type_check`, while the program runs only: for a function that refuses wrong values itself, in words
    of its own. What looks at values by types, as the tests of this package do, knows it by this name and leaves the
    function alone; readers and checkers of source, who know the other one, still see its types.
    """
    function.__no_type_check__ = True  # type: ignore[attr-defined]
    return function


def no_field_check(kind: type[T]) -> type[T]:
    """The same for the fields of a dataclass that refuses wrong values itself; its methods are looked at as others."""
    kind.__no_type_check__ = True  # type: ignore[attr-defined]
    return kind


def same_parameters(
    original: Callable[P, Any], returns: Any = inspect.Signature.empty
) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Give a function that takes keywords as they come the parameters of another, for readers, editors and checkers.

    Args:
        original: the function that spells them out.
        returns: what is shown as the type of the result.
    """

    def shown_as(function: Callable[..., T]) -> Callable[P, T]:
        signature = inspect.signature(original).replace(return_annotation=returns)
        function.__signature__ = signature  # type: ignore[attr-defined]
        return function

    return shown_as
