"""Checks and timings on one GPU; `gpu.sh` starts it. Every part is a process of its own with a time limit.

Results are written to `gpu.json` after every part, and a part that fails leaves its traceback there. Parts: machine,
prepare and reference (on the CPU, the second beside the others), compile (fills the persistent cache, several side by
side), agreement, engine, variants (XLA's flags).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gpu_parts
import numpy as np
from gpu_parts import NAMES, ON_GPU, PLATFORM, Sizes, engine_jobs

#: XLA flags under which the engine is timed again: loops in one graph launch; short loops unrolled.
FLAGS = (
    "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUSTOM_CALL,CONDITIONAL,WHILE --xla_gpu_graph_min_graph_size=1",
    "--xla_gpu_enable_while_loop_unrolling=WHILE_LOOP_UNROLLING_FULL_UNROLL",
)


def limits(quick: bool) -> dict[str, int]:
    """Seconds per part."""
    if quick:
        return {"machine": 30, "prepare": 40, "reference": 100, "agreement": 45, "compile": 60, "engine": 40,
                "variants": 0}  # fmt: skip
    return {"machine": 30, "prepare": 40, "reference": 150, "agreement": 90, "compile": 100, "engine": 170,
            "variants": 40}  # fmt: skip


def compare(folder: Path) -> dict:
    """Differences of the two sides' results."""
    from dpjax.diagnostics.ranks import diagnose

    out: dict = {}
    for bits in (32, 64):
        both = [folder / f"{side}_{bits}.npz" for side in ("cpu", "gpu")]
        if not all(path.exists() for path in both):
            out[f"float{bits}"] = "missing"
            continue
        cpu, gpu = (dict(np.load(path)) for path in both)
        found: dict = {}
        for name in ("first_gibbs", "first_collapsed"):
            if name in cpu and name in gpu:
                scale = np.median(np.abs(cpu[name]), axis=(0, 1, 2))
                gap = (np.abs(cpu[name] - gpu[name]) / scale).max(-1)  # [T, C, S], relative to the typical size
                found[name] = {
                    f"step_{s + 1}": {
                        "median": float(np.median(gap[:, :, s])), "largest": float(gap[:, :, s].max()),
                        "share_within_1e-3": float((gap[:, :, s] < 1e-3).mean()),
                    }
                    for s in (0, 1, 4, 19)
                }  # fmt: skip
        for name in ("collapsed", "gibbs"):
            if name in cpu and name in gpu:
                codes = [int(x[f"codes_{name}"].sum()) for x in (cpu, gpu)]
                found[name] = gpu_parts.means_apart(cpu[name], gpu[name]) | {"codes_not_0": codes}
        if "gibbs_long" in cpu:
            made = diagnose(cpu["gibbs_long"], NAMES, threads=8)
            steps = 2 * cpu["gibbs_long"].shape[2] * 40
            found["gibbs_ess_per_step"] = float(made.min_ess.mean() / steps)
        out[f"float{bits}"] = found
    return out


# ---- the driver --------------------------------------------------------------------------------------------------
class Driver:
    def __init__(self, output: Path, quick: bool):
        self.output, self.quick, self.sizes, self.limits = output, quick, Sizes(quick), limits(quick)
        self.folder = Path(tempfile.mkdtemp(prefix="gpu_"))
        self.found: dict = {"quick": quick, "platform": PLATFORM, "seconds": {}, "errors": {}}
        self.start = time.perf_counter()
        self.deadline = 900 if not ON_GPU else (130 if quick else 450)

    def write(self):
        self.found["wall_seconds"] = time.perf_counter() - self.start
        path = self.output / "gpu.json"
        path.with_suffix(".tmp").write_text(json.dumps(self.found, indent=1) + "\n")
        path.with_suffix(".tmp").replace(path)

    def process(self, part: str, *more: str, cpu: bool = False, limit: int | None = None, **environment: str):
        """Run one part in a process of its own; keeps its output if it fails."""
        limit = self.limits.get(part, 60) if limit is None else limit
        limit = min(limit, self.deadline - (time.perf_counter() - self.start))
        label = " ".join((part, *more))
        if limit < 5:
            self.found["errors"][label] = "no time left"
            return
        platforms = "cpu" if cpu or not ON_GPU else "cuda,cpu"
        full = {
            **os.environ, "JAX_PLATFORMS": platforms, "JAX_COMPILATION_CACHE_DIR": str(self.folder / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.5", **environment,
        }  # fmt: skip
        command = [sys.executable, __file__, part, "--folder", str(self.folder), "--more", *more]
        if self.quick:
            command.append("--quick")
        began = time.perf_counter()
        log = self.output / "log.txt"
        with log.open("a") as sink:
            sink.write(f"---- {label}\n")
            sink.flush()
            try:
                done = subprocess.run(command, env=full, timeout=limit, stdout=sink, stderr=subprocess.STDOUT)
                failure = f"exit {done.returncode}" if done.returncode else None
            except subprocess.TimeoutExpired:
                failure = f"stopped after {limit:.0f} s"
        if failure:
            self.found["errors"][label] = f"{failure}: {log.read_text()[-2500:]}"
        spent = time.perf_counter() - began
        self.found["seconds"][label] = round(spent, 1)
        print(
            f"[{time.perf_counter() - self.start:6.1f} s] {label}: {spent:.1f} s",
            *(["FAILED"] if label in self.found["errors"] else []),
        )

    def collect(self, *parts: str):
        for part in parts:
            path = self.folder / f"{part}.json"
            if path.exists():
                self.found[part] = json.loads(path.read_text())
        self.write()

    def run(self):
        (self.output / "log.txt").write_text("")
        self.process("machine")
        self.collect("machine")
        print(json.dumps(self.found.get("machine")))
        self.process("prepare", cpu=True)
        self.collect("prepare")
        few = max(1, min(6, (os.cpu_count() or 2) // 2))
        host = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={few}"}
        on_demand = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        jobs = list(engine_jobs(self.sizes))
        modes = (("32", "0"), ("64", "1"))
        with ThreadPoolExecutor(3 if ON_GPU else 1) as beside, ThreadPoolExecutor(10 if ON_GPU else 1) as pool:
            waiting = [
                beside.submit(self.process, "reference", bits, "cpu", cpu=True, JAX_ENABLE_X64=x64, **host)
                for bits, x64 in modes
            ]
            if not ON_GPU:  # one process at a time
                for each in waiting:
                    each.result()
            compiling = [pool.submit(self.process, "compile", str(k), **on_demand) for k in range(len(jobs))]
            compiling += [
                pool.submit(self.process, "agreement", bits, "gpu", JAX_ENABLE_X64=x64, **on_demand)
                for bits, x64 in modes
            ]
            for each in compiling + waiting:
                each.result()
        self.found["compile"] = [json.loads(path.read_text()) for path in sorted(self.folder.glob("compile_*.json"))]
        self.collect("results_cpu_32", "results_cpu_64", "results_gpu_32", "results_gpu_64")
        try:
            self.found["agreement"] = compare(self.folder)
        except Exception as error:
            self.found["errors"]["compare"] = repr(error)
        self.process("engine")
        self.collect("engine")
        for k, flags in enumerate(FLAGS if ON_GPU else ("",)):
            if self.limits["variants"]:
                self.process("variants", str(k), VARIANT=f"variant_{k}", XLA_FLAGS=flags)
                self.collect(f"variant_{k}")
        self.summary()
        self.write()
        print(f"written: {self.output / 'gpu.json'} ({self.found['wall_seconds']:.0f} s)")

    def summary(self):
        """Tables to read; ESS/s = steps/s times effective draws per step of the compared problems."""
        compared = self.found.get("agreement", {}).get("float32", {})
        compared = compared if isinstance(compared, dict) else {}
        per_step = {"gibbs": compared.get("gibbs_ess_per_step")}
        if "collapsed" in compared:  # warm-up and draws counted, two chains per problem
            steps = self.found["results_cpu_32"]["warmup"] + self.sizes.draws
            per_step["collapsed"] = compared["collapsed"]["min_ess_mean"][0] / (2 * steps)
        self.found["ess_per_chain_step"] = per_step
        print(json.dumps(self.found.get("agreement"), indent=1))
        rows = [("engine", row) for row in self.found.get("engine", [])]
        for name in sorted(k for k in self.found if k.startswith("variant_")):
            rows += [(name, row) for row in self.found[name]]
        print(f"{'':9s} {'sampler':10s} {'chains':>8s} {'lanes':>8s} {'us/step':>9s} {'chain-steps/s':>14s} {'ESS/s':>11s} {'compile':>8s}")  # fmt: skip
        for kind, row in rows:
            if "error" in row:
                print(kind, row["sampler"], row.get("chains"), row["error"][:300])
                continue
            ess = per_step.get(row["sampler"])
            row["ess_per_second"] = ess and ess * row["chain_steps_per_second"]
            shown = f"{row['ess_per_second']:11,.0f}" if ess else " " * 11
            first = row.get("compile_seconds", 0.0)
            print(
                f"{kind:9s} {row['sampler']:10s} {row['chains']:8d} {row['lanes']:8d} {1e6 * row['seconds_per_step']:9.1f} "
                f"{row['chain_steps_per_second']:14,.0f} {shown} {first:8.1f} {row.get('flags', '')}"
            )
        print("compiled side by side, with one segment, seconds:", self.found.get("compile"))
        for label, text in self.found["errors"].items():
            print(f"ERROR {label}: {text[-800:]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--more", nargs="*", default=[])
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.part == "all":
        Driver(options.output, options.quick).run()
        return
    sizes, folder, more = Sizes(options.quick), options.folder, options.more
    if options.part in ("reference", "agreement"):
        gpu_parts.results(folder, sizes, int(more[0]), more[1])
    elif options.part == "compile":
        gpu_parts.compile_one(folder, sizes, int(more[0]))
    else:
        getattr(gpu_parts, options.part)(folder, sizes)


if __name__ == "__main__":
    main()
