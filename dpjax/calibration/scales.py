"""Noise scales of simulated releases: how a budget is split over the parts of a statistic."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64

from dpjax.errors import InputError
from dpjax.mechanisms import mechanism_named
from dpjax.mechanisms.base import check_sensitivity
from dpjax.privacy.budget import budgets_of, checked_epsilon, checked_share
from dpjax.statistics.base import Statistic
from dpjax.statistics.feature_moments import MOMENTS_SHARE


def noise_scales(
    statistic: Statistic,
    kind: Any,
    epsilon: Any,
    delta: Any = None,
    share: Any = None,
    sensitivities: Any = None,
) -> Float64[np.ndarray, " D"]:
    """Noise scale of every entry when a whole statistic is released with a budget, as `dpjax.release` splits it: for
    simulations.

    Args:
        statistic: what is summed, with D entries and bounds.
        kind: of the mechanism.
        epsilon: > 0, of the release as a whole.
        delta: of Gaussian noise, of the release as a whole.
        share: inside (0, 1), of a statistic with moments: the share of epsilon and delta that the moments get;
            None is `MOMENTS_SHARE`.
        sensitivities: one number > 0 for each of `statistic.parts` (without moments one, with them the usual sums
            first), in the mechanism's norm, under replace-one, in place of the statistic's own.

    Raises:
        InputError: an argument outside its range; a share or a number of sensitivities that do not fit the statistic.
    """
    noise, parts = mechanism_named(kind), statistic.parts
    budget = checked_epsilon(epsilon)
    if sensitivities is None:
        sensitivities = [part.sensitivity(noise.norm) for part in parts]
    if np.shape(sensitivities) != (len(parts),):
        raise InputError(f"sensitivities: {len(parts)} are needed, got {sensitivities!r}")
    sizes = [check_sensitivity(size) for size in sensitivities]
    if len(parts) > 1:
        share = checked_share(MOMENTS_SHARE if share is None else share, "share")
    elif share is not None:
        raise InputError(f"share is for a statistic with moments, which this one has not; got {share!r}")
    budgets = budgets_of(budget, delta, share, "share")
    scales = [noise.scale(size, *spent) for size, spent in zip(sizes, budgets, strict=True)]
    return np.repeat(scales, [part.dim for part in parts])
