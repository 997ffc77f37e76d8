"""Look in a finished text for tool calls in another format than the one that the text was read in."""

from functools import cache

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


def format_of(text: str, read_in: Format | None, context: ParseContext) -> str:
    """Return the name of the format in which a text calls an offered tool; "" if it calls none.

    read_in: the format that has found no tool call.
    """
    if not may_call(text):
        return ""
    begun = text.lstrip()
    for name, row in FORMATS.items():
        if name in _NO_CALLS or not row.parse or row.parse is read_in:
            continue
        begins = begun.startswith(row.first) or any(tag in text for tag in _tags(row))
        if begins and calls(text, row.parse, context):
            return name
    return ""


def may_call(text: str) -> bool:
    """Return True if a text has the beginning of a tool call in any format."""
    return bool(_all_tags().search(text)) or text.lstrip().startswith(_all_first())


def calls(text: str, format: Format, context: ParseContext) -> bool:
    """Return True if a text calls an offered tool in a format."""
    read, emit = TextReader(), _Calls(context)
    parse = FormatParser(read, format(read, emit, alone(context)))
    parse.feed(text)
    parse.close(cut=True)
    return emit.found


def alone(context: ParseContext) -> ParseContext:
    """Return the context without everything before the text."""
    return replace(context, thought_open=False, in_thought=None, forced=None, prefill="", echoed=False)


def _tags(row: FormatSpec) -> tuple[str, ...]:
    tags = row.parse.call_openings if isinstance(row.parse, Markup) else row.first
    return tuple(tag for tag in tags if len(tag) >= _SHORTEST and tag[0] in "<[]")


@cache
def _all_tags() -> Markers:
    return Markers(*dict.fromkeys(tag for row in FORMATS.values() for tag in _tags(row)))


@cache
def _all_first() -> tuple[str, ...]:
    return tuple(tag for row in FORMATS.values() for tag in row.first)


class _Calls:
    """A ParserOutput that only remembers that an offered tool was called."""

    def __init__(self, context: ParseContext) -> None:
        self._tools, self.found = context.tools, False

    def tool_start(self, name: str, id: str = "") -> None:
        """Note a call of an offered tool."""
        self.found |= resolve(name, self._tools) in self._tools

    def tool_end(self) -> None:
        """Ignore the end of a tool call."""

    def text(self, text: str) -> None:
        """Ignore the text; also the other outputs."""

    reasoning = tool_args = incomplete_call = note_dropped = unread = thought_end = text
