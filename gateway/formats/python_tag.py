"""Read the text behind Llama's <|python_tag|>: a call as JSON, a call of a tool of its training, or code.

{"name": "f", "parameters": {…}}      brave_search.call(query="…")      print(1)
"""

from gateway.formats import json_call
from gateway.formats.format import CallParser, ParseContext, ParserOutput, start_call
from gateway.formats.pythonic import Pythonic
from gateway.formats.reader import Malformed, ReadStep, TextReader
from gateway.formats.schema import escape_json_string

TAG = "<|python_tag|>"
_OWN = ("brave_search", "wolfram_alpha")
_CODE = ("code_interpreter", "python")


def calls(format: str) -> CallParser:
    """JSON is a call of whatever name; the rest only where such a tool was offered.  `format`: as in `Pythonic`."""
    expressions = Pythonic(format)

    def call(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
        return (yield from _call(read, emit, context, expressions))

    return call


def _call(read: TextReader, emit: ParserOutput, context: ParseContext, expressions: Pythonic) -> ReadStep:
    if (yield from read.peek()) == "{":
        try:
            return (yield from json_call.tagged_calls(read, emit, context))
        except Malformed:
            if not read.recording:
                raise
    elif found := (yield from read.literal(*(f"{name}.call(" for name in (*_OWN, *context.tools)))):
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
    begun = read.recorded().partition(TAG)[2]
    start_call(read, emit, tool)
    emit.tool_args('{"code": "' + escape_json_string(begun.lstrip()))
    yield from read.rest(lambda code: emit.tool_args(escape_json_string(code)))
    if not read.cut:
        emit.tool_args('"}')
        emit.tool_end()
    return ""
