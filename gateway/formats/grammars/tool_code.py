"""Parse calls in a code block of the language tool_code, as Gemini and Gemma write them in text:

    ```tool_code
    print(default_api.get_weather(city="Paris"))
    ```

A call may stand alone, in a list or in print(…), with or without the prefix.  The block is calls only if all of it is
calls of offered tools, because other code may use their results.
"""

import re
from collections.abc import Iterable

from gateway.formats.grammars import pythonic
from gateway.formats.grammars.json_calls import FENCE
from gateway.formats.parser import ParseContext, ParserOutput, start_call
from gateway.formats.reader import ReadStep, TextReader
from gateway.formats.text_buffer import Malformed
from gateway.formats.tool_names import resolve

_OPENING = f"{FENCE}tool_code"
_PREFIX, _PARTS = re.compile(r"\Adefault_api[.:]"), re.compile("[.:]")
_DEPTH = 3  # lists and print(…) inside each other


def opens(text: str) -> bool:
    """Return True if a text ends with the opening of such a block."""
    return text.rstrip().endswith(_OPENING)


def block(read: TextReader, emit: ParserOutput, context: ParseContext, own: Iterable[str]) -> ReadStep:
    """Read a block whose opening is recorded, to its closing fence; return "" if it begins no such calls.

    own: the tags of the format, which parses what is behind them by itself.

    Raises Malformed if something else than calls of offered tools is inside.
    """
    first = (yield from read.peek()) if opens(read.recorded) else ""
    if not (first.isalpha() or first in ("_", "[")) or (yield from read.lookahead(*own)):
        return ""
    calls = _Calls(read, emit, context)
    try:
        yield from calls.items(FENCE, _DEPTH)
    except Malformed:
        if not (calls.begun and read.ended and read.cut):
            raise
        emit.incomplete_call(read.end_recording())
        return "cut"
    for name, arguments in calls.found:
        start_call(read, emit, name)
        emit.tool_args(arguments)
        emit.tool_end()
    return "whole"


class _Calls:
    """Read calls, while the TextReader records.

    found: the names and arguments of the calls so far.
    begun: the name of an offered tool was read.
    """

    def __init__(self, read: TextReader, emit: ParserOutput, context: ParseContext) -> None:
        self.found: list[tuple[str, str]] = []
        self.begun = False
        self._read, self._emit, self._tools = read, emit, context.tools

    def items(self, close: str, depth: int) -> ReadStep:
        """Read calls up to the text that closes them; the end of the text closes the block as well."""
        read = self._read
        while not (yield from read.accept(close)):
            if read.ended and close == FENCE and not read.cut:
                break
            if not depth:
                raise Malformed
            yield from self._item(depth - 1)
            yield from read.accept(",", ";")
        if not self.found:
            raise Malformed
        return "whole"

    def _item(self, depth: int) -> ReadStep:
        """Read one call, or calls in a list or in print(…)."""
        read = self._read
        if (yield from read.accept("[")):
            return (yield from self.items("]", depth))
        word = yield from read.read_word()
        yield from read.expect("(")
        if word == "print" and word not in self._tools:
            return (yield from self.items(")", depth))
        return (yield from self._call(word))

    def _call(self, word: str) -> ReadStep:
        name = word if word in self._tools else _PREFIX.sub("", word)
        tool = self._tools.get(resolve(name, self._tools))
        if tool is None or (name not in self._tools and _PARTS.search(name)):
            raise Malformed
        self.begun = True
        pieces: list[str] = []
        try:
            whole = yield from pythonic.read_arguments(self._read, pieces.append, tool)
        except Malformed:
            self._emit.unread("pythonic")
            raise
        if not whole:
            raise Malformed
        self.found.append((name, "".join(pieces)))
        return whole
