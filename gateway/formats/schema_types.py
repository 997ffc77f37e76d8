"""The JSON types that a value may have by its JSON Schema, and the schemas of the values inside it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any

from gateway.formats.argument_types import kind_named, kind_of, listed, referred

Types = frozenset[str] | None  # None: any
_DEPTH = 32  # of schemas inside schemas, and of references
_DEPTH_OF_VALUES = 100
_ALTERNATIVES = ("anyOf", "oneOf")


class Shape:
    """A schema, or any of several; `root` is the schema that local references point into."""

    def __init__(self, schemas: tuple[object, ...], root: Mapping[str, Any]) -> None:
        self._schemas, self._root = schemas, root
        self._members: dict[str, Shape] = {}

    @cached_property
    def types(self) -> Types:
        """Return the types of a value that fits; an integer is also a number."""
        known: dict[str, Types] = {}
        found = _any_of([_types(schema, self._root, _DEPTH, known) for schema in self._schemas])
        return found | {"integer"} if found and "number" in found else found

    def allows(self, kind: str) -> bool:
        return self.types is None or kind in self.types

    def only(self, kind: str) -> bool:
        """Return whether no other type fits."""
        return self.types == frozenset({kind})

    def fits(self, value: object, depth: int = _DEPTH_OF_VALUES) -> bool:
        """Return whether a decoded value has the types that the schema states, and so has all that is in it."""
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
        """Return the shape of the items of an array."""
        return self._inner(lambda part: part.get("items"))

    def _inner(self, find: Callable[[Mapping[str, Any]], object]) -> "Shape":
        followed: set[str] = set()
        found = [find(part) for schema in self._schemas for part in _parts(schema, self._root, _DEPTH, followed)]
        inner = tuple(schema for schema in found if isinstance(schema, Mapping))
        return Shape(inner, self._root) if inner else ANYTHING


ANYTHING = Shape(({},), {})


def of_tool(tool: Mapping[str, Any] | None) -> Shape:
    """Return the shape of a tool's arguments; None: a tool that was not offered."""
    return Shape((tool,), tool) if tool else ANYTHING


def _member(part: Mapping[str, Any], key: str) -> object:
    properties = part.get("properties")
    known = properties.get(key) if isinstance(properties, Mapping) else None
    return part.get("additionalProperties") if known is None else known


def _parts(schema: object, root: Mapping[str, Any], depth: int, followed: set[str]) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and all that it is made of."""
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
    """Return the types that a schema states; None where it states none, or leads in a circle.

    known: reference → its types, None while they are being looked for.
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
    """Return the types of which any alternative allows one; an alternative without types allows any."""
    return None if None in sets or not sets else frozenset().union(*[types for types in sets if types])


def _all_of(sets: Sequence[Types]) -> Types:
    """Return the types that all conditions allow; conditions that exclude each other are no help."""
    stated = [types for types in sets if types is not None]
    return (reduce(frozenset.intersection, stated) or None) if stated else None
