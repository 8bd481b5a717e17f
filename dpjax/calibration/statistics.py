"""The numbers of a calibration study by cell, and verdicts over a whole table of cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import ks_1samp, uniform

from dpjax.calibration.mmd import MMD_NOTE, mmd_to_nonprivate
from dpjax.calibration.ranks import Ranks, rank_statistics
from dpjax.calibration.uniformity import binomial_band, coverage, holm, ks_critical
from dpjax.diagnostics.ranks import Diagnostics, diagnose


def summarise_cell(
    records: int,
    epsilon: float,
    names,
    draws,
    truth,
    *,
    nonprivate=None,
    diagnostics: Diagnostics | None = None,
    reruns: int = 0,
    keep: int = 100,
    seed: int = 0,
) -> dict[str, Any]:
    """One cell of `calibration.json`.

    Trials with a non-finite draw are left out of ranks, coverage and MMD and counted in "failed"; a table
    with failed trials is not calibrated whatever the other numbers say.

    Args:
        records: n of the cell.
        epsilon: privacy parameter of the cell.
        names: K parameter names.
        draws: [T, C, S, K], any units (those of `truth`).
        truth: [T, K].
        nonprivate: optional [T, C', S', K] draws of the posterior given the exact statistics, for the MMD.
        diagnostics: of `draws`; computed when not given.
        reruns: problems that were run again.
        keep, seed: of the randomised, thinned ranks.

    Returns:
        Dict with "records", "epsilon", "parameters": {name: {"ks", "ks_critical", "p_value", "coverage"}},
        "trials", "failed", "thinned_draws", "min_ess_median", "min_ess_below_50", "rhat_above_1_05",
        "rhat_below_1_01", "reruns", "mmd", "mmd_definition".
    """
    diagnostics = diagnose(draws, names) if diagnostics is None else diagnostics
    draws = np.asarray(draws)
    ok = np.isfinite(draws).all(axis=(1, 2, 3))
    mmd = None
    if nonprivate is not None and ok.any():
        mmd = float(mmd_to_nonprivate(draws[ok], np.asarray(nonprivate)[ok], keep).mean())
    ranks = rank_statistics(names, draws[ok], np.asarray(truth)[ok], keep=keep, seed=seed)
    return summarise_ranks(records, epsilon, ranks, diagnostics, failed=int((~ok).sum()), reruns=reruns, mmd=mmd)


def summarise_ranks(
    records: int,
    epsilon: float,
    ranks: Ranks,
    diagnostics: Diagnostics,
    *,
    failed: int = 0,
    reruns: int = 0,
    mmd: float | None = None,
) -> dict[str, Any]:
    """As `summarise_cell`, from ranks and diagnostics already at hand (streaming runs, figures)."""
    trials = ranks.pit.shape[0]
    parameters: dict[str, Any] = {}
    if trials:
        ks = ks_1samp(ranks.fractions, uniform.cdf, axis=0, method="exact").statistic
        # the test of uniformity is of randomised, thinned ranks, with the exact distribution of its statistic
        p_value = ks_1samp(ranks.pit, uniform.cdf, axis=0, method="exact").pvalue
        shares = coverage(ranks.fractions)
        for k, name in enumerate(ranks.names):
            parameters[name] = {
                "ks": float(ks[k]),
                "ks_critical": ks_critical(trials),
                "p_value": float(p_value[k]),
                "coverage": {level: float(share[k]) for level, share in shares.items()},
            }
    return {
        "records": int(records),
        "epsilon": float(epsilon),
        "parameters": parameters,
        "trials": trials,
        "failed": failed,
        "thinned_draws": ranks.thinned,
        "min_ess_median": float(np.median(diagnostics.min_ess)),
        "min_ess_below_50": float((diagnostics.min_ess < 50).mean()),
        "rhat_above_1_05": float((diagnostics.max_rhat > 1.05).mean()),
        "rhat_below_1_01": float((diagnostics.max_rhat < 1.01).mean()),
        "reruns": int(reruns),
        "mmd": mmd,
        "mmd_definition": None if mmd is None else MMD_NOTE,
    }


def verdict(
    cells: Sequence[Mapping[str, Any]],
    *,
    uniformity_level: float = 0.01,
    coverage_level: float = 0.95,
    coverage_probability: float = 0.999,
    min_records: int = 0,
) -> dict[str, Any]:
    """Family-wise verdict over a table of cells.

    Uniformity: Holm over all cells and parameters at `uniformity_level`. Coverage: every central interval of
    `coverage_level` inside the binomial band that all of them together leave with probability at most
    1 - `coverage_probability` (Bonferroni).

    Args:
        cells: as from `summarise_cell`.
        min_records: cells with fewer records are reported elsewhere and do not take part.

    Returns:
        Dict with "passed", "uniformity_passed", "coverage_passed", "tests", "failed" (trials without usable
        draws), "smallest_adjusted_p", "uniformity_rejected" and "coverage_outside" (lists of
        records, epsilon, parameter and the numbers).
    """
    level = f"{coverage_level:g}"
    cells = [cell for cell in cells if cell["records"] >= min_records]
    entries = [(cell, name, row) for cell in cells for name, row in cell["parameters"].items()]
    adjusted = holm([row["p_value"] for _, _, row in entries])
    rejected, outside = [], []
    for (cell, name, row), p in zip(entries, adjusted, strict=True):
        place = {"records": cell["records"], "epsilon": cell["epsilon"], "parameter": name}
        if p <= uniformity_level:
            rejected.append({**place, "p_value": row["p_value"], "adjusted_p": float(p)})
        low, high = binomial_band(cell["trials"], coverage_level, coverage_probability, len(entries))
        if not low <= row["coverage"][level] <= high:
            outside.append({**place, "coverage": row["coverage"][level], "band": [low, high]})
    failed = sum(cell.get("failed", 0) for cell in cells)
    return {
        "passed": bool(entries) and not rejected and not outside and failed == 0,
        "uniformity_passed": not rejected,
        "coverage_passed": not outside,
        "tests": len(entries),
        "failed": failed,
        "smallest_adjusted_p": float(adjusted.min()) if len(entries) else None,
        "uniformity_level": uniformity_level,
        "uniformity_rejected": rejected,
        "coverage_level": coverage_level,
        "coverage_outside": outside,
    }
