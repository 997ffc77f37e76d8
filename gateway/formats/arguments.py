"""Convert the arguments of a tool call, as models write them, to JSON that fits the tool's schema, piece by piece.

JSON that fits passes byte for byte.  These faults are repaired:

- characters that JSON does not allow in a string
- the words, quotes and numbers of Python and JavaScript
- keys and values without quotes
- a comma before a closing bracket, doubled braces, an empty object before the actual one
- a JSON string or a code fence around the object
- parameters in tags

A value of another type than the schema's is converted if exactly one reading of it fits.  Numbers, words and values
that may be converted are held back until they are complete; all other text passes at once.

A value that the end of the text cut off stays incomplete.  Text that cannot be repaired raises Malformed, after all
text before it has been passed on.
"""

import re

from gateway.formats import lenient_json
from gateway.formats.argument_types import STRING, escape_json_string
from gateway.formats.argument_values import MAX_DEPTH, ValueWriter, from_text
from gateway.formats.markers import Markers
from gateway.formats.parser import FormatParser
from gateway.formats.reader import SPACE, ReadStep, TextReader, TextSink
from gateway.formats.schema_types import Shape
from gateway.formats.text_buffer import Malformed

_FENCE, _FENCE_HEAD = "```", re.compile(r"\w*\s*")
_ENCODED = ("{", _FENCE, "<parameter", "null", "None", " ", "\\n", "\\r", "\\t")  # begin a string with arguments
TRAILING = " \t\r\n}]`"  # characters behind the object that are ignored
_TAG, _TAG_HEAD, _VALUE_END = "<parameter", re.compile(r"[^<>]*"), Markers("</parameter>")
_TAG_KEY = re.compile(r"""(?:\s+name\s*)?=\s*["']?([^"']*)["']?\s*""")


def whole(read: TextReader, put: TextSink, shape: Shape) -> ReadStep:
    """Pass on all arguments as one object; return "" if the text ended first.

    Raises Malformed for text that cannot be repaired.
    """
    gap: list[str] = []
    read.nesting = 0
    first = yield from read.space(gap.append)
    if first in ('"', "'") and (yield from read.lookahead(*(first + begun for begun in (first, *_ENCODED)))):
        read.was_repaired = True
        return (yield from encoded(read, put, shape))
    if first == "`" and (yield from read.take_literal(_FENCE)):
        read.was_repaired = True
        yield from read.run(_FENCE_HEAD)
        end = yield from whole(read, put, shape)
        yield from read.accept(_FENCE)
        return end
    if first == "<" and (yield from read.lookahead(_TAG)):
        read.was_repaired = True
        return (yield from _tags(read, put, shape))
    put("".join(gap))
    if (yield from read.take_literal("null", "None")):
        put("{}")
        return "whole"
    writer = ValueWriter(read, put)
    begun = (yield from writer.opening()) if first == "{" else ""
    if first == "{" and not begun:
        return "whole"
    return (yield from writer.members(shape, MAX_DEPTH, begun) if begun else writer.value(shape, MAX_DEPTH))


def encoded(read: TextReader, put: TextSink, shape: Shape) -> ReadStep:
    """Pass on the object that a string holds; return "" if the text ended first."""
    inner = Arguments(put, shape)
    if (yield from read.take_literal('"')):
        end = yield from read.read_characters(inner.feed)
    else:
        end = yield from lenient_json.read_string_into(read, inner.feed)
    inner.close(cut=read.cut)
    read.was_repaired |= inner.repaired
    if inner.rest.strip(TRAILING):
        put(inner.rest)
    return end


class Arguments:
    """Convert the arguments of one call, in a text that holds nothing else.

    JSON goes to `put`.  Text that cannot be repaired goes there unchanged.

    over: the object has ended.
    rest: the text behind the object.
    """

    def __init__(self, put: TextSink, shape: Shape) -> None:
        self._put, self._read = put, TextReader()
        self._parse = FormatParser(self._read, whole(self._read, put, shape))
        self._malformed = self.over = False
        self.rest = ""

    @property
    def complete(self) -> bool:
        """Return True if the object has ended and the text could be read."""
        return self.over and not self._malformed

    @property
    def repaired(self) -> bool:
        """Return True if the JSON differs from the text."""
        return self._read.was_repaired

    def passes(self, text: str) -> bool:
        """Take text that `put` would get unchanged, and return True; the caller then passes it on itself.

        Any other text is not taken.
        """
        passage = self._parse.passage
        if passage and passage.output is self._put and passage.fits(text):
            self._read.pass_through(text)
            return True
        return False

    def feed(self, text: str) -> None:
        """Convert more text."""
        if self._malformed:
            self._put(text)
            return
        try:
            self._parse.feed(text)
        except Malformed:
            self._spoil()
        if self._parse.done:
            self._end()

    def close(self, cut: bool = False) -> None:
        """Convert the text that was held back.  `cut`: the model did not end the text itself."""
        if self._malformed or self.over:
            return
        try:
            self._parse.close(cut)
        except Malformed:
            self._spoil()
        self._end()

    def _spoil(self) -> None:
        """Pass on the remaining text unchanged."""
        self._malformed = True
        self._put(self._read.left())

    def _end(self) -> None:
        self.over = True
        self.rest += self._read.left()


def _tags(read: TextReader, put: TextSink, shape: Shape) -> ReadStep:
    """Pass on arguments in tags, one tag per parameter; the last value of a parameter counts."""
    members: dict[str, str] = {}
    came: list[str] = []
    while (yield from read.take_literal(_TAG)):
        head = yield from read.run(_TAG_HEAD)
        found = _TAG_KEY.fullmatch(head)
        pieces: list[str] = []
        opened = yield from read.take_literal(">")
        closed = opened and (yield from read.until(_VALUE_END, pieces.append))
        came += (_TAG, head, opened, *pieces, closed)
        if not (found and closed):
            put("".join(came))
            raise Malformed
        value = shape.member(found[1])
        members[found[1]] = from_text("".join(pieces).strip(), value.types or STRING, value)
        came.append((yield from read.run(SPACE)))
    put("{" + ", ".join([f'"{escape_json_string(key)}": {value}' for key, value in members.items()]) + "}")
    return "whole"
