"""The study behind Tables 1 and 2 of Alparslan et al. 2023, its numbers as text, and what the paper's tables say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from _common import check_values, read_typed
from s3_data import (
    MethodOptions,
    Prior,
    Split,
    Strict,
    Table,
    least_squares,
    paper_split,
    party_sums,
    present_tables,
    public_split,
    read_table,
)
from s3_release import (
    NOISES,
    PAPER_NAMES,
    Level,
    adassp_estimates,
    chain_length,
    convergence,
    infer,
    noise_checks,
    summary,
    wishart_scale,
)

from dpjax._base import runtime

COLUMNS = ("normal-x", "fixed-s", "fixed-s-fast", "clt", "adassp")
#: Table 1 by title of the set and J, in the order of COLUMNS.
TABLE_1 = {
    "PowerPlant": {
        1: (0.0129, 0.0129, 0.0129, 0.0128, 0.0139),
        5: (0.0133, 0.0134, 0.0134, 0.0136, 0.0235),
        10: (0.0142, 0.0143, 0.0143, 0.0143, 0.0351),
    },
    "BikeSharing": {
        1: (0.0024, 0.0021, 0.0021, 0.0020, 0.0107),
        5: (0.0174, 0.0045, 0.0045, 0.0086, 0.0382),
        10: (0.0812, 0.0082, 0.0082, 0.0137, 0.0526),
    },
    "AirQuality": {
        1: (0.0060, 0.0057, 0.0057, 0.0062, 0.0066),
        5: (0.0142, 0.0100, 0.0099, 0.0130, 0.0227),
        10: (0.0985, 0.0117, 0.0117, 0.0216, 0.0314),
    },
    "3droad": {parties: (0.0229,) * 5 for parties in (1, 5, 10)},
}
#: Table 2, likewise: 90% intervals of the mean over 50 runs.
TABLE_2 = {
    "PowerPlant": {
        1: ((0.0128, 0.0129), (0.0128, 0.0129), (0.0128, 0.0129), (0.0128, 0.0129), (0.0137, 0.0140)),
        5: ((0.0132, 0.0135), (0.0132, 0.0136), (0.0132, 0.0136), (0.0135, 0.0138), (0.0234, 0.0236)),
        10: ((0.0139, 0.0145), (0.0140, 0.0146), (0.0140, 0.0146), (0.0141, 0.0146), (0.0349, 0.0353)),
    },
    "BikeSharing": {
        1: ((0.0021, 0.0027), (0.0018, 0.0024), (0.0018, 0.0024), (0.0017, 0.0022), (0.0106, 0.0108)),
        5: ((0.0137, 0.0210), (0.0041, 0.0049), (0.0040, 0.0049), (0.0076, 0.0095), (0.0380, 0.0383)),
        10: ((0.0671, 0.0954), (0.0072, 0.0092), (0.0072, 0.0092), (0.0116, 0.0158), (0.0524, 0.0527)),
    },
    "AirQuality": {
        1: ((0.0051, 0.0069), (0.0048, 0.0066), (0.0048, 0.0066), (0.0053, 0.0071), (0.0065, 0.0067)),
        5: ((0.0109, 0.0175), (0.0089, 0.0100), (0.0089, 0.0109), (0.0109, 0.0151), (0.0226, 0.0229)),
        10: ((0.0733, 0.1236), (0.0099, 0.0135), (0.0099, 0.0135), (0.0175, 0.0257), (0.0313, 0.0315)),
    },
    "3droad": {parties: ((0.0229, 0.0229),) * 5 for parties in (1, 5, 10)},
}
ROUNDING = 0.00005


class Variant(Strict, frozen=True):
    """`[variants.NAME]`. data: "paper" (as the authors prepare it, bounds from the data) or "public"; noise: of
    `NOISES`; theta_variance: of the prior; published: whether the paper's tables are for this."""

    title: str
    data: str
    noise: str
    theta_variance: float
    published: bool = False
    methods: list[str] | None = None


class Config(Strict, frozen=True):
    """The whole config; largest: the largest number of features that a method is run with. `read_config` checks it."""

    seed: int
    data_is_public: bool
    repetitions: int
    parties: list[int]
    epsilon: float
    train: float
    unsafe_paper_sensitivity: bool
    methods: list[str]
    largest: dict[str, int]
    prior: Prior
    variants: dict[str, Variant]
    method: dict[str, MethodOptions]
    sets: dict[str, Table]


def read_config(path: Any) -> Config:
    """Read and check a config.

    Raises:
        InputError: not TOML, unknown or missing keys, values out of range.
    """
    config = read_typed(path, Config)
    known = {*COLUMNS, "collapsed"}
    check_values(
        path,
        (
            ("data_is_public", config.data_is_public, "true: bounds come from the data, and the noise is seeded"),
            ("repetitions", config.repetitions >= 2, "at least 2"),
            ("parties", config.parties and all(j >= 1 for j in config.parties), "numbers of at least 1"),
            ("epsilon", config.epsilon > 0, "above 0"),
            ("train", 0 < config.train < 1, "between 0 and 1"),
            ("methods", config.methods and set(config.methods) <= known, f"of {', '.join(sorted(known))}"),
            ("variants", all(v.data in ("paper", "public") for v in config.variants.values()), "data paper or public"),
            *noise_checks(config),
        ),
    )
    return config


def study(config: Config, said: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Run everything; returns what results.json holds."""
    tables, missing = present_tables(config.sets)
    results: dict[str, Any] = {
        "versions": runtime.versions(),
        "machine": runtime.machine(),
        "config": msgspec.to_builtins(config),
        "private": False,
        "noises": {v.noise: NOISES[v.noise] for v in config.variants.values()},
        "missing": missing,
        "sets": {},
    }
    for name, table in tables.items():
        columns = read_table(table)
        splits = {"paper": paper_split, "public": public_split}
        wanted = {v.data for v in config.variants.values()}
        made = {kind: make(table, columns, config.train) for kind, make in splits.items() if kind in wanted}
        found: dict[str, Any] = {"title": table.title, "comparable": table.comparable, "data": {}, "variants": {}}
        for kind, split in made.items():
            found["data"][kind] = {
                "train": len(split.y_train), "test": len(split.y_test), "features": split.d,
                "bound_x": split.bound_x, "bound_y": split.bound_y,
                "least_squares": float(split.error(least_squares(split.x_train, split.y_train))),
                "zero": float(split.error(np.zeros(split.d))),
            }  # fmt: skip
            chosen = {label: v for label, v in config.variants.items() if v.data == kind}
            for parties in table.parties or config.parties:
                cells = _cells(config, split, chosen, parties, [config.seed, 0, int(kind == "public"), parties])
                for label, rows in cells.items():
                    entry = found["variants"].setdefault(label, {"noise_sd": {}, "parties": {}})
                    entry["noise_sd"] = rows.pop("noise_sd")
                    entry["parties"][str(parties)] = rows
                    if chosen[label].published and table.comparable:
                        compare(rows, table.title, parties)
                said(f"{name}, {kind}, J = {parties}")
        results["sets"][name] = found
    return results


def _cells(config: Config, split: Split, chosen: dict[str, Variant], parties: int, seed: list[int]) -> dict[str, Any]:
    """All methods and variants of one preparation of one set at one J: variant -> method -> numbers."""
    sums, n = party_sums(split.x_train, split.y_train, parties)
    delta = 1.0 / len(split.y_train)
    levels = {
        label: Level(
            v.noise, split.d, split.bound_x, split.bound_y, config.epsilon, delta, v.theta_variance
        )
        for label, v in chosen.items()
    }  # fmt: skip
    scale = wishart_scale(split.d, [config.seed, 9, split.d])
    cells: dict[str, Any] = {
        label: {"noise_sd": {"without y'y": level.scale(False), "with y'y": level.scale(True)}}
        for label, level in levels.items()
    }
    for method in config.methods:
        asked = [label for label, v in chosen.items() if method in (v.methods or config.methods)]
        if not asked or split.d > config.largest.get(method, split.d):
            continue
        if method == "adassp":
            for label in asked:
                level = levels[label]
                theta = adassp_estimates(sums, level, config.repetitions, seed, parties)
                cells[label][method] = summary(split.error(theta))
            continue
        options = config.method.get(method, MethodOptions())
        of = [levels[label] for label in asked]
        posterior = infer(method, sums, n, of, config.repetitions, config.prior, scale, options, seed)
        error = split.error(posterior.estimate)
        added = chain_length(posterior.draws, split.x_test.T @ split.x_test / len(split.x_test))
        for k, label in enumerate(asked):
            rows = slice(k * config.repetitions, (k + 1) * config.repetitions)
            cells[label][method] = {
                **summary(error[rows]),
                "added_by_chain_length": None if posterior.diagnostics is None else float(added[rows].mean()),
                **convergence(posterior, rows),
                "seconds": posterior.seconds / len(asked),
                "compile_seconds": posterior.compile_seconds / len(asked),
            }
    return cells


def compare(rows: dict[str, Any], title: str, parties: int) -> None:
    """Add the paper's value and interval, whether our mean lies inside it, and whether the two intervals meet."""
    for k, method in enumerate(COLUMNS):
        if method not in rows or parties not in TABLE_1.get(title, {}):
            continue
        low, high = TABLE_2[title][parties][k]
        ours = rows[method]
        rows[method]["paper"] = {
            "mean": TABLE_1[title][parties][k],
            "interval": [low, high],
            "inside": bool(low - ROUNDING <= ours["mean"] <= high + ROUNDING),
            "intervals_meet": bool(ours["interval"][0] <= high + ROUNDING and low - ROUNDING <= ours["interval"][1]),
        }


def differences(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Cells whose mean lies outside the paper's 90% interval."""
    found = []
    for name, item in results["sets"].items():
        for label, variant in item["variants"].items():
            for parties, rows in variant["parties"].items():
                for method, row in rows.items():
                    if "paper" in row and not row["paper"]["inside"]:
                        found.append({
                            "set": name, "variant": label, "parties": int(parties), "method": method,
                            "ours": row["mean"], "our_interval": row["interval"], "paper": row["paper"]["mean"],
                            "paper_interval": row["paper"]["interval"],
                            "intervals_meet": row["paper"]["intervals_meet"],
                        })  # fmt: skip
    return found


def text(results: dict[str, Any]) -> str:
    """The numbers as Markdown tables, ours beside the paper's, then the differences."""
    config = results["config"]
    lines = [
        f"Mean squared error of predictions over {config['repetitions']} releases, 90% interval of that mean; "
        f"epsilon = {config['epsilon']:g}, delta = 1 / training records. "
        "Seeded noise, and bounds from the data but in the variants of public ones: not private.",
        *(f"noise {name}: {what}." for name, what in results["noises"].items()),
        *results["missing"],
    ]
    methods = config["methods"]
    for label, variant in config["variants"].items():
        lines += ["", f"**{label}**: {variant['title']}", ""]
        lines.append("| set | J | " + " | ".join(methods) + " |")
        lines.append("|---" * (2 + len(methods)) + "|")
        for item in results["sets"].values():
            rows = item["variants"].get(label, {"parties": {}})["parties"]
            for parties, row in rows.items():
                title = item["title"] + ("" if item["comparable"] else " (not comparable)")
                lines.append(f"| {title} | {parties} | " + " | ".join(_cell(row.get(m)) for m in methods) + " |")
    lines += ["", "Outside of the paper's 90% interval (Table 2):", ""]
    lines += [
        f"- {d['set']}, J = {d['parties']}, {PAPER_NAMES[d['method']]}: {d['ours']:.4f} "
        f"[{d['our_interval'][0]:.4f}, {d['our_interval'][1]:.4f}], paper {d['paper']:.4f} "
        f"[{d['paper_interval'][0]:.4f}, {d['paper_interval'][1]:.4f}]"
        + ("" if d["intervals_meet"] else "; the intervals do not meet")
        for d in results["differences"]
    ] or ["- none"]
    return "\n".join(lines)


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "-"
    shown = f"{row['mean']:.4f} [{row['interval'][0]:.4f}, {row['interval'][1]:.4f}]"
    if "paper" not in row:
        return shown
    low, high = row["paper"]["interval"]
    mark = "" if row["paper"]["inside"] else " *"
    return f"{shown}{mark} / {row['paper']['mean']:.4f} [{low:.4f}, {high:.4f}]"
