"""What Zhang and Reiter's discussion of Bernstein and Sheldon 2019 says, measured: python
experiments/zhang_reiter/run.py --output DIR

Parts, all by default: `tables` (Tables 1 and 2), `low` (Cases 1-3), `high` (Cases 4 and 5), `cost` (of a gradient by
number of features), `figure2` (plug-in estimates). Each writes its JSON into the folder when it is done. The noise is
seeded: nothing here protects anybody, and nobody is in these data. DPJAX_CACHE=off makes every row of the tables pay
for its compilation.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

# LAPACK's own threads wait for each other where cores are shared: a Cholesky factor then takes up to 100 times longer
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from zr_data import HERE, Config, read_config

from dpjax._base import files, runtime
from dpjax.errors import DpjaxError, InputError

PARTS = ("tables", "low", "high", "cost", "figure2")


def study(config: Config, part: str, records: list[int] | None = None) -> dict[str, Any]:
    """Run one part. Returns what its JSON file holds.

    Args:
        part: one of `PARTS`.
        records: of the tables, only the rows with these numbers.
    """
    import zr_cost
    import zr_plug_in
    import zr_posteriors

    start = time.perf_counter()
    said = lambda text: print(f"{time.perf_counter() - start:6.1f} s  {text}", file=sys.stderr)
    head = {"versions": runtime.versions(), "machine": runtime.machine(), "simulated_noise": True}
    head |= {"epsilon": config.epsilon, "cache": str(os.environ.get(runtime.CACHE_VARIABLE, "")) != "off"}
    if part == "tables":
        head["rows"] = zr_posteriors.tables(config, said, records)
    elif part == "low":
        head["rows"] = zr_posteriors.low_cases(config, said)
    elif part == "high":
        head["rows"] = zr_posteriors.high_cases(config, said)
    elif part == "cost":
        head["rows"] = zr_cost.costs(config, said)
        head["exponents"] = zr_cost.growth(head["rows"])
    else:
        head["rows"] = zr_plug_in.plug_in_errors(config, said)
    return head | {"seconds": time.perf_counter() - start}


def text_of(part: str, found: dict[str, Any]) -> str:
    """The numbers of a part as text."""
    rows, lines = found["rows"], []
    for r in rows:
        if part == "figure2":
            lines.append(f"n = {r['n']:>9}  " + "  ".join(f"{k} {v[1]:.3f}" for k, v in r["errors"].items()))
            continue
        if part == "cost":
            lines.append(
                f"p = {r['p']:>3}  {r['milliseconds']:.3f} ms, gradient {r['milliseconds_of_the_gradient']:.3f} ms"
            )
            continue
        lines.append(
            f"n = {r['n']:>8}  p = {r['p']:>3}  {r['seconds']:8.1f} s ({r['compile_seconds']:.1f} compiling)  "
            f"R-hat {r['largest_rhat']:.4f}  ESS {r['smallest_ess']:.0f}  {'ok' if r['converged'] else 'NOT CONVERGED'}"
        )
        if part == "low":
            lines.append(f"    first: {r['first']}\n    all:   {r['all']}")
        else:
            lines[-1] += f"  covers theta* {r['covers_truth']:.2f}, 0 {r['covers_0']:.2f}, width {r['mean_width']:.2f}"
    if part == "cost":
        lines.append("exponent of p: " + json.dumps(found["exponents"]))
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; 0, 1 if something has not converged, or 2 for bad input with one line on standard
    error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", default=str(HERE / "config.toml"))
    parser.add_argument("--output", required=True, help="folder for PART.json and figure_2.png")
    parser.add_argument("--parts", default=",".join(PARTS), help="comma separated")
    parser.add_argument("--records", help="of the tables: only these rows, comma separated")
    parser.add_argument("--force", action="store_true", help="write over files of a former run")
    given = parser.parse_args(arguments)
    try:
        config = read_config(given.config)
        parts = given.parts.split(",")
        if unknown := [part for part in parts if part not in PARTS]:
            raise InputError(f"parts must be of {', '.join(PARTS)}; got {unknown[0]!r}")
        try:
            records = [int(n) for n in given.records.split(",")] if given.records else None
        except ValueError:
            raise InputError(f"records must be whole numbers; got {given.records!r}") from None
        if missing := sorted(set(records or ()) - {row.n for row in config.tables.rows}):
            raise InputError(f"records: the config has no row with {missing[0]}")
        folder = Path(given.output)
        if not given.force and any((folder / f"{part}.json").exists() for part in parts):
            raise InputError(f"output {folder}: holds results; use --force, or another folder")
        folder.mkdir(parents=True, exist_ok=True)
        runtime.prepare_jax()
        good = True
        for part in parts:
            found = study(config, part, records)
            files.write_json(folder / f"{part}.json", found, force=True)
            print(f"{part}\n{text_of(part, found)}", flush=True)
            good &= all(row.get("converged", True) for row in found["rows"])
        if "figure2" in parts:
            import zr_plug_in

            drawn = json.loads((folder / "figure2.json").read_text())["rows"]
            tables = folder / "tables.json"
            points = json.loads(tables.read_text())["rows"] if tables.exists() else []
            zr_plug_in.draw(drawn, points, folder / "figure_2.png", config)
    except DpjaxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
