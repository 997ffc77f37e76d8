"""Explain errors of the schema: each message says which value is right.  Secrets and variables are not shown."""

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import get_args

from pydantic_core import ErrorDetails

from gateway.config.faults import KeyPath
from gateway.config.schema import Config
from gateway.config.section import SettingsSection

_MAPPING = "should be a mapping, one `key: value` a line"
_WORDS = {
    "bool_parsing": "should be true or false",
    "bool_type": "should be true or false",
    "dict_type": _MAPPING,
    "finite_number": "should be finite; 0 is none",
    "float_parsing": "should be a number",
    "float_type": "should be a number",
    "greater_than": "should be more than {gt}",
    "greater_than_equal": "should be {ge} or more",
    "int_from_float": "should be a whole number",
    "int_parsing": "should be a whole number",
    "int_type": "should be a whole number",
    "less_than_equal": "should be {le} or less",
    "missing": "is missing",
    "model_type": _MAPPING,
    "string_too_short": "should not be empty",
    "string_type": "should be a text; write it in quotes",
    "too_short": "should have at least one entry",
    "tuple_type": "should be a list, one `- entry` a line",
    "wrong": "{text}",
}
_SHOWN = {"bool_parsing", "float_parsing", "greater_than_equal", "int_from_float", "int_parsing", "less_than_equal"}
_MANY = 16


def explain_schema_error(
    detail: ErrorDetails, written: Mapping[KeyPath, str], formats: Iterable[str]
) -> tuple[KeyPath, str]:
    """Where a fault of the schema is and what it means; `written` has the texts that held a variable."""
    path = tuple(step for step in detail["loc"] if step != "[key]")
    value = written.get(path, detail["input"])
    kind = detail["type"]
    if kind == "extra_forbidden":
        return path, f"unknown key; {nearest_name(str(path[-1]), _keys_beside(path))}"
    if kind == "format":
        return path, f"unknown format {value!r}; {nearest_name(str(value), _ordered(formats))}"
    if kind == "literal_error":
        return path, f"unknown value {value!r}; one of: {detail['ctx']['expected']}"
    text = _WORDS[kind].format(**detail.get("ctx", {})) if kind in _WORDS else detail["msg"]
    return path, f"{text}, not {value!r}" if kind in _SHOWN else text


def nearest_name(name: str, known: Iterable[str]) -> str:
    """The nearest of the known names, and the first of them."""
    names = list(known)
    if not names:
        return "there is none"
    nearest = get_close_matches(name, names, 1)
    more = ", …" if len(names) > _MANY else ""
    listed = f"one of: {', '.join(islice(names, _MANY))}{more}"
    return f"did you mean {nearest[0]!r}? {listed}" if nearest else listed


def _ordered(formats: Iterable[str]) -> list[str]:
    return sorted(formats, key=lambda name: (name not in ("auto", "native"), name))


def _keys_beside(path: KeyPath) -> Collection[str]:
    """The keys of the section in which the last step of a path stands."""
    kind: object = Config
    for step in path[:-1]:
        if isinstance(kind, type) and issubclass(kind, SettingsSection):
            names = {field.serialization_alias or name: field.annotation for name, field in kind.model_fields.items()}
            kind = names[str(step)]
        else:
            kind = _section(kind)
    return _section(kind).known()


def _section(kind: object) -> type[SettingsSection]:
    """The one that a type is, or that it is made of."""
    return next(arg for arg in (kind, *get_args(kind)) if isinstance(arg, type) and issubclass(arg, SettingsSection))
