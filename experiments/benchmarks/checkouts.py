"""Two checkouts of the project side by side in one run: sampling rates and seconds of compilation.

    python experiments/benchmarks/checkouts.py BEFORE [AFTER] [--rounds 5] [--output FILE]

Every round runs each checkout in a process of its own, by turns, so that a machine that is busy for a while is busy
for both. A process compiles and runs one study per row, then runs it again with other seeds; a figure is the median
over rounds of a process's median. Only calls are used that both checkouts have. Figures are the studies' own:
`seconds` of the compiled run with its reruns, `compile_seconds`, `ess_per_second` (smallest ESS over the parameters).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

ROWS: dict[str, dict] = {
    "collapsed, 1 feature": {"features": 1, "method": "collapsed"},
    "collapsed, 2 features": {"features": 2, "method": "collapsed"},
    "gibbs, 1 feature": {"features": 1, "method": "gibbs"},
    "collapsed, exponential": {"model": "exponential", "bounds": (0.0, 3.0), "method": "collapsed"},
}

WORKER = """
import json, statistics, sys, warnings
warnings.simplefilter("ignore")
import dpjax
row, repeats = json.loads(sys.argv[1]), int(sys.argv[2])
model = row.pop("model", "linear-regression")
if "bounds" in row:
    row["bounds"] = tuple(row["bounds"])
call = lambda seed: dpjax.calibrate(model, records=1000, epsilon=0.1, trials=300, mmd=False, seed=seed, **row)
first = call(0)
runs = [call(seed) for seed in range(1, repeats + 1)]
median = lambda name: statistics.median(getattr(run, name) for run in runs)
own = statistics.median(run.seconds - run.rerun_seconds for run in runs)
print(json.dumps({"compile_seconds": first.compile_seconds, "seconds": own, "ess_per_second": median("ess_per_second")}))
"""


def measured(checkout: Path, row: dict, repeats: int) -> dict[str, float]:
    """One process of one checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "DPJAX_CACHE": "off"}
    command = [sys.executable, "-c", WORKER, json.dumps(row), str(repeats)]
    done = subprocess.run(command, env=environment, cwd=checkout, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{checkout}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path, nargs="?", default=Path(__file__).resolve().parents[2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5, help="runs after the one that compiles")
    parser.add_argument("--only", nargs="*", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    table = {}
    print(f"{'':26s} {'':16s} {'before':>12s} {'after':>12s} {'after / before':>15s}")
    for name in given.only:
        both: dict[str, list] = {"before": [], "after": []}
        for turn in range(given.rounds):
            order = ("before", "after") if turn % 2 == 0 else ("after", "before")
            for which in order:
                both[which].append(measured(getattr(given, which).resolve(), ROWS[name], given.repeats))
        table[name] = {}
        for what in ("compile_seconds", "seconds", "ess_per_second"):
            before, after = (statistics.median(x[what] for x in both[which]) for which in ("before", "after"))
            table[name][what] = {"before": before, "after": after, "ratio": after / before}
            print(f"{name:26s} {what:16s} {before:12.4g} {after:12.4g} {after / before:15.3f}", flush=True)
    if given.output:
        about = {"cpus": os.cpu_count(), "processor": platform.processor(), "rounds": given.rounds}
        given.output.write_text(json.dumps({"machine": about, "rows": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
