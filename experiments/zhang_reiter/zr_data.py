"""Config, records and sums of the study of Zhang and Reiter."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
from _common import check_values, read_typed
from scipy.special import ndtr, ndtri

from dpjax.privacy.sensitivity import regression_exponents, replace_one_l1

HERE = Path(__file__).parent
#: Records that are in memory at once.
CHUNK = 100_000


class _Strict(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Unknown keys are refused."""


class Prior(_Strict, frozen=True):
    """`[prior]`, in the user's units; covariate_records: what the prior of the covariance of x is worth."""

    theta_precision: float
    sigma2_shape: float
    sigma2_scale: float
    covariate_records: float


class TableRow(_Strict, frozen=True):
    """One number of records of Tables 1 and 2."""

    n: int
    leapfrogs: int
    draws: int


class Tables(_Strict, frozen=True):
    """`[tables]`."""

    p: int
    y_bound: float
    warmup: int
    rows: list[TableRow]


class Low(_Strict, frozen=True):
    """`[low]`: Cases 1-3."""

    p: int
    y_bound: float
    records: list[int]
    replicates: int
    warmup: int
    draws: int
    leapfrogs: int


class HighRow(_Strict, frozen=True):
    """One number of features of Cases 4 and 5; true: how many coefficients are 1."""

    p: int
    true: int
    y_bound: float
    leapfrogs: int
    draws: int


class High(_Strict, frozen=True):
    """`[high]`: Cases 4 and 5."""

    records: int
    warmup: int
    rows: list[HighRow]


class Cost(_Strict, frozen=True):
    """`[cost]`."""

    features: list[int]
    repeats: int
    metric_up_to: int


class Figure2(_Strict, frozen=True):
    """`[figure2]`."""

    records: list[int]
    draws: int


class Config(_Strict, frozen=True):
    """The whole config."""

    seed: int
    epsilon: float
    delta: float
    noise_sd: float
    level: float
    chains: int
    prior: Prior
    tables: Tables
    low: Low
    high: High
    cost: Cost
    figure2: Figure2


def read_config(path: str | Path) -> Config:
    """Read and check a config.

    Raises:
        InputError: not TOML, unknown or missing keys, values out of range.
    """
    config = read_typed(path, Config)
    bounds = [config.tables.y_bound, config.low.y_bound, *(row.y_bound for row in config.high.rows)]
    records = [*config.low.records, *config.figure2.records, config.high.records, *(r.n for r in config.tables.rows)]
    check_values(
        path,
        (
            ("epsilon", config.epsilon > 0, "above 0"),
            ("delta", 0 < config.delta < 1, "between 0 and 1"),
            ("noise_sd", config.noise_sd > 0, "above 0"),
            ("level", 0 < config.level < 1, "between 0 and 1"),
            ("y_bound", all(b > 0 for b in bounds), "above 0"),
            ("tables.p", config.tables.p >= 5, "at least 5, of which a fifth have the coefficient 1"),
            ("records", all(n >= 1 for n in records), "at least 1"),
            ("prior.covariate_records", config.prior.covariate_records > 0, "above 0"),
            ("low.replicates", config.low.replicates >= 1, "at least 1"),
            ("figure2.draws", config.figure2.draws >= 1, "at least 1"),
            ("figure2.records", config.figure2.records == sorted(set(config.figure2.records)), "in increasing order"),
            (
                "cost",
                config.cost.repeats >= 1 and all(p >= 1 for p in config.cost.features),
                "of whole numbers from 1 on",
            ),
            ("high.rows", all(0 <= r.true <= r.p for r in config.high.rows), "with true between 0 and p"),
        ),
    )
    return config


def truth(p: int, ones: int) -> np.ndarray:
    """theta*: the first `ones` coefficients are 1, the rest 0."""
    return (np.arange(p) < ones).astype(np.float64)


def scaled_records(rng: np.random.Generator, n: int, theta: np.ndarray, noise_sd: float, y_bound: float) -> np.ndarray:
    """n records (x, y / y_bound) in [-1, 1]^(p + 1) `[n, p + 1]`: x from N(0, 1) truncated to [-1, 1]
    (docs/formulas.md#large-tables), independent; y clipped to its bound."""
    low, high = ndtr(-1.0), ndtr(1.0)
    x = ndtri(rng.uniform(low, high, (n, len(theta))))
    y = x @ theta + noise_sd * rng.standard_normal(n)
    return np.column_stack([x, np.clip(y / y_bound, -1.0, 1.0)])


def grams(
    seed: list[int], records: list[int], theta: np.ndarray, noise_sd: float, y_bound: float
) -> tuple[list[np.ndarray], list[float]]:
    """Gram matrices `[p + 1, p + 1]` of the first n records of one sequence, for every n (increasing), and which share
    of them has been clipped. Records are drawn in chunks: memory does not grow with n."""
    rng = np.random.default_rng(seed)
    total, found = np.zeros((len(theta) + 1, len(theta) + 1)), []
    clipped, shares, done = 0, [], 0
    for n in records:
        while done < n:
            rows = scaled_records(rng, min(CHUNK, n - done), theta, noise_sd, y_bound)
            total += rows.T @ rows
            clipped += int((abs(rows[:, -1]) == 1.0).sum())
            done += len(rows)
        found.append(total.copy())
        shares.append(clipped / n)
    return found, shares


def sensitivity(p: int) -> float:
    """Replace-one L1 sensitivity of the sums of records in [-1, 1]^(p + 1): sum of the entries' ranges
    (docs/formulas.md#box-sensitivity)."""
    return replace_one_l1(regression_exponents(p, intercept=False), [(-1.0, 1.0)] * (p + 1), "ranges")


def paper_sensitivity(p: int) -> float:
    """Zhang and Reiter's b^2 p (p + 1) / 2 + a b p + a^2 with widths a = b = 2 (docs/formulas.md#box-sensitivity:
    wrong; here it is too much)."""
    return 4.0 * p * (p + 1) / 2 + 4.0 * p + 4.0
