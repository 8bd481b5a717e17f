"""Convergence diagnostics for many problems at once: rank-normalised R-hat, bulk and tail ESS, MCSE.

The definitions are those of Vehtari, Gelman, Simpson, Carpenter and Buerkner (2021), "Rank-normalization,
folding, and localization: an improved R-hat for assessing convergence of MCMC", and the numbers are ArviZ's
(`method="rank"`, `"bulk"`, `"tail"`), computed for all problems and parameters in vectorised chunks because
ArviZ's loop over one variable at a time takes minutes on a calibration study.

Documented corner cases:

- A parameter that never moved (all draws of all chains equal) has R-hat NaN and ESS equal to the number of
  split draws, as in ArviZ; `Diagnostics.max_rhat` and `min_ess` count it as infinity and 0.
- A NaN or infinite draw, or fewer than 4 draws per chain, makes every figure of that parameter NaN.
- One chain: ArviZ refuses R-hat; here it is computed from the chain's two halves.
- Tail ESS uses NumPy's quantile, as ArviZ 1.x does. ArviZ 0.x can round (1 - g) x + g x below x when two
  equal draws straddle the quantile, and then differs by a few draws. The tails are 5% and 95%, as in the
  paper and in ArviZ 0.x; ArviZ 1.x's summary takes 11% and 89% unless its setting `stats.ci_prob` is .95.
- An odd number of draws: the split leaves out the middle draw, before the median of the folded R-hat is
  taken, as in ArviZ's `rhat`; the summary of ArviZ 0.x takes that median over all draws (about 1e-4 off).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri

from dpjax.errors import InputError

#: A rank-normalised R-hat above, or a bulk or tail ESS below, is said to the user, and such a problem is run again.
RHAT_LIMIT, ESS_LIMIT = 1.05, 100.0
#: Where there are ten times as many draws, a problem with a smaller ESS than this is run again too.
WANTED_ESS = 400.0
CHUNK_ELEMENTS = 150_000  # draws per chunk: the working set of one thread stays near the size of an L2 cache


@dataclass(frozen=True)
class Diagnostics:
    """Diagnostics of T problems with K parameters each; R-hat and ESS have shape [T, K].

    `ess_bulk` and `ess_tail` are raw: antithetic chains have more effective draws than draws. `capped_bulk`
    and `capped_tail` stop at the number of draws; `min_ess` is the smallest capped bulk ESS of a problem.
    """

    names: tuple[str, ...]
    draws: int | np.ndarray  # chains times draws per chain; [T, 1] where problems differ
    rhat: np.ndarray
    ess_bulk: np.ndarray
    ess_tail: np.ndarray
    mcse_mean: np.ndarray
    constant: np.ndarray  # bool [T, K]: the parameter never moved

    @property
    def capped_bulk(self) -> np.ndarray:
        """Bulk ESS, at most the number of draws, [T, K]."""
        return np.minimum(self.ess_bulk, self.draws)

    @property
    def capped_tail(self) -> np.ndarray:
        """Tail ESS, at most the number of draws, [T, K]."""
        return np.minimum(self.ess_tail, self.draws)

    @property
    def min_ess(self) -> np.ndarray:
        """Smallest capped bulk ESS over parameters, [T]; NaN and constant parameters count as 0."""
        return _zero_where_bad(self.capped_bulk, self.constant).min(axis=1)

    @property
    def min_ess_tail(self) -> np.ndarray:
        """Smallest capped tail ESS over parameters, [T]; NaN and constant parameters count as 0."""
        return _zero_where_bad(self.capped_tail, self.constant).min(axis=1)

    @property
    def max_rhat(self) -> np.ndarray:
        """Largest R-hat over parameters, [T]; NaN counts as infinity."""
        return np.where(np.isnan(self.rhat), np.inf, self.rhat).max(axis=1)

    def unreliable(self, rhat_limit: float = RHAT_LIMIT, ess_limit: float = ESS_LIMIT) -> np.ndarray:
        """Problems whose draws should not be trusted yet, bool [T]: R-hat above, bulk or tail ESS under a limit."""
        return (self.max_rhat > rhat_limit) | (self.min_ess < ess_limit) | (self.min_ess_tail < ess_limit)

    def take(self, index: slice | np.ndarray) -> Diagnostics:
        """Those of some of the problems."""
        draws = self.draws if isinstance(self.draws, int) else self.draws[index]
        return replace(self, draws=draws, **{name: getattr(self, name)[index] for name in _ARRAYS})

    def put(self, index: np.ndarray, other: Diagnostics) -> Diagnostics:
        """With those of problems `index` taken from `other`, whose problems they are, with draws of any number."""
        count = len(self.rhat)
        merged: dict[str, Any] = {}
        for name in ("draws", *_ARRAYS):
            value = getattr(self, name)
            if name == "draws":
                value = np.broadcast_to(value, (count, 1))
            value = np.array(value)
            value[index] = getattr(other, name)
            merged[name] = value
        return replace(self, **merged)


_ARRAYS = ("rhat", "ess_bulk", "ess_tail", "mcse_mean", "constant")


@dataclass(frozen=True)
class Worst:
    """One (problem, parameter) pair with its R-hat and its capped bulk ESS."""

    problem: int
    name: str
    rhat: float
    ess_bulk: float


def worst(diagnostics: Diagnostics, count: int = 1) -> list[Worst]:
    """Pairs of problem and parameter with the smallest capped bulk ESS (ties: the largest R-hat first)."""
    ess = _zero_where_bad(diagnostics.capped_bulk, diagnostics.constant)
    rhat = np.where(np.isnan(diagnostics.rhat), np.inf, diagnostics.rhat)
    order = np.lexsort((-rhat.ravel(), ess.ravel()))[:count]
    problems, parameters = np.unravel_index(order, ess.shape)
    return [
        Worst(int(t), diagnostics.names[k], float(rhat[t, k]), float(ess[t, k]))
        for t, k in zip(problems, parameters, strict=True)
    ]


def diagnose(draws, names, *, threads: int = 2) -> Diagnostics:
    """Rank-normalised R-hat, bulk and tail ESS and the Monte Carlo error of the mean.

    Args:
        draws: [T, C, S, K], T problems, C chains, S draws, K parameters; any real dtype.
        names: K parameter names.
        threads: worker threads; sorting and Fourier transforms release the interpreter lock.

    Returns:
        Diagnostics with arrays [T, K]; corner cases as in the module's docstring.

    Raises:
        InputError: `draws` has not four axes, has an empty axis, or `names` does not fit.
    """
    draws = np.asarray(draws)
    if draws.ndim != 4 or 0 in draws.shape:
        raise InputError(f"draws: shape [problems, chains, draws, parameters] is needed, got {draws.shape}")
    names = tuple(names)
    problems, chains, length, parameters = draws.shape
    if len(names) != parameters:
        raise InputError(f"names: {parameters} names are needed, got {len(names)}")
    step = max(1, CHUNK_ELEMENTS // (chains * length * parameters))
    out = np.empty((5, problems, parameters))

    def work(start: int) -> None:
        block = draws[start : start + step]
        rows = np.ascontiguousarray(np.moveaxis(block, 3, 1), dtype=np.float64)
        result = _diagnose_rows(rows.reshape(-1, chains, length))
        out[:, start : start + step] = result.reshape(5, -1, parameters)

    starts = range(0, problems, step)
    if threads > 1 and len(starts) > 1:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, starts))
    else:
        for start in starts:
            work(start)
    rhat, bulk, tail, mcse, constant = out
    return Diagnostics(names, chains * length, rhat, bulk, tail, mcse, constant > 0.5)


def _zero_where_bad(ess: np.ndarray, constant: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(ess) | constant, 0.0, ess)


def _diagnose_rows(rows: np.ndarray) -> np.ndarray:
    """R-hat, bulk ESS, tail ESS, MCSE of the mean, constant flag, [5, R], of rows [R, C, S]."""
    count, _, length = rows.shape
    result = np.full((5, count), np.nan)
    good = np.isfinite(rows).all(axis=(1, 2))
    flat_rows = rows.reshape(count, -1)
    result[4] = (flat_rows == flat_rows[:, :1]).all(axis=1)
    if length < 4 or not good.any():
        return result
    rows = rows[good]
    half = length // 2
    split = np.concatenate([rows[:, :, :half], rows[:, :, length - half :]], axis=1)
    shape = split.shape
    flat = split.reshape(shape[0], -1)
    order = np.argsort(flat, axis=1)
    ordered = np.take_along_axis(flat, order, axis=1)
    bulk = _normal_scores(order, ordered).reshape(shape)
    # a split of an odd chain leaves out the middle draw: quantiles and sd are of all draws, as in ArviZ
    every = ordered if length == 2 * half else np.sort(rows.reshape(shape[0], -1), axis=1)
    folded = np.abs(flat - _middle(ordered)[:, None])
    order = np.argsort(folded, axis=1)
    folded = _normal_scores(order, np.take_along_axis(folded, order, axis=1)).reshape(shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        result[0, good] = np.maximum(_rhat(bulk), _rhat(folded))
        result[1, good] = _ess(bulk)
        low, high = (split <= _quantile(every, q)[:, None, None] for q in (0.05, 0.95))
        result[2, good] = np.minimum(_ess(low.astype(np.float64)), _ess(high.astype(np.float64)))
        deviation = rows.reshape(shape[0], -1).std(axis=1, ddof=1)
        result[3, good] = deviation / np.sqrt(_ess(split))
    return result


def _normal_scores(order: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Normal scores of the average ranks (Blom's offset 3/8), [R, N], from a row's sorting order."""
    rows, size = order.shape
    # an average rank is half an integer, so all scores stand in one table of 2 N - 1 entries
    table = ndtri((np.arange(2 * size - 1) / 2 + 1 - 0.375) / (size + 0.25))
    index = np.broadcast_to(np.arange(0, 2 * size, 2), order.shape)
    new = ordered[:, 1:] != ordered[:, :-1]
    tied = ~new.all(axis=1)
    if tied.any():
        new, position = new[tied], np.arange(size)
        first = np.zeros((len(new), size), dtype=np.int64)
        first[:, 1:] = np.where(new, position[1:], 0)
        np.maximum.accumulate(first, axis=1, out=first)
        last = np.full((len(new), size), size - 1, dtype=np.int64)
        last[:, :-1] = np.where(new, position[:-1], size - 1)
        last = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]
        index = index.copy()
        index[tied] = first + last
    scores = np.empty((rows, size))
    np.put_along_axis(scores, order, table[index], axis=1)
    return scores


def _middle(ordered: np.ndarray) -> np.ndarray:
    size = ordered.shape[1]
    return (ordered[:, (size - 1) // 2] + ordered[:, size // 2]) / 2


def _quantile(ordered: np.ndarray, q: float) -> np.ndarray:
    """NumPy's linear quantile of sorted rows."""
    position = (ordered.shape[1] - 1) * q
    below = int(np.floor(position))
    above = min(below + 1, ordered.shape[1] - 1)
    gap = ordered[:, above] - ordered[:, below]
    fraction = position - below
    # the two forms of NumPy's interpolation: exact at both ends
    if fraction < 0.5:
        return ordered[:, below] + gap * fraction
    return ordered[:, above] - gap * (1 - fraction)


def _rhat(split: np.ndarray) -> np.ndarray:
    length = split.shape[2]
    between = length * split.mean(axis=2).var(axis=1, ddof=1)
    within = split.var(axis=2, ddof=1).mean(axis=1)
    return np.sqrt((between / within + length - 1) / length)


def _ess(split: np.ndarray) -> np.ndarray:
    """Geyer's initial monotone sequence estimator over split chains [R, C, n], as ArviZ computes it."""
    rows, chains, length = split.shape
    size = chains * length
    mean = split.mean(axis=2, keepdims=True)
    # only the average autocovariance over chains is needed: one inverse transform per row, not per chain
    padded = next_fast_len(2 * length, real=True)
    spectrum = rfft(split - mean, n=padded, axis=2)
    power = (spectrum.real**2 + spectrum.imag**2).mean(axis=1)
    covariance = irfft(power, n=padded, axis=1)[:, :length] / length
    within = covariance[:, :1] * length / (length - 1.0)
    var_plus = covariance[:, :1] + (mean.var(axis=1, ddof=1) if chains > 1 else 0.0)
    rho = 1.0 - (within - covariance) / var_plus
    rho[:, 0] = 1.0
    pairs = rho[:, 0 : 2 * (length // 2) : 2] + rho[:, 1::2]
    # the last pair that Geyer's loop looks at: the first one that is not positive, or the last allowed one
    limit = max((length - 3) // 2, 0)
    stop = pairs[:, : limit + 1] <= 0
    stop[:, limit] = True
    last = stop.argmax(axis=1)
    monotone = np.minimum.accumulate(pairs[:, : limit + 1], axis=1)
    kept = np.where(np.arange(limit + 1) < last[:, None], monotone, 0.0).sum(axis=1)
    index = np.arange(rows)
    final = rho[index, 2 * last]
    final = np.where((final > 0) | (pairs[index, last] >= 0), final, 0.0)
    tau = np.maximum(-1.0 + 2.0 * kept + final, 1.0 / np.log10(size))
    ess = size / tau
    extent = split.max(axis=(1, 2)) - split.min(axis=(1, 2))
    return np.where(extent < np.finfo(np.float64).resolution, float(size), ess)
