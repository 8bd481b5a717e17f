"""Whether the guarantee that a release file states can follow from its noise and its sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpjax._base.checks import shown
from dpjax.mechanisms import MECHANISMS
from dpjax.mechanisms.base import SLACK
from dpjax.statistics.base import Statistic


def guarantee_doubts(data: dict[str, Any], statistic: Statistic) -> list[str]:
    """Why the privacy block of a valid release may promise too much, one line each.

    The noise is what inference uses, so these are warnings. Of a release with moments each part is judged by its own
    share of the budget. Where scales differ within a part, or the sensitivity is not known exactly, what is known from
    below is enough to doubt: every entry by itself has at least the noise that its own range needs, all together at
    least what the largest scale gives the largest range.
    """
    privacy, kind, scale = data["privacy"], data["mechanism"]["kind"], data["mechanism"]["scale"]
    if privacy is None:
        return []
    stated, delta, moments = privacy["epsilon"], privacy["delta"], privacy["moments"]
    epsilon = stated - (privacy["bounds_epsilon"] or 0.0)
    budgets = [("", stated, epsilon, delta, privacy["sensitivity"])]
    if moments is not None:
        rest, share = epsilon - moments["epsilon"], moments["epsilon"]
        budgets = [(" of the usual sums", rest, rest, delta - moments["delta"], privacy["sensitivity"])]
        budgets += [(" of the moments", share, share, moments["delta"], moments["sensitivity"])]
    doubts = []
    for part, budget in zip(statistic.parts, budgets, strict=True):
        scales = [scale[name] for name in part.names] if isinstance(scale, dict) else [scale]
        doubts += _part_doubts(part, kind, scales, *budget)
    return doubts


def _part_doubts(
    part: Statistic,
    kind: str,
    scales: list[float],
    words: str,
    stated: float,
    epsilon: float,
    delta: float,
    sensitivity: float,
) -> list[str]:
    """Doubts about one joint release: its scales (one for all, or by entry), its budget, of which `epsilon` was left,
    and its stated sensitivity."""
    norm, promise = MECHANISMS[kind].norm, f"epsilon = {stated:.10g}" + (f", delta = {delta:.10g}" if delta else "")
    ranges = part.entry_ranges()
    if ranges is None:
        return [f"no bounds are stated{words}: without them no noise gives the stated {promise}"]
    exact = part.is_exact(norm)
    least = part.sensitivity(norm) if exact else float(ranges.max())
    doubts = []
    # the largest scale is the noise that the sums have at most
    if not MECHANISMS[kind].holds(max(scales), sensitivity, epsilon, delta):
        doubts.append(_too_little(kind, max(scales), sensitivity, words, promise, epsilon))
    if sensitivity * (1 + SLACK) < least:
        what = f"the replace-one {norm.upper()} sensitivity of these statistics"
        if not exact:
            what = f"which one record can move {shown(part.names[int(ranges.argmax())])} by"
        doubts.append(
            f"the stated sensitivity {sensitivity:.10g}{words} is below {least:.10g}, {what}: the stated epsilon does"
            " not hold"
        )
    if len(set(scales)) == 1:
        return doubts
    if not doubts and not MECHANISMS[kind].holds(max(scales), least, epsilon, delta):
        doubts.append(_too_little(kind, max(scales), least, words, promise, epsilon))
    # what one entry lacks most
    worst = int((ranges / np.asarray(scales)).argmax())
    if not MECHANISMS[kind].holds(scales[worst], float(ranges[worst]), epsilon, delta):
        doubts.append(
            f"the noise scale {scales[worst]:.10g} of {shown(part.names[worst])}{words} is too small for an entry that"
            f" one record can move by {float(ranges[worst]):.10g}: the stated {promise} does not hold"
        )
    return doubts


def _too_little(kind: str, scale: float, sensitivity: float, words: str, promise: str, epsilon: float) -> str:
    noise = MECHANISMS[kind]
    if noise.needs_delta:
        return (
            f"{kind.capitalize()} noise{words} of scale {scale:.10g} and sensitivity {sensitivity:.10g} does not give"
            f" the stated {promise}"
        )
    return (
        f"the noise scale {scale:.10g}{words} is below {noise.formula} = {noise.scale(sensitivity, epsilon):.10g}: the"
        f" stated {promise}{words} does not hold"
    )
