"""Numbers and sentences that sum posteriors up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from dpjax.diagnostics.ranks import ESS_LIMIT, RHAT_LIMIT, Diagnostics
from dpjax.inference.fitted import Fitted
from dpjax.statistics.base import Statistic

P = TypeVar("P", bound=Fitted)

#: p-values under the prior predictive law that are said.
CONFLICT = 0.002


def describe_conflict(p: float) -> str:
    """The sentence for a reader."""
    return (
        f"prior and release conflict: sums as far out as these have probability p = {p:.2g} under the prior; the "
        "posterior depends on what the prior says where it should not (look at the prior, in the units it is stated in)"
    )


def of_draws(draws: np.ndarray) -> dict[str, np.ndarray]:
    """Mean, sd, 5% and 95% quantile of draws [..., N, K]: [..., K] each."""
    draws = np.asarray(draws, dtype=np.float64)
    q05, q95 = np.quantile(draws, [0.05, 0.95], axis=-2)
    return {"mean": draws.mean(-2), "sd": draws.std(-2, ddof=1), "q05": q05, "q95": q95}


def in_user_units(statistic: Statistic, computed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same of a computed posterior in the user's units: these are affine in each parameter."""
    low, mean, high, moved = (
        statistic.to_user_units(computed[key] + shift)
        for key, shift in (("q05", 0.0), ("mean", 0.0), ("q95", 0.0), ("mean", computed["sd"]))
    )
    return {"mean": mean, "sd": np.abs(moved - mean), "q05": np.minimum(low, high), "q95": np.maximum(low, high)}


def lines_of_table(head, body, widths) -> list[str]:
    def line(cells) -> str:
        parts = [
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(parts).rstrip()

    return [line(head), "-" * (sum(widths) + 2 * (len(widths) - 1)), *(line(cells) for cells in body)]


def named(names: list[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def richest(posteriors: Mapping[str, P]) -> P:
    """The posterior that reports most parameters; the others report some of its."""
    return max(posteriors.values(), key=lambda item: len(item.names))


def rows_of_parameters(
    names: Sequence[str], draws: np.ndarray, diagnostics: Diagnostics, prior_sd: Any, computed: Any
) -> dict[str, dict[str, float | None]]:
    """By parameter what a summary says of it; moments and quantiles are the computed ones where there are any."""
    values = computed if computed is not None else of_draws(np.reshape(draws, (-1, len(names))))
    return {
        name: {
            **{key: float(values[key][k]) for key in ("mean", "sd", "q05", "q95")},
            "ess_bulk": float(diagnostics.ess_bulk[0, k]),
            "ess_tail": float(diagnostics.ess_tail[0, k]),
            "rhat": float(diagnostics.rhat[0, k]),
            "prior_sd": None if prior_sd is None else float(prior_sd[k]),
        }
        for k, name in enumerate(names)
    }


def warnings_of_chains(diag: Diagnostics, names: Sequence[str], advice: str) -> list[str]:
    """Sentences about chains that never moved, have not mixed, or have few effective draws, each with the advice."""
    found = []
    still = [name for name, flag in zip(names, diag.constant[0], strict=True) if flag]
    if still:
        found.append(f"{named(still)} never moved in any chain: {advice}")
    rhat = np.where(np.isnan(diag.rhat[0]), np.inf, diag.rhat[0])
    rhat = np.where(diag.constant[0], 0.0, rhat)
    bad = [names[k] for k in np.argsort(-rhat) if rhat[k] > RHAT_LIMIT]
    if bad:
        found.append(
            f"R-hat is {rhat.max():.3g} for {bad[0]} (limit {RHAT_LIMIT}; above it: {named(bad)}): the "
            f"chains have not mixed; {advice}"
        )
    for kind, values in (("bulk", diag.capped_bulk[0]), ("tail", diag.capped_tail[0])):
        ess = np.where(np.isnan(values), 0.0, values)
        ess = np.where(diag.constant[0], np.inf, ess)
        bad = [names[k] for k in np.argsort(ess) if ess[k] < ESS_LIMIT]
        if bad:
            found.append(
                f"{kind} ESS is {ess.min():.0f} for {bad[0]} (limit {ESS_LIMIT:.0f}; under it: "
                f"{named(bad)}): means and intervals are rough; {advice}"
            )
    return found
