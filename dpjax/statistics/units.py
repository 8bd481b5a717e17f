"""Parameters the other way round: from the user's units to scaled ones."""

from __future__ import annotations

import numpy as np

from dpjax.statistics.base import Statistic


def from_user_units(statistic: Statistic, user: np.ndarray) -> np.ndarray:
    """Parameters `[..., K]` in scaled units of those in the user's: the inverse of `Statistic.to_user_units`, which is
    an affine map."""
    size = user.shape[-1]
    offset = statistic.to_user_units(np.zeros(size))
    matrix = statistic.to_user_units(np.eye(size)) - offset  # row k: what one more of parameter k changes
    return np.linalg.solve(matrix.T, (user - offset).reshape(-1, size).T).T.reshape(user.shape)
