"""Numbers as tables show them."""

from __future__ import annotations

import math


def show_number(value: float | None) -> str:
    """Four significant digits, without an exponent where a reader does not need one."""
    if value is None or not math.isfinite(value):
        return "-"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    return f"{value:.{max(3 - size, 0)}f}" if -4 < size < 7 else f"{value:.3e}"


def show_count(value: float | None, decimals: int = 0) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{decimals}f}"
