"""The kinds of models, and the statistic of each: from arguments, and from a release file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from dpjax._checks import check_choice, check_name, check_pair, shown
from dpjax.errors import InputError
from dpjax.families import FAMILIES, family_named
from dpjax.family_statistics import FamilyStatistic, MultinomialStatistic
from dpjax.origin_statistic import OriginStatistic
from dpjax.statistics import SCALING, UNIT, RegressionStatistic, Statistic, check_bounds

REGRESSION, MULTINOMIAL = RegressionStatistic.kind, MultinomialStatistic.kind


def kinds() -> tuple[str, ...]:
    """Names of all models; not a constant, as a family may be registered at any time."""
    return (REGRESSION, MULTINOMIAL, *FAMILIES)


def make_statistic(
    kind: Any,
    *,
    target: Any = None,
    features: Any = None,
    bounds: Any = None,
    rule: Any = None,
    categories: Any = None,
    labels: Any = None,
    scaling: Any = ...,
    moments: Any = None,
    intercept: Any = True,
    squares: Any = None,
    norms: Any = None,
    averaged: Any = None,
    **options: Any,
) -> Statistic:
    """The statistic of a model, as a release forms it and a calibration study simulates it.

    Args:
        kind: one of `kinds()`.
        target: column of the response, or of the family's record ("x" if None).
        features: columns of a regression's features.
        bounds: mapping of every column to (lo, hi) in its units; for a family also the pair itself.
        rule: "clamp" (default) or "redact", for families that are not bounded by nature.
        categories, labels: of a multinomial; one of them suffices.
        scaling: None for raw units; left out, the default of a release: regressions and families closed under
            affine maps are scaled, others not.
        moments: of a regression: whether third and fourth moments of the features are summed too.
        intercept: of a regression: False for one through the origin.
        squares, norms, averaged: of a regression through the origin (`dpjax.origin_statistic.OriginStatistic`).
        options: of the family ("shape" of a gamma), or "released" of a multinomial.

    Raises:
        InputError: unknown kind; an argument that is missing, has no place in this kind, or a wrong value.
    """
    check_kind(kind)
    given = {"features": features, "bounds": bounds, "rule": rule, "categories": categories, "labels": labels}
    given["moments"] = None if moments is False else moments
    origin = {"squares": squares, "norms": norms, "averaged": averaged}
    if not isinstance(intercept, bool):
        raise InputError(f"intercept must be True or False, got {shown(intercept)}")
    if kind != REGRESSION or intercept:
        for name, value in origin.items():
            if value is not None:
                raise InputError(f"{name} is for a {REGRESSION} without an intercept; got {shown(value)}")
    if kind != REGRESSION and not intercept:
        raise InputError(f"intercept has no place in a release of {kind}")
    if kind == REGRESSION:
        _refuse(kind, given | options, allowed=("features", "bounds", "moments"))
        for name, value in (("target", target), ("features", features)):
            if value is None:
                raise InputError(f"{name} is missing: {kind} needs the column names of the response and the features")
        if scaling is ...:
            scaling = SCALING
        if not intercept:
            return origin_statistic(features, target, bounds, scaling, moments, **origin)
        if bounds is None and scaling is not None:
            bounds = {}  # the first column that lacks them is named
        return RegressionStatistic(features, target, bounds, scaling, False if moments is None else moments)
    column = "x" if target is None else target
    check_name(column)
    if kind == MULTINOMIAL:
        _refuse(kind, given | options, allowed=("categories", "labels", "released"))
        if scaling not in (..., None):
            raise InputError(f"scaling must be None for {kind}, got {shown(scaling)}")
        if categories is None and labels is None:
            raise InputError(f"categories is missing: {kind} needs their number, or labels")
        return MultinomialStatistic(categories, labels=labels, column=column, **options)
    _refuse(kind, given, allowed=("bounds", "rule"))
    family = family_named(kind, **options)
    if isinstance(bounds, Mapping):
        bounds = check_bounds(bounds, (column,))[column] if not family.bounded or bounds else None
    if rule is None:
        rule = "none" if family.bounded else "clamp"
    if scaling is ...:
        scaling = SCALING if family.affine else None
    return FamilyStatistic(family, rule, bounds, scaling, column)


def origin_statistic(
    features: Any, target: Any, bounds: Any, scaling: Any, moments: Any, squares: Any, norms: Any, averaged: Any
) -> OriginStatistic:
    """The statistic of a regression through the origin; None stands for what is usual.

    Raises:
        InputError: as `OriginStatistic`.
    """
    if bounds is None and norms is None and scaling is not None:
        bounds = {}  # the first column that lacks them is named
    return OriginStatistic(
        features, target, bounds, scaling,
        moments=False if moments is None else moments, squares=True if squares is None else squares, norms=norms,
        averaged=1 if averaged is None else averaged,
    )  # fmt: skip


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
    check_kind(kind)
    if bounds is not None:
        bounds = check_pair(bounds, "bounds")
    if kind == REGRESSION:
        p = 1 if features is None else features
        if isinstance(p, bool) or not isinstance(p, int) or not 1 <= p:
            raise InputError(f"features must be a whole number, at least 1; got {shown(features)}")
        columns = [f"x{i}" for i in range(1, p + 1)]
        boxes = dict.fromkeys([*columns, "y"], UNIT if bounds is None else bounds)
        return make_statistic(kind, target="y", features=columns, bounds=boxes, scaling=None, **arguments)
    if bounds is None and kind in FAMILIES and middle is not None:
        known = {f.name for f in dataclasses.fields(FAMILIES[kind])}
        family = family_named(kind, **{name: value for name, value in arguments.items() if name in known})
        bounds = None if family.bounded else middle(family)
    return make_statistic(kind, features=features, bounds=bounds, scaling=None, **arguments)


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options of a family that are arguments of their own, and would replace them.

    Raises:
        InputError: one of them is.
    """
    own = {"model", "kind", "target", "features", "bounds", "rule", "categories", "labels", "scaling", "intercept"}
    own |= {
        "middle",
        "epsilon",
        "delta",
        "mechanism",
        "adjacency",
        "table",
        "moments",
        "moments_share",
        "squares",
        "norms",
        "averaged",
    }
    for name in options:
        if name in own:
            raise InputError(f"options: {name} is not an option of a family, it stands by itself")


def check_kind(kind: Any) -> None:
    """Refuse what is no kind of model.

    Raises:
        InputError: it is none.
    """
    if not isinstance(kind, str) or kind not in kinds():
        raise InputError(f"model {shown(kind)} is not known: {', '.join(kinds())}")


def _refuse(kind: str, given: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    for name, value in given.items():
        if value is not None and name not in allowed:
            raise InputError(f"{name} has no place in a release of {kind}; got {shown(value)}")


# ---- release files -------------------------------------------------------------------------------------------
def block_fields(kind: str) -> list[tuple[Any, ...]]:
    """Fields of the block "model" of a release file but its kind: (name, type) or (name, type, default)."""
    if kind == REGRESSION:
        return [("features", list[str]), ("target", str), ("intercept", bool), ("moments", bool, False),
                ("squares", bool | None, None), ("norms", dict[str, float] | None, None),
                ("averaged", int | None, None)]  # fmt: skip
    if kind == MULTINOMIAL:
        return [("categories", int), ("labels", list[str] | None, None), ("column", str, "x")]
    hints = get_type_hints(FAMILIES[kind])
    return [*((f.name, hints[f.name]) for f in dataclasses.fields(FAMILIES[kind])), ("column", str, "x")]


def statistic_from_file(content: Mapping[str, Any]) -> Statistic:
    """The statistic that a release file describes.

    Args:
        content: typed content of the file with every optional field (`dpjax._release_file.check`).

    Raises:
        InputError: the first thing that does not fit; the message begins with the field.
    """
    model, scaling, truncation = content["model"], content["scaling"], content["truncation"]
    kind = model["kind"]
    options = {name: value for name, value in model.items() if name not in ("kind", "column")}
    try:
        if kind == REGRESSION:
            _absent("truncation", truncation, kind)
            own = {name: model[name] for name in ("squares", "norms", "averaged")}
            if model["intercept"]:
                for name, value in own.items():
                    _absent(f"model.{name}", value, f"{kind} with an intercept")
            elif own["norms"] is not None:
                _absent("bounds", content["bounds"], f"{kind} with norms")
            if scaling is not None and content["bounds"] is None and own["norms"] is None:
                raise InputError(
                    f"'bounds' are needed with scaling {SCALING!r}: results are reported in original units"
                )
            features = tuple(model["features"])
            if not model["intercept"]:
                bounds = content["bounds"]
                return origin_statistic(features, model["target"], bounds, scaling, model["moments"], **own)
            return RegressionStatistic(features, model["target"], content["bounds"], scaling, model["moments"])
        _absent("bounds", content["bounds"], kind)
        if kind == MULTINOMIAL:
            _absent("truncation", truncation, kind)
            _absent("scaling", scaling, kind)
            whole = MultinomialStatistic(model["categories"], None, model["labels"], model["column"])
            chosen = [k for k, name in enumerate(whole.names) if name in content["statistics"]]
            if len(chosen) < whole.dim - 1:
                raise InputError(f"'statistics' must hold all of count[0] to count[{whole.dim - 1}], or all but one")
            return dataclasses.replace(whole, released=chosen)
        family = family_named(kind, **options)
        if family.bounded:
            _absent("truncation", truncation, kind)
            return FamilyStatistic(family, scaling=scaling, column=model["column"])
        if truncation is None:
            raise InputError(f"'truncation' is missing: the sums of {kind} are not bounded by nature")
        check_choice("'truncation.rule'", truncation["rule"], ("clamp", "redact"))
        return FamilyStatistic(family, truncation["rule"], truncation["bounds"], scaling, model["column"])
    except InputError as error:
        text = str(error)
        if not text.startswith("'"):  # it does not name its field itself
            bounds = "bounds" if kind == REGRESSION else "truncation"
            text = f"'{bounds if text.startswith('bounds') else 'model'}': {text}"
        raise InputError(text) from None


def _absent(name: str, value: Any, kind: str) -> None:
    if value is not None:
        raise InputError(f"'{name}' has no place in a release of {kind}")
