"""Effective draws per second of the methods for several parties, in one run: python ess.py [--output FILE]

Problems are simulated as in calibration_5_5.toml (5 parties, 5 features, n = 10,000, epsilon = 1). The ESS of a problem
is the smallest bulk ESS of its parameters, capped at the number of draws; seconds are those of the compiled call,
warm-up included, compilation not.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path

import jax
import numpy as np

from dpjax.calibration.study_design import study_design
from dpjax.inference.run_method import run_method

#: Method, settings, draws per chain and thinning: chains of the papers' samplers are long.
RUNS = {
    "collapsed": ("collapsed", {}, 500, 1),
    "normal-x": ("normal-x", {}, 1000, 20),
    "normal-x as published": ("normal-x", {"joint": False}, 1000, 20),
    "clt": ("clt", {}, 1000, 20),
}


def measure(parties: int, features: int, records: int, trials: int, chains: int, repeats: int) -> list[dict]:
    """One row per method."""
    design = study_design(
        features=features, intercept=False, parties=parties, mechanism="gaussian", delta=1e-5,
        sensitivity=2.1213203435596424,
    )  # fmt: skip
    problems = design.study([(records, 1.0)], trials, 6).problems
    rows = []
    for name, (method, settings, draws, thin) in RUNS.items():
        runs = [
            run_method(method, problems, seed=k, chains=chains, draws=draws, thin=thin, rerun=False, settings=settings)
            for k in range(repeats)  # compilation is not in their seconds
        ]
        known = [runs[0].names.index(name) for name in design.model.parameter_names]
        ess = [np.minimum(run.diagnostics.ess_bulk[:, known].min(1), chains * draws) for run in runs]
        rates = [float(one.sum() / run.seconds) for one, run in zip(ess, runs, strict=True)]
        rhat = max(float(np.quantile(run.diagnostics.rhat.max(1), 0.99)) for run in runs)
        rows.append({
            "method": name, "parties": parties, "features": features, "records": records, "trials": trials,
            "chains": chains, "draws": draws, "thin": thin, "ess_per_second": float(np.median(rates)),
            "min_ess_median": float(np.median(ess)), "seconds": float(np.median([run.seconds for run in runs])),
            "compile_seconds": runs[0].compile_seconds, "rhat_99": rhat,
        })  # fmt: skip
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()
    rows = []
    for parties, features in ((1, 2), (5, 2), (5, 5)):
        rows += measure(parties, features, 10_000, arguments.trials, 4, arguments.repeats)
    base = {(r["parties"], r["features"]): r["ess_per_second"] for r in rows if r["method"] == "normal-x"}
    for row in rows:
        row["times_normal_x"] = row["ess_per_second"] / base[row["parties"], row["features"]]
        where = f"{row['parties']} parties, {row['features']} features, {row['method']}"
        print(f"{where}: {row['ess_per_second']:,.0f} ESS/s, {row['times_normal_x']:.1f} x normal-x")
    if arguments.output is not None:
        devices = [str(device.device_kind) for device in jax.devices()]
        machine = {"devices": devices, "cpu": platform.processor(), "jax": jax.__version__}
        arguments.output.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
