"""Priors of exponential families and of the multinomial, from hyperparameters by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpjax.errors import InputError
from dpjax.families import Family
from dpjax.models.families.check import check_family
from dpjax.models.families.model import MOST_COUNTS, FamilyModel
from dpjax.models.families.multinomial import Multinomial
from dpjax.models.given import PriorGiven, created, given_prior, refuse_unknown
from dpjax.models.priors import PRIORS, DirichletPrior, Prior


def multinomial_model(statistic: Any, prior: Any, default: str) -> Multinomial:
    """The model of counts of categories; arguments as `dpjax.models.making.model_for`."""
    given = given_prior(prior)
    refuse_unknown(given, ("concentration",))
    size = statistic.categories
    alpha = given.get("concentration", 5.0 if default == "calibration" else 1.0)
    if isinstance(alpha, int | float) and not isinstance(alpha, bool):
        alpha = [alpha] * size
    made = created(DirichletPrior.create, concentration=alpha)
    if made.categories != size:
        raise InputError(
            f"prior: concentration must be {size} numbers, one per category; got {made.categories}", where="prior"
        )
    return Multinomial(made, tuple(statistic.released))


def family_model_for(statistic: Any, prior: Any, default: str) -> FamilyModel:
    """The model of a family's statistic; arguments as `dpjax.models.making.model_for`."""
    family, rule = statistic.family, statistic.rule
    low, high = family.support if rule == "none" else statistic.value_bounds
    values = family.study_prior() if default == "calibration" else family.weak_prior(low, high)
    made = family_prior(family, prior, values)
    check_family(family, family_prior(family, None, family.study_prior()))
    return family_model(family, made, low, high, rule)


def family_prior(family: Family, prior: PriorGiven | Any, values: Mapping[str, Any]) -> Prior:
    """The conjugate prior of a family: hyperparameters as given, the others from `values`.

    Raises:
        InputError: as `model_for`.
    """
    kind = PRIORS[family.prior]
    given = given_prior(prior)
    given.pop("units", None)  # simulated studies have one unit
    refuse_unknown(given, kind.names())
    return created(kind.create, **(dict(values) | given))


def family_model(family: Family, prior: Prior, low: float | Any, high: float | Any, rule: str) -> FamilyModel:
    """The model of a family with this prior, bounds of v and rule; few counts are summed one by one."""
    counted = rule != "none" and family.discrete and family.has_base and family.powers == (1,)
    counts = int(high) + 1 if counted and family.support[0] == 0 and high < MOST_COUNTS else 0
    return FamilyModel(prior, np.asarray(low, np.float64), np.asarray(high, np.float64), family, rule, counts)
