"""Test streams that have messages beside or instead of deltas."""

import pytest

from gateway.events import Event, Finish, ReasoningDelta, TextDelta, ToolCallStart, Usage
from gateway.warnings import Warnings
from support.format_events import calls, strings, written
from support.pipeline import DONE, call, chunk, events_of, parser_settings, singly, sse

COUNTS = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}


def message(finish=None, usage=None, **members) -> bytes:
    """Return the frame of a chunk with a message, in the form of MiniMax's last one."""
    choice = {"finish_reason": finish, "index": 0, "message": {"role": "assistant", "name": "MiniMax AI", **members}}
    return sse({"id": "1", "choices": [choice], "object": "chat.completion", "usage": usage})


def both_ways(frames) -> tuple[list[Event], list[str]]:
    """Return the events and the warnings of the frames, which must not depend on how they are cut."""
    data = b"".join(frames)
    known, ledger = Warnings(), Warnings()
    whole = events_of([data], parser_settings("native", ledger=known))
    assert (
        events_of(singly(data), parser_settings("native", ledger=ledger)) == whole and ledger.listed() == known.listed()
    )
    return whole, known.listed()


@pytest.mark.parametrize("end", [b"", DONE])
def test_message_that_repeats_the_deltas_brings_its_reason_and_usage_only(end):
    deltas = [chunk(role="assistant", reasoning_content="Hm."), chunk(content="Hel"), chunk(content="lo")]
    found, warnings = both_ways([*deltas, message("stop", COUNTS, content="Hello", reasoning_content="Hm."), end])
    assert [event for event in found if type(event) in (TextDelta, ReasoningDelta, Finish)] == [
        ReasoningDelta(0, "Hm."),
        TextDelta(0, "Hello"),
        Finish(0, "stop"),
    ]
    assert Usage(3, 5) in found and "repaired:content" in warnings


def test_message_that_repeats_a_tool_call_makes_no_second_one():
    one = [call(0, "c", "f", '{"a": "x"}')]
    found, _ = both_ways([chunk(tool_calls=one), message("tool_calls", content="", tool_calls=one), DONE])
    assert [event.id for event in found if type(event) is ToolCallStart] == ["c"]
    assert calls(written(found)) == [("f", '{"a": "x"}')] and found[-2] == Finish(0, "tool_calls")


@pytest.mark.parametrize(
    "frames",
    [
        [chunk(role="assistant"), message("stop", content="Hello")],
        [chunk(role="assistant", content=""), message(content="Hel"), message("stop", content="lo")],
        [message(content="Hel"), message(content="l"), message("stop", content="o")],
    ],
)
def test_messages_without_content_in_deltas_before_count(frames):
    found, warnings = both_ways([*frames, DONE])
    assert strings(written(found), "text") == "Hello" and "repaired:content" not in warnings
