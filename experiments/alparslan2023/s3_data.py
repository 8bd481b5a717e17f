"""The real tables of Alparslan et al. 2023, section 5.2: as its authors prepare them, and without looking at them."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from _common import find_table

from dpjax.errors import InputError
from dpjax.privacy.clipping import clip_rows
from dpjax.releases.table import read_columns

HERE = Path(__file__).parent


class Strict(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Unknown keys are refused."""


class Table(Strict, frozen=True):
    """`[sets.NAME]`.

    title; file and its origin, in one line; target and features: of the paper; drop: features that the second
    preparation leaves out; missing: the code of a missing value; public: variable -> [centre, half] of its range as
    stated before anyone looks at the table; comparable: whether the paper has numbers for this very table; instead: the
    set that this one stands for where its file is missing; header: columns of a file that has none; parties: in place
    of the config's.
    """

    title: str
    file: str
    origin: str
    target: str
    features: list[str]
    public: dict[str, tuple[float, float]] = {}
    drop: list[str] = []
    missing: float | None = None
    comparable: bool = True
    instead: str | None = None
    header: list[str] = []
    parties: list[int] = []


class Prior(Strict, frozen=True):
    """sigma2 ~ InvGamma(shape, scale); Sigma_x ~ InvWishart(V'V, d + 1) with V normal; the variance of theta comes with
    the noise (`s3_release.Level`)."""

    sigma2_shape: float
    sigma2_scale: float


class MethodOptions(Strict, frozen=True):
    """How long a method runs, and fields of its sampler's settings."""

    chains: int = 2
    draws: int = 500
    thin: int | None = None
    settings: dict[str, Any] = {}


@dataclass(frozen=True)
class Split:
    """Training and test records, and the bounds of |x| and |y| that the noise is for."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    bound_x: float
    bound_y: float

    @property
    def d(self) -> int:
        return self.x_train.shape[1]

    def error(self, theta: np.ndarray) -> np.ndarray:
        """Mean squared error of predictions at the test records `[...]`, theta `[..., d]`."""
        return ((self.y_test - theta @ self.x_test.T) ** 2).mean(-1)


def present_tables(tables: dict[str, Table]) -> tuple[dict[str, Table], list[str]]:
    """Tables whose files are there, and a line for each that is not; one that stands `instead` of another only where
    the other is missing.

    Raises:
        InputError: `DPJAX_DATA` is not set, or a comparable table is missing that no other stands for.
    """
    found, said = {}, []
    stands = {table.instead for table in tables.values() if table.instead}
    for name, table in tables.items():
        if table.instead in found:
            continue
        try:
            find_table(table.file, table.origin)
        except InputError as error:
            if name not in stands or not os.environ.get("DPJAX_DATA"):
                raise
            said.append(f"{name}: {error}")
            continue
        found[name] = table
    return found, said


def read_table(table: Table) -> dict[str, np.ndarray]:
    """Columns of the features and the target."""
    path, names = find_table(table.file, table.origin), [*table.features, table.target]
    if not table.header:
        return read_columns(path, names)
    try:
        rows = np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, ValueError):
        raise InputError(f"cannot read the table {path}: it must be comma separated numbers without a header") from None
    if rows.shape[1] != len(table.header):
        raise InputError(f"{path}: {len(table.header)} columns are expected ({', '.join(table.header)})")
    return {name: rows[:, table.header.index(name)] for name in names}


def paper_split(table: Table, columns: dict[str, np.ndarray], train: float) -> Split:
    """As the authors' script prepares it: all rows z-scored (test rows too), y centred and divided by its largest
    absolute value, the first rows for training, bounds = largest |x| and |y| of the training rows. NOT private: scales
    and bounds come from the table (docs/formulas.md#stated-bounds)."""
    x = np.stack([columns[name] for name in table.features], 1)
    y = columns[table.target]
    x = (x - x.mean(0)) / x.std(0, ddof=1)
    y = y - y.mean()
    y = y / np.abs(y).max()
    n = math.ceil(len(y) * train)
    bounds = np.sqrt((x[:n] ** 2).sum(1).max()), np.abs(y[:n]).max()
    return Split(x[:n], y[:n], x[n:], y[n:], float(bounds[0]), float(bounds[1]))


def public_split(table: Table, columns: dict[str, np.ndarray], train: float) -> Split:
    """Without a leaking feature, without rows that have a missing value, every variable moved and scaled by its public
    range, clipped to it; |x| at most sqrt(d), |y| at most 1. The number of complete rows is taken for public. Errors
    are in units of half the public range of y; the response of a test record is not clipped."""
    features = [name for name in table.features if name not in table.drop]
    rows = np.stack([columns[name] for name in [*features, table.target]], 1)
    if table.missing is not None:
        rows = rows[(rows != table.missing).all(1)]
    centre, half = np.array([table.public[name] for name in [*features, table.target]]).T
    scaled = np.clip((rows - centre) / half, -1.0, 1.0)
    n = math.ceil(len(rows) * train)
    bound_x, bound_y = math.sqrt(len(features)), 1.0
    x, y = clip_rows(scaled[:n, :-1], scaled[:n, -1], bound_x, bound_y)
    test = (rows[n:] - centre) / half
    return Split(x, y, np.clip(test[:, :-1], -1.0, 1.0), test[:, -1], bound_x, bound_y)


def party_sums(x: np.ndarray, y: np.ndarray, parties: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums `[J, D]` of consecutive parts of the records (x_i x_j for i <= j, x_i y, y y), the last part with what is
    left over, and the parts' sizes `[J]`."""
    size = len(y) // parties
    ends = [size * j for j in range(parties)] + [len(y)]
    i, j = np.triu_indices(x.shape[1])
    rows = []
    for first, last in pairwise(ends):
        a, b = x[first:last], y[first:last]
        rows.append(np.concatenate([(a.T @ a)[i, j], a.T @ b, [b @ b]]))
    return np.array(rows), np.diff(ends).astype(np.float64)


def least_squares(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """OLS coefficients."""
    return np.linalg.lstsq(x, y, rcond=None)[0]
