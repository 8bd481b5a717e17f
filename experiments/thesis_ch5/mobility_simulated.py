"""Cells simulated from a prior: is the line, and a fresh response, where the intervals say?"""

from __future__ import annotations

from typing import Any

import numpy as np
from mobility_data import Config
from mobility_study import WITH_MOMENTS, statistic
from scipy.special import ndtr

from dpjax.calibration.scales import noise_scales
from dpjax.calibration.simulation import simulate_study
from dpjax.calibration.uniformity import binomial_band, coverage
from dpjax.diagnostics.ranks import RHAT_LIMIT
from dpjax.inference.methods import METHODS, method_named
from dpjax.inference.run_method import run_method
from dpjax.models import model_for

#: Family-wise probability that all coverages of calibrated intervals stay inside their bands.
PROBABILITY = 0.999
TARGETS = ("line", "y")


def simulate_and_cover(sizes: np.ndarray, config: Config, prior: dict[str, Any], seed: int) -> dict[str, Any]:
    """Coverage of the true line and of a fresh response at `config.at`, by method and epsilon.

    Parameters from the prior, records from them, neither clipped nor bounded, exact sums, noise of the same scale as
    in the case study (which here promises no privacy, as nothing is clipped): the model of the inference to the
    letter. Chains that have not converged are not run again: their share is reported.
    """
    plan, found = config.simulated, {}
    for method, replicates in plan.replicates.items():
        if method not in METHODS:
            continue
        summed = statistic(method in WITH_MOMENTS)
        study = simulate_study(
            model_for(summed, prior),
            [(int(n), epsilon) for epsilon in config.epsilon for n in sizes],
            replicates,
            sensitivity=summed.base.sensitivity(),
            seed=seed,
            scales=lambda epsilon, summed=summed: noise_scales(summed, "laplace", epsilon),
        )
        run = run_method(method, study.problems, seed=seed, chains=plan.chains, draws=plan.draws, rerun=False)
        trials = len(sizes) * replicates
        rows = {}
        for k, epsilon in enumerate(config.epsilon):
            part = slice(k * trials, (k + 1) * trials)
            rows[f"{epsilon:g}"] = {
                **levels_held(run.draws[part], study.truth[part], config, seed + k),
                "rhat_above_1_05": float((run.diagnostics.max_rhat[part] > RHAT_LIMIT).mean()),
            }
        found[method] = {"epsilon": rows, "seconds": run.seconds, "trials": trials}
    return found


def levels_held(draws: np.ndarray, truth: np.ndarray, config: Config, seed: int) -> dict[str, Any]:
    """{"line": {level: share}, "y": {level: share}} of the T problems whose central interval holds the truth.

    draws `[T, C, S, K]`, truth `[T, K]`: theta[0], theta[1], sigma2 first.
    """
    flat = draws.reshape(len(draws), -1, draws.shape[-1])
    line = flat[..., 0] + config.at * flat[..., 1]
    true = truth[:, 0] + config.at * truth[:, 1]
    fresh = true + np.sqrt(truth[:, 2]) * np.random.default_rng([seed, 3]).standard_normal(len(true))
    fractions = {
        "line": (line < true[:, None]).mean(1),
        "y": ndtr((fresh[:, None] - line) / np.sqrt(flat[..., 2])).mean(1),
    }
    return {
        name: {level: float(share[0]) for level, share in coverage(values[:, None], config.levels).items()}
        for name, values in fractions.items()
    }


def judge(results: dict[str, dict[str, Any]], config: Config) -> dict[str, Any]:
    """Bands that hold together over priors, noise-aware methods, epsilons, levels and targets; what lies outside."""
    aware = [
        (prior, method)
        for prior, found in results.items()
        for method in found
        if method_named(method).noise_aware and method != "plug-in"
    ]
    family = len(aware) * len(config.epsilon) * len(config.levels) * len(TARGETS)
    outside: list[dict[str, Any]] = []
    bands: dict[str, dict[str, list[float]]] = {}
    for prior, method in aware:
        rows = results[prior][method]
        for level in config.levels:
            low, high = binomial_band(rows["trials"], level, PROBABILITY, family)
            bands.setdefault(method, {})[f"{level:g}"] = [low, high]
            for epsilon, row in rows["epsilon"].items():
                outside += [
                    {"prior": prior, "method": method, "epsilon": float(epsilon), "level": level, "target": target,
                     "coverage": row[target][f"{level:g}"]}
                    for target in TARGETS if not low <= row[target][f"{level:g}"] <= high
                ]  # fmt: skip
    return {"probability": PROBABILITY, "comparisons": family, "bands": bands, "outside": outside}
