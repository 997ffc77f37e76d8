"""Messages to recipients, as Muse writes them: calls as text between tags, each with the name of its tool."""

from collections.abc import Container

from gateway.formats.format import ParseContext, ParserOutput, start_call
from gateway.formats.json_call import read_arguments
from gateway.formats.messages import MESSAGE, START, TO, ChannelFormat
from gateway.formats.reader import Malformed, ReadStep, TextReader
from gateway.formats.tagged import TaggedCall

_OPEN, _CLOSE = "<atem:function_calls>", "</atem:function_calls>"
_INVOKE = "<atem:invoke name="
_ENDS = ("<|eom|>", "<|eot|>")
_ARGUMENTS = TaggedCall(
    key="<atem:parameter name=",
    value_ends=("</atem:parameter>",),
    call_ends=("</atem:invoke>",),
    next=(_INVOKE, _CLOSE, *_ENDS),
    trim=False,
)


def _read_muse_body(read: TextReader, emit: ParserOutput, context: ParseContext, name: str) -> ReadStep:
    """Read a body: calls if it begins with calls; for a tool perhaps its arguments as JSON."""
    if name and (yield from read.peek()) == "{":
        called = _declared(name, context.tools)
        start_call(read, emit, called)
        if (yield from read_arguments(read, emit.tool_args, context.shape(called))):
            emit.tool_end()
        return ""
    yield from read.accept(_OPEN)
    more = yield from read.expect(_INVOKE)
    while more:
        called = _declared((yield from _name(read)), context.tools)
        start_call(read, emit, called)
        if not (yield from _ARGUMENTS.named(read, emit, context, called)):
            raise Malformed
        read.record()
        more = yield from read.accept(_INVOKE)
    read.recorded()
    yield from read.accept(_CLOSE)
    yield from read.peek()
    return ""


def _name(read: TextReader) -> ReadStep:
    """The name of a call, up to the end of its tag; the end of a header may have got into it."""
    quote = yield from read.accept('"', "'")
    name = yield from read.word()
    stray = yield from read.accept(MESSAGE)
    yield from read.literal(quote)
    yield from (read.accept if stray else read.expect)(">")
    return name


def _declared(name: str, tools: Container[str]) -> str:
    """Models see a tool without a namespace as one in a namespace of its own: f.f is f."""
    head, _, tail = name.partition(".")
    return tail if name not in tools and head == tail.partition(".")[0] and tail in tools else name


MUSE = ChannelFormat(
    begins=(START, TO),
    ends=_ENDS,
    body=_read_muse_body,
    thoughts=frozenset({"self"}),
    nobody=frozenset({"user", "assistant"}),
)
