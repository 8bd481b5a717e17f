"""Words for the prior of a regression: in the user's units, by mean and standard deviation, by names of features.

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
from dpjax.models.hyperparameters import matrix, positive, vector
from dpjax.models.prior_units import inverse_gamma, number
from dpjax.models.regression.linear import LinearRegression
from dpjax.models.regression.origin import OriginRegression


def regression_words(statistic: Any, given: dict[str, Any], user: bool) -> dict[str, Any]:
    """Hyperparameters of a regression in the units of a `ProductStatistic`; arguments as of `Words`."""
    names = coefficient_names(statistic)
    size, p = len(names), statistic.p
    given = inverse_gamma(given, "sigma2", "sigma2_shape", "sigma2_scale")
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


def coefficient_names(statistic: Any) -> list[str]:
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
        [number(f"{what} of {n}", value[n]) if n in value else u for n, u in zip(names, usual, strict=True)]
    )


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
