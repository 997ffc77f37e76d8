"""Fit JSON schemas to what Anthropic's API takes: a part of the language, and less in a schema that it enforces."""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import json

Schema = Mapping[str, Any]

# Keywords that the API refuses in a schema that it enforces.  The gateway still checks the response against all of it.
_REFUSED_KEYWORDS = frozenset(
    ("dependentRequired", "dependentSchemas", "else", "exclusiveMaximum", "exclusiveMinimum", "if", "maxItems",
     "maxLength", "maxProperties", "maximum", "minLength", "minProperties", "minimum", "multipleOf", "not",
     "patternProperties", "prefixItems", "propertyNames", "then", "unevaluatedProperties", "uniqueItems")
)  # fmt: skip
_FORMATS = ("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid")
_REFUSED_PATTERN = re.compile(r"\(\?[=!<]|\\[bB1-9]")  # a look at what is around, a word's end, a reference
_LISTS = {"allOf": "allOf", "anyOf": "anyOf", "oneOf": "anyOf"}  # lists of schemas, and the API's name of each
_MAPS = ("properties", "$defs", "definitions")
_LEAST_ITEMS = (0, 1)  # values of `minItems` that the API takes
_REFERENCE = re.compile(r"#/(\$defs|definitions)/([^/]+)")


def fitting_schema(schema: Schema) -> dict[str, Any]:
    """Return a schema that the API can enforce: its objects have no other members than those named."""
    made = {
        _LISTS.get(name, name): _fitting_member(name, value) for name, value in schema.items() if _is_fit(name, value)
    }
    if made.get("type") == "object" or "properties" in made:
        made["additionalProperties"] = False
    return made


def has_open_objects(value: object) -> bool:
    """Return True if some object of a schema has members that the schema does not name, as a map has."""
    if isinstance(value, list):
        return any(map(has_open_objects, value))
    if not isinstance(value, dict):
        return False
    is_open = value.get("additionalProperties") or (value.get("type") == "object" and "properties" not in value)
    return bool(is_open) or any(map(has_open_objects, value.values()))


def input_schema(parameters: Schema) -> dict[str, Any]:
    """Return the schema of a tool's input: one object without alternatives, which the API refuses there.

    Properties of all alternatives are offered.  Only those are required that each alternative requires.
    """
    flat = _flat(parameters)
    return flat if flat.get("type") else {"type": "object", **flat}


def _is_fit(name: str, value: object) -> bool:
    match name:
        case "minItems":
            return value in _LEAST_ITEMS
        case "format":
            return value in _FORMATS
        case "pattern":
            return not (isinstance(value, str) and _REFUSED_PATTERN.search(value))
    return name not in _REFUSED_KEYWORDS


def _fitting_member(name: str, value: Any) -> Any:  # noqa: ANN401 - decoded JSON
    if name in _MAPS and isinstance(value, dict):
        return {key: _fitting(one) for key, one in value.items()}
    if name in _LISTS and isinstance(value, list):
        return [_fitting(one) for one in value]
    return _fitting(value) if name == "items" else value


def _fitting(value: Any) -> Any:  # noqa: ANN401 - decoded JSON
    return fitting_schema(value) if isinstance(value, dict) else value


def _flat(schema: Schema) -> dict[str, Any]:
    """Return a schema whose alternatives are merged into it.  Takes time in proportion to its size."""
    if _LISTS.keys().isdisjoint(schema):
        return {**schema}
    made = {name: value for name, value in schema.items() if name not in _LISTS}
    found: dict[str, dict[bytes, Any]] = {}  # the different schemas of each property
    for part in _parts(schema):
        for name, value in _object(part.get("properties")).items():
            found.setdefault(name, {})[json.encode(value)] = value
    if found:
        made["properties"] = {name: _any_of([*values.values()]) for name, values in found.items()}
    if required := _required(schema):
        made["required"] = sorted(required)
    return made


def _any_of(schemas: list[Any]) -> Any:  # noqa: ANN401 - decoded JSON
    return {"anyOf": schemas} if len(schemas) > 1 else schemas[0]


def _parts(schema: Schema) -> Iterator[Schema]:
    """Yield the schema and all alternatives in it, at any depth; each definition once."""
    left, seen = deque([schema]), set[str]()
    while left:
        part = left.popleft()
        yield part
        left += (branch for name in _LISTS for branch in _branches(part.get(name)))
        reference = part.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            seen.add(reference)
            left.append(_resolved(part, schema))


def _branches(value: object) -> Iterator[Schema]:
    return filter(_is_object, value if isinstance(value, list) else ())


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _resolved(part: Schema, root: Schema) -> Schema:
    """Return the definition that a schema refers to; the schema itself without one."""
    found = _REFERENCE.fullmatch(str(part.get("$ref")))
    return _object(_object(root.get(found[1])).get(found[2])) if found else part


def _required(schema: Schema) -> set[str]:
    """Return the names of the properties that a schema and each of its alternatives requires."""
    names = _names(schema)
    for name in _LISTS:
        needed = [_names(_resolved(branch, schema)) for branch in _branches(schema.get(name))]
        if needed:
            names |= set.union(*needed) if name == "allOf" else set.intersection(*needed)
    return names


def _names(schema: Schema) -> set[str]:
    required = schema.get("required")
    return {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()


def _object(value: object) -> Schema:
    return value if isinstance(value, dict) else {}
