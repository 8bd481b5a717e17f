"""From a statistic (what was summed) and a prior file to a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._files import read_toml
from ..errors import InputError
from ..families import Family
from ._family_check import check_family
from ._hyperparameters import matrix, vector
from .base import Model
from .covariate_laws import normal_moments, sampled_moments, uniform_moments
from .family import MOST_COUNTS, FamilyModel
from .free_moments import TILT_SCALE, FreeMoments
from .known_covariates import KnownCovariates
from .linear_regression import LinearRegression
from .multinomial import Multinomial
from .origin_regression import OriginRegression
from .priors import PRIORS, DirichletPrior, Prior

#: What a prior is for when none is given: one release, or a simulation study.
PURPOSES = ("fit", "calibration")
_REGRESSION_FIELDS = ("theta_mean", "theta_precision", "sigma2_shape", "sigma2_scale")
_COVARIATE_FIELDS = ("mean", "kappa", "psi", "nu")
#: Draws behind the moments of a law that is given as a distribution: a fourth moment to about one in a thousand.
LAW_DRAWS = 1_000_000
PriorGiven = Mapping[str, Any] | str | os.PathLike | None


def model_for(statistic: Any, prior: PriorGiven | Any = None, default: str = "fit") -> Model:
    """The model of a statistic.

    Args:
        statistic: what was summed (`Release.statistic`, `dpjax.kinds.make_statistic`).
        prior: hyperparameters by name, as a mapping or a TOML file, in the units of the statistic; what is left out
            keeps its default. None: the default.
        default: whose default, "fit" (weak) or "calibration" (that of simulation studies).

    Raises:
        InputError: file missing or not TOML, unknown name, value of the wrong shape or sign.
    """
    if default not in PURPOSES:
        raise InputError(f"default must be one of {', '.join(PURPOSES)}; got {default!r}")
    builders: dict[str, Callable[..., Model]] = {"linear-regression": _regression, "multinomial": _multinomial}
    return builders.get(statistic.kind, _family)(statistic, prior, default)


def _given(prior: Any) -> dict[str, Any]:
    if prior is None:
        return {}
    if isinstance(prior, str | os.PathLike):
        prior = read_toml(Path(prior))
    if not isinstance(prior, Mapping):
        raise InputError(f"prior must be a mapping or a file; got {type(prior).__name__}")
    return dict(prior)


def _refuse_unknown(given: Any, known: tuple[str, ...], where: str = "prior") -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise InputError(f"{where}: unknown name {unknown[0]!r}; allowed: {', '.join(known)}")


def _created(build: Callable[..., Any], *args: Any, **values: Any) -> Any:
    try:
        return build(*args, **values)
    except InputError as error:
        raise InputError(f"prior: {error}") from None


def _regression(statistic: Any, prior: Any, default: str) -> Model:
    if not statistic.intercept:
        return origin_prior(statistic.p, prior, default)
    return regression_prior(statistic.p, prior, default, statistic.moments, statistic.box)


def origin_prior(p: int, prior: PriorGiven | Any = None, default: str = "fit") -> OriginRegression:
    """The prior of a regression through the origin with p features, in scaled units.

    Args:
        p: number of features.
        prior: None for the default; a mapping or a TOML file with any of theta_mean, theta_precision (a PRECISION),
            sigma2_shape, sigma2_scale, independent (whether theta does not depend on sigma2, as in S3) and a table
            covariates with psi and nu. What is not given is that of `OriginRegression.weak`.
        default: "fit", `OriginRegression.weak`; "calibration", `OriginRegression.s0`.

    Raises:
        InputError: as `regression_prior`.
    """
    given = _given(prior)
    covariates = given.pop("covariates", {})
    if not isinstance(covariates, Mapping):
        raise InputError("prior: covariates must be a table with psi and nu")
    _refuse_unknown(given, (*_REGRESSION_FIELDS, "independent"))
    _refuse_unknown(covariates, ("psi", "nu"), "prior, table covariates, without an intercept")
    if prior is None:
        return _created(OriginRegression.weak if default == "fit" else OriginRegression.s0, p)
    merged = _created(OriginRegression.weak, p).as_dict()
    table = merged.pop("covariates") | dict(covariates)
    return _created(OriginRegression.create, p, **(merged | given), **table)


def regression_prior(
    p: int, prior: PriorGiven | Any = None, default: str = "fit", moments: bool = False, box: Any = None
) -> Model:
    """The prior of a regression with p features, in scaled units.

    A `LinearRegression`; with `moments`, a `FreeMoments` around it; a `KnownCovariates` if the table covariates has
    `law`.

    Args:
        p: number of features.
        prior: None for the default; a mapping or a TOML file with any of theta_mean, theta_precision (a
            PRECISION: SPEC C8), sigma2_shape, sigma2_scale and a table covariates. In it either any of mean, kappa,
            psi, nu (the covariates are normal, their mean and covariance unknown) and, with moments, tilt_scale; or
            law = "normal" with mean and covariance, or law = "uniform" with low and high (their law is known); from
            Python law may also be a NumPyro distribution. What is not given is that of `LinearRegression.weak`.
        moments: third and fourth moments of the covariates are released too.
        box: bounds (lo, hi) of the variables in the units of the prior, inside of which the mean of a law must lie.
        default: "fit", `LinearRegression.weak`; "calibration", `LinearRegression.s0`.

    Raises:
        InputError: file missing or not TOML, unknown name, value of the wrong shape or sign.
    """
    given = _given(prior)
    covariates = given.pop("covariates", {})
    if not isinstance(covariates, Mapping):
        raise InputError("prior: covariates must be a table with mean, kappa, psi, nu, or with law")
    covariates = dict(covariates)
    _refuse_unknown(given, _REGRESSION_FIELDS)
    if prior is None:
        normal = LinearRegression.weak(p) if default == "fit" else LinearRegression.s0(p)
        return FreeMoments.create(normal) if moments else normal
    merged = LinearRegression.weak(p).as_dict()
    table = merged.pop("covariates")
    merged |= given
    if "law" in covariates:
        return _created(lambda: _known(p, covariates, merged, box))
    allowed = (*_COVARIATE_FIELDS, "tilt_scale") if moments else _COVARIATE_FIELDS
    _refuse_unknown(covariates, (*allowed, "law"), "prior, table covariates")
    tilt = covariates.pop("tilt_scale", TILT_SCALE)
    table |= covariates
    normal = _created(
        LinearRegression.create,
        p,
        x_mean=table["mean"],
        kappa=table["kappa"],
        psi=table["psi"],
        nu=table["nu"],
        **merged,
    )
    return _created(FreeMoments.create, normal, tilt) if moments else normal


def _known(p: int, table: Mapping[str, Any], coefficients: Mapping[str, Any], box: Any = None) -> KnownCovariates:
    """The model of a known law of the covariates, by its name or as a NumPyro distribution."""
    law = table["law"]
    hierarchical = sorted(set(table) & {"kappa", "psi", "nu"})
    if hierarchical or (callable(law) and not hasattr(law, "sample")):
        what = f"{hierarchical[0]} is" if hierarchical else "a function of random parameters is"
        raise InputError(
            f"covariates: {what} of a hierarchical law, whose records are exchangeable and not independent: its "
            "marginal moments give posteriors that are far too narrow (SPEC C5); leave law out, and mean and "
            "covariance are inferred"
        )
    if law == "normal":
        _refuse_unknown(table, ("law", "mean", "covariance"), "covariates")
        mean, covariance = (
            vector("mean", _needed(table, "mean"), p),
            matrix("covariance", _needed(table, "covariance"), p),
        )
        moments = normal_moments(mean, covariance)
    elif law == "uniform":
        _refuse_unknown(table, ("law", "low", "high"), "covariates")
        low, high = (vector(name, _needed(table, name), p) for name in ("low", "high"))
        if not (low < high).all():
            raise InputError(f"covariates: low must be below high; got {low.tolist()} and {high.tolist()}")
        moments = uniform_moments(low, high)
    elif hasattr(law, "sample") and hasattr(law, "event_shape") and not isinstance(law, type):
        _refuse_unknown(table, ("law",), "covariates")
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


def _multinomial(statistic: Any, prior: Any, default: str) -> Multinomial:
    given = _given(prior)
    _refuse_unknown(given, ("concentration",))
    size = statistic.categories
    alpha = given.get("concentration", 1.0 if default == "fit" else 5.0)
    if isinstance(alpha, int | float) and not isinstance(alpha, bool):
        alpha = [alpha] * size
    made = _created(DirichletPrior.create, concentration=alpha)
    if made.categories != size:
        raise InputError(f"prior: concentration must be {size} numbers, one per category; got {made.categories}")
    return Multinomial(made, tuple(statistic.released))


def _family(statistic: Any, prior: Any, default: str) -> FamilyModel:
    family, rule = statistic.family, statistic.rule
    low, high = family.support if rule == "none" else statistic.value_bounds
    values = family.weak_prior(low, high) if default == "fit" else family.study_prior()
    made = family_prior(family, prior, values)
    check_family(family, family_prior(family, None, family.study_prior()))
    return family_model(family, made, low, high, rule)


def family_prior(family: Family, prior: PriorGiven | Any, values: Mapping[str, Any]) -> Prior:
    """The conjugate prior of a family: hyperparameters as given, the others from `values`.

    Raises:
        InputError: as `model_for`.
    """
    kind = PRIORS[family.prior]
    given = _given(prior)
    _refuse_unknown(given, kind.names())
    return _created(kind.create, **(dict(values) | given))


def family_model(family: Family, prior: Prior, low: float | Any, high: float | Any, rule: str) -> FamilyModel:
    """The model of a family with this prior, bounds of v and rule; few counts are summed one by one."""
    counted = rule != "none" and family.discrete and family.has_base and family.powers == (1,)
    counts = int(high) + 1 if counted and family.support[0] == 0 and high < MOST_COUNTS else 0
    return FamilyModel(prior, jnp.asarray(low, jnp.float32), jnp.asarray(high, jnp.float32), family, rule, counts)
