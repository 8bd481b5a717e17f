"""Exponential families and the multinomial as groups of models: arguments, simulated records, release files."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from dpjax._base.checks import check_bounds, check_choice, check_name, shown
from dpjax.errors import InputError
from dpjax.families import FAMILIES, family_named
from dpjax.statistics.base import SCALING, Statistic
from dpjax.statistics.family import FamilyStatistic, is_binary
from dpjax.statistics.group import FieldError, Fields, StatisticGroup, refuse, refuse_block, refuse_options
from dpjax.statistics.multinomial import MultinomialStatistic
from dpjax.statistics.options import file_field

MULTINOMIAL = MultinomialStatistic.kind


def _column(given: Mapping[str, Any]) -> str:
    column = "x" if given["target"] is None else given["target"]
    check_name(column)
    return column


def _arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Those that a family may or may not have."""
    return {name: given[name] for name in ("features", "bounds", "rule", "categories", "labels", "moments")}


class MultinomialGroup(StatisticGroup):
    """Counts of categories."""

    def kinds(self) -> tuple[str, ...]:
        return (MULTINOMIAL,)

    def make(self, kind: str, given: Mapping[str, Any], scaling: Any, options: Mapping[str, Any]) -> Statistic:
        column = _column(given)
        refuse(kind, _arguments(given), allowed=("categories", "labels"))
        refuse_options(kind, options, allowed=("released",))
        if scaling is not ... and scaling is not None:
            raise InputError(f"scaling must be None for {kind}, got {shown(scaling)}")
        if given["categories"] is None and given["labels"] is None:
            raise InputError(f"categories is missing: {kind} needs their number, or labels")
        return MultinomialStatistic(given["categories"], labels=given["labels"], column=column, **options)

    def fields(self, kind: str) -> Fields:
        return [("categories", int), file_field("labels"), ("column", str, "x")]

    def read(self, content: Mapping[str, Any]) -> Statistic:
        model = content["model"]
        for name in ("bounds", "truncation", "scaling"):
            refuse_block(name, content[name], MULTINOMIAL)
        whole = MultinomialStatistic(model["categories"], None, model["labels"], model["column"])
        chosen = [k for k, name in enumerate(whole.names) if name in content["statistics"]]
        if len(chosen) < whole.dim - 1:
            raise FieldError(f"'statistics' must hold all of count[0] to count[{whole.dim - 1}], or all but one")
        return dataclasses.replace(whole, released=chosen)


class FamilyGroup(StatisticGroup):
    """Exponential families: every one that is registered in `dpjax.families`."""

    def kinds(self) -> tuple[str, ...]:
        return tuple(FAMILIES)

    def make(self, kind: str, given: Mapping[str, Any], scaling: Any, options: Mapping[str, Any]) -> Statistic:
        column, bounds, rule = _column(given), given["bounds"], given["rule"]
        allowed = ("bounds", "rule", "labels") if is_binary(FAMILIES[kind]) else ("bounds", "rule")
        refuse(kind, _arguments(given), allowed)
        family = family_named(kind, **options)
        if isinstance(bounds, Mapping):
            bounds = check_bounds(bounds, (column,))[column] if not family.bounded or bounds else None
        if rule is None:
            rule = "none" if family.bounded else "clamp"
        if scaling is ...:
            scaling = SCALING if family.affine else None
        return FamilyStatistic(family, rule, bounds, scaling, column, given["labels"])

    def simulated(self, kind, features, bounds, middle, arguments):
        if bounds is None and middle is not None:
            known = {f.name for f in dataclasses.fields(FAMILIES[kind])}
            family = family_named(kind, **{name: value for name, value in arguments.items() if name in known})
            bounds = None if family.bounded else middle(family)
        return {"features": features, "bounds": bounds, **arguments}

    def fields(self, kind: str) -> Fields:
        hints = get_type_hints(FAMILIES[kind])
        labels = [file_field("labels")] if is_binary(FAMILIES[kind]) else []
        own = [(f.name, _without_any(hints[f.name])) for f in dataclasses.fields(FAMILIES[kind])]
        return [*labels, *own, ("column", str, "x")]

    def read(self, content: Mapping[str, Any]) -> Statistic:
        model, scaling, truncation = content["model"], content["scaling"], content["truncation"]
        kind, labels = model["kind"], model.get("labels")
        options = {name: value for name, value in model.items() if name not in ("kind", "column", "labels")}
        refuse_block("bounds", content["bounds"], kind)
        family = family_named(kind, **options)
        if family.bounded:
            refuse_block("truncation", truncation, kind)
            return FamilyStatistic(family, scaling=scaling, column=model["column"], labels=labels)
        if truncation is None:
            raise FieldError(f"'truncation' is missing: the sums of {kind} are not bounded by nature")
        try:
            check_choice("'truncation.rule'", truncation["rule"], ("clamp", "redact"))
        except InputError as error:
            raise FieldError(str(error)) from None
        return FamilyStatistic(family, truncation["rule"], truncation["bounds"], scaling, model["column"])

    def needs_truncation(self, kind: str) -> bool:
        support = FAMILIES[kind].support
        return not isinstance(support, tuple) or not all(abs(end) < float("inf") for end in support)


def _without_any(hint: Any) -> Any:
    """The type of a field that also lets other values through, to refuse them with a message of its own."""
    known = [part for part in get_args(hint) if part is not Any]
    return functools.reduce(operator.or_, known) if known and get_origin(hint) in (Union, UnionType) else hint
