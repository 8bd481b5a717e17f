"""Sums of third and fourth moments of a regression's features."""

from __future__ import annotations

from dataclasses import dataclass

from dpjax.privacy.rational import Exponents
from dpjax.privacy.sensitivity import feature_moment_exponents
from dpjax.statistics.base import MonomialStatistic

#: The share of epsilon that moments get where none is stated: even, as in Bernstein and Sheldon 2019, section 3.4.4.
MOMENTS_SHARE = 0.5


@dataclass(frozen=True)
class FeatureMoments(MonomialStatistic):
    """Sums of all monomials of degree 3, then 4, of the features: the second part of a `RegressionStatistic` with
    moments, which has a budget and a sensitivity of its own.

    Args:
        features: names of the p features.
        feature_box: (lo, hi) of each as it enters the monomials, or None without bounds.
    """

    features: tuple[str, ...]
    feature_box: tuple[tuple[float, float], ...] | None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple("*".join(self.features[i] for i in row) for row in self.factors)

    @property
    def dim(self) -> int:
        return len(self.exponents)

    @property
    def title(self) -> str:
        return f"third and fourth moments of {', '.join(self.features)}"

    @property
    def variables(self) -> tuple[str, ...]:
        return self.features

    @property
    def exponents(self) -> Exponents:
        return feature_moment_exponents(len(self.features))

    @property
    def factors(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the features whose product an entry is, from 0: (0, 0, 1) is x*x*z."""
        return tuple(tuple(i for i, e in enumerate(row) for _ in range(e)) for row in self.exponents)

    @property
    def box(self) -> tuple[tuple[float, float], ...] | None:
        return self.feature_box
