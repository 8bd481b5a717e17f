"""Models: prior, moments of one record's statistic, simulation. `model_for` makes the one of a statistic."""

from ._making import family_model, model_for, regression_prior
from .base import Model, Observed
from .family import FamilyModel
from .linear_regression import LinearRegression
from .multinomial import Multinomial

__all__ = [
    "FamilyModel",
    "LinearRegression",
    "Model",
    "Multinomial",
    "Observed",
    "family_model",
    "model_for",
    "regression_prior",
]
