"""Test how a response is read from the events of a recording."""

from msgspec import Raw, to_builtins

from gateway.errors import Problem
from gateway.events import (
    Annotation,
    BuiltinItem,
    Failure,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgsDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolInputDelta,
    Usage,
)
from gateway.recording import (
    EndEntry,
    Recording,
    RequestEntry,
    ResponseDataEntry,
    RoundEndEntry,
    UpstreamDataEntry,
    recorded_response,
)
from support.recordings import add

LOST = Problem(502, "It broke.", "upstream_lost")


def recording_with(*rounds, over=None):
    """Return a recording with rounds: a list of events, and the problem that ends it."""
    made = Recording("1", "2026-11-22T10:00:00.000+00:00", 1 << 20)
    add(made, RequestEntry, path="/v1/chat/completions", body=b"{}")
    for events, problem in rounds:
        for event in events:
            add(made, UpstreamDataEntry, call=1, data=b"x", events=[event])
        add(made, RoundEndEntry, problem=problem)
        add(made, ResponseDataEntry, data=b"x")
    if over:
        made.end(over)
    return made


def response_of(*rounds, over=None):
    return to_builtins(recorded_response(recording_with(*rounds, over=over)))


def test_response_has_text_reasoning_calls_and_finish_of_each_choice():
    events = [
        ReasoningDelta(0, "Let "), ReasoningDelta(0, "me see."), TextDelta(0, "Well"), TextDelta(1, "No"),
        ToolCallStart(0, 0, "c1", "f"), ToolArgsDelta(0, 0, '{"a"'), ToolArgsDelta(0, 0, ":1}"), ToolCallEnd(0, 0),
        ToolCallStart(0, 1, "c2", "g"), ToolInputDelta(0, 1, "in"), ToolCallEnd(0, 1, complete=False),
        RefusalDelta(1, "I can't."), Annotation(1, Raw(b"{}")), BuiltinItem(1, Raw(b'{"type": "web_search_call"}')),
        Finish(0, "tool_calls"), Finish(1, "stop"),
    ]  # fmt: skip
    first, second = response_of((events, None))["choices"]
    assert first == {
        "reasoning": "Let me see.",
        "text": "Well",
        "refusal": "",
        "tool_calls": [
            {"id": "c1", "name": "f", "arguments": '{"a":1}', "complete": True},
            {"id": "c2", "name": "g", "arguments": "in", "complete": False},
        ],
        "gateway_tools": [],
        "finish_reason": "tool_calls",
    }
    assert (second["text"], second["refusal"], second["finish_reason"]) == ("No", "I can't.", "stop")
    assert second["gateway_tools"] == [{"type": "web_search_call"}]


def test_response_omits_an_attempt_that_another_one_replaced():
    found = response_of(([TextDelta(0, "Hal")], LOST), ([TextDelta(0, "Hello")], None))
    assert [one["text"] for one in found["choices"]] == ["Hello"]


def test_response_keeps_the_output_before_its_failure():
    over = EndEntry(1.0, 502, False, LOST, ["estimated:usage"])
    found = response_of(([TextDelta(0, "Hal"), Failure(LOST)], LOST), over=over)
    assert found["choices"][0]["text"] == "Hal" and found["choices"][0]["finish_reason"] is None
    assert (found["status"], found["error"], found["message"]) == (502, "upstream_lost", "It broke.")
    assert found["warnings"] == ["estimated:usage"]


def test_response_usage_is_the_sum_of_the_last_one_of_each_round():
    first = [Usage(1, 1), Usage(10, 5, cached=4, reasoning=2)]
    found = response_of((first, None), ([Usage(20, 6)], None))
    assert found["usage"] == {"input": 30, "cached": 4, "output": 11, "reasoning": 2}


def test_response_of_a_running_request_has_no_status():
    assert to_builtins(recorded_response(Recording("1", "", 1))) == {
        "status": None, "error": None, "message": None, "choices": [], "usage": None, "warnings": [],
    }  # fmt: skip
