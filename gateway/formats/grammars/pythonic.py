"""Parse calls as Python writes them, one, or several in a list or in sequence:  [f(city="Paris"), g(n=3, opt=None)]

Values are literals of Python or JSON; any other expression raises Malformed.  Positional arguments take the names of
the tool's parameters in their order; further ones are numbered.  A call begins when all of it was read, as half of an
expression may mean something else.
A call with a value that is no literal is text.

Behind <|python_tag|>, Llama writes a call as JSON, a call of a tool from its training, or code:

    {"name": "f", "parameters": {…}}      brave_search.call(query="…")      print(1)
"""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, count
from keyword import iskeyword
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from gateway.formats import lenient_json
from gateway.formats.argument_types import ANY, STRING, argument_types, escape_json_string
from gateway.formats.grammars import json_calls
from gateway.formats.parser import CallParser, ParseContext, ParserOutput, emit_as_text, start_call
from gateway.formats.reader import ReadStep, TextReader, TextSink
from gateway.formats.string_ends import PREFIXES, Nesting, Tail
from gateway.formats.text_buffer import Malformed

_DEPTH = 100  # levels of nested values
_BARE = re.compile(r"""[^,:={}\[\]()"'<>\n]*""")
_WORDS = re.compile(r"\w+(?:\s+\w+)*")
_CONSTANTS = ("True", "False", "None", "true", "false", "null")
_DECIMAL = re.compile(r"([+-]?)\s*([0-9][0-9_]*|(?=\.[0-9]))(?:\.([0-9_]*))?([eE][+-]?[0-9]+)?")
_BASED = re.compile(r"[+-]?0[xXoObB]\w{1,64}")


def value(
    read: TextReader, put: TextSink, wanted: frozenset[str], ends: str, depth: int = _DEPTH, begun: str = ""
) -> ReadStep:
    """Put one literal as JSON; return the end in `ends` that was taken behind it, "" if the text ended first.

    wanted: the JSON types that the schema allows.  Text without quotes becomes a string only if the schema allows one.
    begun: the beginning of a value without quotes that was already taken.

    Raises Malformed for any other expression.
    """
    first = "" if begun else (yield from read.peek())
    if first in _CONTAINERS:
        if not depth:
            raise Malformed
        whole = yield from _CONTAINERS[first](read, put, depth - 1)
        return (yield from _after(read, ends)) if whole else ""
    bare = begun + (yield from read.run(_BARE))
    prefix = bare.lower()
    if (not bare or prefix in PREFIXES) and (quote := (yield from read.take_literal(*lenient_json.QUOTES))):
        return (yield from _string(read, put, prefix, quote, ends))
    if read.ended and (read.cut or not bare):
        return ""  # the value may be incomplete
    put(_plain(bare.strip(), wanted))
    return (yield from _after(read, ends))


def _after(read: TextReader, ends: str) -> ReadStep:
    """Take the end behind a value; raise Malformed if the value is part of an expression."""
    end = yield from read.accept(*ends)
    if not end and not read.ended:
        raise Malformed
    return end


def _plain(text: str, wanted: frozenset[str]) -> str:
    """Return a value without quotes as JSON."""
    number = _number(text)
    if not number and text not in _CONSTANTS:
        expression = " " in text and any(map(iskeyword, text.split()))
        if expression or not _WORDS.fullmatch(text) or not ("string" in wanted or wanted == ANY):
            raise Malformed
    kept = text if wanted == STRING else number or text
    return lenient_json.bare_to_json(kept, wanted if "string" in wanted else ANY)


def _number(text: str) -> str:
    """Return a number as JSON; "" if the text is no number."""
    if _BASED.fullmatch(text):
        try:
            return str(int(text, 0))
        except ValueError:
            return ""
    if not (found := _DECIMAL.fullmatch(text)):
        return ""
    sign, whole, part, power = found.groups()
    fraction = "" if part is None else f".{part.replace('_', '') or '0'}"
    return f"{sign.strip('+')}{whole.replace('_', '').lstrip('0') or '0'}{fraction}{power or ''}"


def _string(read: TextReader, put: TextSink, prefix: str, quote: str, ends: str) -> ReadStep:
    """Put a string whose quote was taken, with the strings that are joined to it."""
    stops = (lenient_json.RAW if "r" in prefix else lenient_json.ENDS)[quote]
    text: list[str] = []
    quotes = False  # the string has its own quote inside
    while mark := (yield from read.until(stops, text.append)):
        if mark == "\\":
            text.append(mark + (yield from read.take(1)))
            continue
        tail = Tail(read, ends)
        end = yield from tail.run()
        if end or tail.open:
            break
        quotes = True
        text += [quote, *tail.text]
    if read.cut and read.ended and not (mark and end):
        put(f'"{escape_json_string(_decoded(prefix, "".join(text), cut=True))}')
        return ""
    if not mark and quotes:
        raise Malformed  # the end of the string is unknown
    strings = [(prefix, "".join(text)), *(tail.strings if mark else ())]
    put(f'"{escape_json_string("".join(_decoded(*string) for string in strings))}')
    if not mark:
        return ""
    put('"')
    return end


def _decoded(prefix: str, text: str, *, cut: bool = False) -> str:
    """Return the value of a string; raise Malformed if it is an f-string with an expression."""
    if "f" in prefix:
        if "{" in text.replace("{{", ""):
            raise Malformed
        text = text.replace("{{", "{").replace("}}", "}")
    return text if "r" in prefix else lenient_json.unescaped(text, cut=cut)


def _list(read: TextReader, put: TextSink, depth: int) -> ReadStep:
    yield from read.take_literal("[")
    if (yield from read.accept("]")):
        put("[]")
        return "whole"
    if read.ended:
        return ""
    put("[")
    end = yield from value(read, put, ANY, ",]", depth)
    return (yield from _items(read, put, end, "]", depth))


def _items(read: TextReader, put: TextSink, end: str, close: str, depth: int) -> ReadStep:
    """Put the remaining items of a list; `end` was taken behind the previous one."""
    while end == "," and not (yield from read.accept(close)):
        if read.ended:
            return ""
        put(", ")
        end = yield from value(read, put, ANY, f",{close}", depth)
    if end:
        put("]")
    return end


def _parentheses(read: TextReader, put: TextSink, depth: int) -> ReadStep:
    """Put a tuple as a list, and a single value in parentheses as itself."""
    yield from read.take_literal("(")
    if (yield from read.accept(")")):
        put("[]")
        return "whole"
    first: list[str] = []
    end = yield from value(read, first.append, ANY, ",)", depth)
    if end == ",":
        put(f"[{''.join(first)}")
        return (yield from _items(read, put, end, ")", depth))
    if end:
        put("".join(first))
    return end


def _braces(read: TextReader, put: TextSink, depth: int) -> ReadStep:
    """Put a dict, whose braces may be doubled, or a set as a list."""
    yield from read.take_literal("{")
    doubled = yield from read.accept("{")
    if (yield from read.accept("}")):
        put("{}")
        end = "}"
    else:
        key: list[str] = []
        end = yield from value(read, key.append, ANY, ":=,}", depth)
        if end in (":", "="):
            end = yield from _members(read, put, "".join(key), depth)
        elif end:
            put(f"[{''.join(key)}")
            end = yield from _items(read, put, end, "}", depth)
    if end and doubled:
        yield from read.accept("}")
    return end


def _members(read: TextReader, put: TextSink, key: str, depth: int) -> ReadStep:
    """Put all members of a dict; the first key and its colon were taken."""
    before = "{"
    while True:
        if key[0] in "[{":
            raise Malformed
        put(before + (key if key[0] == '"' else f'"{key}"') + ": ")
        before = ", "
        end = yield from value(read, put, ANY, ",}", depth)
        if end == "," and not (end := (yield from read.accept("}"))):
            keys: list[str] = []
            if not (yield from value(read, keys.append, ANY, ":=", depth)):
                return ""
            key = "".join(keys)
            continue
        if end:
            put("}")
        return end


_CONTAINERS: Mapping[str, Callable[[TextReader, TextSink, int], ReadStep]] = MappingProxyType(
    {"[": _list, "(": _parentheses, "{": _braces}
)


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
            whole = yield from read_arguments(read, pieces.append, context.tools.get(name, {}))
        except Malformed:
            emit.note_unread(self.format)
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


def read_arguments(read: TextReader, put: TextSink, tool: Mapping[str, Any]) -> ReadStep:
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
    return (yield from value(read, put, argument_types(tool, key, ANY), ",)", begun=begun))


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
