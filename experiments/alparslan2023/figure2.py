"""Figures 2 and 4 of Alparslan et al. 2023, simulated data: python experiments/alparslan2023/figure2.py [figure2.toml]
--output DIR

Errors of theta and of predictions, and MMD to the non-private posterior, against epsilon. Writes figure_2_VARIANT.png,
figure_4_VARIANT.png, results.json (every number) and results.txt. Bounds come from the data and the noise is seeded:
nothing here is private.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from s3_command import run
from s3_simulated import read_config, study


def figure(results: dict[str, Any], variant: str, rows: list[tuple[str, str]], title: str):
    """A line per method against epsilon, a column per J, for every d one row for each of `rows` (key, label)."""
    from dpjax.figures.style import legend_line, method_looks, new_figure, place_legend

    config = results["config"]
    looks = method_looks(config["methods"])
    drawn = new_figure(3.2 * len(config["parties"]) + 0.6, 2.3 * len(rows) * len(config["features"]) + 1.2)
    axes = drawn.subplots(len(rows) * len(config["features"]), len(config["parties"]), squeeze=False, sharex=True)
    places = [(d, key, label) for d in config["features"] for key, label in rows]
    for row, (d, key, label) in enumerate(places):
        for column, parties in enumerate(config["parties"]):
            axis = axes[row, column]
            found = results["features"][str(d)]
            for method, entries in found["parties"][str(parties)][variant].items():
                points = [(e["epsilon"], e[key]["mean"]) for e in entries if key in e]
                if points:
                    colour, style = looks[method]
                    axis.plot(*zip(*points, strict=True), color=colour, linestyle=style, marker="o", markersize=3)
            exact = found["non_private"].get(key)
            if exact is not None:
                axis.axhline(exact, color="#888888", linewidth=0.8)
            axis.set_xscale("log")
            axis.set_yscale("symlog", linthresh=1e-4) if key.startswith("mmd") else axis.set_yscale("log")
            axis.grid(True, color="#e9e9e9", linewidth=0.6)
            if row == 0:
                axis.set_title(f"J = {parties}", fontsize=10)
            if column == 0:
                axis.set_ylabel(f"{label}, d = {d}")
            if row == len(places) - 1:
                axis.set_xlabel("epsilon")
    drawn.suptitle(title, fontsize=11)
    shown = [legend_line(color=c, linestyle=s, marker="o", markersize=3, label=m) for m, (c, s) in looks.items()]
    place_legend(drawn, [*shown, legend_line(color="#888888", label="non-private")])
    return drawn


def finish(results: dict[str, Any], folder: Path) -> str:
    """Draw the figures; the numbers as text."""
    from dpjax.figures.style import save_figure

    repetitions = results["config"]["repetitions"]
    for label, variant in results["config"]["variants"].items():
        title = f"{variant['title']}; mean of {repetitions} releases"
        rows = [("prediction", "prediction"), ("mse", "theta")]
        save_figure(figure(results, label, rows, title), folder / f"figure_2_{label}.png", True)
        distance = [("mmd2", "MMD^2")]
        save_figure(figure(results, label, distance, title), folder / f"figure_4_{label}.png", True)
    return text(results)


def text(results: dict[str, Any]) -> str:
    """Markdown tables: mean squared errors of theta and of predictions, MMD."""
    config = results["config"]
    lines = [
        f"n = {config['records']}, {config['repetitions']} releases for each epsilon. Bounds from the data, "
        "seeded noise: not private.",
        *(f"noise {name}: {what}." for name, what in results["noises"].items()),
    ]
    keys = (("mse", "error of theta"), ("prediction", "error of predictions"), ("mmd2", "MMD^2"))
    for d, found in results["features"].items():
        exact = found["non_private"]
        lines += ["", f"d = {d}; non-private: theta {exact['mse']:.3g}, predictions {exact['prediction']:.3g}"]
        for label in config["variants"]:
            for key, title in keys:
                lines += ["", f"{title}, d = {d}, {label}", ""]
                lines.append("| J | method | " + " | ".join(f"{e:g}" for e in config["epsilon"]) + " |")
                lines.append("|---" * (2 + len(config["epsilon"])) + "|")
                for parties, variants in found["parties"].items():
                    for method, entries in variants[label].items():
                        if key in entries[0]:
                            values = " | ".join(f"{entry[key]['mean']:.2e}" for entry in entries)
                            lines.append(f"| {parties} | {method} | {values} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line."""
    return run(arguments, __doc__, "figure2.toml", read_config, study, finish)


if __name__ == "__main__":
    sys.exit(main())
