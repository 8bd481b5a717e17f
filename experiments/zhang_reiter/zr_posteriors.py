"""Posteriors given Laplace releases: Tables 1 and 2, Cases 1-6, and what an iteration costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from zr_data import Config, Prior, grams, sensitivity, truth

from dpjax.engine.problems import Problems
from dpjax.engine.results import Run
from dpjax.inference.run_method import run_method
from dpjax.kernels.order import origin_places
from dpjax.models import OriginRegression
from dpjax.models.regression.problems import party_problems

#: Zhang and Reiter, Table 1: seconds, largest R-hat, R-hat and ESS of the log posterior.
THEIR_TABLE_1 = {10: (107.415, 1.01, 1.00, 882), 100: (530.719, 1.03, 1.03, 149), 1000: (6137.39, 1.44, 1.36, 2)}
#: Zhang and Reiter, Table 2: extrapolated hours.
THEIR_TABLE_2 = {10_000: 15.0, 100_000: 300.0, 1_000_000: 4800.0}
#: What a posterior has to reach to count: largest R-hat, smallest bulk ESS.
RHAT, ESS = 1.01, 400.0


def prior_of(prior: Prior, p: int) -> OriginRegression:
    """The prior in the user's units: theta ~ N(0, I / theta_precision), Sigma_x ~ InvWishart with mean I / 3."""
    m = prior.covariate_records
    return OriginRegression.create(
        p, theta_precision=prior.theta_precision, sigma2_shape=prior.sigma2_shape, sigma2_scale=prior.sigma2_scale,
        psi=m / 3, nu=p + 1 + m, independent=True,
    )  # fmt: skip


def released(gram: np.ndarray, epsilon: float, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Noisy entries and scale b; seeded noise, which protects nobody."""
    p = len(gram) - 1
    scale = sensitivity(p) / epsilon
    exact = gram[origin_places(p)]
    return exact + rng.laplace(0.0, scale, exact.shape), scale


def problems_of(
    sums: list[np.ndarray], records: list[int], y_bound: float, config: Config, seed: list[int]
) -> Problems:
    """One problem for every Gram matrix of scaled records; the posterior is of parameters in the user's units."""
    p, rng = len(sums[0]) - 1, np.random.default_rng(seed)
    found = [released(gram, config.epsilon, rng) for gram in sums]
    half = np.ones((1, p + 1))
    half[0, p] = y_bound
    return party_problems(
        np.stack([z for z, _ in found])[:, None], np.asarray(records, np.float64)[:, None], found[0][1],
        prior_of(config.prior, p), "laplace", half=half,
    )  # fmt: skip


def sample(problems: Problems, config: Config, warmup: int, draws: int, leapfrogs: int) -> tuple[Run, dict[str, Any]]:
    """The run, and its times: seconds in all with compilation, seconds of processor time, and, of one problem alone,
    milliseconds of an iteration after warm-up (all chains)."""
    clock: list[tuple[int, float]] = []
    start, busy = time.perf_counter(), time.process_time()
    run = run_method(
        "collapsed", problems, seed=config.seed, chains=config.chains, draws=draws, rerun=False,
        settings={"warmup": warmup, "leapfrogs": leapfrogs},
        progress=lambda seen: clock.append((seen.done, time.perf_counter())),
    )  # fmt: skip
    times = {
        "seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - busy,
        "compile_seconds": run.compile_seconds, "run_seconds": run.seconds,
    }  # fmt: skip
    if len(problems) == 1:
        (first, began), (last, ended) = clock[warmup // run.settings["segment"] - 1], clock[-1]
        iterations = (last - first) / config.chains
        times["milliseconds_per_iteration"] = 1e3 * (ended - began) / iterations
    return run, times


def judged(run: Run, problem: int = 0) -> dict[str, Any]:
    """R-hat and ESS over all parameters of a problem."""
    d = run.diagnostics
    rhat, ess = d.rhat[problem], d.ess_bulk[problem]
    good = bool(np.isfinite(rhat).all() and rhat.max() < RHAT and ess.min() > ESS and (run.codes[problem] == 0).all())
    return {
        "parameters": len(run.names), "largest_rhat": float(rhat.max()), "smallest_ess": float(ess.min()),
        "smallest_tail_ess": float(d.ess_tail[problem].min()), "divergences": int(run.divergences[problem].sum()),
        "acceptance": float(run.accept[problem].mean()), "converged": good,
    }  # fmt: skip


def intervals(run: Run, p: int, level: float, problem: int = 0) -> np.ndarray:
    """Central intervals of theta `[p, 2]`."""
    draws = np.asarray(run.draws[problem][..., :p]).reshape(-1, p)
    return np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0).T


def covering(bounds: np.ndarray, theta: np.ndarray) -> dict[str, float]:
    """Shares of intervals `[..., p, 2]` that hold the true coefficient and 0, and their mean width, by true value."""
    inside = lambda value: (bounds[..., 0] <= value) & (value <= bounds[..., 1])
    width = bounds[..., 1] - bounds[..., 0]
    found = {"covers_truth": float(inside(theta).mean()), "covers_0": float(inside(0.0).mean())}
    found["mean_width"] = float(width.mean())
    for value in (0.0, 1.0):
        chosen = theta == value
        if chosen.any():
            found[f"covers_truth_where_{value:.0f}"] = float(inside(theta)[..., chosen].mean())
            found[f"mean_width_where_{value:.0f}"] = float(width[..., chosen].mean())
    return found


def posterior_error(run: Run, theta: np.ndarray) -> float:
    """Zhang and Reiter's measure of the posterior mean: min(|mean - theta*| / |theta*|, 1)."""
    mean = np.asarray(run.draws[0][..., : len(theta)], np.float64).mean((0, 1))
    return float(min(np.linalg.norm(mean - theta) / np.linalg.norm(theta), 1.0))


def tables(config: Config, said: Callable[[str], None], only: list[int] | None = None) -> list[dict[str, Any]]:
    """Rows of Tables 1 and 2; every row pays for its own compilation."""
    import jax

    from dpjax.engine import programs

    given, rows = config.tables, []
    theta = truth(given.p, given.p // 5)
    for row in given.rows:
        if only and row.n not in only:
            continue
        jax.clear_caches()
        programs._PROGRAMS.clear()
        (gram,), (clipped,) = grams([config.seed, 1, row.n], [row.n], theta, config.noise_sd, given.y_bound)
        problems = problems_of([gram], [row.n], given.y_bound, config, [config.seed, 2, row.n])
        run, times = sample(problems, config, given.warmup, row.draws, row.leapfrogs)
        bounds = intervals(run, given.p, config.level)
        shown = {
            "n": row.n, "p": given.p, "leapfrogs": row.leapfrogs, "warmup": given.warmup, "draws": row.draws,
            "chains": config.chains, "clipped": clipped, "their_table_1": THEIR_TABLE_1.get(row.n),
            "their_hours": THEIR_TABLE_2.get(row.n), **times, **judged(run), **covering(bounds, theta),
            "error_of_mean": posterior_error(run, theta), "intervals": bounds.round(4).tolist(),
        }  # fmt: skip
        rows.append(shown)
        said(
            f"n = {row.n}: {shown['seconds']:.0f} s, R-hat {shown['largest_rhat']:.4f}, ESS {shown['smallest_ess']:.0f}"
        )
    return rows


def low_cases(config: Config, said: Callable[[str], None]) -> list[dict[str, Any]]:
    """Cases 1-3, each with replicates, all in one call."""
    given = config.low
    theta, sums, records = truth(given.p, given.p), [], []
    for n in given.records:
        for r in range(given.replicates):
            sums.extend(grams([config.seed, 3, n, r], [n], theta, config.noise_sd, given.y_bound)[0])
            records.append(n)
    problems = problems_of(sums, records, given.y_bound, config, [config.seed, 4])
    run, times = sample(problems, config, given.warmup, given.draws, given.leapfrogs)
    rows = []
    for k, n in enumerate(given.records):
        at = range(k * given.replicates, (k + 1) * given.replicates)
        every = np.stack([intervals(run, given.p, config.level, t) for t in at])
        checks = [judged(run, t) for t in at]
        rows.append({
            "case": k + 1, "n": n, "p": given.p, "replicates": given.replicates, **times, **judged(run, at[0]),
            "intervals": every[0].round(4).tolist(), "first": covering(every[0], theta), "all": covering(every, theta),
            "all_largest_rhat": max(c["largest_rhat"] for c in checks),
            "all_smallest_ess": min(c["smallest_ess"] for c in checks),
            "all_converged": sum(c["converged"] for c in checks),
        })  # fmt: skip
        said(f"case {k + 1}: covers 1 {rows[-1]['all']['covers_truth']:.3f}, 0 {rows[-1]['all']['covers_0']:.3f}")
    return rows


def high_cases(config: Config, said: Callable[[str], None]) -> list[dict[str, Any]]:
    """Cases 4 and 5 (6 is too large: `zr_cost`)."""
    given, rows = config.high, []
    for row in given.rows:
        theta = truth(row.p, row.true)
        (gram,), (clipped,) = grams([config.seed, 5, row.p], [given.records], theta, config.noise_sd, row.y_bound)
        problems = problems_of([gram], [given.records], row.y_bound, config, [config.seed, 6, row.p])
        run, times = sample(problems, config, given.warmup, row.draws, row.leapfrogs)
        bounds = intervals(run, row.p, config.level)
        rows.append({
            "n": given.records, "p": row.p, "leapfrogs": row.leapfrogs, "draws": row.draws, "clipped": clipped, **times,
            **judged(run), **covering(bounds, theta), "error_of_mean": posterior_error(run, theta),
            "intervals": bounds.round(4).tolist(),
        })  # fmt: skip
        shown = rows[-1]
        said(
            f"p = {row.p}: {shown['seconds']:.0f} s, R-hat {shown['largest_rhat']:.4f}, ESS {shown['smallest_ess']:.0f}"
        )
    return rows
