"""Parse calls in a code block: JSON at the beginning of a response, as small models write it; or tool_code.

JSON may also stand without a fence, if it is all of the response.
The block of JSON of a tool that has to be called may hold its arguments alone.  Gemini and Gemma write tool_code:

    ```tool_code
    print(default_api.get_weather(city="Paris"))
    ```

There a call may stand alone, in a list or in print(…), with or without the prefix.  The block is calls only if all of
it is calls of offered tools, because other code may use their results.
"""

import re
from collections.abc import Iterable

from gateway.formats.grammars import pythonic
from gateway.formats.grammars.bare_json import CALLS, named
from gateway.formats.grammars.json_calls import FENCE
from gateway.formats.parser import ParseContext, ParserOutput, start_call
from gateway.formats.reader import ReadStep, TextReader
from gateway.formats.text_buffer import Malformed
from gateway.formats.tool_names import resolve

_LANGUAGE = re.compile(r"\w*")
_LANGUAGES = {"", "json", "JSON", "tool_call", "tool_calls"}
_LIMIT = 64 << 10  # characters of a block that are held until it ends
_OPENING = f"{FENCE}tool_code"
_PREFIX, _PARTS = re.compile(r"\Adefault_api[.:]"), re.compile("[.:]")
_DEPTH = 3  # lists and print(…) inside each other


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

    reasoning = incomplete_call = note_unread = thought_end = text

    def _add(self, method: str, *arguments: str) -> None:
        self._found.append((method, arguments))
        self.long = self._read.kept_size > _LIMIT
        if self.long:
            raise Malformed


def opening(read: TextReader) -> ReadStep:
    """Take a fence, its language and the white space around them; only the white space if there is no fence."""
    read.begin_recording()
    yield from read.accept(FENCE)
    yield from read.run(_LANGUAGE)
    yield from read.peek()
    return read.end_recording()


def json_block(read: TextReader, emit: ParserOutput, context: ParseContext, opening: str) -> ReadStep:
    """Read a block whose opening was taken; return "" if it was text.

    Without a fence, JSON is a call only if it has arguments and nothing else follows, and what the token limit left
    of it is text.
    """
    read.begin_keeping(opening)
    found, language = _Block(read), opening.strip()
    fence = FENCE if language else ""
    try:
        known = language.removeprefix(FENCE) in _LANGUAGES
        whole = (yield from _calls(read, found, context, fence)) if known else ""
    except Malformed:
        whole = ""
    read.end_recording()
    text = read.end_keeping()
    if whole:
        found.replay(emit)
    elif fence and read.ended and read.cut:
        emit.incomplete_call(text)
    else:
        emit.text(text + read.restore())
    if found.long:  # the end of the block is unknown
        yield from read.rest(emit.text)
    return whole


def _calls(read: TextReader, emit: ParserOutput, context: ParseContext, fence: str) -> ReadStep:
    read.begin_recording()
    bracket = yield from read.expect("{", "[")
    parse = named(bracket, argued=not fence) if context.forced is None else CALLS[bracket]
    yield from parse(read, emit, context)
    closed = (yield from read.accept(fence)) if fence else ""
    yield from read.peek()
    return closed or ("whole" if read.ended and not read.cut else "")


def opens_tool_code(text: str) -> bool:
    """Return True if a text ends with the opening of such a block."""
    return text.rstrip().endswith(_OPENING)


def tool_code_block(read: TextReader, emit: ParserOutput, context: ParseContext, own: Iterable[str]) -> ReadStep:
    """Read a block whose opening is recorded, to its closing fence; return "" if it begins no such calls.

    own: the tags of the format, which parses what is behind them by itself.

    Raises Malformed if something else than calls of offered tools is inside.
    """
    first = (yield from read.peek()) if opens_tool_code(read.recorded) else ""
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
            self._emit.note_unread("pythonic")
            raise
        if not whole:
            raise Malformed
        self.found.append((name, "".join(pieces)))
        return whole
