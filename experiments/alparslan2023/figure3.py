"""Figure 3 of Alparslan et al. 2023: python experiments/alparslan2023/figure3.py [figure3.toml] --output DIR

Seconds per iteration against the number of features, of one problem among several in one call, compilation apart.
Writes figure_3.png, results.json and results.txt.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from _common import check_values, read_typed
from s3_command import Said, run
from s3_data import MethodOptions, Prior, Strict, party_sums
from s3_release import Level, infer
from s3_simulated import simulate

from dpjax._base import runtime


class Config(Strict, frozen=True):
    """The whole config; largest: the largest number of features that a method is run with."""

    seed: int
    records: int
    features: list[int]
    parties: list[int]
    epsilon: float
    problems: int
    iterations: int
    repeats: int
    largest: dict[str, int]
    methods: list[str]
    prior: Prior


def read_config(path: str) -> Config:
    """Read and check a config.

    Raises:
        InputError: not TOML, unknown or missing keys, values out of range.
    """
    config = read_typed(path, Config)
    check_values(
        path,
        (
            ("features", config.features and min(config.features) >= 1, "numbers of at least 1"),
            ("parties", config.parties and min(config.parties) >= 1, "numbers of at least 1"),
            ("epsilon", config.epsilon > 0, "above 0"),
            ("problems", config.problems >= 1, "at least 1"),
            ("repeats", config.repeats >= 1, "at least 1"),
            ("iterations", config.iterations >= 20, "at least 20"),
        ),
    )
    return config


def study(config: Config, said: Said = lambda text: None) -> dict[str, Any]:
    """Seconds per iteration of one problem by method, J and d, and the growth exponent between the last two d."""
    found: dict[str, Any] = {method: {str(j): {} for j in config.parties} for method in config.methods}
    for d in config.features:
        data = simulate(config.records, d, 1.0, config.seed)
        for parties in config.parties:
            sums, n = party_sums(data.x, data.y, parties)
            level = Level("replace-one", d, *data.bounds, config.epsilon, 1 / config.records, 38.0)
            for method in config.methods:
                if d > config.largest.get(method, d):
                    continue
                hmc = method == "collapsed"
                warmup = 125 if hmc else 0
                settings = {"warmup" if hmc else "burn_in": warmup}
                options = MethodOptions(chains=1, draws=config.iterations, thin=1, settings=settings)
                given = (method, sums, n, [level], config.problems, config.prior, data.scale, options, [config.seed, d])
                runs = [infer(*given) for _ in range(config.repeats)]
                seconds = min(run.seconds for run in runs) / (config.iterations + warmup)
                found[method][str(parties)][str(d)] = {
                    "seconds": seconds / config.problems,
                    "compile_seconds": runs[0].compile_seconds,
                    "runs": [run.seconds for run in runs],
                }
                said(f"d = {d}, J = {parties}, {method}: {seconds / config.problems:.2e} s per iteration")
    return {
        "versions": runtime.versions(),
        "machine": runtime.machine(),
        "config": msgspec.to_builtins(config),
        "methods": found,
        "exponents": {m: {j: _exponent(rows) for j, rows in by_j.items()} for m, by_j in found.items()},
    }


def _exponent(rows: dict[str, Any]) -> float | None:
    """Slope of log seconds on log d between the last two d."""
    points = [(int(d), row["seconds"]) for d, row in rows.items() if row["seconds"] > 0]
    if len(points) < 2:
        return None
    (d0, s0), (d1, s1) = points[-2:]
    return float(np.log(s1 / s0) / np.log(d1 / d0))


def finish(results: dict[str, Any], folder: Path) -> str:
    """Draw the figure; the numbers as text."""
    from dpjax.figures.style import legend_line, method_looks, new_figure, place_legend, save_figure

    config = results["config"]
    looks = method_looks(config["methods"])
    drawn = new_figure(3.4 * len(config["parties"]) + 0.6, 3.6)
    axes = drawn.subplots(1, len(config["parties"]), squeeze=False, sharey=True)
    for axis, parties in zip(axes[0], config["parties"], strict=True):
        for method, by_j in results["methods"].items():
            points = [(int(d), row["seconds"]) for d, row in by_j[str(parties)].items()]
            colour, style = looks[method]
            axis.plot(*zip(*points, strict=True), color=colour, linestyle=style, marker="o", markersize=3)
        axis.set(xscale="log", yscale="log", xlabel="features", title=f"J = {parties}")
        axis.grid(True, color="#e9e9e9", linewidth=0.6)
    axes[0][0].set_ylabel("seconds per iteration and problem")
    place_legend(
        drawn, [legend_line(color=c, linestyle=s, marker="o", markersize=3, label=m) for m, (c, s) in looks.items()]
    )
    save_figure(drawn, folder / "figure_3.png", True)
    head = "| method | J | " + " | ".join(f"d = {d}" for d in config["features"]) + " | exponent |"
    lines = ["Microseconds per iteration and problem", "", head, "|---" * (3 + len(config["features"])) + "|"]
    for method, by_j in results["methods"].items():
        for parties, rows in by_j.items():
            cells = [f"{1e6 * rows[str(d)]['seconds']:.3g}" if str(d) in rows else "-" for d in config["features"]]
            slope = results["exponents"][method][parties]
            lines.append(f"| {method} | {parties} | {' | '.join(cells)} | {'-' if slope is None else f'{slope:.1f}'} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line."""
    return run(arguments, __doc__, "figure3.toml", read_config, study, finish)


if __name__ == "__main__":
    sys.exit(main())
