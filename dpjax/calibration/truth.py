"""Where the true parameters of a study come from, if not from the prior of the inference: another law, or fixed
values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from dpjax.errors import InputError
from dpjax.models import Model, PartySums, model_for
from dpjax.models.given import given_prior
from dpjax.models.hyperparameters import numbers
from dpjax.models.prior_units import UNITS
from dpjax.statistics.base import Statistic, split_name
from dpjax.statistics.units import from_user_units

Truth = Mapping[str, Any] | str | os.PathLike | None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FixedTruth:
    """A model whose parameters are known: `sample_prior` always gives phi `[P]`, everything else is the model's."""

    model: Any
    phi: Any

    def sample_prior(self, key):
        return self.phi

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("model", "phi"):  # while it is made
            raise AttributeError(name)
        return getattr(self.model, name)


def truth_model(statistic: Statistic, truth: Truth | Any, inferred: Model) -> Any:
    """The model that parameters and data are drawn from.

    Args:
        statistic: what is summed.
        truth: a prior of the same model, as of `dpjax.fit`; or {"fixed": values by the names of all parameters}, in the
            scaled units of the statistic or (units = "user") the user's. The name without index stands for all of a
            vector: {"theta": [1, 2], "sigma2": .1, "mu_x": [0], "tau2": [.3]}, {"p": [.2, .8]}, {"rate": 2}.
        inferred: the model of the inference.

    Raises:
        InputError: a file missing or not TOML; unknown, missing or impossible values.
    """
    given = given_prior(truth)
    try:
        if "fixed" in given:
            found: Any = _fixed(statistic, given, inferred)
        else:
            found = model_for(statistic, given)
            if inferred.parties is not None:
                found = PartySums(found, inferred.parties)
    except InputError as error:
        raise InputError(f"truth: {str(error).removeprefix('prior: ')}") from None
    missing = set(inferred.parameter_names) - set(found.parameter_names)
    if missing:
        raise InputError(f"truth: its model has no {min(missing)}, which the inference reports")
    return found


def _fixed(statistic: Statistic, given: dict[str, Any], inferred: Model) -> FixedTruth:
    units = given.get("units", "scaled")
    if units not in UNITS:
        raise InputError(f"units must be 'user' or 'scaled'; got {units!r}")
    if extra := sorted(set(given) - {"fixed", "units"}):
        raise InputError(f"fixed values leave nothing for {extra[0]!r}")
    if statistic.moments:
        raise InputError("fixed values are for releases without third and fourth moments")
    values = _values(statistic, given["fixed"])
    if units == "user":
        values = from_user_units(statistic, values)
    _check(statistic, dict(zip(statistic.parameter_names, values.tolist(), strict=True)))
    base: Any = model_for(statistic, {})  # a prior that is stated, if only as this: the conjugate one, with `positions`
    phi = base.positions(values[None])[0]
    if inferred.parties is not None:
        base = PartySums(base, inferred.parties)
        phi = np.concatenate([phi, np.zeros(base.parties * base.latent_dim)])
    return FixedTruth(base, phi)


def _values(statistic: Statistic, fixed: Any) -> np.ndarray:
    """Values of all parameters `[K]`."""
    names = statistic.parameter_names
    if not isinstance(fixed, Mapping):
        raise InputError(f"fixed must be values by name: {', '.join(names)}")
    found: dict[str, float] = {}
    for key, value in fixed.items():
        members = [key] if key in names else [name for name in names if split_name(name)[0] == key]
        if not members:
            raise InputError(f"fixed: unknown name {key!r}; allowed: {', '.join(names)}")
        array = np.atleast_1d(numbers(f"fixed: {key}", value, f"{len(members)} finite numbers"))
        if array.shape != (len(members),) or not np.isfinite(array).all():
            raise InputError(
                f"fixed: {key} must be {len(members)} finite numbers ({', '.join(members)}); got {value!r}"
            )
        for name, one in zip(members, array.tolist(), strict=True):
            if name in found:
                raise InputError(f"fixed: {name} is given twice")
            found[name] = one
    if missing := [name for name in names if name not in found]:
        raise InputError(f"fixed: {', '.join(missing)} missing: all parameters are fixed or none")
    return np.array([found[name] for name in names])


def _check(statistic: Statistic, values: dict[str, float]) -> None:
    for name, value in values.items():
        base, _ = split_name(name)
        if base in ("sigma2", "variance", "rate") and not value > 0:
            raise InputError(f"fixed: {name} must be above 0; got {value:g}")
        if base == "p" and not 0 < value < 1:
            raise InputError(f"fixed: {name} must lie inside (0, 1); got {value:g}")
    try:
        statistic.check_parameters(values)
    except InputError as error:
        raise InputError(f"fixed: {error}") from None


__all__ = ["FixedTruth", "truth_model"]
