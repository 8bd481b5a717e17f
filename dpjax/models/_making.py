"""From a statistic (what was summed) and a prior file to a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from .._files import read_toml
from ..errors import InputError
from ..families import Family
from ._family_check import check_family
from .base import Model
from .family import MOST_COUNTS, FamilyModel
from .linear_regression import LinearRegression
from .multinomial import Multinomial
from .priors import PRIORS, DirichletPrior, Prior

#: What a prior is for when none is given: one release, or a simulation study.
PURPOSES = ("fit", "calibration")
_REGRESSION_FIELDS = ("theta_mean", "theta_precision", "sigma2_shape", "sigma2_scale")
_COVARIATE_FIELDS = ("mean", "kappa", "psi", "nu")
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


def _regression(statistic: Any, prior: Any, default: str) -> LinearRegression:
    return regression_prior(statistic.p, prior, default)


def regression_prior(p: int, prior: PriorGiven | Any = None, default: str = "fit") -> LinearRegression:
    """The prior of a regression with p features, in scaled units.

    Args:
        p: number of features.
        prior: None for the default; a mapping or a TOML file with any of theta_mean, theta_precision (a
            PRECISION: SPEC C8), sigma2_shape, sigma2_scale and a table covariates with any of mean, kappa, psi, nu.
            What is not given is that of `LinearRegression.weak`.
        default: "fit", `LinearRegression.weak`; "calibration", `LinearRegression.s0`.

    Raises:
        InputError: file missing or not TOML, unknown name, value of the wrong shape or sign.
    """
    if prior is None:
        return LinearRegression.weak(p) if default == "fit" else LinearRegression.s0(p)
    given = _given(prior)
    covariates = given.pop("covariates", {})
    if not isinstance(covariates, Mapping):
        raise InputError("prior: covariates must be a table with mean, kappa, psi, nu")
    _refuse_unknown(given, _REGRESSION_FIELDS)
    _refuse_unknown(covariates, _COVARIATE_FIELDS, "prior, table covariates")
    merged = LinearRegression.weak(p).as_dict()
    table = merged.pop("covariates") | dict(covariates)
    merged |= given
    return _created(
        LinearRegression.create,
        p,
        x_mean=table["mean"],
        kappa=table["kappa"],
        psi=table["psi"],
        nu=table["nu"],
        **merged,
    )


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
