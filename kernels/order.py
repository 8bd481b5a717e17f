"""Order of the entries of sums of products, and of the entries of triangles. NumPy only, so that nothing that needs it
has to load JAX."""

from __future__ import annotations

from functools import cache

import numpy as np


def index_pairs(p: int) -> tuple[tuple[int, int], ...]:
    """Index pairs into (1, x_1..x_p, y) of the D entries of a regression's sums with p features: x_i; x_i x_j
    (i <= j); y; x_i y; y^2."""
    linear = [(0, i) for i in range(1, p + 1)]
    products = [(i, j) for i in range(1, p + 1) for j in range(i, p + 1)]
    return (*linear, *products, (0, p + 1), *((i, p + 1) for i in range(1, p + 2)))


@cache
def pairs(p: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices (a, b) into (1, x_1..x_p, y) of the D entries, `[D]` each, in the order of `index_pairs`."""
    a, b = np.array(index_pairs(p), dtype=np.int32).T
    return a, b


def origin_places(p: int) -> tuple[np.ndarray, np.ndarray]:
    """Places in (x_1, ..., x_p, y), from 0, of the two factors of every entry without the unit feature: x_i x_j for
    i <= j, x_i y, y y; `[D]` each."""
    a, b = np.array([(a, b) for a, b in index_pairs(p) if a], np.int32).T - 1
    return a, b


@cache
def below_diagonal(p: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each entry below the diagonal of a `[p, p]` matrix, in row order (int32: 64-bit indices mix
    badly with x64 off)."""
    rows, cols = np.tril_indices(p, -1)
    return rows.astype(np.int32), cols.astype(np.int32)
