"""Samplers against quadrature of the same model, and that model (the normal law of the sum) against the exact law.

    python experiments/thesis_ch4/agreement.py --output FILE.json

One release per family, number of records and epsilon; the references are tests/oracles/quadrature.py (NumPy and SciPy).
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path

import numpy as np
from scipy import special, stats

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from oracles import quadrature

from dpjax._base import runtime

RECORDS, EPSILON = (10, 1000, 100_000), (0.01, 0.1, 1.0, 10.0)
MIDDLE = (-np.log(0.975), -np.log(0.025))
# prior, bounds, rule, released mean per record
FAMILIES = {
    "binomial": ({"alpha": 2.0, "beta": 3.0}, (0.0, 1.0), "none", 0.4),
    "exponential": ({"shape": 10.0, "rate": 10.0}, MIDDLE, "clamp", 0.9),
    "poisson": ({"shape": 20.0, "rate": 4.0}, (2.0, 8.0), "clamp", 5.0),
    "geometric": ({"alpha": 10.0, "beta": 10.0}, (0.0, 4.0), "clamp", 0.9),
}
CHAINS, DRAWS = 48, 1000
METHODS = (
    ("collapsed", {}),
    ("gibbs", {}),
    ("gibbs-literal", {}),
    ("gibbs", {"metropolis": False, "independent": True}),
)
#: Steps of the lattice that stands for a continuous record when its sum's exact law is computed.
STEPS = 512


def one_record(kind: str, theta: float, low: float, high: float) -> tuple[np.ndarray, float]:
    """Probabilities of a clamped record on low, low + step, ..., and the step."""
    if kind == "exponential":
        step = (high - low) / STEPS
        edges = low + step * (np.arange(STEPS) + 0.5)
        cdf = -np.expm1(-theta * np.concatenate([[np.inf], edges, [np.inf]]))
        cdf[0] = 0.0
        return np.diff(cdf), step
    k = np.arange(int(low), int(high) + 1)
    cdf = stats.poisson.cdf(k, theta) if kind == "poisson" else stats.geom.cdf(k + 1, theta)
    cdf[-1] = 1.0
    return np.diff(np.concatenate([[0.0], cdf])), 1.0


def exact_law(kind: str, z: float, n: int, scale: float, low: float, high: float):
    """log p(z | theta) with the exact law of the sum (exponential: of records rounded to a fine lattice)."""

    def one(theta: float) -> float:
        if kind == "binomial":
            s = np.arange(n + 1)
            logs = stats.binom.logpmf(s, n, theta) - np.abs(z - s) / scale
            return special.logsumexp(logs)
        p, step = one_record(kind, theta, low, high)
        length = n * (len(p) - 1) + 1
        size = 2 ** int(np.ceil(np.log2(length)))
        transform = np.fft.rfft(p, size)
        law = np.fft.irfft(np.abs(transform) ** n * np.exp(1j * n * np.angle(transform)), size)[:length]
        s = n * low + step * np.arange(length)
        log_noise = -np.abs(z - s) / scale
        top = log_noise.max()
        return top + np.log(max((np.maximum(law, 0) * np.exp(log_noise - top)).sum(), 1e-300))

    return lambda theta: np.array([one(t) for t in theta])


def distance(kind, z, n, scale, prior, bounds, rule) -> dict[str, float] | None:
    """Normal against exact law: Kolmogorov distance of the posteriors, difference of means in sd, ratio of sds."""
    if n * (STEPS if kind == "exponential" else 1) > 1_000_000:
        return None  # the law's table is too long, and the two cannot be told apart
    mean, sd, theta, weight = quadrature.posterior(kind, z, n, scale, prior, *bounds, rule, points=4001)
    law = exact_law(kind, z, n, scale, *bounds)
    low, high = np.interp([1e-7, 1 - 1e-7], np.cumsum(weight), theta)
    grid = np.linspace(low, high, 301)
    phi = special.logit(grid) if kind in ("binomial", "geometric") else np.log(grid)
    jacobian = -np.log(grid) - (np.log1p(-grid) if kind in ("binomial", "geometric") else 0.0)
    logs = quadrature.log_prior(kind, phi, prior) + jacobian + law(grid)
    density = np.exp(logs - logs.max())
    density /= density.sum()
    exact_mean = (density * grid).sum()
    exact_sd = np.sqrt((density * (grid - exact_mean) ** 2).sum())
    normal = np.interp(grid, theta, np.cumsum(weight))
    return {
        "kolmogorov": float(np.abs(normal - np.cumsum(density) + 0.5 * density).max()),
        "mean_difference_in_sd": float((mean - exact_mean) / exact_sd),
        "sd_ratio": float(sd / exact_sd),
    }


def main() -> None:
    """Run everything and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", required=True)
    parser.add_argument("--only", choices=sorted(FAMILIES))
    arguments = parser.parse_args()
    runtime.prepare_jax()
    from dpjax.engine.problems import Problems
    from dpjax.families import family_named
    from dpjax.inference.run_method import run_method
    from dpjax.models import family_model
    from dpjax.models.priors import PRIORS

    out = {
        "machine": runtime.machine(),
        "versions": runtime.versions(),
        "chains": CHAINS,
        "draws": DRAWS,
        "cells": [],
    }
    for kind, (prior, bounds, rule, average) in FAMILIES.items():
        if arguments.only not in (None, kind):
            continue
        family = family_named(kind)
        model = family_model(family, PRIORS[family.prior].create(**prior), *bounds, rule)
        cells = list(itertools.product(RECORDS, EPSILON))
        n = np.array([float(n) for n, _ in cells])
        scale = np.array([(bounds[1] - bounds[0]) / epsilon for _, epsilon in cells])
        z = np.round(n * average)
        problems = Problems(z[:, None], n, scale[:, None], model, "laplace")
        rows = []
        for (records, epsilon), *x in zip(cells, z, scale, strict=True):
            arguments_of = (kind, x[0], records, x[1], prior, bounds, rule)
            mean, sd, *_ = quadrature.posterior(kind, x[0], records, x[1], prior, *bounds, rule)
            rows.append(
                {"family": kind, "records": records, "epsilon": epsilon, "z": x[0], "mean": mean, "sd": sd,
                 "normal_against_exact_law": distance(*arguments_of), "methods": {}}
            )  # fmt: skip
        for method, settings in METHODS:
            if method == "gibbs-literal" and rule == "none":
                continue
            run = run_method(method, problems, seed=5, chains=CHAINS, draws=DRAWS, settings=settings)
            draws = run.draws[..., 0].astype(np.float64)
            name = method if not settings else "gibbs-independent-regions"
            for i, row in enumerate(rows):
                off = draws[i].mean(1) - row["mean"], ((draws[i] - row["mean"]) ** 2).mean(1) - row["sd"] ** 2
                errors = [x.mean() / (x.std(ddof=1) / np.sqrt(CHAINS)) for x in off]
                row["methods"][name] = {
                    "mean": draws[i].mean(), "sd": draws[i].std(), "ess": run.diagnostics.min_ess[i],
                    "mean_in_mcse": errors[0], "variance_in_mcse": errors[1], "acceptance": run.accept[i].mean(),
                }  # fmt: skip
            worst = max(max(abs(r["methods"][name][k]) for k in ("mean_in_mcse", "variance_in_mcse")) for r in rows)
            smallest = run.diagnostics.min_ess.min()
            print(f"{kind:12} {name:26} largest deviation {worst:5.1f} MCSE, smallest ESS {smallest:.0f}")
        out["cells"] += rows
        for row in rows:
            print(f"{kind:12} n = {row['records']:6} epsilon = {row['epsilon']:5} {row['normal_against_exact_law']}")
    Path(arguments.output).write_text(json.dumps(out, indent=1, default=float) + "\n")


if __name__ == "__main__":
    main()
