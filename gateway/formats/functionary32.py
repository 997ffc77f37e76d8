"""Messages as Functionary 3.2 writes them, each behind the name of who it is for:  all⏎text>>>f⏎{…}>>>g⏎{…}

The prompt ends with the mark before the first name.
"""

import re

from gateway.formats.format import ParseContext, ParserOutput, start_call, try_call
from gateway.formats.harmony_code import code
from gateway.formats.json_call import read_arguments
from gateway.formats.markers import ENDS, Markers
from gateway.formats.markup import Markup
from gateway.formats.reader import Malformed, ReadStep, TextReader

_NAME, _MORE = re.compile(r"[\w.:/-]*"), re.compile(r">*")
_CODE = ("python", "code_interpreter")  # known to the model by themselves


def functionary32(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
    """The Format: a first message without its mark, then all others."""
    read.ends = ENDS
    if not context.thought_open:
        yield from _first(read, emit, context)
    return (yield from _MARKED(read, emit, context))


def _first(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
    read.record()
    name = yield from read.run(_NAME)
    line = yield from read.literal("\n", "\r\n")
    if name == "all" and line:
        return read.recorded()
    if not (line and context.tools and (name in context.tools or name in _CODE)):
        if text := read.recorded():
            (emit.fragment if read.ended and read.cut else emit.text)(text)
        return ""
    return (yield from try_call(_messages(read, emit, context, name), read, emit, emit.text))


def _call(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
    """A message behind a mark: its name is a line."""
    if text := (yield from read.run(_MORE)):
        emit.text(text)
        read.record(">>>")  # the mark is the last three
    name = yield from read.word(_NAME)
    if not (yield from read.literal("\n", "\r\n")):
        raise Malformed
    return (yield from _messages(read, emit, context, name))


def _messages(read: TextReader, emit: ParserOutput, context: ParseContext, name: str) -> ReadStep:
    """One of this name, and those that its code ends with, up to a message to all."""
    if name != "all" and (yield from read.peek()) != "{" and name not in _CODE:
        raise Malformed
    read.recorded()
    stops = Markers(*(f">>>{name}\n" for name in (*context.tools, *_CODE, "all")))
    while name not in ("", "all"):
        start_call(read, emit, name)
        if (yield from read.peek()) == "{":
            if (yield from read_arguments(read, emit.tool_args, context.shape(name))):
                emit.tool_end()
            return ""
        name = (yield from code(read, emit, context, name, stops)).removeprefix(">>>").rstrip()
    return "whole"


_MARKED = Markup(calls={">>>": _call}, silent=(">>>all\n",))
