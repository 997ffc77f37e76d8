"""Test that the work of a delta does not grow with the deltas before it, by function calls and memory, not by time."""

import gc
import sys
import tracemalloc

import pytest

from gateway.events import ReasoningDelta, RefusalDelta, TextDelta, ToolArgsDelta, ToolCallStart, ToolInputDelta
from support.format_events import untraced
from support.responses import entry, new_encoder

SMALL, LARGE = 1 << 10, 16 << 10
DELTAS = {
    "text": ([], TextDelta(0, " the")),
    "logprobs": ([], TextDelta(0, " the", (entry(" the", -1),))),
    "white space": ([], TextDelta(0, "\n")),
    "reasoning": ([], ReasoningDelta(0, " the")),
    "refusal": ([], RefusalDelta(0, " the")),
    "arguments": ([ToolCallStart(0, 0, "call_1", "f")], ToolArgsDelta(0, 0, " the")),
    "input": ([ToolCallStart(0, 0, "call_1", "f", "custom")], ToolInputDelta(0, 0, " the")),
}


def work(out, before, delta, times):
    """Return the function calls of all deltas, and the peak memory of a further delta, the least of some measurements."""
    calls = 0

    def counting(_, event, __):
        nonlocal calls
        calls += event in ("call", "c_call")

    for event in before:
        out.encode([event])
    gc.disable()  # callbacks of the collector would be counted
    sys.setprofile(counting)
    try:
        for _ in range(times):
            out.encode([delta])
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls, min(memory(out, delta) for _ in range(16))


def memory(out, delta):
    tracemalloc.start()
    try:
        out.encode([delta])
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("what", DELTAS)
@untraced
def test_encoder_work_per_delta_does_not_grow_with_the_response(what, stream):
    before, delta = DELTAS[what]
    (few, small), (many, large) = (
        work(new_encoder(stream, logprobs=True), before, delta, times) for times in (SMALL, LARGE)
    )
    assert many <= few * (LARGE // SMALL) and large <= small + 64
