"""Texts that stand for the categories of a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpjax._base.checks import shown
from dpjax.errors import InputError

SOMETHING_ELSE = (
    "column {!r} holds something else than {} (a value that stands for a missing one: --missing-code VALUE,"
    " missing_codes=[...])"
)


def shown_label(label: str) -> str:
    """A label among others: in quotes if it holds a comma."""
    return repr(label) if "," in label else label


def checked_labels(labels: Any) -> tuple[str, ...]:
    if isinstance(labels, str) or not isinstance(labels, Sequence):
        raise InputError(f"labels must be a list of texts, got {shown(labels)}")
    for label in labels:
        if not isinstance(label, str) or not label or label != label.strip() or not label.isprintable():
            raise InputError(f"a label must be non-empty printable text without blanks around it, got {shown(label)}")
    if len(set(labels)) < len(labels):
        raise InputError("labels must differ from each other")
    return tuple(labels)
