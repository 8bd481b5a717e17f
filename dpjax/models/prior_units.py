"""Priors in the words that people have: in the user's units, and by means and standard deviations of parameters.

`translated` turns such a prior into the hyperparameters of the model in the units of the statistic; priors that need no
translation pass through it unchanged, unknown names too (whoever builds the model refuses them).

With theta' = A theta + a and sigma2' = sigma2 / h_y^2 for the scaled quantities (primes), h half widths and c middles
of the bounds: theta | sigma2 ~ N(m, sigma2 P^-1) means theta' | sigma2' ~ N(A m + a, sigma2' P'^-1) with
P' = A^-T P A^-1 / h_y^2. Under a normal-inverse-gamma prior the variance of a coefficient is E[sigma2] times that of
P^-1, which is how standard deviations become a precision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpjax.errors import InputError
from dpjax.models.hyperparameters import matrix, numbers, positive, vector
from dpjax.models.regression.linear import LinearRegression
from dpjax.models.regression.origin import OriginRegression
from dpjax.statistics.base import Statistic
from dpjax.statistics.family import FamilyStatistic
from dpjax.statistics.products import ProductStatistic

UNITS = ("scaled", "user")
#: Other words for hyperparameters, of whatever model has them.
OTHER_WORDS = {"theta_sd": "theta_precision", "mean_sd": "kappa"}


def translated(statistic: Statistic | Any, given: Mapping[str, Any]) -> dict[str, Any]:
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

    Raises:
        InputError: a value of a wrong shape or sign, names that exclude each other.
    """
    given = dict(given)
    units = given.pop("units", "scaled")
    if units not in UNITS:
        raise InputError(f"prior: units must be 'user' or 'scaled'; got {units!r}", where="prior")
    try:
        if isinstance(statistic, ProductStatistic):
            return _regression(statistic, given, units == "user")
        if isinstance(statistic, FamilyStatistic):
            return _family(statistic, given, units == "user")
    except InputError as error:
        raise InputError(f"prior: {error}", where="prior") from None
    return given


# ---- regressions -------------------------------------------------------------------------------------------------
def _regression(statistic: ProductStatistic, given: dict[str, Any], user: bool) -> dict[str, Any]:
    names = coefficient_names(statistic)
    size, p = len(names), statistic.p
    given = _inverse_gamma(given, "sigma2", "sigma2_shape", "sigma2_scale")
    centre, half = statistic.units if user else (np.zeros(p + 1), np.ones(p + 1))
    base: Any = (LinearRegression if statistic.intercept else OriginRegression).weak(p)
    default = base.as_dict()
    # theta = B theta' + b
    b_matrix, b_offset = np.diag(half[p] / half[:p]), np.zeros(p)
    if statistic.intercept:
        b_matrix = np.block([[half[p:, None], -(half[p] / half[:p] * centre[:p])[None]], [np.zeros((p, 1)), b_matrix]])
        b_offset = np.concatenate([centre[p:], b_offset])
    independent = given.get("independent", False) is True
    shape = positive("sigma2_shape", given.get("sigma2_shape", default["sigma2_shape"]))
    scale = given.get("sigma2_scale")
    scale = default["sigma2_scale"] if scale is None else positive("sigma2_scale", scale) / half[p] ** 2
    inside = np.linalg.inv(np.array(default["theta_precision"]))  # of the default, in units of sigma2'
    out = dict(given)
    if "sigma2_scale" in given:
        out["sigma2_scale"] = scale
    mean, sd = given.get("theta_mean"), given.get("theta_sd")
    if mean is not None:
        usual = b_matrix @ np.array(default["theta_mean"]) + b_offset
        mean = _by_name("theta_mean", mean, names, usual)
        out["theta_mean"] = np.linalg.solve(b_matrix, mean - b_offset).tolist()
    precision = None
    if sd is not None:
        if "theta_precision" in given:
            raise InputError("theta_sd and theta_precision exclude each other: give one of them")
        expected = scale / (shape - 1.0) * half[p] ** 2 if shape > 1 else None  # of sigma2, in the user's units
        if expected is None and not independent:
            raise InputError(f"theta_sd needs sigma2_shape above 1, so that sigma2 has a mean; got {shape:g}")
        usual = np.sqrt(
            np.diag(b_matrix @ inside @ b_matrix.T) * (1.0 if independent else scale / max(shape - 1.0, 1e-9))
        )
        sd = _by_name("theta_sd", sd, names, usual)
        if not (sd > 0).all():
            raise InputError(f"theta_sd must be above 0; got {sd.tolist()}")
        precision = np.diag((1.0 if independent else expected) / sd**2)
        del out["theta_sd"]
    elif "theta_precision" in given:
        precision = matrix("theta_precision", given["theta_precision"], size)
    if precision is not None:
        scaled = b_matrix.T @ precision @ b_matrix / (1.0 if independent else half[p] ** 2)
        out["theta_precision"] = ((scaled + scaled.T) / 2).tolist()
    if user:
        out |= _weak_names(given, centre, half)
        if isinstance(given.get("covariates"), Mapping):
            out["covariates"] = _covariates(given["covariates"], centre[:p], half[:p])
    return out


def coefficient_names(statistic: ProductStatistic) -> list[str]:
    """Names of the coefficients in a prior: "intercept", where there is one, and the features."""
    first = 0 if statistic.intercept else 1
    return [statistic.coordinate("theta", (i,)) for i in range(first, statistic.p + 1)]


def _by_name(what: str, value: Any, names: list[str], usual: np.ndarray) -> np.ndarray:
    """A number for all, a list, or a mapping from names, those that are left out as usual."""
    if not isinstance(value, Mapping):
        return vector(what, value, len(names))
    for name in value:
        if name not in names:
            raise InputError(f"{what}: unknown name {name!r}; allowed: {', '.join(names)}")
    return np.array(
        [_number(f"{what} of {n}", value[n]) if n in value else u for n, u in zip(names, usual, strict=True)]
    )


def _number(what: str, value: Any) -> float:
    array = numbers(what, value, "a finite number")
    if array.ndim or not np.isfinite(array):
        raise InputError(f"{what} must be a finite number; got {value!r}")
    return float(array)


def _weak_names(given: Mapping[str, Any], centre: np.ndarray, half: np.ndarray) -> dict[str, Any]:
    """Means and scales of all variables, features then target."""
    out = {}
    if "mean" in given:
        out["mean"] = ((vector("mean", given["mean"], len(half)) - centre) / half).tolist()
    for name in ("mean_sd", "sd_scale"):
        if name in given:
            out[name] = (vector(name, given[name], len(half)) / half).tolist()
    return out


def _covariates(table: Mapping[str, Any], centre: np.ndarray, half: np.ndarray) -> dict[str, Any]:
    """Prior or known law of the features."""
    out, p = dict(table), len(half)
    if not isinstance(table.get("law", ""), str):
        raise InputError("covariates: a distribution as law must be in scaled units; use units = 'scaled'")
    for name in ("mean", "low", "high"):
        if name in table:
            out[name] = ((vector(name, table[name], p) - centre) / half).tolist()
    for name in ("psi", "covariance"):
        if name in table:
            out[name] = (matrix(name, table[name], p) / np.outer(half, half)).tolist()
    return out


# ---- families ----------------------------------------------------------------------------------------------------
def _family(statistic: FamilyStatistic, given: dict[str, Any], user: bool) -> dict[str, Any]:
    family, out = statistic.family, dict(given)
    if family.prior == "normal-inverse-gamma":
        given = out = _inverse_gamma(given, family.parameters[1], "shape", "scale")
        # user's units of a parameter are an affine map of scaled ones: mean = c + h mean', variance = h^2 variance'
        corner = (
            statistic.to_user_units(np.array([[0.0, 0.0], [1.0, 1.0]])) if user else np.array([[0.0, 0.0], [1.0, 1.0]])
        )
        centre, half = corner[0, 0], corner[1, 0] - corner[0, 0]
        usual = family.weak_prior(*(statistic.value_bounds or family.support))
        if "mean" in given:
            out["mean"] = (_number("mean", given["mean"]) - centre) / half
        if "scale" in given:
            out["scale"] = positive("scale", given["scale"]) / half**2
        if "mean_sd" in given:
            _exclusive(given, "mean_sd", "kappa")
            sd = positive("mean_sd", out.pop("mean_sd")) / half
            shape = positive("shape", given.get("shape", usual["shape"]), above=1.0)
            out["kappa"] = float(out.get("scale", usual["scale"])) / (shape - 1.0) / sd**2
        return out
    if family.prior in ("gamma", "beta"):
        first = family.parameters[0]
        mean, sd = f"{first}_mean", f"{first}_sd"
        own = ("shape", "rate") if family.prior == "gamma" else ("alpha", "beta")
        if mean in given or sd in given:
            for name in (mean, sd):
                if name not in given:
                    raise InputError(f"{name} is missing: mean and sd stand for the two hyperparameters together")
            _exclusive(given, mean, *own)
            m, s = positive(mean, out.pop(mean)), positive(sd, out.pop(sd))
            if family.prior == "gamma":
                return out | {"shape": (m / s) ** 2, "rate": m / s**2}
            if not (m < 1 and s**2 < m * (1 - m)):
                raise InputError(f"{mean} must be below 1 and {sd}^2 below {mean} (1 - {mean}); got {m:g} and {s:g}")
            size = m * (1 - m) / s**2 - 1
            return out | {"alpha": m * size, "beta": (1 - m) * size}
    return out


def _inverse_gamma(given: Mapping[str, Any], name: str, shape: str, scale: str) -> dict[str, Any]:
    """Mean and sd of a variance with an inverse gamma prior, where they are given, as its shape and scale."""
    out = dict(given)
    mean, sd = f"{name}_mean", f"{name}_sd"
    if mean not in given and sd not in given:
        return out
    for needed in (mean, sd):
        if needed not in given:
            raise InputError(f"{needed} is missing: mean and sd stand for the two hyperparameters together")
    _exclusive(given, mean, shape, scale)
    m, s = positive(mean, out.pop(mean)), positive(sd, out.pop(sd))
    out[shape] = 2 + (m / s) ** 2
    out[scale] = m * (out[shape] - 1)
    return out


def _exclusive(given: Mapping[str, Any], name: str, *others: str) -> None:
    for other in others:
        if other in given:
            raise InputError(f"{name} and {other} exclude each other: give one of them")


__all__ = ["OTHER_WORDS", "UNITS", "coefficient_names", "translated"]
