"""Qwen 3 Coder and kin; `<tool_call>` and the end tags may be missing:

    <tool_call><function=f><parameter=city>Paris</parameter></function></tool_call>

A value is plain text with one line end on either side that is not part of it; its type is in the tool's schema.
"""

from gateway.formats import think
from gateway.formats.format import Context, Emit, give_back
from gateway.formats.reader import Malformed, Markers, Reader, Step
from gateway.formats.schema import kinds, quoted, typed

_TOP = Markers(think.THINK, "<tool_call>", "<function=")
_END_TAGS = ("</parameter>", "<parameter=", "</function>", "</tool_call>")
_END_VALUE = Markers(*_END_TAGS, *("\n" + tag for tag in _END_TAGS))


def parse(read: Reader, emit: Emit, context: Context) -> Step:
    return (yield from think.with_calls(read, emit, context, _TOP, lambda mark: calls(read, emit, context, mark)))


def calls(read: Reader, emit: Emit, context: Context, mark: str) -> Step:
    """The calls in a block whose first tag was taken and recorded."""
    more = mark
    while more:
        try:
            name = yield from _name(read, more)
        except Malformed:
            give_back(read, emit)
            return ""
        read.recorded()
        if not (yield from _call(read, emit, context, name)):
            return ""
        read.record()
        more = yield from read.accept("<function=", "</tool_call>")
        if more == "</tool_call>":
            break
    yield from read.peek()
    read.recorded()
    return ""


def _name(read: Reader, mark: str) -> Step:
    if mark == "<tool_call>":
        yield from read.expect("<function=")
    name = yield from read.word()
    yield from read.expect(">")
    return name


def _call(read: Reader, emit: Emit, context: Context, name: str) -> Step:
    """One call after its name; return "" if the text ended inside it."""
    emit.tool_start(name)
    tag = yield from read.accept("<parameter=", "</function>")
    before = "{"
    while tag.endswith("<parameter="):
        try:
            key = yield from read.word()
            yield from read.expect(">")
        except Malformed:
            break
        emit.tool_args(f'{before}"{quoted(key)}": ')
        tag = yield from _value(read, emit, kinds(context.tools.get(name, {}), key))
        if not tag:
            return ""
        if tag.endswith("</parameter>"):
            tag = yield from read.accept("<parameter=", "</function>")
        before = ", "
    if read.ended and not tag:
        return ""
    emit.tool_args("{}" if before == "{" else "}")
    emit.tool_end()
    return "whole"


def _value(read: Reader, emit: Emit, wanted: frozenset[str]) -> Step:
    """One value; return the tag that ended it.  A string goes out as it comes, the rest when its type is certain."""
    yield from read.literal("\n")
    if wanted == {"string"}:
        emit.tool_args('"')
        tag = yield from read.until(_END_VALUE, lambda text: emit.tool_args(quoted(text)))
        if tag:
            emit.tool_args('"')
        return tag
    pieces: list[str] = []
    tag = yield from read.until(_END_VALUE, pieces.append)
    emit.tool_args(typed("".join(pieces), wanted))
    return tag
