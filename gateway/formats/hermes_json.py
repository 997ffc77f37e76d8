"""Hermes, Qwen 2.5 and 3:  <think>…</think>  text  <tool_call>{"name": …, "arguments": {…}}</tool_call>

A missing end tag is accepted.  White space around the tags is not part of the text.  A tag inside a thought is text.
"""

from gateway.formats import think
from gateway.formats.format import Context, Emit
from gateway.formats.json_call import JsonCall
from gateway.formats.reader import Markers, Reader, Step

_TOP = Markers(think.THINK, "<tool_call>")


def parse(read: Reader, emit: Emit, context: Context) -> Step:
    return (yield from think.with_calls(read, emit, context, _TOP, lambda _: call(read, emit)))


def call(read: Reader, emit: Emit) -> Step:
    """A call whose tag was taken and recorded."""
    if (yield from JsonCall(read, emit).run()) == "whole":
        yield from read.accept("</tool_call>")
        yield from read.peek()
    return ""
