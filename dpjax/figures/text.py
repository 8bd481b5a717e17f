"""Titles that fit their figure, and what is said of several releases in one picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dpjax.errors import require

if TYPE_CHECKING:
    from dpjax.inference.posterior import Posterior

#: Font sizes of the title of a figure and of a panel.
TITLE, PANEL = 11.0, 9.5


def set_title(figure: Any, text: str) -> None:
    """The figure's title, broken into as many lines as its width asks for."""
    figure.suptitle(wrapped(figure, text, TITLE, float(figure.get_figwidth()) - 0.3), fontsize=TITLE)


def wrapped(figure: Any, text: str, size: float, width: float) -> str:
    """Text broken at blanks, and where a word is too long inside of it, into lines of at most `width` inches.

    Args:
        figure: whose renderer measures.
        text: without line breaks.
        size: of the font, in points.
        width: of a line, in inches.
    """
    font = require("matplotlib.font_manager", "drawing figures").FontProperties(size=size)
    renderer, dpi = figure.canvas.get_renderer(), figure.dpi

    def fits(line: str) -> bool:
        # a dollar sign begins a formula in matplotlib; it is as wide as any other
        return bool(renderer.get_text_width_height_descent(line.replace("$", "S"), font, False)[0] / dpi <= width)

    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if fits(longer):
            lines[-1] = longer
            continue
        lines += [""] if lines[-1] else []
        for letter in word:
            if lines[-1] and not fits(lines[-1] + letter):
                lines.append("")
            lines[-1] += letter
    return "\n".join(lines).replace("$", r"\$")


def release_facts(posteriors: Mapping[str, Posterior]) -> tuple[str, dict[str, str]]:
    """What all posteriors' releases have in common, in words, and for each posterior its name with what they do not."""
    facts = {
        name: (
            f"n = {item.records:,}",
            f"epsilon = {item.epsilon:g}" if np.isfinite(item.epsilon) else "epsilon not stated",
            f"{item.mechanism} noise",
        )
        for name, item in posteriors.items()
    }
    same = [len(set(values)) == 1 for values in zip(*facts.values(), strict=True)]
    first = next(iter(facts.values()))
    common = ", ".join(fact for fact, shared in zip(first, same, strict=True) if shared)
    own = {name: [f for f, shared in zip(found, same, strict=True) if not shared] for name, found in facts.items()}
    return common, {name: name + (f" ({', '.join(found)})" if found else "") for name, found in own.items()}


__all__ = ["PANEL", "release_facts", "set_title", "wrapped"]
