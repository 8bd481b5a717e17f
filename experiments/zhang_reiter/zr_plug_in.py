"""Figure 2 of Zhang and Reiter: error of the plug-in estimate from a noisy Gram matrix, by mechanism and number of
records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from zr_data import Config, grams, paper_sensitivity, sensitivity, truth

from dpjax.kernels.order import origin_places

#: How they are drawn: colour, line style, label.
LOOKS = {
    "laplace": ("#0072B2", "-", "Laplace"),
    "laplace, S2's sensitivity": ("#0072B2", "--", "Laplace, S2's sensitivity"),
    "wishart": ("#d55e00", "--", "Wishart, as S2"),
    "wishart, debiased": ("#d55e00", "-", "Wishart, debiased"),
    "wishart, calibrated, debiased": ("#d55e00", ":", "Wishart, smallest k, debiased"),
    "inverse-wishart": ("#009E73", "--", "inverse Wishart, as S2"),
    "inverse-wishart, debiased": ("#009E73", "-", "inverse Wishart, debiased"),
    "inverse-wishart, calibrated, debiased": ("#009E73", ":", "inverse Wishart, smallest psi, debiased"),
    "no noise": ("#000000", ":", "no noise"),
}
QUANTILES = (0.1, 0.5, 0.9)


def laplace_noise(key: Any, gram: Any, scale: Any) -> Any:
    """The Gram matrix with Laplace noise on its upper triangle, mirrored."""
    import jax.numpy as jnp
    from jax import random

    i, j = origin_places(gram.shape[0] - 1)
    noise = jnp.zeros_like(gram).at[i, j].set(scale * random.laplace(key, i.shape, gram.dtype))
    return gram + noise + jnp.tril(noise.T, -1)


def mechanisms(p: int, n: int, config: Config) -> dict[str, tuple[Any, tuple[str, ...]]]:
    """By name: what adds the noise, and what is estimated from it ("" as released, "debiased").

    The rows (x, y / y_bound) lie in [-1, 1]^(p + 1), so that their norm is at most B = sqrt(p + 1)
    (docs/formulas.md#wishart-mechanism).
    """
    from dpjax.mechanisms.matrix import InverseWishart, Wishart

    bound, budget = (p + 1) ** 0.5, (config.epsilon, config.delta)
    return {
        "laplace": (sensitivity(p) / config.epsilon, ("",)),
        "laplace, S2's sensitivity": (paper_sensitivity(p) / config.epsilon, ("",)),
        "wishart": (Wishart.published(p, bound, *budget), ("", "debiased")),
        "wishart, calibrated": (Wishart.calibrated(p, bound, *budget), ("debiased",)),
        "inverse-wishart": (InverseWishart.published(p, n, bound, *budget), ("", "debiased")),
        "inverse-wishart, calibrated": (InverseWishart.calibrated(p, n, bound, *budget), ("debiased",)),
    }


def errors_of(grams_seen: np.ndarray, y_bound: float, theta: np.ndarray) -> np.ndarray:
    """min(|theta^ - theta*| / |theta*|, 1) of the plug-in estimates from Gram matrices of scaled rows
    `[draws, p + 1, p + 1]`, as `dpjax.mechanisms.matrix.theta_plug_in`; 1 where there is none.

    By NumPy: inside of the vmapped draws XLA:CPU's solve sometimes waited for ever.
    """
    p = len(theta)
    try:
        found = np.linalg.solve(grams_seen[:, :p, :p], grams_seen[:, :p, p:])[..., 0]
    except np.linalg.LinAlgError:
        return np.ones(len(grams_seen))
    relative = np.linalg.norm(y_bound * found - theta, axis=1) / np.linalg.norm(theta)
    return np.minimum(relative, 1.0)


def plug_in_errors(config: Config, said: Callable[[str], None]) -> list[dict[str, Any]]:
    """min(|theta^ - theta*| / |theta*|, 1) for every number of records; per mechanism the quantiles over noise draws.

    The noise draws of one mechanism and number of records are one vmapped call. In 64 bits.
    """
    import jax
    import jax.numpy as jnp

    from dpjax.engine.problems import precision

    p, y_bound = config.tables.p, config.tables.y_bound
    theta = truth(p, p // 5)
    sums, clipped = grams([config.seed, 7], config.figure2.records, theta, config.noise_sd, y_bound)
    said(f"{config.figure2.records[-1]} records summed")
    rows = []

    @jax.jit
    def laplace(keys, gram, scale):
        return (jax.vmap(lambda key: laplace_noise(key, gram, scale))(keys),)

    @jax.jit
    def matrix(keys, gram, noise):
        def one(key):
            seen = noise.simulate(key, gram)
            return noise.undebiased(seen), noise.debiased(seen)

        return jax.vmap(one)(keys)

    with precision(True):
        key = jax.random.key(config.seed)
        for index, (n, gram) in enumerate(zip(config.figure2.records, sums, strict=True)):
            row = {"n": n, "clipped": clipped[index], "errors": {}, "constants": {}}
            exact = jnp.asarray(gram)
            row["errors"]["no noise"] = [float(errors_of(gram[None], y_bound, theta)[0])] * len(QUANTILES)
            for number, (name, (noise, wanted)) in enumerate(mechanisms(p, n, config).items()):
                keys = jax.random.split(
                    jax.random.fold_in(jax.random.fold_in(key, index), number), config.figure2.draws
                )
                if isinstance(noise, float):
                    found, kinds = laplace(keys, exact, jnp.asarray(noise)), ("",)
                    row["constants"][name] = {"scale": noise}
                else:
                    values = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), noise)
                    found, kinds = matrix(keys, exact, values), ("", "debiased")
                    row["constants"][name] = {
                        f: float(getattr(noise, f)) for f in ("dof", "ridge") if hasattr(noise, f)
                    }
                for kind, seen in zip(kinds, found, strict=True):
                    if kind in wanted:
                        label = f"{name}, {kind}" if kind else name
                        errors = errors_of(np.asarray(seen), y_bound, theta)
                        row["errors"][label] = np.quantile(errors, QUANTILES).tolist()
            rows.append(row)
            said(f"n = {n}: " + ", ".join(f"{k} {v[1]:.3f}" for k, v in row["errors"].items()))
    return rows


def draw(rows: list[dict[str, Any]], tables: list[dict[str, Any]], path: Path, config: Config) -> None:
    """Medians by number of records, with the middle 80% of the noise draws around solid lines."""
    from dpjax.figures.style import new_figure, save_figure

    figure = new_figure(7.2, 5.6)
    axis = figure.subplots()
    n = [row["n"] for row in rows]
    for name, (colour, style, label) in LOOKS.items():
        low, middle, high = np.array([row["errors"][name] for row in rows]).T
        axis.plot(n, middle, color=colour, linestyle=style, marker="o", markersize=3, label=label)
        if style == "-":
            axis.fill_between(n, low, high, color=colour, alpha=0.15, linewidth=0)
    if tables:
        axis.plot(
            [row["n"] for row in tables], [row["error_of_mean"] for row in tables], "s", color="#CC79A7", markersize=6,
            label="posterior mean (Laplace)",
        )  # fmt: skip
    axis.set_xscale("log")
    axis.set_xlabel("records")
    axis.set_ylabel("min(|theta^ - theta*| / |theta*|, 1)")
    axis.set_title(f"plug-in estimate, p = {config.tables.p}, epsilon = {config.epsilon:g}", fontsize=10)
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    save_figure(figure, path, force=True)
