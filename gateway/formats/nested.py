"""Calls whose arguments are elements inside elements, as MiniMax M3 writes them; its mark before each tag is left out:

    <invoke name="f"> <city>Paris</city> <tags> <item>a</item> <item>b</item> </tags> <at> <x>1</x> </at> </invoke>

The tool's schema tells lists from objects, and the types of all that is inside; where it does not, `item` makes a list.
A value's own closing tag may lack the mark or be missing where another tag follows.
"""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gateway.formats.format import Context, Emit, start
from gateway.formats.markers import Markers
from gateway.formats.reader import Malformed, Reader, Sink, Step
from gateway.formats.schema import ANY, STRING, inside, kinds, quoted, typed

_SPACE, _INSIDE_TAG = re.compile(r"\s*"), re.compile(r"[^<>\n]*")
_ITEM = "item"
_INVOKE = "<invoke name="
_OUTER = (_INVOKE, "</invoke>", "<tool_call>", "</tool_call>")  # no argument has these
_EMPTY = {"array": "[]", "object": "{}"}
_DEPTH = 64  # of elements inside elements


class Nested(Struct, frozen=True, kw_only=True):
    """What stands before each tag.  An object of this class is a Call, read on from behind the tag before the name."""

    mark: str

    def __call__(self, read: Reader, emit: Emit, context: Context) -> Step:
        tag = _INVOKE
        while tag == _INVOKE:
            quote = yield from read.accept('"', "'")
            name = yield from read.word()
            yield from read.literal(quote)
            yield from read.expect(">")
            start(read, emit, name)
            tag = yield from _Nested(self.mark, read, emit.tool_args).run(context.tools.get(name, {}))
            if tag:
                emit.tool_end()
                read.record(self.mark + tag)
        return read.recorded()


class _Nested:
    """The arguments of one call.

    A tag is known by its name, with a slash if it closes; one that no argument has is known whole.
    """

    def __init__(self, mark: str, read: Reader, put: Sink) -> None:
        self._mark, self._read, self._put = mark, read, put

    def run(self, tool: Mapping[str, Any]) -> Step:
        """Read them; return the tag that ended them, "" if the text ended first."""
        tag = yield from self._next()
        return (yield from self._inside(tool, tag, listed=False, depth=_DEPTH))

    def _inside(self, tool: Mapping[str, Any], tag: str, *, listed: bool, depth: int) -> Step:
        """All elements of a container from this tag on; return the tag that ended it."""
        before, close = "[]" if listed else "{}"
        while tag and tag not in _OUTER:
            if not tag.startswith("/"):
                self._put(before if listed else f'{before}"{quoted(tag)}": ')
                before = ", "
                tag = yield from self._value(tool, tag, _ITEM if listed else tag, depth)
            elif depth == _DEPTH:
                tag = yield from self._next()
            else:
                break
        if tag:
            self._put(close if before == ", " else before + close)
        return tag

    def _value(self, tool: Mapping[str, Any], tag: str, key: str, depth: int) -> Step:
        """One value, behind its tag; return the tag that follows its closing one, or that stands in place of that."""
        read = self._read
        wanted = kinds(tool, key, STRING if depth == _DEPTH else ANY)
        read.record()
        yield from read.peek()
        following = (yield from self._tag()) if (yield from read.literal(self._mark)) else ""
        begun = read.recorded()
        if read.ended and read.cut:
            return ""
        if following and following not in _OUTER and not following.startswith("/"):
            if depth == 1:
                raise Malformed
            lists, objects = "array" in wanted, "object" in wanted
            listed = following == _ITEM if lists == objects else lists
            end = yield from self._inside(inside(tool, key), following, listed=listed, depth=depth - 1)
        else:
            end = yield from self._leaf(tag, begun, following, wanted)
        return (yield from self._next()) if end == f"/{tag}" else end

    def _leaf(self, tag: str, begun: str, end: str, wanted: frozenset[str]) -> Step:
        """Text that began so, and perhaps has ended with a tag; return the tag that ended it."""
        put = self._put
        begun = begun.partition(self._mark)[0] if end else begun
        if wanted == STRING:
            put(f'"{quoted(begun)}')
            end = end or (yield from self._text(tag, lambda text: put(quoted(text))))
            if end:
                put('"')
            return end
        pieces = [begun]
        end = end or (yield from self._text(tag, pieces.append))
        if end or not self._read.cut:
            text = "".join(pieces)
            empty = "" if text.strip() or "string" in wanted else "".join(_EMPTY.get(kind, "") for kind in wanted)
            put(empty if len(empty) == len("[]") else typed(text, wanted))
        return end

    def _text(self, tag: str, put: Sink) -> Step:
        """The text of a value; return the tag that ended it, "" if the text ended first."""
        read = self._read
        stops = Markers(self._mark, f"</{tag}>")
        while mark := (yield from read.until(stops, put)):
            read.record(mark)
            if mark == self._mark:
                end = yield from self._tag()
            else:
                yield from read.peek()
                end = f"/{tag}" if (yield from read.ahead(self._mark)) or read.ended else ""
            text = read.recorded()
            if end or (read.ended and read.cut):
                return end
            put(text)
        return ""

    def _next(self) -> Step:
        """The tag that comes next, "" if the text ended first, else Malformed."""
        tag = (yield from self._tag()) if (yield from self._read.accept(self._mark)) else ""
        if not tag and not self._read.ended:
            raise Malformed
        return tag

    def _tag(self) -> Step:
        """The tag behind a mark, "" if there is none."""
        if outer := (yield from self._read.accept(*_OUTER)):
            return outer
        if not (yield from self._read.accept("<")):
            return ""
        name = yield from self._read.run(_INSIDE_TAG)
        return name.strip() if (yield from self._read.literal(">")) else ""
