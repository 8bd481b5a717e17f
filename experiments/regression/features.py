"""Cost and calibration by number of features, and the wait of a user with ten of them.

    python experiments/regression/features.py RESULTS_1 RESULTS_2 RESULTS_5 RESULTS_10 [--fit] --output FILE.json

RESULTS_p are the output folders of `dpjax run experiments/regression/features_p.toml`. With --fit a table of 50,000
records and
ten features is made, released (epsilon = 1, OpenDP's noise) and fitted by the command line, compilation included.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from dpjax._base import files, runtime

WARMUP = 100  # of `collapsed`


def cost(folder: Path) -> dict:
    """Features, statistics, seconds per iteration and chain, and the verdict of a study's results."""
    results = json.loads((folder / "results.json").read_text())
    study = results["calibration"]["collapsed"]
    settings = study["settings"]
    p = len(settings["model"]["features"])
    iterations = study["chains_in_call"] * (settings["draws"] + WARMUP)
    own = study["seconds"] - study["rerun_seconds"]
    smallest = min(row["p_value"] for cell in study["cells"] for row in cell["parameters"].values())
    return {
        "features": p,
        "statistics": p + p * (p + 1) // 2 + p + 2,
        "microseconds_per_iteration": 1e6 * own / iterations,
        "compile_seconds": study["compile_seconds"],
        "seconds": study["seconds"],
        "trials": study["cells"][0]["trials"],
        "cells": [[cell["records"], cell["epsilon"]] for cell in study["cells"]],
        "reruns": sum(cell["reruns"] for cell in study["cells"]),
        "min_ess_median": min(cell["min_ess_median"] for cell in study["cells"]),
        "smallest_p_value": smallest,
        "coverage_95": [
            min(row["coverage"]["0.95"] for cell in study["cells"] for row in cell["parameters"].values()),
            max(row["coverage"]["0.95"] for cell in study["cells"] for row in cell["parameters"].values()),
        ],
        "verdict": study["verdict"],
    }


def slope(rows: list[dict], of: str) -> list[float]:
    """Growth exponents of the cost between neighbouring rows, and over all, against one of their sizes."""
    x, y = (np.log([row[name] for row in rows]) for name in (of, "microseconds_per_iteration"))
    return [*(np.diff(y) / np.diff(x)).tolist(), float(np.polyfit(x, y, 1)[0])]


def fit_ten(records: int = 50_000, p: int = 10) -> dict:
    """Seconds of `dpjax fit` on a release of a simulated table, without and with a compilation cache."""
    rng = np.random.default_rng(0)
    x = np.clip(rng.multivariate_normal(np.zeros(p), 0.1 * (0.7 * np.eye(p) + 0.3), records), -1, 1)
    y = np.clip(0.1 + x @ np.linspace(-0.4, 0.4, p) + 0.3 * rng.normal(size=records), -2, 2)
    names = [f"x{i}" for i in range(1, p + 1)]
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        with open(here / "table.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*names, "y"])
            writer.writerows(np.column_stack([x, y]).tolist())
        bounds = [part for name in names for part in ("--bounds", f"{name}=-1:1")] + ["--bounds", "y=-2:2"]
        call = [sys.executable, "-m", "dpjax"]
        environment = {**os.environ, "DPJAX_CACHE": str(here / "cache")}
        release = [*call, "release", "table.csv", "--target", "y", "--features", ",".join(names), *bounds]
        subprocess.run([*release, "--epsilon", "1", "--output", "r.json"], cwd=here, check=True, env=environment)
        seconds = {}
        for name in ("cold", "warm"):
            begin = time.perf_counter()
            fit = [*call, "fit", "r.json", "--json", f"{name}.json", "--quiet"]
            code = subprocess.run(fit, cwd=here, env=environment, stdout=subprocess.DEVNULL).returncode
            seconds[name] = time.perf_counter() - begin
        summary = json.loads((here / "warm.json").read_text())
    rows = summary["parameters"].values()
    return {
        "records": records,
        "features": p,
        "epsilon": 1.0,
        "seconds": seconds,
        "exit_code": code,
        "rerun": summary["rerun"],
        "min_ess_bulk": min(row["ess_bulk"] for row in rows),
        "max_rhat": max(row["rhat"] for row in rows),
        "sd_over_prior_sd_of_slopes": [
            row["sd"] / row["prior_sd"] for name, row in summary["parameters"].items() if name.startswith("theta")
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--output", required=True)
    options = parser.parse_args()
    files.check_output(options.output, False)
    rows = sorted((cost(folder) for folder in options.folders), key=lambda row: row["features"])
    out: dict = {"rows": rows, "machine": runtime.machine(), "versions": runtime.versions()}
    for row in rows:
        print(
            f"{row['features']:3d} features {row['statistics']:4d} sums "
            f"{row['microseconds_per_iteration']:10.1f} us/iteration, "
            f"compile {row['compile_seconds']:5.1f} s, {row['reruns']} reruns, median min-ESS "
            f"{row['min_ess_median']:.0f}, "
            f"smallest p {row['smallest_p_value']:.3g}, 95% coverage {row['coverage_95']}, "
            f"{'passed' if row['verdict']['passed'] else 'REJECTED'}"
        )
    if len(rows) > 1:
        out["exponent_in_features"], out["exponent_in_statistics"] = slope(rows, "features"), slope(rows, "statistics")
        print("growth exponents, neighbours then all: in features", np.round(out["exponent_in_features"], 2).tolist(),
              "in sums", np.round(out["exponent_in_statistics"], 2).tolist())  # fmt: skip
    if options.fit:
        out["ten_features"] = fit_ten()
        print(out["ten_features"])
    files.write_json(options.output, out)


if __name__ == "__main__":
    main()
