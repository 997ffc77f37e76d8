"""Parse calls as JSON that no tag announces: an object that names an offered tool and does not define it.

A model that recites a tool writes {"name": "f", "description": "…", "parameters": {"type": "object", …}}, which is
text.  So a call is passed on only once the first member of its arguments shows that they are no schema.

Guided decoding yields such JSON and nothing around it: an object with a name and arguments, or a list of such objects.
If the request names one tool, guided decoding may also yield the arguments alone.
"""

import re
from collections.abc import Mapping

from gateway.formats.argument_types import has_parameter
from gateway.formats.grammars.json_calls import FENCE, JsonCall, several
from gateway.formats.parser import CallParser, ParseContext, ParserOutput, start_call
from gateway.formats.reader import ReadStep, TextReader, TextSink
from gateway.formats.text_buffer import Malformed

# Members of a schema, with the beginnings of their values.
_SCHEMA = {"type": '"object"', "properties": "{", "required": "[", "$schema": '"http', "$defs": "{"}
_SCHEMAS = {"input_schema", "inputSchema", "schema"}  # members that only a tool definition has
_WRAPPER = '"tool_calls"'  # the key of an object around a list of calls, as in the API's own responses
_KEY = re.compile(r'\s*\{\s*(?:"((?:[^"\\]|\\.)*)"|\})')
_VALUE = re.compile(r'\s*:\s*("(?:[^"\\]|\\.)*"|[^\s"])')
_FAR = 200  # characters in which the first member has to begin


def named(bracket: str, *, argued: bool = False) -> CallParser:
    """Return a parser of JSON that names one of the tools.

    bracket: the bracket that was already taken.
    argued: the first object has arguments, as no list of tools has.
    """

    def calls(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
        yield from read.peek()
        if bracket == "{" and (yield from read.lookahead(_WRAPPER)):
            return (yield from wrapped(read, emit, context))
        if bracket == "[":
            yield from read.expect("{")
        return (yield from several(read, BareCall(read, emit, context, argued=argued), listed=bracket == "["))

    return calls


def wrapped(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
    """Parse a list of calls inside an object whose brace was taken:  {"tool_calls": […]}"""
    for part in (_WRAPPER, ":", "[", "{"):
        yield from read.expect(part)
    yield from several(read, BareCall(read, emit, context), listed=True)
    return (yield from read.accept("}"))


def tagged(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
    """Parse JSON that names one of the tools behind a tag that may also stand before their definitions."""
    return (yield from named((yield from read.expect("{", "[")), argued=True)(read, emit, context))


def fenced(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
    """Parse JSON that names one of the tools behind a code fence, and the fence that closes it."""
    yield from read.take_literal("json")
    yield from named((yield from read.expect("{", "[")))(read, emit, context)
    return (yield from read.accept(FENCE))


class BareCall(JsonCall):
    """Parse objects.  Each is passed on as a call once it is known not to define a tool."""

    def __init__(self, read: TextReader, emit: ParserOutput, context: ParseContext, *, argued: bool = False) -> None:
        super().__init__(read, emit, context, context.tools)
        self._needs_arguments = argued

    def run(self) -> ReadStep:
        """Parse one object behind its opening brace; return "" if the text ended before the object did."""
        self._name, self._doubted, self._described, self._recited = "", "", False, False
        return (yield from super().run())

    def _member(self, key: str) -> ReadStep:
        self._described |= key == "description"
        self._recited |= key in _SCHEMAS
        return (yield from super()._member(key))

    def _members(self) -> ReadStep:
        yield from super()._members()
        if self._name and self.depth == 1:
            self._decide()
        return ""

    def _start(self, name: str) -> None:
        if self.names is None:
            super()._start(name)
        else:
            self._started, self._name, self._shape = True, name, self._context.shape(name)
            self._doubt("".join(self._early))

    def _drop(self, what: str) -> None:
        if self._name:
            self._strange.append(what)
        else:
            super()._drop(what)

    @property
    def _put(self) -> TextSink:
        return self._more if self._name else super()._put

    def _more(self, json: str) -> None:
        """Take a piece of the arguments, held while it is not certain that they are a call's."""
        if self._name:
            self._early.append(json)
            self._doubt(json)
        else:
            self.emit.tool_args(json)

    def _doubt(self, json: str) -> None:
        """Check if the arguments begin like a schema, as long as that is unknown."""
        if self._recited:
            return
        self._doubted = (self._doubted + json)[:_FAR]
        schema = self._is_schema()
        self._recited = bool(schema)
        if schema is False or (schema is None and len(self._doubted) == _FAR):
            self._tell()

    def _is_schema(self) -> bool | None:
        """Return True if the arguments are a schema, None if that is not known yet."""
        key = _KEY.match(self._doubted)
        if not key or (key[1] is None and self._described):
            return None
        if key[1] not in _SCHEMA or self._has(key[1]):
            return False
        value = _VALUE.match(self._doubted, key.end())
        return value[1].startswith(_SCHEMA[key[1]]) if value else None

    def _has(self, parameter: str) -> bool:
        properties = self._context.tools[self._name].get("properties")
        return isinstance(properties, Mapping) and parameter in properties

    def _tell(self) -> None:
        name, self._name = self._name, ""
        super()._start(name)

    def _decide(self) -> None:
        """Begin the call at its end, or raise Malformed if it only names a tool or was cut before that is clear."""
        lacks = self._needs_arguments and not (self._argued or self._beside)
        if self._recited or self._described or lacks or (self.read.ended and self.read.cut):
            self.depth = 0
            raise Malformed
        self._tell()


def read_bracket(read: TextReader, emit: ParserOutput) -> ReadStep:
    """Take the next bracket, with the white space before it; return "" if text comes."""
    read.begin_recording()
    yield from read.peek()
    mark = yield from read.take_literal("{", "[")
    read.marker = read.end_recording()
    if not mark and read.marker:
        emit.text(read.marker)
    return mark


def _object(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
    """Parse an object behind its brace: a named call, or the arguments of the tool that has to be called."""
    forced = context.forced
    yield from read.peek()
    listed = forced and not has_parameter(context.tools.get(forced, {}), _WRAPPER.strip('"'))
    if not forced or (listed and (yield from read.lookahead(_WRAPPER))):
        return (yield from named("{")(read, emit, context))
    call = JsonCall(read, emit, context, (forced,))
    try:
        return (yield from call.run())
    except Malformed:
        if not read.is_recording or (read.ended and read.cut):
            raise
    begun = read.end_recording().lstrip()
    start_call(read, emit, forced)
    emit.tool_args(begun)
    if (yield from read.json(emit.tool_args, call.depth)):
        emit.tool_end()
    return ""


CALLS: Mapping[str, CallParser] = {"{": _object, "[": named("[")}
