"""The guarantee of a release, and its block in the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpjax._base.signatures import no_field_check


@no_field_check
@dataclass(frozen=True)
class MomentsPrivacy:
    """The part of a guarantee that the third and fourth moments of a regression's features have.

    Args:
        epsilon: > 0, a part of that of the release.
        sensitivity: of the sums of these moments, in the norm and units of the release.
        delta: at least 0, a part of that of the release.
    """

    epsilon: float
    sensitivity: float
    delta: float = 0.0


@no_field_check
@dataclass(frozen=True)
class Privacy:
    """The guarantee of a release.

    Args:
        epsilon: > 0, what the privacy map of the mechanism gives, and all that was spent.
        delta: in [0, 1), 0 but for Gaussian noise.
        adjacency: "replace-one" (the number of records is public).
        norm: "l1" or "l2".
        sensitivity: in that norm, of the summed statistic in the units of the release; with moments, of the usual sums.
        bounds_epsilon: the part of epsilon that was spent on private bounds, None if they were stated.
        moments: the part of the guarantee that third and fourth moments of the features have, None without them.
    """

    epsilon: float
    delta: float
    adjacency: str
    norm: str
    sensitivity: float
    bounds_epsilon: float | None = None
    moments: MomentsPrivacy | None = None


def privacy_of_block(*, moments: dict[str, float] | None, **rest: Any) -> Privacy:
    return Privacy(**rest, moments=None if moments is None else MomentsPrivacy(**moments))


def block_of_privacy(privacy: Privacy) -> dict[str, Any]:
    """The block "privacy" of the file: what most releases do not have is left out."""
    block = dict(vars(privacy))
    for name in ("bounds_epsilon", "moments"):
        if block[name] is None:
            del block[name]
    if isinstance(privacy.moments, MomentsPrivacy):
        block["moments"] = {k: v for k, v in vars(privacy.moments).items() if k != "delta" or v != 0}
    return block
