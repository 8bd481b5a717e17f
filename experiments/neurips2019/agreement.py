"""Individual-level inference against the collapsed sampler, and both against the exact posterior.

    python experiments/neurips2019/agreement.py --output FILE.json

One simulated release per epsilon: 200 records, one feature, prior of Bernstein and Sheldon 2019, section 4.2, Laplace
noise, sensitivity 16/3. `individual` samples parameters and records; `collapsed` has the normal law of the sums. The
third column takes neither records nor the normal law nor Markov chains: parameters and sums drawn from the prior (the
sums by their exact law, docs/formulas.md#exact-sums: normal means, chi-square scatter), weighted by the noise's
density. So a difference between the two samplers that the third shares with `individual` is the normal law's. Exit code
1 if means or sds of the two samplers differ by more than .05 posterior sd, or an ESS is under 4,000.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from dpjax._base import runtime

RECORDS, EPSILON, SENSITIVITY = 200, (0.3, 3.0), 16 / 3
LIMIT, LEAST_ESS = 0.05, 4000
SETTINGS = {"individual": {"chains": 4, "draws": 4000}, "collapsed": {"chains": 16, "draws": 4000}}
#: Prior draws of the exact posterior, in batches whose spread gives its Monte Carlo error.
BATCHES, PER_BATCH = 100, 400_000


def exact_posterior(prior: dict, z: np.ndarray, n: float, scale: np.ndarray, seed: int) -> dict[str, Any]:
    """Posterior means and sds of theta[0], theta[1], sigma2, mu_x, tau2 and their standard errors; one feature."""
    rng, batches, sizes = np.random.default_rng(seed), [], 0.0
    root = np.linalg.cholesky(np.linalg.inv(np.array(prior["theta_precision"])))
    law = prior["covariates"]
    for _ in range(BATCHES):
        sigma2 = prior["sigma2_scale"] / rng.gamma(prior["sigma2_shape"], size=PER_BATCH)
        theta = np.array(prior["theta_mean"])[:, None] + np.sqrt(sigma2) * (root @ rng.standard_normal((2, PER_BATCH)))
        tau2 = 0.5 * law["psi"][0][0] / rng.gamma(0.5 * law["nu"], size=PER_BATCH)
        mu = law["mean"][0] + np.sqrt(tau2 / law["kappa"]) * rng.standard_normal(PER_BATCH)
        e1, e2, e3 = rng.standard_normal((3, PER_BATCH))
        xbar = mu + np.sqrt(tau2 / n) * e1
        xx = tau2 * rng.chisquare(n - 1, PER_BATCH)
        ybar = theta[0] + theta[1] * xbar + np.sqrt(sigma2 / n) * e2
        xy = theta[1] * xx + np.sqrt(sigma2 * xx) * e3
        yy = xy**2 / xx + sigma2 * rng.chisquare(n - 2, PER_BATCH)
        sums = np.stack([n * xbar, xx + n * xbar**2, n * ybar, xy + n * xbar * ybar, yy + n * ybar**2])
        weight = np.exp(-np.abs((z[:, None] - sums) / scale[:, None]).sum(0))
        x = np.stack([*theta, sigma2, mu, tau2])
        batches.append([np.full(len(x), weight.sum()), x @ weight, x**2 @ weight])
        sizes += (weight**2).sum()
    total, first, second = np.moveaxis(np.array(batches), 1, 0)

    def moments(keep: np.ndarray) -> np.ndarray:
        mean = first[keep].sum(0) / total[keep].sum(0)
        return np.stack([mean, np.sqrt(second[keep].sum(0) / total[keep].sum(0) - mean**2)])

    everything = np.ones(BATCHES, bool)
    left_out = np.array([moments(everything & (np.arange(BATCHES) != i)) for i in range(BATCHES)])
    mean, sd = moments(everything)
    errors = np.sqrt((BATCHES - 1) * left_out.var(0))  # jackknife
    return {"mean": mean, "sd": sd, "mean_error": errors[0], "sd_error": errors[1],
            "effective_draws": total[:, 0].sum() ** 2 / sizes}  # fmt: skip


def compare(epsilon: float, seed: int) -> dict[str, Any]:
    """One release, both samplers and the exact posterior."""
    from dpjax.calibration.simulation import simulate_study
    from dpjax.diagnostics.ranks import diagnose
    from dpjax.inference.individual import run_individual
    from dpjax.inference.run_method import run_method
    from dpjax.models import LinearRegression

    model = LinearRegression.s0(1)
    problems = simulate_study(model, [(RECORDS, epsilon)], 1, sensitivity=SENSITIVITY, seed=seed).problems
    runs = {
        "individual": run_individual(problems, seed=seed, **SETTINGS["individual"]),
        "collapsed": run_method("collapsed", problems, seed=seed, **SETTINGS["collapsed"]),
    }
    exact = exact_posterior(model.as_dict(), problems.z[0], float(problems.n[0]), problems.scale[0], seed)
    cell: dict[str, Any] = {
        "epsilon": epsilon, "scale": problems.scale[0, 0], "z": problems.z[0].tolist(),
        "exact_effective_draws": exact["effective_draws"], "methods": {}, "parameters": {},
    }  # fmt: skip
    figures = {}
    for name, run in runs.items():
        found = diagnose(run.draws, run.names)
        draws = run.draws[0].astype(np.float64)
        figures[name] = draws.mean((0, 1)), draws.std((0, 1)), found.capped_bulk[0], found.capped_tail[0]
        cell["methods"][name] = {
            "seconds": run.seconds, "compile_seconds": run.compile_seconds, "min_ess": found.min_ess[0],
            "ess_per_second": found.min_ess[0] / run.seconds, "max_rhat": found.max_rhat[0],
            "divergences": run.divergences.sum(), "acceptance": run.accept.mean(), **SETTINGS[name],
        }  # fmt: skip
    cell["methods"]["individual"]["leapfrogs_per_step"] = runs["individual"].settings["leapfrogs_per_step"]
    for k, name in enumerate(runs["individual"].names):
        row = {m: dict(zip(("mean", "sd", "ess", "ess_tail"), (x[k] for x in figures[m]), strict=True)) for m in runs}
        row["exact"] = {field: exact[field][k] for field in ("mean", "sd", "mean_error", "sd_error")}
        sd = exact["sd"][k]
        for one, other in (("individual", "collapsed"), ("individual", "exact"), ("collapsed", "exact")):
            row[f"{one}_minus_{other}"] = {f"{f}_in_sd": (row[one][f] - row[other][f]) / sd for f in ("mean", "sd")}
        cell["parameters"][name] = row
    return cell


def failures(cell: dict[str, Any]) -> list[str]:
    """What the acceptance does not allow, in words."""
    found = []
    for name, row in cell["parameters"].items():
        for field, value in row["individual_minus_collapsed"].items():
            if not abs(value) <= LIMIT:
                found.append(f"epsilon {cell['epsilon']}: {name} differs in {field} by {value:.3f}")
        for method in ("individual", "collapsed"):
            if not row[method]["ess"] >= LEAST_ESS:
                found.append(f"epsilon {cell['epsilon']}: {method} has an ESS of {row[method]['ess']:.0f} for {name}")
    return found


def main() -> int:
    """Run everything and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", required=True)
    parser.add_argument("--seed", type=int, default=4)
    arguments = parser.parse_args()
    runtime.prepare_jax()
    cells = [compare(epsilon, arguments.seed) for epsilon in EPSILON]
    for cell in cells:
        print(f"epsilon = {cell['epsilon']}")
        for name, m in cell["methods"].items():
            print(
                f"  {name:10} {m['seconds']:6.1f} s, smallest ESS {m['min_ess']:6.0f}, ESS/s {m['ess_per_second']:8.0f}"
            )
        for name, row in cell["parameters"].items():
            text = "  ".join(
                f"{pair} {d['mean_in_sd']:+.3f} {d['sd_in_sd']:+.3f}" for pair, d in row.items() if "_minus_" in pair
            )
            print(f"  {name:9} mean {row['exact']['mean']:+.4f} sd {row['exact']['sd']:.4f} | in sd: {text}")
    problems = [line for cell in cells for line in failures(cell)]
    print("\n".join(problems) or f"all within {LIMIT} sd, every ESS at least {LEAST_ESS}")
    versions = {**runtime.versions(), "numpyro": metadata.version("numpyro")}
    out = {
        "machine": runtime.machine(), "load_average": os.getloadavg(), "versions": versions, "records": RECORDS,
        "seed": arguments.seed, "sensitivity": SENSITIVITY, "limit_in_sd": LIMIT, "failures": problems, "cells": cells,
    }  # fmt: skip
    Path(arguments.output).write_text(json.dumps(out, indent=1, default=float) + "\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
