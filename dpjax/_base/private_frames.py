"""Exceptions that leave a function with private values: without the locals of its frames, which debuggers show and
tools that report errors store, and without the words of libraries, which may quote a value.
"""

from __future__ import annotations

import functools
import os
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from dpjax.errors import DpjaxError

Function = TypeVar("Function", bound=Callable[..., Any])
DEBUG_VARIABLE = "DPJAX_DEBUG"
HIDDEN = f"its own words are left out, as they may hold private values ({DEBUG_VARIABLE}=1 shows them)"
#: Exceptions whose words are our own, the user's, or about files and packages.
_PLAIN = (DpjaxError, Warning, OSError, ImportError, MemoryError)


def debugging() -> bool:
    """Whether the user wants to see everything about internal errors, data included."""
    return os.environ.get(DEBUG_VARIABLE, "").strip().lower() not in ("", "0", "false", "no")


def without_private_values(function: Function) -> Function:
    """As `without_private_frames`; nor do exceptions hold another one behind them, nor words that are not ours."""
    return _guarded(function, words=True)


def without_private_frames(function: Function) -> Function:
    """Let no exception that leaves the function hold a local variable of its frames or of those below, nor its
    arguments. Places in the code stay. With `DPJAX_DEBUG=1` exceptions are left as they are."""
    return _guarded(function, words=False)


def _guarded(function: Function, words: bool) -> Function:
    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            del args, kwargs
            if debugging():
                raise
            _clear_frames(error)
            # where the function was not even entered, Python's words are about names of arguments
            entered = error.__traceback__ is not None and error.__traceback__.tb_next is not None
            problem = _without_words(error) if words and entered else error
        raise problem

    return guarded  # type: ignore[return-value]


def _clear_frames(error: BaseException) -> None:
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            todo += [one.__cause__, one.__context__]


def _without_words(error: BaseException) -> BaseException:
    error.__cause__ = error.__context__ = None
    if isinstance(error, Exception) and not isinstance(error, _PLAIN):
        error.args = (HIDDEN,)
        if HIDDEN not in str(error):  # some kinds keep their words elsewhere
            return RuntimeError(f"{type(error).__name__}: {HIDDEN}").with_traceback(error.__traceback__)
    return error
