"""Parts of `gpu.py`: sizes, the machine, problems, results of both sides and the engine's speed."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

PLATFORM = os.environ.get("GPU_PLATFORM", "cuda")
ON_GPU = PLATFORM != "cpu"
#: One cell where chains mix slowly (the benchmarks' problem) and one where Gibbs mixes well enough to compare means.
CELLS = {"slow": (1000, 0.1), "fast": (1000, 10.0)}
#: Steps of one segment, one call of the compiled program.
SEGMENT = 100
NAMES = ("theta0", "theta1", "sigma2", "mu", "tau2")


# ---- sizes -------------------------------------------------------------------------------------------------------
class Sizes:
    """What is run: full, quick (a probe) or, on the CPU, tiny (a test of this script)."""

    def __init__(self, quick: bool):
        tiny = not ON_GPU
        self.distinct = 40 if tiny else 2048
        self.compared = 20 if tiny else (100 if quick else 300)
        self.draws = 100 if tiny else 500
        self.counts = (1, 40) if tiny else ((100, 100_000) if quick else (1, 100, 10_000, 100_000, 1_000_000))
        self.layouts = quick is False and ON_GPU


# ---- shared ------------------------------------------------------------------------------------------------------
def problems_of(folder: Path, cell: str, count: int):
    """`count` problems of a cell, the distinct ones repeated (each has keys of its own)."""
    from dpjax.engine.problems import Problems
    from dpjax.models import LinearRegression

    saved = np.load(folder / f"{cell}.npz")
    index = np.arange(count) % len(saved["z"])
    return Problems(saved["z"][index], saved["n"][index], saved["scale"][index], LinearRegression.s0(1), "laplace")


def samplers():
    from dpjax.samplers.collapsed import Collapsed
    from dpjax.samplers.gibbs import Gibbs

    return {"gibbs": Gibbs(burn_in=400), "collapsed": Collapsed()}


def emit(folder: Path, part: str, value) -> None:
    """Write what a part has so far; the driver reads it whatever happens afterwards."""
    (folder / f"{part}.json").write_text(json.dumps(value))


def means_apart(one: np.ndarray, other: np.ndarray) -> dict:
    """Differences of posterior means in standard errors, over problems with an effective 100 draws on both sides."""
    from dpjax.diagnostics.ranks import diagnose

    a, b = (diagnose(x, NAMES, threads=8) for x in (one, other))
    z = (other.mean((1, 2)) - one.mean((1, 2))) / np.hypot(a.mcse_mean, b.mcse_mean)
    good = (a.min_ess > 100) & (b.min_ess > 100)
    found = {
        "problems": len(z), "with_ess_above_100": int(good.sum()),
        "min_ess_mean": [float(a.min_ess.mean()), float(b.min_ess.mean())],
    }  # fmt: skip
    if good.any():
        found |= {
            "largest_z": float(np.abs(z[good]).max()), "share_beyond_4": float((np.abs(z[good]) > 4).mean()),
            "sd_of_z": z[good].std(0).tolist(), "mean_of_z": z[good].mean(0).tolist(),
        }  # fmt: skip
    return found


# ---- parts -------------------------------------------------------------------------------------------------------
def machine(folder: Path, sizes: Sizes) -> None:
    import jax
    import jaxlib

    devices = jax.devices()
    found = {
        "device": devices[0].device_kind, "platform": devices[0].platform, "devices": len(devices),
        "jax": jax.__version__, "jaxlib": jaxlib.__version__, "numpy": np.__version__,
        "python": sys.version.split()[0], "cores": os.cpu_count(), "also": [d.device_kind for d in jax.devices("cpu")][:1],
    }  # fmt: skip
    if ON_GPU:
        query = "name,driver_version,memory.total,clocks.max.sm,power.limit"
        with contextlib.suppress(OSError):
            done = subprocess.run(
                ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True
            )
            found["nvidia_smi"] = done.stdout.strip()
    emit(folder, "machine", found)


def prepare(folder: Path, sizes: Sizes) -> None:
    """Simulate on the CPU once: both sides must condition on the same numbers."""
    from dpjax.calibration.simulation import simulate_study
    from dpjax.calibration.study_design import study_design
    from dpjax.models import LinearRegression

    sensitivity = study_design(features=1).sensitivity
    for name, cell in CELLS.items():
        study = simulate_study(LinearRegression.s0(1), [cell], sizes.distinct, sensitivity=sensitivity, seed=1)
        p = study.problems
        np.savez(folder / f"{name}.npz", z=p.z, n=p.n, scale=p.scale, truth=study.truth)
    emit(folder, "prepare", {"distinct": sizes.distinct, "cells": CELLS, "sensitivity": sensitivity})


def results(folder: Path, sizes: Sizes, bits: int, side: str) -> None:
    """What is compared: first draws of both samplers, and draws whose means are compared (other seed on each side)."""
    from dpjax.engine.run import run_chains
    from dpjax.samplers.collapsed import WINDOW, Collapsed
    from dpjax.samplers.gibbs import Gibbs

    saved, seconds = {}, {}
    start = time.perf_counter()

    def run(name, sampler, cell, **options):
        made = run_chains(sampler, problems_of(folder, cell, sizes.compared), **options)
        saved[name] = made.draws
        saved[f"codes_{name}"] = made.codes
        seconds[name] = [made.seconds, made.compile_seconds]
        np.savez(folder / f"{side}_{bits}.npz", **saved)
        warmup = samplers()["collapsed"].warmup_iterations
        emit(
            folder,
            f"results_{side}_{bits}",
            {"seconds": seconds, "wall": time.perf_counter() - start, "warmup": warmup},
        )

    run("first_gibbs", Gibbs(burn_in=0), "slow", seed=3, draws=20, segment=20)
    run("first_collapsed", Collapsed(warmup=4 * WINDOW), "slow", seed=3, draws=20, segment=20)
    seed = 11 if side == "gpu" else 12
    if bits == 32:
        run("collapsed", samplers()["collapsed"], "slow", seed=seed, draws=sizes.draws)
        run("gibbs", samplers()["gibbs"], "fast", seed=seed, draws=sizes.draws, thin=4)
    if bits == 32 and side == "cpu":  # effective draws per step, for the tables
        run("gibbs_long", Gibbs(burn_in=2000), "slow", seed=5, draws=sizes.draws, thin=40)


def engine_jobs(sizes: Sizes):
    """(sampler, chains, chains per batch): the engine's own layout, one block of all chains, several small blocks."""
    for name in ("gibbs", "collapsed"):
        for count in sizes.counts:
            yield name, count, None
    if sizes.layouts:
        for count, batch in ((100_000, 100_000), (100_000, 12_500), (1_000_000, 1_000_000), (1_000_000, 125_000)):
            yield "gibbs", count, batch
        for count, batch in ((100_000, 100_000), (100_000, 12_500), (1_000_000, 1_000_000)):
            yield "collapsed", count, batch


class Stop(Exception):
    """Raised after the first segment of a run that is only to be compiled."""


def engine_run(folder: Path, sizes: Sizes, job) -> dict:
    """Time one run of the engine, all steps of it (the warm-up too)."""
    name, count, _ = job
    run, steps = start_engine(folder, sizes, job)
    return {
        "sampler": name, "chains": count, "lanes": run.settings["lanes_per_block"], "steps": steps,
        "seconds": run.seconds, "compile_seconds": run.compile_seconds, "seconds_per_step": run.seconds / steps,
        "chain_steps_per_second": count * steps / run.seconds, "codes_not_0": int((run.codes > 0).sum()),
    }  # fmt: skip


def start_engine(folder: Path, sizes: Sizes, job, progress=None):
    """Run the engine for a job; returns the run and its number of steps."""
    from dpjax.engine.run import run_chains

    name, count, batch = job
    sampler = samplers()[name]
    chains = 1 if count == 1 else 2
    problems = problems_of(folder, "slow", max(1, count // chains))
    segment = 20 if name == "collapsed" else SEGMENT
    draws = segment if count >= 1_000_000 else 5 * SEGMENT
    run = run_chains(
        sampler, problems, seed=2, chains=chains, draws=draws, truth=np.zeros((len(problems), 5)), stream=True,
        chains_per_batch=batch, segment=segment, progress=progress,
    )  # fmt: skip
    return run, sampler.warmup_iterations + draws


def compile_engine(folder: Path, sizes: Sizes, job) -> float:
    """Compile and run the first segment; returns seconds."""

    def stop(*_):
        raise Stop

    began = time.perf_counter()
    with contextlib.suppress(Stop):
        start_engine(folder, sizes, job, stop)
    return time.perf_counter() - began


def compile_one(folder: Path, sizes: Sizes, job_number: int) -> None:
    """Fill the persistent cache, several of these side by side; the seconds are upper bounds."""
    job = list(engine_jobs(sizes))[job_number]
    emit(folder, f"compile_{job_number}", [*job, compile_engine(folder, sizes, job)])


def engine(folder: Path, sizes: Sizes) -> None:
    rows = []
    for job in sorted(engine_jobs(sizes), key=lambda j: (j[2] is not None, j[1])):
        try:
            compile_engine(folder, sizes, job)
            rows.append(engine_run(folder, sizes, job))
        except Exception as error:
            rows.append({"sampler": job[0], "chains": job[1], "batch": job[2], "error": repr(error)[:500]})
        emit(folder, "engine", rows)


def variants(folder: Path, sizes: Sizes) -> None:
    """One engine run under the XLA flags of this process's environment."""
    flags = os.environ.get("XLA_FLAGS", "")
    count = 10_000 if ON_GPU else 40
    rows = []
    for name in ("gibbs", "collapsed"):
        try:
            seconds = compile_engine(folder, sizes, (name, count, None))
            rows.append(engine_run(folder, sizes, (name, count, None)) | {"flags": flags, "compile_seconds": seconds})
        except Exception as error:
            rows.append({"sampler": name, "flags": flags, "error": repr(error)[:500]})
        emit(folder, os.environ["VARIANT"], rows)
