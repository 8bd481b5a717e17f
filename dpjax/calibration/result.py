"""What a calibration study found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpjax.calibration import statistics
from dpjax.calibration.ranks import Ranks


@dataclass
class Calibration:
    """Result of a calibration study of one method.

    cells: dicts in the layout of `calibration.json`; ranks: per cell, for figures; settings: what was simulated.
    """

    method: str
    cells: list[dict[str, Any]]
    ranks: list[Ranks]
    seconds: float
    compile_seconds: float
    rerun_seconds: float
    ess_per_second: float
    chains_in_call: int
    settings: dict[str, Any]

    def verdict(self, min_records: int = 0) -> dict[str, Any]:
        """Family-wise verdict over the cells (`dpjax.calibration.statistics.verdict`)."""
        return statistics.verdict(self.cells, min_records=min_records)

    def warnings(self, options: bool = True) -> list[str]:
        """Sentences about trials whose draws should not be trusted; empty when at most 1 in 1,000 is doubtful.

        About convergence only: a rejected uniformity is a finding, not a doubt about the computation.

        Args:
            options: whether advice names options of the command, too.
        """
        advice = "run more draws (--draws) and chains (--chains)" if options else "run more draws and chains"
        trials = sum(cell["trials"] + cell["failed"] for cell in self.cells)
        allowed = max(1.0, 0.001 * trials)
        share = lambda name: sum(cell[name] * (cell["trials"] + cell["failed"]) for cell in self.cells)
        counts = {
            "failed (numbers that are not finite)": (sum(cell["failed"] for cell in self.cells), 0.0),
            "have R-hat > 1.05": (share("rhat_above_1_05"), allowed),
            "have a smallest ESS under 50": (share("min_ess_below_50"), allowed),
        }
        return [
            f"{self.method}: {count:.0f} of {trials} trials {what}; {advice}"
            for what, (count, limit) in counts.items()
            if count > limit + 1e-9
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data; a single cell's fields also stand at the top level."""
        out: dict[str, Any] = dict(self.cells[0]) if len(self.cells) == 1 else {}
        return out | {
            "method": self.method,
            "cells": self.cells,
            "seconds": self.seconds,
            "compile_seconds": self.compile_seconds,
            "rerun_seconds": self.rerun_seconds,
            "ess_per_second": self.ess_per_second,
            "chains_in_call": self.chains_in_call,
            "verdict": self.verdict(),
            "over_cells": self.over_cells(),
            "warnings": self.warnings(),
            "settings": self.settings,
        }

    def over_cells(self) -> dict[str, float]:
        """The figures under the table: smallest median min-ESS, averages over cells, reruns in all."""
        return {
            "min_ess_median": float(min(c["min_ess_median"] for c in self.cells)),
            "min_ess_below_50": float(np.mean([c["min_ess_below_50"] for c in self.cells])),
            "rhat_above_1_05": float(np.mean([c["rhat_above_1_05"] for c in self.cells])),
            "reruns": int(sum(c["reruns"] for c in self.cells)),
        }

    def table(self) -> str:
        """One line per cell and parameter, then the verdict."""
        head = ("records", "epsilon", "parameter", "KS", "critical", "p", "cov 50%", "80%", "90%", "95%")
        rows: list[tuple[str, ...]] = []
        for cell in self.cells:
            for name, row in cell["parameters"].items():
                cover = tuple(f"{row['coverage'][level]:.3f}" for level in ("0.5", "0.8", "0.9", "0.95"))
                rows.append(
                    (f"{cell['records']:g}", f"{cell['epsilon']:g}", name, f"{row['ks']:.4f}",
                     f"{row['ks_critical']:.4f}", f"{row['p_value']:.3g}", *cover)
                )  # fmt: skip
        widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
        lines = ["  ".join(x.rjust(w) for x, w in zip(r, widths, strict=True)) for r in [head, *rows]]
        verdict = self.verdict()
        over = self.over_cells()
        several = [cell["multimodal"] for cell in self.cells if "multimodal" in cell]
        if several and max(several) > 0:
            lines += ["", f"posteriors given the release that have several modes: up to {max(several):.1%} of a cell"]
        lines += ["", *([self.settings["study"]] if "study" in self.settings else [])]
        lines += [
            f"method {self.method}: {self.chains_in_call} chains in one call, {self.seconds:.2f} s "
            f"(compile {self.compile_seconds:.1f} s), {self.ess_per_second:,.0f} ESS/s, "
            f"{over['reruns']} problems rerun in {self.rerun_seconds:.2f} s",
            f"median min-ESS (worst cell) {over['min_ess_median']:.0f}; "
            f"min-ESS < 50: {over['min_ess_below_50']:.4f}; "
            f"R-hat > 1.05: {over['rhat_above_1_05']:.4f}",
            f"uniformity at family-wise 1% (Holm): {'not rejected' if verdict['uniformity_passed'] else 'REJECTED'}; "
            f"95% coverage in its family-wise 99.9% band: {'yes' if verdict['coverage_passed'] else 'NO'}",
        ]
        return "\n".join(lines)
