"""How often the default posterior's 90% interval holds the answer of the table itself, over real tables.

    DPJAX_DATA=FOLDER python coverage.py [--releases 100] [--output FILE]

Six tables, two features each, with bounds as a careful person states them; Laplace noise on the sums at three epsilons,
many times over with seeded noise (a simulation: tables and answers are public). The answer is that of the clipped
table: least squares, residual variance, means and covariances. `weak` is the default prior of `fit`, `conjugate` the
default of the methods that need a conjugate one.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
from pathlib import Path

from dpjax._base.runtime import prepare_jax

prepare_jax()  # as the command line does

import jax
import numpy as np
from _common import find_table

from dpjax.calibration.scales import noise_scales
from dpjax.inference.run_method import run_method
from dpjax.models import model_for
from dpjax.models.regression.problems import make_problems
from dpjax.runner.tables import builtin_table
from dpjax.statistics.kinds import make_statistic

UCI = "the original is at the UCI Machine Learning Repository"
#: File, features, target, bounds in that order.
TABLES = {
    "power plant": ("power_plant.csv", ("AT", "V"), "PE", ((-10, 50), (20, 90), (400, 520))),
    "songs-like": (None, ("a", "b"), "y", ((-1, 1), (-1, 1), (-1, 1))),
    "air quality": ("air_quality_alparslan.csv", ("T", "RH"), "AH", ((-20, 50), (0, 100), (0, 3))),
    "wine": ("wine_quality_red.csv", ("alcohol", "volatile acidity"), "quality", ((8, 16), (0, 2), (0, 10))),
    "diabetes": (None, ("bmi", "bp"), "progression", ((15, 45), (50, 150), (0, 350))),
    "bike sharing": ("bike_sharing_hour.csv", ("temp", "hum"), "cnt", ((0, 1), (0, 1), (0, 1000))),
}
EPSILONS = (0.3, 1.0, 10.0)


def songs_like() -> dict[str, np.ndarray]:
    """6,719 records whose features have standard deviations of .04 and .05 of half their range, far off its middle."""
    rng = np.random.default_rng(5)
    a, b = 0.55 + 0.04 * rng.normal(size=6719), -0.3 + 0.05 * rng.normal(size=6719)
    return {"a": a, "b": b, "y": 0.2 + 1.5 * (a - 0.55) - (b + 0.3) + 0.35 * rng.normal(size=6719)}


def columns(name: str) -> dict[str, np.ndarray]:
    """The three columns of a table, records with missing values (-200) left out."""
    file, features, target, _ = TABLES[name]
    if file is None:
        found = builtin_table() if name == "diabetes" else songs_like()
        return {key: np.asarray(found[key], float) for key in (*features, target)}
    with open(find_table(file, UCI)) as lines:
        rows = list(csv.DictReader(lines))
    # columns of the wine table have their words joined by underscores in some copies
    spelt = {key.replace("_", " "): key for key in rows[0]}
    values = np.array([[float(row[spelt[key.replace("_", " ")]]) for key in (*features, target)] for row in rows])
    values = values[(values > -200).all(1)]
    return dict(zip((*features, target), values.T, strict=True))


def answer(scaled: np.ndarray) -> np.ndarray:
    """theta, sigma2, means and covariances (lower triangle) of records `[n, 3]`."""
    x, y = scaled[:, :2], scaled[:, 2]
    design = np.column_stack([np.ones(len(x)), x])
    theta = np.linalg.lstsq(design, y, rcond=None)[0]
    c = np.cov(x.T, bias=True)
    return np.concatenate([theta, [((y - design @ theta) ** 2).mean()], x.mean(0), [c[0, 0], c[1, 0], c[1, 1]]])


def measure(releases: int, chains: int, draws: int) -> dict:
    """Coverage by prior, table and epsilon."""
    rng = np.random.default_rng(0)
    z, n, scale, truth, cells, facts = [], [], [], [], [], {}
    for name, (_, features, target, bounds) in TABLES.items():
        table = columns(name)
        named = dict(zip((*features, target), bounds, strict=True))
        statistic = make_statistic("linear-regression", features=features, target=target, bounds=named)
        sums, count = statistic.from_columns(table), len(table[target])
        scaled = [2.0 * (np.clip(table[key], *named[key]) - lo) / (hi - lo) - 1.0 for key, (lo, hi) in named.items()]
        right = answer(np.stack(scaled, 1))
        facts[name] = {"records": count, "answer": right.tolist()}
        for epsilon in EPSILONS:
            b = noise_scales(statistic, "laplace", epsilon)
            z.append(sums + b * rng.laplace(size=(releases, len(b))))
            n.append(np.full(releases, float(count)))
            scale.append(np.broadcast_to(b, z[-1].shape))
            truth.append(np.broadcast_to(right, (releases, len(right))))
            cells.append((name, epsilon))
    z, n, scale, right = (np.concatenate(x) for x in (z, n, scale, truth))
    out: dict = {"tables": facts, "releases": releases, "chains": chains, "draws": draws, "priors": {}}
    for prior, default in (("weak", "fit"), ("conjugate", "conjugate")):
        problems = make_problems(z, n, scale, model_for(statistic, None, default), "laplace", statistic=statistic)
        run = run_method("collapsed", problems, seed=1, chains=chains, draws=draws)
        low, high = np.quantile(run.draws.reshape(len(z), -1, len(run.names)), [0.05, 0.95], axis=1)
        held = (low <= right) & (right <= high)
        rows = []
        for i, (name, epsilon) in enumerate(cells):
            part = slice(i * releases, (i + 1) * releases)
            rows.append(
                {
                    "table": name,
                    "epsilon": epsilon,
                    "coverage": dict(zip(run.names, held[part].mean(0).round(4).tolist(), strict=True)),
                    "median_width": dict(
                        zip(run.names, np.median(high[part] - low[part], 0).round(5).tolist(), strict=True)
                    ),
                    "run_again": int(run.rerun_mask[part].sum()),
                    "not_converged": int(run.diagnostics.unreliable(1.05, 100.0)[part].sum()),
                }
            )
        out["priors"][prior] = {"seconds": run.seconds, "compile_seconds": run.compile_seconds, "cells": rows}
        print(f"\n{prior}: {run.seconds:.1f} s, compilation {run.compile_seconds:.1f} s")
        print(f"{'table':13s} {'epsilon':>7s}  " + "  ".join(f"{name:>9s}" for name in run.names))
        for row in rows:
            values = "  ".join(f"{value:9.2f}" for value in row["coverage"].values())
            print(f"{row['table']:13s} {row['epsilon']:7g}  {values}  run again {row['run_again']}")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", type=int, default=100)
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    found = measure(args.releases, args.chains, args.draws)
    found |= {"python": platform.python_version(), "jax": jax.__version__}
    if args.output:
        args.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
