"""Calls as Python writes them:  [f(city="Paris"), g(n=3, opt=None)]

One, or several in a list or one after the other; literals of Python or JSON; positional arguments take the names of
the tool's parameters in their order, and more of them are numbered.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import chain, count
from typing import Any

from gateway.formats import dialect
from gateway.formats.format import Context, Emit, give_back, start
from gateway.formats.reader import Malformed, Reader, Step
from gateway.formats.schema import quoted

_KEY, _SPACE = re.compile(r"\w*"), re.compile(r"\s*")


def tagged(read: Reader, emit: Emit, context: Context) -> Step:
    """What stands between tags is calls, whatever their names."""
    listed = yield from read.accept("[")
    return (yield from _several(read, emit, context, listed=bool(listed)))


def named(read: Reader, emit: Emit, context: Context) -> Step:
    """A list, whose bracket was taken, is one of calls if the first of them names a tool."""
    yield from read.peek()
    if not (yield from read.ahead(*map("{}(".format, context.tools))):
        raise Malformed
    return (yield from _several(read, emit, context, listed=True))


def _several(read: Reader, emit: Emit, context: Context, *, listed: bool) -> Step:
    yield from one(read, emit, context)
    try:
        while not read.ended:
            read.record()
            parted = yield from read.accept(",", ";")
            following = yield from read.peek()
            if following.isalpha() or following == "_":
                yield from one(read, emit, context)
                continue
            ended = listed and (yield from read.accept("]"))
            if parted and not ended:
                raise Malformed
            read.recorded()
            break
    except Malformed:
        if not read.recording:
            raise
        give_back(read, emit, emit.text)
        if space := (yield from read.run(_SPACE)):
            emit.text(space)  # it belongs to that text, not to a tag
    return ""


def one(read: Reader, emit: Emit, context: Context) -> Step:
    """One call; return "" if the text ended before it did."""
    yield from read.peek()
    name = yield from read.word()
    if not (yield from read.literal("(")):
        raise Malformed
    return (yield from arguments(read, emit, context, name))


def arguments(read: Reader, emit: Emit, context: Context, name: str) -> Step:
    """The call of a name, after its bracket; return "" if the text ended before it did."""
    start(read, emit, name)
    tool = context.tools.get(name, {})
    properties = tool.get("properties")
    places = chain(properties if isinstance(properties, Mapping) else (), map("argument_{}".format, count(1)))
    before = "{"
    while not (yield from read.accept(")")):
        if read.ended or not (yield from _argument(read, emit, before, tool, places)):
            return ""
        before = ", "
        if not (yield from read.accept(",")):
            yield from read.expect(")")
            break
    emit.tool_args("{}" if before == "{" else "}")
    emit.tool_end()
    return "whole"


def _argument(read: Reader, emit: Emit, before: str, tool: Mapping[str, Any], places: Iterator[str]) -> Step:
    """One argument; return "" if the text ended before it did."""
    key = begun = ""
    first = yield from read.peek()
    if first.isalpha() or first == "_":
        begun = yield from read.word(_KEY)
        space = yield from read.run(_SPACE)
        key, begun = (begun, "") if (yield from read.literal("=", ":")) else ("", begun + space)
        if read.ended and read.cut:
            return ""
    key = key or next(places)
    emit.tool_args(f'{before}"{quoted(key)}": ')
    wanted = dialect.bare_kinds(tool, key)
    if begun:
        return (yield from dialect.bare(read, emit.tool_args, wanted, begun))
    return (yield from dialect.value(read, emit.tool_args, wanted))
