"""A table cut by a third variable: hourly bike rentals by season, python seasons.py [--output FILE]

Rentals on temperature and humidity, four releases with epsilon = 1 each (Laplace noise from a seeded generator: a
study, not a release), fitted with the law of the features shared by the parties and with laws of their own; beside
them least squares of the whole table, with season dummies and by season, the posteriors of every release by itself,
and the same for a table cut at random. Needs bike_sharing_hour.csv in the folder that DPJAX_DATA names. Seconds are
those of the compiled call; compilation is stated apart.
"""

from __future__ import annotations

import argparse
import csv
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from _common import find_table

import dpjax
from dpjax.errors import ConvergenceWarning
from dpjax.releases.guarantee import Privacy
from dpjax.releases.release import Release
from dpjax.statistics.base import SCALING
from dpjax.statistics.regression import RegressionStatistic

ORIGIN = "it is the table of hours of UCI's bike sharing data"
BOUNDS = {"temp": (0, 1), "hum": (0, 1), "cnt": (0, 1000)}
STATISTIC = RegressionStatistic(("temp", "hum"), "cnt", BOUNDS, SCALING)


def read() -> dict[str, np.ndarray]:
    with open(find_table("bike_sharing_hour.csv", ORIGIN), newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([float(row[name]) for row in rows]) for name in (*BOUNDS, "season")}


def released(table: dict[str, np.ndarray], cut: np.ndarray, epsilon: float, seed: int) -> list[Release]:
    """One simulated release for every value of `cut`."""
    rng = np.random.default_rng(seed)
    scale = STATISTIC.sensitivity() / epsilon
    out = []
    for value in np.unique(cut):
        z = STATISTIC.from_columns({name: table[name][cut == value] for name in BOUNDS})
        z = z + scale * rng.laplace(size=z.shape)
        entries = dict(zip(STATISTIC.names, z.tolist(), strict=True))
        privacy = Privacy(epsilon, 0.0, "replace-one", "l1", STATISTIC.sensitivity())
        out.append(Release(STATISTIC, int((cut == value).sum()), entries, "laplace", scale, privacy, simulated=True))
    return out


def least_squares(table: dict[str, np.ndarray], rows: Any = slice(None), dummies: bool = False) -> dict[str, Any]:
    """Coefficients, standard errors and residual variance; with dummies the mean of the intercepts over records."""
    x = np.stack([table["temp"], table["hum"]], 1)[rows]
    y, season = table["cnt"][rows], table["season"][rows]
    first = np.stack([season == value for value in np.unique(season)], 1) if dummies else np.ones((len(y), 1))
    design = np.concatenate([first.astype(float), x], 1)
    found = np.linalg.lstsq(design, y, rcond=None)[0]
    rest = y - design @ found
    variance = float(rest @ rest / (len(y) - design.shape[1]))
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * variance)
    intercept = float(first.mean(0) @ found[:-2])
    return {
        "records": len(y), "coefficients": [intercept, *found[-2:].tolist()], "residual_variance": variance,
        "standard_errors": errors[-2:].tolist(),
    }  # fmt: skip


def fitted(releases: list[Release], seed: int, **options: Any) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is in the result
        posterior = dpjax.fit(releases, seed=seed, **options)
    rows = list(posterior.summary()["parameters"].values())[:4]
    return {
        "seconds": posterior.seconds, "compile_seconds": posterior.compile_seconds,
        "rerun": posterior.rerun, "rerun_seconds": posterior.rerun_seconds,
        "rhat": float(posterior.diagnostics.rhat.max()), "ess": float(posterior.diagnostics.ess_bulk.min()),
        "mean": [row["mean"] for row in rows], "sd": [row["sd"] for row in rows],
        "agreement": dict(posterior.agreement), "doubts": list(posterior.doubts),
        "converged": not posterior.warnings(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    table = read()
    cuts = {
        "season": table["season"],
        "random": np.random.default_rng(arguments.seed).integers(1, 5, len(table["cnt"])),
    }
    result: dict[str, Any] = {
        "epsilon": arguments.epsilon, "seed": arguments.seed, "parameters": ["intercept", "temp", "hum", "sigma2"],
        "least_squares": {
            "whole": least_squares(table), "season dummies": least_squares(table, dummies=True),
            **{f"season {value:g}": least_squares(table, table["season"] == value) for value in (1, 2, 3, 4)},
        },
        "fits": {},
    }  # fmt: skip
    for name, cut in cuts.items():
        releases = released(table, cut, arguments.epsilon, arguments.seed)
        for law in ("shared", "own"):
            result["fits"][f"{name}, {law}"] = fitted(releases, arguments.seed, parties=law)
            print(name, law, json.dumps(result["fits"][f"{name}, {law}"]), flush=True)
        if name == "season":
            for number, one in enumerate(releases, start=1):
                result["fits"][f"season {number} by itself"] = fitted([one], arguments.seed)
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
