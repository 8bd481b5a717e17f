"""Models: prior, moments of one record's statistic, simulation. `model_for` makes the one of a statistic."""

from ._making import family_model, model_for, origin_prior, regression_prior
from .base import Model, Observed
from .exact_sums import ExactSums
from .family import FamilyModel
from .free_moments import FreeMoments
from .known_covariates import KnownCovariates
from .linear_regression import LinearRegression
from .matrix_sums import MatrixSums
from .multinomial import Multinomial
from .origin_regression import OriginRegression
from .party_sums import PartySums

__all__ = [
    "ExactSums",
    "FamilyModel",
    "FreeMoments",
    "KnownCovariates",
    "LinearRegression",
    "MatrixSums",
    "Model",
    "Multinomial",
    "Observed",
    "OriginRegression",
    "PartySums",
    "family_model",
    "model_for",
    "origin_prior",
    "regression_prior",
]
