"""What files, pages and predictions need to know of a posterior."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dpjax.releases.release import Release


@runtime_checkable
class Fitted(Protocol):
    """A posterior as a `dpjax.inference.posterior.Posterior` is one.

    Attributes:
        method: name of the method.
        statistic: what was summed.
        names: of the K reported parameters.
        draws: `[C, S, K]` in scaled units.
        user_draws: `[C, S, K]` in the user's units.
        prior: prior as a mapping.
        prior_draws: `[N, K]` in scaled units, or None.
        user_prior_draws: `[N, K]` in the user's units, or None.
        releases: what was fitted; empty where it was no release.
    """

    @property
    def method(self) -> str: ...

    @property
    def statistic(self) -> Any: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def draws(self) -> np.ndarray: ...

    @property
    def prior(self) -> Any: ...

    @property
    def prior_draws(self) -> np.ndarray | None: ...

    @property
    def releases(self) -> Sequence[Release]: ...

    @property
    def user_draws(self) -> np.ndarray: ...

    @property
    def user_prior_draws(self) -> np.ndarray | None: ...

    def remarks(self) -> list[str]: ...

    def warnings(self) -> list[str]: ...
