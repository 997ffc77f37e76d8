"""Test the times of one request: attempts, and parts of the output."""

from msgspec import json, to_builtins

from gateway.errors import Problem
from gateway.events import Finish, ReasoningDelta, TextDelta, ToolArgsDelta, ToolCallStart
from gateway.recording import (
    EndEntry,
    PreparedEntry,
    Recording,
    RequestEntry,
    ResponseHeadersEntry,
    RoundEndEntry,
    UpstreamDataEntry,
    UpstreamErrorEntry,
    UpstreamHeadersEntry,
    UpstreamRequestEntry,
)
from gateway.server.admin.exchange_times import exchange_times

PREPARED = {"model": "m", "backend": "up", "upstream_model": "big", "format": "auto", "reason": ""}


def put(t, call=1, backend="up"):
    return UpstreamRequestEntry(t, call, backend, "/v1/chat/completions", b"{}")


def read(t, *events, call=1, data=b"x"):
    return UpstreamDataEntry(t, call, data, json.encode(events) if events else b"")


def times_of(*entries):
    recording = Recording("1", "", 1 << 20)
    recording.entries = [RequestEntry(0.0, "/v1/chat/completions", b"{}"), *entries]
    return to_builtins(exchange_times(recording))


def test_times_of_a_request_without_a_backend_are_unknown():
    found = times_of(EndEntry(0.5, 404, False))
    assert found == {
        "pace": {"bars": [0] * 120, "first_byte": None, "silences": []},
        "attempts": [], "parts": [], "prepared": None, "queue_start": None, "queue_end": None, "connected": None,
        "first_byte": None, "first_token": None, "client_start": None, "end": 0.5,
    }  # fmt: skip


def test_times_have_queue_connection_first_byte_and_each_part():
    found = times_of(
        PreparedEntry(0.1, **PREPARED),
        put(0.2),
        UpstreamHeadersEntry(0.6, 1, "text/event-stream", sent=0.3, connected=0.4),
        read(0.7),
        ResponseHeadersEntry(0.75, 200),
        read(0.8, ReasoningDelta(0, "a")),
        read(0.9, ReasoningDelta(0, "b")),
        read(1.0, TextDelta(0, "c"), ToolCallStart(0, 0, "id", "f")),
        read(1.1, ToolArgsDelta(0, 0, "{}")),
        read(1.2, ToolCallStart(0, 1, "id", "g"), Finish(0, "stop")),
        RoundEndEntry(1.3),
        EndEntry(1.4, 200, False),
    )
    assert found["parts"] == [
        {"kind": "reasoning", "name": "", "choice": 0, "entry": 6, "start": 0.8, "end": 0.9, "pieces": 2},
        {"kind": "text", "name": "", "choice": 0, "entry": 8, "start": 1.0, "end": 1.0, "pieces": 1},
        {"kind": "tool_call", "name": "f", "choice": 0, "entry": 8, "start": 1.0, "end": 1.1, "pieces": 2},
        {"kind": "tool_call", "name": "g", "choice": 0, "entry": 10, "start": 1.2, "end": 1.2, "pieces": 1},
    ]
    (attempt,) = found["attempts"]
    assert attempt == {
        "call": 1, "backend": "up", "model": "big", "path": "/v1/chat/completions", "started": 0.2, "wait": None,
        "sent": 0.3, "connected": 0.4, "answered": 0.6, "first_byte": 0.7, "ended": 1.3, "status": 200, "error": None,
    }  # fmt: skip
    assert {name: found[name] for name in ("prepared", "queue_start", "queue_end", "connected")} == {
        "prepared": 0.1, "queue_start": 0.2, "queue_end": 0.3, "connected": 0.4,
    }  # fmt: skip
    assert (found["first_byte"], found["first_token"], found["client_start"], found["end"]) == (0.7, 0.8, 0.75, 1.4)


def test_times_have_the_wait_before_each_attempt():
    problem = Problem(503, "Busy.", "server_is_overloaded")
    first, second, third = times_of(
        put(0.0),
        UpstreamErrorEntry(0.1, 1, 503, "", b"busy", "1", 0.05),
        RoundEndEntry(0.2, problem),
        put(1.2, 2, "other"),
        RoundEndEntry(1.3, Problem(502, "No.")),
        put(1.4, 3),
        read(1.5, TextDelta(0, "a"), call=3),
    )["attempts"]
    assert (first["status"], first["error"], first["ended"]) == (503, "server_is_overloaded", 0.2)
    assert (second["backend"], second["wait"], second["status"], second["error"]) == (
        "other",
        1.0,
        None,
        "server_error",
    )
    assert (third["status"], third["ended"], third["first_byte"]) == (None, None, 1.5)


def test_times_of_tools_at_the_gateway_belong_to_no_attempt():
    found = times_of(put(0.0), RoundEndEntry(0.1), read(0.2, call=0), RoundEndEntry(0.3), EndEntry(0.4, 200, False))
    (attempt,) = found["attempts"]
    assert (attempt["ended"], attempt["first_byte"]) == (0.1, None)


def test_pace_counts_the_pieces_of_the_output_and_finds_silences():
    found = times_of(
        put(0.0),
        read(0.5, ReasoningDelta(0, "a"), TextDelta(0, "b")),
        read(0.9, ToolCallStart(0, 0, "id", "f")),
        read(2.5, ToolArgsDelta(0, 0, "{}")),
        read(2.9, data=b""),
        RoundEndEntry(3.0, events=json.encode([TextDelta(0, "c")])),
    )["pace"]
    assert {place: count for place, count in enumerate(found["bars"]) if count} == {20: 2, 100: 1, 119: 1}
    assert (found["first_byte"], found["silences"]) == (0.5, [(0.9, 2.5)])


def test_pace_of_a_recording_without_entries_is_empty():
    assert sum(exchange_times(Recording("1", "", 1)).pace.bars) == 0
