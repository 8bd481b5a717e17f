"""What is public about a release that is not drawn yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpjax.privacy.budget import split
from dpjax.privacy.quantile import PrivateQuantile
from dpjax.releases import drawing
from dpjax.releases.drawing import Part
from dpjax.releases.public_facts import public_doubts
from dpjax.statistics.base import Statistic


@dataclass(frozen=True)
class Terms:
    """The public side of a release that is not drawn yet.

    Args:
        statistic: what is summed; the public range stands in the place of private bounds.
        mechanism: of the noise.
        epsilon: of the whole release, private bounds included.
        delta: 0 but for Gaussian noise.
        adjacency: "replace-one".
        records: number of records of the release: rows of the table, or averages of several.
        share: of the budget, for third and fourth moments; None without them.
        search: for private bounds; None if they are stated.
        grid: the possible private bounds, ascending; None if they are stated.
        imputed: by column, the constant in the place of a missing value.
    """

    statistic: Statistic
    mechanism: str
    epsilon: float
    delta: float
    adjacency: str
    records: int
    share: float | None = None
    search: PrivateQuantile | None = None
    grid: list[float] | None = None
    imputed: Any = None

    @property
    def budgets(self) -> tuple[float, float]:
        """epsilon of the sums, and of the private bounds (0 if they are stated).

        Raises:
            InputError: one of them is nothing.
        """
        if self.search is None:
            return self.epsilon, 0.0
        return split(self.epsilon, self.search.share, "share of the private bounds")

    def parts(self) -> list[Part]:
        """The parts that have noise of their own, with their budgets and sensitivities.

        Raises:
            InputError: noise beyond the range of a float.
        """
        rest, _ = self.budgets
        return drawing.parts_of(self.statistic, self.mechanism, rest, self.delta, self.share, self.records)

    def check(self) -> None:
        """Refuse all that public facts decide, but what OpenDP alone says of private bounds.

        Raises:
            InputError: sums too large for floats, or a budget whose noise is too large or too small for them.
        """
        drawing.check_sizes(self.statistic, self.mechanism, self.records)
        drawing.check_noise_units(self.parts(), self.mechanism, self.records)
        if self.search is not None:
            drawing.check_quantile_budget(self.budgets[1] / 2)

    def warnings(self) -> list[str]:
        """What the owner should know before the noise is drawn, from public numbers only."""
        also = (f", delta = {self.delta:.6g}", " and delta") if self.delta else ("", "")
        return [
            f"this release spends epsilon = {self.epsilon:.6g}{also[0]} under {self.adjacency} adjacency (the number of"
            f" records is public); every further release of the same table adds its epsilon{also[1]}",
            *public_doubts(self.statistic, self.mechanism, self.epsilon, self.delta, self.records),
        ]
