"""Models: prior, moments of one record's statistic, simulation. `model_for` makes the one of a statistic."""

from dpjax.engine.model import Model, Observed
from dpjax.models.families.making import family_model
from dpjax.models.families.model import FamilyModel
from dpjax.models.families.multinomial import Multinomial
from dpjax.models.making import ModelGroup, model_for, register
from dpjax.models.regression.exact_sums import ExactSums
from dpjax.models.regression.free_moments import FreeMoments
from dpjax.models.regression.known import KnownCovariates
from dpjax.models.regression.linear import LinearRegression
from dpjax.models.regression.making import origin_prior, regression_prior
from dpjax.models.regression.origin import OriginRegression
from dpjax.models.regression.own_parties import OwnPartySums
from dpjax.models.regression.parties import PartySums
from dpjax.models.regression.weak import WeakRegression
from dpjax.models.regression.wishart import MatrixSums

__all__ = [
    "ExactSums",
    "FamilyModel",
    "FreeMoments",
    "KnownCovariates",
    "LinearRegression",
    "MatrixSums",
    "Model",
    "ModelGroup",
    "Multinomial",
    "Observed",
    "OriginRegression",
    "OwnPartySums",
    "PartySums",
    "WeakRegression",
    "family_model",
    "model_for",
    "origin_prior",
    "register",
    "regression_prior",
]
