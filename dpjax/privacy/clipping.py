"""Clipping of rows to bounds on their norms, and averages of rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpjax._base.checks import check_length
from dpjax.errors import InputError
from dpjax.privacy.row_norms import check_count


def clip_rows(features: Any, target: Any, X: Any, Y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Records brought within their bounds: features longer than X are scaled onto the sphere, targets are clipped.

    Args:
        features: [n, d], finite.
        target: [n], finite.
        X: bound on |x|_2, > 0, stated a priori, never from the data (docs/formulas.md#stated-bounds).
        Y: bound on |y|, > 0, likewise.

    Returns:
        float64 copies [n, d] and [n]. Rows near or above the bound come back a few units in the last place inside, so
        that their exact norm is never above X.

    Raises:
        InputError: shapes that do not fit; entries that are not finite (no value is shown); bad bounds.
    """
    rows, y = _records(features, target)
    X, Y = check_length(X, "X must be a finite number > 0"), check_length(Y, "Y must be a finite number > 0")
    return _shrink(rows, X), np.clip(y, -Y, Y)


def clip_whole_rows(features: Any, target: Any, bound: Any) -> tuple[np.ndarray, np.ndarray]:
    """Records whose whole row (x, y) is longer than the bound, scaled onto the sphere: what the Wishart mechanisms need
    (docs/formulas.md#wishart-mechanism).

    Args:
        features: [n, p], finite.
        target: [n], finite.
        bound: B on sqrt(|x|^2 + y^2), > 0, stated a priori.

    Returns, Raises: as `clip_rows`.
    """
    rows, y = _records(features, target)
    whole = _shrink(np.column_stack([rows, y]), check_length(bound, "bound must be a finite number > 0"))
    return whole[:, :-1].copy(), whole[:, -1].copy()


def average_rows(features: Any, target: Any, k: Any) -> tuple[np.ndarray, np.ndarray]:
    """Sums of k consecutive records over sqrt(k) (Alparslan et al. 2023, section B.1): nearer to normal, of the same
    regression and noise variance.

    Clip first (`clip_rows`); the sensitivity is `averaged_l2_sensitivity`, of tables that differ in one row where it
    stands. Permute the records uniformly before (`dpjax.release` does), unless their order depends on nobody's data.

    Args:
        features: [n, d], finite.
        target: [n], finite.
        k: records in a group, at least 1; it must divide n.

    Returns:
        float64 [n / k, d] and [n / k].

    Raises:
        InputError: as `clip_rows`; k does not divide n.
    """
    rows, y = _records(features, target)
    k = check_count(k, "k")
    if len(rows) % k:
        raise InputError(f"k must divide the number of records, got k = {k} and {len(rows)} records")
    root = math.sqrt(k)
    return rows.reshape(-1, k, rows.shape[1]).sum(1) / root, y.reshape(-1, k).sum(1) / root


def _records(features: Any, target: Any) -> tuple[np.ndarray, np.ndarray]:
    try:
        rows, y = np.array(features, np.float64), np.array(target, np.float64)
    except (TypeError, ValueError):
        raise InputError("features and target must hold numbers only") from None
    if rows.ndim != 2 or rows.shape[1] < 1 or y.shape != rows.shape[:1]:
        raise InputError(f"features must be [n, d] and target [n], got shapes {rows.shape} and {y.shape}")
    if not (np.isfinite(rows).all() and np.isfinite(y).all()):
        raise InputError("features and target must hold finite numbers only")
    return rows, y


def _shrink(rows: np.ndarray, bound: float) -> np.ndarray:
    """Rows with a norm near or above the bound, scaled to just below it: the rounding of the norm and of the products,
    all of one row, is below `slack`."""
    slack = (rows.shape[1] + 8) * np.finfo(np.float64).eps
    largest = np.abs(rows).max(axis=1, initial=0.0)
    unit = rows / np.where(largest > 0, largest, 1.0)[:, None]  # no square overflows
    length = np.sqrt((unit**2).sum(1))
    inside = bound * (1.0 - slack)
    long = largest > inside / np.where(largest > 0, length, 1.0)
    scale = np.where(long, inside / np.where(largest > 0, length, 1.0), 1.0)
    return np.where(long[:, None], unit * scale[:, None], rows)
