"""Prediction from a regression's posterior: y at new covariates, and the line there, in the user's units.

y = theta_0 + x'theta + sqrt(sigma2) e with e ~ N(0, 1), one e for every draw and row (Bernstein and Sheldon 2019,
section 2: the model of the records; the posterior accounts for the noise of the release, so nothing of it is left to
add here). NumPy only: a prediction needs the draws and neither the release nor JAX.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dpjax._base import files
from dpjax._base.signatures import no_type_check
from dpjax._base.text import show_number
from dpjax.inference.intervals import LEVEL, Intervals, check_levels, ends_of_intervals, per_cent
from dpjax.statistics.products import ProductStatistic

#: With fewer draws than this beyond each end of an interval its ends are rough, and a note says so.
TAIL_DRAWS = 10


@runtime_checkable
class Predictive(Protocol):
    """What a `Prediction` needs of what it is made from, a `dpjax.inference.predictive.RegressionPosterior`."""

    @property
    def sigma2(self) -> np.ndarray: ...

    @property
    def statistic(self) -> ProductStatistic: ...

    @property
    def method(self) -> str: ...

    @property
    def converged(self) -> bool: ...

    def warnings(self) -> list[str]: ...

    def blocks(self, x: np.ndarray, seed: int) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]: ...


@dataclass(frozen=True, eq=False, kw_only=True)
class Prediction:
    """Posterior predictive distribution of the target at R new rows, in the user's units and in the rows' order.

    posterior: what it was made from.
    x: [R, p] the rows' features.
    seed: of the residuals.
    mean: [R] of y, which is also the mean of the line; sd: [R] of y; line_sd: [R] of the line.
    quantiles: `Intervals` by level.
    """

    posterior: Predictive
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

    @no_type_check
    def intervals(self, level: float = LEVEL) -> Intervals:
        """Central intervals of a level, which need not be among those asked for before (then it takes another pass).

        Raises:
            InputError: the level is not inside (0, 1).
        """
        (level,) = check_levels([level])
        if level in self.quantiles:
            return self.quantiles[level]
        ends = np.empty((1, 4, len(self.x)))
        for rows, line, y in self.posterior.blocks(self.x, self.seed):
            ends[:, :, rows] = ends_of_intervals(line, y, (level,))
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
        longest = statistic.norms["features"] if statistic.norms else np.inf
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
                f"the ends of the {per_cent(max(tail))}% interval rest on fewer than {TAIL_DRAWS} draws beyond each: "
                "fit with more draws (--draws)"
            )
        if self._prefix:
            found.append(f'a feature is named like a column of the results: these begin with "{self._prefix}"')
        return found

    def warnings(self) -> list[str]:
        """What says that the numbers are not to be trusted yet; empty when all is well."""
        return self.posterior.warnings()

    def table(self, rows: int = 10) -> str:
        """Readable table of the first rows, and the notes."""
        columns = self.columns()
        body = [[show_number(float(values[i])) for values in columns.values()] for i in range(min(rows, len(self.x)))]
        widths = [max(map(len, cells)) for cells in zip(columns, *body, strict=True)]
        statistic, count = self.posterior.statistic, len(self.x)
        levels = ", ".join(f"{per_cent(level)}%" for level in self.quantiles)
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

        return files.write_with(path, write, force)

    def _results(self) -> dict[str, np.ndarray]:
        found = {"mean": self.mean, "sd": self.sd}
        for level, ends in self.quantiles.items():
            found |= {f"{name}_{per_cent(level)}": values for name, values in ends._asdict().items()}
        return found

    @property
    def _prefix(self) -> str:
        """Of the results' columns, so that none is named as a feature is."""
        prefix, names = "", (*self._results(), "line_sd")
        while {prefix + name for name in names} & set(self.posterior.statistic.features):
            prefix += "predicted_"
        return prefix
