"""Exceptions and warnings of dpjax. All user mistakes are `InputError`; nothing here ever carries a private value."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dpjax._base.visible import visible


class DpjaxError(Exception):
    """Base class of every error that dpjax raises on purpose. Its message may quote a file, and may end on a terminal:
    control characters in it are shown as Python writes them."""

    def __init__(self, *words: object):
        super().__init__(*(visible(word) if isinstance(word, str) else word for word in words))


class InputError(DpjaxError, ValueError):
    """Bad argument, table, file or config: the message names what is wrong and what is allowed (exit code 2).

    Args:
        words: the message.
        where: name of the argument, or path of the key, that the error is about; None where that is not known. What a
            program decides by, in the place of the message.
    """

    def __init__(self, *words: object, where: str | None = None):
        super().__init__(*words)
        self.where = where


@contextmanager
def located(where: str) -> Iterator[None]:
    """Say of every `InputError` out of this block where it belongs, unless it says so itself."""
    try:
        yield
    except InputError as error:
        if error.where is None:
            error.where = where
        raise


class MissingExtraError(DpjaxError, ImportError):
    """A package that this call needs is not installed; the message says how to install it."""


class ConvergenceError(DpjaxError):
    """A chain ended with a failing result code (non-finite state); its draws cannot be used."""


class ConvergenceWarning(UserWarning):
    """Chains ran, but R-hat, ESS or divergences say that the draws should not be trusted yet."""


class PrivacyWarning(UserWarning):
    """Something the data owner should know about the privacy guarantee of a release."""


class ModelWarning(UserWarning):
    """A method was asked to assume something that is known not to hold."""


def require(module: str, purpose: str, extra: str | None = None):
    """Import a module when it is needed, or say how to install it.

    Args:
        module: dotted module name.
        purpose: what needs it, in words.
        extra: name of the extra in `pyproject.toml`; None for a dependency that every installation should have.

    Raises:
        MissingExtraError: the module cannot be imported.
    """
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        how = f"'dpjax[{extra}]'" if extra else f"{package} (dpjax depends on it)"
        raise MissingExtraError(f"{purpose} needs the package '{package}': pip install {how}") from error
