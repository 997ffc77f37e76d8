"""Validate a text against `response_format` and similar fields.

The work is bounded: clients choose both the schema and the text, and short ones can cause much work.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

from msgspec import DecodeError, json

from gateway.backends.extra_fields import FORMS, requested_response_format, text_form
from gateway.request import Request

if TYPE_CHECKING:
    from jsonschema_rs import Validator


_MAX_BYTES, _MAX_PATTERNS = 1 << 19, 200  # of a schema
_COMPILED = 1 << 23  # bytes of all compiled patterns
_AGAIN = frozenset(("unevaluatedProperties", "unevaluatedItems"))  # keywords that evaluate all other ones once more
_ELSEWHERE = frozenset(("$dynamicRef", "$recursiveRef", "$id", "id"))  # references that are not followed here
_FAR = {"$id": ""}  # stands for a target that is not in the schema

_Schema = Mapping[str, Any]
_Pairs = Iterable[tuple[Any, Any]]  # schemas, each with a value that it applies to
_LONGEST = 300  # characters of a reason
_MAX = 30_000  # pairs of schema and value in a validation; counting them takes 0.1 s
_FEW = 2_000  # the same for finding the reason, which takes a hundred times as long
_MAX_STEPS = 2_000  # backtracking steps of a pattern


def compile_budget(schema: _Schema) -> int:
    """Return the bytes that each pattern may be compiled to; 0 if the schema is too large to compile."""
    text = json.encode(schema)
    patterns = text.count(b'"pattern')
    if len(text) > _MAX_BYTES or patterns > _MAX_PATTERNS:
        return 0
    return min(1 << 20, _COMPILED // (patterns or 1))


def is_affordable(schema: _Schema, value: object, most: int) -> bool:
    """Return True if a validation applies at most `most` schemas to values, counting all alternatives."""
    left: list[tuple[_Schema, Any]] = [(schema, value)]
    while left and most > 0:
        data, at = left.pop()
        if data is not schema and not _ELSEWHERE.isdisjoint(data):
            return False
        most -= _cost(data, at)
        for _ in range(1 if _AGAIN.isdisjoint(data) else 2):
            applied = (pair for pair in _applied(data, at, schema) if isinstance(pair[0], dict))
            left += islice(applied, max(most, 1))
    return most > 0


def _cost(schema: _Schema, value: object) -> int:
    cost = 1 + sum(len(json.encode(schema[name])) // 32 for name in ("enum", "const") if name in schema)
    return cost + len(value) // 64 if isinstance(value, str) and "pattern" in schema else cost


def _applied(schema: _Schema, value: object, root: _Schema) -> Iterator[tuple[Any, Any]]:
    """Yield the schemas within a schema, each with the value that it applies to."""
    kind = dict if isinstance(value, dict) else list if isinstance(value, list) else None
    for name, data in schema.items():
        if name == "$ref":
            yield _referred(str(data), root), value
        elif name in _OF_ANY:
            yield from zip(_OF_ANY[name](data), repeat(value), strict=False)
        elif (kind, name) in _OF_PARTS:
            yield from _OF_PARTS[kind, name](data, value)


def _one(data: object) -> Iterable[Any]:
    return (data,)


def _listed(data: object) -> Iterable[Any]:
    return data if isinstance(data, list) else ()


def _named(data: object) -> Iterable[Any]:
    return data.values() if isinstance(data, dict) else ()


def _by_name(data: object, value: dict[str, Any]) -> _Pairs:
    return [(data[name], each) for name, each in value.items() if name in data] if isinstance(data, dict) else ()


def _each_of_each(data: object, value: dict[str, Any]) -> _Pairs:
    """Return pairs as if every pattern matched every name."""
    return ((each, one) for each in _named(data) for one in value.values())


def _of_all(data: object, value: Iterable[Any]) -> _Pairs:
    return zip(repeat(data), value, strict=False)


def _of_members(data: object, value: dict[str, Any]) -> _Pairs:
    return _of_all(data, value.values())


def _by_place(data: object, value: list[Any]) -> _Pairs:
    return zip(data, value, strict=False) if isinstance(data, list) else _of_all(data, value)


# By keyword: the schemas for the same value, and those for the parts of an object or a list.
_OF_ANY: Mapping[str, Callable[[object], Iterable[Any]]] = {
    **dict.fromkeys(("not", "if", "then", "else"), _one),
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), _listed),
    **dict.fromkeys(("dependentSchemas", "dependencies"), _named),
}
_OF_PARTS: Mapping[tuple[object, str], Callable[[object, Any], _Pairs]] = {
    (dict, "properties"): _by_name,
    (dict, "patternProperties"): _each_of_each,
    (dict, "propertyNames"): _of_all,
    **{(dict, name): _of_members for name in ("additionalProperties", "unevaluatedProperties")},
    **{(list, name): _by_place for name in ("prefixItems", "items", "additionalItems", "unevaluatedItems", "contains")},
}


def _referred(path: str, root: _Schema) -> object:
    """Return the target of a $ref."""
    found: Any = root
    for step in path.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal():
            found = dict(enumerate(found)).get(int(name))
        else:
            found = found.get(name) if isinstance(found, Mapping) else None
    return found if found is not None and path.startswith("#") else _FAR


class FormatValidator:
    """A field's demand on a text: JSON of this schema, or a text of it.

    has_schema: False if the schema cannot be compiled; then every JSON, or every text, fits.
    """

    def __init__(self, schema: dict[str, Any], field: str = "response_format", *, is_json: bool = True) -> None:
        self.field, self.is_json = field, is_json
        self._is_object = schema.get("type") == "object"
        self._schema: dict[str, Any] = schema
        self.has_schema = True
        try:
            self._validator = _validator(schema, compile_budget(schema))
        except ValueError:
            self._schema, self._validator, self.has_schema = {}, _validator({}, 1), False

    def mismatch(self, text: str) -> str | None:
        """Return the reason why a text does not fit; None if it does."""
        try:
            value = json.decode(text) if self.is_json else text
            if not is_affordable(self._schema, value, _MAX):
                return "it takes too long to check"
            if self._validator.is_valid(value):
                return None
            if not is_affordable(self._schema, value, _FEW):
                return "it does not match its schema"
            error = next(self._validator.iter_errors(value))
        except (DecodeError, RecursionError):
            return "it is not JSON"
        return error.message[:_LONGEST]

    def begins(self, text: str) -> bool:
        """Return True if a text that was cut may fit when complete, as far as its first character shows."""
        return not text or not self._is_object or text.startswith("{")


def format_validator(request: Request) -> FormatValidator | None:
    """Return the validator of the response to a request; None if it may have any form."""
    if FORMS.isdisjoint(request.rest):
        return None
    wanted = requested_response_format(request) or {}
    if wanted.get("type") == "json_object":
        return FormatValidator({"type": "object"})
    if wanted.get("type") == "json_schema":
        return FormatValidator((wanted.get("json_schema") or {}).get("schema") or {})
    if found := text_form(request):
        field, schema = found
        return FormatValidator(schema, field, is_json=False)
    return None


def _validator(schema: dict[str, Any], room: int) -> "Validator":
    """Return a compiled validator.  Raise ValueError for an invalid schema, or one that is too large.

    room: bytes that a pattern may be compiled to.
    """
    import jsonschema_rs  # noqa: PLC0415 - 3 MB

    if not room:
        raise ValueError("too much")
    patterns = jsonschema_rs.FancyRegexOptions(backtrack_limit=_MAX_STEPS, size_limit=room, dfa_size_limit=room)
    return jsonschema_rs.validator_for(schema, offline=True, pattern_options=patterns)
