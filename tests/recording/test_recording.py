"""Test recording files and the redaction of secrets and content."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import __version__
from gateway.api import messages
from gateway.errors import Problem
from gateway.events import ExtraField, ReasoningDelta, TextDelta
from gateway.recording import (
    EndEntry,
    PreparedEntry,
    Recording,
    RequestEntry,
    ResponseDataEntry,
    ResponseHeadersEntry,
    RoundEndEntry,
    UnreadableRecording,
    UpstreamDataEntry,
    UpstreamErrorEntry,
    UpstreamRequestEntry,
    parse_recording,
    redact,
    write_lines,
)
from gateway.recording.redaction import redact_stream
from gateway.warnings import Warnings
from support.format_events import untraced
from support.messages import SERVES
from support.paths import TESTS
from support.pipeline import cut
from support.recorded_servers import EXCHANGES
from support.recordings import add, events, recording_of

BODY = {
    "model": "m",
    "messages": [
        {"role": "user", "name": "Bob", "content": "What is the weather in Paris, 75001?"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 9}}]},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "Tells the weather",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius"]}}},
            },
        },
        {"type": "mcp", "server_label": "docs", "headers": {"x-key": "s3cret"}, "authorization": "t0ken"},
    ],
}  # fmt: skip


def made(*entries, most=1 << 20):
    recording = Recording("1", "2026-11-22T10:00:00.000+00:00", most)
    for kind, members in entries:
        add(recording, kind, **members)
    recording.end(EndEntry(t=0.0, status=200, cut=recording.cut))
    return recording


def client_request(body=BODY):
    return RequestEntry, {"path": "/v1/chat/completions", "headers": {}, "body": json.dumps(body).encode()}


def lines(recording, **options):
    return [json.loads(line) for line in write_lines(recording, __version__, redacted=False, **options)]


# Files


def test_recording_file_is_read_as_written():
    recording = made(
        client_request(),
        (UpstreamRequestEntry, {"call": 1, "backend": "up", "path": "/v1", "body": b"{}"}),
        (UpstreamErrorEntry, {"call": 1, "status": 503, "content_type": "", "body": b"no", "retry_after": "1"}),
        (UpstreamDataEntry, {"call": 1, "data": b"\xff\x00", "events": [TextDelta(0, "Hi")]}),
        (RoundEndEntry, {"problem": Problem(502, "It broke.", "upstream_lost")}),
        (ResponseDataEntry, {"data": "ä".encode()}),
    )
    again = parse_recording(b"".join(write_lines(recording, __version__, redacted=False)))
    assert (again.id, again.started, again.over, again.cut) == ("1", recording.started, True, False)
    assert again.entries == recording.entries


def test_recording_file_line_has_its_fields_and_bytes_as_text():
    head, *entries = lines(
        made(
            client_request(),
            (UpstreamDataEntry, {"call": 1, "data": b"\xc3", "events": []}),
            (ResponseDataEntry, {"data": b"a"}),
        )
    )
    assert head == {"schema": "gateway.recording", "version": 1, "gateway": __version__, "id": "1", "started": "2026-11-22T10:00:00.000+00:00", "redacted": False}  # fmt: skip
    assert entries[1:3] == [
        {"n": 1, "t": 0.0, "kind": "read", "call": 1, "data": {"base64": "ww=="}},
        {"n": 2, "t": 0.0, "kind": "wrote", "data": {"text": "a"}, "of": 1},
    ]


def test_recording_file_links_a_write_to_reads_since_the_last_one():
    begun, wrote, ended = (
        (ResponseHeadersEntry, {"status": 200}),
        (ResponseDataEntry, {"data": b"a"}),
        (RoundEndEntry, {}),
    )
    came = (UpstreamDataEntry, {"call": 1, "data": b"a"})
    entries = lines(made(client_request(), begun, wrote, came, came, wrote, wrote, came, ended, wrote))[1:]
    assert [entry.get("of", "-") for entry in entries if entry["kind"] == "wrote"] == ["-", 4, "-", 8]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a recording"),
        (b"GIF89a\xff", "not a recording"),
        (b"{}\n", "not a recording"),
        (b'{"schema":"gateway.recording","version":2,"gateway":"9","id":"1","started":"","redacted":false}\n', "version is 2"),
        (b'{"schema":"gateway.recording","version":1,"gateway":"9","id":"1","started":"","redacted":false}\n', "contains no request"),
        (b'{"schema":"gateway.recording","version":1,"gateway":"9","id":"1","started":"","redacted":false}\n[]\n', "not a recording"),
        (b'{"schema":"gateway.recording","version":1,"gateway":"9","id":"1","started":"","redacted":false}\n{"kind":"dreamt","t":0}\n', "dreamt"),
        (b'{"schema":"gateway.recording","version":1,"gateway":"9","id":"1","started":"","redacted":false}\n{"kind":"asked","t":0}\n', "not a recording: .*path"),
        (b'{"schema":"gateway.recording","version":1,"gateway":"9","id":"1","started":"","redacted":false}\n{"kind":"asked","t":"0","path":"/","body":{"text":""}}\n', "not a recording: .*float"),
    ],
)  # fmt: skip
def test_recording_file_that_is_invalid_is_refused(data, why):
    with pytest.raises(UnreadableRecording, match=why):
        parse_recording(data)


def test_recording_file_without_an_end_is_refused():
    whole = b"".join(write_lines(made(client_request()), __version__, redacted=False))
    with pytest.raises(UnreadableRecording, match="its end is missing"):
        parse_recording(b"".join(whole.splitlines(keepends=True)[:-1]))


def test_recording_that_is_too_long_is_cut():
    recording = made(
        client_request(),
        *((UpstreamDataEntry, {"call": 1, "data": b"x" * 400}) for _ in range(5)),
        most=len(json.dumps(BODY)) + 2000,
    )
    assert recording.cut and len(recording.entries) == 5 and recording.entries[-1].cut
    lines = [*write_lines(recording, __version__, redacted=False)]
    assert parse_recording(b"".join(lines)).cut and [json.loads(line)["n"] for line in lines[1:]] == [0, 1, 2, 3, 4]


def test_recording_without_a_request_has_none():
    assert Recording("1", "", 9).request_entry is None
    assert made((RoundEndEntry, {})).request_entry is None


# Redaction


def hidden(*entries, secrets=(), contents=True):
    before = made(*entries)
    after = redact(before, secrets, contents=contents)
    assert [len(getattr(one, name)) for one in before.entries for name in ("body", "data") if hasattr(one, name)] == [
        len(getattr(one, name)) for one in after.entries for name in ("body", "data") if hasattr(one, name)
    ]
    return after.entries


def test_redaction_masks_content_and_keeps_its_shape():
    body = json.loads(hidden(client_request())[0].body)
    (first, second), (weather, docs) = body["messages"], body["tools"]
    assert first == {"role": "user", "name": "Xxx", "content": "Xxxx xx xxx xxxxxxx xx Xxxxx, 11111?"}
    assert second["content"][0]["image_url"]["url"].startswith("data:image/png;base64,iVBORw0KGgoiVBORw0KGgoiV")
    assert "iVBORw0KGgo" not in second["content"][0]["image_url"]["url"][50:]
    assert weather["function"]["name"] == "get_weather" and weather["function"]["description"] == "Xxxxx xxx xxxxxxx"
    assert weather["function"]["parameters"] == BODY["tools"][0]["function"]["parameters"]
    assert docs == {"type": "mcp", "server_label": "docs", "headers": {"x-key": "******"}, "authorization": "*****"}


def test_redaction_masks_secrets_and_may_keep_content():
    entries = hidden(
        client_request(),
        (UpstreamErrorEntry, {"call": 1, "status": 401, "content_type": "", "body": b"wrong key k3y at http://me:pw@host/"}),
        (UpstreamDataEntry, {"call": 2, "data": b"data: {\"a\": \"k"}),
        (UpstreamDataEntry, {"call": 2, "data": b"3y and ", "events": [TextDelta(0, "it is k3y")]}),
        (RoundEndEntry, {"problem": Problem(502, "Not k3y.")}),
        secrets=[b"k3y"],
        contents=False,
    )  # fmt: skip
    assert b"s3cret" not in entries[0].body and b"t0ken" not in entries[0].body and b"75001" in entries[0].body
    assert entries[1].body == b"wrong key *** at http://*****@host/"
    assert (entries[2].data, entries[3].data) == (b'data: {"a": "*', b"** and ")
    assert events(entries[3]) == [{"event": "Text", "choice": 0, "text": "it is ***"}]
    assert entries[4].problem.message == "Not ***."


@pytest.mark.parametrize(
    "name", [rb"api_key", rb"authorization_token", rb"\u0061pi_key", rb"api\u005fkey", rb"api_\u006Bey"]
)
@pytest.mark.parametrize("contents", [False, True])
def test_redaction_finds_a_secret_by_an_escaped_name(name, contents):
    entry, _ = hidden((UpstreamDataEntry, {"call": 1, "data": b'{"%b": "s3cret"}' % name}), contents=contents)
    assert entry.data == b'{"%b": "******"}' % name


@pytest.mark.parametrize("contents", [False, True])
@pytest.mark.parametrize(
    "name", ["Authorization", "API_KEY", "x-api-key", "apiKey", "OPENAI_API_KEY", "extra_headers", "refresh_token"]
)
def test_redaction_finds_a_secret_by_a_name_in_any_letters(name, contents):
    deep = {"extra_body": {"env": {name: {"any": "s3cret"}, "n": 1}}}
    entry = hidden(client_request(deep), contents=contents)[0]
    assert json.loads(entry.body)["extra_body"]["env"][name] == {"any": "******"}


@pytest.mark.parametrize("name", ["key", "tokens", "secrets_found", "authorized", "prompt_cache_key", "max_tokens"])
def test_redaction_keeps_texts_whose_names_resemble_those_of_secrets(name):
    entry = hidden(client_request({name: "plain"}), contents=False)[0]
    assert json.loads(entry.body)[name] == "plain"


def test_redaction_leaves_a_message_that_can_be_read():
    body = (TESTS / "api" / "messages" / "everything.json").read_bytes()
    masked = hidden((RequestEntry, {"path": "/v1/messages", "body": body}))[0].body
    given, read = [messages.parse_message(json.loads(one), SERVES, Warnings()) for one in (body, masked)]
    assert [tool.name for tool in read.request.tools] == [tool.name for tool in given.request.tools]
    assert [one["role"] for one in read.request.messages] == [one["role"] for one in given.request.messages]
    server = next(one for one in read.hosted.definitions if one.get("authorization"))
    assert set(server["authorization"]) == {"*"} and masked != body


def test_redaction_ignores_a_name_with_an_invalid_escape():
    entry, _ = hidden((UpstreamDataEntry, {"call": 1, "data": rb'{"\q\u0061pi_key": "s3cret"}'}), contents=False)
    assert entry.data == rb'{"\q\u0061pi_key": "s3cret"}'


def test_redaction_keeps_schema_members_named_like_secrets():
    schema = {"type": "object", "properties": {"headers": {"type": "object"}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    assert json.loads(hidden(client_request({"tools": [tool]}))[0].body)["tools"] == [tool]


OWN = {
    "name": "Bob",
    "code": "print(Bob)",
    "pattern": "Bob",
    "id": "Bob",
    "type": "Bob",
    "deep": [{"reason": "Bob", "n": 5}],
}
MASKED = {
    "name": "Xxx",
    "code": "xxxxx(Xxx)",
    "pattern": "Xxx",
    "id": "Xxx",
    "type": "Xxx",
    "deep": [{"reason": "Xxx", "n": 5}],
}


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"content": [{"type": "tool_use", "name": "f", "input": OWN}]}]},
        {"messages": [{"tool_calls": [{"function": {"name": "f", "arguments": OWN}}]}]},
        {"input": [{"type": "tool_search_call", "arguments": OWN}]},
        {"tools": [{"name": "f", "input_examples": [OWN]}]},
        {"prompt": {"id": "p", "variables": OWN}},
        {"documents": [OWN]},
        {"metadata": OWN},
    ],
)
def test_redaction_masks_all_texts_of_an_object_that_is_content(body):
    entry, _ = hidden(client_request({"model": "m", "system": "about Bob", **body}))
    shown = json.dumps({"model": "m", "system": "xxxxx Xxx", **body}).replace(json.dumps(OWN), json.dumps(MASKED))
    assert json.loads(entry.body) == json.loads(shown)


def test_redaction_masks_actions_programs_and_sentences():
    items = [
        {"type": "web_search_call", "action": {"type": "find_in_page", "pattern": "Bob"}},
        {"type": "code_interpreter_call", "code": "print('Bob')"},
        {"type": "mcp_approval_response", "reason": "Bob says so"},
        {"type": "error", "code": "model_not_found", "reason": "max_output_tokens"},
    ]
    entry, _ = hidden(client_request({"input": items}))
    assert json.loads(entry.body)["input"] == [
        {"type": "web_search_call", "action": {"type": "find_in_page", "pattern": "Xxx"}},
        {"type": "code_interpreter_call", "code": "xxxxx('Xxx')"},
        {"type": "mcp_approval_response", "reason": "Xxx xxxx xx"},
        {"type": "error", "code": "model_not_found", "reason": "max_output_tokens"},
    ]


def test_redaction_keeps_schema_members_named_like_content():
    properties = {name: {"type": "string", "enum": ["red"], "pattern": "a+"} for name in ("input", "metadata", "code")}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": properties}}}
    body = {"tools": [tool], "input": "red"}
    assert json.loads(hidden(client_request(body))[0].body) == body


def test_redaction_keeps_markup_and_json_across_chunks():
    output = '<think>Bob is in Paris</think><tool_call>{"name": "get_weather", "arguments": {"city": "M\\u00fcnchen\\n", "x": 1.5e-7}}'
    frames = b"".join(
        b"data: " + json.dumps({"choices": [{"delta": {"content": piece}, "index": i % 1}]}).encode() + b"\r\n\r\n"
        for i, piece in enumerate(output)
    )
    pieces = [frames[i : i + 7] for i in range(0, len(frames), 7)]
    entries = hidden(client_request(), *((UpstreamDataEntry, {"call": 1, "data": piece}) for piece in pieces))
    data = b"".join(entry.data for entry in entries if isinstance(entry, UpstreamDataEntry))
    text = "".join(json.loads(line[6:])["choices"][0]["delta"]["content"] for line in data.splitlines() if line)
    assert text == (
        '<think>Xxx xx xx Xxxxx</think><tool_call>{"name": "get_weather", "arguments": {"city": "X\\u0078xxxxx\\n", "x": 1.1e-1}}'
    )


def test_redaction_treats_each_choice_as_a_text_of_its_own():
    frames = [
        {"choices": [{"index": i % 2, "delta": {"content": piece}}]}
        for i, piece in enumerate(["get_wea", "Bob,", "ther", "Ann"])
    ]
    data = [b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in frames]
    entries = hidden(client_request(), *((UpstreamDataEntry, {"call": 1, "data": one}) for one in data))
    assert [json.loads(entry.data[6:])["choices"][0]["delta"]["content"] for entry in entries[1:-1]] == [
        "get_wea", "Xxx,", "ther", "Xxx",
    ]  # fmt: skip


def test_redaction_masks_the_bytes_of_a_token():
    data = {
        "choices": [{"logprobs": {"content": [{"token": "Bob", "logprob": -0.5, "bytes": [66, 111, 98]}]}}],
        "n": 66,
    }
    entries = hidden(client_request(), (UpstreamDataEntry, {"call": 1, "data": json.dumps(data).encode()}))
    assert json.loads(entries[1].data) == {
        "choices": [{"logprobs": {"content": [{"token": "Xxx", "logprob": -0.5, "bytes": [11, 111, 11]}]}}],
        "n": 66,
    }


def test_redaction_masks_events_and_errors_but_no_known_phrases():
    problem = Problem(400, "Bob: maximum context length exceeded", "context_length_exceeded")
    entries = hidden(
        client_request(),
        (UpstreamDataEntry, {"call": 1, "data": b"", "events": [ReasoningDelta(0, "Bob too")]}),
        (RoundEndEntry, {"problem": problem}),
    )
    assert events(entries[1]) == [{"event": "Reasoning", "choice": 0, "text": "Xxx too"}]
    assert entries[2].problem.message == "Xxx: maximum context length exceeded"


def test_redaction_keeps_an_extra_field_whose_member_of_the_response_is_kept():
    raw = b'{"system_fingerprint": "b1-Bob", "motto": "Bob", "code": "Bob"}'
    fields = [ExtraField(None, name, msgspec.Raw(b'"Bob"')) for name in ("system_fingerprint", "motto", "code")]
    fields.append(ExtraField(None, "system_fingerprint", msgspec.Raw(b'{"json": "Bob"}')))
    entry, _ = hidden((UpstreamDataEntry, {"call": 1, "data": raw, "events": fields}))
    assert json.loads(entry.data) == {"system_fingerprint": "b1-Bob", "motto": "Xxx", "code": "Bob"}
    assert [one["json"] for one in events(entry)] == ["Bob", "Xxx", "Xxx", {"json": "Xxx"}]


def test_redaction_masks_members_of_users_that_resemble_an_extra_field():
    body = b'{"name": "model", "json": "Bob", "more": {"event": "Extra", "name": "motto", "json": "Bob"}}'
    entry, _ = hidden((UpstreamDataEntry, {"call": 1, "data": body}))
    assert [json.loads(entry.data)["json"], json.loads(entry.data)["more"]["json"]] == ["Xxx", "Xxx"]


def test_redaction_masks_unknown_event_names():
    event_list = [
        {"event": "Text", "text": "Bob"},
        {"event": "Wedding", "text": "Ann"},
        {"event": "Text", "text": "by"},
    ]
    entry, _ = hidden((UpstreamDataEntry, {"call": 1, "data": json.dumps(event_list).encode()}))
    assert json.loads(entry.data) == [
        {"event": "Text", "text": "Xxx"}, {"event": "Xxxxxxx", "text": "Xxx"}, {"event": "Text", "text": "xx"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (b"<html>Bob</html>", b"<xxxx>Xxx</xxxx>"),
        (b": Bob\n\nevent: bob\ndata: Bob\n\n", b": Bob\n\nevent: bob\ndata: Xxx\n\n"),
        (b'{"text": "Bob\\u00e9 \\ud83d\\b\\/\\q', b'{"text": "Xxx\\u0078 \\ud83d\\b\\/\\q'),
        ('{"text": "É文𠀀é"'.encode(), '{"text": "ä文𠀀ä"'.encode()),
        (b'{"text": "\xff\xc3Bob"', b'{"text": "\xff\xc3Xxx"'),
        (b'["Bob", {"id": "Bob"}, 5], "Bob"', b'["Xxx", {"id": "Bob"}, 5], "Xxx"'),
        (b'{"arguments": {"a": "Bob"}}{"arguments": "Ann"}', b'{"arguments": {"a": "Xxx"}}{"arguments": "Xxx"}'),
    ],
)  # fmt: skip
def test_redaction_masks_invalid_json(text, shown):
    entries = hidden(
        (RequestEntry, {"path": "/", "headers": {}, "body": b"{"}), (UpstreamDataEntry, {"call": 1, "data": text})
    )
    assert entries[1].data == shown


@untraced
@given(st.data(), st.sampled_from(["llamacpp/reasoning_then_tool_stream", "vllm/tools_parallel_stream"]))
def test_redaction_is_the_same_for_every_chunking(data, name):
    body = EXCHANGES[name].body
    whole = recording_of(name)
    (place,) = (i for i, entry in enumerate(whole.entries) if isinstance(entry, UpstreamDataEntry) and entry.data)
    pieces = cut(data, body)
    parts = [UpstreamDataEntry(t=0.0, call=1, data=piece) for piece in pieces]
    other = recording_of(name)
    other.entries = [*whole.entries[:place], *parts, *whole.entries[place + 1 :]]
    after = [entry.data for entry in redact(other, (), contents=True).entries if isinstance(entry, UpstreamDataEntry)]
    assert b"".join(after) == redact(whole, (), contents=True).entries[place].data
    assert list(map(len, after[:-1])) == list(map(len, pieces))


@untraced
@given(st.binary())
def test_redaction_keeps_the_length_of_any_bytes(data):
    entries = hidden(
        client_request(), (UpstreamDataEntry, {"call": 1, "data": data}), (ResponseDataEntry, {"data": data})
    )
    assert len(entries[1].data) == len(data)


def test_redaction_of_no_chunks_is_empty():
    assert redact_stream([], [b"k"], None) == []
    assert hidden(client_request(), (PreparedEntry, {"model": "m", "backend": "u", "upstream_model": "m", "server": {}, "settings": {}, "format": "", "reason": ""}))[1].model == "m"  # fmt: skip


def test_recording_file_event_keeps_an_empty_text():
    assert msgspec.json.decode(msgspec.json.encode(lines(made(client_request(), (RoundEndEntry, {"events": [TextDelta(0, "")]})))[2]["events"])) == [
        {"event": "Text", "choice": 0, "text": ""}
    ]  # fmt: skip
