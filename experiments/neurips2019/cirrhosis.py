"""Predictive intervals on real data (Bernstein and Sheldon 2019, Figure 4):

    python experiments/neurips2019/cirrhosis.py [cirrhosis.toml] --output DIR

Random splits of 46 states into training and test points. The sums of each training set get noise for every epsilon;
all splits and epsilons are one call per method. Coverage and width of predictive intervals at the test points as
results.txt, results.json and cirrhosis.png. Needs x20_cirrhosis.csv in the folder that DPJAX_DATA names. The noise is
seeded and both variables are scaled by their range in the table, so nothing here is private: the data must be public.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from _common import check_values, find_table, read_typed

from dpjax._base import files, runtime
from dpjax.errors import DpjaxError, InputError
from dpjax.releases.table import read_columns

HERE = Path(__file__).parent
REFERENCE = "non-private"
#: What section 4.3 of the paper says, by method of this package.
PAPER = {
    "non-private": "nearly correct coverage",
    "plug-in": "nearly the coverage of Non-Private (Gibbs-SS-Noisy)",
    "naive": "drastically worse",
    "noisy": "not in the paper: inference over the moments is its future work",
    "collapsed": "not in the figure (Gibbs-SS-Update)",
}
ORIGIN = (
    "the original is people.sc.fsu.edu/~jburkardt/datasets/regression/x20.txt, as a CSV file with the columns "
    "wine_per_capita, liquor_per_capita and cirrhosis_death_rate"
)


class Config(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The whole config. moments_share: of epsilon, for third and fourth moments; prior: as of `dpjax.fit`, in units of
    [0, 1]."""

    seed: int
    file: str
    data_is_public: bool
    covariate: str
    response: str
    train: int
    splits: int
    epsilon: list[float]
    moments_share: float
    levels: list[float]
    methods: list[str]
    chains: int
    draws: int
    prior: dict[str, Any]


def read_config(path: str | Path) -> Config:
    """Read and check a config.

    Raises:
        InputError: not TOML, unknown or missing keys, values out of range.
    """
    config = read_typed(path, Config)
    check_values(
        path,
        (
            ("data_is_public", config.data_is_public, "true: the data's own range scales it, which is not private"),
            ("epsilon", config.epsilon and all(e > 0 for e in config.epsilon), "numbers above 0"),
            ("levels", config.levels and all(0 < v < 1 for v in config.levels), "numbers between 0 and 1"),
            ("splits", config.splits >= 2, "at least 2"),
            ("train", config.train >= 2, "at least 2"),
            ("methods", REFERENCE in config.methods, f"names of methods, {REFERENCE} among them"),
        ),
    )
    return config


def read_points(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """Covariate and response `[N]`, both scaled to [0, 1] by their smallest and largest value: not private.

    Raises:
        InputError: `DPJAX_DATA` is not set, or the file or a column is not there; too few rows for a test set.
    """
    path = find_table(config.file, ORIGIN)
    columns = read_columns(path, (config.covariate, config.response))
    x, y = (np.asarray(columns[name], np.float64) for name in (config.covariate, config.response))
    if config.train >= len(x):
        raise InputError(f"train must be below the number of rows, {len(x)}; got {config.train}")
    unit = lambda v: (v - v.min()) / (v.max() - v.min())
    return unit(x), unit(y)


def split(count: int, config: Config) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the training `[S, train]` and test points `[S, N - train]`."""
    rng = np.random.default_rng([config.seed, 0])
    order = np.stack([rng.permutation(count) for _ in range(config.splits)])
    return order[:, : config.train], order[:, config.train :]


def problems_of(x: np.ndarray, y: np.ndarray, train: np.ndarray, config: Config) -> Any:
    """All splits for the first epsilon, then for the next: E * S problems in the views of all methods.

    Methods with moments get a part of epsilon for the usual sums, the others all of it, with the same noise on its
    scale.
    """
    from dpjax.calibration.scales import noise_scales
    from dpjax.models import model_for
    from dpjax.models.regression.problems import make_problems
    from dpjax.statistics.regression import RegressionStatistic

    bounds = {config.covariate: (0.0, 1.0), config.response: (0.0, 1.0)}
    statistic = RegressionStatistic((config.covariate,), config.response, bounds, None, True)
    sums = np.stack([statistic.from_records(x[rows][:, None], y[rows]) for rows in train])
    noise = np.random.default_rng([config.seed, 1]).laplace(size=(len(config.epsilon), *sums.shape))
    shared, whole = (
        np.stack([noise_scales(kind, "laplace", e, None, part) for e in config.epsilon])[:, None]
        for kind, part in ((statistic, config.moments_share), (statistic.base, None))
    )
    usual = statistic.base.dim
    flat = lambda a, width: np.broadcast_to(a, (*noise.shape[:2], width)).reshape(-1, width)
    exact = flat(sums, statistic.dim)
    made = make_problems(
        flat(sums + noise * shared, statistic.dim), np.full(len(exact), float(config.train)),
        flat(shared, statistic.dim), model_for(statistic, config.prior), "laplace", statistic=statistic, exact=exact,
    )  # fmt: skip
    z = sums[:, :usual] + noise[..., :usual] * whole
    return replace(made, z=flat(z, usual), scale=flat(whole, usual))


def intervals(draws: Mapping[str, np.ndarray], x: np.ndarray, levels: list[float], seed: list[int]) -> np.ndarray:
    """Ends of the central predictive intervals `[T, R, levels, 2]` at x `[T, R]`, from draws theta[0], theta[1], sigma2
    `[T, N]`."""
    rng = np.random.default_rng(seed)
    tails = np.array([[(1 - level) / 2, (1 + level) / 2] for level in levels]).ravel()
    ends = np.empty((*x.shape, len(levels), 2))
    for t in range(len(x)):
        line = draws["theta[0]"][t] + x[t][:, None] * draws["theta[1]"][t]
        y = line + np.sqrt(draws["sigma2"][t]) * rng.standard_normal(line.shape)
        ends[t] = np.quantile(y, tails, axis=1).T.reshape(-1, len(levels), 2)
    return ends


def standard_error(hit: np.ndarray, point: np.ndarray) -> float:
    """Standard error of the mean of hits `[S, R]` at points with these numbers `[S, R]`.

    Hits of one point in several splits are not independent, nor those of one split, which share their noise and
    training set. Clustered both ways: the variance by points plus that by splits, less the binomial one, which both
    contain; at least the larger of the two.
    """
    error = hit - hit.mean()
    by_split = (error.sum(1) ** 2).sum()
    by_point = (np.bincount(point.ravel(), error.ravel()) ** 2).sum()
    both = max(by_split + by_point - (error**2).sum(), by_split, by_point)
    return float(np.sqrt(both) / hit.size)


def study(config: Config) -> dict[str, Any]:
    """Run everything; returns what results.json holds."""
    from dpjax.inference.run_method import run_method

    x, y = read_points(config)
    train, test = split(len(x), config)
    problems = problems_of(x, y, train, config)
    scores: dict[str, Any] = {}
    for number, method in enumerate(config.methods):
        exact = method == REFERENCE  # the same for every epsilon
        given = problems.take(np.arange(config.splits)) if exact else problems
        run = run_method(method, given, seed=config.seed + number, chains=config.chains, draws=config.draws)
        draws = {name: run.draws[..., k].reshape(len(given), -1) for k, name in enumerate(run.names)}
        repeats = len(given) // config.splits
        ends = intervals(draws, np.tile(x[test], (repeats, 1)), config.levels, [config.seed, 2, number])
        ends = ends.reshape(repeats, *test.shape, len(config.levels), 2)
        hits = (ends[..., 0] <= y[test][None, ..., None]) & (y[test][None, ..., None] <= ends[..., 1])
        rows = []
        for e in range(repeats):
            here = slice(e * config.splits, (e + 1) * config.splits)
            rows.append({
                "epsilon": None if exact else config.epsilon[e],
                "coverage": {f"{v:g}": float(hits[e, ..., k].mean()) for k, v in enumerate(config.levels)},
                "se": {f"{v:g}": standard_error(hits[e, ..., k], test) for k, v in enumerate(config.levels)},
                "width": {
                    f"{v:g}": float((ends[e, ..., k, 1] - ends[e, ..., k, 0]).mean())
                    for k, v in enumerate(config.levels)
                },
                "rhat_above_1_05": float((run.diagnostics.max_rhat[here] > 1.05).mean()),
                "smallest_ess": float(run.diagnostics.min_ess[here].min()),
            })  # fmt: skip
        scores[method] = {
            "rows": rows, "seconds": run.seconds, "compile_seconds": run.compile_seconds, "problems": len(given),
            "reruns": run.reruns, "paper": PAPER.get(method, "not in the paper"),
        }  # fmt: skip
    return {
        "versions": runtime.versions(),
        "machine": runtime.machine(),
        "config": msgspec.to_builtins(config),
        "private": False,
        "points": len(x),
        "test_points": int(test.size),
        "noise_scale": {"usual": problems.scale[:: config.splits, 0].tolist(), "simulated": True},
        "methods": scores,
    }


def table(results: dict[str, Any]) -> str:
    """The numbers as text, each line beside what the paper says."""
    config = results["config"]
    levels = [f"{v:g}" for v in config["levels"]]
    lines = [
        f"{config['response']} on {config['covariate']}: {results['points']} points, {config['splits']} splits, "
        f"{config['train']} for training, {results['test_points']} test points in all.",
        "Not private: scaled by the data's own range, simulated noise. In brackets: standard error, clustered by point "
        "and by split.",
        "",
    ]
    titles = ("{:.0%} interval", "width {:.0%}")
    head = ["epsilon", "method", *(title.format(float(v)) for title in titles for v in levels), "paper, 4.3"]
    body = []
    for e in [None, *config["epsilon"]]:
        for method, item in results["methods"].items():
            for row in (row for row in item["rows"] if row["epsilon"] == e):
                shares = [f"{row['coverage'][v]:.3f} ({row['se'][v]:.3f})" for v in levels]
                widths = [f"{row['width'][v]:.3f}" for v in levels]
                body.append(["-" if e is None else f"{e:g}", method, *shares, *widths, item["paper"]])
    sizes = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
    lines += ["  ".join(c.ljust(w) for c, w in zip(line, sizes, strict=True)).rstrip() for line in [head, *body]]
    lines += ["", *(
        f"{method}: {item['problems']} posteriors in {item['seconds']:.2f} s, "
        f"compilation {item['compile_seconds']:.1f} s, {item['reruns']} run again; "
        f"R-hat > 1.05: {max(r['rhat_above_1_05'] for r in item['rows']):.3f}, "
        f"smallest ESS {min(r['smallest_ess'] for r in item['rows']):.0f}"
        for method, item in results["methods"].items()
    )]  # fmt: skip
    return "\n".join(lines)


def figure(results: dict[str, Any]):
    """Coverage and width by level against epsilon, a line per method, two standard errors; `matplotlib` figure."""
    from dpjax.figures.study import plain_log
    from dpjax.figures.style import GREY, legend_line, method_looks, new_figure, place_legend

    levels = [f"{v:g}" for v in results["config"]["levels"]]
    looks = method_looks(results["methods"])
    drawn = new_figure(3.4 * len(levels) + 0.6, 6.2)
    axes = drawn.subplots(2, len(levels), squeeze=False, sharex=True, sharey="row")
    for k, level in enumerate(levels):
        for method, item in results["methods"].items():
            colour, style = looks[method]
            rows, where = item["rows"], results["config"]["epsilon"]
            rows = rows * len(where) if method == REFERENCE else rows
            cover, width = ([row[key][level] for row in rows] for key in ("coverage", "width"))
            bars = [2 * row["se"][level] for row in rows]
            axes[0, k].errorbar(
                where, cover, bars, color=colour, linestyle=style, marker="o", markersize=3.5, capsize=2
            )
            axes[1, k].plot(where, width, color=colour, linestyle=style, marker="o", markersize=3.5)
        axes[0, k].axhline(float(level), color=GREY, linewidth=0.8)
        axes[0, k].set(title=f"{float(level):.0%} predictive intervals", xscale="log", ylim=(-0.02, 1.02))
        axes[1, k].set_xlabel("epsilon")
        plain_log(axes[1, k])
        for axis in axes[:, k]:
            axis.grid(True, color="#e9e9e9", linewidth=0.6)
    axes[0, 0].set_ylabel("coverage")
    axes[1, 0].set_ylabel("mean width")
    drawn.suptitle(
        f"Cirrhosis: {results['test_points']:,} test points, {results['config']['splits']} splits; not private",
        fontsize=11,
    )
    place_legend(
        drawn, [legend_line(color=c, linestyle=s, marker="o", markersize=3.5, label=m) for m, (c, s) in looks.items()]
    )
    return drawn


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; 0, or 2 for bad input with one line on standard error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", default=str(HERE / "cirrhosis.toml"))
    parser.add_argument("--output", required=True, help="folder for results.json, results.txt and cirrhosis.png")
    parser.add_argument("--force", action="store_true", help="write into a folder that is not empty")
    given = parser.parse_args(arguments)
    start = time.perf_counter()
    try:
        config = read_config(given.config)
        read_points(config)
        folder = Path(given.output)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())) and not given.force:
            raise InputError(f"output {folder}: is there and not an empty folder; use --force, or another name")
        runtime.prepare_jax()
        results = study(config)
        from dpjax.figures.style import save_figure

        folder.mkdir(parents=True, exist_ok=True)
        save_figure(figure(results), folder / "cirrhosis.png", True)
    except DpjaxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    results["seconds"] = time.perf_counter() - start
    text = table(results) + f"\n{results['seconds']:.0f} s in all"
    print(text)
    files.write_text(folder / "results.txt", text + "\n", True)
    files.write_json(folder / "results.json", results, True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
