"""Messages in channels, as gpt-oss writes them: JSON, or code, for the tool that a header names."""

from gateway.formats import untagged
from gateway.formats.format import ParseContext, ParserOutput, start_call
from gateway.formats.harmony_code import code
from gateway.formats.json_call import read_arguments
from gateway.formats.markers import Markers
from gateway.formats.messages import CHANNEL, START, ChannelFormat
from gateway.formats.reader import Malformed, ReadStep, TextReader

_BEGINS, _ENDS = (START, CHANNEL), ("<|end|>", "<|call|>", "<|return|>")
_IN_CODE = Markers(*_BEGINS, *_ENDS)


def harmony_format(*, spaced: bool = False) -> ChannelFormat:
    """spaced: a space stands after each tag."""
    return ChannelFormat(
        begins=_BEGINS,
        ends=_ENDS,
        body=_read_harmony_body,
        thoughts=frozenset({"analysis"}),
        nobody=frozenset({"assistant", "user", "all"}),
        spaced=spaced,
        untagged=None if spaced else (untagged.begins, untagged.turn),
    )


def _read_harmony_body(read: TextReader, emit: ParserOutput, context: ParseContext, name: str) -> ReadStep:
    if not name:
        raise Malformed
    start_call(read, emit, name)
    yield from read.peek()
    if (yield from read.ahead("{", '"{')):
        if (yield from read_arguments(read, emit.tool_args, context.shape(name))):
            emit.tool_end()
            yield from read.peek()
        return ""
    if (yield from read.ahead(*_BEGINS, *_ENDS)):
        emit.tool_args("{}")
        emit.tool_end()
        return ""
    return "" if read.ended else (yield from code(read, emit, context, name, _IN_CODE))
