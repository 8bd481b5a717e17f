"""What can be said against a release before it is drawn from public facts alone: budget, number of records, noise."""

from __future__ import annotations

import math

from dpjax.mechanisms import MECHANISMS
from dpjax.statistics.base import Statistic

#: Epsilon from which a guarantee is next to nothing, and from which it is none to speak of.
LARGE, ABSURD = 10.0, 20.0
#: Noise sd in units of what all records together can move an average entry by, from which a release says little.
_NOISY = 1 / 3


def public_doubts(statistic: Statistic, mechanism: str, epsilon: float, delta: float, records: int) -> list[str]:
    """Sentences about a budget that protects nobody, or noise beside which the table does not count.

    Args:
        statistic: what is summed.
        mechanism: of the noise.
        epsilon, delta: of the whole release; delta 0 but for Gaussian noise.
        records: number of records, which is public.
    """
    doubts = []
    if epsilon > LARGE:
        words = "no protection to speak of" if epsilon > ABSURD else "next to no protection"
        doubts.append(
            f"epsilon = {epsilon:.6g} is {words}: what the release shows may be exp({epsilon:.6g}) times as likely with"
            " one person's record as with another's; 1 is usual, 10 is a lot"
        )
    if delta and delta >= 1.0 / records:
        doubts.append(
            f"delta = {delta:.6g} is not below 1 / records = {1.0 / records:.3g}: publishing one record as it is would"
            " have such a delta; take one far below it"
        )
    share = _noise_share(statistic, mechanism, epsilon, delta, records)
    if share >= _NOISY:
        doubts.append(
            f"with {records} records and epsilon = {epsilon:.6g} the noise (sd) is about {share:.2g} times what all"
            " records together can move a sum by: the release will say little, and its posterior will be"
            " close to the prior"
        )
    return doubts


def _noise_share(statistic: Statistic, mechanism: str, epsilon: float, delta: float, records: int) -> float:
    """Noise sd over the range of the sum of an average entry, which the sensitivity of all entries together says."""
    noise = MECHANISMS[mechanism]
    part = statistic.parts[0]
    sensitivity = part.sensitivity(noise.norm)
    sd = math.sqrt(noise.variance) * noise.release_scale(sensitivity, epsilon, delta)
    average = math.sqrt(part.dim) if noise.norm == "l2" else part.dim
    return sd * average / (records * sensitivity)
