"""What it buys to know that the released sums come from records inside the bounds: `wishart-bounded` against `wishart`.

    python experiments/regression/bounds.py [--trials 1000] --output FILE.json

For each number of records and epsilon, problems are drawn from the weak default prior, records unclipped, and those
whose exact sums records inside [-1, 1] cannot have are dropped (given that event the posterior of `wishart-bounded` is
the right one). Reported: the ratio of the posterior sds, the share of posteriors narrower by a tenth, root mean squared
errors of the posterior means, and the smallest family-wise p-value of uniform ranks.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("XLA_FLAGS", f"--xla_force_host_platform_device_count={os.cpu_count()}")

import numpy as np

from dpjax._base import files, runtime
from dpjax.calibration import statistics as calibration_statistics
from dpjax.calibration.ranks import rank_statistics
from dpjax.calibration.study_design import study_design
from dpjax.inference.run_method import run_method
from dpjax.models import LinearRegression

CELLS = [(n, e) for n in (5, 10, 30, 100) for e in (0.1, 1.0, 10.0)]
METHODS = ("wishart", "wishart-bounded")


def inside(exact: np.ndarray, n: float) -> np.ndarray:
    """Whether records (x, y) in [-1, 1]^2 can have these sums (x, x^2, y, xy, y^2) `[T, 5]`: necessary conditions."""
    x, xx, y, xy, yy = exact.T
    room = [n - xx, n - yy, n - 2 * np.abs(x) + xx, n - 2 * np.abs(y) + yy]
    room += [n + a * x + b * y + a * b * xy for a in (-1, 1) for b in (-1, 1)]
    return (np.stack(room) >= 0).all(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--output", required=True)
    options = parser.parse_args()
    files.check_output(options.output, False)
    plain = LinearRegression.weak(1).as_dict()
    design = study_design(prior=plain)
    rows = []
    print(
        f"{'records':>7} {'epsilon':>7} {'kept':>5}  sd ratio by parameter; rmse ratio; narrower by a tenth; smallest p"
    )
    for n, epsilon in CELLS:
        study = design.study([(n, epsilon)], options.trials, 5)
        kept = np.flatnonzero(inside(study.problems.exact, n))
        problems, row = (
            study.problems.take(kept),
            {"records": n, "epsilon": epsilon, "kept": len(kept) / options.trials},
        )
        sd, error = {}, {}
        for method in METHODS:
            run = run_method(method, problems, seed=1)
            truth = study.truth_of(run.names)[kept]
            ranks = rank_statistics(run.names, run.draws, truth, seed=2)
            cell = calibration_statistics.summarise_ranks(n, epsilon, ranks, run.diagnostics, reruns=run.reruns)
            p = {name: value["p_value"] for name, value in cell["parameters"].items()}
            row[method] = {
                "p_values": p,
                "coverage_95": {name: value["coverage"]["0.95"] for name, value in cell["parameters"].items()},
                "min_ess_median": cell["min_ess_median"],
                "reruns": run.reruns,
                "seconds": run.seconds,
            }
            sd[method] = run.draws.std((1, 2), dtype=np.float64)
            error[method] = np.sqrt(((run.draws.mean((1, 2), dtype=np.float64) - truth) ** 2).mean(0))
        ratio = sd["wishart-bounded"] / sd["wishart"]
        row["sd_ratio"] = dict(zip(run.names, ratio.mean(0).tolist(), strict=True))
        row["rmse_ratio"] = dict(zip(run.names, (error[METHODS[1]] / error[METHODS[0]]).tolist(), strict=True))
        row["narrower_by_a_tenth"] = float((ratio[:, :2] < 0.9).any(1).mean())
        rows.append(row)
        shown = " ".join(f"{value:.2f}" for value in row["sd_ratio"].values())
        errors = " ".join(f"{value:.2f}" for value in row["rmse_ratio"].values())
        smallest = {m: min(1.0, 5 * min(row[m]["p_values"].values())) for m in METHODS}
        tests = ", ".join(f"{m} {value:.2g}" for m, value in smallest.items())
        print(
            f"{n:7d} {epsilon:7g} {row['kept']:5.2f}  {shown}; {errors}; {row['narrower_by_a_tenth']:.2f}; {tests}",
            flush=True,
        )
    result = {"cells": rows, "prior": plain, "trials": options.trials, "machine": runtime.machine()}
    files.write_json(options.output, result | {"versions": runtime.versions()})


if __name__ == "__main__":
    main()
