"""What chains did in the basins of a posterior: whether one got lost, or all missed a mode."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpjax.engine.result_codes import MODE_MISSING, OK, WORSE_MODE
from dpjax.samplers.basins import SMALLEST_MASS, Basins, log_density

#: Visits to a mode that show that chains find it; fewer do where fewer are due.
_VISITS = 25


#: A chain this much below the top of its basin, in the log density, all the time, is not in a basin at all.
_LOST = 20.0


# ---- what chains did -------------------------------------------------------------------------------------------------
def judge(problems: Any, basins: Basins, draws: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Result codes `[T, C]` with `WORSE_MODE` and `MODE_MISSING` where all else is well; to be called in 64 bits.

    A chain is lost if it ends far below the top of its basin, or spends most of its time in a basin of next to no mass.
    A mode is missing if the chains of a problem, all together, came to it or left it fewer times than chains must that
    tell how much it holds.

    Args:
        draws: reported parameters `[T, C, S, K]`.
        codes: `[T, C]`.
    """
    phi = problems.model_template().prior.unconstrain(np.asarray(draws, np.float64))
    count, chains, length, dim = phi.shape
    off = phi - basins.tops[:, None, None, 0]
    way = np.einsum("tmij,tmj->tmi", basins.metric, basins.tops - basins.tops[:, :1])
    projected = np.einsum("tcsi,tmi->tcsm", off, way)
    inside = (projected > basins.valley[:, None, None]) & (basins.mass > 0)[:, None, None]
    inside[..., 0] = ~inside[..., 1:].any(-1)
    lost = ((inside.mean(2) > 0.5) & (basins.mass < SMALLEST_MASS)[:, None]).any(-1)
    last = phi[:, :, np.unique(np.linspace(0, length - 1, 8).astype(int))]
    with np.errstate(invalid="ignore"):
        values = log_density(problems)(last.reshape(count, -1, dim)).reshape(last.shape[:-1])
        homes = np.take_along_axis(inside, np.unique(np.linspace(0, length - 1, 8).astype(int))[None, None, :, None], 2)
        height = np.where(homes, basins.heights[:, None, None], -np.inf).max(-1)
        lost |= (values < height - _LOST).all(-1)
    moves = (inside[:, :, 1:] != inside[:, :, :-1]).sum((1, 2))  # [T, M], into it and out of it
    due = chains * length * basins.mass * (1.0 - basins.mass)
    missing = (basins.matters & (basins.mass < 1.0) & (0.5 * moves < np.minimum(_VISITS, 0.25 * due))).any(1)
    found = np.where(lost, WORSE_MODE, np.where(missing[:, None], MODE_MISSING, OK))
    return np.where(codes == OK, found, codes)
