"""The options of a calibration study, all of them in one place: arguments of `dpjax.calibrate`, keys of [calibration],
options of `dpjax calibrate`; those that say what is simulated also of `dpjax.precompile`. No JAX.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from dpjax._base.checks import MOST_PARTIES, check_size
from dpjax._base.options import option, true_or_false
from dpjax.mechanisms import DEFAULT, mechanism_named
from dpjax.releases.options import check_family_options
from dpjax.releases.release import Release

Prior = Mapping[str, Any] | str | os.PathLike


def _check_options(name: str, value: Any) -> None:
    check_family_options(value or {})


def _check_mechanism(name: str, value: Any) -> None:
    mechanism_named(value)


def _check_parties(name: str, value: Any) -> None:
    check_size(name, value, most=MOST_PARTIES)


class DesignOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is simulated, whatever the numbers of records and trials. `dpjax.calibration.study_design.study_design`
    explains it."""

    model: str | None = None
    features: Annotated[int | None, option("Features of a regression (1 if not given).")] = None
    bounds: Annotated[
        Sequence[float] | None,
        option(
            "Bounds; they set the sensitivity. Of every variable of a regression (-1:1 if not given); of the "
            "records of an unbounded family (the middle 95% at the centre of the prior if not given).",
            metavar="lo:hi",
        ),
    ] = None
    rule: Annotated[
        str | None, option("clamp (default) or redact: records outside the bounds of an unbounded family.")
    ] = None
    categories: Annotated[int | None, option("Categories of a multinomial.", metavar="K")] = None
    options: Annotated[
        Mapping[str, Any] | None,
        option(
            "Option of the family, such as shape=2 of gamma; may be repeated.", metavar="NAME=VALUE",
            check=_check_options,
        ),
    ] = None  # fmt: skip
    released: Annotated[
        Sequence[int] | None,
        option("Of a multinomial: the counts that are released, all (the default) or all but one.", metavar="0,1,..."),
    ] = None
    mechanism: Annotated[
        str,
        option("laplace, discrete-laplace (counts) or gaussian.", check=_check_mechanism),
    ] = DEFAULT
    delta: Annotated[float | None, option("Of gaussian noise, which needs it.")] = None
    sensitivity: Annotated[
        float | None, option("Replaces the statistic's own (16/3 for a regression with one feature).")
    ] = None
    prior: Annotated[
        Prior | None,
        option("Prior, in scaled units, or in those of the columns with units = 'user'.", metavar="TOML"),
    ] = None
    truth: Annotated[
        Prior | None,
        option("Law of the true parameters, or fixed values, in place of the prior.", metavar="TOML"),
    ] = None
    simulate: Annotated[
        str, option("exact or clt; with --moments also normal, uniform or skewed: the law of the features.")
    ] = "exact"
    clip: Annotated[bool, option("Clip the records of a regression to the bounds.")] = False
    moments: Annotated[bool, option("Methods noisy and plug-in get moments of the features of degree 3 and 4 too.")] = (
        False
    )
    moments_share: Annotated[
        float | None, option("Share of epsilon that the moments get, inside (0, 1); 0.5 if left out.")
    ] = None
    intercept: Annotated[bool, option("Without: regressions through the origin.", check=true_or_false)] = True
    parties: Annotated[
        int,
        option(
            "Parties that share the records evenly.", metavar="J",
            check=_check_parties,
        ),
    ] = 1  # fmt: skip
    squares: Annotated[bool | None, option("Without an intercept: release the target's squares too.")] = None
    norms: Annotated[
        Mapping[str, float] | None,
        option(
            "Without an intercept, in place of --bounds: |features| <= X, |target| <= Y set the sensitivity.",
            metavar="X,Y",
        ),
    ] = None
    averaged: Annotated[
        int | None,
        option("With --norms: the records are averages of K, times sqrt(K); sets the sensitivity.", metavar="K"),
    ] = None


class StudyOptions(DesignOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole study: what is simulated, how often, and how each data set is inferred."""

    records: Annotated[int | Sequence[int] | None, option("Records; repeat or separate with commas.", metavar="N")] = (
        None
    )
    epsilon: Annotated[
        float | Sequence[float] | None, option("Epsilon; repeat or separate with commas.", metavar="E")
    ] = None
    like: Annotated[
        Release | str | os.PathLike | None,
        option(
            "Releases like this one: its model, bounds, scaling, noise, records and epsilon, and fit's prior.",
            metavar="RELEASE.json",
        ),
    ] = None
    trials: Annotated[int, option("Simulated data sets per combination.")] = 300
    chains: Annotated[int, option("Chains per problem.")] = 2
    draws: Annotated[int, option("Draws kept per chain.")] = 500
    thin: Annotated[int | None, option("Keep every n-th step; the default depends on the method.")] = None
    stream: Annotated[bool, option("Keep running sums instead of draws.")] = False
    mmd: Annotated[bool, option("Report the distance to the non-private posterior (not with --stream).")] = True
    chains_per_batch: Annotated[
        int | None, option("Chains that run at the same time, where memory is short.", metavar="N")
    ] = None
