"""What a release file must look like (docs/release_files.md). A release is public, so messages here show
values."""

from __future__ import annotations

import json
import math
import os
from functools import cache, partial
from pathlib import Path
from typing import Any, get_args

from dpjax._base.checks import LARGEST_RECORDS, MOST_NOISE_UNITS, has_half_character, listed, shown
from dpjax._base.reading import checked_imputed
from dpjax.errors import InputError
from dpjax.mechanisms import MECHANISMS
from dpjax.statistics.base import SCALING, Statistic
from dpjax.statistics.kinds import block_fields, kinds, statistic_from_file

FORMAT = "dpjax-release"
VERSION = 1
ADJACENCY = "replace-one"
LARGEST_COUNT = LARGEST_RECORDS

NO_ADD_REMOVE = (
    "adjacency 'add-remove' is refused: there the number of records is private too and would have to be a"
    f" noised statistic itself, which is not supported yet; use {ADJACENCY!r}"
)


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
            raise InputError(f"repeats the key {shown(key)}")
        result[key] = value
    return result


def _no_constant(text: str) -> Any:
    raise InputError(f"holds {text}, which is not a number of JSON")


def check(data: Any) -> tuple[dict[str, Any], Statistic | None, list[str]]:
    """The content of a release file, typed and with every optional field, its statistic, and its problems, one line
    each. Content and statistic are usable only if there are no problems.
    """
    problems = _format_problems(data)
    if problems:
        return {}, None, problems
    import msgspec

    try:
        model = data.get("model")
        kind = model["kind"] if isinstance(model, dict) else None
        integers = _with_integers(data, kind)
        typed = msgspec.to_builtins(msgspec.convert(integers, release_types(kind), strict=True))
    except msgspec.ValidationError as error:  # missing and unknown fields and wrong types; stops at the first
        return {}, None, [str(error).replace("`", "'").replace("$.", "").replace("object", "mapping")]
    return typed, *_value_problems(typed)


def _format_problems(data: Any) -> list[str]:
    """What this version of dpjax does not read at all: said first, since such files have other fields."""
    if not isinstance(data, dict):
        return ["must be a JSON object"]
    if has_half_character(data):
        return ["holds text with half a character (a lone surrogate, \\ud800 to \\udfff): write the whole one"]
    if data.get("format") != FORMAT:
        return [f"'format' must be {FORMAT!r}, got {_got(data, 'format')}"]
    if isinstance(data.get("version"), bool) or data.get("version") != VERSION:
        return [f"'version' must be {VERSION}, got {_got(data, 'version')}"]
    problems = []
    for block, allowed in (("model", kinds()), ("mechanism", MECHANISMS)):
        content = data.get(block)
        if not isinstance(content, dict):
            continue  # the types say it
        if "kind" not in content:
            problems.append(f"missing required field 'kind' - at '{block}'")
        elif not isinstance(content["kind"], str) or content["kind"] not in allowed:
            problems.append(f"'{block}.kind' must be one of {', '.join(allowed)}, got {shown(content['kind'])}")
    return problems


def _with_integers(data: dict[str, Any], kind: str | None) -> dict[str, Any]:
    """The same with whole numbers written as 57.0, as other programs do, as integers where integers are wanted."""
    whole = lambda value: int(value) if isinstance(value, float) and value.is_integer() else value
    changed: dict[str, Any] = {name: whole(data[name]) for name in ("version", "records") if name in data}
    if kind is not None:
        wanted = [name for name, kinds_of, *_ in block_fields(kind) if int in (kinds_of, *get_args(kinds_of))]
        model = data["model"]
        changed["model"] = model | {name: whole(model[name]) for name in wanted if name in model}
    return data | changed


def computation_problems(data: dict[str, Any]) -> list[str]:
    """Why there is no inference from a valid file: numbers beyond what is computed with."""
    scale = data["mechanism"]["scale"]
    of = lambda name: scale[name] if isinstance(scale, dict) else scale
    largest = max(max(abs(value), data["records"]) / of(name) for name, value in data["statistics"].items())
    if largest <= MOST_NOISE_UNITS:
        return []
    return [
        f"'statistics' and 'records' must be at most {MOST_NOISE_UNITS:g} noise scales for inference, got {largest:g}:"
        " look at 'mechanism.scale'"
    ]


def _got(data: dict[str, Any], key: str) -> str:
    return shown(data[key]) if key in data else "nothing (the field is missing)"


@cache
def release_types(kind: str | None) -> Any:
    """Strict types of the file of a model. `privacy` is optional: who received noisy statistics from elsewhere may
    know the noise but not the guarantee, and inference needs only the noise. `bounds` is needed with a scaling, for
    a regression; a family's are in `truncation`."""
    import msgspec

    struct = partial(msgspec.defstruct, forbid_unknown_fields=True, kw_only=True)
    model = struct("Model", [("kind", str), *(block_fields(kind) if kind is not None else [])])
    mechanism = struct("Mechanism", [("kind", str), ("scale", float | dict[str, float])])
    moments: Any = struct("Moments", [("epsilon", float), ("sensitivity", float), ("delta", float, 0.0)])
    privacy: Any = struct(
        "Privacy",
        [
            ("epsilon", float),
            ("delta", float),
            ("adjacency", str),
            ("norm", str),
            ("sensitivity", float),
            ("bounds_epsilon", float | None, None),
            ("moments", moments | None, None),
        ],
    )
    truncation: Any = struct("Truncation", [("rule", str), ("bounds", tuple[float, float])])
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
            ("truncation", truncation | None, None),
            ("privacy", privacy | None, None),
            ("bounds", dict[str, tuple[float, float]] | None, None),
            ("simulated", bool, False),
            ("imputed", dict[str, float | str] | None, None),
        ],
    )


def _value_problems(data: dict[str, Any]) -> tuple[Statistic | None, list[str]]:
    """The statistic, and what types do not say."""
    scaling, mechanism = data["scaling"], data["mechanism"]
    problems = []
    if not 1 <= data["records"] <= LARGEST_COUNT:
        problems.append(f"'records' must be an integer from 1 to 2^53, got {shown(data['records'])}")
    if scaling not in (None, SCALING):
        problems.append(f"'scaling' must be {SCALING!r} or null, got {scaling!r}")
        data = data | {"scaling": None}
    problems += _privacy_problems(data["privacy"], mechanism["kind"])
    problems += _moments_problems(data["privacy"], data["model"].get("moments", False))
    scale = mechanism["scale"]
    for value in scale.values() if isinstance(scale, dict) else (scale,):
        if not (math.isfinite(value) and value > 0):
            problems.append(f"'mechanism.scale' must be finite and > 0, got {value!r}")
    try:
        statistic = statistic_from_file(data)
    except InputError as error:
        return None, [*problems, str(error)]
    try:
        data["imputed"] = checked_imputed(data["imputed"], statistic)
    except InputError as error:
        problems.append(f"'imputed': {error}")
    problems += _entry_problems("statistics", data["statistics"], statistic.names)
    if isinstance(scale, dict):
        problems += _entry_problems("mechanism.scale", scale, statistic.names)
    if MECHANISMS[mechanism["kind"]].integer:
        problems += _integer_problems(statistic, data["statistics"], mechanism["kind"])
    return statistic, problems


def _integer_problems(statistic: Statistic, entries: dict[str, float], kind: str) -> list[str]:
    if not statistic.integer:
        return [f"'mechanism.kind' {kind!r} is for counts: the sums of {statistic.kind} are not whole numbers"]
    return [
        f"'statistics' of {name!r} must be a whole number with {kind} noise, got {value!r}"
        for name, value in entries.items()
        if math.isfinite(value) and not (value.is_integer() and abs(value) <= LARGEST_COUNT)
    ]


def _entry_problems(where: str, entries: dict[str, float], names: tuple[str, ...]) -> list[str]:
    problems = []
    if missing := [name for name in names if name not in entries]:
        problems.append(f"'{where}' lacks {listed(missing)}, which the model needs")
    if unknown := [name for name in entries if name not in names]:
        problems.append(f"'{where}' has {listed(unknown)}, which the model does not have")
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
    spent = privacy["bounds_epsilon"]
    if spent is not None and not (math.isfinite(spent) and 0 < spent < privacy["epsilon"]):
        problems.append(f"'privacy.bounds_epsilon' must be > 0 and a part of 'privacy.epsilon', got {spent!r}")
    if not 0 <= privacy["delta"] < 1:
        problems.append(f"'privacy.delta' must lie in [0, 1), got {privacy['delta']!r}")
    if privacy["adjacency"] == "add-remove":
        problems.append(f"'privacy': {NO_ADD_REMOVE}")
    elif privacy["adjacency"] != ADJACENCY:
        problems.append(f"'privacy.adjacency' must be {ADJACENCY!r}, got {privacy['adjacency']!r}")
    norm = MECHANISMS[kind].norm
    if privacy["norm"] != norm:
        problems.append(f"'privacy.norm' must be {norm!r} for {kind} noise, got {privacy['norm']!r}")
    return problems


def _moments_problems(privacy: dict[str, Any] | None, has_moments: bool) -> list[str]:
    """What does not fit in the part of the guarantee that third and fourth moments have."""
    if privacy is None:
        return []
    moments = privacy["moments"]
    if moments is None:
        missing = (
            "'privacy.moments' is missing: third and fourth moments have an epsilon and a sensitivity of their own"
        )
        return [missing] if has_moments else []
    if not has_moments:
        return ["'privacy.moments' has no place in a release without moments ('model.moments')"]
    problems = []
    size = moments["sensitivity"]
    if not (math.isfinite(size) and size > 0):
        problems.append(f"'privacy.moments.sensitivity' must be finite and > 0, got {size!r}")
    spent, left = moments["epsilon"], privacy["epsilon"] - (privacy["bounds_epsilon"] or 0.0)
    if not 0 < spent < left:
        problems.append(f"'privacy.moments.epsilon' must be > 0 and a part of 'privacy.epsilon', got {spent!r}")
    if not 0 <= moments["delta"] <= privacy["delta"]:
        problems.append(f"'privacy.moments.delta' must be a part of 'privacy.delta', got {moments['delta']!r}")
    return problems


def to_plain(value: Any) -> Any:
    """NumPy scalars as Python numbers and tuples as lists, so that types can be checked as in a file."""
    if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value
