"""Test what the page of a request shows of it."""

from msgspec import json

from gateway.errors import Problem
from gateway.events import TextDelta
from gateway.recording import EndEntry, PreparedEntry, Recording, RequestEntry, UpstreamDataEntry
from gateway.server.admin.exchange_view import exchange_view

LINE = {
    "model": "m", "backend": "up", "key": "ann", "endpoint": "/v1/chat/completions", "format": "auto",
    "input_tokens": 1234, "cached_tokens": 0, "output_tokens": 30, "reasoning_tokens": 10, "first_content": 0.5,
    "received_bytes": 66, "sent_bytes": 4050,
}  # fmt: skip
PREPARED = PreparedEntry(0.1, model="m", backend="up", upstream_model="big", format="auto", reason="configured")
FIRST = UpstreamDataEntry(0.5, 1, b"x", json.encode([TextDelta(0, "a")]))


def shown(*entries, agent="curl/8", most=1 << 20):
    recording = Recording("1", "2026-11-22T10:00:00.000+00:00", most)
    for entry in (RequestEntry(0.0, "/v1/chat/completions", b"{}", {"user-agent": agent}), *entries):
        recording.end(entry) if isinstance(entry, EndEntry) else recording.add(entry)
    return exchange_view(recording, [recording], [], ()).shown


def test_view_of_a_request_has_its_facts_usage_and_details():
    found = shown(PREPARED, FIRST, EndEntry(2.0, 200, False, None, ["estimated:usage"], LINE))
    assert found.facts == ["/v1/chat/completions", "m at up", "key ann"]
    assert found.usage == [
        ("Input", "1,234"), ("Input, cached", "0"), ("Output", "30"), ("Reasoning", "10"), ("Text and tool calls", "20"),
        ("Output speed", "20 tokens/s"), ("Estimated", "usage"),
    ]  # fmt: skip
    assert found.details == [
        ("Request", "1"), ("Format", "auto: configured"), ("Backend", "up"), ("Model at the backend", "big"),
        ("Client", "curl 8"), ("Bytes", "66 in, 4,050 out"), ("Recording", "4 entries, 600 bytes"),
    ]  # fmt: skip
    assert (
        found.pace.endswith("duration 2.00 s") and found.axis.rows[0].name == "Gateway" and found.picture["stall"] == ""
    )
    assert found.verdict.title.startswith("The response is complete")


def test_view_of_a_request_without_a_backend_leaves_out_what_is_unknown():
    found = shown(EndEntry(0.1, 404, False, Problem(404, "No model."), [], {"input_tokens": 0}), agent="", most=1)
    assert found.facts == [] and {value for _, value in found.usage} == {"–"}
    assert dict(found.details)["Backend"] == dict(found.details)["Client"] == "–" and "Bytes" not in dict(found.details)
    assert found.verdict.look == "bad" and dict(found.details)["Recording"].endswith(", incomplete")


def test_view_of_a_running_request_has_no_end():
    found = shown(PREPARED)
    assert found.facts == ["/v1/chat/completions", "m at up"] and found.verdict.title == "The request is running."
    assert shown(PreparedEntry(0.1, model="m", backend="", upstream_model="", format="", reason="")).facts[1:] == ["m"]
