"""Families of Gemma, whose calls are a dialect of JSON:  call:f{city:<|"|>Paris<|"|>,days:3}<tool_call|>

A string stands between marks and has no escapes.  The parser also accepts variants that models write:

- ordinary quotes, and a stray mark behind them
- text without quotes if the schema wants a string
- a missing second mark of a string, or a missing last brace
- a colon alone before the name
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gateway.formats import lenient_json
from gateway.formats.argument_types import escape_json_string
from gateway.formats.grammars.json_calls import surplus
from gateway.formats.markers import Markers
from gateway.formats.markup import Markup
from gateway.formats.parser import ParseContext, ParserOutput, start_call
from gateway.formats.reader import ReadStep, TextReader, TextSink
from gateway.formats.spec import FormatSpec

_STRUCTURED = ("{", "[", '"', "'")  # beginnings of values that are no plain text
_TEXT = frozenset({"string", "null"})
_MORE, _MAYBE = ("{", ","), ("}", ",")


class GemmaCall(Struct, frozen=True, kw_only=True):
    """The mark around a string, and the tag that ends a call.  An object of this class is a CallParser."""

    mark: str
    end: str

    def __call__(self, read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
        yield from read.accept("call:")
        yield from read.accept(":")
        name = yield from read.read_word()
        more = yield from read.expect("{", self.end)
        start_call(read, emit, name)
        tool = context.tools.get(name, {})
        before = "{"
        while more in _MORE and not (yield from read.accept("}", self.end)):
            if read.ended:
                return ""
            key = yield from lenient_json.read_key(read)
            yield from read.expect(":")
            emit.tool_args(f'{before}"{escape_json_string(key)}": ')
            before = ", "
            more = yield from self._value(read, emit.tool_args, tool, key)
            if not more:
                return ""
        emit.tool_args("{}" if before == "{" else "}")
        emit.tool_end()
        yield from surplus(read)
        return "whole"

    def _value(self, read: TextReader, put: TextSink, tool: Mapping[str, Any], key: str) -> ReadStep:
        """Read one value; return the text that follows it, "" if the text ended first."""
        wanted = lenient_json.bare_types(tool, key)
        if (yield from read.accept(self.mark)):
            mark = yield from self._string(read, put, self.mark, "}")
        elif wanted <= _TEXT and not (yield from read.lookahead(*_STRUCTURED, "null", self.end)):
            follow = tuple(f"{name}:" for name in tool["properties"])
            mark = yield from self._string(read, put, ",", "}", self.end, follow=follow)
        elif (yield from lenient_json.read_value(read, put, wanted)):
            yield from read.accept(self.mark)
            mark = self.mark
        else:
            return ""
        return (yield from read.expect(",", "}", self.end)) if mark == self.mark else mark

    def _string(self, read: TextReader, put: TextSink, *stops: str, follow: tuple[str, ...] = ()) -> ReadStep:
        """Read the inside of a string; return the stop that ended it, "" if the text ended first.

        A brace ends it if the call ends behind the brace, a comma if one of `follow` comes next.  At the end of the
        text, a brace that closes one of the string is a part of it.
        """
        stop, opened = Markers(*stops), 0

        def put_text(text: str) -> None:
            nonlocal opened
            opened += text.count("{") - text.count("}")
            put(escape_json_string(text))

        put('"')
        while (mark := (yield from read.until(stop, put_text))) in _MAYBE:
            read.begin_recording(mark)
            yield from read.peek()
            over = yield from read.lookahead(*(follow if mark == "," else (self.end,)))
            text = read.end_recording()
            if over or (mark == "}" and read.ended and not read.cut and opened <= 0):
                break
            put_text(text)
        if mark:
            put('"')
        return mark


ROWS: Mapping[str, FormatSpec] = {
    "gemma4": FormatSpec(
        parse=Markup(
            thoughts={"<|channel>thought": ("<channel|>",), "<|channel>": ("<channel|>",)},
            calls={"<|tool_call>": GemmaCall(mark='<|"|>', end="<tool_call|>")},
            after=("<tool_call|>", "<|tool_response>"),
        ),
        families="Gemma 4",
        example=(
            "<|channel>thought\nI should look.<channel|>"
            '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:3}<tool_call|>'
        ),
        special=True,
        signs=("<|tool_call>call:", "<tool_call|>"),
        differs=(
            "SGLang makes one of two calls of the same tool.  A string whose second mark is missing ends at a brace "
            "with the end of the call behind it, as in Ollama; so no string can hold these two."
        ),
    ),
    "functiongemma": FormatSpec(
        parse=Markup(
            calls={"<start_function_call>": GemmaCall(mark="<escape>", end="<end_function_call>")},
            after=("<end_function_call>", "<start_function_response>"),
        ),
        families="FunctionGemma",
        example="<start_function_call>call:get_weather{city:<escape>Paris<escape>,days:3}<end_function_call>",
        special=True,
        signs=("<start_function_call>",),
        differs="vLLM loses the last characters before a call if they come with its tag; the gateway loses none.",
    ),
}
