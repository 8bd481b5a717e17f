"""Prediction from a regression's posterior: y at new covariates, and the line there, in the user's units.

y = theta_0 + x'theta + sqrt(sigma2) e with e ~ N(0, 1), one e for every draw and row (S0 section 2: the model of the
records; the posterior accounts for the noise of the release, so nothing of it is left to add here). NumPy only: a
prediction needs the draws and neither the release nor JAX.
"""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpjax import _files
from dpjax._checks import check_number, shown
from dpjax._table import read_columns
from dpjax.errors import ConvergenceWarning, InputError
from dpjax.origin_statistic import OriginStatistic
from dpjax.posterior import Posterior, _number
from dpjax.statistics import RegressionStatistic

#: Numbers in one array of a block of rows: 2 MB, so that a block stays in a core's cache.
BLOCK_NUMBERS = 2**18
#: With fewer draws than this beyond each end of an interval its ends are rough, and a note says so.
TAIL_DRAWS = 10
LEVEL = 0.9


class Intervals(NamedTuple):
    """Central intervals of one level: of y at each row, and of the line (the mean of y at the row's covariates).

    low, high, line_low, line_high: [R] in the target's units.
    """

    low: np.ndarray
    high: np.ndarray
    line_low: np.ndarray
    line_high: np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class RegressionPosterior:
    """What a prediction needs of a regression's posterior; `load_posterior` reads it from a file.

    theta: [C, S, p + 1], intercept first (0 in a regression without one); sigma2: [C, S]; both in the user's units.
    statistic: features, target and bounds.
    method: how the draws were made; converged: whether they could be trusted when they were made.

    Raises:
        InputError: arrays of other shapes, no draws, or draws that are no numbers.
    """

    theta: np.ndarray
    sigma2: np.ndarray
    statistic: RegressionStatistic
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
    def of(cls, posterior: Posterior) -> RegressionPosterior:
        """From the result of `dpjax.fit`.

        Raises:
            InputError: the posterior of another model.
        """
        statistic = posterior.statistic
        if not isinstance(statistic, RegressionStatistic):
            raise InputError(other_model(posterior.kind))
        place = {name: k for k, name in enumerate(posterior.names)}
        if "sigma2" not in place:
            raise InputError(f"method {posterior.method!r} has no draws of sigma2, which predictions need")
        first = 0 if statistic.intercept else 1
        theta = posterior.user_draws[..., [place[f"theta[{i}]"] for i in range(first, statistic.p + 1)]]
        return cls(
            theta=with_intercept(theta, statistic.p),
            sigma2=posterior.user_draws[..., place["sigma2"]],
            statistic=statistic,
            method=posterior.method,
            converged=not posterior.warnings(),
        )

    def predict(self, new: Any, *, level: float | Sequence[float] | Any = LEVEL, seed: int | Any = 0) -> Prediction:
        """Posterior predictive mean, sd and central intervals of y at each new row, and intervals of the line.

        The rows are worked through in blocks: memory grows with rows plus draws and not with their product. A row's
        draws depend on the seed and the row's number alone, not on the rows after it.

        Args:
            new: R rows with a column for every feature, in the user's units: path of a CSV file, a mapping of columns,
                a structured array or a data frame. Columns are found by name, others are not looked at.
            level: probability of the central intervals, inside (0, 1); or several.
            seed: of the residuals e, a whole number from 0 to 2^31 - 1.

        Returns:
            `Prediction`. A `ConvergenceWarning` is issued when the posterior had not converged.

        Raises:
            InputError: a bad level or seed; a column that is missing or holds anything but finite numbers; no rows;
                values so large that y overflows.
        """
        levels, seed = _check_levels(level), _check_seed(seed)
        try:
            columns = read_columns(new, self.statistic.features)
        except InputError as error:
            raise InputError(f"new rows: {error}") from None
        x = np.stack([columns[name] for name in self.statistic.features], axis=1)
        mean, sd, line_sd = np.empty((3, len(x)))
        ends = np.empty((len(levels), 4, len(x)))
        residual = self.sigma2.mean()
        with np.errstate(over="ignore", invalid="ignore"):
            for rows, line, y in self.blocks(x, seed):
                mean[rows], line_sd[rows] = line.mean(axis=1), line.std(axis=1)
                ends[:, :, rows] = _ends(line, y, levels)
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Prediction:
    """Posterior predictive distribution of the target at R new rows, in the user's units and in the rows' order.

    posterior: what it was made from.
    x: [R, p] the rows' features.
    seed: of the residuals.
    mean: [R] of y, which is also the mean of the line; sd: [R] of y; line_sd: [R] of the line.
    quantiles: `Intervals` by level.
    """

    posterior: RegressionPosterior
    x: np.ndarray
    seed: int
    mean: np.ndarray
    sd: np.ndarray
    line_sd: np.ndarray
    quantiles: Mapping[float, Intervals]

    @cached_property
    def draws(self) -> np.ndarray:
        """Draws of y, [C * S, R], chains one after another; made when asked for, of 8 bytes each. The intervals are
        quantiles of these same draws."""
        found = np.empty((self.posterior.sigma2.size, len(self.x)))
        for rows, _, y in self.posterior.blocks(self.x, self.seed):
            found[:, rows] = y.T
        return found

    def intervals(self, level: float | Any = LEVEL) -> Intervals:
        """Central intervals of a level, which need not be among those asked for before (then it takes another pass).

        Raises:
            InputError: the level is not inside (0, 1).
        """
        (level,) = _check_levels([level])
        if level in self.quantiles:
            return self.quantiles[level]
        ends = np.empty((1, 4, len(self.x)))
        for rows, line, y in self.posterior.blocks(self.x, self.seed):
            ends[:, :, rows] = _ends(line, y, (level,))
        return Intervals(*ends[0])

    def columns(self) -> dict[str, np.ndarray]:
        """What `save` writes, each [R]: the features; mean and sd; and for every level low_L, high_L of y and
        line_low_L, line_high_L of the line, L in per cent. Where a feature has one of these names, all of them begin
        with "predicted_" (and `notes` says so)."""
        features = self.posterior.statistic.features
        found = dict(zip(features, self.x.T, strict=True))
        return found | {self._prefix + name: values for name, values in self._results().items()}

    def notes(self) -> list[str]:
        """Sentences about what a reader should know; none holds a value of a row."""
        found = []
        statistic = self.posterior.statistic
        longest = statistic.norms["features"] if isinstance(statistic, OriginStatistic) and statistic.norms else np.inf
        if (np.linalg.norm(self.x, axis=1) > longest).any():
            found.append(
                f"rows are longer than {longest:g}: records were shortened to that, so the line is extrapolated"
            )
        if statistic.bounds is not None:
            outside = [
                name
                for name, values in zip(statistic.features, self.x.T, strict=True)
                if ((values < statistic.bounds[name][0]) | (values > statistic.bounds[name][1])).any()
            ]
            if outside:
                found.append(
                    f"rows lie outside of the release's bounds of {', '.join(outside)}: records were clipped there, so "
                    "the line is extrapolated"
                )
        tail = [level for level in self.quantiles if self.posterior.sigma2.size * (1 - level) / 2 < TAIL_DRAWS]
        if tail:
            found.append(
                f"the ends of the {_per_cent(max(tail))}% interval rest on fewer than {TAIL_DRAWS} draws beyond each: "
                "fit with more draws (--draws)"
            )
        if self._prefix:
            found.append(f'a feature is named like a column of the results: these begin with "{self._prefix}"')
        return found

    def warnings(self) -> list[str]:
        """What says that the numbers are not to be trusted yet; empty when all is well."""
        if self.posterior.converged:
            return []
        return [
            "the chains of this posterior had not converged, so its predictions are not to be trusted yet: fit with "
            "more draws (--draws) and more chains (--chains)."
        ]

    def table(self, rows: int = 10) -> str:
        """Readable table of the first rows, and the notes."""
        columns = self.columns()
        body = [[_number(float(values[i])) for values in columns.values()] for i in range(min(rows, len(self.x)))]
        widths = [max(map(len, cells)) for cells in zip(columns, *body, strict=True)]
        statistic, count = self.posterior.statistic, len(self.x)
        levels = ", ".join(f"{_per_cent(level)}%" for level in self.quantiles)
        lines = [
            f"{self.posterior.method}: {statistic.target} predicted from {', '.join(statistic.features)}, {count} "
            f"row{'s' * (count != 1)}, {self.posterior.sigma2.size} draws, user's units, {levels} interval"
            f"{'s' * (len(self.quantiles) > 1)}",
            "  ".join(name.rjust(width) for name, width in zip(columns, widths, strict=True)),
            "-" * (sum(widths) + 2 * (len(widths) - 1)),
            *("  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)) for cells in body),
        ]
        if count > len(body):
            lines.append(f"... and {count - len(body)} more")
        return "\n".join(lines + self.notes())

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON: "columns" holds what the CSV file does, and the line's sd."""
        statistic = self.posterior.statistic
        return {
            "model": statistic.kind,
            "features": list(statistic.features),
            "target": statistic.target,
            "method": self.posterior.method,
            "converged": self.posterior.converged,
            "draws": self.posterior.sigma2.size,
            "seed": self.seed,
            "levels": list(self.quantiles),
            "rows": len(self.x),
            "columns": {**self.columns(), f"{self._prefix}line_sd": self.line_sd},
            "notes": self.notes(),
            "warnings": self.warnings(),
        }

    def save(self, path: str | os.PathLike, force: bool = False) -> Path:
        """Write `columns` as CSV, every number so that it reads back as the same float64; never overwrites without
        `force`.

        Raises:
            InputError: the file exists, or its folder does not.
        """
        columns = self.columns()

        def write(temporary: Path) -> None:
            with open(temporary, "w", encoding="utf-8", newline="") as file:
                lines = csv.writer(file, lineterminator="\n")
                lines.writerow(columns)
                for first in range(0, len(self.x), 10_000):
                    part = (values[first : first + 10_000].tolist() for values in columns.values())
                    lines.writerows(zip(*part, strict=True))

        return _files.write_with(path, write, force)

    def _results(self) -> dict[str, np.ndarray]:
        found = {"mean": self.mean, "sd": self.sd}
        for level, ends in self.quantiles.items():
            found |= {f"{name}_{_per_cent(level)}": values for name, values in ends._asdict().items()}
        return found

    @property
    def _prefix(self) -> str:
        """Of the results' columns, so that none is named as a feature is."""
        prefix, names = "", (*self._results(), "line_sd")
        while {prefix + name for name in names} & set(self.posterior.statistic.features):
            prefix += "predicted_"
        return prefix


def with_intercept(theta: np.ndarray, p: int) -> np.ndarray:
    """theta `[C, S, p + 1]`, with 0 for an intercept that is not there."""
    return theta if theta.shape[2] == p + 1 else np.concatenate([np.zeros((*theta.shape[:2], 1)), theta], axis=2)


def other_model(kind: str) -> str:
    return f"predictions are for {RegressionStatistic.kind}; this posterior is of {kind}"


def _ends(line: np.ndarray, y: np.ndarray, levels: Sequence[float]) -> np.ndarray:
    """Ends of central intervals, [levels, 4, rows] in the order of `Intervals`; sorts line and y in place."""
    y.sort(axis=1)
    line.sort(axis=1)
    tails = [((1 - level) / 2, (1 + level) / 2) for level in levels]
    return np.array([[_sorted_quantile(values, q) for values in (y, line) for q in tail] for tail in tails])


def _sorted_quantile(values: np.ndarray, q: float) -> np.ndarray:
    """NumPy's default quantile of rows that are sorted: a whole sort is several times faster than its partitions."""
    place = q * (values.shape[1] - 1)
    below = int(place)
    above = min(below + 1, values.shape[1] - 1)
    return values[:, below] + (place - below) * (values[:, above] - values[:, below])


def _check_levels(level: Any) -> tuple[float, ...]:
    several = list(level) if isinstance(level, Sequence | np.ndarray) and not isinstance(level, str) else [level]
    if not several:
        raise InputError("level must be a number inside (0, 1), or several; got none")
    levels = tuple(check_number(one, "level must be a number inside (0, 1)") for one in several)
    for one in levels:
        if not 0 < one < 1:
            raise InputError(f"level must be a number inside (0, 1), got {shown(one)}")
    if len(set(levels)) < len(levels):
        raise InputError(f"level names a value twice: {shown(list(levels))}")
    return levels


def _check_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**31:
        raise InputError(f"seed must be a whole number from 0 to {2**31 - 1}; got {shown(seed)}")
    return int(seed)


def _per_cent(level: float) -> str:
    """.9 -> "90", .975 -> "97.5": different levels have different texts."""
    return format((Decimal(repr(level)) * 100).normalize(), "f")
