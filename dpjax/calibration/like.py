"""A study of releases like one that was made: its sums, bounds, scaling, number of records and noise."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from dpjax.calibration.simulation import noise_scale
from dpjax.errors import InputError
from dpjax.mechanisms import MECHANISMS
from dpjax.releases.release import Release
from dpjax.statistics.base import Statistic


class Like(NamedTuple):
    """What a study takes over from a release.

    sensitivity: with which the mechanism gives the release's noise scale at its epsilon (or at 1 where it states none);
    epsilon: None where the release states none; share: of the moments, None without them.
    """

    statistic: Statistic
    records: int
    epsilon: float | None
    mechanism: str
    delta: float | None
    sensitivity: float
    share: float | None
    scale: np.ndarray


def read_like(like: Release | str | os.PathLike | Any, epsilon: float | None = None) -> Like:
    """What a study takes over.

    Args:
        like: a release or the path of its file.
        epsilon: of the study, where the release states none.

    Raises:
        InputError: not a release; noise scales that differ between entries; Gaussian noise or moments whose guarantee
            is not stated.
    """
    if not isinstance(like, Release | str | os.PathLike):
        raise InputError(f"like must be a Release or the path of a release file; got {type(like).__name__}")
    release = like if isinstance(like, Release) else Release.load(like)
    privacy, moments = release.privacy, len(release.statistic.parts) > 1
    if privacy is None and (moments or MECHANISMS[release.mechanism].needs_delta):
        raise InputError("like: the release does not state its guarantee, which its noise cannot be told without")
    stated = None if privacy is None else float(privacy.epsilon)
    delta = float(privacy.delta) if privacy is not None and privacy.delta else None
    share = None
    if moments and privacy is not None and privacy.moments is not None:
        share, sensitivity = float(privacy.moments.epsilon / privacy.epsilon), float(privacy.sensitivity)
    else:
        scales = set(release.scale.tolist())
        if len(scales) > 1:
            raise InputError("like: the release has a noise scale of its own for each entry, which studies do not have")
        unit = noise_scale(release.mechanism, 1.0, stated or epsilon or 1.0, delta)
        sensitivity = scales.pop() / unit
    return Like(
        release.statistic, int(release.records), stated, release.mechanism, delta, sensitivity, share, release.scale
    )


__all__ = ["Like", "read_like"]
