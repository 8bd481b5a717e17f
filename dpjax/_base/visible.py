"""Text that a terminal takes for text and not for commands."""

from __future__ import annotations

import re
from typing import Any

#: Control characters but tab and line feed; marks that change the direction of text, which reorder what is shown;
#: halves of UTF-16 pairs, which cannot be written at all.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""The text with every control character as Python writes it: `\x1b` for the one that begins a terminal's command.

    What is shown may come from files of others: names, notes, keys.
    """
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


#: Characters of a line of a message: a list of many names is not read, and may fill a log.
LONGEST_LINE = 2000


def one_line(text: Any) -> str:
    """Text without line breaks, cut where it is very long."""
    line = " ".join(str(text).split())
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 3]}..."


__all__ = ["one_line", "visible"]
