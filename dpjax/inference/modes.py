"""Posteriors with several modes, found where the whole posterior can be computed (docs/formulas.md#two-modes).

A redacted sum is not monotone in the parameter: few records inside the bounds may mean small values or large ones.
Chains that start at one mode say nothing of the other and agree with each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpjax.engine.problems import Problems
from dpjax.mechanisms import mechanism_named
from dpjax.samplers.exact import Quadrature

#: A mode counts if it holds this share of the posterior and rises this many times above the valley beside it.
SMALLEST_MASS, SMALLEST_RISE = 0.01, 1.5
#: Chains from two starts disagree when their means are this many posterior sds apart.
LARGEST_DISTANCE = 0.2


@dataclass(frozen=True)
class Mode:
    """parameter: reported parameter at the top; mass: share of the posterior between the valleys around it."""

    parameter: float
    mass: float


def can_find_modes(problems: Problems) -> bool:
    """Whether the posterior is one of one parameter that may have several modes, and can be computed."""
    model = problems.model_template()
    single = model.dim == 1 and model.statistic_dim == 1
    return model.may_have_modes and single and mechanism_named(problems.mechanism).closed_form


def find_modes(problems: Problems) -> list[list[Mode]]:
    """The modes of each of T posteriors, largest mass first.

    Args:
        problems: of one parameter and one statistic, truncated (`can_find_modes`).
    """
    made = Quadrature(noise=mechanism_named(problems.mechanism).density).tables(problems)
    return [_modes(*columns) for columns in zip(made.parameter, made.cdf, made.log_density, strict=True)]


def _modes(parameters, cdf, log_density) -> list[Mode]:
    """Tops of one density between valleys that are deep enough."""
    density = np.exp(log_density - log_density.max())
    tops: list[int] = []  # indices of tops and, in between, the valleys
    valleys: list[int] = []
    low = 0
    for i in range(len(density)):
        if density[i] < density[low]:
            low = i
        rises = i + 1 == len(density) or density[i + 1] < density[i]
        if not rises or density[i] < 1e-12 * density.max():
            continue
        if not tops:
            tops, low = [i], i
        elif density[low] * SMALLEST_RISE < min(density[i], density[tops[-1]]):
            valleys.append(low)
            tops.append(i)
            low = i
        elif density[i] > density[tops[-1]]:
            tops[-1], low = i, i
    edges = [0.0, *(float(cdf[v]) for v in valleys), 1.0]
    modes = [Mode(float(parameters[t]), b - a) for t, a, b in zip(tops, edges[:-1], edges[1:], strict=True)]
    return sorted((m for m in modes if m.mass >= SMALLEST_MASS), key=lambda m: -m.mass)


def describe_modes(modes: list[Mode], name: str) -> str:
    """A sentence about a posterior of several modes."""
    listed = ", ".join(f"{name} = {m.parameter:.4g} ({100 * m.mass:.0f}%)" for m in modes)
    return (
        f"the posterior has {len(modes)} modes: {listed}. Records outside the bounds were redacted, so that the sum "
        "is not monotone in the parameter (docs/formulas.md#two-modes); a release with rule clamp has one mode"
    )


def doubt_about_modes(draws: np.ndarray) -> str:
    """A sentence for models of several parameters, whose modes cannot be counted: do the two starts agree?

    Args:
        draws: `[C, S, K]`; even and odd chains started on two sides (`Model.prior_starts`).
    """
    why = (
        "records outside the bounds were redacted, so that the sums are not monotone in the parameters "
        "(docs/formulas.md#two-modes)"
    )
    if len(draws) < 2:
        return f"{why}: the posterior may have several modes, which one chain does not show"
    even, odd = (np.asarray(draws[start::2], np.float64).reshape(-1, draws.shape[2]) for start in (0, 1))
    spread = np.asarray(draws, np.float64).reshape(-1, draws.shape[2]).std(0)
    apart = float((np.abs(even.mean(0) - odd.mean(0)) / np.maximum(spread, 1e-300)).max())
    verdict = "disagree" if apart > LARGEST_DISTANCE else "agree"
    return (
        f"{why}: the posterior may have several modes. Chains from two starts {verdict} (their means are {apart:.2f} "
        "posterior sd apart); a release with rule clamp has no such doubt"
    )
