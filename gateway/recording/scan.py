"""The strings in a text that is JSON, or lines or server-sent events of it; it may be cut anywhere.

Nothing is decoded: what is found is where it stands, so that something else of the same length can stand there.
"""

import re
from collections.abc import Iterator

from msgspec import DecodeError, Struct, field, json

_LINE = re.compile(r"[^\r\n]+")
_FIELD = re.compile(r"(?:data|event|id|retry): ?|:")  # what a line of server-sent events begins with
_TOKEN = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"?|([{}\[\],:])|[^\s"{}\[\],:]+', re.DOTALL)
_TELLING = frozenset(
    (
        "index", "choice", "call", "event", "type", "role", "item_id", "output_index", "content_index",
        "summary_index",
    )
)  # fmt: skip


class JsonContainer(Struct, eq=False):
    """An object or a list.  path: to it, by names; marks: members of an object that tell it from others beside it."""

    path: tuple[str, ...]
    mapping: bool
    key: str | None = None  # of the member that is being read
    marks: dict[str, str] = field(default_factory=dict)


class JsonString(Struct, eq=False):
    """A string, without its quotes; a number or another bare word; or a line that is no JSON, which is nowhere.

    name: of the member whose value it is; inside: the places around it, the innermost last.
    """

    start: int
    end: int
    name: str = ""
    inside: tuple[JsonContainer, ...] = ()
    bare: bool = False

    @property
    def path(self) -> tuple[str, ...]:
        """The names on the way to it; what stands in a list has the list's."""
        before = self.inside[-1].path if self.inside else ()
        return (*before, self.name) if self.name else before

    @property
    def channel(self) -> tuple[object, ...]:
        """Return the key that the pieces of one text share; to be called at the end of the scan."""
        return (self.path, *(tuple(sorted(place.marks.items())) for place in self.inside if place.marks))


def scan_strings(text: str) -> Iterator[JsonString]:
    if text.lstrip()[:1] in ("{", "["):
        yield from _json(text, 0, len(text))
        return
    for line in _LINE.finditer(text):
        start = line.start()
        prefix = _FIELD.match(text, start, line.end())
        said = prefix.end() if prefix else start
        if text[said : said + 1] in ("{", "["):
            yield from _json(text, said, line.end())
        elif not prefix or prefix[0].startswith("data"):
            yield JsonString(said, line.end())


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
    """Without escapes."""
    if "\\" not in name:
        return name
    try:
        return json.decode(f'"{name}"', type=str)
    except DecodeError:
        return name


def _path(here: JsonContainer | None) -> tuple[str, ...]:
    """To what begins here."""
    if here is None:
        return ()
    return (*here.path, here.key) if here.key else here.path


def _value(token: re.Match[str], here: JsonContainer | None, inside: tuple[JsonContainer, ...]) -> JsonString:
    name, bare = here.key or "" if here else "", token[1] is None
    if here and name in _TELLING:
        here.marks[name] = token[0]
    start, end = token.span(0 if bare else 1)
    return JsonString(start, end, name, inside, bare)
