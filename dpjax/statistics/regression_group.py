"""Linear regressions as a group of models: arguments, simulated records, release files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpjax._base.checks import check_size, shown
from dpjax.errors import InputError
from dpjax.statistics.base import SCALING, UNIT, Statistic
from dpjax.statistics.group import FieldError, Fields, StatisticGroup, refuse, refuse_block, refuse_options
from dpjax.statistics.options import file_field
from dpjax.statistics.origin import OriginStatistic
from dpjax.statistics.products import MOST_FEATURES_THROUGH_ORIGIN, ProductStatistic
from dpjax.statistics.regression import RegressionStatistic

REGRESSION = ProductStatistic.kind
#: Arguments of a regression through the origin only.
ORIGIN_ARGUMENTS = ("squares", "norms", "averaged")


class RegressionGroup(StatisticGroup):
    """Regressions with an intercept, and through the origin."""

    bounds_block = "bounds"

    def kinds(self) -> tuple[str, ...]:
        return (REGRESSION,)

    def make(self, kind: str, given: Mapping[str, Any], scaling: Any, options: Mapping[str, Any]) -> Statistic:
        if given["intercept"]:
            refuse_origin_arguments(given)
        refuse(
            kind,
            {name: value for name, value in given.items() if name not in ("target", "intercept", *ORIGIN_ARGUMENTS)},
            allowed=("features", "bounds", "moments"),
        )
        refuse_options(kind, options)
        for name in ("target", "features"):
            if given[name] is None:
                raise InputError(f"{name} is missing: {kind} needs the column names of the response and the features")
        features, target, bounds = given["features"], given["target"], given["bounds"]
        if scaling is ...:
            scaling = SCALING
        moments = False if given["moments"] is None else given["moments"]
        if not given["intercept"]:
            origin = {name: given[name] for name in ORIGIN_ARGUMENTS}
            return _through_origin(features, target, bounds, scaling, moments, **origin)
        if bounds is None and scaling is not None:
            bounds = {}  # the first column that lacks them is named
        return RegressionStatistic(features, target, bounds, scaling, moments)

    def simulated(self, kind, features, bounds, middle, arguments):
        p = check_size("features", 1 if features is None else features, most=MOST_FEATURES_THROUGH_ORIGIN)
        columns = [f"x{i}" for i in range(1, p + 1)]
        box = UNIT if bounds is None and arguments.get("norms") is None else bounds
        boxes = None if box is None else dict.fromkeys([*columns, "y"], box)
        return {"target": "y", "features": columns, "bounds": boxes, **arguments}

    def fields(self, kind: str) -> Fields:
        return [("features", list[str]), ("target", str), ("intercept", bool),
                file_field("moments"), *map(file_field, ORIGIN_ARGUMENTS)]  # fmt: skip

    def read(self, content: Mapping[str, Any]) -> Statistic:
        model, scaling, bounds, kind = content["model"], content["scaling"], content["bounds"], REGRESSION
        refuse_block("truncation", content["truncation"], kind)
        own = {name: model[name] for name in ORIGIN_ARGUMENTS}
        if model["intercept"]:
            for name, value in own.items():
                refuse_block(f"model.{name}", value, f"{kind} with an intercept")
        elif own["norms"] is not None:
            refuse_block("bounds", bounds, f"{kind} with norms")
        if scaling is not None and bounds is None and own["norms"] is None:
            raise FieldError(f"'bounds' are needed with scaling {SCALING!r}: results are reported in original units")
        features, target = tuple(model["features"]), model["target"]
        if not model["intercept"]:
            return _through_origin(features, target, bounds, scaling, model["moments"], **own)
        return RegressionStatistic(features, target, bounds, scaling, model["moments"])


def refuse_origin_arguments(given: Mapping[str, Any]) -> None:
    """Refuse the arguments of a regression through the origin.

    Raises:
        InputError: one is given.
    """
    for name in ORIGIN_ARGUMENTS:
        if given[name] is not None:
            raise InputError(f"{name} is for a {REGRESSION} without an intercept; got {shown(given[name])}")


def _through_origin(
    features: Any, target: Any, bounds: Any, scaling: Any, moments: Any, squares: Any, norms: Any, averaged: Any
) -> OriginStatistic:
    """The statistic of a regression through the origin; None stands for what is usual."""
    if moments is not False:
        raise InputError("moments are for regressions with an intercept")
    if bounds is None and norms is None and scaling is not None:
        bounds = {}  # the first column that lacks them is named
    return OriginStatistic(
        features, target, bounds, scaling, squares=True if squares is None else squares, norms=norms,
        averaged=1 if averaged is None else averaged,
    )  # fmt: skip
