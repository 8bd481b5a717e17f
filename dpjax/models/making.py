"""From a statistic (what was summed) and a prior to a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dpjax.engine.model import Model
from dpjax.errors import InputError
from dpjax.models.families.making import family_model_for, multinomial_model
from dpjax.models.families.prior_units import family_words
from dpjax.models.given import PriorGiven, given_prior
from dpjax.models.prior_units import Words, translated
from dpjax.models.regression.making import regression_model
from dpjax.models.regression.prior_units import regression_words
from dpjax.statistics.base import Statistic
from dpjax.statistics.family import FamilyStatistic
from dpjax.statistics.multinomial import MultinomialStatistic
from dpjax.statistics.products import ProductStatistic

#: What a prior is for when none is given: one release, one by a method with a conjugate prior, or a study.
PURPOSES = ("fit", "conjugate", "calibration")


@dataclass(frozen=True)
class ModelGroup:
    """A group of models as an analyst sees it.

    Attributes:
        statistic: class of the statistics whose models it makes.
        make: statistic, prior as a mapping (None for the default), one of `PURPOSES` -> model.
        words: other words for its priors (`dpjax.models.prior_units`); None: hyperparameters by name and no others.
    """

    statistic: type[Statistic]
    make: Callable[[Any, Any, str], Model]
    words: Words | None = None


#: `register` adds to it.
GROUPS: list[ModelGroup] = [
    ModelGroup(ProductStatistic, regression_model, regression_words),
    ModelGroup(MultinomialStatistic, multinomial_model),
    ModelGroup(FamilyStatistic, family_model_for, family_words),
]


def register(group: ModelGroup) -> ModelGroup:
    """Make the models of a class of statistics known to `fit` and `calibrate`.

    Raises:
        InputError: the class has models of another group.
    """
    others = [one for one in GROUPS if one.statistic.__qualname__ != group.statistic.__qualname__]
    if any(issubclass(group.statistic, one.statistic) for one in others):
        raise InputError(f"a {group.statistic.__name__} has a model already")
    GROUPS[:] = [*others, group]
    return group


def model_for(statistic: Any, prior: PriorGiven | Any = None, default: str = "fit") -> Model:
    """The model of a statistic.

    Args:
        statistic: what was summed (`Release.statistic`, `dpjax.statistics.kinds.make_statistic`).
        prior: hyperparameters by name, as a mapping or a TOML file, in the units of the statistic or in the user's
            (`units`), or other words for them (`prior_units.translated`); what is left out keeps its default. None:
            the default.
        default: whose default, "fit" (weak), "conjugate" (the same but for regressions) or "calibration" (that of
            simulation studies).

    Raises:
        InputError: file missing or not TOML, unknown name, value of the wrong shape or sign.
    """
    if default not in PURPOSES:
        raise InputError(f"default must be one of {', '.join(PURPOSES)}; got {default!r}")
    for group in GROUPS:
        if isinstance(statistic, group.statistic):
            given = None if prior is None else translated(statistic, given_prior(prior), group.words)
            return group.make(statistic, given, default)
    raise InputError(f"there is no model of a {type(statistic).__name__}: dpjax.models.register makes one known")
