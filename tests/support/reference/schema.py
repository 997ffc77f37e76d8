"""Generate the JSON schema of the configuration, which editors use and `gateway check --schema` prints.

The types come from `gateway.config`, and the descriptions from the fields there, or else from the comments of
`config/gateway.yaml`.  The schema accepts all that the gateway accepts: a key without a value, `${VAR}` in place of any
value, and short forms of some values.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from gateway.config import Config, read_document
from gateway.formats import format_names
from support.paths import ROOT

FILE = ROOT / "gateway/config/gateway.schema.json"
EXAMPLE = ROOT / "config/gateway.yaml"

Schema = dict[str, Any]
Path = tuple[str, ...]  # keys; NAME for a name of the user's choice, [] for an item of a list
NAME, ITEM = "NAME", "[]"

_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum"}
_KEPT = {"type", "enum", "const", "default", "required", "minItems", "minLength", *_BOUNDS.values()}
_VARIABLE = r"\$\{"
# A string may stand for these mappings and lists.
_OR_STRING = {
    ("auth", "keys", ITEM),
    ("auth", "keys", ITEM, "key"),
    ("models", NAME, "backends", ITEM),
    ("models", NAME, "fallback", ITEM),
    ("models", NAME, "response_template"),
}
_FORMAT = ("models", NAME, "format")


def schema() -> Schema:
    """Return the schema, with all sections in their places."""
    raw = Config.model_json_schema()
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Configuration of the gateway"}
    return head | _Reader(raw["$defs"]).node(raw, ())


def written() -> str:
    """Return the text of the schema's file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


class _Reader:
    """Convert the schema of pydantic, with each section in its place and described."""

    def __init__(self, definitions: Schema) -> None:
        self._definitions = definitions
        self._described = Descriptions()

    def node(self, raw: Schema, path: Path) -> Schema:
        """Return the schema of the value at a path."""
        own = raw.get("description", "") if path else ""
        raw = _resolved(raw, self._definitions)
        text = own or self._described.text(path) or _summary(raw.get("description", ""))
        return ({"description": " ".join(text.split())} if text else {}) | _relaxed(self._value(raw, path), path)

    def _value(self, raw: Schema, path: Path) -> Schema:
        found = {_BOUNDS.get(key, key): value for key, value in raw.items() if _BOUNDS.get(key, key) in _KEPT}
        if "anyOf" in raw:
            found["anyOf"] = [self._value(_resolved(one, self._definitions), path) for one in raw["anyOf"]]
        if "properties" in raw:
            found.pop("default", None)
            found["properties"] = {key: self.node(value, (*path, key)) for key, value in raw["properties"].items()}
            found["additionalProperties"] = False
        elif isinstance(raw.get("additionalProperties"), dict):
            found["additionalProperties"] = self.node(raw["additionalProperties"], (*path, NAME))
        if "items" in raw:
            found["items"] = self.node(raw["items"], (*path, ITEM))
        if path == _FORMAT:
            found["enum"] = sorted(format_names())
        if path == ("store", "url"):
            found["default"] = self._described.value(path)  # pydantic masks it
        return found


def _summary(docstring: str) -> str:
    """Return the first sentence of a section's docstring."""
    return re.split(r"(?<=\.)  |\n", docstring)[0]


def _resolved(raw: Schema, definitions: Schema) -> Schema:
    """Return a schema without its reference, and without the null of an optional value."""
    if "$ref" in raw:
        raw = {**definitions[raw["$ref"].rpartition("/")[2]], **raw}
    if "anyOf" not in raw:
        return raw
    others = [one for one in raw["anyOf"] if one != {"type": "null"}]
    rest = {key: value for key, value in raw.items() if key == "default"}
    return _resolved(others[0], definitions) | rest if len(others) == 1 else {"anyOf": others} | rest


def _relaxed(found: Schema, path: Path) -> Schema:
    """Return a schema that also accepts no value, a variable and the short form."""
    if found.get("default", ...) is None:
        del found["default"]
    nothing = [] if path[-1:] == (ITEM,) else ["null"]  # an entry of a list needs a value
    if path in _OR_STRING:
        return {"anyOf": [found, {"type": ["string", *nothing]}]}
    if "type" not in found:
        return found
    if "enum" in found:
        default = {"default": found.pop("default")} if "default" in found else {}
        return {"anyOf": [found, {"type": ["string", *nothing], "pattern": _VARIABLE}], **default}
    if found["type"] in ("integer", "number", "boolean"):
        return {**found, "type": [found["type"], "string", *nothing], "pattern": _VARIABLE}
    return {**found, "type": [found["type"], *nothing]}


class Descriptions:
    """The comments of the example, by the paths of the keys that they explain."""

    def __init__(self) -> None:
        text = re.sub(r"^( *)#(?=\S)", r"\1", EXAMPLE.read_text("utf-8"), flags=re.MULTILINE)
        self._lines = [line.strip() for line in text.splitlines()]
        document = read_document(text, EXAMPLE.name, dict.fromkeys(re.findall(r"\$\{(\w+)", text), ""))
        assert not document.faults, document.faults
        self._numbers = {_general(path): line for path, line in document.lines.items() if path}
        self._data = document.data

    def text(self, path: Path) -> str:
        """Return the comment above a key, or above its neighbour if one comment explains both; "" if there is none."""
        number = self._numbers.get(path)
        if number is None or path[-1] == ITEM:
            return ""
        comment = [*self._above(number)][::-1]
        if comment:
            return " ".join(comment)
        before = [other for other in self._numbers if other[:-1] == path[:-1] and self._numbers[other] < number]
        return self.text(max(before, key=self._numbers.__getitem__)) if before and self._near(before, number) else ""

    def value(self, path: Path) -> object:
        """Return the value of a key in the example."""
        value: Any = self._data
        for key in path:
            value = value[key]
        return value

    def _above(self, number: int) -> Iterator[str]:
        for line in reversed(self._lines[: number - 1]):
            if not line.startswith("# "):
                return
            yield line[2:]

    def _near(self, before: list[Path], number: int) -> bool:
        return max(self._numbers[other] for other in before) == number - 1


_NAMED = {("backends",), ("models",), ("tools", "mcp", "servers")}


def _general(path: tuple[str | int, ...]) -> Path:
    """Return a path of the example with NAME for its names and [] for its indexes."""
    found: Path = ()
    for key in path:
        found += (ITEM if isinstance(key, int) else NAME if found in _NAMED else key,)
    return found
