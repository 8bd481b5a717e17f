"""Priors in the words that people have: in the user's units, and by means and standard deviations of parameters.

`translated` turns such a prior into the hyperparameters of the model in the units of the statistic; priors that need no
translation pass through it unchanged, unknown names too (whoever builds the model refuses them).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpjax.errors import InputError
from dpjax.models.hyperparameters import numbers, positive

#: A statistic, a prior by name, and whether it is in the user's units -> the hyperparameters of the model.
Words = Callable[[Any, dict[str, Any], bool], dict[str, Any]]
UNITS = ("scaled", "user")
#: Other words for hyperparameters, of whatever model has them.
OTHER_WORDS = {"theta_sd": "theta_precision", "mean_sd": "kappa"}


def translated(statistic: Any, given: Mapping[str, Any], words: Words | None) -> dict[str, Any]:
    """The prior in the units of the statistic and by the names of the model's hyperparameters.

    Args:
        statistic: what was summed.
        given: a prior by name. units: "user" for the units of the user's columns, "scaled" (default) for those of the
            statistic. Of a regression theta_mean and theta_sd may be a number, a list (intercept first) or a mapping
            from "intercept" and the features' names, in which what is left out keeps mean and sd of the default;
            theta_sd, which stands for theta_precision, are standard deviations of the coefficients; sigma2_mean and
            sigma2_sd stand for sigma2_shape and sigma2_scale. Of a normal mean_sd stands for kappa, variance_mean and
            variance_sd for shape and scale. Of models with a gamma or a beta prior mean and sd of the parameter, as
            rate_mean and rate_sd or p_mean and p_sd, stand for its hyperparameters.
        words: those of the group of models (`dpjax.models.making.ModelGroup.words`).

    Raises:
        InputError: a value of a wrong shape or sign, names that exclude each other.
    """
    given = dict(given)
    units = given.pop("units", "scaled")
    if units not in UNITS:
        raise InputError(f"prior: units must be 'user' or 'scaled'; got {units!r}", where="prior")
    try:
        return given if words is None else words(statistic, given, units == "user")
    except InputError as error:
        raise InputError(f"prior: {error}", where="prior") from None


# ---- for the words of groups of models ---------------------------------------------------------------------------
def number(what: str, value: Any) -> float:
    """A finite number, or an `InputError`."""
    array = numbers(what, value, "a finite number")
    if array.ndim or not np.isfinite(array):
        raise InputError(f"{what} must be a finite number; got {value!r}")
    return float(array)


def inverse_gamma(given: Mapping[str, Any], name: str, shape: str, scale: str) -> dict[str, Any]:
    """Mean and sd of a variance with an inverse gamma prior, where they are given, as its shape and scale."""
    out = dict(given)
    mean, sd = f"{name}_mean", f"{name}_sd"
    if mean not in given and sd not in given:
        return out
    for needed in (mean, sd):
        if needed not in given:
            raise InputError(f"{needed} is missing: mean and sd stand for the two hyperparameters together")
    exclusive(given, mean, shape, scale)
    m, s = positive(mean, out.pop(mean)), positive(sd, out.pop(sd))
    out[shape] = 2 + (m / s) ** 2
    out[scale] = m * (out[shape] - 1)
    return out


def exclusive(given: Mapping[str, Any], name: str, *others: str) -> None:
    """Refuse a name beside others that say the same."""
    for other in others:
        if other in given:
            raise InputError(f"{name} and {other} exclude each other: give one of them")


__all__ = ["OTHER_WORDS", "UNITS", "Words", "exclusive", "inverse_gamma", "number", "translated"]
