"""What mechanisms need to draw noise of real releases by OpenDP, from the operating system's randomness; no seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dpjax.errors import InputError, require

_NUDGES = 64


def smallest_scale(
    make: Callable[[float], Any], distance: float | int, scale: float, epsilon: float
) -> tuple[Any, float, float]:
    """The measurement `make(scale)` whose map gives at most epsilon, its scale, and what the map gives.

    Args:
        make: builds a measurement of OpenDP from its scale.
        distance: between neighbours, as the measurement's map takes it.
        scale: to begin with; enlarged by single steps of a float, as the map rounds up.
        epsilon: the target.

    Raises:
        InputError: no scale near the given one meets the target.
    """
    for _ in range(_NUDGES):
        measurement = make(scale)
        spent = measurement.map(distance)
        if spent <= epsilon:
            return measurement, scale, float(spent)
        scale = math.nextafter(scale, math.inf)
    raise InputError(f"epsilon = {epsilon!r} cannot be met in floating point")


@contextmanager
def refused(words: str) -> Iterator[None]:
    """An error of OpenDP while it builds noise, before any data are in it, as one about the budget; words: its start.

    Raises:
        InputError: OpenDP refuses.
    """
    from opendp.mod import OpenDPException

    try:
        yield
    except (OpenDPException, OverflowError, ZeroDivisionError):
        raise InputError(f"{words}, which cannot be met in floating point") from None


def opendp() -> Any:
    """OpenDP, which draws all noise of real releases.

    Raises:
        MissingExtraError: it is not installed.
    """
    dp = require("opendp.prelude", "dpjax.releases.release")
    dp.enable_features("contrib")
    return dp


def check_values(values: np.ndarray) -> None:
    """Refuse what OpenDP takes without a word.

    Raises:
        InputError: values that are not finite or not a vector; the message holds no value.
    """
    if values.ndim != 1 or len(values) == 0:
        raise InputError("statistics must be a non-empty vector")
    if not np.isfinite(values).all():
        raise InputError("statistics must be finite")


def noised(measurement: Any, values: list[Any], epsilon: float) -> np.ndarray:
    """Values with the noise of a measurement [D].

    Raises:
        InputError: the noise is beyond the range of a float.
    """
    drawn = np.array(measurement(values), dtype=np.float64)
    if drawn.shape != (len(values),) or not np.isfinite(drawn).all():
        raise InputError(f"epsilon = {epsilon!r} asks for noise beyond the range of a float")
    return drawn
