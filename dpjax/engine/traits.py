"""What code elsewhere asks of a model; the defaults are for sums of one table that are whole and of full rank."""

from __future__ import annotations

from typing import Any

import numpy as np


class Traits:
    """Base class of `dpjax.engine.model.Model`: a model overrides what is otherwise for it."""

    # ---- what samplers ask -----------------------------------------------------------------------------------
    @property
    def singular(self) -> bool:
        """Whether the statistic's covariance may be singular; all is in 64 bits where the noise is small beside it."""
        return False

    @property
    def truncated(self) -> bool:
        """Whether the released statistic is not the whole one (records outside of bounds are clamped or redacted)."""
        return False

    @property
    def constrained(self) -> bool:
        """Whether the posterior is restricted to a set, that of `inside_lanes`."""
        return False

    @property
    def may_have_modes(self) -> bool:
        """Whether the released statistic is not monotone in the parameters, so that two sets of them may explain it."""
        return False

    @property
    def few_records(self) -> int:
        """Under how many records the normal law of the sums is doubted where the noise hides next to nothing."""
        return 0

    @property
    def predicts_sums(self) -> bool:
        """Whether the released sums are those of n records that are alike, so that the prior predicts them."""
        return True

    @property
    def complete_randoms(self) -> int:
        """Standard normals that `complete_lanes` takes."""
        return 0

    @property
    def sum_is_binomial(self) -> bool:
        """Whether the statistic is a binomial count with a beta prior `prior`, so that its law can be enumerated."""
        return False

    @property
    def sums_are_multinomial(self) -> bool:
        """Whether the statistic are the counts `released` of categories with a Dirichlet prior `prior`, so that the
        exact counts can be drawn."""
        return False

    @property
    def finite(self) -> tuple[float, float]:
        """Coordinates of a model of one parameter between which the reported one is a number inside its range, in
        64 bits."""
        return -np.inf, np.inf

    @property
    def hmc_settings(self) -> dict[str, Any]:
        """Settings of `collapsed` that serve such posteriors better than its own."""
        return {}

    # ---- what methods and studies ask ------------------------------------------------------------------------
    #: Whether the prior is of the form that all methods for the model take; for others see `Method.any_prior`.
    usual_prior = True
    #: Number of data holders whose sums follow one another in the statistic; None: nothing is known of such.
    parties: int | None = None
    #: Whether a `PartySums` can be made of it, in which several data holders share its parameters.
    takes_parties = False
    #: Whether its sums are only modelled so, also those of a single data holder.
    needs_parties = False
    #: Whether x and y are normal, with an intercept, under the conjugate prior with the fields of a `LinearRegression`.
    conjugate_regression = False
    #: Parameters, without index, that every method reports and posteriors are compared by; None: all.
    compared: tuple[str, ...] | None = None

    @property
    def infers_moments(self) -> bool:
        """Whether third and fourth moments of the features are in the statistic, so few that inference can use them."""
        return False

    def fixed_law(self) -> Any:
        """The same model with a known law of the features that has the moments of one record a priori; None where
        there is none."""
        return None
