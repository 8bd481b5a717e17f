"""Social mobility case study (Bernstein 2020, section 5.4): python experiments/thesis_ch5/run.py [config.toml] --output
DIR

One private regression per neighbourhood, all of them in one call per method; figures 5.11 to 5.16 as PNG, all
numbers in results.json and a table. Then cells simulated from the priors. Needs oi_simulated_cells.csv in the folder
that DPJAX_DATA names; the noise is seeded: nothing here protects anybody, and nobody is in these data.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from _common import find_table
from mobility_data import HERE, ORIGIN, output_perturbation, read_cells, read_config

from dpjax._base import files, runtime
from dpjax.errors import DpjaxError, InputError

COLUMNS = (
    "epsilon",
    "method",
    "MAE",
    "50%",
    "90%",
    "line 50%",
    "line 90%",
    "width",
    "diagonal",
    "within 1",
    "top",
    "bottom",
)


def study(config: Any, folder: Path, figures: bool = True) -> dict[str, Any]:
    """Run everything; figures go to `folder`. Returns what results.json holds."""
    import numpy as np
    from mobility_figures import draw_all
    from mobility_simulated import judge, simulate_and_cover
    from mobility_study import fit_all, score, score_points, skipped

    start = time.perf_counter()
    said = lambda text: print(f"{time.perf_counter() - start:6.1f} s  {text}", file=sys.stderr)
    cells, dropped = read_cells(find_table(config.data.file, ORIGIN), config.data.median_inside)
    size = np.array([len(cell["kid_rank"]) for cell in cells])
    oi = output_perturbation(cells, config)
    missing = skipped([*config.methods, *config.simulated.replicates])
    results: dict[str, Any] = {
        "versions": runtime.versions(),
        "machine": runtime.machine(),
        "cells": len(cells),
        "left_out": dropped,
        "records": int(size.sum()),
        "sizes": {"min": int(size.min()), "median": float(np.median(size)), "max": int(size.max())},
        "simulated_noise": True,
        "skipped": missing,
        "oi": {"formally_private": False, "chi": oi.chi, "records_of_the_cell_that_sets_chi": int(size[oi.cell])},
        "priors": {},
        "by_cell": {"size": size.tolist()},
    }
    for name, prior in config.priors.items():
        posteriors = fit_all(cells, config, prior, lambda text, name=name: said(f"prior {name}, {text}"))
        scores, kept = score(posteriors, cells, config)
        scores["oi"] = {
            f"{epsilon:g}": score_points(oi.points[epsilon], kept["reference"], size) for epsilon in config.epsilon
        }
        results["priors"][name] = {"prior": prior, "methods": scores}
        results["by_cell"][name] = {
            "non-private": np.round(kept["reference"], 4).tolist(),
            **{m: np.round(points, 4).tolist() for m, points in kept["points"].items()},
        }
        if figures:
            drawn = {m: scores[m] for m in posteriors}
            draw_all(folder, name, drawn, kept, oi, cells, config)
            said(f"prior {name}, figures")
    if config.simulated.replicates:
        found = {}
        for i, (name, prior) in enumerate(config.priors.items(), start=1):
            found[name] = simulate_and_cover(size, config, prior, config.seed + 1000 * i)
            said(f"prior {name}, simulated cells")
        results["simulated"] = {"priors": found, "verdict": judge(found, config)}
    return results


def shortened(results: dict[str, Any], config: Any) -> dict[str, Any]:
    """Without the points of single cells, and with the confusion matrices of one epsilon only."""
    shown = f"{config.figures.epsilon:g}"

    def without(value: Any, epsilon: str = shown) -> Any:
        if not isinstance(value, dict):
            return value
        names = {f"{e:g}" for e in config.epsilon}
        return {
            key: without(entry, key if key in names else epsilon)
            for key, entry in value.items()
            if key != "by_cell" and (key != "matrix" or epsilon == shown)
        }

    return without(results)


def table(results: dict[str, Any], config: Any) -> str:
    """The numbers as text."""
    lines = [
        f"{results['cells']} cells, {results['records']} records, {results['sizes']['min']} to "
        f"{results['sizes']['max']} per cell; {results['left_out']} cells left out. Simulated noise.",
        f"oi is NOT formally differentially private (local sensitivity; chi = {results['oi']['chi']:.3f} is the "
        "maximum over the data).",
        *results["skipped"].values(),
    ]
    low, high = (f"{level:g}" for level in (min(config.levels), max(config.levels)))
    for name, found in results["priors"].items():
        methods = found["methods"]
        own = methods["non-private"]["records_inside"]
        lines += [
            "",
            f"prior {name}: non-private {float(high):.0%} interval holds {own[high]:.1%} of the records",
            "".join(c.rjust(10) for c in COLUMNS),
        ]
        for epsilon in (f"{e:g}" for e in config.epsilon):
            for method, rows in methods.items():
                if method == "non-private":
                    continue
                row = rows[epsilon] if method == "oi" else rows["epsilon"][epsilon]
                intervals = ["-"] * 5
                if method != "oi":
                    intervals = [f"{row[k][v]:.3f}" for k in ("coverage", "line_coverage") for v in (low, high)]
                    intervals.append(f"{row['width'][high]:.3f}")
                shares = [row["deciles"][k] for k in ("diagonal", "within_one", "top_kept", "bottom_kept")]
                text = [epsilon, method, f"{row['mae']:.4f}", *intervals, *(f"{v:.2f}" for v in shares)]
                lines.append("".join(c.rjust(10) for c in text))
        lines += [
            f"{method}: {rows['regressions']} regressions in {rows['seconds']:.2f} s, {rows['reruns']} run again"
            for method, rows in methods.items() if "regressions" in rows
        ]  # fmt: skip
    if "simulated" in results:
        verdict = results["simulated"]["verdict"]
        lines += ["", "simulated cells, coverage of the true line and of a fresh response; bands:"]
        lines += [
            f"  {method}: " + ", ".join(f"{float(v):.0%} {a:.3f} to {b:.3f}" for v, (a, b) in bands.items())
            for method, bands in verdict["bands"].items()
        ]
        for name, found in results["simulated"]["priors"].items():
            for method, rows in found.items():
                for epsilon, row in rows["epsilon"].items():
                    shares = [f"{row[t][v]:.3f}".rjust(8) for t in ("line", "y") for v in (low, high)]
                    lines.append(
                        f"{name:>10}{method:>14}{epsilon:>8}  line{''.join(shares[:2])}  y{''.join(shares[2:])}"
                    )
        lines.append(f"outside of their bands: {len(verdict['outside'])} of {verdict['comparisons']}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; 0, or 2 for bad input with one line on standard error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", default=str(HERE / "config.toml"))
    parser.add_argument("--output", required=True, help="folder for results.json, results.txt and the figures")
    parser.add_argument("--force", action="store_true", help="write into a folder that is not empty")
    parser.add_argument("--keep", help="also write a short results.json to this file: no points of single cells")
    given = parser.parse_args(arguments)
    start = time.perf_counter()
    try:
        config = read_config(given.config)
        find_table(config.data.file, ORIGIN)
        folder = Path(given.output)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())) and not given.force:
            raise InputError(f"output {folder}: is there and not an empty folder; use --force, or another name")
        folder.mkdir(parents=True, exist_ok=True)
        runtime.prepare_jax()
        results = study(config, folder)
    except DpjaxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    results["seconds"] = time.perf_counter() - start
    text = table(results, config) + f"\n{results['seconds']:.0f} s in all"
    print(text)
    (folder / "results.txt").write_text(text + "\n")
    files.write_json(folder / "results.json", results, force=True)
    if given.keep:
        files.write_json(given.keep, shortened(results, config), force=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
