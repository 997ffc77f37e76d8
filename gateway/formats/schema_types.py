"""Determine the JSON types that a JSON Schema allows, and the schemas of the values inside a value."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any

from gateway.formats.argument_types import kind_named, kind_of, listed, referred

Types = frozenset[str] | None  # None: any
_DEPTH = 32  # levels of nested schemas and references
_DEPTH_OF_VALUES = 100
_ALTERNATIVES = ("anyOf", "oneOf")


class Shape:
    """The schemas of a value, which has to fit one of them.  `root`: the schema that local references point into."""

    def __init__(self, schemas: tuple[object, ...], root: Mapping[str, Any]) -> None:
        self._schemas, self._root = schemas, root
        self._members: dict[str, Shape] = {}

    @cached_property
    def types(self) -> Types:
        """The types of a value that fits; None for any.  An integer is also a number."""
        known: dict[str, Types] = {}
        found = _any_of([_types(schema, self._root, _DEPTH, known) for schema in self._schemas])
        return found | {"integer"} if found and "number" in found else found

    def allows(self, kind: str) -> bool:
        """Return True if a value of this type fits."""
        return self.types is None or kind in self.types

    def only(self, kind: str) -> bool:
        """Return True if no other type fits."""
        return self.types == frozenset({kind})

    def fits(self, value: object, depth: int = _DEPTH_OF_VALUES) -> bool:
        """Return True if a decoded value and all values in it have types that the schemas allow.

        depth: the levels that are checked; deeper values fit.
        """
        if self is ANYTHING or not depth:
            return True
        if not self.allows(kind_of(int(value) if isinstance(value, float) and value.is_integer() else value)):
            return False
        if isinstance(value, dict):
            return all([self.member(key).fits(inner, depth - 1) for key, inner in value.items()])
        return not isinstance(value, list) or all([self.item.fits(inner, depth - 1) for inner in value])

    def member(self, key: str) -> "Shape":
        """Return the shape of a member of an object."""
        if key not in self._members:
            self._members[key] = self._inner(lambda part: _member(part, key))
        return self._members[key]

    @cached_property
    def item(self) -> "Shape":
        """The shape of the items of an array."""
        return self._inner(lambda part: part.get("items"))

    def _inner(self, find: Callable[[Mapping[str, Any]], object]) -> "Shape":
        followed: set[str] = set()
        found = [find(part) for schema in self._schemas for part in _parts(schema, self._root, _DEPTH, followed)]
        inner = tuple(schema for schema in found if isinstance(schema, Mapping))
        return Shape(inner, self._root) if inner else ANYTHING


ANYTHING = Shape(({},), {})


def of_tool(tool: Mapping[str, Any] | None) -> Shape:
    """Return the shape of a tool's arguments; any object fits for None, a tool that was not offered."""
    return Shape((tool,), tool) if tool else ANYTHING


def _member(part: Mapping[str, Any], key: str) -> object:
    properties = part.get("properties")
    known = properties.get(key) if isinstance(properties, Mapping) else None
    return part.get("additionalProperties") if known is None else known


def _parts(schema: object, root: Mapping[str, Any], depth: int, followed: set[str]) -> Iterator[Mapping[str, Any]]:
    """Yield a schema, and all schemas that it combines or offers as alternatives."""
    if not depth or not isinstance(schema, Mapping):
        return
    yield schema
    for group in (*_ALTERNATIVES, "allOf"):
        for option in listed(schema.get(group)):
            yield from _parts(option, root, depth - 1, followed)
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference not in followed:
        followed.add(reference)
        yield from _parts(referred(reference, root), root, depth - 1, followed)


def _types(schema: object, root: Mapping[str, Any], depth: int, known: dict[str, Types]) -> Types:
    """Return the types that a schema states; None if it states none, or refers to itself.

    known: reference → its types; None while they are being determined.
    """
    if not depth or not isinstance(schema, Mapping):
        return None
    sets = [_stated(schema)]
    for group in _ALTERNATIVES:
        if options := listed(schema.get(group)):
            sets.append(_any_of([_types(option, root, depth - 1, known) for option in options]))
    sets += [_types(option, root, depth - 1, known) for option in listed(schema.get("allOf"))]
    if isinstance(reference := schema.get("$ref"), str):
        if reference not in known:
            known[reference] = None
            known[reference] = _types(referred(reference, root), root, depth - 1, known)
        sets.append(known[reference])
    found = _all_of(sets)
    return found | {"null"} if found and schema.get("nullable") is True else found


def _stated(schema: Mapping[str, Any]) -> Types:
    """Return the types that a schema states by itself."""
    if "type" in schema:
        words = [kind_named(word) if isinstance(word, str) else None for word in listed(schema["type"])]
        return _any_of([frozenset({word}) if word else None for word in words])
    if "properties" in schema:
        return frozenset({"object"})
    if "items" in schema:
        return frozenset({"array"})
    values = [*listed(schema.get("enum")), *([schema["const"]] if "const" in schema else ())]
    return frozenset(map(kind_of, values)) or None


def _any_of(sets: Sequence[Types]) -> Types:
    """Return the types that at least one alternative allows; an alternative without types allows any."""
    return None if None in sets or not sets else frozenset().union(*[types for types in sets if types])


def _all_of(sets: Sequence[Types]) -> Types:
    """Return the types that all conditions allow; None if no condition states a type, or if they exclude each other."""
    stated = [types for types in sets if types is not None]
    return (reduce(frozenset.intersection, stated) or None) if stated else None
