"""Values of a column that look like codes for a missing value: -200, 999, or -9, -8 and -7."""

from __future__ import annotations

import math
import re

import numpy as np
from jaxtyping import Float64

#: Most codes looked for at either end of a column.
_MOST = 6
#: A code stands in at least this many records (one of the usual codes, another), or in this share of them.
_TIMES, _SHARE = (2, 3), 0.001
_TYPICAL = re.compile(r"-?(9+|8+|7+|9+[6-9]|8+[6-9])")

_CLEAR = re.compile(r"-?(99+|88+|77+)")


def sentinels(values: Float64[np.ndarray, " n"]) -> dict[float, int]:
    """Values that look like codes, and in how many records each stands.

    A code is a whole number that several records have and that lies at one end of the column, alone or with a few
    others, away from all the rest: further than the rest itself is wide (its 5% to 95% quantiles); half as far if it is
    one of the usual codes (digits 9, 8 or 7), three times as far if it is 99, 999, 888 or the like and few have it; a
    third if far more records have it than the values next to it; and hardly away if it is negative where the rest
    is not and stands in 1% of the records.

    Args:
        values: a column without missing values.
    """
    distinct, times = np.unique(values, return_counts=True)
    found: dict[float, int] = {}
    for sign in (-1, 1):
        found |= _at_end(distinct, times, sign, found)
    return dict(sorted(found.items()))


def _at_end(distinct: np.ndarray, times: np.ndarray, sign: int, others: dict[float, int]) -> dict[float, int]:
    """Codes among the smallest (sign -1) or largest values; `others` were found at the other end."""
    left = ~np.isin(distinct, list(others))
    distinct, times = distinct[left], times[left]
    if sign > 0:
        distinct, times = -distinct[::-1], times[::-1]
    # from here on codes are the smallest
    total = times.sum()
    for size in range(min(_MOST, len(distinct) - 2), 0, -1):
        codes, rest, weights = distinct[:size], distinct[size:], times[size:]
        signed = -sign * codes  # as they stand in the column
        usual = all(_TYPICAL.fullmatch(f"{value:.0f}") for value in signed)
        often = (times[:size] >= max(_TIMES[0 if usual else 1], _SHARE * total)).all()
        few = not usual and len(rest) < 3  # 0, 1 and 5 may be a count
        clear = total >= 20 and all(_CLEAR.fullmatch(f"{value:.0f}") for value in signed)
        if few or not (often or clear) or not (codes == np.floor(codes)).all():
            continue
        place = np.cumsum(weights) / weights.sum()
        low, high = rest[np.minimum(np.searchsorted(place, (0.05, 0.95)), len(rest) - 1)]
        gap, wide = float(rest[0] - codes[-1]), float(high - low) or float(rest[-1] - rest[0]) / 3
        step = float(np.median(np.diff(rest)))
        heaped = bool(times[:size].min() >= 3 * weights[:5].max())
        negative = sign < 0 <= rest[0] and codes[-1] < 0 and size <= 3
        needed = (0.5 if usual else 0.3 if heaped else 1.0) if often else 3.0
        far = gap > wide * needed and gap > 3 * step
        many = bool(times[:size].min() >= max(5, 0.01 * total))
        if math.isfinite(gap) and (far or (negative and many and (heaped or gap > 1.5 * step))):
            return {float(value): int(count) for value, count in zip(signed, times[:size], strict=True)}
    return {}
