"""The family of MiniMax M3, whose calls have nested elements as arguments, here without its mark before each tag:

    <invoke name="f"> <city>Paris</city> <tags> <item>a</item> <item>b</item> </tags> <at> <x>1</x> </at> </invoke>

The tool's schema tells lists from objects, and the types of all values inside.  Where the schema does not decide,
`item` makes a list.  Several children of one name also make a list, unless the schema gives them another type.  Text
between the children of an object is its `$text`; text between items is an item.  So an object inside an argument is
passed on only when it has ended.  A value's own closing tag may lack the mark, or be missing before another tag.
"""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gateway.formats.argument_types import (
    ANY,
    STRING,
    argument_types,
    escape_json_string,
    nested_schema,
    to_json,
)
from gateway.formats.argument_types import (
    begun as is_begun,
)
from gateway.formats.grammars.tag_parameters import Parameters
from gateway.formats.markers import Markers
from gateway.formats.markup import Markup
from gateway.formats.markup_tags import THINK
from gateway.formats.parser import ParseContext, ParserOutput, start_call
from gateway.formats.reader import ReadStep, TextReader, TextSink
from gateway.formats.spec import FormatSpec
from gateway.formats.text_buffer import Malformed

_SPACE, _INSIDE_TAG = re.compile(r"\s*"), re.compile(r"[^<>\n]*")
_ITEM, _TEXT = "item", "$text"
_INVOKE = "<invoke name="
_OUTER = (_INVOKE, "</invoke>", "<tool_call>", "</tool_call>")  # tags that are no arguments
_EMPTY = {"array": "[]", "object": "{}"}
_DEPTH = 64  # levels of nested elements


class NestedCall(Struct, frozen=True, kw_only=True):
    """Parse calls behind the tag before the name.  An object of this class is a CallParser.

    mark: the mark before each tag.
    """

    mark: str

    def __call__(self, read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
        tag = _INVOKE
        while tag == _INVOKE:
            quote = yield from read.accept('"', "'")
            name = yield from read.read_word()
            yield from read.take_literal(quote)
            yield from read.expect(">")
            start_call(read, emit, name)
            tag = yield from _NestedParser(self.mark, read, emit.tool_args).run(context.tools.get(name, {}))
            if tag:
                emit.tool_end()
                read.begin_recording(self.mark + tag)
        return read.end_recording()


class _NestedParser:
    """Parse the arguments of one call.

    A tag is represented by its name, with a slash if it closes; a tag that is no argument is represented in full.
    """

    def __init__(self, mark: str, read: TextReader, put: TextSink) -> None:
        self._mark, self._read = mark, read
        self._parameters = Parameters(put, read)
        self._put: TextSink = self._parameters.put
        self._tail = ""  # text between elements that may be cut off

    def run(self, tool: Mapping[str, Any]) -> ReadStep:
        """Read the arguments; return the tag that ended them, "" if the text ended first."""
        try:
            tag = yield from self._members(tool)
        except Malformed:
            self._parameters.flush()
            raise
        if tag:
            self._parameters.end()
        self._parameters.flush()
        return tag

    def _members(self, tool: Mapping[str, Any]) -> ReadStep:
        tag = yield from self._next()
        while tag and tag not in _OUTER:
            if tag.startswith("/"):
                tag = yield from self._next()
                continue
            self._parameters.begin(tag)
            tag = yield from self._value(tool, tag, tag, _DEPTH)
        return tag

    def _list(self, tool: Mapping[str, Any], tag: str, depth: int) -> ReadStep:
        """Read all items of a list from this tag on; return the tag that ended it."""
        before = "["
        while tag and tag not in _OUTER and not tag.startswith("/"):
            self._put(before)
            before = ", "
            texts: list[str] = []
            tag = yield from self._value(tool, tag, _ITEM, depth, texts)
            for text in texts:
                self._put(f', "{escape_json_string(text)}"')
        if self._tail:
            self._put(f', "{escape_json_string(self._tail)}')
            self._tail = ""
        if tag:
            self._put("]")
        return tag

    def _object(self, tool: Mapping[str, Any], tag: str, depth: int) -> ReadStep:
        """Read all members of an object from this tag on, held to its end; return the tag that ended it."""
        put, members, texts = self._put, _Members(), list[str]()
        try:
            while tag and tag not in _OUTER and not tag.startswith("/"):
                self._put = members.put(tag, many="array" in argument_types(tool, tag, ANY))
                tag = yield from self._value(tool, tag, tag, depth, texts)
        except Malformed:
            put(members.json())
            raise
        finally:
            self._put = put
        if self._tail:
            members.put(_TEXT, many=False)(f'"{escape_json_string(" ".join((*texts, self._tail)))}')
            self._tail = ""
        elif texts:
            members.put(_TEXT, many=False, first=not tag)(f'"{escape_json_string(" ".join(texts))}"')
        if tag or not self._read.cut:
            put(members.json() + ("}" if tag else ""))
        return tag

    def _value(
        self, tool: Mapping[str, Any], tag: str, key: str, depth: int, texts: list[str] | None = None
    ) -> ReadStep:
        """Read one value behind its tag; return the tag behind its closing tag, or in place of that.

        texts: receives the text before that tag; None if text is not allowed there.
        """
        read = self._read
        wanted = argument_types(tool, key, STRING if depth == _DEPTH else ANY)
        read.begin_recording()
        yield from read.peek()
        following = (yield from self._tag()) if (yield from read.take_literal(self._mark)) else ""
        begun = read.end_recording()
        if read.ended and read.cut:
            return ""
        if following and following not in _OUTER and not following.startswith("/"):
            if depth == 1:
                raise Malformed
            lists, objects = "array" in wanted, "object" in wanted
            listed = following == _ITEM if lists == objects else lists
            end = yield from (self._list if listed else self._object)(nested_schema(tool, key), following, depth - 1)
        else:
            end = yield from self._leaf(tag, begun, following, wanted)
        return (yield from self._next(texts)) if end == f"/{tag}" else end

    def _leaf(self, tag: str, begun: str, end: str, wanted: frozenset[str]) -> ReadStep:
        """Read text whose beginning was taken, up to the tag that ends it; return that tag.

        end: the tag, if it was already read.
        """
        put = self._put
        begun = begun.partition(self._mark)[0] if end else begun
        if wanted == STRING:
            put(f'"{escape_json_string(begun)}')
            end = end or (yield from self._text(tag, lambda text: put(escape_json_string(text))))
            if end:
                put('"')
            return end
        pieces = [begun]
        end = end or (yield from self._text(tag, pieces.append))
        text = "".join(pieces)
        if not end:
            put("" if self._read.cut else is_begun(text))
        else:
            empty = "" if text.strip() or "string" in wanted else "".join(_EMPTY.get(kind, "") for kind in wanted)
            put(empty if len(empty) == len("[]") else to_json(text, wanted))
        return end

    def _text(self, tag: str, put: TextSink) -> ReadStep:
        """Read the text of a value; return the tag that ended it, "" if the text ended first."""
        read = self._read
        stops = Markers(self._mark, f"</{tag}>")
        while mark := (yield from read.until(stops, put)):
            read.begin_recording(mark)
            if mark == self._mark:
                end = yield from self._tag()
            else:
                yield from read.peek()
                end = f"/{tag}" if (yield from read.lookahead(self._mark)) or read.ended else ""
            text = read.end_recording()
            if end or (read.ended and read.cut):
                return end
            put(text)
        return ""

    def _next(self, texts: list[str] | None = None) -> ReadStep:
        """Return the next tag, "" if the text ended first.

        texts: receives text before the tag.  Without it, such text raises Malformed.
        """
        read, text = self._read, list[str]()
        if texts is None:
            tag = (yield from self._tag()) if (yield from read.accept(self._mark)) else ""
            if not tag and not read.ended:
                raise Malformed
            return tag
        tag, marks = "", Markers(self._mark)
        while not tag and (yield from read.until(marks, text.append)):
            read.begin_recording(self._mark)
            tag = yield from self._tag()
            taken = read.end_recording()
            text.append("" if tag else taken)
        kept = "".join(text).strip()
        if not read.ended or tag:
            texts += [kept] if kept else []
        elif not read.cut:
            self._tail = kept
        return tag

    def _tag(self) -> ReadStep:
        """Return the tag behind a mark, "" for any other text."""
        if outer := (yield from self._read.accept(*_OUTER)):
            return outer
        if not (yield from self._read.accept("<")):
            return ""
        name = yield from self._read.run(_INSIDE_TAG)
        return name.strip() if (yield from self._read.take_literal(">")) else ""


class _Members:
    """The members of an object, each with its values as JSON."""

    def __init__(self) -> None:
        self._values: dict[str, list[list[str]]] = {}

    def put(self, key: str, *, many: bool, first: bool = False) -> TextSink:
        """Begin a value, and return the sink for it.

        many: several values of one key become a list; else the last one counts.
        first: the value goes before all others, as the last of these may be cut off.
        """
        if first:
            self._values = {key: [], **self._values}
        values = self._values.setdefault(key, [])
        if not many:
            values.clear()
        values.append([])
        return values[-1].append

    def json(self) -> str:
        """Return the JSON so far, without the closing brace."""
        return "{" + ", ".join(f'"{escape_json_string(key)}": {_one(values)}' for key, values in self._values.items())


def _one(values: list[list[str]]) -> str:
    texts = ["".join(value) for value in values]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


_M3 = "]<]minimax[>["

ROWS: Mapping[str, FormatSpec] = {
    "minimax_m3": FormatSpec(
        parse=Markup(
            thoughts={"<mm:think>": ("</mm:think>",), **THINK},
            calls={f"{_M3}<invoke name=": NestedCall(mark=_M3)},
            before=(f"{_M3}<tool_call>", "<tool_call>"),
            after=(f"{_M3}</invoke>", f"{_M3}</tool_call>"),
        ),
        families="MiniMax M3",
        aliases=("minimax-m3",),
        example=(
            f"<mm:think>I should look.</mm:think>{_M3}<tool_call>\n"
            f'{_M3}<invoke name="get_weather">{_M3}<city>Paris{_M3}</city>{_M3}<days>3{_M3}</days>{_M3}</invoke>\n'
            f"{_M3}</tool_call>"
        ),
        special=True,
        signs=(_M3, "<tool_call>"),
        differs="vLLM passes a call on when it is complete; the gateway streams its strings.",
    ),
}
