"""Collect the literals in a format's code: tags, keys, separators, everything that its generator can reach.

So a new format brings its own pieces to the tests that build texts of them.
"""

import re
from collections.abc import Mapping
from functools import cache
from types import FunctionType, MethodType

from msgspec import Struct, structs

from gateway.formats import FORMATS
from gateway.formats.markers import EndTokens, Markers

_LONGEST = 40  # a longer text is a sentence in a message


@cache
def literals(name):
    """Return the literals of one format, in a fixed order."""
    found: set[str] = set()
    _collect(FORMATS[name].parse, found, {})
    return tuple(sorted(found))


@cache
def tags(name):
    """Return the literals that are no single characters, words or spaces."""
    return tuple(literal for literal in literals(name) if len(literal) > 1 and not re.fullmatch(r"[\w\s.-]+", literal))


@cache
def all_tags():
    """Return the tags of all formats."""
    return tuple(sorted({tag for name in FORMATS for tag in tags(name)}))


def _collect(value, found, seen):
    if isinstance(value, str):
        if 0 < len(value) <= _LONGEST:
            found.add(value)
    elif id(value) not in seen:
        seen[id(value)] = value
        for part in _parts(value):
            _collect(part, found, seen)


def _parts(value):
    for kind, parts in _PARTS:
        if isinstance(value, kind):
            return parts(value)
    return (type(value), *getattr(value, "__dict__", {}).values()) if _ours(type(value)) else ()


def _ours(thing):
    return thing.__module__.startswith("gateway.formats") and thing.__module__ != "gateway.formats.reader"


def _of_markers(markers):
    return (re.sub(r"\\(.)", r"\1", part) for part in re.split(r"(?<!\\)\|", markers.search.__self__.pattern))


def _of_class(kind):
    return [part for part in vars(kind).values() if isinstance(part, FunctionType)] if _ours(kind) else ()


def _of_function(function):
    if not _ours(function):
        return ()
    code, known = function.__code__, function.__globals__
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    constants = [part for part in code.co_consts if isinstance(part, str | tuple) and part != function.__doc__]
    return (
        *cells,
        *constants,
        *(function.__defaults__ or ()),
        *(known[name] for name in code.co_names if name in known),
    )


_PARTS = (
    (Mapping, lambda value: (*value.keys(), *value.values())),
    (tuple | list | set | frozenset, tuple),
    (Struct, lambda value: (type(value), *structs.asdict(value).values())),
    (MethodType, lambda value: (value.__func__, value.__self__)),
    (FunctionType, _of_function),
    (type, _of_class),
    (Markers, _of_markers),
    (EndTokens, lambda _: ()),
)
