"""Merge entries into the text of a configuration file of a client.  All other entries stay.

Comments stay in TOML and YAML.  JSON with comments is refused, since the parser of JSON would lose them.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence
from io import StringIO
from typing import Any, NamedTuple

import tomlkit
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from gateway.launch.client import KEY_TO_FILL_IN, NO_KEY, FileFormat

_IDENTITIES = ("model_id", "id", "name")  # the member that tells entries of a list apart
_INDENT = re.compile(r"^([ \t]+)\S", re.MULTILINE)
_INDENTED_ITEM = re.compile(r"^ +- ", re.MULTILINE)
_WIDTH = 1 << 16  # no existing line is wrapped


class UnmergeableFile(Exception):
    """The file cannot be merged with the entries; the text says why."""


def merge_entries(text: str, entries: str, format: FileFormat) -> str:
    """Return the text of the file with the entries; the same text if it has them already.

    A value in the file is replaced, a mapping is merged, and a list gets the items that it lacks.  Items that are
    mappings are the same if their `model_id`, `id` or `name` is.  Raises UnmergeableFile.
    """
    codec = _CODECS[format]
    before, expected = _parse(codec, text, format), _parse(codec, text, format)
    if not before:  # comments at most
        return f"{text.rstrip()}\n{entries}" if text.strip() and before is None else entries
    _merge(expected, codec.data(entries))
    if expected == before:
        return text
    return _merged_text(codec, text, entries, expected)


def member_of(text: str, name: str, format: FileFormat) -> Mapping[str, Any]:
    """Return a mapping at the top of the file; empty if the file lacks it or is not valid."""
    try:
        data = _parse(_CODECS[format], text, format)
    except UnmergeableFile:
        return {}
    found = data.get(name) if isinstance(data, dict) else None
    return found if isinstance(found, dict) else {}


def _parse(codec: "_Codec", text: str, format: FileFormat) -> Any:  # noqa: ANN401 - any data
    try:
        return codec.data(text) if text.strip() else None
    except (ValueError, YAMLError, RecursionError) as error:
        raise UnmergeableFile(f"is not valid {format.upper()}: {error}") from None


def _merged_text(codec: "_Codec", text: str, entries: str, expected: Any) -> str:  # noqa: ANN401
    """Return the text with the entries, which keeps its form.  Raises UnmergeableFile if its data were not as expected.

    tomlkit, for example, writes no tables into inline tables.
    """
    document = codec.load(text)
    try:
        _merge(document, codec.load(entries))
        after = codec.dump(document, text)
        if codec.data(after) == expected:
            return after
    except ValueError:
        pass
    raise UnmergeableFile("has a form that the settings cannot be merged into")


def _merge(old: Any, new: Any, path: str = "") -> None:  # noqa: ANN401 - nodes of three libraries
    """Merge a container into another of the same sort.  Raises UnmergeableFile."""
    if isinstance(old, MutableMapping) and isinstance(new, MutableMapping):
        for key, value in new.items():
            _merge_member(old, key, value, f"{path}.{key}".lstrip("."))
    elif isinstance(old, MutableSequence) and isinstance(new, MutableSequence):
        for item in new:
            _merge_item(old, item, path)
    else:
        kind = "mapping" if isinstance(new, MutableMapping) else "list"
        raise UnmergeableFile(f"has no {kind} at {path or 'the top'}, but the settings need one")


def _merge_member(old: MutableMapping[str, Any], key: str, value: Any, path: str) -> None:  # noqa: ANN401
    there = old.get(key)
    if there is not None and isinstance(value, MutableMapping | MutableSequence):
        _merge(there, value, path)
    elif there != value and (value != KEY_TO_FILL_IN or there in (None, NO_KEY)):
        old[key] = value


def _merge_item(old: MutableSequence[Any], item: Any, path: str) -> None:  # noqa: ANN401
    if not isinstance(item, MutableMapping):
        if item not in old:
            old.append(item)
        return
    identity = next(name for name in _IDENTITIES if name in item)
    for one in old:
        if isinstance(one, MutableMapping) and one.get(identity) == item[identity]:
            _merge(one, item, f"{path}[{item[identity]}]")
            return
    old.append(item)


class _Codec(NamedTuple):
    """data: parse a text to plain data.  load: parse it to a document that keeps its form.

    dump: return the text of a changed document, given its text before.
    """

    data: Callable[[str], Any]
    load: Callable[[str], Any]
    dump: Callable[[Any, str], str]


def _dump_json(document: Any, before: str) -> str:  # noqa: ANN401
    """Return JSON with the indentation of the text before."""
    indent = _INDENT.search(before)
    return json.dumps(document, ensure_ascii=False, indent=indent[1] if indent else 2) + "\n"


def _dump_yaml(document: Any, before: str) -> str:  # noqa: ANN401
    """Return YAML whose lists are indented as in the text before."""
    yaml, out = _yaml(), StringIO()
    if _INDENTED_ITEM.search(before):
        yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.dump(document, out)
    return out.getvalue()


def _yaml() -> YAML:
    yaml = YAML()
    yaml.width, yaml.preserve_quotes = _WIDTH, True
    return yaml


_CODECS = {
    "toml": _Codec(tomllib.loads, tomlkit.parse, lambda document, _: tomlkit.dumps(document)),
    "json": _Codec(json.loads, json.loads, _dump_json),
    "yaml": _Codec(lambda text: YAML(typ="safe").load(text), lambda text: _yaml().load(text), _dump_yaml),
}
