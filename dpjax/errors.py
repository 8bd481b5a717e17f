"""Exceptions and warnings of dpjax. All user mistakes are `InputError`; nothing here ever carries a private value."""

from __future__ import annotations


class DpjaxError(Exception):
    """Base class of every error that dpjax raises on purpose."""


class InputError(DpjaxError, ValueError):
    """Bad argument, table, file or config: the message names what is wrong and what is allowed (exit code 2)."""


class MissingExtraError(DpjaxError, ImportError):
    """An optional package is needed for this call; the message names the extra that installs it."""


class ConvergenceError(DpjaxError):
    """A chain ended with a failing result code (non-finite state); its draws cannot be used."""


class ConvergenceWarning(UserWarning):
    """Chains ran, but R-hat, ESS or divergences say that the draws should not be trusted yet."""


class PrivacyWarning(UserWarning):
    """Something the data owner should know about the privacy guarantee of a release."""


class ModelWarning(UserWarning):
    """A method was asked to assume something that is known not to hold."""


def require(module: str, extra: str, purpose: str):
    """Import an optional module or say which extra installs it.

    Args:
        module: dotted module name.
        extra: name of the extra in `pyproject.toml`.
        purpose: what needs it, in words.

    Raises:
        MissingExtraError: the module cannot be imported.
    """
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{purpose} needs the package '{module.split('.')[0]}': pip install 'dpjax[{extra}]'"
        ) from error
