"""The predictive distribution of a regression's posterior: draws of the target at rows of features."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpjax._base.checks import shown
from dpjax._base.signatures import no_type_check
from dpjax.errors import ConvergenceWarning, InputError
from dpjax.inference.fitted import Fitted
from dpjax.inference.intervals import LEVEL, Intervals, check_levels, ends_of_intervals
from dpjax.inference.prediction import Prediction
from dpjax.inference.prediction_at import PredictionAt, regression_draws
from dpjax.inference.prediction_rows import Point, Rows, read_rows
from dpjax.statistics.products import ProductStatistic

#: Numbers in one array of a block of rows: 2 MB, so that a block stays in a core's cache.
BLOCK_NUMBERS = 2**18


@dataclass(frozen=True, eq=False, kw_only=True)
class RegressionPosterior:
    """What a prediction needs of a regression's posterior.

    theta: [C, S, p + 1], intercept first (0 in a regression without one); sigma2: [C, S]; both in the user's units.
    statistic: features, target and bounds.
    method: how the draws were made; converged: whether they could be trusted when they were made.

    Raises:
        InputError: arrays of other shapes, no draws, or draws that are no numbers.
    """

    theta: np.ndarray
    sigma2: np.ndarray
    statistic: ProductStatistic
    method: str
    converged: bool

    def __post_init__(self) -> None:
        p = self.statistic.p
        if self.theta.ndim != 3 or self.theta.shape[2] != p + 1 or self.sigma2.shape != self.theta.shape[:2]:
            raise InputError(
                f"theta [C, S, {p + 1}] and sigma2 [C, S] are needed, got {self.theta.shape} and {self.sigma2.shape}"
            )
        if self.sigma2.size == 0:
            raise InputError("the posterior has no draws")
        if not (np.isfinite(self.theta).all() and np.isfinite(self.sigma2).all() and (self.sigma2 >= 0).all()):
            raise InputError("the posterior has draws of theta or sigma2 that are not finite, or negative variances")

    @classmethod
    def of(cls, posterior: Fitted) -> RegressionPosterior:
        """From the result of `dpjax.fit`.

        Raises:
            InputError: the posterior of another model.
        """
        theta, sigma2 = regression_draws(posterior.statistic, posterior.names, posterior.user_draws, posterior.method)
        return cls(
            theta=theta,
            sigma2=sigma2,
            statistic=posterior.statistic,  # type: ignore[arg-type]  # a regression's, or the line above refuses
            method=posterior.method,
            converged=not posterior.warnings(),
        )

    @no_type_check
    def predict(self, new: Rows, *, level: float | Sequence[float] = LEVEL, seed: int = 0) -> Prediction:
        """Posterior predictive mean, sd and central intervals of y at each new row, and intervals of the line.

        The rows are worked through in blocks: memory grows with rows plus draws and not with their product. A row's
        draws depend on the seed and the row's number alone, not on the rows after it.

        Args:
            new: R rows with a column for every feature, in the user's units: path of a CSV file, a mapping of columns
                (or of numbers: one row), a structured array or a data frame. Columns are found by name, others are
                not looked at. Of one feature also a number or a vector of numbers.
            level: probability of the central intervals, inside (0, 1); or several.
            seed: of the residuals e, a whole number from 0 to 2^31 - 1.

        Returns:
            `Prediction`. A `ConvergenceWarning` is issued when the posterior had not converged.

        Raises:
            InputError: a bad level or seed; a column that is missing or holds anything but finite numbers; no rows;
                values so large that y overflows.
        """
        levels, seed = check_levels(level), _check_seed(seed)
        x = read_rows(new, self.statistic.features)
        mean, sd, line_sd = np.empty((3, len(x)))
        ends = np.empty((len(levels), 4, len(x)))
        residual = self.sigma2.mean()
        with np.errstate(over="ignore", invalid="ignore"):
            for rows, line, y in self.blocks(x, seed):
                mean[rows], line_sd[rows] = line.mean(axis=1), line.std(axis=1)
                ends[:, :, rows] = ends_of_intervals(line, y, levels)
            # the average over e in closed form: less Monte Carlo error than the moments of the draws of y
            sd[:] = np.sqrt(line_sd**2 + residual)
        if not (np.isfinite(mean).all() and np.isfinite(sd).all() and np.isfinite(ends).all()):
            raise InputError("new rows: values are so large that the predictions are not finite numbers")
        made = Prediction(
            posterior=self,
            x=x,
            seed=seed,
            mean=mean,
            sd=sd,
            line_sd=line_sd,
            quantiles={q: Intervals(*four) for q, four in zip(levels, ends, strict=True)},
        )
        for sentence in made.warnings():
            warnings.warn(sentence, ConvergenceWarning, stacklevel=2)
        return made

    @no_type_check
    def predict_at(self, x: Point, *, seed: int = 0) -> PredictionAt:
        """Predictive distribution of y at one point, as of `Posteriors.predict_at`, with numbers in the
        place of vectors over releases.

        Args:
            x: a number for one feature, a sequence of p numbers in the order of the features, or a mapping from every
                feature's name.
            seed: of the draws of fresh responses.

        Returns:
            `PredictionAt`. A `ConvergenceWarning` is issued when the posterior had not converged.

        Raises:
            InputError: wrong features, wrong number of them, or not finite.
        """
        theta, sigma2 = self.theta.reshape(-1, self.theta.shape[2]), self.sigma2.ravel()
        made = PredictionAt.of(self.statistic, theta, sigma2, x, _check_seed(seed))
        for sentence in self.warnings():
            warnings.warn(sentence, ConvergenceWarning, stacklevel=2)
        return made

    def warnings(self) -> list[str]:
        """What says that predictions are not to be trusted yet; empty when all is well."""
        if self.converged:
            return []
        return [
            "the chains of this posterior had not converged, so its predictions are not to be trusted yet: fit with "
            "more draws (--draws) and more chains (--chains)."
        ]

    def blocks(self, x: np.ndarray, seed: int) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Blocks of rows with their draws, for work that goes over all of them once.

        Args:
            x: [R, p] in the user's units.
            seed: of the residuals.

        Yields:
            The block's rows as a slice; line and y, [rows of the block, C * S], chains one after another. Both arrays
            may be overwritten.
        """
        theta = self.theta.reshape(-1, self.theta.shape[2]).T.copy()  # [p + 1, C * S]
        sigma = np.sqrt(self.sigma2).ravel()
        size = max(1, BLOCK_NUMBERS // len(sigma))
        for block, first in enumerate(range(0, len(x), size)):
            rows = slice(first, min(first + size, len(x)))
            line = np.repeat(theta[:1], rows.stop - first, axis=0)
            for column, slope in zip(x[rows].T, theta[1:], strict=True):
                line += np.multiply.outer(column, slope)  # and no BLAS, whose sums depend on the number of rows
            rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(block,)))
            y = rng.standard_normal(line.shape)
            y *= sigma
            y += line
            yield rows, line, y


def _check_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**31:
        raise InputError(f"seed must be a whole number from 0 to {2**31 - 1}; got {shown(seed)}")
    return int(seed)
