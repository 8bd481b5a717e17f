"""What a run gives back, and how a rerun of some problems is put into it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from dpjax.engine.loop import Streamed


class Chains(NamedTuple):
    """The chains of one problem as they ran: draws `[C, S, K]`, codes, accept and divergences `[C]`."""

    draws: np.ndarray
    codes: np.ndarray
    accept: np.ndarray
    divergences: np.ndarray


@dataclass
class Run:
    """What a run produced.

    draws: reported parameters `[T, C, S, K]` in scaled units, or None when streaming; codes `[T, C]`
    (`dpjax.engine.result_codes`); accept and divergences `[T, C]`; streamed: sums instead of draws, when streaming;
    again: the chains of problems that were run again with more chains than `draws` has room for, by number;
    diagnostics: of every problem's chains as they ran;
    computed: moments and quantiles of posteriors that are computed (`dpjax.samplers._tables.Computed`), else None.
    """

    method: str
    names: tuple[str, ...]
    draws: np.ndarray | Any
    codes: np.ndarray
    accept: np.ndarray
    divergences: np.ndarray
    seconds: float
    compile_seconds: float
    chains: int
    draws_per_chain: int
    streamed: Streamed | None = None
    settings: dict = field(default_factory=dict)
    rerun_mask: np.ndarray | Any = None
    rerun_seconds: float = 0.0
    diagnostics: Any = None
    again: dict[int, Chains] = field(default_factory=dict)
    computed: Any = None

    def __post_init__(self) -> None:
        if self.rerun_mask is None:
            self.rerun_mask = np.zeros(len(self.codes), bool)

    @property
    def reruns(self) -> int:
        """Number of problems that were run again."""
        return int(self.rerun_mask.sum())

    def chains_of(self, problem: int) -> Chains:
        """The chains of one problem as they ran."""
        if problem in self.again:
            return self.again[problem]
        return Chains(*(getattr(self, name)[problem] for name in Chains._fields))


def replace_problems(run: Run, index: np.ndarray, other: Run) -> Run:
    """Put the draws of `other` (same problems, more chains) into places `index` of `run`.

    Extra chains are interleaved, draw by draw, into the slots of the first run, so that shapes stay equal; what is said
    of convergence must come from the chains as they ran, which `Run.again` keeps.
    """
    seconds = {name: getattr(run, name) + getattr(other, name) for name in ("seconds", "compile_seconds")}
    if len(index) == len(run.codes):
        return replace(other, **seconds)  # type: ignore[arg-type]
    ratio = other.chains // run.chains
    step = np.arange(run.draws.shape[2])
    chain = np.arange(run.chains)[:, None] + run.chains * (step % ratio)[None]
    again = dict(run.again)
    for number, problem in enumerate(index):
        again[int(problem)] = other.chains_of(number)
    run.draws[index] = other.draws[:, chain, step[None]]
    first = slice(0, run.chains)
    run.codes[index] = other.codes.max(1)[:, None]
    run.accept[index], run.divergences[index] = other.accept[:, first], other.divergences[:, first]
    return replace(run, again=again, **seconds)  # type: ignore[arg-type]
