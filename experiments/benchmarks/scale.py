"""Scale: a million chains, devices, killed runs, commands from cold, checkpoint formats; JSON and tables.

    python experiments/benchmarks/scale.py --output results/scale.json [--quick] [--only PART ...]

million   calibration chains by the million, streamed: seconds and peak memory (a process of its own per size), and the
          exponent of time against chains
devices   the same run on one and on two devices, and whether the draws are the same bits
kills     a run killed (kill -9) at ten random moments and resumed each time, against an undisturbed one
commands  `dpjax fit` without and with a compilation cache, `import dpjax`
compile   seconds of compilation of the default sampler, cold and with a warm cache, by features
formats   writing and reading a checkpoint of 20 MB: NumPy's format with a digest, and Orbax where it is installed
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "dpjax"))

from dpjax._base.runtime import prepare_jax

RELEASE = {
    "format": "dpjax-release", "version": 1, "records": 442, "scaling": "bounds-to-[-1,1]",
    "model": {"kind": "linear-regression", "features": ["bmi"], "target": "progression", "intercept": True},
    "statistics": {"bmi": -98.2, "bmi*bmi": 67.1, "progression": -52.6, "bmi*progression": 45.2,
                   "progression*progression": 98.0},
    "mechanism": {"kind": "laplace", "scale": 16 / 3},
    "privacy": {"epsilon": 1.0, "delta": 0.0, "adjacency": "replace-one", "norm": "l1", "sensitivity": 16 / 3},
    "bounds": {"bmi": [15, 45], "progression": [0, 350]},
}  # fmt: skip


def python(code: str, *arguments: str, cache: str = "off") -> str:
    """Run code in a fresh interpreter; its standard output."""
    environment = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR")}
    environment |= {"DPJAX_CACHE": cache, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr[-2000:])
    return done.stdout


# ---- a million chains ----------------------------------------------------------------------------------------
MILLION = """
import json, resource, sys, time
from dpjax._base.runtime import prepare_jax
prepare_jax()
import numpy as np
import dpjax
method, chains, draws, burn = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
from dpjax.calibration.study import calibrate_study
from dpjax.calibration.design import study_design
start = time.perf_counter()
study = study_design().study([(1000, 0.1)], chains // 2, 1)
simulated = time.perf_counter() - start
settings = {"burn_in": burn} if method == "gibbs" else None
result = calibrate_study(study, method, chains=2, draws=draws, thin=20, stream=True, settings=settings)
ks = {name: row["ks"] for name, row in result.cells[0]["parameters"].items()}
print(json.dumps({"seconds": result.seconds, "whole": time.perf_counter() - start, "simulation": simulated,
  "compile": result.compile_seconds, "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, "ks": ks}))
"""


def million(quick: bool) -> dict:
    """`gibbs` x 1,000 steps and `collapsed` x 100 draws (after its warm-up), streamed, each size in its own process."""
    out = {}
    sizes = (1000, 4000) if quick else (10_000, 100_000, 1_000_000)
    print(
        f"\n{'sampler':10s} {'chains':>9s} {'steps':>6s} {'seconds':>8s} {'whole':>7s} {'GiB':>6s} {'chain-steps/s':>14s}"
    )
    for method, draws, burn, steps in (("gibbs", 40, 200, 1000), ("collapsed", 5, 0, 200)):
        rows = []
        for chains in sizes:
            row = json.loads(python(MILLION, method, str(chains), str(draws), str(burn)).splitlines()[-1])
            row |= {"chains": chains, "steps": steps, "chain_steps_per_second": chains * steps / row["seconds"]}
            rows.append(row)
            print(
                f"{method:10s} {chains:9,d} {steps:6d} {row['seconds']:8.2f} {row['whole']:7.1f} {row['peak_gib']:6.2f} "
                f"{row['chain_steps_per_second']:14,.0f}"
            )
        slope = np.polyfit(np.log([r["chains"] for r in rows]), np.log([r["seconds"] for r in rows]), 1)[0]
        print(f"{method}: seconds grow as chains^{slope:.3f}")
        out[method] = {"rows": rows, "exponent": float(slope)}
    return out


# ---- devices -------------------------------------------------------------------------------------------------
def devices(quick: bool) -> dict:
    """Median seconds on one and on two devices."""
    from run import study

    from dpjax.engine.run import run_chains
    from dpjax.samplers.collapsed import Collapsed
    from dpjax.samplers.gibbs import Gibbs

    out = {}
    problems = study(100 if quick else 2400).problems
    for sampler, draws in ((Collapsed(), 500), (Gibbs(burn_in=1000), 1000)):
        runs = {d: [run_chains(sampler, problems, seed=1, draws=draws, devices=d) for _ in range(6)] for d in (1, 2)}
        seconds = {d: float(np.median([r.seconds for r in runs[d][1:]])) for d in runs}
        same = bool(np.array_equal(runs[1][0].draws, runs[2][0].draws))
        out[sampler.name] = {"seconds": seconds, "ratio": seconds[1] / seconds[2], "same_bits": same}
        print(
            f"{sampler.name}: 1 device {seconds[1]:.3f} s, 2 devices {seconds[2]:.3f} s, ratio {seconds[1] / seconds[2]:.2f}, same bits {same}"
        )
    return out


# ---- killed runs ---------------------------------------------------------------------------------------------
def kills(quick: bool) -> dict:
    """kill -9 at random moments of a run, resumed each time."""
    import scale_run as scale

    wanted, rng, done, attempts = (2 if quick else 10), np.random.default_rng(0), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        config, cache = Path(folder) / "config.toml", Path(folder) / "cache"
        config.write_text(scale.CONFIG)
        scale.finish(scale.start(config, Path(folder) / "whole", cache=cache))
        whole, equal, runs = scale.results(Path(folder) / "whole"), [], 0
        while done < wanted:
            output, options = Path(folder) / f"run{runs}", ["--checkpoint", "0.02"]
            runs += 1
            for _ in range(3):
                process = scale.start(config, output, *options, cache=cache)
                attempts += 1
                killed = scale.kill_after(process, rng.uniform(0.1, 6.0), begun=output / "run.json")
                done += killed
                options = ["--checkpoint", "0.02", "--resume"]
                if not killed:
                    break
            scale.finish(scale.start(config, output, *options, cache=cache))
            equal.append(scale.same(whole, scale.results(output)))
    print(f"killed {done} times over {runs} runs; resumed runs equal the undisturbed one: {equal}")
    return {"kills": done, "runs": runs, "equal": equal}


# ---- commands and compilation --------------------------------------------------------------------------------
FIT = "import sys; from dpjax.cli.app.app import main; sys.exit(main(['fit', sys.argv[1]]))"


def commands(quick: bool) -> dict:
    """Wall seconds of whole processes."""
    with tempfile.TemporaryDirectory() as folder:
        release = Path(folder) / "release.json"
        release.write_text(json.dumps(RELEASE))

        def seconds(code, *arguments, cache):
            start = time.perf_counter()
            python(code, *arguments, cache=cache)
            return time.perf_counter() - start

        cache = str(Path(folder) / "cache")
        out = {"fit_cold": seconds(FIT, str(release), cache=cache)}
        out["fit_warm"] = float(np.median([seconds(FIT, str(release), cache=cache) for _ in range(1 if quick else 3)]))
        out["import"] = float(np.median([seconds("import dpjax", cache="off") for _ in range(5)]))
    print("seconds: " + ", ".join(f"{k} {v:.2f}" for k, v in out.items()))
    return out


COMPILE = """
import sys
from dpjax._base.runtime import prepare_jax
prepare_jax()
import dpjax
print(dpjax.precompile(features=int(sys.argv[1]), trials=300).seconds)
"""


def compilation(quick: bool) -> dict:
    """Seconds to compile `collapsed` for 300 problems, without a cache and with a warm one."""
    out = {}
    for features in (1,) if quick else (1, 2, 4, 9):
        with tempfile.TemporaryDirectory() as cache:
            cold = [float(python(COMPILE, str(features), cache="off")) for _ in range(1 if quick else 2)]
            python(COMPILE, str(features), cache=cache)
            warm = [float(python(COMPILE, str(features), cache=cache)) for _ in range(1 if quick else 3)]
        out[str(features)] = {"cold": float(np.median(cold)), "warm": float(np.median(warm))}
        print(f"{features} features: compile {np.median(cold):.2f} s, warm cache {np.median(warm):.2f} s")
    return out


# ---- formats of checkpoints ----------------------------------------------------------------------------------
FORMATS = """
import json, sys, tempfile, time
from pathlib import Path
import numpy as np
import jax
jax.devices()
arrays = {f"leaf_{i}": np.random.default_rng(i).normal(size=(64, 1250 * 8)).astype(np.float32) for i in range(8)}
out = {}
def timed(f, n=5):
    spent = []
    for _ in range(n):
        start = time.perf_counter(); f(); spent.append(time.perf_counter() - start)
    return float(np.median(spent))
with tempfile.TemporaryDirectory() as folder:
    folder = Path(folder)
    start = time.perf_counter()
    from dpjax.engine.checkpoint import Checkpoint
    out["numpy"] = {"import": time.perf_counter() - start}
    point = Checkpoint(folder, "x", 0.0)
    point.open({}, ())
    out["numpy"] |= {"write": timed(lambda: point.keep_state(0, arrays)), "read": timed(lambda: point._read(point._path("state")))}
    out["numpy"]["files"] = len(list(folder.rglob("*")))
    try:
        start = time.perf_counter()
        import orbax.checkpoint as ocp
        out["orbax"] = {"import": time.perf_counter() - start, "version": ocp.__version__}
        number = [0]
        saver = ocp.StandardCheckpointer()
        def write():
            number[0] += 1
            saver.save(folder / f"o{number[0]}", arrays); saver.wait_until_finished()
        out["orbax"]["write"] = timed(write)
        out["orbax"]["read"] = timed(lambda: saver.restore(folder / "o1"))
        out["orbax"]["files"] = len([p for p in (folder / "o1").rglob("*") if p.is_file()])
        files = sorted((p for p in (folder / "o1").rglob("*") if p.is_file()), key=lambda p: -p.stat().st_size)
        content = bytearray(files[0].read_bytes()); content[len(content) // 2] ^= 1; files[0].write_bytes(bytes(content))
        try:
            back = saver.restore(folder / "o1")
            same = all(np.array_equal(back[k], arrays[k]) for k in arrays)
            out["orbax"]["flipped_bit"] = "not seen" if not same else "no effect"
        except Exception as error:
            out["orbax"]["flipped_bit"] = "refused: " + type(error).__name__
    except ImportError:
        out["orbax"] = None
print(json.dumps(out))
"""


def formats(quick: bool) -> dict:
    """NumPy's format and Orbax."""
    out = json.loads(python(FORMATS).splitlines()[-1])
    for name, row in out.items():
        print(name, row)
    return out


PARTS = {
    "compile": compilation, "commands": commands, "devices": devices, "kills": kills, "formats": formats,
    "million": million,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=None, help="JSON file to write")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--only", nargs="*", default=list(PARTS), choices=list(PARTS))
    options = parser.parse_args()
    os.environ.setdefault("DPJAX_CACHE", "off")
    prepare_jax()
    from run import machine, save

    results = {"machine": machine()}
    for name in options.only:
        print(f"\n== {name}")
        results[name] = PARTS[name](options.quick)
        save(results, options.output)
    print(f"\npeak memory of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
