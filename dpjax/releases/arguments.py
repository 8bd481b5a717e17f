"""Checks of single arguments of a release, before anything is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpjax._base.checks import check_choice, check_number, shown
from dpjax.errors import InputError
from dpjax.families import FAMILIES
from dpjax.mechanisms import MECHANISMS, released_kinds
from dpjax.privacy.budget import checked_share
from dpjax.privacy.quantile import PrivateQuantile
from dpjax.releases import file as _file
from dpjax.statistics.base import Statistic
from dpjax.statistics.family import FamilyStatistic
from dpjax.statistics.feature_moments import MOMENTS_SHARE


def checked_moments_share(moments: Any, share: Any) -> float | None:
    """The share of the budget that moments get; None without moments."""
    if not isinstance(moments, bool):
        raise InputError(f"moments must be True or False, got {shown(moments)}")
    if share is None:
        return MOMENTS_SHARE if moments else None
    number = checked_share(share, "moments_share")
    if not moments:
        raise InputError(f"moments_share is of use only with moments, got {shown(share)}")
    return number


def check_definition(mechanism: Any, adjacency: Any, intercept: Any) -> None:
    check_choice("mechanism", mechanism, released_kinds())
    if adjacency == "add-remove":
        raise InputError(_file.NO_ADD_REMOVE)
    if adjacency != _file.ADJACENCY:
        raise InputError(f"adjacency must be {_file.ADJACENCY!r}, got {shown(adjacency)}")
    if not isinstance(intercept, bool):
        raise InputError(f"intercept must be True or False, got {shown(intercept)}")


def check_options(options: Mapping[str, Any], model: Any) -> None:
    """Refuse keywords that would change what is released without being arguments of a release, or do nothing.

    Raises:
        InputError: one of them; what belongs to no model or to another is refused where the statistic is made.
    """
    for name, value in options.items():
        if name in ("kind", "scaling"):
            raise InputError(
                f"{name} is not an argument of a release, got {shown(value)}: the model says what is summed and how"
                " variables are scaled"
            )
        if value is None and name != "released" and model not in FAMILIES:
            raise InputError(f"{name} has no place in a release of {shown(model)}; got None")


def checked_delta(mechanism: str, delta: Any) -> float:
    """delta of a mechanism that needs one, which has no default; 0 of the others."""
    if not MECHANISMS[mechanism].needs_delta:
        if delta is not None:
            raise InputError(f"delta has no place in a release with {mechanism} noise; got {shown(delta)}")
        return 0.0
    if delta is None:
        raise InputError(f"delta is missing: {mechanism} noise needs one, inside (0, 1)")
    number = check_number(delta, "delta must lie inside (0, 1)")
    if not 0 < number < 1:
        raise InputError(f"delta must lie inside (0, 1), got {shown(delta)}")
    return number


def public_bounds(bounds: Any) -> tuple[Any, PrivateQuantile | None]:
    """The bounds, with the public range in the place of private ones, and the search for those."""
    if isinstance(bounds, PrivateQuantile):
        return bounds.range, bounds
    if not isinstance(bounds, Mapping):
        return bounds, None
    private = {name: value for name, value in bounds.items() if isinstance(value, PrivateQuantile)}
    if not private:
        return bounds, None
    if len(bounds) > 1:
        raise InputError("private bounds are for a family's one column: give no other bounds beside them")
    (name, search), *_ = private.items()
    return {name: search.range}, search


def grid_of(statistic: Statistic) -> tuple[bool, bool]:
    """Whether private bounds of the statistic are whole numbers, and whether they are sought in log x."""
    if not isinstance(statistic, FamilyStatistic):
        raise InputError(f"private bounds are for families of one column, not for {statistic.kind}")
    return statistic.family.discrete, statistic.family.log
