"""Fixed releases of the families whose default method computes the posterior, against an adaptive reference.

    python experiments/benchmarks/sweep_families.py [--releases 2000] [--out FILE.json]

Families x rules x noises x numbers of records (1 to 10^12) x noise scales (10^-3 to 10^3 sds of the statistic) x priors
(weak, strong and right, strong and wrong) x releases (typical, at an edge of what records can give, far outside). A
silent deviation is a mean off by more than .02 posterior sds or an sd off by more than 5% with result code 0. The
reference (tests/oracles/adaptive.py) is NumPy, SciPy and mpmath. Families of several parameters (normal, log-normal,
multinomial) are sampled and not in here.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from oracles import adaptive

from dpjax.engine.problems import Problems
from dpjax.families import family_named
from dpjax.inference.methods import METHODS, default_method
from dpjax.models import family_model
from dpjax.models.priors import PRIORS

BOTH = ("laplace", "gaussian")
#: kind, options, bounds to choose from, whether records are so few that whole-number sums have their exact law, noises.
SHAPES = [
    ("binomial", {}, [(0, 1)], False, BOTH),
    ("exponential", {}, [(0.0253178, 3.6888795), (0.0, 1.0), (0.5, 2.0)], False, BOTH),
    ("gamma", {"shape": 0.5}, [(0.01, 2.0), (0.0, 1.0)], False, BOTH[:1]),
    ("gamma", {"shape": 2.5}, [(0.5, 6.0), (0.0, 3.0)], False, BOTH),
    ("gamma", {"shape": 100.0}, [(50.0, 150.0), (0.0, 110.0)], False, BOTH[1:]),
    ("poisson", {}, [(2, 8), (0, 12)], False, BOTH),
    ("poisson", {}, [(80, 200), (0, 130)], False, BOTH[:1]),
    ("poisson", {}, [(2, 8), (0, 12)], True, BOTH),
    ("geometric", {}, [(0, 4), (1, 12)], False, BOTH),
    ("geometric", {}, [(0, 4), (1, 12)], True, BOTH[:1]),
]
RULES = ("clamp", "redact")
#: Where a release counts as off, in posterior sds and as a share of the sd.
MEAN_OFF, SD_OFF = 0.02, 0.05


def cells() -> list[tuple]:
    """Shapes x rules x noises."""
    found = []
    for kind, options, bounds, few, noises in SHAPES:
        for rule in ("none",) if kind == "binomial" else RULES:
            found += [(kind, options, bounds, few, rule, noise) for noise in noises]
    return found


def parameter(kind: str, options: dict, bounds: tuple, rng) -> float:
    """A parameter under which records lie about the bounds."""
    middle = rng.uniform(0.3, 1.2) * bounds[1]
    if kind == "binomial":
        return float(rng.choice([rng.uniform(0.05, 0.95), 10 ** rng.uniform(-6, -2)]))
    if kind == "geometric":
        return 1.0 / (1.0 + middle)
    return middle if kind == "poisson" else options.get("shape", 1.0) / middle


def prior_of(kind: str, name: str, theta: float, rng) -> dict[str, float]:
    """A weak prior, a strong one around theta, or a strong one elsewhere."""
    logit = kind in ("binomial", "geometric")
    if name == "weak":
        size = float(rng.choice([0.5, 1.0, 2.0]))
        return (
            {"alpha": size, "beta": float(rng.choice([0.5, 1.0]))} if logit else {"shape": size, "rate": size / theta}
        )
    if name == "wrong":
        shift = float(rng.choice([-1, 1])) * rng.uniform(0.3, 2.0)
        theta = 1 / (1 + np.exp(-np.log(theta / (1 - theta)) - shift)) if logit else theta * np.exp(shift)
    relative = 10 ** rng.uniform(-3, -0.7)
    weight = 1.0 / relative**2
    if logit:
        weight = weight / min(theta, 1 - theta)
        return {"alpha": float(np.float32(theta * weight)), "beta": float(np.float32((1 - theta) * weight))}
    return {"shape": float(np.float32(weight)), "rate": float(np.float32(weight / theta))}


def draw(cell: tuple, rng) -> dict:
    """One release."""
    kind, options, choices, few, rule, noise = cell
    bounds = choices[rng.integers(len(choices))]
    theta = parameter(kind, options, bounds, rng)
    n = float(rng.integers(1, 61)) if few else float(np.floor(10 ** rng.uniform(0, 12)))
    shape = options.get("shape", 1.0)
    if kind == "binomial":
        mean, variance = theta, theta * (1 - theta)
    else:
        mean, variance = (x[0] for x in adaptive.moments(kind, np.array([theta]), *map(float, bounds), rule, shape))
    sd = np.sqrt(n * variance)
    scale = float(sd * 10 ** rng.uniform(-3, 3))
    prior_name = str(rng.choice(["weak", "right", "wrong"]))
    where = str(rng.choice(["typical", "edge", "outside"]))
    low, high = n * bounds[0] if rule == "clamp" else 0.0, n * bounds[1]
    if where == "typical":
        z = n * mean + sd * rng.standard_normal() + scale * rng.laplace()
    elif where == "edge":
        z = float(rng.choice([low, high])) + 0.1 * scale * rng.standard_normal()
    else:
        away = 10 ** rng.uniform(0, 2) * (sd + scale)
        z = high + away if rng.uniform() < 0.5 else low - away
    if kind == "binomial" or few:
        z = float(np.round(z)) if noise == "laplace" and scale > 1 else z
    return {
        "kind": kind, **options, "rule": rule, "noise": noise, "few": few, "low": float(bounds[0]), "high": float(bounds[1]),
        "n": n, "scale": scale, "z": float(z), "prior": prior_of(kind, prior_name, theta, rng), "prior_kind": prior_name,
        "release": where,
    }  # fmt: skip


def problems_of(cell: tuple, releases: list[dict]) -> Problems:
    """The releases of one cell as problems of one call."""
    kind, options, _, _, rule, noise = cell
    family = family_named(kind, **options)
    make = PRIORS[family.prior].create
    with jax.enable_x64(True):
        models = [family_model(family, make(np.float64, **r["prior"]), r["low"], r["high"], rule) for r in releases]
    counts = max(getattr(m, "counts", 0) for m in models)
    models = [m.__class__(m.prior, m.low, m.high, m.family, m.rule, counts) for m in models]
    model = jax.tree.map(lambda *x: np.stack([np.asarray(one, np.float64) for one in x]), *models)
    column = lambda name: np.array([r[name] for r in releases])
    return Problems(column("z")[:, None], column("n"), column("scale")[:, None], model, noise)


def reference(r: dict, steps: int = adaptive.STEPS) -> tuple[float, float, float, float]:
    """Mean, sd and quantiles by the reference."""
    longest = r["n"] * (r["high"] - (r["low"] if r["rule"] == "clamp" else 0.0)) + 1
    exact = r["kind"] in ("poisson", "geometric") and longest <= 1024
    return adaptive.posterior(
        r["kind"], r["z"], r["n"], r["scale"], r["prior"], r["low"], r["high"], r["rule"],
        gaussian=r["noise"] == "gaussian", exact=exact, shape=r.get("shape", 1.0), steps=steps,
    )  # fmt: skip


def sweep(count: int, seed: int = 12, progress=print) -> dict:
    """All releases: how far the default method is off, and what it marks."""
    rng = np.random.default_rng(seed)
    all_cells = cells()
    rows: list[dict] = []
    start = time.perf_counter()
    for i, cell in enumerate(all_cells):
        # the exact law of few takes the reference long: an eighth of the others' number
        share = [0.125 if c[3] else 1.0 for c in all_cells]
        ends = np.round(count * np.cumsum([0.0, *share]) / sum(share)).astype(int)
        size = int(ends[i + 1] - ends[i])
        releases = [draw(cell, rng) for _ in range(size)]
        if not releases:
            continue
        problems = problems_of(cell, releases)
        assert default_method(problems.model_template()) == "exact"
        # what the method computes before it draws: `resolved` is what its result codes say
        made = METHODS["exact"].check(problems).tables(problems)
        for k, release in enumerate(releases):
            mean, sd = reference(release)[:2]
            ours = made.mean[k], made.sd[k]
            rows.append({
                **release, "marked": not bool(made.resolved[k]), "reference": [mean, sd], "ours": [float(x) for x in ours],
                "mean_off": float(abs(ours[0] - mean) / sd), "sd_off": float(abs(ours[1] / sd - 1)),
            })  # fmt: skip
        here = rows[-size:]
        for row in here:
            if row["marked"] or row["mean_off"] > 1e-3 or row["sd_off"] > 1e-3:
                progress(json.dumps(row))
        progress(
            f"{cell[0]} {cell[1]} few={cell[3]} {cell[4]} {cell[5]}: {size} releases, marked "
            f"{sum(r['marked'] for r in here)}, worst mean {max((r['mean_off'] for r in here if not r['marked']), default=0):.2g}"
            f" sd, sd {max((r['sd_off'] for r in here if not r['marked']), default=0):.2g}, "
            f"{time.perf_counter() - start:.0f} s",
        )  # fmt: skip
    return summary(rows)


def summary(rows: list[dict]) -> dict:
    """Counts and worst deviations, by family too."""

    def of(part: list[dict]) -> dict:
        good = [r for r in part if not r["marked"]]
        silent = [r for r in good if not (r["mean_off"] <= MEAN_OFF and r["sd_off"] <= SD_OFF)]
        worst = lambda key: max((r[key] for r in good), default=0.0)
        return {
            "releases": len(part), "marked": len(part) - len(good), "silent_deviations": len(silent),
            "worst_mean_in_sds": worst("mean_off"), "worst_sd_share": worst("sd_off"),
            "over_a_thousandth": sum(r["mean_off"] > 1e-3 or r["sd_off"] > 1e-3 for r in good),
        }  # fmt: skip

    by = lambda key: {str(v): of([r for r in rows if r[key] == v]) for v in sorted({r[key] for r in rows})}
    return {
        "all": of(rows),
        "by_family": by("kind"), "by_rule": by("rule"), "by_noise": by("noise"),
        "by_prior": by("prior_kind"), "by_release": by("release"),
        "marked": [r for r in rows if r["marked"]],
        "worst": sorted((r for r in rows if not r["marked"]), key=lambda r: -(r["mean_off"] + r["sd_off"]))[:20],
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--releases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "sweep_families.json")
    given = parser.parse_args()
    result = {"releases": given.releases, "seed": given.seed, **sweep(given.releases, given.seed)}
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["all"], indent=1))
