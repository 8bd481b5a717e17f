"""Models: prior, moments of one record's statistic, simulation."""

from .base import Model, Observed
from .linear_regression import LinearRegression

__all__ = ["LinearRegression", "Model", "Observed"]
