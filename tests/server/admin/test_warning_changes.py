"""Test the texts before and after that a warning is about."""

import json

import pytest

from gateway.recording import Recording, RequestEntry, ResponseDataEntry, UpstreamDataEntry, UpstreamRequestEntry
from gateway.server.admin import exchange
from gateway.server.admin.exchange import TextChange, text_changes
from support.app import gateway
from support.upstream import call, chunk, stream

ON = {"inspector": {"enabled": True}}


def recording(request_body, put, *more):
    made = Recording("1", "", 1 << 20)
    made.add(
        RequestEntry(
            0.0,
            "/v1/chat/completions",
            request_body if isinstance(request_body, bytes) else json.dumps(request_body).encode(),
        )
    )
    made.add(UpstreamRequestEntry(0.0, 1, "up", "/v1/chat/completions", json.dumps(put).encode()))
    for entry in more:
        made.add(entry)
    return made


@pytest.mark.parametrize(
    ("warning", "request_body", "put", "change"),
    [
        ("dropped:stop", {"stop": ["a"]}, {}, TextChange('["a"]', "")),
        ("translated:a.b", {"a": {"b": 1}}, {"a": {"b": "1"}}, TextChange("1", '"1"')),
        ("dropped:tools.x", {"tools": [{"function": {"x": 1}}, {"x": 2}, 3]}, {"tools": [{}]}, TextChange("1\n2", "")),
        ("forwarded:odd", {"odd": 1}, {"odd": 1}, None),
        ("emulated:empty", {}, {}, None),
        ("dropped:stop", b"{", {}, None),
        ("dropped:a.b", {"a": [[{"b": 1}], {"function": 1}]}, {"a": 1}, None),
    ],
)
def test_change_of_a_field_compares_both_requests(warning, request_body, put, change):
    assert text_changes(recording(request_body, put), {warning: 0}).get(warning) == change


def test_change_of_output_compares_a_read_with_what_the_client_got_of_it():
    read, wrote = UpstreamDataEntry(0.1, 1, b"raw"), ResponseDataEntry(0.2, b"sent")
    assert text_changes(recording({}, {}, read, wrote), {"repaired:x": 2}) == {"repaired:x": TextChange("raw", "sent")}
    assert text_changes(recording({}, {}, read), {"repaired:x": 2}) == {"repaired:x": TextChange("raw", "")}


def test_change_has_a_few_values_and_characters(monkeypatch):
    monkeypatch.setattr(exchange, "_VALUES", 3)
    monkeypatch.setattr(exchange, "_LONGEST", 4)
    assert text_changes(recording({"n": [{"a": 1}] * 9}, {}), {"dropped:n.a": 0}) == {
        "dropped:n.a": TextChange("1\n1\n", "")
    }


async def test_conversation_has_the_changes_of_its_warnings():
    script = stream(chunk(tool_calls=call("f", "{'a': 1}", id="call_1")), chunk(finish="tool_calls"))
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    async with gateway(script, **ON) as site:
        await site.chat(headers={"x-request-id": "one"}, stream=True, tools=tools)
        changes = (await site.client.get("/admin/exchanges/one/conversation")).json()["changes"]
    (change,) = (change for entry, change in changes.items() if entry.startswith("repaired:"))
    assert "{'a': 1}" in change["before"] and '{\\"a\\": 1}' in change["after"]
