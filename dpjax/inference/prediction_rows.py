"""The forms in which people give covariates: rows for `predict`, one point for `predict_at`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpjax.errors import InputError
from dpjax.releases.options import Table
from dpjax.releases.table import read_columns

#: New rows: a table; of one feature also a number or a vector. One row: also a mapping to numbers.
Rows = Table | ArrayLike
#: One point: a number for one feature, numbers in the order of the features, or a mapping from their names.
Point = float | Sequence[float] | Mapping[str, float]


def read_rows(new: Any, features: Sequence[str]) -> np.ndarray:
    """New rows `[R, p]`, columns in the order of the features.

    Args:
        new: a table (`dpjax.releases.table.read_columns`); a mapping or a pandas Series from every feature's name to a
            number (which stands for a constant column beside vectors); of one feature also a number or a vector.
        features: names of the p features.

    Raises:
        InputError: as `read_columns`; a number or a vector for several features.
    """
    if hasattr(new, "to_dict") and hasattr(new, "index") and not hasattr(new, "columns"):  # a pandas Series
        new = new.to_dict() if any(name in new.index for name in features) else new.to_numpy()
    plain = _is_number(new) or (
        isinstance(new, list | tuple | np.ndarray) and getattr(new, "dtype", np.dtype("O")).names is None
    )
    if plain and len(features) == 1:
        new = {features[0]: np.atleast_1d(np.asarray(new))}
    elif _is_number(new):
        names = ", ".join(f"{name!r}: ..." for name in features)
        raise InputError(f"new rows: a number is for one feature; name all {len(features)}: {{{names}}}")
    elif isinstance(new, Mapping) and any(_is_number(new.get(name)) for name in features):
        lengths = [len(new[name]) for name in features if name in new and np.ndim(new[name]) == 1]
        long = max(lengths, default=1)
        new = {k: np.full(long, v) if _is_number(v) else v for k, v in new.items()}
    try:
        columns = read_columns(new, features)
    except InputError as error:
        raise InputError(f"new rows: {error}") from None
    return np.stack([columns[name] for name in features], axis=1)


def read_point(x: Any, features: Sequence[str]) -> np.ndarray:
    """One point of covariates `[p]`.

    Args:
        x: a number for one feature, a sequence of p numbers in the order of the features, or a mapping from every
            feature's name.
        features: names of the p features.

    Raises:
        InputError: wrong names, another number of them, or not finite.
    """
    wanted = f"{len(features)} finite number{'s' if len(features) > 1 else ''} ({', '.join(features)})"
    if isinstance(x, Mapping):
        if set(x) != set(features):
            raise InputError(f"x must hold {wanted}; got the names {', '.join(map(str, x))}")
        x = [x[name] for name in features]
    try:
        point = np.atleast_1d(np.asarray(x))
    except ValueError:  # ragged
        point = np.asarray(None)
    if point.dtype.kind not in "iuf" or point.shape != (len(features),) or not np.isfinite(point).all():
        raise InputError(f"x must be {wanted}; got {x!r}")
    return point.astype(np.float64)


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float | np.number) or (isinstance(value, np.ndarray) and value.ndim == 0)
    ) and not isinstance(value, bool)
