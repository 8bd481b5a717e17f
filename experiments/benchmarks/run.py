"""Benchmarks of the samplers; one command prints the tables and writes them as JSON.

    python experiments/benchmarks/run.py --output results/benchmarks.json [--quick] [--only NAME ...]

Every figure is the median of `--repeats` runs of the compiled call (warm-up and reruns included, compilation apart),
measured in this one process beside its named baseline. Problems: one feature, n = 1000, epsilon = 0.1, sensitivity
16/3, Bernstein and Sheldon's prior, unless a row says otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from dataclasses import replace
from pathlib import Path

from dpjax._base.runtime import prepare_jax

os.environ.setdefault("DPJAX_CACHE", "off")  # compile times are measured
prepare_jax()  # as the command line does

import jax
import jaxlib
import numpy as np
from numpy_gibbs import steps_per_second

import dpjax
from dpjax.calibration.simulation import simulate_study
from dpjax.calibration.study_design import study_design
from dpjax.diagnostics.ranks import diagnose
from dpjax.engine.run import run_chains
from dpjax.inference.run_method import run_method
from dpjax.models import LinearRegression, WeakRegression
from dpjax.samplers.collapsed import Collapsed
from dpjax.samplers.gibbs import Gibbs


def study(trials: int, n: int = 1000, epsilon: float = 0.1, p: int = 1, cells=None):
    model = LinearRegression.s0(p)
    cells = cells or [(n, epsilon)]
    return simulate_study(model, cells, trials, sensitivity=study_design(features=p).sensitivity, seed=1)


def median_run(repeats: int, call):
    """Median seconds of the repeats after one that compiles; returns (last result, seconds, compile seconds)."""
    first = call(0)
    runs = [call(k + 1) for k in range(repeats)]
    return runs[-1], statistics.median(r.seconds for r in runs), first.compile_seconds, runs


def chain_counts(counts, repeats: int):
    """Chain-steps/s and ESS/s of both samplers by the number of chains in the call."""
    rows = []
    baseline = steps_per_second(seconds=3.0)
    print(f"\nNumPy loop baseline: {baseline:,.0f} steps/s (one chain)")
    print(
        f"{'sampler':10s} {'chains':>7s} {'seconds':>8s} {'compile':>8s} {'chain-steps/s':>14s} {'x NumPy':>8s} {'ESS/s':>10s}"
    )
    for name, steps in (("collapsed", Collapsed().warmup + 500), ("gibbs", 2000 + 10_000)):
        for count in counts:
            chains = 1 if count == 1 else 2
            problems = study(max(1, count // chains)).problems
            few = repeats if count <= 4096 else 1
            draws, thin = (500, 1) if name == "collapsed" else (500, 20)
            if name == "gibbs" and count > 4096:
                draws, steps = 100, 2000 + 2000
            sampler = Collapsed() if name == "collapsed" else Gibbs(burn_in=2000)
            run, seconds, compiling, _ = median_run(
                few,
                lambda k: run_chains(sampler, problems, seed=k, chains=chains, draws=draws, thin=thin),  # noqa: B023
            )
            ess = diagnose(run.draws, run.names).min_ess.sum() / seconds
            rate = count * steps / seconds
            rows.append(
                {"sampler": name, "chains": count, "seconds": seconds, "compile_seconds": compiling,
                 "chain_steps_per_second": rate, "times_numpy": rate / baseline, "ess_per_second": ess}
            )  # fmt: skip
            print(
                f"{name:10s} {count:7d} {seconds:8.3f} {compiling:8.2f} {rate:14,.0f} {rate / baseline:8.0f} {ess:10,.0f}"
            )
    return {"numpy_steps_per_second": baseline, "rows": rows}


def headline(repeats: int):
    """ESS/s of `collapsed` at 300 and 2,400 trials (2 chains x 500 draws), and of `gibbs` run for 60,000 steps."""
    out = {}
    print(f"\n{'run':28s} {'seconds':>8s} {'compile':>8s} {'ESS/s':>10s} {'all repeats'}")
    for trials in (300, 2400):
        problems = study(trials).problems
        run, seconds, compiling, runs = median_run(repeats, lambda k: run_method("collapsed", problems, seed=k))  # noqa: B023
        rates = [r.diagnostics.min_ess.sum() / r.seconds for r in runs]
        out[f"collapsed_{trials}"] = {
            "ess_per_second": statistics.median(rates), "seconds": seconds, "compile_seconds": compiling,
            "reruns": run.reruns, "all": rates,
        }  # fmt: skip
        shown = " ".join(f"{r:,.0f}" for r in rates)
        print(
            f"collapsed, {trials} trials".ljust(28),
            f"{seconds:8.3f} {compiling:8.2f} {statistics.median(rates):10,.0f} {shown}",
        )
    problems = study(300).problems
    run = run_method("gibbs", problems, seed=1, draws=1000, thin=60, settings={"burn_in": 3000})
    rate = run.diagnostics.min_ess.sum() / run.seconds
    ratio = out["collapsed_300"]["ess_per_second"] / rate
    out["gibbs_60000"] = {
        "ess_per_second": rate, "seconds": run.seconds, "compile_seconds": run.compile_seconds,
        "median_min_ess": float(np.median(run.diagnostics.min_ess)), "collapsed_over_gibbs": ratio,
    }  # fmt: skip
    print("gibbs, 300 trials x 63,000".ljust(28), f"{run.seconds:8.2f} {run.compile_seconds:8.2f} {rate:10,.0f}")
    print(
        f"collapsed / gibbs: {ratio:,.0f}x (gibbs: median min-ESS {np.median(run.diagnostics.min_ess):.0f} of 60,000 steps)"
    )
    return out


def by_records(repeats: int):
    """Seconds per iteration at n = 100 and n = 10^9 (positions in float64 there)."""
    out = {}
    for n in (100, 10**9):
        problems = study(300, n=n).problems
        _, seconds, _, _ = median_run(repeats, lambda k: run_chains(Collapsed(), problems, seed=k))  # noqa: B023
        out[f"{n:g}"] = seconds / (Collapsed().warmup + 500)
    ratio = out["1e+09"] / out["100"]
    print(
        f"\nseconds per iteration of 600 chains: n = 100 {out['100']:.2e}, n = 1e9 {out['1e+09']:.2e}, ratio {ratio:.3f}"
    )
    return {**out, "ratio": ratio}


def by_features(repeats: int, trials: dict[int, int]):
    """ESS/s, stuck fraction and compile time for 1, 2, 4 and 9 features over 12 cells."""
    cells = [(n, e) for n in (100, 1000, 10**4, 10**6) for e in (0.1, 1.0, 10.0)]
    rows = []
    print(
        f"\n{'features':>8s} {'D':>3s} {'problems':>8s} {'seconds':>8s} {'compile':>8s} {'ESS/s':>9s} {'minESS':>7s} {'1%':>5s} {'<50':>7s} {'R>1.05':>7s} {'reruns':>6s}"
    )
    for p, count in trials.items():
        problems = study(count, p=p, cells=cells).problems
        once = run_method("collapsed", problems, seed=1, rerun=False)
        again = run_method("collapsed", problems, seed=1)
        before, after = once.diagnostics, again.diagnostics
        row = {
            "features": p, "statistics": problems.z.shape[1], "problems": len(problems), "seconds": again.seconds,
            "compile_seconds": once.compile_seconds, "ess_per_second": after.min_ess.sum() / again.seconds,
            "min_ess_median": float(np.median(before.min_ess)), "min_ess_1_percent": float(np.quantile(before.min_ess, 0.01)),
            "below_50_before_reruns": float((before.min_ess < 50).mean()), "below_50": float((after.min_ess < 50).mean()),
            "rhat_above_1_05": float((after.max_rhat > 1.05).mean()), "reruns": again.reruns,
        }  # fmt: skip
        rows.append(row)
        print(
            f"{p:8d} {row['statistics']:3d} {len(problems):8d} {again.seconds:8.2f} {once.compile_seconds:8.2f} "
            f"{row['ess_per_second']:9,.0f} {row['min_ess_median']:7.0f} {row['min_ess_1_percent']:5.0f} "
            f"{row['below_50_before_reruns']:7.4f} {row['rhat_above_1_05']:7.4f} {again.reruns:6d}"
        )
    return rows


def default_priors(repeats: int, trials: int):
    """ESS/s of `collapsed` on the same releases under the default prior and under the conjugate default, rerun and all,
    4 chains x 1,000 as `fit` runs them."""
    rows = []
    print(
        f"\n{'features':>8s} {'records':>8s} {'epsilon':>7s} {'ESS/s default':>14s} {'conjugate':>11s} {'ratio':>6s} reruns"
    )
    for p in (1, 2):
        for n, epsilon in ((1000, 0.1), (1000, 1.0), (10**4, 1.0), (10**6, 1.0), (1000, 10.0)):
            problems = study(trials, n=n, epsilon=epsilon, p=p).problems
            found = {}
            for name, model in (("default", WeakRegression.create(p)), ("conjugate", LinearRegression.create(p))):
                of = replace(problems, model=model, views={})
                call = lambda k: run_method("collapsed", of, seed=k, chains=4, draws=1000)  # noqa: B023
                run, _, _, runs = median_run(repeats, call)
                rates = [r.diagnostics.min_ess.sum() / r.seconds for r in runs]
                found[name] = {"ess_per_second": statistics.median(rates), "reruns": run.reruns}
            ratio = found["default"]["ess_per_second"] / found["conjugate"]["ess_per_second"]
            rows.append({"features": p, "records": n, "epsilon": epsilon, "ratio": ratio, **found})
            print(
                f"{p:8d} {n:8d} {epsilon:7g} {found['default']['ess_per_second']:14,.0f} "
                f"{found['conjugate']['ess_per_second']:11,.0f} {ratio:6.2f} "
                f"{found['default']['reruns']} {found['conjugate']['reruns']} of {trials}"
            )
    return rows


def machine() -> dict:
    processor = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        processor = names[0] if names else processor
    return {
        "date": time.strftime("%Y-%m-%d"), "processor": processor, "cores": os.cpu_count(),
        "devices": [d.device_kind for d in jax.devices()], "python": platform.python_version(),
        "jax": jax.__version__, "jaxlib": jaxlib.__version__, "numpy": np.__version__, "dpjax": dpjax.__version__,
    }  # fmt: skip


def save(results: dict, path: Path | None) -> None:
    """Write results as JSON, where a file was asked for."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=1) + "\n")
        print(f"\nwritten: {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=None, help="JSON file to write")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--only", nargs="*", default=["chains", "headline", "records", "features", "priors"])
    options = parser.parse_args()
    where = machine()
    print(", ".join(f"{k} {v}" for k, v in where.items()))
    repeats = 1 if options.quick else options.repeats
    trials = {1: 8, 2: 8} if options.quick else {1: 200, 2: 200, 4: 100, 9: 4}
    counts = (1, 300) if options.quick else (1, 300, 4096, 32768)
    parts = {
        "chains": lambda: chain_counts(counts, repeats),
        "headline": lambda: headline(repeats),
        "records": lambda: by_records(repeats),
        "features": lambda: by_features(repeats, trials),
        "priors": lambda: default_priors(repeats, 4 if options.quick else 100),
    }
    results = {"machine": where, "repeats": repeats}
    for name in options.only:
        results[name] = parts[name]()
    save(results, options.output)


if __name__ == "__main__":
    main()
