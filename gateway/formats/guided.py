"""The answer of a backend that was made to call, by a grammar: JSON and nothing around it.

An object with a name and arguments, a list of such, or, where one tool was named, its arguments alone.
"""

from collections.abc import Mapping

from gateway.formats.bare_json import named
from gateway.formats.format import CallParser, ParseContext, ParserOutput, start_call
from gateway.formats.json_call import JsonCall
from gateway.formats.reader import Malformed, ReadStep, TextReader


def read_bracket(read: TextReader, emit: ParserOutput) -> ReadStep:
    """Take the bracket that comes next, with the white space before it; "" where text comes."""
    read.record()
    yield from read.peek()
    mark = yield from read.literal("{", "[")
    read.marker = read.recorded()
    if not mark and read.marker:
        emit.text(read.marker)
    return mark


def _object(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
    """After the brace: a named call if it is one of the tool that has to be called, else that tool's arguments."""
    forced = context.forced
    if not forced:
        return (yield from named("{")(read, emit, context))
    call = JsonCall(read, emit, context, (forced,))
    try:
        return (yield from call.run())
    except Malformed:
        if not read.recording or (read.ended and read.cut):
            raise
    begun = read.recorded().lstrip()
    start_call(read, emit, forced)
    emit.tool_args(begun)
    if (yield from read.json(emit.tool_args, call.depth)):
        emit.tool_end()
    return ""


CALLS: Mapping[str, CallParser] = {"{": _object, "[": named("[")}
