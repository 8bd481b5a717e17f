"""Gather the calibrations of parties into one file: python collect.py DIR [DIR ...] --output results/calibration.json

Every DIR is an output of `dpjax run calibration_J_P.toml`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def holm(p_values: list[float]) -> float:
    """Smallest p-value, adjusted for the number of parameters by Holm's (here Bonferroni's) step."""
    return min(1.0, min(p_values) * len(p_values))


def rows(folder: Path) -> list[dict]:
    """One row per method of a run."""
    found = []
    for file in sorted(folder.glob("calibration_*.json")):
        content = json.loads(file.read_text())
        (cell,) = content["cells"]
        parameters = cell["parameters"]
        theta = [name for name in parameters if name.startswith("theta")]
        coverage = lambda level, names: [parameters[name]["coverage"][level] for name in names]  # noqa: B023
        found.append({
            "parties": content["settings"]["parties"], "features": len(theta), "method": content["method"],
            "adjusted_p": holm([p["p_value"] for p in parameters.values()]),
            "ks_largest": max(p["ks"] for p in parameters.values()), "ks_critical": parameters[theta[0]]["ks_critical"],
            "coverage_95": [min(coverage("0.95", parameters)), max(coverage("0.95", parameters))],
            "coverage_90_theta": [min(coverage("0.9", theta)), max(coverage("0.9", theta))],
            "min_ess_median": cell["min_ess_median"], "rhat_above_1_05": cell["rhat_above_1_05"],
            "ess_per_second": content["ess_per_second"], "seconds": content["seconds"],
        })  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    found = [row for folder in arguments.folders for row in rows(folder)]
    found.sort(key=lambda r: (r["method"], r["features"], r["parties"]))
    for r in found:
        print(f"| {r['method']} | {r['parties']} | {r['features']} | {r['adjusted_p']:.3g} | {r['ks_largest']:.3f} | "
              f"{r['coverage_95'][0]:.3f}-{r['coverage_95'][1]:.3f} | "
              f"{r['coverage_90_theta'][0]:.3f}-{r['coverage_90_theta'][1]:.3f} | {r['min_ess_median']:.0f} | "
              f"{r['rhat_above_1_05']:.3f} |")  # fmt: skip
    arguments.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
