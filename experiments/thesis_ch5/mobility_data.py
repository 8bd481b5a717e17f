"""Config, table and Opportunity Insights' own method of the social mobility case study."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from _common import check_values, read_typed

from dpjax.releases.table import read_columns

HERE = Path(__file__).parent
COLUMNS = ("parent_rank", "kid_rank", "cell")
CORNERS = ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0))
ORIGIN = (
    "it is the simulated microdata of Opportunity Insights (CC BY 4.0), github.com/OpportunityInsights/"
    "Differential-Privacy, example_code_implementation_guide/private_data_by_cells.dta, as a CSV file with the columns "
    + ", ".join(COLUMNS)
)


class _Strict(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Unknown keys are refused."""


class Data(_Strict, frozen=True):
    """`[data]`: name of the file, and between which values a cell's median kid_rank must lie."""

    file: str
    median_inside: tuple[float, float]


class OI(_Strict, frozen=True):
    """`[oi]`: law of the unit-variance noise, "laplace" or "normal"."""

    noise: str = "laplace"


class Figures(_Strict, frozen=True):
    """`[figures]`: the epsilon and the quantiles of cell sizes that they show."""

    epsilon: float
    sizes: list[float]


class Simulated(_Strict, frozen=True):
    """`[simulated]`: replicates of all cells per epsilon and prior, by method; chains and draws."""

    replicates: dict[str, int]
    chains: int
    draws: int


class Config(_Strict, frozen=True):
    """The whole config; priors: name -> prior as of `dpjax.fit`, in units of [0, 1]."""

    seed: int
    epsilon: list[float]
    at: float
    levels: list[float]
    methods: list[str]
    chains: int
    draws: int
    data: Data
    oi: OI
    figures: Figures
    simulated: Simulated
    priors: dict[str, dict[str, Any]]


def read_config(path: str | Path) -> Config:
    """Read and check a config.

    Raises:
        InputError: not TOML, unknown or missing keys, values out of range.
    """
    config = read_typed(path, Config)
    check_values(
        path,
        (
            ("epsilon", config.epsilon and all(e > 0 for e in config.epsilon), "numbers above 0"),
            ("levels", config.levels and all(0 < v < 1 for v in config.levels), "numbers between 0 and 1"),
            ("at", 0 <= config.at <= 1, "a rank between 0 and 1"),
            ("oi.noise", config.oi.noise in ("laplace", "normal"), "'laplace' or 'normal'"),
            ("figures.epsilon", config.figures.epsilon in config.epsilon, "one of epsilon"),
            ("simulated.replicates", all(v >= 1 for v in config.simulated.replicates.values()), "at least 1"),
            ("priors", bool(config.priors), "at least one table [priors.NAME]"),
        ),
    )
    return config


def read_cells(path: Path, inside: tuple[float, float]) -> tuple[list[dict[str, np.ndarray]], int]:
    """Records of each cell as columns, in the order of the cells' numbers, and how many cells were left out because
    their median kid_rank is not inside."""
    columns = read_columns(path, COLUMNS)
    cells, dropped = [], 0
    for number in np.unique(columns["cell"]):
        mask = columns["cell"] == number
        cell = {name: columns[name][mask] for name in COLUMNS[:2]}
        if inside[0] <= np.median(cell["kid_rank"]) <= inside[1]:
            cells.append(cell)
        else:
            dropped += 1
    return cells, dropped


def ols_line(x: np.ndarray, y: np.ndarray, at: float) -> float:
    """Value at `at` of the least squares line."""
    spread = ((x - x.mean()) ** 2).sum()
    slope = ((x - x.mean()) * (y - y.mean())).sum() / spread if spread > 0 else 0.0
    return float(y.mean() + slope * (at - x.mean()))


def local_sensitivity(x: np.ndarray, y: np.ndarray, at: float) -> float:
    """Largest change of `ols_line` when one record at a corner of the unit square is added."""
    before = ols_line(x, y, at)
    return max(abs(ols_line(np.append(x, a), np.append(y, b), at) - before) for a, b in CORNERS)


class Perturbed(_Strict, frozen=True):
    """Opportunity Insights' method: chi, the cell that sets it (by position), least squares values, and by epsilon the
    released ones. NOT formally differentially private."""

    chi: float
    cell: int
    exact: Any
    points: Mapping[float, Any]


def output_perturbation(cells: list[dict[str, np.ndarray]], config: Config) -> Perturbed:
    """theta_g + sqrt(2) chi / (epsilon N_g) omega, chi = max_g N_g LS_g, omega of unit variance.

    Not differentially private: LS_g is the sensitivity at this table, and its maximum over cells, which sets the noise,
    is published without any.
    """
    x, y = ([cell[name] for cell in cells] for name in COLUMNS[:2])
    exact = np.array([ols_line(a, b, config.at) for a, b in zip(x, y, strict=True)])
    size = np.array([len(a) for a in x])
    products = size * [local_sensitivity(a, b, config.at) for a, b in zip(x, y, strict=True)]
    chi = products.max()
    rng = np.random.default_rng([config.seed, 1])
    points = {}
    for epsilon in config.epsilon:
        omega = rng.standard_normal(len(cells))
        if config.oi.noise == "laplace":
            omega = rng.laplace(0.0, 0.5**0.5, len(cells))
        points[epsilon] = exact + 2**0.5 * chi / (epsilon * size) * omega
    return Perturbed(chi=float(chi), cell=int(products.argmax()), exact=exact, points=points)
