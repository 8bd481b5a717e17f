"""Whether the releases of several data holders can be of one law of the records, or of one regression, at all.

Two statistics, both of the form
    T = min over nu of sum_j d_j(nu)' V_j^{-1} d_j(nu),  V_j = sampling covariance / n_j + noise covariance / n_j^2:

- records: d_j = z_j / n_j - nu, the released sums per record against common moments nu of (1, x, y);
- regression: d_j = (x~ e, e^2 - sigma^2) per record with e = y - x~' theta, x~ = (1, x) or x, nu = (theta, sigma^2):
  moments that are 0 whatever the law of a party's features (Hansen 1982, test of overidentifying restrictions).

V_j is that of normal records at the estimate, and the noise's, which is known. The p-value is by simulation at the
estimate: sums of normal records by Bartlett's decomposition, for any number of records, and the noise by its own law,
in the linear approximation of T around the estimate (of the first, with few records, in full). Nothing but released
numbers is used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpjax.releases.parties import Parties
from dpjax.releases.party_records import entry_places, party_of
from dpjax.releases.records_agreement import records_p_value
from dpjax.releases.regression_agreement import regression_p_value

#: Below this p-value the parties are said to differ.
LIMIT = 0.001


@dataclass(frozen=True)
class Agreement:
    """p-values that the parties have one law of all variables, and one regression whatever their features' laws."""

    records: float
    regression: float

    def as_dict(self) -> dict[str, float]:
        return {"records": self.records, "regression": self.regression}

    @property
    def note(self) -> str:
        """Both p-values in words."""
        return (
            f"test that the parties differ by sampling and noise only: p = {self.records:.2g}; their regressions: p = "
            f"{self.regression:.2g}"
        )

    def doubts(self, own: bool) -> list[str]:
        """Why a posterior of these parties is not to be relied on; own: every party's features have their own law."""
        apart = self.regression < LIMIT
        each = (
            f"The regressions of the parties differ (p = {self.regression:.1g}): no theta and sigma2 hold for all of "
            "them, and what is reported is a compromise. Fit every release by itself."
        )
        if own:
            return [each] if apart else []
        if self.records >= LIMIT:
            return [each] if apart else []
        said = (
            f"The parties differ beyond sampling and noise (p = {self.records:.1g}), but this model gives all of them "
            "one law of the features"
        )
        if apart:
            return [f"{said}.", f'{each} Or see with --parties own (parties="own") what they share.']
        return [
            f'{said}: use --parties own (in Python parties="own"), where each has a mean and a covariance of its own.'
        ]


def agreement(parties: Parties, seed: int = 0) -> Agreement:
    """Both p-values for the releases of at least two parties.

    Args:
        parties: from `dpjax.releases.parties.gather`.
        seed: of the simulations.
    """
    q = parties.half.shape[1]
    places = entry_places(q, parties.statistic.intercept)
    found = [party_of(parties, j, places) for j in range(len(parties.records))]
    rng = np.random.default_rng([seed, len(found)])
    bounds = None if parties.statistic.scaling else parties.statistic.column_bounds
    largest = max(map(abs, bounds[parties.statistic.target])) if bounds else 1.0
    return Agreement(records_p_value(rng, found, places, q, largest**2), regression_p_value(rng, found, places, q))


__all__ = ["LIMIT", "Agreement", "agreement"]
