"""Thoughts between tags, nothing else:  <think>…</think>  text

White space just inside the opening tag, and around the tags in the text, is not part of either; what stands before
the closing tag is kept as the model wrote it.  A thought that is never closed is a thought to its end.
"""

from collections.abc import Callable

from gateway.formats.format import Context, Emit
from gateway.formats.reader import Markers, Reader, Step

THINK = "<think>"
_THINK = Markers(THINK)
_END_THINK = Markers("</think>")


def parse(read: Reader, emit: Emit, context: Context) -> Step:
    yield from opened(read, emit, context)
    while (yield from read.trimmed_until(_THINK, emit.text)):
        yield from thought(read, emit)
    return ""


def with_calls(read: Reader, emit: Emit, context: Context, markers: Markers, call: Callable[[str], Step]) -> Step:
    """Thoughts, and calls that the other markers announce; where no tools were offered, those are text.

    call: reads on after a marker, which the Reader has recorded.
    """
    if not context.tools:
        return (yield from parse(read, emit, context))
    yield from opened(read, emit, context)
    while mark := (yield from read.trimmed_until(markers, emit.text)):
        if mark == THINK:
            yield from thought(read, emit)
        else:
            read.record(read.marker)
            yield from call(mark)
    return ""


def opened(read: Reader, emit: Emit, context: Context) -> Step:
    """The thought that the prompt has opened, if it has."""
    if context.thought_open:
        yield from read.accept(THINK)  # some templates open it, and the model writes the tag again
        yield from thought(read, emit)
    return ""


def thought(read: Reader, emit: Emit) -> Step:
    """A thought whose tag was taken, up to its end tag."""
    yield from read.peek()
    yield from read.until(_END_THINK, emit.reasoning)
    return (yield from read.peek())
