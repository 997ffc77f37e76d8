"""Parse a call as a block of JSON between code fences at the beginning of a response, as small models write it.

The block of a tool that has to be called may hold its arguments alone.
"""

import re

from gateway.formats.grammars.bare_json import CALLS, named
from gateway.formats.grammars.json_calls import FENCE
from gateway.formats.parser import ParseContext, ParserOutput
from gateway.formats.reader import ReadStep, TextReader
from gateway.formats.text_buffer import Malformed

_LANGUAGE = re.compile(r"\w*")
_LANGUAGES = {"", "json", "JSON", "tool_call", "tool_calls"}
_LIMIT = 64 << 10  # characters of a block that are held until it ends


class _Block:
    """A ParserOutput that holds the events of a block until the block has ended.

    A block that is too long, or has text, raises Malformed.
    """

    def __init__(self, read: TextReader) -> None:
        self._read, self.long = read, False
        self._found: list[tuple[str, tuple[str, ...]]] = []

    def replay(self, emit: ParserOutput) -> None:
        """Pass on the held events."""
        for method, arguments in self._found:
            getattr(emit, method)(*arguments)

    def tool_start(self, name: str, id: str = "") -> None:
        """Hold the beginning of a call."""
        self._add("tool_start", name, id)

    def tool_args(self, json: str) -> None:
        """Hold a piece of arguments."""
        self._add("tool_args", json)

    def tool_end(self) -> None:
        """Hold the end of a call."""
        self._add("tool_end")

    def note_dropped(self, what: str) -> None:
        """Hold a warning about dropped text."""
        self._add("note_dropped", what)

    def text(self, text: str) -> None:
        """Raise Malformed, as a block of calls has no text."""
        raise Malformed

    reasoning = incomplete_call = unread = thought_end = text

    def _add(self, method: str, *arguments: str) -> None:
        self._found.append((method, arguments))
        self.long = self._read.keeping > _LIMIT
        if self.long:
            raise Malformed


def opening(read: TextReader) -> ReadStep:
    """Take a fence, its language and the white space around them."""
    read.begin_recording()
    yield from read.accept(FENCE)
    yield from read.run(_LANGUAGE)
    yield from read.peek()
    return read.end_recording()


def block(read: TextReader, emit: ParserOutput, context: ParseContext, opening: str) -> ReadStep:
    """Read a block whose opening was taken; return "" if it was text."""
    read.keep(opening)
    found = _Block(read)
    try:
        whole = (yield from _calls(read, found, context)) if opening.strip().removeprefix(FENCE) in _LANGUAGES else ""
    except Malformed:
        whole = ""
    read.end_recording()
    text = read.kept()
    if whole:
        found.replay(emit)
    else:
        (emit.incomplete_call if read.ended and read.cut else emit.text)(text)
    if found.long:  # the end of the block is unknown
        yield from read.rest(emit.text)
    return whole


def _calls(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
    read.begin_recording()
    bracket = yield from read.expect("{", "[")
    yield from (named(bracket) if context.forced is None else CALLS[bracket])(read, emit, context)
    closed = yield from read.accept(FENCE)
    return closed or ("whole" if read.ended and not read.cut else "")
