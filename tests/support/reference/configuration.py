"""Generate docs/reference/configuration.md: every key of the configuration, from its JSON schema."""

import re
from collections.abc import Iterator

from support.reference.schema import EXAMPLE, ITEM, NAME, Path, Schema, schema

_HEAD = """\
# Configuration

This page lists every key of a configuration file. Every key is optional unless its row says "required".
[Configure](../how-to/configure.md) explains the common ones, and [config/gateway.yaml](../../config/gateway.yaml) has all of them in one file.
`make regenerate` writes this page.

## The file

- The language is YAML 1.2. A key without a value counts as absent.
- In a string, `${VAR}` is the environment variable VAR, which must be set. `${VAR:-default}` has a default, which also applies to an empty variable.
- `${file:PATH}` is the text of a file, relative to the configuration, without the newline at its end. `$${` is a literal `${`.
- The options `--host`, `--port` and `--workers` of `gateway serve` override the file.
- In the tables, `NAME` is a name of your choice, and `[]` an entry of a list.

## In an editor

`gateway check --schema` prints a JSON schema of the file: [gateway.schema.json](../../gateway/config/gateway.schema.json). Editors with YAML support use it
to complete keys, to show these descriptions and to mark errors. Save the schema beside the configuration:

```sh
gateway check --schema > gateway.schema.json
```

Then begin the configuration with this line:

```yaml
# yaml-language-server: $schema=gateway.schema.json
```
"""
_WORDS = {"string": "string", "integer": "integer", "number": "number", "boolean": "`true` or `false`"}
_FORMATS = "`auto`, `native`, `response_template`, or a name of [Formats](formats.md)"
_UNSET = object()


def page() -> str:
    """Return the whole page in Markdown."""
    sections = (_section(name, node) for name, node in schema()["properties"].items())
    return "\n".join([_HEAD, *(line for section in sections for line in section)])


def _section(name: str, node: Schema) -> Iterator[str]:
    yield f"## {name}\n"
    yield f"{_text(node)}\n"
    yield "| key | type | default | description |\n|---|---|---|---|"
    for path, leaf, required in _leaves(_value(node), (name,)):
        default = "required" if required else _default(leaf)
        yield f"| `{_dotted(path)}` | {_type(path, leaf)} | {default} | {_text(leaf)} |"
    yield f"\nExample:\n\n```yaml\n{_example(name)}\n```\n"


def _leaves(node: Schema, path: Path) -> Iterator[tuple[Path, Schema, bool]]:
    """Yield path and schema of each key below a section, and whether it is required."""
    if "properties" in node:
        for key, value in node["properties"].items():
            inner = _value(value)
            if (*path, key) == ("models", NAME, "response_template") or not _is_section(inner):
                yield (*path, key), value, key in node.get("required", ())
            else:
                yield from _inner_leaves((*path, key), value, inner)
    elif "items" in node:
        yield from _leaves(_value(node["items"]), (*path, ITEM))
    else:
        yield from _leaves(_value(node["additionalProperties"]), (*path, NAME))


def _inner_leaves(path: Path, value: Schema, inner: Schema) -> Iterator[tuple[Path, Schema, bool]]:
    """Yield a section within a section: the list itself, because it may be empty, and what is below."""
    if "items" in inner or "required" in inner:
        yield path, value, False
    yield from _leaves(inner, path)


def _is_section(inner: Schema) -> bool:
    below = inner.get("items") or inner.get("additionalProperties") or inner
    return "properties" in inner or (isinstance(below, dict) and "properties" in _value(below))


def _value(node: Schema) -> Schema:
    """Return the long form of a value that has a short one."""
    return node["anyOf"][0] if "anyOf" in node else node


def _type(path: Path, node: Schema) -> str:
    if path == ("models", NAME, "format"):
        return _FORMATS
    inner = _value(node)
    if "enum" in inner or "const" in inner:
        return _either([f"`{value}`" for value in inner.get("enum", [inner.get("const")])])
    short = "string or " if "anyOf" in node else ""
    name = inner.get("type", "object")
    return short + _word(path, inner, name if isinstance(name, str) else name[0])


def _word(path: Path, inner: Schema, name: str) -> str:
    if name == "array":
        return f"list of {_many(_type((*path, ITEM), inner['items']))}"
    if name == "object":
        return "mapping of names to strings" if _has_strings(inner) else "mapping"
    return _WORDS[name] + _bounds(inner)


def _has_strings(inner: Schema) -> bool:
    below = inner.get("additionalProperties")
    return isinstance(below, dict) and "string" in below["type"]


def _many(word: str) -> str:
    return re.sub(r"\b(string|integer|mapping)\b", r"\1s", word)


def _bounds(node: Schema) -> str:
    if "maximum" in node:
        return f", {node['minimum']} to {node['maximum']}"
    if "exclusiveMinimum" in node:
        return f" > {node['exclusiveMinimum']}"
    return f" ≥ {node['minimum']}" if "minimum" in node else ""


def _either(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def _default(node: Schema) -> str:
    default = node.get("default", _value(node).get("default", _UNSET))
    if default is _UNSET or default == {}:
        return ""
    if isinstance(default, list):
        return f"`[{', '.join(map(str, default))}]`"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`" if default != "" else '`""`'


def _text(node: Schema) -> str:
    text = node.get("description", "").replace("*", "\\*")
    return re.sub(r"(?<![\w`])((?:sqlite|postgresql|sha256|https?)[:/][^\s,;)]*[^\s,;).])", r"`\1`", text).replace(
        "|", "\\|"
    )


def _dotted(path: Path) -> str:
    return ".".join(path).replace(f".{ITEM}", ITEM)


def _example(name: str) -> str:
    """Return the section of the example with all its keys, without comments."""
    text = EXAMPLE.read_text("utf-8")
    block = re.search(rf"^{name}:.*\n(?:(?: +|#).*\n|\n(?= ))*", text, re.MULTILINE)
    lines = (re.sub(r"^( *)#(?=\S)", r"\1", line) for line in block[0].splitlines() if not re.match(r" *# ", line))
    return "\n".join(line for line in lines if line.strip())
