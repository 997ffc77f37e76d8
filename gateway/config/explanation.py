"""Explain the errors of the schema in words: each message says which value is right.

Messages show no secrets and no variables.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from types import MappingProxyType
from typing import Any, get_args, get_origin

from pydantic_core import ErrorDetails

from gateway.config.errors import KeyPath, dotted_path
from gateway.config.schema import Config
from gateway.config.types import SettingsSection

_WORDS = {
    "bool_parsing": "should be true or false",
    "bool_type": "should be true or false",
    "finite_number": "should be finite; 0 means no limit",
    "float_parsing": "should be a number",
    "float_type": "should be a number",
    "greater_than": "should be more than {gt}",
    "greater_than_equal": "should be {ge} or more",
    "int_from_float": "should be a whole number",
    "int_parsing": "should be a whole number",
    "int_parsing_size": "should be a smaller number",
    "int_type": "should be a whole number",
    "less_than_equal": "should be {le} or less",
    "missing": "is missing",
    "string_too_short": "should not be empty",
    "too_short": "should have at least one entry",
    "wrong": "{text}",
}
_SHOWN = {"bool_parsing", "float_parsing", "greater_than_equal", "int_from_float", "int_parsing", "less_than_equal"}
_WITH_UNIT = re.compile(r"\d[\d_.,]*\s*[a-zA-Z]{1,8}")
_BARE_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")
_BRACES = "; a variable needs braces, like ${NAME}"
_MANY, _LONG = 16, 64
# Examples of mappings and of missing keys; * stands for a name, and [] for a position.
_EXAMPLES = MappingProxyType(
    {
        "": "backends: {gpu: {url: http://127.0.0.1:8000}}",
        "auth": 'auth: {keys: [{name: ci, key: "${CI_KEY}"}]}',
        "auth.groups": "groups: {team-a: {tokens_per_month: 5000000}}",
        "auth.groups.*": "{tokens_per_month: 5000000}",
        "auth.header": "{scopes: {admins: [admin]}}",
        "auth.header.scopes": "scopes: {admins: [admin]}",
        "auth.keys[]": '{name: ci, key: "${CI_KEY}"}',
        "auth.keys[].key": 'key: "${CI_KEY}"',
        "auth.keys[].name": "name: ci",
        "backends": "backends: {gpu: {url: http://127.0.0.1:8000}}",
        "backends.*": "{url: http://127.0.0.1:8000}",
        "backends.*.url": "url: http://127.0.0.1:8000",
        "models": "models: {qwen: {backends: [gpu]}}",
        "models.*": "{backends: [gpu]}",
        "models.*.backends[]": "{name: gpu}",
        "models.*.backends[].name": "name: gpu",
        "models.*.fallback[]": "{model: small}",
        "models.*.fallback[].model": "model: small",
        "server.tls": "tls: {certificate: tls/fullchain.pem, key: tls/key.pem}",
        "server.tls.certificate": "certificate: tls/fullchain.pem",
        "server.tls.key": "key: tls/key.pem",
        "tools.mcp.servers": "servers: {docs: {url: https://mcp.example.com/mcp}}",
        "tools.mcp.servers.*": "{url: https://mcp.example.com/mcp}",
        "tools.web_search.found[]": "{url: https://example.com/}",
    }
)
_NAMED = (
    "backends",
    "models",
    "servers",
    "headers",
    "env",
    "groups",
    "defaults",
    "overrides",
    "scopes",
)  # mappings with names as keys


def explain_schema_error(
    detail: ErrorDetails, written: Mapping[KeyPath, str], formats: Iterable[str]
) -> tuple[KeyPath, str]:
    """Return the path of a schema error and its explanation.

    written: the original texts of values with variables, which replace the values in the explanation.
    """
    path = _path(detail)
    value = written.get(path, detail["input"])
    text = _explanation(detail, path, value, formats)
    return path, text + _BRACES if isinstance(value, str) and _BARE_VARIABLE.fullmatch(value) else text


def _explanation(detail: ErrorDetails, path: KeyPath, value: object, formats: Iterable[str]) -> str:
    kind = detail["type"]
    if kind == "format":
        return f"unknown format {_shown(value)}; {nearest_name(str(value), _ordered(formats))}"
    if explain := _BY_TYPE.get(kind):
        return explain(path, value, detail.get("ctx", {}))
    text = _WORDS[kind].format(**detail.get("ctx", {})) if kind in _WORDS else detail["msg"]
    if kind not in _SHOWN:
        return text
    unit = " without a unit" if "number" in text and _WITH_UNIT.fullmatch(str(value)) else ""
    return f"{text}{unit}, not {_shown(value)}"


def independent_errors(
    details: Sequence[ErrorDetails], known: Collection[str], written: Iterable[KeyPath]
) -> Iterator[ErrorDetails]:
    """Yield the schema errors that no other error causes.

    known: the dotted paths that already have an error.  A value without a valid part has no error of its own.
    written: the paths of values with variables.  Without the variable, the value stands for nothing valid.
    """
    unset = tuple(f"{path}." for path in map(dotted_path, written) if path in known)
    paths = [*known, *(dotted_path(_path(detail)) for detail in details)]
    for detail in details:
        path = dotted_path(_path(detail))
        inside = any(other.startswith((f"{path}.", f"{path}[")) for other in paths)
        if path not in known and not (inside and path) and not path.startswith(unset):
            yield detail


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Return a text that suggests the nearest known name and lists the known names."""
    names = list(known)
    if not names:
        return "none is configured"
    nearest = closest(name, names)
    more = ", …" if len(names) > _MANY else ""
    listed = f"one of: {', '.join(islice(names, _MANY))}{more}"
    return f"did you mean {nearest!r}? {listed}" if nearest else listed


def closest(name: str, names: Iterable[str]) -> str | None:
    """Return the name that is most like another, regardless of case; None if none is like it."""
    folded = {one.casefold(): one for one in names}
    return next((folded[one] for one in get_close_matches(name.casefold(), folded, 1)), None)


def mapping_error(path: KeyPath, value: object) -> str:
    """Return the text for a value that should be a mapping, or for a key that stands where a name should."""
    above, section = _pattern(path).removesuffix(".*"), _annotation(path)
    if above != _pattern(path) and section and path[-1] in section.known_keys():
        return f"needs a name of your choice above it; for example {_EXAMPLES[above]}"
    return _with_example(f"should be a mapping{_instead(value)}", path)


def _path(detail: ErrorDetails) -> KeyPath:
    return tuple(step for step in detail["loc"] if step != "[key]")


def _ordered(formats: Iterable[str]) -> list[str]:
    return sorted(formats, key=lambda name: (name not in ("auto", "native"), name))


def _not_text(value: object) -> str:
    quotes = "; write it in quotes" if type(value) in (int, float) else ""
    return f"should be a string{quotes or _instead(value)}"


def _unknown_value(value: object, expected: str) -> str:
    """Return the text for a value beside the expected words, which pydantic lists in quotes."""
    words = re.findall(r"'([^']*)'", expected)
    if isinstance(value, list | dict):
        return f"should be one word, not {_sort(value)}; one of: {expected}"
    word = "off" if value is False else str(value)  # YAML 1.1 writes `off` as false
    nearest = closest(word, words)
    hint = f"did you mean {nearest!r}? " if nearest else ""
    return f"unknown value {_shown(value)}; {hint}one of: {expected}"


def _shown(value: object) -> str:
    """Return a value as the file has it, for a message."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return repr(value if len(value) <= _LONG else f"{value[:_LONG]}…")
        case int() | float():
            return str(value)
    return _sort(value)


def _sort(value: object) -> str:
    return "a mapping" if isinstance(value, dict) else "a list"


def _instead(value: object) -> str:
    """Return the sort of a value, or the value if it is a plain true or false."""
    return f", not {_shown(value)}" if isinstance(value, bool | list | dict) else ""


def _with_example(text: str, path: KeyPath) -> str:
    example = _EXAMPLES.get(_pattern(path)) or _first_key(path)
    example = f"{path[-1]}: {example}" if example[:1] == "{" and isinstance(path[-1], str) else example
    return f"{text}; for example {example}" if example else text


def _pattern(path: KeyPath) -> str:
    """Return a path with * for each name that the operator chose, and [] for each position."""
    steps: list[str] = []
    for before, step in zip(("", *path), path, strict=False):
        steps.append("[]" if isinstance(step, int) else ".*" if before in _NAMED and steps else f".{step}")
    return "".join(steps).removeprefix(".")


def _first_key(path: KeyPath) -> str:
    """Return an example of a section: its first key with a value."""
    section = _annotation(path)
    if not section:
        return ""
    name, field = next(iter(section.model_fields.items()))
    default = "true" if isinstance(field.default, bool) else field.default
    return f"{path[-1]}: {{{field.serialization_alias or name}: {default if default is not None else '…'}}}"


def _right_key(path: KeyPath) -> str:
    """Return a text that suggests the right key, or the section that a known key belongs to."""
    name, beside = str(path[-1]), _section_of(path[:-1]).known_keys()
    elsewhere = [] if closest(name, beside) else [where for where in _KEYS if where.rpartition(".")[2] == name]
    if not elsewhere:
        return nearest_name(name, beside)
    return f"it belongs to another section: {', '.join(elsewhere[:4])}"


def _annotation(path: KeyPath) -> type[SettingsSection] | None:
    """Return the section class at a path; None if it has none."""
    kind: object = Config
    for step in path:
        if get_origin(kind) in (dict, tuple):
            kind = get_args(kind)[get_origin(kind) is dict]
        else:
            section = _class_in(kind)
            kind = _fields(section).get(str(step)) if section else None
    return _class_in(kind)


def _fields(section: type[SettingsSection]) -> dict[str, object]:
    """Return the types of a section's keys."""
    return {field.serialization_alias or name: field.annotation for name, field in section.model_fields.items()}


def _section_of(path: KeyPath) -> type[SettingsSection]:
    section = _annotation(path)
    assert section
    return section


def _class_in(kind: object) -> type[SettingsSection] | None:
    """Return the section class that a type is or contains."""
    parts = (kind, *get_args(kind))
    return next((arg for arg in parts if isinstance(arg, type) and issubclass(arg, SettingsSection)), None)


def _all_keys(section: type[SettingsSection], prefix: str = "") -> Iterator[str]:
    """Yield the paths of all keys below a section, with NAME for the names that an operator chooses."""
    for name, kind in _fields(section).items():
        yield f"{prefix}{name}"
        if inner := _class_in(kind):
            origin = get_origin(kind)
            below = ".NAME." if origin is dict else "[]." if origin is tuple else "."
            yield from _all_keys(inner, f"{prefix}{name}{below}")


_KEYS = tuple(_all_keys(Config))
_BY_TYPE: Mapping[str, Callable[[KeyPath, Any, Mapping[str, Any]], str]] = MappingProxyType(
    {
        "dict_type": lambda path, value, _: mapping_error(path, value),
        "extra_forbidden": lambda path, _, __: f"unknown key; {_right_key(path)}",
        "literal_error": lambda _, value, context: _unknown_value(value, context["expected"]),
        "missing": lambda path, _, __: _with_example("is missing", path),
        "model_type": lambda path, value, _: mapping_error(path, value),
        "string_type": lambda _, value, __: _not_text(value),
        "tuple_type": lambda path, _, __: f"should be a list; write {path[-1]}: [ … ], or one `- entry` per line",
    }
)
