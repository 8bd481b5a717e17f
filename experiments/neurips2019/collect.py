"""Keep the numbers of finished runs: python collect.py FOLDER, that of the outputs of the commands in README.md

Writes results/NAME.json, with every cell of every method of a study, copies the pictures that README.md shows, and
prints the tables of README.md.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from PIL import Image

HERE = Path(__file__).parent
CELL = ("records", "epsilon", "trials", "failed", "parameters", "min_ess_median", "min_ess_below_50", "rhat_above_1_05",
        "reruns", "mmd")  # fmt: skip
METHOD = ("seconds", "compile_seconds", "rerun_seconds", "ess_per_second", "chains_in_call", "verdict")
OTHERS = {"cirrhosis": "results.json", "seconds": "seconds.json"}
PICTURES = ("figure3/ks.png", "figure3/coverage.png", "figure3/mmd.png", "figure3/calibration_n10_eps0.1.png",
            "cirrhosis/cirrhosis.png", "seconds/seconds.png")  # fmt: skip
#: What all methods report, and the paper judges.
SHOWN = ("theta[0]", "theta[1]", "sigma2")


def short(value: Any) -> Any:
    """Numbers with five significant digits, the same structure."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: short(item) for key, item in value.items()}
    return [short(item) for item in value] if isinstance(value, list) else value


def shortened(result: dict) -> dict:
    """The part of a calibration that the page quotes."""
    kept = {k: result[k] for k in METHOD if k in result}
    return kept | {"cells": [{k: cell[k] for k in CELL if k in cell} for cell in result["cells"]]}


def tables(name: str, kept: dict) -> str:
    """KS and 95% coverage of theta and sigma2 by cell and method, and a line per method."""
    methods = kept["calibration"]
    first = next(iter(methods.values()))["cells"]
    lines = [f"### {name}", "", "| n | epsilon | " + " | ".join(methods) + " |", "|" + "---|" * (len(methods) + 2)]
    for i, cell in enumerate(first):
        texts = []
        for item in methods.values():
            rows = [item["cells"][i]["parameters"][p] for p in SHOWN]
            cover = [row["coverage"]["0.95"] for row in rows]
            texts.append(f"{max(row['ks'] for row in rows):.3f}, {min(cover):.2f}-{max(cover):.2f}")
        lines.append(f"| {cell['records']:,} | {cell['epsilon']:g} | " + " | ".join(texts) + " |")
    head = ("method", "uniformity (adjusted p)", "95% coverage", "run again", "R-hat > 1.05", "ESS < 50", "run, s",
            "compilation, s", "wall, s")  # fmt: skip
    lines += ["", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for method, item in methods.items():
        found, cells = item["verdict"], item["cells"]
        share = lambda key: sum(c[key] * (c["trials"] + c["failed"]) for c in cells)  # noqa: B023
        outside = len(found["coverage_outside"])
        uniform = "not rejected" if found["uniformity_passed"] else "rejected"
        wall = kept["wall_seconds"].get(f"calibration {method}", float("nan"))
        lines.append(
            f"| {method} | {uniform} ({found['smallest_adjusted_p']:.2g}) "
            f"| {f'{outside} outside' if outside else 'in its band'} "
            f"| {sum(c['reruns'] for c in cells)} | {share('rhat_above_1_05'):.0f} | {share('min_ess_below_50'):.0f} "
            f"| {item['seconds']:.1f} | {item['compile_seconds']:.1f} | {wall:.1f} |"
        )
    rest = ", ".join(f"{k} {v:.1f}" for k, v in kept["wall_seconds"].items() if not k.startswith("calibration"))
    return "\n".join([*lines, "", f"{kept['seconds']:.0f} s in all; {rest}", ""])


def main() -> None:
    """Collect what is there."""
    runs, target = Path(sys.argv[1]), HERE / "results"
    target.mkdir(exist_ok=True)
    for source in sorted(runs.glob("figure3*/results.json")):
        found = json.loads(source.read_text())
        kept = {key: found[key] for key in ("name", "seconds", "wall_seconds", "versions", "machine")}
        kept["calibration"] = {method: shortened(result) for method, result in found["calibration"].items()}
        (target / f"{source.parent.name}.json").write_text(json.dumps(short(kept)) + "\n")
        print(tables(source.parent.name, kept))
    for name, file in OTHERS.items():
        if (runs / name / file).exists():
            content = json.loads((runs / name / file).read_text())
            (target / f"{name}.json").write_text(json.dumps(short(content), indent=1) + "\n")
    for picture in PICTURES:
        if (runs / picture).exists():
            with Image.open(runs / picture) as image:  # a third of the size, and no difference to the eye
                small = image.convert("RGB").quantize(64)
            small.save(target / picture.replace("/", "_"), optimize=True)


if __name__ == "__main__":
    main()
