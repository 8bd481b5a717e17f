"""Simulated data of Alparslan et al. 2023, section 5.1, errors of its methods against epsilon, and MMD to the
non-private posterior."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from _common import check_values, read_typed
from s3_data import MethodOptions, Prior, Strict, party_sums
from s3_release import (
    NOISES,
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

WIDTH = 0.1  # h of the authors' kernel exp(-|x - y|^2 / (2 h))


class Variant(Strict, frozen=True):
    """`[variants.NAME]`: noise of `NOISES`, and the variance of theta in the prior."""

    title: str
    noise: str
    theta_variance: float


class Config(Strict, frozen=True):
    """The whole config; `read_config` checks it."""

    seed: int
    records: int
    features: list[int]
    parties: list[int]
    epsilon: list[float]
    repetitions: int
    residual_variance: float
    methods: list[str]
    mmd_draws: int
    mmd_reference: int
    unsafe_paper_sensitivity: bool
    prior: Prior
    variants: dict[str, Variant]
    method: dict[str, MethodOptions]


def read_config(path: Any) -> Config:
    """Read and check a config.

    Raises:
        InputError: not TOML, unknown or missing keys, values out of range.
    """
    config = read_typed(path, Config)
    check_values(
        path,
        (
            ("records", config.records > max(config.features, default=0), "above the number of features"),
            ("features", config.features and min(config.features) >= 1, "numbers of at least 1"),
            ("parties", config.parties and min(config.parties) >= 1, "numbers of at least 1"),
            ("epsilon", config.epsilon and min(config.epsilon) > 0, "numbers above 0"),
            ("repetitions", config.repetitions >= 2, "at least 2"),
            *noise_checks(config),
        ),
    )
    return config


@dataclass(frozen=True)
class Simulated:
    """One data set: records, the parameters they were drawn with, Lambda of Sigma_x's law."""

    x: np.ndarray
    y: np.ndarray
    theta: np.ndarray
    covariance: np.ndarray
    scale: np.ndarray

    @property
    def bounds(self) -> tuple[float, float]:
        """Largest |x| and |y|: from the data, not private."""
        return float(np.sqrt((self.x**2).sum(1).max())), float(np.abs(self.y).max())


def simulate(records: int, d: int, residual_variance: float, seed: int) -> Simulated:
    """theta ~ N(0, I), Sigma_x ~ InvWishart(V'V, d + 1), x ~ N(0, Sigma_x), y | x ~ N(x'theta, residual_variance)."""
    from scipy.stats import invwishart

    scale = wishart_scale(d, [seed, d])
    rng = np.random.default_rng([seed, d, 1])
    covariance = np.reshape(invwishart(d + 1, scale).rvs(random_state=rng), (d, d))
    theta = rng.standard_normal(d)
    x = rng.standard_normal((records, d)) @ np.linalg.cholesky(covariance).T
    y = x @ theta + np.sqrt(residual_variance) * rng.standard_normal(records)
    return Simulated(x, y, theta, covariance, scale)


def non_private(data: Simulated, prior: Prior, count: int, seed: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Draws `[count, d]` of theta from the conjugate posterior of the exact sums, whose precision is b / (a - 1) I as
    in the authors' code, and its mean."""
    rng, d = np.random.default_rng(seed), len(data.theta)
    precision = data.x.T @ data.x + prior.sigma2_scale / (prior.sigma2_shape - 1) * np.eye(d)
    mean = np.linalg.solve(precision, data.x.T @ data.y)
    a = prior.sigma2_shape + len(data.y) / 2
    b = prior.sigma2_scale + 0.5 * (data.y @ data.y - mean @ precision @ mean)
    sigma2 = b / rng.gamma(a, size=count)
    root = np.linalg.inv(np.linalg.cholesky(precision))
    return mean + np.sqrt(sigma2)[:, None] * (rng.standard_normal((count, d)) @ root), mean


def mmd(x: np.ndarray, y: np.ndarray, width: float) -> float:
    """Unbiased squared MMD of draws x `[m, d]` and y `[n, d]`, kernel exp(-|a - b|^2 / (2 width))."""
    return kernel_mean(x, width) + kernel_mean(y, width) - 2 * float(_kernel(x, y, width).mean())


def kernel_mean(x: np.ndarray, width: float) -> float:
    """Mean of the kernel over pairs of different draws."""
    m = len(x)
    return float((_kernel(x, x, width).sum() - m) / (m * (m - 1)))


def _kernel(x: np.ndarray, y: np.ndarray, width: float) -> np.ndarray:
    square = (x**2).sum(1)[:, None] + (y**2).sum(1)[None] - 2 * x @ y.T
    return np.exp(-np.maximum(square, 0.0) / (2 * width))


def study(config: Config, said: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Run everything; returns what results.json holds."""
    results: dict[str, Any] = {
        "versions": runtime.versions(),
        "machine": runtime.machine(),
        "config": msgspec.to_builtins(config),
        "private": False,
        "noises": {v.noise: NOISES[v.noise] for v in config.variants.values()},
        "mmd": {
            "mmd2": f"as in the authors' code: h = {WIDTH}, times (2 pi h)^(-d/2)",
            "mmd2_standardised": "parameters over their non-private sd, kernel exp(-|x - y|^2 / (2 d)) "
            "(docs/formulas.md#mmd)",
        },
        "features": {},
    }
    for d in config.features:
        data = simulate(config.records, d, config.residual_variance, config.seed)
        reference, mean = non_private(data, config.prior, config.mmd_reference, [config.seed, d, 2])
        of_exact = {"mse": float(((mean - data.theta) ** 2).mean()), "prediction": float(_prediction(mean, data))}
        found: dict[str, Any] = {
            "bounds": list(data.bounds), "theta": data.theta.tolist(), "covariance": data.covariance.tolist(),
            "non_private": of_exact, "parties": {},
        }  # fmt: skip
        for parties in config.parties:
            found["parties"][str(parties)] = _cell(config, data, reference, parties)
            said(f"d = {d}, J = {parties}")
        results["features"][str(d)] = found
    return results


def _prediction(theta: np.ndarray, data: Simulated) -> np.ndarray:
    """Mean squared error of the predicted mean at a fresh x, theta `[..., d]`."""
    off = theta - data.theta
    return np.einsum("...i,ij,...j->...", off, data.covariance, off)


def _cell(config: Config, data: Simulated, reference: np.ndarray, parties: int) -> dict[str, Any]:
    """variant -> method -> one entry per epsilon; all epsilons, repetitions and variants of a method are one call."""
    sums, n = party_sums(data.x, data.y, parties)
    d, count, seed = len(data.theta), config.repetitions, [config.seed, len(data.theta), parties]
    x_bound, y_bound = data.bounds
    delta = 1.0 / config.records
    levels = {
        (label, e): Level(v.noise, d, x_bound, y_bound, e, delta, v.theta_variance)
        for label, v in config.variants.items()
        for e in config.epsilon
    }
    sd = reference.std(0, ddof=1)
    own = kernel_mean(reference, WIDTH), kernel_mean(reference / sd, float(d))
    cells: dict[str, Any] = {label: {method: [] for method in config.methods} for label in config.variants}
    for method in config.methods:
        if method == "adassp":
            for k, ((label, e), level) in enumerate(levels.items()):
                theta = adassp_estimates(sums, level, count, [*seed, k], parties)
                cells[label][method].append({"epsilon": e, **_errors(theta, data)})
            continue
        options = config.method.get(method, MethodOptions())
        posterior = infer(method, sums, n, list(levels.values()), count, config.prior, data.scale, options, seed)
        grown = chain_length(posterior.draws, data.covariance)
        for k, (label, e) in enumerate(levels):
            rows = slice(k * count, (k + 1) * count)
            here = posterior.draws[rows]
            cells[label][method].append({
                "epsilon": e, **_errors(posterior.estimate[rows], data),
                "prediction_of_draws": summary(_prediction(here, data).mean((1, 2))),
                "added_by_chain_length": None if posterior.diagnostics is None else float(grown[rows].mean()),
                **_mmds(here, reference, sd, own, config.mmd_draws), **convergence(posterior, rows),
                "seconds": posterior.seconds / len(levels),
            })  # fmt: skip
    return cells


def _errors(theta: np.ndarray, data: Simulated) -> dict[str, Any]:
    return {
        "mse": summary(((theta - data.theta) ** 2).mean(-1)),
        "prediction": summary(_prediction(theta, data)),
        "mse_median": float(np.median(((theta - data.theta) ** 2).mean(-1))),
    }


def _mmds(
    draws: np.ndarray, reference: np.ndarray, sd: np.ndarray, own: tuple[float, float], keep: int
) -> dict[str, Any]:
    """Both squared MMDs over repetitions; own: `kernel_mean` of the reference for either."""
    d = draws.shape[-1]
    plain, standard = [], []
    for chains in draws:
        flat = chains.reshape(-1, d)
        some = flat[np.linspace(0, len(flat) - 1, min(keep, len(flat))).astype(int)]
        for found, x, y, width, mean in (
            (plain, some, reference, WIDTH, own[0]), (standard, some / sd, reference / sd, float(d), own[1])
        ):  # fmt: skip
            found.append(kernel_mean(x, width) + mean - 2 * float(_kernel(x, y, width).mean()))
    factor = (2 * np.pi * WIDTH) ** (-d / 2)
    return {"mmd2": summary(factor * np.array(plain)), "mmd2_standardised": summary(np.array(standard))}
