"""What is fitted: the releases of one data holder or of several, as one problem of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpjax.engine.problems import Problems
from dpjax.inference.method import Method
from dpjax.inference.posterior import Posterior
from dpjax.inference.prior_predictive import prior_predictive_p, sample_prior_report
from dpjax.models import Model
from dpjax.models.regression.problems import make_problems, party_problems
from dpjax.releases.parties import OWN, Parties, gather
from dpjax.releases.party_agreement import Agreement, agreement
from dpjax.releases.possible_sums import doubts_about_sums
from dpjax.releases.release import Release
from dpjax.statistics.base import Statistic

#: Steps per trajectory where the parties differ: noise in its tails makes the posterior one with edges.
DIFFERING_LEAPFROGS = 16
OWN_NOTE = "every party's features have a mean and a covariance of their own; theta and sigma2 are shared"


@dataclass(frozen=True)
class Released:
    """One release.

    Attributes:
        releases: what was given.
        statistic: in whose units the parameters are.
        doubts: why the releases should not be fitted by one model.
    """

    releases: tuple[Release, ...]
    statistic: Statistic
    doubts: tuple[str, ...] = ()

    #: Whether the default prior must be conjugate whatever the method.
    conjugate = False

    def problems(self, model: Model, exact: np.ndarray | None) -> Problems:
        """The one problem of this model; exact: sums `[1, ...]` without noise, or None."""
        (one,) = self.releases
        return make_problems(
            one.z[None], np.array([float(one.records)]), one.scale[None], model, one.mechanism,
            statistic=one.statistic, exact=exact,
        )  # fmt: skip

    def compared(self, method: Method, seed: int) -> Released:
        """The same with what a method that looks at the noise must know of the releases before it is run."""
        return self

    def settings(self, method: Method) -> dict[str, Any]:
        """What a sampler should do otherwise than by default."""
        return {}

    def under_prior(self, seen: Problems, method: Method, seed: int) -> tuple[np.ndarray | None, float | None]:
        """Draws from the prior, and the p-value of the released sums under it where that is computed."""
        if method.noise_aware:
            return prior_predictive_p(seen, seed)
        return sample_prior_report(seen.model_template(), seed), None

    def finished(self, posterior: Posterior) -> Posterior:
        """The posterior with what is known of the releases beside their sums."""
        return posterior


@dataclass(frozen=True, kw_only=True)
class ReleasedByParties(Released):
    """Releases of at least two data holders.

    Attributes:
        gathered: the releases in the form that a model takes.
        own: whether the features of every party have a law of their own.
        agreed: whether the parties agree (`compared`).
    """

    gathered: Parties
    own: bool
    agreed: Agreement | None = None

    conjugate = True

    def problems(self, model: Model, exact: np.ndarray | None) -> Problems:
        all_of = self.gathered
        return party_problems(
            all_of.z[None], all_of.records[None], all_of.scale[None], model, all_of.mechanisms, centre=all_of.centre,
            half=all_of.half, present=all_of.present, own=self.own, exact=exact,
        )  # fmt: skip

    def compared(self, method: Method, seed: int) -> ReleasedByParties:
        agreed = agreement(self.gathered, seed)
        return replace(self, agreed=agreed, doubts=tuple(agreed.doubts(self.own)) if method.noise_aware else ())

    def settings(self, method: Method) -> dict[str, Any]:
        return {"leapfrogs": DIFFERING_LEAPFROGS} if self.doubts and method.name == "collapsed" else {}

    def under_prior(self, seen: Problems, method: Method, seed: int) -> tuple[np.ndarray | None, float | None]:
        return sample_prior_report(seen.model_template(), seed), None

    def finished(self, posterior: Posterior) -> Posterior:
        assert self.agreed is not None
        notes = (*posterior.notes, *([OWN_NOTE] if self.own else []), self.agreed.note)
        doubts = (*posterior.doubts, *self.doubts)
        return replace(posterior, notes=notes, doubts=doubts, agreement=self.agreed.as_dict())


def together(releases: Sequence[Release], law: str) -> Released:
    """At least one release as what is fitted; law: of several, one of `dpjax.releases.parties.PARTY_LAWS`.

    Raises:
        InputError: several that are not of the same regression (`dpjax.releases.parties.gather`).
    """
    if len(releases) == 1:
        return Released(tuple(releases), releases[0].statistic)
    gathered = gather(releases)
    return ReleasedByParties(tuple(releases), gathered.statistic, gathered=gathered, own=law == OWN)


def stated(releases: Sequence[Release], statistic: Statistic) -> dict[str, Any]:
    """What a `Posterior` says of the releases behind it; the guarantee is that of the weakest one, as parties are
    disjoint (docs/formulas.md#composition)."""
    several = len(releases) > 1
    known = [one.privacy for one in releases]
    every = [p for p in known if p is not None]
    complete = len(every) == len(known)
    parties = [
        {"records": one.records, "mechanism": one.mechanism, "epsilon": p.epsilon if p else None,
         "delta": p.delta if p else None}
        for one, p in zip(releases, known, strict=True)
    ]  # fmt: skip
    doubts = [
        f"party {number}: {text}" if several else text
        for number, one in enumerate(releases, start=1)
        for text in doubts_about_sums(one)
    ]
    return {
        "statistic": statistic,
        "records": sum(one.records for one in releases),
        "epsilon": max(p.epsilon for p in every) if complete else float("nan"),
        "delta": max(p.delta for p in every) if complete else float("nan"),
        "mechanism": ", ".join(sorted({one.mechanism for one in releases})),
        "adjacency": every[0].adjacency if complete else "not stated",
        "parties": tuple(parties) if several else (),
        "doubts": doubts,
        "releases": tuple(releases),
    }


__all__ = ["Released", "stated", "together"]
