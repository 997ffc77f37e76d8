"""Llama 3.1 to 3.3:  {"name": "f", "parameters": {…}}; {"name": …}   perhaps after <|python_tag|>

There is no tag, so the names of the offered tools decide: an object at the start of the answer (or after a thought)
that does not name one of them is text, and is known to be from its first foreign key or its name on.
"""

from gateway.formats import think
from gateway.formats.format import Context, Emit
from gateway.formats.json_call import JsonCall
from gateway.formats.reader import Markers, Reader, Step

_TOP = Markers(think.THINK, "<|python_tag|>")


def parse(read: Reader, emit: Emit, context: Context) -> Step:
    if not context.tools:
        return (yield from think.parse(read, emit, context))
    yield from think.opened(read, emit, context)
    yield from _calls(read, emit, context)
    while mark := (yield from read.trimmed_until(_TOP, emit.text)):
        if mark == think.THINK:
            yield from think.thought(read, emit)
            read.marker = ""
        yield from _calls(read, emit, context)
    return ""


def _calls(read: Reader, emit: Emit, context: Context) -> Step:
    """The calls that begin right here, if any, parted by semicolons."""
    read.record(read.marker)
    more = ";"
    while more and (yield from JsonCall(read, emit, context.tools).run()):
        read.record()
        more = yield from read.accept(";")
    read.recorded()
    return ""
