"""Statistics of a calibration study: ranks, uniformity, coverage, MMD and verdicts over a whole table.

Simulation-based calibration: a parameter drawn from the prior has a uniform rank among exact posterior draws
(Cook, Gelman and Rubin 2006; Talts et al. 2018). SPEC B13: the proof holds for continuous distributions, so
the test uses randomised ranks, and of thinned draws, since autocorrelated draws inflate KS.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.stats import binom, kstwo, uniform

from dpjax.diagnostics import Diagnostics, diagnose
from dpjax.errors import InputError, require

LEVELS = (0.5, 0.8, 0.9, 0.95)
KS_CRITICAL = 1.358  # times 1 / sqrt(trials): asymptotic 5% point of the Kolmogorov-Smirnov statistic
MMD_NOTE = (
    "unbiased squared MMD per trial over all parameters (of a regression theta and sigma2), averaged over trials; each "
    "parameter divided by the trial's non-private posterior sd; kernel exp(-d^2 / (2 K)), K parameters"
)


@dataclass(frozen=True)
class Ranks:
    """Where the truth falls among a trial's draws, M trials and K parameters.

    fractions: share of all draws below the truth (ties count half), [M, K].
    pit: randomised rank of the truth among about `thinned` evenly spaced draws, uniform on (0, 1), [M, K].
    """

    names: tuple[str, ...]
    fractions: np.ndarray
    pit: np.ndarray
    thinned: int


def thin_indices(chains: int, draws: int, keep: int = 100) -> np.ndarray:
    """Evenly spaced draw numbers within a chain, so that about `keep` draws over all chains remain."""
    per_chain = min(draws, max(1, round(keep / chains)))
    return ((np.arange(per_chain) + 0.5) * draws / per_chain).astype(np.int64)


def thin(draws, keep: int = 100) -> np.ndarray:
    """About `keep` evenly spaced draws over chains, [T, L, K], from [T, C, S, K]."""
    draws = np.asarray(draws)
    kept = draws[:, :, thin_indices(draws.shape[1], draws.shape[2], keep)]
    return kept.reshape(kept.shape[0], kept.shape[1] * kept.shape[2], kept.shape[3])


def rank_fractions(draws, truth) -> np.ndarray:
    """Share of all draws below the truth, ties counting half, [T, K] from [T, C, S, K] and [T, K]."""
    draws, truth = np.asarray(draws), np.asarray(truth)
    flat = draws.reshape(draws.shape[0], draws.shape[1] * draws.shape[2], draws.shape[3])
    # in the draws' own precision: a float64 truth never ties with a float32 draw that stands for it
    target = truth.astype(draws.dtype)[:, None]
    return ((flat < target).mean(axis=1) + (flat <= target).mean(axis=1)) / 2


def randomised_ranks(thinned, truth, seed: int = 0) -> np.ndarray:
    """Randomised PIT (rank + uniform) / (L + 1) of the truth among L thinned draws, uniform if calibrated.

    Ties with the truth (discrete posteriors) share the randomisation: (below + uniform (ties + 1)) / (L + 1).

    Args:
        thinned: [T, L, K].
        truth: [T, K].
        seed: seed of the uniforms.

    Returns:
        [T, K], in (0, 1).
    """
    thinned = np.asarray(thinned)
    target = np.asarray(truth).astype(thinned.dtype)[:, None]
    below = (thinned < target).sum(axis=1)
    ties = (thinned == target).sum(axis=1)
    u = np.random.default_rng(seed).uniform(size=below.shape)
    return (below + u * (ties + 1)) / (thinned.shape[1] + 1)


def rank_statistics(names, draws, truth, *, keep: int = 100, seed: int = 0) -> Ranks:
    """Rank fractions over all draws and randomised ranks of thinned draws.

    Args:
        names: K parameter names.
        draws: [T, C, S, K].
        truth: [T, K], the parameters the data were simulated with.
        keep: about how many draws the randomised ranks use.
        seed: seed of the randomisation.

    Raises:
        InputError: shapes do not fit.
    """
    draws, truth = np.asarray(draws), np.asarray(truth)
    if draws.ndim != 4 or truth.shape != (draws.shape[0], draws.shape[3]) or len(names) != draws.shape[3]:
        raise InputError(
            "draws, truth, names: shapes [T, C, S, K], [T, K] and K names are needed, "
            f"got {draws.shape}, {truth.shape} and {len(names)} names"
        )
    thinned = thin(draws, keep)
    pit = randomised_ranks(thinned, truth, seed)
    return Ranks(tuple(names), rank_fractions(draws, truth), pit, thinned.shape[1])


def ks_statistic(values) -> np.ndarray:
    """One-sample Kolmogorov-Smirnov distance to the uniform distribution, over the first axis."""
    ordered = np.sort(np.asarray(values, dtype=np.float64), axis=0)
    size = ordered.shape[0]
    grid = np.arange(size + 1).reshape((-1,) + (1,) * (ordered.ndim - 1)) / size
    return np.maximum((grid[1:] - ordered).max(axis=0), (ordered - grid[:-1]).max(axis=0))


def ks_critical(trials: int) -> float:
    """5% critical value of the KS statistic, 1.358 / sqrt(trials) (SPEC B13)."""
    return KS_CRITICAL / float(np.sqrt(trials))


def uniformity_p_value(pit) -> np.ndarray:
    """The uniformity test of `calibration.json`: one-sample two-sided KS test of randomised, thinned ranks.

    Uses the exact distribution of the statistic. [K] from [M, K].
    """
    pit = np.asarray(pit)
    return np.asarray(kstwo.sf(ks_statistic(pit), pit.shape[0]))


def coverage(fractions, levels: Sequence[float] = LEVELS) -> dict[str, np.ndarray]:
    """Share of trials whose central interval of each level holds the truth, {"0.95": [K], ...}."""
    distance = np.abs(np.asarray(fractions) - 0.5)
    return {f"{level:g}": (distance <= level / 2 + 1e-12).mean(axis=0) for level in levels}


def binomial_band(trials: int, level: float, probability: float = 0.999, family: int = 1):
    """Band that the coverage of a calibrated interval stays in, for `family` comparisons together.

    Args:
        trials: M.
        level: nominal coverage.
        probability: family-wise probability of staying inside (Bonferroni over `family`).
        family: number of comparisons.

    Returns:
        (lowest, highest) share of trials, both inside the band.
    """
    tail = (1 - probability) / (2 * max(family, 1))
    low, high = binom.ppf([tail, 1 - tail], trials, level)
    return float(low / trials), float(high / trials)


def holm(p_values) -> np.ndarray:
    """Holm's step-down adjusted p-values (1979), same shape; reject where at most the family-wise level.

    Raises:
        InputError: a value is not in [0, 1].
    """
    p = np.asarray(p_values, dtype=np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise InputError("p_values: numbers in [0, 1] are needed")
    flat = p.ravel()
    order = np.argsort(flat)
    stepped = np.maximum.accumulate(flat[order] * np.arange(flat.size, 0, -1)) if flat.size else flat
    adjusted = np.empty_like(flat)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted.reshape(p.shape)


def mmd_squared(x, y, bandwidth: float | str = 1.0) -> np.ndarray:
    """Unbiased squared maximum mean discrepancy, paired U-statistic with a Gaussian kernel (SPEC G1).

    Mean over i != j of k(x_i, x_j) + k(y_i, y_j) - k(x_i, y_j) - k(x_j, y_i), with
    k(a, b) = exp(-||a - b||^2 / (2 bandwidth^2)). It may be negative.

    Args:
        x, y: [T, L, K], L draws each of T pairs of K-dimensional distributions.
        bandwidth: a number, or "median": per trial, the median distance between the pooled draws.

    Returns:
        [T].
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x.ndim != 3 or x.shape != y.shape or x.shape[1] < 2:
        raise InputError(f"x, y: two arrays [T, L, K] with L at least 2 are needed, got {x.shape}, {y.shape}")
    trials, length = x.shape[:2]
    out = np.empty(trials)
    step = max(1, 1_000_000 // length**2)
    off = ~np.eye(length, dtype=bool)
    for start in range(0, trials, step):
        a, b = x[start : start + step], y[start : start + step]
        xx, yy, xy = _squared_distances(a, a), _squared_distances(b, b), _squared_distances(a, b)
        if bandwidth == "median":
            pooled = np.concatenate([xx[:, off], yy[:, off], xy.reshape(len(a), -1)], axis=1)
            width = np.median(pooled, axis=1)[:, None, None]
        else:
            width = float(bandwidth) ** 2
        kernel = np.exp(-xx / (2 * width)) + np.exp(-yy / (2 * width)) - 2 * np.exp(-xy / (2 * width))
        out[start : start + step] = kernel[:, off].mean(axis=1)
    return out


def mmd_to_nonprivate(draws, nonprivate, keep: int = 100) -> np.ndarray:
    """Squared MMD between each trial's private and non-private posterior, [T].

    SPEC G1: a unit bandwidth is blind to narrow posteriors, so every parameter is divided by the trial's
    non-private posterior sd; the bandwidth is then sqrt(K), that is, the kernel is exp(-d^2 / (2 K)).

    Args:
        draws: [T, C, S, K] private draws.
        nonprivate: [T, C', S', K] draws of the posterior given the exact statistics.
        keep: about how many thinned draws of each are compared.
    """
    nonprivate = np.asarray(nonprivate, dtype=np.float64)
    sd = nonprivate.reshape(nonprivate.shape[0], -1, nonprivate.shape[3]).std(axis=1, ddof=1)[:, None]
    x, y = thin(draws, keep) / sd, thin(nonprivate, keep) / sd
    length = min(x.shape[1], y.shape[1])
    return mmd_squared(x[:, :length], y[:, :length], bandwidth=float(np.sqrt(sd.shape[2])))


@lru_cache(maxsize=64)
def ecdf_band(trials: int, probability: float = 0.95, points: int = 100):
    """Simultaneous band for the ECDF of `trials` uniform values, by ArviZ (both lines).

    Saeilynoja, Buerkner and Vehtari (2022), "Graphical test for discrete uniformity": the narrowest family of
    pointwise binomial bands that holds the whole curve with `probability` (ArviZ calibrates it with 2,000
    simulated curves, fixed seed).

    Returns:
        (x, low, high): `points` - 1 equally spaced inner points and the band of the ECDF there.
    """
    x = np.arange(1, points) / points
    rng = np.random.default_rng(0)
    arviz = require("arviz", "report", "the simultaneous ECDF band")
    if int(arviz.__version__.split(".")[0]) < 1:
        old = require("arviz.stats.ecdf_utils", "report", "the simultaneous ECDF band")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            low, high = old.ecdf_confidence_band(
                trials,
                x,
                x,
                prob=probability,
                method="simulated",
                rvs=uniform(0, 1).rvs,
                num_trials=2000,
                random_state=rng,
            )
    else:
        new = require("arviz_stats.ecdf_utils", "report", "the simultaneous ECDF band")
        pointwise = new.simulate_confidence_bands(trials, 1, x, probability, 2000, rng)
        low, high = new.get_pointwise_confidence_band(pointwise, trials, x)
    return x, np.asarray(low), np.asarray(high)


def ecdf(values, x) -> np.ndarray:
    """Empirical distribution function of `values` [M] at points `x` [P], [P]."""
    return np.searchsorted(np.sort(np.asarray(values)), np.asarray(x), side="right") / len(values)


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
    """One cell of `calibration.json` (DESIGN section 9).

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
        ks, p_value, shares = (
            ks_statistic(ranks.fractions),
            uniformity_p_value(ranks.pit),
            coverage(ranks.fractions),
        )
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


def _squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    # centred first: the expanded square loses digits when draws lie far from zero
    centre = a.mean(axis=1, keepdims=True)
    a, b = a - centre, b - centre
    cross = a @ b.transpose(0, 2, 1)
    squares = (a * a).sum(axis=2)[:, :, None] + (b * b).sum(axis=2)[:, None, :]
    return np.maximum(squares - 2 * cross, 0.0)
