"""Keep the numbers of finished runs: python collect.py RESULTS_FOLDER (of `dpjax run`, by config) FAMILIES_FOLDER

Writes results/NAME.json with every cell of every method, and copies ks.png, mmd.png and traces.png.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
CELL = ("records", "epsilon", "trials", "failed", "parameters", "min_ess_median", "min_ess_below_50", "rhat_above_1_05",
        "reruns", "mmd", "multimodal")  # fmt: skip
METHOD = ("seconds", "compile_seconds", "ess_per_second", "chains_in_call", "verdict", "settings")


def shortened(result: dict) -> dict:
    """The part of a calibration that the page quotes."""
    return {k: result[k] for k in METHOD if k in result} | {
        "cells": [{k: cell[k] for k in CELL if k in cell} for cell in result["cells"]]
    }


def main() -> None:
    """Collect what is there."""
    runs, families = Path(sys.argv[1]), Path(sys.argv[2])
    for folder in sorted(runs.iterdir()):
        if not (folder / "results.json").exists():
            continue
        found = json.loads((folder / "results.json").read_text())
        kept = {key: found[key] for key in ("name", "seconds", "versions", "machine")}
        kept["calibration"] = {method: shortened(result) for method, result in found["calibration"].items()}
        if kept["calibration"]:
            (HERE / "results" / f"{folder.name}.json").write_text(json.dumps(kept, indent=1) + "\n")
        for picture in ("ks.png", "mmd.png", "traces.png", "calibration_n1000_eps0.01.png"):
            if (folder / picture).exists() and not folder.name.endswith("_paper"):
                shutil.copy(folder / picture, HERE / "results" / f"{folder.name}_{picture}")
    kept = {path.stem: shortened(json.loads(path.read_text())) for path in sorted(families.glob("*.json"))}
    (HERE / "results" / "families.json").write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
