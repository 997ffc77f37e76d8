"""Parse calls whose arguments are text between tags, each with its key:

    <function=f> <parameter=city>Paris</parameter> </function>
    <invoke name="f"> <parameter name="city" string="true">Paris</parameter> </invoke>
    f <arg_key>city</arg_key> <arg_value>Paris</arg_value> </tool_call>

The type of a value is in its tag, else in the tool's schema; if the schema excludes the type of the tag, the schema
counts.  A long string is sent piece by piece, other values with the next tag, which may repeat the parameter.

A value may itself be markup.  So a closing tag counts only before another tag of the call or the end of the text.  The
tag of a key inside a value counts only if the tool has that parameter.
"""

import re
from collections.abc import Generator, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct

from gateway.formats.argument_types import (
    ANY,
    JSON,
    STRING,
    argument_types,
    begun,
    escape_json_string,
    has_parameter,
    to_json,
    type_named,
)
from gateway.formats.argument_values import from_text
from gateway.formats.grammars.json_calls import read_arguments, surplus
from gateway.formats.grammars.tag_parameters import Parameters
from gateway.formats.markers import Markers
from gateway.formats.parser import ParseContext, ParserOutput, start_call
from gateway.formats.plain_text import PassThrough
from gateway.formats.reader import ReadStep, TextReader, TextSink
from gateway.formats.schema_types import of_tool
from gateway.formats.text_buffer import Malformed

_KEYS = {"": re.compile(r"""[^<>"'\n]*"""), '"': re.compile(r'[^"<>\n]*'), "'": re.compile(r"[^'<>\n]*")}
_ASSIGNED = re.compile(r"""[^<>"'\n=]*""")
_ATTRIBUTES = re.compile(r"[^<>{\n]*")
_ATTRIBUTE = re.compile(r"""(?:string|type)=["']?(\w*)""")
_TYPE = re.compile(r"\s*([^\s]*)")
_WRAPPERS = ("arguments", "input", "properties")  # keys that some models put around all arguments
_NO_STRING = frozenset({"string", "quoted", "null"})  # types of a string whose tag denies that it is one
_OBJECT = frozenset({"object"})
_NONE: frozenset[str] = frozenset()
_KEY_WORD = re.compile(r"[\w.$@-]*")
_CDATA, _CDATA_END = "<![CDATA[", "]]>"
_IN_CDATA = Markers(_CDATA_END)


class TaggedCall(Struct, frozen=True, kw_only=True, dict=True):
    """The tags of a call, whose first one, up to the name, was taken.  An object of this class is a CallParser.

    next: tags that may follow a call, the one before a name first.  A closing tag before one of these ends the call,
        even if other closing tags are missing.
    name_end: the text behind the name; if it is empty, only another tag makes the text a call.
    name_ends: other texts in that place.
    key, key_end, value: the texts before a key, behind it, and, if needed, before the value.
    also: other spellings of `key`.
    assign: the text between a key and its value if a model writes both between the tags of the key.
    type: tags around a type that may stand before the value.
    json: tags around arguments that are JSON; None if these have no tags.
    value_ends, call_ends: tags that end a value, or the call.
    unknown: the types of a value without a type in its tag or the schema.
    trim: a line end on either side of a value is not part of it.
    framed: the line end behind a value is part of it unless there is one before the value.
    cdata: a value may stand in <![CDATA[ ]]>.
    escaped: keys contain &quot; and &amp;.
    """

    next: tuple[str, ...]
    name_end: str = ">"
    name_ends: tuple[str, ...] = ()
    key: str = "<parameter="
    key_end: str = ">"
    value: str = ""
    also: tuple[str, ...] = ()
    assign: str = ""
    type: tuple[str, str] | None = None
    json: tuple[str, str] | None = None
    value_ends: tuple[str, ...] = ("</parameter>",)
    call_ends: tuple[str, ...] = ("</function>",)
    unknown: frozenset[str] = STRING
    trim: bool = True
    framed: bool = False
    cdata: bool = False
    escaped: bool = False

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The texts before a key, in all spellings."""
        return (self.key, *self.also)

    @cached_property
    def stops(self) -> Markers:
        """The tags that may end a value."""
        return Markers(*self.keys, *self.value_ends, *self.call_ends)

    def __call__(self, read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
        return _TaggedParser(self, read, emit, context).run()

    def run_named(self, read: TextReader, emit: ParserOutput, context: ParseContext, name: str) -> ReadStep:
        """Parse the rest of a call of this name that has begun."""
        return _TaggedParser(self, read, emit, context).named(name)


class _TaggedParser:
    """Parse one call."""

    def __init__(self, tags: TaggedCall, read: TextReader, emit: ParserOutput, context: ParseContext) -> None:
        self._tags, self._read, self._emit, self._tools = tags, read, emit, context.tools
        self._tool: Mapping[str, Any] = {}
        self._parameters = Parameters(emit.tool_args, read)
        self._key = ""  # the next key, if it was read to find the end of the value before it

    def run(self) -> ReadStep:
        """Read all of the call; return "" if the text ended first."""
        return (yield from self._arguments((yield from self._head())))

    def named(self, name: str) -> ReadStep:
        """Read the arguments of a call of this name; return "" if the text ended first."""
        self._tool = self._tools.get(name, {})
        tag = yield from self._read.accept(*self._tags.keys, *self._tags.call_ends)
        return (yield from self._arguments(tag or (yield from self._read.lookahead("{"))))

    def _arguments(self, tag: str) -> ReadStep:
        """Read all arguments behind the first tag or bracket."""
        if tag == "{" or tag in (self._tags.json or ()):
            return (yield from self._json())
        try:
            while tag in self._tags.keys:
                tag = yield from self._pair()
        except Malformed:
            self._parameters.flush()
            raise
        if tag:
            self._parameters.end()
            self._emit.tool_end()
        self._parameters.flush()
        return tag

    def _head(self) -> ReadStep:
        """Read the name, and the tag or bracket behind it."""
        read, tags = self._read, self._tags
        name = yield from self._name()
        more = (yield from read.run(_ATTRIBUTES)) if tags.name_end else ""
        opened = yield from read.accept(tags.name_end, *tags.name_ends)
        if tags.value and not opened and (called := (yield from self._unopened_key(name, more))):
            name, tag = called, tags.key
        elif more.strip() and not opened:
            raise Malformed
        else:
            tag = yield from self._first_tag()
        if not tag and not (read.ended and (opened or (name in self._tools and not read.cut))):
            raise Malformed
        start_call(read, self._emit, name)
        if more.strip() and opened and "=" not in more:
            self._emit.note_dropped("tool_calls.function.name")
        self._tool = self._tools.get(name, {})
        return tag

    def _first_tag(self) -> ReadStep:
        """Read the tag or bracket behind the name, and a closing tag of a value that stands there by mistake."""
        read, tags = self._read, self._tags
        stray = (yield from read.accept(*tags.value_ends)) if tags.value else ""
        tag = yield from read.accept(*tags.keys, *tags.call_ends, *(tags.json or ())[:1])
        tag = tag or (yield from read.lookahead("{"))
        if stray and not tag and ((yield from read.lookahead(*tags.next)) or (read.ended and not read.cut)):
            return tags.call_ends[0]
        return tag

    def _unopened_key(self, name: str, more: str) -> ReadStep:
        """Read a first key whose opening tag is missing; return the name of the tool, "" for other text.

        The text behind the name may also be missing:  get_weathercity</arg_key>

        more: the words behind the name.
        """
        yield from self._read.peek()
        key = more.strip() or (yield from self._read.run(_KEY_WORD))
        if (yield from self._read.lookahead(self._tags.key_end)):
            tools = [name] if key else [tool for tool in self._tools if name.startswith(tool)]
            keys = {tool: key or name.removeprefix(tool) for tool in tools}
            found = [tool for tool in tools if argument_types(self._tools.get(tool, {}), keys[tool], _NONE)]
            if len(found) == 1:
                self._key = keys[found[0]]
                return found[0]
        if key:
            raise Malformed
        return ""

    def _name(self) -> ReadStep:
        quote = yield from self._read.accept('"', "'")
        name = yield from self._read.read_word()
        yield from self._read.take_literal(quote)
        return name

    def _json(self) -> ReadStep:
        """Read arguments as JSON; a closing tag behind them is left to the caller."""
        if not (yield from read_arguments(self._read, self._emit.tool_args, of_tool(self._tool))):
            return ""
        self._emit.tool_end()
        yield from surplus(self._read)
        return (yield from self._read.accept(self._tags.json[1])) if self._tags.json else "whole"

    def _pair(self) -> ReadStep:
        """Read one key and its value; return the tag that follows, "" if the text ended first."""
        key, self._key = self._key or (yield from self._next_key()), ""
        if not key:
            raise Malformed
        wanted = yield from self._wanted(key)
        if self._tags.value:
            yield from self._read.accept(self._tags.value)
        if self._read.ended and self._read.cut:
            return self._cut(key)
        if self._parameters.empty and key in _WRAPPERS and not has_parameter(self._tool, key):
            return (yield from self._wrapper(key, wanted))
        self._parameters.begin(key)
        return (yield from self._string() if wanted == STRING else self._other(key, wanted))

    def _next_key(self) -> ReadStep:
        read = self._read
        quote = yield from read.accept('"', "'")
        key = (yield from read.run(_ASSIGNED if self._tags.assign and not quote else _KEYS[quote])).strip()
        yield from read.take_literal(quote)
        return key.replace("&quot;", '"').replace("&amp;", "&") if self._tags.escaped else key

    def _wanted(self, key: str) -> Generator[PassThrough | None, None, frozenset[str]]:
        """Return the types that the value of a key may have, by its tag, else by the schema."""
        read, tags = self._read, self._tags
        if tags.assign and (yield from read.take_literal(tags.assign)):
            return argument_types(self._tool, key, tags.unknown)
        stated = _ATTRIBUTE.search((yield from read.run(_ATTRIBUTES)))
        ends = (tags.key_end, *tags.value_ends) if tags.value else (tags.key_end,)  # some models confuse both
        if not ((yield from read.accept(*ends)) or (yield from read.lookahead(tags.value))):
            raise Malformed
        if tags.type and (yield from read.accept(tags.type[0])):
            stated = _TYPE.search((yield from read.run(_ATTRIBUTES)))
            yield from read.accept(tags.type[1])
        if stated:
            return _meant(stated[1], argument_types(self._tool, key, ANY))
        return argument_types(self._tool, key, tags.unknown)

    def _string(self) -> ReadStep:
        put = self._parameters.put
        put('"')
        tag = yield from self._text(lambda text: put(escape_json_string(text)))
        if tag:
            put('"')
        return tag

    def _other(self, key: str, wanted: frozenset[str]) -> ReadStep:
        pieces: list[str] = []
        tag = yield from self._text(pieces.append)
        text = "".join(pieces)
        if not tag and self._read.cut:
            return self._cut(text)
        self._parameters.put(self._json_of(key, text, wanted) if tag else begun(text))
        return tag

    def _json_of(self, key: str, text: str, wanted: frozenset[str]) -> str:
        return from_text(text, wanted, of_tool(self._tool).member(key))

    def _wrapper(self, key: str, wanted: frozenset[str]) -> ReadStep:
        """Read the value of a key that the tool does not have.

        If the value is an object and no other key follows, the object is all arguments.
        """
        pieces: list[str] = []
        tag = yield from self._text(pieces.append)
        text = "".join(pieces)
        if not tag and self._read.cut:
            return self._cut(text)
        whole = to_json(text, _OBJECT)
        if tag not in self._tags.keys and whole.startswith("{"):
            self._parameters.whole(whole)
        else:
            self._parameters.begin(key)
            self._parameters.put(self._json_of(key, text, wanted) if tag else begun(text))
        return tag

    def _cut(self, text: str) -> str:
        """Report a call that the end of the text cut in a part that has no meaning before it is complete."""
        self._emit.incomplete_call(text)
        return ""

    def _text(self, put: TextSink) -> ReadStep:
        """Read the text of a value; return the tag that follows it, "" if the text ended first."""
        read, tags = self._read, self._tags
        begun = (yield from read.take_literal("\r\n", "\n")) if tags.trim else ""
        if tags.cdata and (yield from read.take_literal(_CDATA)):
            return (yield from self._until(_IN_CDATA, put))
        if not tags.trim or (tags.framed and not begun):
            return (yield from self._until(tags.stops, put))
        trimmed = _TrimmedOutput(put, begun)
        tag = yield from self._until(tags.stops, trimmed.write)
        trimmed.close()
        return tag

    def _until(self, stops: Markers, put: TextSink) -> ReadStep:
        read = self._read
        while mark := (yield from read.until(stops, put)):
            read.begin_recording(mark)
            found = yield from self._following(mark)
            text = read.end_recording()
            if found:
                return found
            if read.ended and read.cut:  # the type of the value is unknown
                return self._cut(text)
            put(text)
        return ""

    def _following(self, mark: str) -> ReadStep:
        """Return the tag behind the end of a value; "" if the text continues in a way that makes it no end."""
        read, tags = self._read, self._tags
        if mark in tags.keys:
            key = yield from self._next_key()
            if not key or not has_parameter(self._tool, key) or (read.ended and read.cut):
                return ""
            self._key = key
            return mark
        if mark in tags.call_ends:
            while (yield from read.accept(*tags.call_ends)):
                pass
        else:
            if mark == _CDATA_END:
                yield from read.accept(*tags.value_ends)
            if found := (yield from read.accept(*tags.keys, *tags.call_ends)):
                return found
        yield from read.peek()
        if read.ended:
            return "" if read.cut else tags.call_ends[0]
        return tags.call_ends[0] if (yield from read.lookahead(*tags.next)) else ""


class _TrimmedOutput:
    """A sink that drops the last line end, of the kind of the first one."""

    def __init__(self, put: TextSink, begun: str) -> None:
        self._put, self._held = put, ""
        self._ends = ("\n",) if begun == "\n" else ("\r\n", "\n", "\r")

    def write(self, text: str) -> None:
        """Pass on text, and hold a line end at its end."""
        if self._held or text[-1] in "\r\n":
            text = self._held + text
            self._held = next((end for end in self._ends if text.endswith(end)), "")
            text = text[: len(text) - len(self._held)]
        if text:
            self._put(text)

    def close(self) -> None:
        """Drop the held line end; pass on a lone carriage return."""
        if self._held == "\r":
            self._put("\r")


def _meant(word: str, schema: frozenset[str]) -> frozenset[str]:
    """Return the type that a value's tag names, string="true" or type="number", if the schema allows it."""
    stated = {"true": STRING, "false": JSON}.get(word) or type_named(word)
    if schema == STRING:
        return stated if stated == STRING else _NO_STRING
    return schema if stated == STRING and "string" not in schema and schema != ANY else stated
