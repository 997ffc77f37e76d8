"""No format was named: tagged thoughts and calls are recognised by what the model writes.

A net under a backend that parses by itself, and enough for one that does not, as long as the model marks its calls by
`<tool_call>` or `<function=`.  What follows `<tool_call>` decides between JSON and XML.
"""

from gateway.formats import hermes_json, qwen_xml, think
from gateway.formats.format import Context, Emit
from gateway.formats.reader import Markers, Reader, Step

_TOP = Markers(think.THINK, "<tool_call>", "<function=")


def parse(read: Reader, emit: Emit, context: Context) -> Step:
    return (yield from think.with_calls(read, emit, context, _TOP, lambda mark: _calls(read, emit, context, mark)))


def _calls(read: Reader, emit: Emit, context: Context, mark: str) -> Step:
    if mark == "<tool_call>" and (yield from read.peek()) == "{":
        return (yield from hermes_json.call(read, emit))
    return (yield from qwen_xml.calls(read, emit, context, mark))
