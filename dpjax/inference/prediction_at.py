"""Prediction at one point of covariates, of one posterior or of many side by side, and the draws that predictions take
from a regression's posterior. NumPy only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtr

from dpjax._base.signatures import no_type_check
from dpjax.errors import InputError
from dpjax.inference.prediction_rows import read_point
from dpjax.statistics.products import ProductStatistic


def regression_draws(
    statistic: Any, names: Sequence[str], user_draws: np.ndarray, method: str
) -> tuple[np.ndarray, np.ndarray]:
    """theta `[..., p + 1]`, intercept first (0 in a regression without one), and sigma2 `[...]`, user's units.

    Args:
        statistic: what was released, a `Statistic`.
        names: of the K parameters, in any order.
        user_draws: `[..., K]`.
        method: for a message.

    Raises:
        InputError: the posterior of another model, or one without sigma2.
    """
    if not statistic.has_features:
        raise InputError(f"predictions are for {ProductStatistic.kind}; this posterior is of {statistic.kind}")
    place = {name: k for k, name in enumerate(names)}
    if "sigma2" not in place:
        raise InputError(f"method {method!r} has no draws of sigma2, which predictions need")
    first = 0 if statistic.intercept else 1
    theta = user_draws[..., [place[f"theta[{i}]"] for i in range(first, statistic.p + 1)]]
    if first:
        theta = np.concatenate([np.zeros((*theta.shape[:-1], 1)), theta], axis=-1)
    return theta, user_draws[..., place["sigma2"]]


@dataclass(frozen=True)
class PredictionAt:
    """Predictive distribution of the response at one point of covariates, in the user's units, of one posterior (then
    T below stands for nothing: a mean is a number) or for T releases.

    x: the point, [p]; line: draws of the value of the regression line there, [T, N] with N = chains times draws;
    sd: the residual standard deviation of the same draws, [T, N]; seed: of the draws `y`.
    """

    x: np.ndarray
    line: np.ndarray
    sd: np.ndarray
    seed: int = 0

    @classmethod
    def of(cls, statistic: ProductStatistic, theta: np.ndarray, sigma2: np.ndarray, x: Any, seed: int) -> PredictionAt:
        """From draws `regression_draws` gave, theta `[..., N, p + 1]` and sigma2 `[..., N]`, at x in one of the forms
        of `read_point`.

        Raises:
            InputError: as `read_point`.
        """
        point = read_point(x, statistic.features)
        return cls(point, theta[..., 0] + theta[..., 1:] @ point, np.sqrt(sigma2), seed)

    @cached_property
    def y(self) -> np.ndarray:
        """Draws of a fresh response, [T, N]."""
        return self.line + self.sd * np.random.default_rng(self.seed).standard_normal(self.line.shape)

    @property
    def mean(self) -> Any:
        """Predictive mean, which is that of the line, [T]."""
        return self.line.mean(-1)

    @property
    def predictive_sd(self) -> Any:
        """Standard deviation of a fresh response, [T]; the residual is integrated out, not drawn."""
        return np.sqrt(self.line.var(-1) + (self.sd**2).mean(-1))

    @no_type_check
    def interval(self, level: float, of: str = "y") -> np.ndarray:
        """Central interval, [T, 2], of a fresh response ("y") or of the line ("line").

        Raises:
            InputError: level outside (0, 1), or another `of`.
        """
        if isinstance(level, bool) or not isinstance(level, int | float | np.number) or not 0 < level < 1:
            raise InputError(f"level must lie between 0 and 1; got {level!r}")
        tail = (1.0 - float(level)) / 2
        return np.moveaxis(np.quantile(self._draws(of), [tail, 1.0 - tail], axis=-1), 0, -1)

    def cdf(self, value: Any, of: str = "y") -> Any:
        """Predictive probability of at most `value` (a number, or one for each release), [T]; for "y" the residual is
        integrated out, not drawn. InputError for another `of` than "y" or "line", or what is no number."""
        shape = self.line.shape[:-1]
        try:
            value = np.broadcast_to(np.asarray(value, np.float64), shape)[..., None]
        except (TypeError, ValueError):
            value = np.full((1,), np.nan)
        if np.isnan(value).any():
            each = f", or one for each of the {shape[0]} releases" if shape else ""
            raise InputError(f"value must be a number{each}")
        if of == "y":
            return ndtr((value - self.line) / self.sd).mean(-1)
        draws = self._draws(of)
        return (draws < value).mean(-1) / 2 + (draws <= value).mean(-1) / 2

    def _draws(self, of: str) -> np.ndarray:
        if of not in ("y", "line"):
            raise InputError(f"of must be 'y' (a fresh response) or 'line'; got {of!r}")
        return self.y if of == "y" else self.line
