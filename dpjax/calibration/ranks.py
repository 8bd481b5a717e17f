"""Ranks of the truth among posterior draws, randomised and of thinned draws.

Simulation-based calibration: a parameter drawn from the prior has a uniform rank among exact posterior draws
(Cook, Gelman and Rubin 2006; Talts et al. 2018). docs/formulas.md#uniform-ranks: the proof holds for continuous
distributions, so the test uses randomised ranks, and of thinned draws, since autocorrelated draws inflate KS.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpjax.errors import InputError


@dataclass(frozen=True)
class Ranks:
    """Where the truth falls among a trial's draws, M trials and K parameters.

    fractions: share of all draws below the truth (ties count half), [M, K].
    pit: randomised rank of the truth among about `thinned` evenly spaced draws, uniform on (0, 1), [M, K].
    """

    names: tuple[str, ...]
    fractions: np.ndarray
    pit: np.ndarray
    thinned: int


def thin_indices(chains: int, draws: int, keep: int = 100) -> np.ndarray:
    """Evenly spaced draw numbers within a chain, so that about `keep` draws over all chains remain."""
    per_chain = min(draws, max(1, round(keep / chains)))
    return ((np.arange(per_chain) + 0.5) * draws / per_chain).astype(np.int64)


def thin(draws, keep: int = 100) -> np.ndarray:
    """About `keep` evenly spaced draws over chains, [T, L, K], from [T, C, S, K]."""
    draws = np.asarray(draws)
    kept = draws[:, :, thin_indices(draws.shape[1], draws.shape[2], keep)]
    return kept.reshape(kept.shape[0], kept.shape[1] * kept.shape[2], kept.shape[3])


def rank_fractions(draws, truth) -> np.ndarray:
    """Share of all draws below the truth, ties counting half, [T, K] from [T, C, S, K] and [T, K]."""
    draws, truth = np.asarray(draws), np.asarray(truth)
    flat = draws.reshape(draws.shape[0], draws.shape[1] * draws.shape[2], draws.shape[3])
    # in the draws' own precision: a float64 truth never ties with a float32 draw that stands for it
    target = truth.astype(draws.dtype)[:, None]
    return ((flat < target).mean(axis=1) + (flat <= target).mean(axis=1)) / 2


def randomised_ranks(thinned, truth, seed: int = 0) -> np.ndarray:
    """Randomised PIT (rank + uniform) / (L + 1) of the truth among L thinned draws, uniform if calibrated.

    Ties with the truth (discrete posteriors) share the randomisation: (below + uniform (ties + 1)) / (L + 1).

    Args:
        thinned: [T, L, K].
        truth: [T, K].
        seed: seed of the uniforms.

    Returns:
        [T, K], in (0, 1).
    """
    thinned = np.asarray(thinned)
    target = np.asarray(truth).astype(thinned.dtype)[:, None]
    below = (thinned < target).sum(axis=1)
    ties = (thinned == target).sum(axis=1)
    u = np.random.default_rng(seed).uniform(size=below.shape)
    return (below + u * (ties + 1)) / (thinned.shape[1] + 1)


def rank_statistics(names, draws, truth, *, keep: int = 100, seed: int = 0) -> Ranks:
    """Rank fractions over all draws and randomised ranks of thinned draws.

    Args:
        names: K parameter names.
        draws: [T, C, S, K].
        truth: [T, K], the parameters the data were simulated with.
        keep: about how many draws the randomised ranks use.
        seed: seed of the randomisation.

    Raises:
        InputError: shapes do not fit.
    """
    draws, truth = np.asarray(draws), np.asarray(truth)
    if draws.ndim != 4 or truth.shape != (draws.shape[0], draws.shape[3]) or len(names) != draws.shape[3]:
        raise InputError(
            "draws, truth, names: shapes [T, C, S, K], [T, K] and K names are needed, "
            f"got {draws.shape}, {truth.shape} and {len(names)} names"
        )
    thinned = thin(draws, keep)
    pit = randomised_ranks(thinned, truth, seed)
    return Ranks(tuple(names), rank_fractions(draws, truth), pit, thinned.shape[1])
