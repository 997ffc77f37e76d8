"""From a parameter's text to JSON, as its schema wants it."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import DecodeError, json

_LITERALS = {"True": "true", "False": "false", "None": "null"}
_ANY = ("null", "integer", "number", "boolean", "object", "array")
_NAMES = {bool: "boolean", int: "integer", float: "number", dict: "object", list: "array", str: "string"}


def kinds(tool: Mapping[str, Any], parameter: str) -> frozenset[str]:
    """The JSON types a parameter may have; an unknown parameter is a string."""
    properties = tool.get("properties")
    schema = properties.get(parameter) if isinstance(properties, Mapping) else None
    return frozenset(_kinds(schema)) if isinstance(schema, Mapping) else frozenset({"string"})


def quoted(text: str) -> str:
    """The inside of a JSON string."""
    return json.encode(text).decode()[1:-1]


def typed(text: str, wanted: frozenset[str]) -> str:
    """The text as JSON of a wanted type if it reads as one, else as a string."""
    literal = _LITERALS.get(text.strip(), text.strip())
    try:
        kind = _kind(json.decode(literal))
    except (DecodeError, RecursionError):
        kind = "string"
    fits = kind in wanted or (kind == "integer" and "number" in wanted)
    return literal if fits and kind != "string" else f'"{quoted(text)}"'


def _kinds(schema: Mapping[str, Any]) -> Iterable[str]:
    named = schema.get("type")
    if isinstance(named, str):
        return [named]
    if isinstance(named, list):
        return [kind for kind in named if isinstance(kind, str)]
    if isinstance(schema.get("enum"), list):
        return map(_kind, schema["enum"])
    options = [option for key in ("anyOf", "oneOf") for option in schema.get(key) or ()]
    return [kind for option in options if isinstance(option, Mapping) for kind in _kinds(option)] or _ANY


def _kind(value: object) -> str:
    return _NAMES.get(type(value), "null")
