"""What a regression on the sums of several data holders consists of: the prior, the parties' records and units, sizes,
names, and where each party's coordinates and sums lie (`dpjax.models.regression.parties` has the densities).

Position: (phi of `base` [P0]; for every party (v [q], with an intercept,) h [q], a [q (q - 1) / 2]), q = p + 1.
Lanes of parties: parties j of lanes b lie at j B + b.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from dpjax.engine.model import Observed
from dpjax.errors import InputError
from dpjax.kernels.batching import repeat_lanes, split_lanes
from dpjax.models.regression.base import RegressionModel
from dpjax.models.regression.linear import LinearRegression
from dpjax.models.regression.origin import OriginRegression


class PartyFacts(NamedTuple):
    """What is known of the J parties: records `[J]`; centre and half `[J, q]` of a party's units in common ones."""

    records: Any
    centre: Any
    half: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PartyLayout(RegressionModel):
    """Prior `base` of the regression of J = `parties` (static) data holders.

    reports (static): the parameters that a method reports; None: all of `base`.
    facts: a `PartyFacts` of what is observed, where a density is asked for (`given`), else None.
    """

    base: OriginRegression | LinearRegression | Any
    parties: int = field(metadata={"static": True})
    reports: tuple[str, ...] | None = field(default=None, metadata={"static": True})
    facts: Any = None

    predicts_sums = False
    #: Precision goes by the sums in noise scales (`MOST_FLOAT32`), not by the number of records.
    float64_above = float("inf")

    def given(self, observed: Observed) -> Any:
        return self if observed.facts is None else replace(self, facts=observed.facts)

    # ---- sizes and names -----------------------------------------------------------------------------------
    @property
    def p(self) -> int:
        return self.base.p

    @property
    def intercept(self) -> bool:
        return not isinstance(self.base, OriginRegression)

    @property
    def records(self) -> Any:
        """Records of every party `[J]`; of a model that knows them (`given`)."""
        return self.facts.records

    @property
    def entries(self) -> int:
        """D, the entries of one party's statistic."""
        return self.base.statistic_dim

    @property
    def latent_dim(self) -> int:
        """Latent variables of one party: as many as entries."""
        return self.base.statistic_dim

    @property
    def shared_dim(self) -> int:
        """Coordinates that all parties share."""
        return self.base.dim

    @property
    def features_dim(self) -> int:
        """Coordinates of the law of one party's features, where that is its own; they come before its latent ones."""
        return 0

    @property
    def own_dim(self) -> int:
        """Coordinates that are one party's own."""
        return self.features_dim + self.latent_dim

    @property
    def dim(self) -> int:
        return self.shared_dim + self.parties * self.own_dim

    @property
    def statistic_dim(self) -> int:
        return self.parties * self.entries

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return self.base.parameter_names if self.reports is None else self.reports

    def as_dict(self) -> dict[str, Any]:
        return self.base.as_dict()

    def select_lanes(self, parameters: Float[Array, "K B"]) -> Float[Array, "K2 B"]:
        """Of all parameters of `base` those that are reported."""
        if self.reports is None:
            return parameters
        known = self.base.parameter_names
        return jnp.stack([parameters[known.index(name)] for name in self.reports])

    # ---- parties as lanes ------------------------------------------------------------------------------------
    def by_party(self, x: Shaped[Array, "JN B"], size: int) -> Shaped[Array, "N JB"]:
        """Stacked vectors of the parties `[J * size, B]` as lanes `[size, J * B]`."""
        return jnp.swapaxes(x.reshape(self.parties, size, -1), 0, 1).reshape(size, -1)

    def stacked(self, x: Float[Array, "N JB"]) -> Float[Array, "JN B"]:
        size = x.shape[0]
        return jnp.swapaxes(x.reshape(size, self.parties, -1), 0, 1).reshape(self.parties * size, -1)

    def to_parties(self, x):
        """The same for every party: `[..., B]` as `[..., J * B]`."""
        return repeat_lanes(x, self.parties)

    def over_parties(self, x):
        """Sum over parties, `[..., J * B]` to `[..., B]`."""
        return split_lanes(x, self.parties).sum(-2)

    def freedom(self, dtype):
        """Degrees of freedom k of A_ii^2, not below 0, whether there are any (1 or 0), and sqrt(2 k), 1 where there are
        none; each `[q, J * B]`."""
        first = 1 if self.intercept else 0
        lost = np.arange(first, self.p + 1 + first, dtype=dtype)[:, None]
        k = jnp.maximum(self.records.astype(dtype).reshape(1, -1) - jnp.asarray(lost, dtype), 0.0)
        return k, (k > 0).astype(dtype), jnp.sqrt(2.0 * jnp.maximum(k, 0.5))

    def own_lanes(self, x):
        """Coordinates of every party's features `[F, J * B]` and its latent variables `[L, J * B]`."""
        own = self.by_party(x[self.shared_dim :], self.own_dim)
        return own[: self.features_dim], own[self.features_dim :]

    def with_latent_lanes(self, x, latent):
        """The position x with these latent variables `[L, J * B]`."""
        own = jnp.concatenate([self.own_lanes(x)[0], latent])
        return jnp.concatenate([x[: self.shared_dim], self.stacked(own)])

    def split(self, latent):
        """v `[q, J * B]` (of length 0 through the origin), h `[q, J * B]` and a of every party."""
        q = self.p + 1
        start = q if self.intercept else 0
        return latent[:start], latent[start : start + q], latent[start + q :]

    def report_lanes(self, x):
        return self.select_lanes(self.base.report_lanes(x[: self.base.dim]))


def party_facts(base: Any, records: Any, centre: Any = 0.0, half: Any = 1.0) -> PartyFacts:
    """Build and check, on the host, for one problem or T of them.

    Args:
        base: prior in common units, of one problem or of T.
        records: numbers of records `[J]` or `[T, J]`.
        centre, half: of the parties' units, `[J, q]` or scalars.

    Raises:
        InputError: fewer than one record, half not above 0, or a centre that is not 0 without an intercept.
    """
    n, q = np.asarray(records, np.float64), base.psi.shape[-1] + 1
    if n.ndim not in (1, 2) or not (np.isfinite(n).all() and (n >= 1).all()):
        raise InputError("records must be at least 1 in every party")
    centre, half = (np.broadcast_to(np.asarray(x, np.float64), (*n.shape, q)) for x in (centre, half))
    if not (half > 0).all():
        raise InputError("half must be above 0 in every party")
    if isinstance(base, OriginRegression) and centre.any():
        raise InputError("centre must be 0: without an intercept variables are scaled and not moved")
    return PartyFacts(n, centre, half)
