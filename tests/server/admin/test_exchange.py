"""Test the details of one request: times, tokens, warnings, failure, conversation and likely formats."""

import asyncio
import json

import pytest
from msgspec import to_builtins

from gateway.code_texts import error_advice
from gateway.errors import Problem
from gateway.events import Finish, TextDelta, ToolArgsDelta, ToolCallStart, Usage
from gateway.recording import (
    EndEntry,
    PreparedEntry,
    Recording,
    RequestEntry,
    ResponseDataEntry,
    ResponseHeadersEntry,
    RoundEndEntry,
    UpstreamDataEntry,
    UpstreamErrorEntry,
    UpstreamRequestEntry,
)
from gateway.server.admin import exchange_failure
from gateway.server.admin.exchange import conversation_view, exchange_detail
from gateway.server.admin.exchange_failure import has_failed
from gateway.server.observability.minute_counts import MinuteCounts
from support.app import gateway
from support.recordings import add
from support.upstream import HELLO, KEY, chunk, stream, whole

ON = {"inspector": {"enabled": True}}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hello"}], "tools": TOOLS}).encode()
MISTRAL = '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}]'
LOADING = Problem(503, "Loading.", "model_loading")


def recording_of(*entries, id="1", over=None, body=BODY, agent=None):
    made = Recording(id, "2026-11-22T10:00:00.000+00:00", 1 << 20)
    add(made, RequestEntry, path="/v1/chat/completions", body=body, headers={"user-agent": agent} if agent else {})
    for kind, members in entries:
        add(made, kind, **members)
    if over:
        made.end(over)
    return made


def prepared(format="hermes_json"):
    names = {"model": "m", "backend": "up", "upstream_model": "big"}
    return PreparedEntry, {**names, "format": format, "reason": "configured"}


def upstream_data(*events):
    return UpstreamDataEntry, {"call": 1, "data": b"x", "events": list(events)}


PUT = UpstreamRequestEntry, {"call": 1, "backend": "up", "path": "/v1/chat/completions", "body": BODY}


def detail_of(recording, recent=None, minutes=(), secrets=()):
    return to_builtins(exchange_detail(recording, recent or [recording], minutes, secrets))


def over(status=200, problem=None, ledger=(), **line):
    return EndEntry(1.0, status, False, problem, [*ledger], line)


# Details


def test_exchange_names_the_model_at_the_backend_and_the_client():
    found = detail_of(recording_of(prepared(), PUT, over=over(), agent="OpenAI/Python 1.99.2"))
    assert (found["upstream_model"], found["reason"], found["client"]) == ("big", "configured", "OpenAI Python")
    assert detail_of(recording_of())["client"] == detail_of(recording_of())["upstream_model"] == ""
    assert detail_of(recording_of(agent=" "))["client"] == ""


def test_exchange_links_the_requests_around_it():
    first, second, third = recent = [recording_of(id=name) for name in "123"]
    recent.insert(2, Recording("empty", "", 1))
    found = detail_of(second, recent)
    assert (found["older"]["id"], found["newer"]["id"]) == ("1", "3")
    assert detail_of(first, recent)["older"] is detail_of(third, recent)["newer"] is None


def test_exchange_has_tokens_of_each_kind_and_names_the_estimated_ones():
    line = {"input_tokens": 10, "cached_tokens": 4, "output_tokens": 7, "reasoning_tokens": 5}
    ledger = ["estimated:usage.reasoning_tokens", "estimated:other", "repaired:usage"]
    found = detail_of(recording_of(over=over(ledger=ledger, **line)))["tokens"]
    assert found == {
        "input": 10, "cached": 4, "output": 7, "reasoning": 5, "text": 2, "estimated": ["usage.reasoning_tokens"],
    }  # fmt: skip
    assert detail_of(recording_of())["tokens"]["output"] is detail_of(recording_of())["tokens"]["text"] is None


@pytest.mark.parametrize(
    ("warning", "n"),
    [
        ("repaired:tool_calls.function.arguments", 5),
        ("unread:tool_calls=mistral", 3),
        ("estimated:usage", 6),
        ("unenforced:empty", 6),
        ("forwarded:surprise", 2),
        ("dropped:seed", 0),
        ("synthesised:tool_calls.id", 5),
    ],
)
def test_exchange_warning_has_words_and_its_entry(warning, n):
    entries = (
        prepared(), PUT, upstream_data(TextDelta(0, "a")), upstream_data(ToolCallStart(0, 0, "c", "f")), upstream_data(ToolArgsDelta(0, 0, "{}")),
        upstream_data(Finish(0, "stop"), Usage(1, 1)), (RoundEndEntry, {}),
    )  # fmt: skip
    found = detail_of(recording_of(*entries, over=over(ledger=[warning])))
    assert found["warning_entries"] == {warning: n} and found["warnings"][0]["entry"] == warning


def test_exchange_warning_about_output_that_is_not_recorded_has_no_entry():
    found = detail_of(recording_of(over=over(ledger=["estimated:usage", "renamed:x"])))
    assert found["warning_entries"] == {} and len(found["warnings"]) == 2


def test_exchange_has_the_status_that_the_client_received():
    assert detail_of(recording_of())["client_status"] is None
    began = ResponseHeadersEntry, {"status": 200}
    assert detail_of(recording_of(began, over=over(499)))["client_status"] == 200


# Failures


def test_exchange_failure_has_the_words_of_the_backend_and_advice():
    refused = UpstreamErrorEntry, {"call": 1, "status": 503, "content_type": "text/plain", "body": b"no k3y: loading"}
    minutes = [
        MinuteCounts(1, groups={(503, "model_loading", "", "m", "up"): (3, 0.0), (503, "x", "", "m", "up"): (9, 0.0)}),
        MinuteCounts(2, groups={(503, "model_loading", "Loading.", "m", "up"): (2, 0.0)}),
    ]
    sent = ResponseDataEntry, {"data": b"loading, k3y"}
    made = recording_of(prepared(), PUT, refused, sent, over=over(503, LOADING, model="m", backend="up"))
    assert has_failed(made)
    assert detail_of(made, minutes=minutes, secrets=[b"k3y"])["failure"] == {
        "status": 503,
        "code": "model_loading",
        "message": "Loading.",
        "backend": "up",
        "upstream_status": 503,
        "content_type": "text/plain",
        "body": "no ***: loading",
        "cut": None,
        "n": 3,
        "sent": "loading, ***",
        "advice": error_advice(503, "model_loading"),
        "equal": 5,
    }


def test_exchange_failure_shows_the_beginning_of_a_long_error(monkeypatch):
    monkeypatch.setattr(exchange_failure, "_BODY", 4)
    refused = UpstreamErrorEntry, {"call": 1, "status": 500, "content_type": "", "body": b"a long error"}
    found = detail_of(recording_of(PUT, refused, over=over(502, Problem(502, "No."))))["failure"]
    assert (found["body"], found["cut"], found["code"]) == ("a lo", 12, "server_error")


def test_exchange_without_a_backend_fails_without_its_words():
    found = detail_of(recording_of(over=over(499)))["failure"]
    assert (found["backend"], found["upstream_status"], found["n"], found["equal"]) == ("", None, None, 0)


def test_exchange_that_runs_or_is_complete_has_no_failure():
    for recording in (recording_of(), recording_of(over=over())):
        assert detail_of(recording)["failure"] is None and not has_failed(recording)
    assert not has_failed(Recording("1", "", 1))


async def test_exchange_counts_equal_failures():
    refusals = [whole({"error": f"no {KEY}"}, 500)] * 2
    async with gateway(*refusals, model={"backends": ["up"], "retries": 0}, **ON) as site:
        for name in ("one", "two"):
            await site.chat(headers={"x-request-id": name})
        found = (await site.client.get("/admin/exchanges/two")).json()
    failure = found["failure"]
    assert (failure["equal"], failure["backend"], failure["upstream_status"]) == (2, "up", 500)
    assert KEY not in json.dumps(found) and "no ***" in failure["body"]
    assert found["older"]["id"] == "one" and found["times"]["attempts"][0]["status"] == 500


# Conversation


def view(recording, secrets=()):
    return to_builtins(conversation_view(recording, secrets))


def test_conversation_shows_what_the_model_received_and_the_response():
    body = BODY.replace(b"Hello", b"Hello k3y")
    put = UpstreamRequestEntry, {**PUT[1], "body": body}
    found = view(recording_of(prepared(), put, upstream_data(TextDelta(0, "Hi k3y")), over=over()), [b"k3y"])
    assert found["received"]["messages"][0]["text"] == "Hello ***" and found["sent"]["messages"][0]["text"] == "Hello"
    assert found["received"]["tools"][0]["name"] == "f" and found["response"]["choices"][0]["text"] == "Hi ***"
    assert found["looks_like"] == []


def test_conversation_of_a_request_without_a_backend_shows_what_the_client_sent():
    found = view(recording_of(over=over(404)))
    assert found["received"] is None and found["sent"]["messages"][0]["text"] == "Hello"
    assert view(Recording("1", "", 1))["sent"] is None


@pytest.mark.parametrize(
    ("events", "ended", "title"),
    [
        (
            [TextDelta(0, MISTRAL), Finish(0, "stop")],
            over(),
            "No tool was called, but the text has the markup of mistral.",
        ),
        ([TextDelta(0, "Hi"), Finish(0, "length")], over(), "The token limit cut the response off."),
        ([TextDelta(0, "Hi"), Finish(0, "stop")], over(), None),
        ([TextDelta(0, "Hi")], over(502, LOADING), None),
        ([TextDelta(0, "Hi")], None, None),
    ],
    ids=["markup", "token limit", "well", "failed", "running"],
)
def test_conversation_has_a_verdict_on_a_whole_response_that_is_not_as_it_should_be(events, ended, title):
    found = view(recording_of(prepared(), PUT, upstream_data(*events), over=ended))["verdict"]
    assert (found and found["title"]) == title


@pytest.mark.parametrize(
    ("events", "tools", "formats"),
    [
        ([TextDelta(0, MISTRAL)], True, ["mistral"]),
        ([TextDelta(0, MISTRAL)], False, []),
        ([TextDelta(0, MISTRAL), ToolCallStart(0, 0, "c", "f")], True, []),
        ([], True, []),
    ],
    ids=["markup", "no tools", "a call", "no text"],
)
def test_conversation_names_formats_if_tools_were_offered_and_none_was_called(events, tools, formats):
    body = BODY if tools else BODY.replace(b"tools", b"other")
    put = UpstreamRequestEntry, {**PUT[1], "body": body}
    found = view(recording_of(prepared(), put, upstream_data(*events), body=body))["looks_like"]
    assert [one["format"] for one in found if one["calls"]][: len(formats)] == formats


async def test_conversation_of_a_call_in_another_format_names_it():
    script = stream(chunk("So. " + MISTRAL), chunk(finish="stop"))
    async with gateway(script, model={"backends": ["up"], "format": "hermes_json"}, **ON) as site:
        await site.chat(headers={"x-request-id": "one"}, stream=True, tools=TOOLS)
        found = (await site.client.get("/admin/exchanges/one/conversation")).json()
    assert found["looks_like"][0] == {"format": "mistral", "calls": True}


async def test_exchange_of_a_running_request_has_the_times_so_far():
    async with gateway(HELLO, **ON) as site:
        await site.chat(headers={"x-request-id": "one"}, stream=True)
        recording = site.app.state.telemetry.recorder.recent[-1]
        recording.entries = recording.entries[:-1]
        recording.over = False
        known, talk = await asyncio.gather(
            site.client.get("/admin/exchanges/one"), site.client.get("/admin/exchanges/one/conversation")
        )
    assert known.json()["live"] and known.json()["times"]["end"] is None and known.json()["times"]["first_token"] > 0
    assert talk.json()["response"]["status"] is None and talk.json()["response"]["choices"][0]["text"]
