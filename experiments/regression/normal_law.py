"""How far the normal law of the sums is from the exact one: `collapsed` against `wishart` on the same releases.

    python experiments/regression/normal_law.py [--problems 200] --output FILE.json

One feature, prior of Bernstein and Sheldon 2019, section 4.2, exact sensitivity, unclipped records. For every number of
records and epsilon: the root mean square over problems of the difference of posterior means in units of the exact
posterior's sd (the Monte Carlo error is subtracted in the mean square), and the mean ratio of the sds.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("XLA_FLAGS", f"--xla_force_host_platform_device_count={os.cpu_count()}")

import numpy as np

from dpjax._base import files, runtime
from dpjax.calibration.study_design import study_design
from dpjax.inference.run_method import run_method

CELLS = [(n, e) for n in (4, 10, 30, 100) for e in (0.1, 1.0, 10.0, 100.0)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--output", required=True)
    options = parser.parse_args()
    files.check_output(options.output, False)
    study = study_design().study(CELLS, options.problems, 7)
    mean, sd, error = {}, {}, {}
    for method in ("wishart", "collapsed"):
        run = run_method(method, study.problems, seed=1, chains=4, draws=1000)
        draws = run.draws.astype(np.float64)
        mean[method], sd[method] = draws.mean((1, 2)), draws.std((1, 2))
        error[method] = run.diagnostics.mcse_mean
    rows = []
    print("records epsilon  rms difference of means in sd, then mean ratio of sds: " + " ".join(run.names))
    for c, (n, epsilon) in enumerate(study.cells):
        here = study.slice(c)
        exact = sd["wishart"][here]
        apart = ((mean["collapsed"] - mean["wishart"])[here] / exact) ** 2
        noise = (error["collapsed"][here] ** 2 + error["wishart"][here] ** 2) / exact**2
        distance = np.sqrt(np.maximum((apart - noise).mean(0), 0.0))
        ratio = (sd["collapsed"][here] / exact).mean(0)
        rows.append({
            "records": n,
            "epsilon": epsilon,
            "rms_difference_of_means_in_sd": dict(zip(run.names, distance.tolist(), strict=True)),
            "sd_ratio": dict(zip(run.names, ratio.tolist(), strict=True)),
        })  # fmt: skip
        print(f"{n:7d} {epsilon:7g}  {np.round(distance, 3).tolist()}  {np.round(ratio, 3).tolist()}", flush=True)
    result = {"cells": rows, "problems": options.problems, "machine": runtime.machine()}
    files.write_json(options.output, result | {"versions": runtime.versions()})


if __name__ == "__main__":
    main()
