"""Test the summary of a recording: the last text of the user, called tools, and warnings in words."""

import json

import pytest

from gateway.errors import Problem
from gateway.recording import (
    EndEntry,
    PreparedEntry,
    Recording,
    RequestEntry,
    RoundEndEntry,
    UpstreamDataEntry,
    summarize,
    summary,
)


def recording(*entries, body=b"{}"):
    made = Recording("r", "2026-01-31T12:00:00.000+00:00", 1 << 20)
    for entry in (RequestEntry(0.0, path="/v1/messages", body=body), *entries):
        made.add(entry)
    return made


def events(*names):
    return json.dumps(
        [{"event": "Text", "text": "a"}, *({"event": "ToolStart", "name": name} for name in names)]
    ).encode()


def user(content):
    return {"role": "user", "content": content}


@pytest.mark.parametrize(
    ("body", "prompt"),
    [
        ({"messages": [user("first"), user("  last\n one "), {"role": "assistant", "content": "no"}]}, "last one"),
        ({"messages": [user([{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}])]}, "a b"),
        ({"messages": [user("asked"), user([{"type": "tool_result", "content": "x"}])]}, "asked"),
        ({"messages": [{"role": "user"}, {"role": "system", "content": "no"}]}, ""),
        ({"input": "text"}, "text"),
        ({"input": [user([{"type": "input_text", "text": "item"}]), {"type": "function_call_output", "output": "x"}]}, "item"),
        ({"prompt": "text"}, "text"),
        ({"prompt": ["one", "two"]}, "two"),
        ({"prompt": [1, 2]}, ""),
        ({"messages": [user([{"text": 5}])]}, ""),
        ({"messages": "no"}, ""),
        ([], ""),
        ({"messages": [user("a" * 200)]}, "a" * 160),
        ({"messages": [user("key secret-1, http://u:p@h")]}, "key ********, http://***@h"),
    ],
)  # fmt: skip
def test_summary_has_the_beginning_of_the_last_text_of_the_user(body, prompt):
    found = summarize(recording(body=json.dumps(body).encode()), [b"secret-1"])
    assert found.prompt == prompt


def test_summary_of_a_body_that_is_no_text_has_no_prompt():
    assert summarize(recording(body=b'{"prompt": "\xff"}'), ()).prompt == ""


def test_summary_of_a_complete_recording_has_tools_and_warnings(monkeypatch):
    monkeypatch.setattr(summary, "_TOOLS", 3)
    line = {"key": "ci", "model": "m", "first_content": 0.5, "input_tokens": 7, "output_tokens": 2}
    reads = [UpstreamDataEntry(0.1, 1, b"x", events("f", "g", "f")), RoundEndEntry(0.2, events=events("h", "i"))]
    made = recording(PreparedEntry(0.0, "m", "up", "m", "auto", "why"), *reads)
    assert summarize(made, ()).tools_called == [], "it is still running"
    made.end(EndEntry(0.3, 502, cut=False, problem=Problem(502, "no"), ledger=["dropped:stop"], line=line))
    found = summarize(made, ())
    assert found.tools_called == ["f", "g", "h"]
    assert (found.key, found.first_token, found.input_tokens, found.output_tokens) == ("ci", 0.5, 7, 2)
    assert (found.live, found.status, found.error, found.duration) == (False, 502, "server_error", 0.3)
    assert [one.title for one in found.warnings] == ["stop left out"] and found.ledger == ["dropped:stop"]
    assert (found.backend, found.format, found.endpoint) == ("up", "auto", "/v1/messages")


def test_summary_of_few_tools_names_all():
    made = recording(UpstreamDataEntry(0.1, 1, b"x", events("f")))
    made.end(EndEntry(0.3, 200, cut=False))
    assert summarize(made, ()).tools_called == ["f"]


def test_summary_of_a_recording_without_a_request_has_its_endpoint_from_the_log():
    made = Recording("r", "", 1)
    made.end(EndEntry(0.3, 404, cut=True, line={"endpoint": "/v1/responses"}))
    found = summarize(made, ())
    assert (found.endpoint, found.prompt, found.first_byte) == ("/v1/responses", "", None)
