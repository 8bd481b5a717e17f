"""Seconds per posterior against the number of records (Bernstein and Sheldon 2019, Figure 3f):

    python experiments/neurips2019/seconds.py --output DIR [--individual 2] [--trials 300]

Runs every method of figure3.toml, gibbs as in figure3_gibbs.toml and individual as in figure3_individual.toml, for each
number of records by itself, at epsilon = .1 as in the paper. Compilation apart. Writes seconds.json and seconds.png.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from dpjax._base import files, runtime
from dpjax.errors import DpjaxError, InputError
from dpjax.runner import config

HERE = Path(__file__).parent
EPSILON, LONGEST = 0.1, 100  # individual goes up to this many records


def measure(trials: int, individual: int) -> dict[str, Any]:
    """Seconds per posterior and per 1,000 effective draws, and chains, by method and number of records."""
    from dpjax.inference.run_method import run_method
    from dpjax.runner.checks import Prepared
    from dpjax.runner.work import choose

    found: dict[str, Any] = {}
    for name in ("figure3", "figure3_gibbs", "figure3_individual"):
        typed, base = config.load(HERE / f"{name}.toml")
        prepared = Prepared(typed, base)
        section = prepared.study
        for method in section.methods:
            alone = method == "individual"
            records = [n for n in section.records if n <= LONGEST or not alone]
            for n in records if method not in found and (individual or not alone) else ():
                study = prepared.design.study([(n, EPSILON)], individual if alone else trials, typed.seed)
                chosen = choose(section, method)
                run = run_method(method, study.problems, seed=typed.seed + 1, **chosen)
                ess = float(run.diagnostics.min_ess.mean())
                found.setdefault(method, {})[str(n)] = {
                    "seconds": run.seconds / len(study.problems), "compile_seconds": run.compile_seconds,
                    "seconds_per_1000_effective": 1000 * run.seconds / len(study.problems) / ess,
                    "problems": len(study.problems), "chains": chosen["chains"], "draws": chosen["draws"],
                    "smallest_ess_mean": ess, "largest_rhat": float(run.diagnostics.max_rhat.max()),
                    "reruns": run.reruns,
                }  # fmt: skip
                print(f"{method:12} n = {n:5}  {found[method][str(n)]['seconds']:.5f} s per posterior", flush=True)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; 0, or 2 for bad input with one line on standard error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", required=True, help="folder for seconds.json and seconds.png")
    parser.add_argument("--trials", type=int, default=300, help="posteriors of each method and number of records")
    parser.add_argument("--individual", type=int, default=2, help="those of individual; 0 leaves it out")
    parser.add_argument("--force", action="store_true", help="write into a folder that is not empty")
    given = parser.parse_args(arguments)
    try:
        folder = Path(given.output)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())) and not given.force:
            raise InputError(f"output {folder}: is there and not an empty folder; use --force, or another name")
        if given.trials < 1 or given.individual < 0:
            raise InputError("trials must be at least 1 and individual at least 0")
        runtime.prepare_jax()
        found = measure(given.trials, given.individual)
        from dpjax.figures.study import seconds_figure
        from dpjax.figures.style import save_figure

        folder.mkdir(parents=True, exist_ok=True)
        shown = {method: {int(n): row["seconds"] for n, row in rows.items()} for method, rows in found.items()}
        save_figure(seconds_figure(shown), folder / "seconds.png", True)
        results = {"epsilon": EPSILON, "versions": runtime.versions(), "machine": runtime.machine(), "methods": found}
        files.write_json(folder / "seconds.json", results, True)
    except DpjaxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
