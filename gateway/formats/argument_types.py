"""Convert the text of a parameter to JSON of a type that its schema allows.

The types come from `type` (JSON's words, or those of programming languages), `enum`, `const`, `properties`, `items`,
`anyOf`, `oneOf`, `allOf`, `nullable` and `$ref`.  A parameter that may only be a string always becomes a string.  Any
other text becomes the JSON value that it reads as, if the schema allows that type, else a string.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from json import dumps
from typing import Any
from warnings import catch_warnings

from msgspec import DecodeError, json

STRING = frozenset({"string"})
ANY = frozenset({"null", "integer", "number", "boolean", "object", "array"})
JSON = ANY | {"quoted"}  # for text that is declared as JSON, in which a quoted string is a string
_DEFINITIONS = ("$defs", "definitions")  # the places that a $ref points into
_SCALARS = frozenset({"null", "integer", "number", "boolean"})
_BITS = {"1": "true", "0": "false"}
_SIGNS = re.compile(r"\+?(-?)0*(?=\d)")  # also leading zeros, which JSON does not allow
_KINDS = {bool: "boolean", int: "integer", float: "number", dict: "object", list: "array", str: "string"}
_PLAIN = re.compile(r"[\w.+-]*")
_NO_LETTER = re.compile(r"[^a-z]")
_WORDS = {
    **{kind: kind for kind in (*ANY, "string")},
    **dict.fromkeys(("str", "text", "char", "varchar", "enum"), "string"),
    **dict.fromkeys(("int", "uint", "long", "short", "unsigned"), "integer"),
    **dict.fromkeys(("float", "double", "decimal", "num"), "number"),
    **dict.fromkeys(("bool", "binary"), "boolean"),
    **dict.fromkeys(("dict", "map", "mapping"), "object"),
    **dict.fromkeys(("list", "tuple", "set", "arr", "sequence"), "array"),
    **dict.fromkeys(("none", "nonetype"), "null"),
}


def argument_types(tool: Mapping[str, Any], parameter: str, unknown: frozenset[str] = STRING) -> frozenset[str]:
    """Return the JSON types that a parameter may have; `unknown` if the tool has no such parameter."""
    properties = tool.get("properties")
    schema = properties.get(parameter) if isinstance(properties, Mapping) else None
    return (frozenset(_kinds(schema, tool)) or ANY) if isinstance(schema, Mapping) else unknown


def has_parameter(tool: Mapping[str, Any], parameter: str) -> bool:
    """Return True if the tool has such a parameter, or does not list its parameters."""
    properties = tool.get("properties")
    return not isinstance(properties, Mapping) or parameter in properties


def nested_schema(tool: Mapping[str, Any], parameter: str) -> Mapping[str, Any]:
    """Return the schema inside a parameter in the form of a tool's schema.

    The items of a list become its parameter `item`.
    """
    properties = tool.get("properties")
    within: dict[str, Any] = {}
    for option in _options(properties.get(parameter) if isinstance(properties, Mapping) else None, tool):
        within |= {"item": option["items"]} if "items" in option else {}
        within |= option["properties"] if isinstance(option.get("properties"), Mapping) else {}
    return {**{key: tool[key] for key in _DEFINITIONS if key in tool}, "properties": within}


def type_named(word: str) -> frozenset[str]:
    """Return the type that a word like `int32` or `list[str]` means; any type if the word is unknown."""
    kind = kind_named(word)
    return frozenset({kind}) if kind else ANY


def kind_named(word: str) -> str | None:
    """Return the JSON type that a word means; None if the word is unknown."""
    return _WORDS.get(_NO_LETTER.split(word.lower(), 1)[0])


def escape_json_string(text: str) -> str:
    """Return a text with the escapes of a JSON string, without the quotes."""
    return json.encode(text).decode()[1:-1]


def begun(text: str) -> str:
    """Return a value that the end of the text cut off, as JSON that brackets alone do not complete."""
    return text if _PLAIN.fullmatch(text) else f'"{escape_json_string(text)}'


def to_json(text: str, wanted: frozenset[str]) -> str:
    """Return the text as JSON of a wanted type if it reads as one, else as a string."""
    if wanted == STRING:
        return f'"{escape_json_string(text)}"'
    plain = text.strip()
    for literal in (_literal(plain, wanted), _from_python(plain)):
        if _fits(literal, wanted):
            return literal
    return f'"{escape_json_string(text)}"'


def _literal(plain: str, wanted: frozenset[str]) -> str:
    """Return the text with the words and numbers of other languages replaced by JSON's."""
    word = plain.lower()
    if word in ("true", "false", "null"):
        return word
    if word == "none" and "string" not in wanted:
        return "null"
    if "boolean" in wanted and not wanted & {"integer", "number", "string"}:
        return _BITS.get(plain, plain)
    return _SIGNS.sub(r"\1", plain, count=1) if wanted <= _SCALARS and _SIGNS.match(plain) else plain


def _from_python(plain: str) -> str:
    if plain[:1] not in ("{", "[", "("):
        return ""
    try:
        with catch_warnings(action="ignore"):  # about escapes that are invalid in Python
            return dumps(ast.literal_eval(plain), ensure_ascii=False, allow_nan=False)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return ""


def _fits(literal: str, wanted: frozenset[str]) -> bool:
    try:
        kind = kind_of(json.decode(literal))
    except (DecodeError, ValueError, RecursionError):
        return False
    if kind == "string":
        return "quoted" in wanted
    return kind in wanted or (kind == "integer" and "number" in wanted) or (kind == "null" and "string" not in wanted)


def _kinds(schema: object, root: Mapping[str, Any]) -> Iterator[str]:
    for option in _options(schema, root):
        yield from _own_kinds(option)


def _options(schema: object, root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a schema, and all schemas that it combines or offers as alternatives."""
    left = [schema]
    followed: set[str] = set()  # $refs, which may form a circle
    while left:
        option = left.pop()
        if not isinstance(option, Mapping):
            continue
        yield option
        for group in ("anyOf", "oneOf", "allOf"):
            left += listed(option.get(group))
        reference = option.get("$ref")
        if isinstance(reference, str) and reference not in followed:
            followed.add(reference)
            left.append(referred(reference, root))


def _own_kinds(schema: Mapping[str, Any]) -> Iterator[str]:
    if schema.get("nullable") is True:
        yield "null"
    if "type" in schema:
        for word in listed(schema["type"]):
            yield from type_named(word) if isinstance(word, str) else ()
    elif "properties" in schema or "items" in schema:
        yield "object" if "properties" in schema else "array"
    else:
        yield from map(kind_of, [*listed(schema.get("enum")), *([schema["const"]] if "const" in schema else ())])


def referred(reference: str, root: Mapping[str, Any]) -> object:
    """Return the target of a `$ref` inside the tool's own schema."""
    found: object = root
    for name in reference.removeprefix("#").split("/")[1:]:
        found = found.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found if reference.startswith("#") else None


def listed(value: object) -> Sequence[object]:
    """Return a list as it is, a scalar as a list of one, and nothing for None or a mapping."""
    return value if isinstance(value, list) else () if value is None or isinstance(value, Mapping) else (value,)


def kind_of(value: object) -> str:
    """Return the JSON type of a decoded value."""
    return _KINDS.get(type(value), "null")
