"""Scan the strings of JSON, of server-sent events and of plain text, each with its place.

Incomplete and invalid JSON is scanned as far as it goes, since a recording may be cut anywhere.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec import DecodeError, json

_LINE = re.compile(r"[^\r\n]+")
_FIELD = re.compile(r"(?:data|event|id|retry): ?|:")  # beginnings of a line of server-sent events
_TOKEN = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"?|([{}\[\],:])|[^\s"{}\[\],:]+', re.DOTALL)
_TELLING = frozenset(
    (
        "index", "choice", "call", "event", "type", "role", "item_id", "output_index", "content_index",
        "summary_index",
    )
)  # fmt: skip


@dataclass(slots=True, eq=False)
class JsonContainer:
    """An object or a list in JSON.

    path: the names that lead to it.
    key: the name of the current member.
    marks: members that distinguish it from others with the same path.
    called: the value of its member `name`.
    """

    path: tuple[str, ...]
    mapping: bool
    key: str | None = None  # of the current member
    marks: dict[str, str] = field(default_factory=dict)
    called: str = ""


@dataclass(slots=True, eq=False)
class JsonString:
    """A string without its quotes, a bare word such as a number, or a whole line that is no JSON.

    name: the name of the member that has it as its value.
    inside: the containers around it, the innermost last; empty for a line.
    bare: a word without quotes.
    """

    start: int
    end: int
    name: str = ""
    inside: tuple[JsonContainer, ...] = ()
    bare: bool = False

    @property
    def path(self) -> tuple[str, ...]:
        """The names that lead to it; an entry of a list has the path of the list."""
        before = self.inside[-1].path if self.inside else ()
        return (*before, self.name) if self.name else before

    @property
    def channel(self) -> tuple[object, ...]:
        """The key that all pieces of one text share; complete only at the end of the scan."""
        return (self.path, *(tuple(sorted(place.marks.items())) for place in self.inside if place.marks))


def scan_strings(text: str) -> Iterator[JsonString]:
    """Yield the strings in JSON, in server-sent events, or in lines of plain text."""
    if text.lstrip()[:1] in ("{", "["):
        yield from _json(text, 0, len(text))
        return
    for line in _LINE.finditer(text):
        start = line.start()
        prefix = _FIELD.match(text, start, line.end())
        begin = prefix.end() if prefix else start
        if text[begin : begin + 1] in ("{", "["):
            yield from _json(text, begin, line.end())
        elif not prefix or prefix[0].startswith("data"):
            yield JsonString(begin, line.end())


def _json(text: str, start: int, end: int) -> Iterator[JsonString]:
    inside: tuple[JsonContainer, ...] = ()
    for token in _TOKEN.finditer(text, start, end):
        string, sign = token[1], token[2]
        here = inside[-1] if inside else None
        if sign in ("{", "["):
            inside = (*inside, JsonContainer(_path(here), sign == "{"))
        elif sign in ("}", "]"):
            inside = inside[:-1]
        elif sign == ",":
            if here:
                here.key = None
        elif string is not None and here and here.mapping and here.key is None:
            here.key = _plain(string)
        elif sign is None:
            yield _value(token, here, inside)


def _plain(name: str) -> str:
    """Return a name without its escapes."""
    if "\\" not in name:
        return name
    try:
        return json.decode(f'"{name}"', type=str)
    except DecodeError:
        return name


def _path(here: JsonContainer | None) -> tuple[str, ...]:
    """Return the path of a value that begins here."""
    if here is None:
        return ()
    return (*here.path, here.key) if here.key else here.path


def _value(token: re.Match[str], here: JsonContainer | None, inside: tuple[JsonContainer, ...]) -> JsonString:
    name, bare = here.key or "" if here else "", token[1] is None
    if here and name in _TELLING:
        here.marks[name] = token[0]
    if here and name == "name":
        here.called = token[1] or ""
    start, end = token.span(0 if bare else 1)
    return JsonString(start, end, name, inside, bare)
