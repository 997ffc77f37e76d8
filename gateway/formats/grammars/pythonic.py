"""Parse calls as Python writes them, one, or several in a list or in sequence:  [f(city="Paris"), g(n=3, opt=None)]

Values are literals of Python or JSON.  Positional arguments take the names of the tool's parameters in their order;
further ones are numbered.  A call begins when all of it was read, as half of an expression may mean something else.
A call with a value that is no literal is text.

Behind <|python_tag|>, Llama writes a call as JSON, a call of a tool from its training, or code:

    {"name": "f", "parameters": {…}}      brave_search.call(query="…")      print(1)
"""

import re
from collections.abc import Iterator, Mapping
from itertools import chain, count
from typing import Any

from msgspec import Struct

from gateway.formats import python_literals
from gateway.formats.argument_types import ANY, argument_types, escape_json_string
from gateway.formats.grammars import json_calls
from gateway.formats.parser import CallParser, ParseContext, ParserOutput, emit_as_text, start_call
from gateway.formats.reader import ReadStep, TextReader, TextSink
from gateway.formats.string_ends import Nesting
from gateway.formats.text_buffer import Malformed

_FENCE = "```"
_KEY, _SPACE = re.compile(r"\w*"), re.compile(r"\s*")
TAG = "<|python_tag|>"
_OWN = ("brave_search", "wolfram_alpha")
_CODE = ("code_interpreter", "python")


class Pythonic(Struct, frozen=True):
    """Parse such calls behind a tag or a bracket.

    format: the name of the format, for the warning about a call that cannot be parsed.
    """

    format: str

    def tagged(self, read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
        """Read calls of any name between tags; an empty list holds no calls."""
        fence = yield from read.accept(_FENCE)
        if fence:
            yield from read.run(_KEY)
        listed = yield from read.accept("[")
        if listed and (yield from read.accept("]")):
            read.end_recording()
        else:
            yield from self._several(read, emit, context, listed=bool(listed))
        return (yield from read.accept(fence)) if fence else ""

    def named(self, read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
        """Read a list of calls whose bracket was taken.

        Raises Malformed unless the first call names an offered tool.
        """
        yield from read.peek()
        if not (yield from read.lookahead(*map("{}(".format, context.tools))):
            raise Malformed
        return (yield from self._several(read, emit, context, listed=True))

    def arguments(self, read: TextReader, emit: ParserOutput, context: ParseContext, name: str) -> ReadStep:
        """Read the arguments of a call behind its bracket, then begin the call; return "" if the text ended first."""
        pieces: list[str] = []
        try:
            whole = yield from _arguments(read, pieces.append, context.tools.get(name, {}))
        except Malformed:
            emit.unread(self.format)
            begun = read.end_recording()
            read.begin_recording(begun)
            yield from Nesting(begun).leave(read, _ignore)
            raise
        start_call(read, emit, name)
        text = "".join(pieces)
        if not (whole or read.cut):
            text = text.removesuffix('"')  # the string may be incomplete
        emit.tool_args(text)
        if whole:
            emit.tool_end()
        return whole

    def _several(self, read: TextReader, emit: ParserOutput, context: ParseContext, *, listed: bool) -> ReadStep:
        yield from self._one(read, emit, context)
        try:
            while not read.ended:
                read.begin_recording()
                parted = yield from read.accept(",", ";")
                following = yield from read.peek()
                if following.isalpha() or following == "_":
                    yield from self._one(read, emit, context)
                    continue
                ended = listed and (yield from read.accept("]"))
                if parted and not ended:
                    raise Malformed
                read.end_recording()
                break
        except Malformed:
            emit_as_text(read, emit, emit.text)
            if space := (yield from read.run(_SPACE)):
                emit.text(space)  # the white space belongs to that text, not to a tag
        return ""

    def _one(self, read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
        """Read one call; return "" if the text ended before the call did."""
        yield from read.peek()
        name = yield from read.read_word()
        if not (yield from read.take_literal("(")):
            raise Malformed
        return (yield from self.arguments(read, emit, context, name))


def _arguments(read: TextReader, put: TextSink, tool: Mapping[str, Any]) -> ReadStep:
    """Read all arguments as an object; return "" if the text ended first.  Raises Malformed."""
    properties = tool.get("properties")
    places = chain(properties if isinstance(properties, Mapping) else (), map("argument_{}".format, count(1)))
    before, more = "{", ","
    while more == "," and not (yield from read.accept(")")):
        if read.ended:
            return ""
        more = yield from _argument(read, put, before, tool, places)
        before = ", "
    if more:
        put("{}" if before == "{" else "}")
    return more


def _argument(read: TextReader, put: TextSink, before: str, tool: Mapping[str, Any], places: Iterator[str]) -> ReadStep:
    """Read one argument; return the mark behind it, "" if the text ended first."""
    key = begun = ""
    first = yield from read.peek()
    if first.isalpha() or first == "_":
        begun = yield from read.read_word(_KEY)
        space = yield from read.run(_SPACE)
        key, begun = (begun, "") if (yield from read.take_literal("=", ":")) else ("", begun + space)
        if read.ended and read.cut:
            return ""
    key = key or next(places)
    put(f'{before}"{escape_json_string(key)}": ')
    return (yield from python_literals.value(read, put, argument_types(tool, key, ANY), ",)", begun=begun))


def _ignore(_: str) -> None:
    pass


def calls(format: str) -> CallParser:
    """Return the parser of the text behind <|python_tag|>.

    JSON is a call of any name; a call in Python and code are calls only if such a tool was offered.

    format: the name of the format, as in `Pythonic`.
    """
    expressions = Pythonic(format)

    def call(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
        return (yield from _call(read, emit, context, expressions))

    return call


def _call(read: TextReader, emit: ParserOutput, context: ParseContext, expressions: Pythonic) -> ReadStep:
    if (yield from read.peek()) in ("{", "["):
        try:
            return (yield from json_calls.tagged_calls(read, emit, context))
        except Malformed:
            if not read.is_recording:
                raise
    elif found := (yield from read.take_literal(*(f"{name}.call(" for name in (*_OWN, *context.tools)))):
        name = found.removesuffix(".call(")
        if name not in context.tools:
            raise Malformed
        return (yield from expressions.arguments(read, emit, context, name))
    return (yield from _code(read, emit, context))


def _code(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
    """Read code for an interpreter, to the end of the turn."""
    tool = next((name for name in _CODE if name in context.tools), "")
    if not tool or read.ended:
        raise Malformed
    begun = read.end_recording().partition(TAG)[2]
    start_call(read, emit, tool)
    emit.tool_args('{"code": "' + escape_json_string(begun.lstrip()))
    yield from read.rest(lambda code: emit.tool_args(escape_json_string(code)))
    if not read.cut:
        emit.tool_args('"}')
        emit.tool_end()
    return ""
