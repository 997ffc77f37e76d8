"""Convert a JSON schema to a grammar in llama.cpp's notation (its grammars/README.md).

The grammar covers types, properties, items, enum, const, alternatives and $ref, and ignores other keywords.  So a value
that fits the schema also fits the grammar, except for the order of members: required ones come first.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import json

_DEEPEST = 32  # levels of nested schemas; deeper values may be any JSON
_MAX = 1 << 20  # characters of expressions, nested ones counted at each level; later values may be any JSON
_JSON = r"""
value ::= object | array | string | number | boolean | null
object ::= "{" space (string ":" space value ("," space string ":" space value)*)? "}" space
array ::= "[" space (value ("," space value)*)? "]" space
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" space
number ::= "-"? ([0-9] | [1-9] [0-9]{0,15}) ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})? space
integer ::= "-"? ([0-9] | [1-9] [0-9]{0,15}) space
boolean ::= ("true" | "false") space
null ::= "null" space
space ::= " "?
"""
_TYPES = frozenset(("object", "array", "string", "number", "integer", "boolean", "null"))


def schema_to_gbnf(schema: Mapping[str, Any]) -> str:
    """Return the grammar of a whole response."""
    return "\n".join(_GrammarRules(schema).all()) + _JSON


class _GrammarRules:
    """The rules of a grammar.

    A part that occurs twice has its own rule, so the grammar grows linearly with the schema.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._names: dict[str, str] = {}  # rule names of definitions, by $ref
        self._paths: list[str] = []  # $ref paths of the definitions, in order of first use
        self._written: list[str] = []
        self._room = _MAX

    def all(self) -> list[str]:
        """Return all rules.

        Definitions may refer to each other in circles, so each one is written once, from a growing list.
        """
        root = f"root ::= space {self.of(self._root)}"
        for path in self._paths:
            self._written.append(f"{self._names[path]} ::= {self.of(self._found(path))}")
        return [root, *self._written]

    def of(self, schema: Any, depth: int = 0) -> str:  # noqa: ANN401 - decoded JSON
        """Return an expression for the JSON that fits, with the white space after it."""
        if self._room < 0:
            return "value"
        match schema:
            case {"$ref": str(path)}:
                text = self._named(path)
            case {"const": value}:
                text = _literal(value)
            case {"enum": [_, *_] as values}:
                text = _either(map(_literal, values))
            case {"anyOf": [_, *_] as options} | {"oneOf": [_, *_] as options} if depth < _DEEPEST:
                text = _either(self.of(option, depth + 1) for option in options)
            case {"type": [_, *_] as kinds} if depth < _DEEPEST:
                words = dict.fromkeys(kind if isinstance(kind, str) else "" for kind in kinds)  # each type once
                text = _either(self.of({**schema, "type": word}, depth + 1) for word in words)
            case {"type": str(kind)} if kind in _TYPES:
                text = self._typed(kind, schema, depth)
            case _:
                text = "value"
        self._room -= len(text)
        return text

    def _named(self, path: str) -> str:
        if path not in self._names:
            self._names[path] = f"of-{len(self._names)}"
            self._paths.append(path)
        return self._names[path]

    def _typed(self, kind: str, schema: Mapping[str, Any], depth: int) -> str:
        match schema:
            case {"type": "object", "properties": {} as properties} if properties and depth < _DEEPEST:
                return self._object(properties, schema.get("required"), depth + 1)
            case {"type": "array", "items": items} if depth < _DEEPEST:
                one = self._rule(self.of(items, depth + 1))
                several = f'{one} ("," space {one})*'
                return f'"[" space {several if schema.get("minItems") else f"({several})?"} "]" space'
        return kind

    def _object(self, properties: Mapping[str, Any], required: object, depth: int) -> str:
        pairs = {name: f'{_literal(name)} ":" space {self.of(inner, depth)}' for name, inner in properties.items()}
        wanted = {name for name in required if isinstance(name, str)} if isinstance(required, list) else frozenset()
        needed = [name for name in pairs if name in wanted]
        others = [pair for name, pair in pairs.items() if name not in wanted]
        first, more = self._any_of(others)
        inside = ' "," space '.join(pairs[name] for name in needed) + f" {more}" if needed else f"({first})?"
        return f'"{{" space {inside} "}}" space'

    def _any_of(self, pairs: Sequence[str]) -> tuple[str, str]:
        """Return two expressions for some of these pairs, in their order.

        The first is for the beginning of the object, the second follows other members.
        """
        first = more = ""
        for pair in reversed(pairs):
            one = self._rule(pair)
            first = self._rule(f"{one} {more} | {first}" if first else one)
            more = self._rule(f'("," space {one})? {more}')
        return first, more

    def _rule(self, text: str) -> str:
        name = f"one-{len(self._written)}"
        self._written.append(f"{name} ::= {text}")
        return name

    def _found(self, path: str) -> object:
        """Return the target of a $ref; None if it is missing."""
        found: Any = self._root
        for step in filter(None, path.removeprefix("#").split("/")):
            found = found.get(step) if isinstance(found, Mapping) else None
        return found


def _either(options: Iterable[str]) -> str:
    return f"({' | '.join(options)})"


def _literal(value: object) -> str:
    """Return an expression for the exact JSON of a value."""
    text = json.encode(value).decode()
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}" space'
