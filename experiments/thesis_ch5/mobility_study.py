"""Posteriors of all cells in one call per method, and how they are scored."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from mobility_data import Config

import dpjax
from dpjax.calibration.scales import noise_scales
from dpjax.errors import ConvergenceWarning
from dpjax.inference.methods import METHODS
from dpjax.inference.posteriors import Posteriors
from dpjax.releases.guarantee import MomentsPrivacy
from dpjax.statistics.feature_moments import MOMENTS_SHARE
from dpjax.statistics.kinds import make_statistic

BOUNDS = {"parent_rank": (0.0, 1.0), "kid_rank": (0.0, 1.0)}
#: Methods whose releases also hold third and fourth moments of the covariate, for half of epsilon.
WITH_MOMENTS = ("noisy", "plug-in")
REFERENCE = "non-private"
DECILES = 10


def statistic(moments: bool = False):
    """Sums in units of [0, 1], clipped to it: exact joint L1 sensitivity 5 (docs/formulas.md#box-sensitivity)."""
    more: dict[str, Any] = {"moments": True} if moments else {}
    return make_statistic(
        "linear-regression", target="kid_rank", features=["parent_rank"], bounds=BOUNDS, scaling=None, **more
    )


def exact_sums(cells: list[dict[str, np.ndarray]], moments: bool = False) -> np.ndarray:
    """Sums of each cell, [G, D]."""
    return np.stack([statistic(moments).from_columns(cell) for cell in cells])


def releases(cells: list[dict[str, np.ndarray]], config: Config, moments: bool = False) -> list[dpjax.Release]:
    """A simulated release of every cell for every epsilon, epsilon by epsilon; the noise is seeded: no protection."""
    summed, sums = statistic(moments), exact_sums(cells, moments)
    rng = np.random.default_rng([config.seed, 2 + moments])
    made = []
    for epsilon in config.epsilon:
        scale = noise_scales(summed, "laplace", epsilon)
        for cell, exact in zip(cells, sums, strict=True):
            z = exact + rng.laplace(0.0, scale)
            made.append(
                dpjax.Release(
                    statistic=summed,
                    records=len(cell["kid_rank"]),
                    statistics=dict(zip(summed.names, z.tolist(), strict=True)),
                    mechanism="laplace",
                    noise_scale=dict(zip(summed.names, scale.tolist(), strict=True)),
                    privacy=guarantee(summed, epsilon),
                    simulated=True,
                )
            )
    return made


def guarantee(summed: Any, epsilon: float) -> dpjax.Privacy:
    """What such a release would promise if its noise were not seeded; moments get half of epsilon."""
    plain = ("replace-one", "l1", summed.base.sensitivity())
    if not summed.moments:
        return dpjax.Privacy(epsilon, 0.0, *plain)
    own = MomentsPrivacy(epsilon * MOMENTS_SHARE, summed.feature_moments.sensitivity())
    return dpjax.Privacy(epsilon, 0.0, *plain, moments=own)


def skipped(methods: list[str]) -> dict[str, str]:
    """Methods that this version does not have, and what to say about them."""
    return {m: f"skipped: this version has no method {m!r}" for m in methods if m not in METHODS}


def fit_all(
    cells: list[dict[str, np.ndarray]], config: Config, prior: dict[str, Any], said: Callable[[str], None]
) -> dict[str, Posteriors]:
    """Posteriors by method: `REFERENCE` of each cell, the others for every epsilon too; `said` hears of each."""
    options: dict[str, Any] = {"prior": prior, "chains": config.chains, "draws": config.draws, "seed": config.seed}
    plain = releases(cells, config)
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # reported in the table
        found[REFERENCE] = dpjax.fit_many(plain[: len(cells)], method=REFERENCE, exact=exact_sums(cells), **options)
        for method in config.methods:
            if method in METHODS:
                given = releases(cells, config, moments=True) if method in WITH_MOMENTS else plain
                found[method] = dpjax.fit_many(given, method=method, **options)
                said(f"{method}: {len(given)} regressions")
    return found


def deciles(values: np.ndarray) -> np.ndarray:
    """Decile of each value among all, 0 to 9."""
    rank = np.empty(len(values), int)
    rank[np.argsort(values, kind="stable")] = np.arange(len(values))
    return rank * DECILES // len(values)


def confusion(point: np.ndarray, reference: np.ndarray) -> dict[str, Any]:
    """Decile of the reference (rows) against decile of the point, counts; shares that Figure 5.16 is about."""
    true, found = deciles(reference), deciles(point)
    matrix = np.zeros((DECILES, DECILES), int)
    np.add.at(matrix, (true, found), 1)
    top, bottom = true == DECILES - 1, true == 0
    return {
        "matrix": matrix.tolist(),
        "diagonal": float((true == found).mean()),
        "within_one": float((abs(true - found) <= 1).mean()),
        "top_kept": float((found[top] == DECILES - 1).mean()),
        "bottom_kept": float((found[bottom] == 0).mean()),
        "top_within_two": float((found[top] >= DECILES - 2).mean()),
        "bottom_within_two": float((found[bottom] <= 1).mean()),
    }


def score_points(point: np.ndarray, reference: np.ndarray, size: np.ndarray) -> dict[str, Any]:
    """Point estimates against the non-private ones (Figures 5.14 to 5.16): error, error by tercile of cell size and its
    slope on a log-log scale, deciles."""
    error = abs(point - reference)
    terciles = np.array_split(np.argsort(size, kind="stable"), 3)
    return {
        "mae": float(error.mean()),
        "mae_by_size": [float(error[part].mean()) for part in terciles],
        "slope_log_error_log_size": float(np.polyfit(np.log(size), np.log(np.maximum(error, 1e-12)), 1)[0]),
        "deciles": confusion(point, reference),
    }


def inside(interval: np.ndarray, value: np.ndarray) -> float:
    """Share of values [G] inside their intervals [G, 2]."""
    return float(((interval[:, 0] <= value) & (value <= interval[:, 1])).mean())


def records_inside(interval: np.ndarray, cells: list[dict[str, np.ndarray]], at: float) -> float:
    """Share of all records inside their cell's interval, each moved along the cell's least squares line to `at`."""
    found = total = 0
    for (low, high), cell in zip(interval, cells, strict=True):
        x, y = cell["parent_rank"], cell["kid_rank"]
        slope = np.polyfit(x, y, 1)[0]
        moved = y + slope * (at - x)
        found += int(((low <= moved) & (moved <= high)).sum())
        total += len(y)
    return found / total


def score(
    posteriors: dict[str, Posteriors], cells: list[dict[str, np.ndarray]], config: Config
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Scores by method and epsilon, and what the figures and the list of cells need."""
    count, size = len(cells), np.array([len(cell["kid_rank"]) for cell in cells])
    predicted = {m: p.predict_at(config.at, seed=config.seed) for m, p in posteriors.items()}
    own = predicted[REFERENCE]
    reference = own.mean
    result: dict[str, Any] = {
        REFERENCE: {
            "seconds": posteriors[REFERENCE].seconds,
            "records_inside": {f"{v:g}": records_inside(own.interval(v), cells, config.at) for v in config.levels},
            "width": {f"{v:g}": float(np.ptp(own.interval(v), axis=1).mean()) for v in config.levels},
            "line_width": {f"{v:g}": float(np.ptp(own.interval(v, "line"), axis=1).mean()) for v in config.levels},
        }
    }
    kept: dict[str, Any] = {
        "size": size,
        "reference": reference,
        "reference_interval": {v: own.interval(v) for v in config.levels},
        "points": {},
        "intervals": {},
        "line_intervals": {},
    }
    for method, at in predicted.items():
        if method == REFERENCE:
            continue
        fitted, rows = posteriors[method], {}
        y, line = ({v: at.interval(v, of) for v in config.levels} for of in ("y", "line"))
        for k, epsilon in enumerate(config.epsilon):
            part = slice(k * count, (k + 1) * count)
            rows[f"{epsilon:g}"] = {
                "coverage": {f"{v:g}": inside(y[v][part], reference) for v in config.levels},
                "line_coverage": {f"{v:g}": inside(line[v][part], reference) for v in config.levels},
                "width": {f"{v:g}": float(np.ptp(y[v][part], axis=1).mean()) for v in config.levels},
                "line_width": {f"{v:g}": float(np.ptp(line[v][part], axis=1).mean()) for v in config.levels},
                "records_inside": {f"{v:g}": records_inside(y[v][part], cells, config.at) for v in config.levels},
                **score_points(at.mean[part], reference, size),
                "not_converged": int((~fitted.converged[part]).sum()),
            }
        result[method] = {
            "epsilon": rows,
            "regressions": len(fitted),
            "seconds": fitted.seconds,
            "compile_seconds": fitted.run.compile_seconds,
            "reruns": fitted.run.reruns,
        }
        kept["points"][method] = at.mean.reshape(-1, count)
        kept["intervals"][method] = {v: y[v].reshape(-1, count, 2) for v in config.levels}
        kept["line_intervals"][method] = {v: line[v].reshape(-1, count, 2) for v in config.levels}
    return result, kept
