"""Parse calls whose name stands in a header before their JSON:

    f[ARGS]{…}
    functions.f:0<|tool_call_argument_begin|>{…}
    function<｜tool▁sep｜>f ```json {…} ```

Some headers also hold the id of the call.
"""

import re
from collections.abc import Callable, Generator

from msgspec import Struct

from gateway.formats.grammars.json_calls import read_arguments, surplus
from gateway.formats.parser import ParseContext, ParserOutput, start_call
from gateway.formats.plain_text import PassThrough
from gateway.formats.reader import ReadStep, TextReader
from gateway.formats.text_buffer import Malformed

_FENCE, _KIND = "```", re.compile(r"\w*")
_FIRST = ("{", '"', "'", "null", "None")  # beginnings of arguments


def _as_it_is(header: str) -> tuple[str, str]:
    return header, ""


class HeadedCall(Struct, frozen=True, kw_only=True):
    """The tags of such a call, whose first one was taken.  An object of this class is a CallParser.

    begins: tags that may stand before the header, several of them, also repeated.
    kind: a header that is no name; the name follows behind the separator.
    id_mark: the tag before an id behind the name.
    separators: tags between the header and the arguments; if `bare` is set, a brace alone also separates them.
    prelude: tags that may stand before the arguments with a word for their language; a code fence may always do so.
    ends: closing tags.  One in place of the header means that there is no call; one in place of the arguments means
        that the call has none.
    parts: split a header into name and id.
    """

    begins: tuple[str, ...] = ()
    kind: str = ""
    id_mark: str = ""
    separators: tuple[str, ...]
    bare: bool = False
    prelude: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    parts: Callable[[str], tuple[str, str]] = _as_it_is

    def __call__(self, read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
        yield from _skip(read, self.begins)
        if (yield from _skip(read, self.ends)):
            return read.end_recording()
        name, id, empty = yield from self._header(read)
        before = ""
        while not empty and (mark := (yield from read.accept(*self.prelude, _FENCE))):
            before = mark
            yield from read.run(_KIND)
        empty = empty or (yield from _skip(read, self.ends))
        if empty:
            start_call(read, emit, name, id)
            emit.tool_args("{}")
            emit.tool_end()
            return empty
        yield from read.peek()
        if not (yield from read.lookahead(*_FIRST)) and not read.ended:
            raise Malformed
        start_call(read, emit, name, id)
        if not (yield from read_arguments(read, emit.tool_args, context.shape(name))):
            return ""
        emit.tool_end()
        yield from surplus(read)
        if before == _FENCE:
            yield from read.accept(_FENCE)
        return "whole"

    def _header(self, read: TextReader) -> Generator[PassThrough | None, None, tuple[str, str, str]]:
        """Read the name, the id, and a closing tag in place of a separator."""
        yield from read.peek()
        header = yield from read.read_word()
        marks = (*self.separators, *self.ends, *((self.id_mark,) if self.id_mark else ()))
        mark = yield from read.accept(*marks)
        if self.kind and header == self.kind and mark in self.separators:
            yield from read.peek()
            header = yield from read.read_word()
            if not (yield from read.peek()):
                raise Malformed  # the name may be incomplete
        name, id = self.parts(header)
        if self.id_mark and mark == self.id_mark:
            id = yield from read.read_word()
            mark = yield from read.accept(*self.separators, *self.ends)
        if not mark and not (self.bare and (yield from read.peek()) == "{"):
            raise Malformed
        return name, id, mark if mark in self.ends else ""


def _skip(read: TextReader, tags: tuple[str, ...]) -> ReadStep:
    """Take all of these tags that come next; return the last."""
    last = ""
    while tags and (found := (yield from read.accept(*tags))):
        last = found
    return last
