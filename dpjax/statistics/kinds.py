"""The kinds of models, and the statistic of each: from arguments, and from a release file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dpjax._base.checks import check_pair, shown
from dpjax._base.options import check_options, chosen_of
from dpjax.errors import InputError
from dpjax.statistics.base import Statistic
from dpjax.statistics.family_groups import FamilyGroup, MultinomialGroup
from dpjax.statistics.group import FieldError, Fields, StatisticGroup
from dpjax.statistics.options import StatisticOptions
from dpjax.statistics.regression_group import RegressionGroup, refuse_origin_arguments

#: Groups of models in the order in which users see them; `register` adds to it.
GROUPS: list[StatisticGroup] = [RegressionGroup(), MultinomialGroup(), FamilyGroup()]


def register(group: StatisticGroup) -> StatisticGroup:
    """Make a group of models known to releases, files and the command line.

    Raises:
        InputError: it is no `StatisticGroup`, or one of its names is taken by a group of another class.
    """
    if not isinstance(group, StatisticGroup):
        raise InputError(f"a group of models must be a dpjax.statistics.group.StatisticGroup, got {group!r}")
    others = [one for one in GROUPS if type(one).__qualname__ != type(group).__qualname__]
    for kind in group.kinds():
        if any(kind in one.kinds() for one in others):
            raise InputError(f"there is a model called {kind!r} already")
    GROUPS[:] = [*others, group]
    return group


def kinds() -> tuple[str, ...]:
    """Names of all models; not a constant, as a family or a group may be registered at any time."""
    return tuple(kind for group in GROUPS for kind in group.kinds())


def group_of(kind: Any) -> StatisticGroup:
    """The group of a model.

    Raises:
        InputError: there is no model of this name.
    """
    check_kind(kind)
    return next(group for group in GROUPS if kind in group.kinds())


def check_kind(kind: Any) -> None:
    """Refuse what is no kind of model.

    Raises:
        InputError: it is none.
    """
    if not isinstance(kind, str) or kind not in kinds():
        raise InputError(f"model {shown(kind)} is not known: {', '.join(kinds())}")


def make_statistic(kind: Any, *, scaling: Any = ..., **arguments: Any) -> Statistic:
    """The statistic of a model, as a release forms it and a calibration study simulates it.

    Args:
        kind: one of `kinds()`.
        scaling: None for raw units; left out, the default of a release: regressions and families closed under
            affine maps are scaled, others not.
        arguments: fields of `dpjax.statistics.options.StatisticOptions`. target is "x" if None, but for a regression;
            bounds may be the pair itself for a family; rule is "clamp" if None, for families that are not bounded by
            nature; one of categories and labels suffices. Others are options of the family ("shape" of a gamma).

    Raises:
        InputError: unknown kind; an argument that is missing, has no place in this kind, or a wrong value.
    """
    group = group_of(kind)
    own, options = chosen_of(StatisticOptions, arguments)
    chosen = StatisticOptions(**own)
    check_options(chosen)
    given = {name: getattr(chosen, name) for name in StatisticOptions.__struct_fields__}
    released = given.pop("released")
    if released is not None:
        options["released"] = released  # refused as an option by who does not know it
    given["moments"] = None if chosen.moments is False else chosen.moments
    if not isinstance(group, RegressionGroup):
        refuse_origin_arguments(given)
        if not chosen.intercept:
            raise InputError(f"intercept has no place in a release of {kind}")
    return group.make(kind, given, scaling, options)


def simulated_statistic(
    kind: Any, *, features: Any = None, bounds: Any = None, middle: Callable[[Any], Any] | None = None, **arguments: Any
) -> Statistic:
    """The statistic of records that are simulated: in raw units, columns without names of their own.

    Args:
        kind: one of `kinds()`.
        features: number of a regression's features (1 if None).
        bounds: pair (lo, hi) for every column. None is (-1, 1) for regressions, and what `middle(family)` gives for
            families that need bounds.
        arguments: further ones of `make_statistic`.

    Raises:
        InputError: as `make_statistic`.
    """
    group = group_of(kind)
    if bounds is not None:
        bounds = check_pair(bounds, "bounds")
    return make_statistic(kind, scaling=None, **group.simulated(kind, features, bounds, middle, arguments))


# ---- release files -------------------------------------------------------------------------------------------
def block_fields(kind: str) -> Fields:
    """Fields of the block "model" of a release file but its kind: (name, type) or (name, type, default)."""
    return group_of(kind).fields(kind)


def statistic_to_file(statistic: Statistic) -> dict[str, Any]:
    """The content of a release file about its statistic, as `statistic_from_file` takes it.

    Raises:
        InputError: its model is not known.
    """
    block = statistic.block()
    own = {name: block.get(name, *default) for name, _, *default in block_fields(block["kind"])}
    return {
        "model": {"kind": block["kind"], **own},
        "scaling": statistic.scaling,
        "bounds": statistic.column_bounds if statistic.truncation is None else None,
        "truncation": statistic.truncation,
        "statistics": list(statistic.names),
    }


def statistic_from_file(content: Mapping[str, Any]) -> Statistic:
    """The statistic that a release file describes.

    Args:
        content: typed content of the file with every optional field (`dpjax.releases.file.check`).

    Raises:
        InputError: the first thing that does not fit; the message begins with the field.
    """
    group = group_of(content["model"]["kind"])
    try:
        return group.read(content)
    except FieldError:
        raise
    except InputError as error:
        field = group.bounds_block if error.where == "bounds" else "model"
        raise InputError(f"'{field}': {error}") from None
