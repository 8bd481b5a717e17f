"""The part of JSON Schema (2020-12) that the schema of release files uses, from the specification; an unknown
keyword is an error. It agrees with the package `jsonschema` on the examples and wrong files of the tests.
"""

_TYPES = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    "integer": lambda v: isinstance(v, int | float) and not isinstance(v, bool) and v == int(v),
}
_REMARKS = {"$schema", "$defs", "title", "description", "default", "then", "properties", "additionalProperties"}


def equal(a, b):
    """JSON's equality: numbers by value, never a boolean."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def valid(value, schema, root=None):
    """Whether a JSON value has the schema."""
    root = schema if root is None else root
    number = _TYPES["number"](value)
    for key, rule in schema.items():
        if key == "$ref":
            good = valid(value, root["$defs"][rule.removeprefix("#/$defs/")], root)
        elif key == "type":
            good = _TYPES[rule](value)
        elif key == "const":
            good = equal(value, rule)
        elif key == "enum":
            good = any(equal(value, item) for item in rule)
        elif key == "anyOf":
            good = any(valid(value, item, root) for item in rule)
        elif key == "allOf":
            good = all(valid(value, item, root) for item in rule)
        elif key == "if":
            good = not valid(value, rule, root) or valid(value, schema["then"], root)
        elif key == "required":
            good = not isinstance(value, dict) or set(rule) <= set(value)
        elif key in ("minItems", "maxItems"):
            size = len(value) if isinstance(value, list) else rule
            good = size >= rule if key == "minItems" else size <= rule
        elif key == "prefixItems":
            good = not isinstance(value, list) or all(valid(v, s, root) for v, s in zip(value, rule, strict=False))
        elif key == "items":
            rest = value[len(schema.get("prefixItems", ())) :] if isinstance(value, list) else []
            good = not rest if rule is False else all(valid(v, rule, root) for v in rest)
        elif key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            compare = {
                "minimum": "__ge__",
                "maximum": "__le__",
                "exclusiveMinimum": "__gt__",
                "exclusiveMaximum": "__lt__",
            }
            good = not number or getattr(float(value), compare[key])(float(rule))
        elif key in _REMARKS:
            good = True
        else:
            raise ValueError(f"keyword {key}")
        if not good:
            return False
    return _members(value, schema, root)


def _members(value, schema, root):
    if not isinstance(value, dict):
        return True
    known, other = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, item in value.items():
        rule = known.get(name, other)
        if rule is False or (isinstance(rule, dict) and not valid(item, rule, root)):
            return False
    return True
