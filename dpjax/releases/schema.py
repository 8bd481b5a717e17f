"""The JSON schema of release files, made from the types by which `dpjax.releases.file` reads them and from limits of
values. What a schema cannot say (which entries a model's statistics have, whether a guarantee follows from the
noise) `dpjax check` does.

`release.schema.json` beside this file is its result for the models that dpjax has itself; a test keeps it so.
"""

from __future__ import annotations

from typing import Any

from dpjax.mechanisms import MECHANISMS
from dpjax.releases import file as _file
from dpjax.statistics.base import SCALING
from dpjax.statistics.kinds import group_of, kinds

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TITLE = "dpjax release file"
DESCRIPTION = "Noisy sums of a private table, and what is known about them; docs/release_files.md explains the fields"
_POSITIVE = {"exclusiveMinimum": 0}
#: Limits of values by block and field, beyond the types.
_LIMITS: dict[str, dict[str, dict[str, Any]]] = {
    "ReleaseFile": {
        "format": {"const": _file.FORMAT},
        "version": {"const": _file.VERSION},
        "records": {"minimum": 1, "maximum": _file.LARGEST_COUNT},
        "scaling": {"enum": [SCALING, None]},
    },
    "Privacy": {
        "epsilon": _POSITIVE,
        "delta": {"minimum": 0, "exclusiveMaximum": 1},
        "adjacency": {"const": _file.ADJACENCY},
        "sensitivity": _POSITIVE,
    },
    "Moments": {"epsilon": _POSITIVE, "sensitivity": _POSITIVE, "delta": {"minimum": 0, "exclusiveMaximum": 1}},
    "Truncation": {"rule": {"enum": ["clamp", "redact"]}},
}


def release_schema() -> dict[str, Any]:
    """The schema of the files of all models, registered families among them; JSON Schema 2020-12."""
    import msgspec

    models, shared = {}, {}
    for kind in kinds():
        (_, found) = msgspec.json.schema_components([_file.release_types(kind)], ref_template="#/$defs/{name}")
        models[kind] = _limited("Model", found.pop("Model"))
        models[kind]["properties"]["kind"] = {"const": kind}
        shared = found
    blocks = {name: _limited(name, block) for name, block in shared.items()}
    root = blocks.pop("ReleaseFile")
    blocks["Mechanism"]["properties"]["kind"] |= {"enum": [*MECHANISMS]}
    blocks["Privacy"]["properties"]["norm"] |= {"enum": sorted({one.norm for one in MECHANISMS.values()})}
    scale = blocks["Mechanism"]["properties"]["scale"]["anyOf"]
    blocks["Mechanism"]["properties"]["scale"]["anyOf"] = [
        option | _POSITIVE if option["type"] == "number" else option | {"additionalProperties": _number(_POSITIVE)}
        for option in scale
    ]
    root["properties"]["model"] = {
        "type": "object",
        "required": ["kind"],
        "properties": {"kind": {"enum": [*kinds()]}},
        "allOf": [
            {"if": {"properties": {"kind": {"const": kind}}}, "then": {"$ref": f"#/$defs/{kind}"}} for kind in kinds()
        ],
    }
    return {
        "$schema": DIALECT,
        "title": TITLE,
        "description": DESCRIPTION,
        **root,
        "$defs": blocks | models,
        "allOf": _rules(),
    }


def _number(limits: dict[str, Any]) -> dict[str, Any]:
    return {"type": "number"} | limits


def _limited(name: str, block: dict[str, Any]) -> dict[str, Any]:
    """A block with its limits, and without the title, which is the name of a type of ours."""
    block = {key: value for key, value in block.items() if key != "title"}
    block["properties"] = {
        key: value | _LIMITS.get(name, {}).get(key, {}) for key, value in block.get("properties", {}).items()
    }
    return block


def _rules() -> list[dict[str, Any]]:
    """What the kind of model or of noise decides about other fields."""
    absent = {"type": "null"}
    bounded = [kind for kind in kinds() if group_of(kind).needs_truncation(kind)]
    return [
        _when("model", [kind for kind in kinds() if group_of(kind).bounds_block != "bounds"], {"bounds": absent}),
        _when("model", [kind for kind in kinds() if kind not in bounded], {"truncation": absent}),
        _when("model", bounded, {"truncation": {"type": "object"}}, ["truncation"]),
        *(
            _when("mechanism", [kind], {"privacy": {"properties": {"norm": {"const": mechanism.norm}}}})
            for kind, mechanism in MECHANISMS.items()
        ),
    ]


def _when(block: str, values: list[str], then: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    result: dict[str, Any] = {"properties": then} | ({"required": required} if required else {})
    return {"if": {"properties": {block: {"properties": {"kind": {"enum": values}}}}}, "then": result}
