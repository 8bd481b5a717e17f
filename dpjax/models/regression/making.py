"""Priors of regressions, from hyperparameters by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from dpjax.engine.model import Model
from dpjax.errors import InputError
from dpjax.models.given import PriorGiven, created, given_prior, refuse_unknown
from dpjax.models.hyperparameters import matrix, vector
from dpjax.models.regression.free_moments import TILT_SCALE, FreeMoments
from dpjax.models.regression.known import KnownCovariates
from dpjax.models.regression.laws import normal_moments, sampled_moments, uniform_moments
from dpjax.models.regression.linear import LinearRegression
from dpjax.models.regression.origin import OriginRegression
from dpjax.models.regression.weak import WeakRegression

_REGRESSION_FIELDS = ("theta_mean", "theta_precision", "sigma2_shape", "sigma2_scale")
_COVARIATE_FIELDS = ("mean", "kappa", "psi", "nu")
#: Draws behind the moments of a law that is given as a distribution: a fourth moment to about one in a thousand.
LAW_DRAWS = 1_000_000


def regression_model(statistic: Any, prior: Any, default: str) -> Model:
    """The model of a regression's statistic; arguments as `dpjax.models.making.model_for`."""
    if not statistic.intercept:
        return origin_prior(statistic.p, prior, default)
    return regression_prior(statistic.p, prior, default, statistic.moments, statistic.box)


def origin_prior(p: int, prior: PriorGiven | Any = None, default: str = "fit") -> OriginRegression:
    """The prior of a regression through the origin with p features, in scaled units.

    Args:
        p: number of features.
        prior: None for the default; a mapping or a TOML file with any of theta_mean, theta_precision (a PRECISION),
            sigma2_shape, sigma2_scale, independent (whether theta does not depend on sigma2, as in Alparslan et al.
            2023) and a table covariates with psi and nu. What is not given is that of `OriginRegression.weak`.
        default: "fit", `OriginRegression.weak`; "calibration", `OriginRegression.s0`.

    Raises:
        InputError: as `regression_prior`.
    """
    given = given_prior(prior)
    covariates = given.pop("covariates", {})
    if not isinstance(covariates, Mapping):
        raise InputError("prior: covariates must be a table with psi and nu", where="prior")
    refuse_unknown(given, (*_REGRESSION_FIELDS, "independent"))
    refuse_unknown(covariates, ("psi", "nu"), "prior, table covariates, without an intercept")
    if prior is None:
        return created(OriginRegression.s0 if default == "calibration" else OriginRegression.weak, p)
    merged = created(OriginRegression.weak, p).as_dict()
    table = merged.pop("covariates") | dict(covariates)
    return created(OriginRegression.create, p, **(merged | given), **table)


def regression_prior(
    p: int, prior: PriorGiven | Any = None, default: str = "fit", moments: bool = False, box: Any = None
) -> Model:
    """The prior of a regression with p features, in scaled units.

    The default of `fit` is a `WeakRegression`. Hyperparameters give a `LinearRegression`; with `moments`, a
    `FreeMoments` around it; a `KnownCovariates` if the table covariates has `law`.

    Args:
        p: number of features.
        prior: None for the default; a mapping or a TOML file with any of theta_mean, theta_precision (a
            PRECISION: docs/formulas.md#prior-precision), sigma2_shape, sigma2_scale and a table covariates. In it
            either any of mean, kappa, psi, nu (the covariates are normal, their mean and covariance unknown) and, with
            moments, tilt_scale; or law = "normal" with mean and covariance, or law = "uniform" with low and high (their
            law is known); from Python law may also be a NumPyro distribution. What is not given is that of
            `LinearRegression.weak`. With kind = "weak", any of the fields of `WeakRegression` instead.
        moments: third and fourth moments of the covariates are released too.
        box: bounds (lo, hi) of the variables in the units of the prior, inside of which the mean of a law must lie.
        default: "fit", `WeakRegression` over the box; "conjugate" and with moments, `LinearRegression.weak`;
            "calibration", `LinearRegression.s0`.

    Raises:
        InputError: file missing or not TOML, unknown name, value of the wrong shape or sign.
    """
    given = given_prior(prior)
    covariates = given.pop("covariates", {})
    if not isinstance(covariates, Mapping):
        raise InputError("prior: covariates must be a table with mean, kappa, psi, nu, or with law", where="prior")
    covariates = dict(covariates)
    if given.get("kind") == "weak" or (prior is None and default == "fit" and not moments):
        return _weak(p, given, covariates, moments, box)
    refuse_unknown(given, (*_REGRESSION_FIELDS, "kind"))
    if given.pop("kind", "conjugate") != "conjugate":
        raise InputError("prior: kind must be 'weak' or 'conjugate'", where="prior")
    if prior is None:
        normal = LinearRegression.s0(p) if default == "calibration" else LinearRegression.weak(p)
        return FreeMoments.create(normal) if moments else normal
    merged = LinearRegression.weak(p).as_dict()
    table = merged.pop("covariates")
    merged |= given
    if "law" in covariates:
        return created(lambda: _known(p, covariates, merged, box))
    allowed = (*_COVARIATE_FIELDS, "tilt_scale") if moments else _COVARIATE_FIELDS
    refuse_unknown(covariates, (*allowed, "law"), "prior, table covariates")
    tilt = covariates.pop("tilt_scale", TILT_SCALE)
    table |= covariates
    normal = created(
        LinearRegression.create,
        p,
        x_mean=table["mean"],
        kappa=table["kappa"],
        psi=table["psi"],
        nu=table["nu"],
        **merged,
    )
    return created(FreeMoments.create, normal, tilt) if moments else normal


def _weak(p: int, given: dict[str, Any], covariates: Any, moments: bool, box: Any) -> WeakRegression:
    """The prior that is weak over scales, over the bounds where they are known."""
    if covariates or moments:
        what = "a table covariates" if covariates else "released third and fourth moments"
        raise InputError(f"prior: kind = 'weak' does not go with {what}", where="prior")
    given.pop("kind", None)
    refuse_unknown(given, WeakRegression.names())
    low, high = np.asarray([(-1.0, 1.0)] * (p + 1) if box is None else box, np.float64).T
    return created(lambda: WeakRegression.over(low, high, **given))


def _known(p: int, table: Mapping[str, Any], coefficients: Mapping[str, Any], box: Any = None) -> KnownCovariates:
    """The model of a known law of the covariates, by its name or as a NumPyro distribution."""
    law = table["law"]
    hierarchical = sorted(set(table) & {"kappa", "psi", "nu"})
    if hierarchical or (callable(law) and not hasattr(law, "sample")):
        what = f"{hierarchical[0]} is" if hierarchical else "a function of random parameters is"
        raise InputError(
            f"covariates: {what} of a hierarchical law, whose records are exchangeable and not independent: its "
            "marginal moments give posteriors that are far too narrow (docs/formulas.md#dependent-records); leave law "
            "out, and mean and "
            "covariance are inferred"
        )
    if law == "normal":
        refuse_unknown(table, ("law", "mean", "covariance"), "covariates")
        mean, covariance = (
            vector("mean", _needed(table, "mean"), p),
            matrix("covariance", _needed(table, "covariance"), p),
        )
        moments = normal_moments(mean, covariance)
    elif law == "uniform":
        refuse_unknown(table, ("law", "low", "high"), "covariates")
        low, high = (vector(name, _needed(table, name), p) for name in ("low", "high"))
        if not (low < high).all():
            raise InputError(f"covariates: low must be below high; got {low.tolist()} and {high.tolist()}")
        moments = uniform_moments(low, high)
    elif hasattr(law, "sample") and hasattr(law, "event_shape") and not isinstance(law, type):
        refuse_unknown(table, ("law",), "covariates")
        records = _sampled(law, p)
        moments = sampled_moments(records)
        halves = [np.diag(sampled_moments(part)[1].reshape((p + 1) ** 2, -1)) for part in np.array_split(records, 2)]
        if (np.abs(halves[0] - halves[1]) > 0.1 * np.maximum(*halves)).any():
            raise InputError("covariates: law must have four finite moments; those of a million draws do not settle")
        law = "moments"
    else:
        raise InputError(f"covariates: law must be 'normal', 'uniform' or a NumPyro distribution; got {law!r}")
    centre = moments[0][0, 1:]
    limits = np.broadcast_to((-np.inf, np.inf), (p, 2)) if box is None else np.asarray(box, np.float64)[:p]
    if ((centre < limits[:, 0]) | (centre > limits[:, 1])).any():
        raise InputError(
            "covariates: law must be stated in the units of the statistic, where the bounds are "
            f"{limits.tolist()}; its mean is {centre.tolist()}"
        )
    return KnownCovariates.create(*moments, law=law, **coefficients)


def _needed(table: Mapping[str, Any], name: str) -> Any:
    if name not in table:
        raise InputError(f"covariates: {name} is missing, law {table['law']!r} needs it")
    return table[name]


def _sampled(law: Any, p: int) -> np.ndarray:
    """Records `[LAW_DRAWS, p]` from a NumPyro distribution, with a fixed seed."""
    if tuple(law.batch_shape) + tuple(law.event_shape) not in ((p,), () if p == 1 else (p,)):
        raise InputError(
            f"covariates: law must be a distribution of {p} covariates; got batch shape {law.batch_shape} and "
            f"event shape "
            f"{law.event_shape}"
        )
    draws = np.asarray(law.sample(jax.random.key(0), (LAW_DRAWS,)), np.float64).reshape(LAW_DRAWS, p)
    if not np.isfinite(draws).all():
        raise InputError("covariates: law gives numbers that are not finite")
    return draws
