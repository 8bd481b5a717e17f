"""What a release file must look like (DESIGN: release file). A release is public, so messages here show
values."""

from __future__ import annotations

import json
import math
import os
from functools import cache, partial
from pathlib import Path
from typing import Any

from dpjax.errors import InputError
from dpjax.sensitivity import regression_exponents, replace_one_l1
from dpjax.statistics import RegressionStatistic, check_bounds, shown

FORMAT = "dpjax-release"
VERSION = 1
MODEL = "linear-regression"
MECHANISMS = {"laplace": "l1", "gaussian": "l2"}  # and the norm of the sensitivity that each needs
SCALING = "bounds-to-[-1,1]"
ADJACENCY = "replace-one"
LARGEST_COUNT = 2**53  # beyond it a count is not exact in float64

NO_INTERCEPT = "a model without intercept (intercept = false) is not supported yet: scaling to [-1, 1] needs one"
NO_ADD_REMOVE = (
    "adjacency 'add-remove' is refused: there the number of records is private too and would have to be a"
    f" noised statistic itself, which is not supported yet; use {ADJACENCY!r}"
)
_SLACK = 1e-9  # relative; files written by hand round their numbers


def read_json(path: str | os.PathLike) -> Any:
    """The content of a JSON file; strict JSON only, no key twice.

    Raises:
        InputError: the file cannot be read, is not UTF-8, not JSON, or repeats a key.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or 'unknown error'}") from error
    except UnicodeDecodeError as error:
        raise InputError("is not UTF-8 text") from error
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except InputError:
        raise
    except json.JSONDecodeError as error:
        raise InputError(f"is not JSON: {error.msg} in line {error.lineno}") from error
    except (ValueError, RecursionError) as error:
        raise InputError("is not JSON that can be read: a number or a nesting beyond all limits") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise InputError(f"repeats the key {key!r}")
        result[key] = value
    return result


def _no_constant(text: str) -> Any:
    raise InputError(f"holds {text}, which is not a number of JSON")


def check(data: Any) -> tuple[dict[str, Any], list[str]]:
    """The content of a release file, typed and with every optional field, and its problems, one line each.

    The content is usable only if there are no problems.
    """
    problems = _format_problems(data)
    if problems:
        return {}, problems
    import msgspec

    try:
        typed = msgspec.to_builtins(msgspec.convert(data, _schema(), strict=True))
    except msgspec.ValidationError as error:  # missing and unknown fields and wrong types; stops at the first
        return {}, [str(error).replace("`", "'").replace("$.", "").replace("object", "mapping")]
    return typed, _value_problems(typed)


def _format_problems(data: Any) -> list[str]:
    """What this version of dpjax does not read at all: said first, since such files have other fields."""
    if not isinstance(data, dict):
        return ["must be a JSON object"]
    if data.get("format") != FORMAT:
        return [f"'format' must be {FORMAT!r}, got {_got(data, 'format')}"]
    if type(data.get("version")) is not int or data["version"] != VERSION:
        return [f"'version' must be {VERSION}, got {_got(data, 'version')}"]
    problems = []
    for block, allowed in (("model", [MODEL]), ("mechanism", list(MECHANISMS))):
        content = data.get(block)
        if isinstance(content, dict) and isinstance(content.get("kind"), str) and content["kind"] not in allowed:
            problems.append(
                f"'{block}.kind' {content['kind']!r} is not supported yet: {' or '.join(map(repr, allowed))}"
            )
    return problems


def _got(data: dict[str, Any], key: str) -> str:
    return repr(data[key]) if key in data else "nothing (the field is missing)"


@cache
def _schema() -> Any:
    """Strict types of the file. `privacy` is optional: who received noisy statistics from elsewhere may know
    the noise but not the guarantee, and inference needs only the noise. `bounds` is needed with a scaling."""
    import msgspec

    struct = partial(msgspec.defstruct, forbid_unknown_fields=True)
    model = struct("Model", [("kind", str), ("features", list[str]), ("target", str), ("intercept", bool)])
    mechanism = struct("Mechanism", [("kind", str), ("scale", float | dict[str, float])])
    privacy = struct(
        "Privacy",
        [("epsilon", float), ("delta", float), ("adjacency", str), ("norm", str), ("sensitivity", float)],
    )
    optional: Any = privacy | None
    return struct(
        "ReleaseFile",
        [
            ("format", str),
            ("version", int),
            ("model", model),
            ("records", int),
            ("scaling", str | None),
            ("statistics", dict[str, float]),
            ("mechanism", mechanism),
            ("privacy", optional, None),
            ("bounds", dict[str, tuple[float, float]] | None, None),
            ("simulated", bool, False),
        ],
    )


def _value_problems(data: dict[str, Any]) -> list[str]:
    """What types do not say."""
    model, scaling, mechanism = data["model"], data["scaling"], data["mechanism"]
    problems = []
    if not model["intercept"]:
        problems.append(NO_INTERCEPT)
    if not 1 <= data["records"] <= LARGEST_COUNT:
        problems.append(f"'records' must be an integer from 1 to 2^53, got {shown(data['records'])}")
    if scaling not in (None, SCALING):
        problems.append(f"'scaling' must be {SCALING!r} or null, got {scaling!r}")
    problems += _privacy_problems(data["privacy"], mechanism["kind"])
    try:
        statistic = RegressionStatistic(tuple(model["features"]), model["target"])
    except InputError as error:
        return [*problems, f"'model': {error}"]
    if data["bounds"] is not None:
        try:
            check_bounds(data["bounds"], statistic.variables)
        except InputError as error:
            problems.append(f"'bounds': {error}")
    elif scaling is not None:
        problems.append(f"'bounds' are needed with scaling {SCALING!r}: results are reported in original units")
    problems += _entry_problems("statistics", data["statistics"], statistic.names)
    scale = mechanism["scale"]
    if isinstance(scale, dict):
        problems += _entry_problems("mechanism.scale", scale, statistic.names)
    for value in scale.values() if isinstance(scale, dict) else (scale,):
        if not (math.isfinite(value) and value > 0):
            problems.append(f"'mechanism.scale' must be finite and > 0, got {value!r}")
    return problems


def _entry_problems(where: str, entries: dict[str, float], names: tuple[str, ...]) -> list[str]:
    problems = []
    if missing := [name for name in names if name not in entries]:
        problems.append(f"'{where}' lacks {', '.join(map(repr, missing))}, which the model needs")
    if unknown := [name for name in entries if name not in names]:
        problems.append(f"'{where}' has {', '.join(map(repr, unknown))}, which the model does not have")
    problems += [
        f"'{where}' of {name!r} must be finite, got {value!r}"
        for name, value in entries.items()
        if not math.isfinite(value)
    ]
    return problems


def _privacy_problems(privacy: dict[str, Any] | None, kind: str) -> list[str]:
    if privacy is None:
        return []
    problems = []
    for name in ("epsilon", "sensitivity"):
        if not (math.isfinite(privacy[name]) and privacy[name] > 0):
            problems.append(f"'privacy.{name}' must be finite and > 0, got {privacy[name]!r}")
    if not 0 <= privacy["delta"] < 1:
        problems.append(f"'privacy.delta' must lie in [0, 1), got {privacy['delta']!r}")
    if privacy["adjacency"] == "add-remove":
        problems.append(f"'privacy': {NO_ADD_REMOVE}")
    elif privacy["adjacency"] != ADJACENCY:
        problems.append(f"'privacy.adjacency' must be {ADJACENCY!r}, got {privacy['adjacency']!r}")
    if privacy["norm"] != MECHANISMS[kind]:
        problems.append(f"'privacy.norm' must be {MECHANISMS[kind]!r} for {kind} noise, got {privacy['norm']!r}")
    return problems


def guarantee_doubts(data: dict[str, Any]) -> list[str]:
    """Why the privacy block of a valid release may promise too much, one line each.

    The noise is what inference uses, so these are warnings. Scales by entry are not judged: which of them a
    joint sensitivity needs depends on how the budget was split.
    """
    privacy, kind, scale = data["privacy"], data["mechanism"]["kind"], data["mechanism"]["scale"]
    if privacy is None:
        return []
    doubts = []
    epsilon, delta, sensitivity = privacy["epsilon"], privacy["delta"], privacy["sensitivity"]
    if not isinstance(scale, dict):
        # the slack never turns an invalid number into a valid one: both sides are finite and > 0
        if kind == "laplace" and delta == 0 and scale * (1 + _SLACK) < sensitivity / epsilon:
            doubts.append(
                f"the noise scale {scale:.10g} is below sensitivity / epsilon = {sensitivity / epsilon:.10g}:"
                f" the stated epsilon = {epsilon:.10g} does not hold"
            )
        if kind == "gaussian" and not _gaussian_holds(scale, sensitivity, epsilon, delta):
            doubts.append(
                f"Gaussian noise of scale {scale:.10g} and sensitivity {sensitivity:.10g} does not give the"
                f" stated epsilon = {epsilon:.10g}, delta = {delta:.10g}"
            )
    p = len(data["model"]["features"])
    if data["scaling"] == SCALING and kind == "laplace" and p <= 2:  # beyond, our value is only a safe bound
        exact = replace_one_l1(regression_exponents(p), ((-1.0, 1.0),) * (p + 1))
        if sensitivity * (1 + _SLACK) < exact:
            doubts.append(
                f"the stated sensitivity {sensitivity:.10g} is below {exact:.10g}, the replace-one L1"
                " sensitivity of these statistics: the stated epsilon does not hold"
            )
    return doubts


def _gaussian_holds(scale: float, sensitivity: float, epsilon: float, delta: float) -> bool:
    from dpjax._gaussian import gaussian_delta

    return gaussian_delta(scale, sensitivity, epsilon) <= delta * (1 + 1e-6)


def to_plain(value: Any) -> Any:
    """NumPy scalars as Python numbers and tuples as lists, so that types can be checked as in a file."""
    if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value
