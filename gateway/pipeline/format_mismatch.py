"""Look in a finished text for tool calls in another format than the one that the text was read in."""

from collections.abc import Iterator
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from gateway.formats import FORMATS
from gateway.formats.markers import Markers
from gateway.formats.markup import Markup
from gateway.formats.parser import Format, FormatParser, ParseContext
from gateway.formats.reader import TextReader
from gateway.formats.spec import FormatSpec
from gateway.formats.tool_names import resolve

_NO_CALLS = ("auto", "native", "think", "response_template")
_SHORTEST = 4  # characters of a tag that marks a tool call anywhere in a text


class FormatGuess(Struct, frozen=True):
    """A format whose markup a text has.  calls: it reads a call of an offered tool."""

    format: str
    calls: bool


def format_of(text: str, read_in: Format | None, context: ParseContext) -> str:
    """Return the name of the format in which a text calls an offered tool; "" if it calls none.

    Of several, it is the one whose sign is first in the text.  read_in: the format that has found no tool call.
    """
    begun = sorted(_begun(text), key=lambda one: _position(text, one[0]))
    return next((name for name, parse in begun if parse is not read_in and calls(text, parse, context)), "")


def likely_formats(text: str, read_in: str, context: ParseContext) -> list[FormatGuess]:
    """Return the formats whose markup a text has.

    Those that read a call of an offered tool come first, and among them those whose sign is first in the text.
    read_in: the name of the format that has found no tool call.
    """
    known = FORMATS.get(read_in)
    others = [(name, parse) for name, parse in _begun(text) if not known or parse is not known.parse]
    guesses = [FormatGuess(name, calls=calls(text, parse, context)) for name, parse in others]
    return sorted(guesses, key=lambda guess: (not guess.calls, _position(text, guess.format)))


def _begun(text: str) -> Iterator[tuple[str, Format]]:
    """Yield the formats in which a text may have the beginning of a tool call."""
    if not may_call(text):
        return
    begun, found = text.lstrip(), [tag for tag in _all_tags() if tag in text]
    for name, parse, first, tags in _with_calls():
        if begun.startswith(first) or not tags.isdisjoint(found):
            yield name, parse


def may_call(text: str) -> bool:
    """Return True if a text has the beginning of a tool call in any format."""
    return bool(_any_tag().search(text)) or text.lstrip().startswith(_all_first())


def calls(text: str, format: Format, context: ParseContext) -> bool:
    """Return True if a text calls an offered tool in a format."""
    return _found(text, format, context).found


def surely_calls(text: str, format: Format, context: ParseContext) -> bool:
    """Return True if a text calls an offered tool, and does not only name it, as a list of tools in JSON does."""
    emit = _found(text, format, context)
    return emit.argued if format is FORMATS["bare_json"].parse else emit.found


def _found(text: str, format: Format, context: ParseContext) -> "_Calls":
    read, emit = TextReader(), _Calls(context)
    parse = FormatParser(read, format(read, emit, alone(context)))
    parse.feed(text)
    parse.close(cut=True)
    return emit


def alone(context: ParseContext) -> ParseContext:
    """Return the context without everything before the text."""
    return replace(context, thought_open=False, in_thought=None, forced=None, prefill="", echoed=False, called=False)


def _position(text: str, format: str) -> int:
    """Return the position of the first sign of a format, or the end of the text."""
    signs = [sign for sign in FORMATS[format].signs if not sign.isalpha()]
    return min((text.find(sign) for sign in signs if sign in text), default=len(text))


def _tags(row: FormatSpec) -> tuple[str, ...]:
    tags = row.parse.call_openings if isinstance(row.parse, Markup) else row.first
    return tuple(tag for tag in tags if len(tag) >= _SHORTEST and tag[0] in "<[]")


@cache
def _with_calls() -> list[tuple[str, Format, tuple[str, ...], frozenset[str]]]:
    """Return the formats that have tool calls: the name, the parser, the first texts and the tags of each."""
    rows = [(name, row) for name, row in FORMATS.items() if name not in _NO_CALLS]
    return [(name, row.parse, row.first, frozenset(_tags(row))) for name, row in rows if row.parse]


@cache
def _all_tags() -> tuple[str, ...]:
    return tuple(dict.fromkeys(tag for row in FORMATS.values() for tag in _tags(row)))


@cache
def _any_tag() -> Markers:
    return Markers(*_all_tags())


@cache
def _all_first() -> tuple[str, ...]:
    return tuple(tag for row in FORMATS.values() for tag in row.first)


class _Calls:
    """A ParserOutput that only remembers that an offered tool was called.

    argued: a call has arguments, perhaps an empty object.
    """

    def __init__(self, context: ParseContext) -> None:
        self._tools, self.found, self.argued = context.tools, False, False

    def tool_start(self, name: str, id: str = "") -> None:
        """Note a call of an offered tool."""
        self.found |= resolve(name, self._tools) in self._tools

    def tool_args(self, json: str) -> None:
        """Note arguments."""
        self.argued |= self.found

    def tool_end(self) -> None:
        """Ignore the end of a tool call."""

    def text(self, text: str) -> None:
        """Ignore the text; also the other outputs."""

    reasoning = incomplete_call = note_dropped = note_unread = thought_end = text
