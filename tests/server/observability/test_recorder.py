"""Test which requests the gateway records, with which content, and where."""

import asyncio
import gc
import json
import logging
import re

import pytest

from gateway.recording import (
    EndEntry,
    PreparedEntry,
    RequestEntry,
    ResponseDataEntry,
    ResponseHeadersEntry,
    RoundEndEntry,
    UpstreamDataEntry,
    UpstreamErrorEntry,
    UpstreamHeadersEntry,
    UpstreamRequestEntry,
)
from gateway.recording.entries import cause_of
from gateway.server.app import create_app
from gateway.server.observability import recorder
from gateway.server.observability import recorder as recorder_module
from support.app import HELLO_MESSAGES, gateway, listening, settings
from support.jobs import ended
from support.mcp_server import operators, toys
from support.memory import census, watched
from support.recordings import events, recorded, recordings
from support.upstream import CLOSE, COUNTS, HANG, HELLO, KEY, call, chunk, frame, head, stream, whole
from support.wait import until
from support.websocket import connected

THOUGHT = stream(chunk("<think>I am B"), chunk("ob</think>Hi"), chunk(finish="stop"), frame(choices=[], usage=COUNTS))


def kinds(entries):
    """Return the kinds of entries, repeated ones once."""
    names = [entry.__struct_config__.tag for entry in entries]
    return [name for name, before in zip(names, ["", *names], strict=False) if name != before]


def one(entries, kind):
    (found,) = (entry for entry in entries if isinstance(entry, kind))
    return found


def warnings_of(caplog):
    return [line.message for line in caplog.records if line.name == "gateway" and line.levelno >= logging.WARNING]


# What is written


@pytest.mark.parametrize("ask", ["chat", "respond"])
async def test_recording_holds_a_stream_from_request_to_end(tmp_path, ask):
    async with gateway(THOUGHT, model={"format": "hermes_json"}, **recorded(tmp_path)) as site:
        answer = await getattr(site, ask)(stream=True, headers={"x-request-id": "req/1", "authorization": "Bearer k"})
    (found,) = recordings(tmp_path)
    entries = found.entries
    assert found.id == "req/1"
    assert kinds(entries)[:5] == ["asked", "prepared", "put", "answered", "read"] and kinds(entries)[-1] == "over"
    assert (
        json.loads(one(entries, RequestEntry).body)["model"] == "m"
        and "authorization" not in one(entries, RequestEntry).headers
    )
    prepared = one(entries, PreparedEntry)
    assert (prepared.model, prepared.backend, prepared.server, prepared.settings, prepared.format, prepared.reason) == (
        "m", "up", {"kind": "openai", "ignores": []}, {"format": "hermes_json"}, "hermes_json", "configured",
    )  # fmt: skip
    assert one(entries, UpstreamRequestEntry).body == site.upstream.posts[-1].body
    put, headers = one(entries, UpstreamRequestEntry), one(entries, UpstreamHeadersEntry)
    assert headers.content_type == "text/event-stream" and put.t <= headers.sent <= headers.connected <= headers.t
    reads = [entry for entry in entries if isinstance(entry, UpstreamDataEntry)]
    assert b"".join(entry.data for entry in reads) == b"".join(step for step in THOUGHT[1:] if isinstance(step, bytes))
    assert reads[-1].data == b""
    event_list = [
        event for entry in entries if isinstance(entry, UpstreamDataEntry | RoundEndEntry) for event in events(entry)
    ]
    assert {"event": "Text", "choice": 0, "text": "Hi"} in event_list
    assert one(entries, ResponseHeadersEntry).status == 200
    assert b"".join(entry.data for entry in entries if isinstance(entry, ResponseDataEntry)) == answer.content
    over = one(entries, EndEntry)
    assert (over.status, over.problem, over.ledger) == (200, None, ["estimated:usage.reasoning_tokens"])
    assert over.line["model"] == "m" and over.line["output_tokens"] == 2


async def test_recording_has_no_time_for_a_connection_that_was_open(tmp_path):
    async with gateway(HELLO, HELLO, **recorded(tmp_path)) as site:
        for name in ("first", "second"):
            await site.chat(stream=True, headers={"x-request-id": name})
    found = {recording.id: one(recording.entries, UpstreamHeadersEntry) for recording in recordings(tmp_path)}
    assert found["first"].connected and found["second"].sent and found["second"].connected is None


async def test_recording_omits_an_end_that_the_client_did_not_get(tmp_path):
    async with listening([head(), chunk("Hi"), HANG], **recorded(tmp_path)) as site:
        body = {"model": "m", "messages": HELLO_MESSAGES, "stream": True}
        async with site.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for _ in answer.aiter_bytes():
                break
    (found,) = recordings(tmp_path)
    assert one(found.entries, EndEntry).status == 499
    assert all(entry.data for entry in found.entries if isinstance(entry, ResponseDataEntry))


async def test_recording_links_each_write_to_the_read_before_it(tmp_path):
    gate = asyncio.Event()
    script = [head(), chunk("Hi"), gate, chunk(" there"), chunk(finish="stop"), *stream()[1:]]
    sections = recorded(tmp_path) | {"stream": {"keepalive_seconds": 0.01}}
    async with listening(script, **sections) as site:
        body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "stream": True}
        async with site.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for piece in answer.aiter_bytes():
                if piece.startswith(b":"):
                    gate.set()
    (found,) = recordings(tmp_path)
    wrote = [entry for entry in found.entries if isinstance(entry, ResponseDataEntry)]
    alive = [entry for entry in wrote if entry.data == b": keep-alive\n\n"]
    assert alive and {cause_of(found.entries, found.entries.index(entry)) for entry in alive} == {None}
    for n, entry in enumerate(found.entries):
        if entry in wrote and entry not in alive:
            assert (
                isinstance(found.entries[cause_of(found.entries, n)], UpstreamDataEntry | RoundEndEntry)
                and cause_of(found.entries, n) < n
            )


async def test_recording_holds_refusals_and_retries(tmp_path):
    no = whole({"error": {"message": f"no room for {KEY}"}}, 503, retry_after="0")
    async with gateway(no, HELLO, **recorded(tmp_path)) as site:
        assert (await site.chat()).status_code == 200
    (found,) = recordings(tmp_path)
    refused = one(found.entries, UpstreamErrorEntry)
    assert (refused.call, refused.status, refused.retry_after) == (1, 503, "0")
    assert one(found.entries, RequestEntry).t <= refused.sent <= refused.connected <= refused.t
    assert KEY.encode() not in refused.body and b"no room for *****" in refused.body  # its key is out of it
    ended = [
        entry.problem.code if entry.problem else None for entry in found.entries if isinstance(entry, RoundEndEntry)
    ]
    assert ended == ["server_is_overloaded", None]
    assert [entry.call for entry in found.entries if isinstance(entry, UpstreamRequestEntry)] == [1, 2]


async def test_recording_numbers_the_upstream_calls_of_a_fan_out(tmp_path):
    async with gateway(HELLO, backend={"ignores": ["n"]}, **recorded(tmp_path)) as site:
        assert len((await site.chat(n=2)).json()["choices"]) == 2
    (found,) = recordings(tmp_path)
    assert [entry.call for entry in found.entries if isinstance(entry, UpstreamRequestEntry)] == [1, 2]
    assert {entry.call for entry in found.entries if isinstance(entry, UpstreamDataEntry)} == {1, 2}


@pytest.mark.parametrize(
    ("format", "path", "server_response", "found"),
    [
        ("hermes_json", "/apply-template", {"prompt": "Hello <think>"}, "Hello <think>"),
        ("auto", "/props", {"chat_template": "<|tool_calls|>"}, {"template": "<|tool_calls|>", "window": None, "abilities": None}),
    ],
)  # fmt: skip
async def test_recording_holds_learned_model_metadata(tmp_path, format, path, server_response, found):
    async with gateway(HELLO, backend={"kind": "llamacpp"}, model={"format": format}, **recorded(tmp_path)) as site:
        site.upstream.shown[path] = whole(server_response)
        await site.chat()
    (kept,) = recordings(tmp_path)
    assert {entry["path"]: entry["found"] for entry in one(kept.entries, PreparedEntry).learned} == {path: found}


async def test_recording_keeps_gateway_tool_output_apart_from_upstream_calls(tmp_path):
    called = stream(chunk(tool_calls=call("toys__echo", '{"text": "a"}', id="c")), chunk(finish="tool_calls"))
    async with toys() as server, gateway(called, HELLO, tools=operators(server), **recorded(tmp_path)) as site:
        await site.respond(tools=[{"type": "mcp", "server_label": "toys"}])
    (found,) = recordings(tmp_path)
    assert b"heard a" in b"".join(
        entry.data for entry in found.entries if isinstance(entry, UpstreamDataEntry) and entry.call == 0
    )
    assert [entry.call for entry in found.entries if isinstance(entry, UpstreamRequestEntry)] == [1, 2]


async def test_recording_holds_a_websocket_response(tmp_path):
    async with listening(HELLO, **recorded(tmp_path)) as site, connected(site) as socket:
        await socket.respond(store=False)
    (found,) = recordings(tmp_path)
    assert found.request_entry.path == "/v1/responses"
    data = b"".join(entry.data for entry in found.entries if isinstance(entry, ResponseDataEntry))
    assert data.startswith(b"event: response.created\n") and data.endswith(b"data: [DONE]\n\n")


async def test_recording_is_redacted_unless_content_is_enabled(tmp_path):
    async with gateway(THOUGHT, **recorded(tmp_path, content=False)) as site:
        await site.chat(stream=True)
    (file,) = tmp_path.iterdir()
    text = file.read_text()
    assert '"redacted":true' in text.splitlines()[0] and "Bob" not in text and "Hello" not in text
    assert oct(file.stat().st_mode)[-3:] == "600"


async def test_recording_that_is_too_long_is_marked_as_cut(tmp_path):
    async with gateway(THOUGHT, **recorded(tmp_path, exchange_bytes=1000)) as site:
        assert (await site.chat(stream=True)).content.endswith(b"data: [DONE]\n\n")
        assert (await site.chat()).status_code == 200
    assert [one.cut for one in recordings(tmp_path)] == [True, True]
    assert not [entry for one in recordings(tmp_path) for entry in one.entries if isinstance(entry, ResponseDataEntry)]


# Which are written


async def test_recording_mode_errors_keeps_only_failures(tmp_path):
    script = [head(), chunk("Hi"), CLOSE]
    async with gateway(HELLO, script, **recorded(tmp_path, "errors")) as site:
        await site.chat()
        await site.chat(stream=True)
        await site.chat(b"{")
    lost, unread = recordings(tmp_path)
    assert (one(lost.entries, EndEntry).problem.code, one(unread.entries, EndEntry).status) == ("upstream_lost", 400)
    assert kinds(unread.entries) == ["asked", "began", "wrote", "over"]


async def test_recording_mode_header_keeps_only_marked_requests(tmp_path):
    async with gateway(HELLO, **recorded(tmp_path, "header")) as site:
        await site.chat()
        await site.chat(headers={"x-gateway-record": "1", "x-request-id": "this"})
    assert [one.id for one in recordings(tmp_path)] == ["this"]


@pytest.mark.parametrize(("share", "number"), [(0, 0), (1, 3)])
async def test_recording_mode_sample_keeps_a_share(tmp_path, share, number):
    async with gateway(HELLO, **recorded(tmp_path, "sample", share=share)) as site:
        for _ in range(3):
            await site.chat()
    assert len(recordings(tmp_path)) == number


async def test_recording_is_skipped_if_off_or_not_for_a_chat_model(tmp_path):
    async with gateway(HELLO, **recorded(tmp_path, "off")) as site:
        await site.chat(headers={"x-gateway-record": "1"})
        assert not site.app.state.telemetry.recorder.recent
    async with gateway(HELLO, **recorded(tmp_path)) as site:
        await site.client.get("/v1/models")
        await site.client.post("/v1/embeddings", json={"model": "m", "input": "a"})
    assert not [*tmp_path.iterdir()]


async def test_recording_follows_a_new_configuration(tmp_path):
    async with gateway(HELLO, **recorded(tmp_path, "off")) as site:
        known = site.app.state.telemetry
        again = create_app(settings(site.upstream.url, **recorded(tmp_path)), telemetry=known)
        async with again.router.lifespan_context(again):
            await site.chat()
        assert len(recordings(tmp_path)) == 1, "who is replaced leaves nothing unwritten"
        await site.chat()
    assert len(recordings(tmp_path)) == 2


def test_recordings_hide_keys_of_backends_that_a_new_configuration_lacks():
    known = recorder.Recorder()
    for number in range(103):
        known.follow(settings("http://a", backend={"api_key": f"key-{number}"}))
    assert known.secrets == [f"key-{number}".encode() for number in range(102, 1, -1)]
    known.follow(settings("http://a", backend={"api_key": "key-101"}))
    assert known.secrets[:2] == [b"key-101", b"key-102"]


# Those of late


async def test_recording_can_be_followed_while_it_grows(tmp_path):
    gate = asyncio.Event()
    script = [head(), chunk("Hi"), gate, chunk(finish="stop"), *stream()[1:]]
    async with listening(script, inspector={"enabled": True}) as site:
        body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "stream": True}
        async with site.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            pieces = answer.aiter_bytes()
            await anext(pieces)
            (found,) = site.app.state.telemetry.recorder.recent
            before = [*found.entries]
            assert kinds(before) == ["asked", "prepared", "put", "answered", "read", "began", "wrote"]
            assert not found.over
            gate.set()
            async for _ in pieces:
                pass
        await until(lambda: found.over)
        assert found.entries[: len(before)] == before


async def test_recording_inspector_keeps_a_limited_number_without_files(monkeypatch, tmp_path):
    monkeypatch.setattr(recorder, "_RECENT", 2)
    monkeypatch.setattr(recorder, "SUMMARIES", 3)
    async with gateway(HELLO, inspector={"enabled": True}, **recorded(tmp_path, "off")) as site:
        for _ in range(4):
            await site.chat()
        found = site.app.state.telemetry.recorder
        assert (len(found.recent), len(found.exchanges())) == (2, 3)
    assert not [*tmp_path.iterdir()]


async def test_recording_inspector_keeps_a_limited_size(monkeypatch):
    monkeypatch.setattr(recorder, "_MAX_RECENT", 3000)
    async with gateway(HELLO, inspector={"enabled": True}) as site:
        for _ in range(9):
            await site.chat()
        assert 1 <= len(site.app.state.telemetry.recorder.recent) < 4


# Where they go


async def test_recording_files_beyond_the_limit_are_deleted_oldest_first(tmp_path):
    (tmp_path / "of somebody else").write_text("a")
    async with gateway(HELLO, **recorded(tmp_path, files=2)) as site:
        for name in ("a", "b", "c", "d"):
            await site.chat(headers={"x-request-id": name})
    assert [one.id for one in recordings(tmp_path)] == ["c", "d"]
    assert (tmp_path / "of somebody else").exists() and not [*tmp_path.glob("*.part")]


async def test_recording_folder_that_is_not_writable_fails_no_request(tmp_path, caplog):
    (tmp_path / "file").touch()
    async with gateway(HELLO, **recorded(tmp_path / "file")) as site:
        assert (await site.chat()).status_code == 200
    assert re.search("a recording could not be written: (File exists|Not a directory)", caplog.text)


async def test_recording_error_loses_one_recording_and_logs_no_content(tmp_path, caplog):
    async with gateway(HELLO, **recorded(tmp_path)) as site:
        known = site.app.state.telemetry.recorder
        sound, known.secrets = known.secrets, [None]
        assert (await site.chat(headers={"x-request-id": "a"})).status_code == 200
        known.secrets = [object()]
        assert (await site.chat(headers={"x-request-id": "b"})).status_code == 200
        known.secrets = sound
        await site.chat(headers={"x-request-id": "c"})
    assert [one.id for one in recordings(tmp_path)] == ["c"]
    lost, unwritten = warnings_of(caplog)
    assert lost == "a recording is lost: it cannot be encoded (TypeError)"
    assert re.fullmatch(r"a recording could not be written: ValidationError in _failure, line \d+", unwritten)


async def test_recording_is_dropped_if_the_writer_is_too_slow(tmp_path, caplog, monkeypatch):
    async with gateway(HELLO, **recorded(tmp_path)) as site:
        await site.chat(headers={"x-request-id": "a"})
        monkeypatch.setattr(recorder_module, "_MAX", 1)
        assert (await site.chat(headers={"x-request-id": "b"})).status_code == 200
    assert warnings_of(caplog) == ["a recording is lost: the queue of the recording writer is full"]
    assert [one.id for one in recordings(tmp_path)] == ["a"]


async def test_recording_holds_a_background_response(tmp_path):
    async with gateway(HELLO, **recorded(tmp_path)) as site:
        id = (await site.respond(background=True)).json()["id"]
        await ended(site, id)
    (found,) = recordings(tmp_path)
    assert one(found.entries, EndEntry).line["output_tokens"] == 2
    assert b"".join(entry.data for entry in found.entries if isinstance(entry, UpstreamDataEntry)).startswith(
        b"data: {"
    )


async def test_recording_skips_a_job_taken_over_from_another_process(tmp_path):
    where = {"store": {"url": f"sqlite:///{tmp_path}/gateway.db"}}
    async with gateway([head(), HANG], **where, server={"drain_seconds": 0}) as site:
        id = (await site.respond(background=True)).json()["id"]
        await site.upstream.arrived.wait()
    async with gateway(HELLO, **where, **recorded(tmp_path / "made")) as site:
        await ended(site, id)
        await site.app.state.handler.jobs.wait_idle()
    assert not (tmp_path / "made").exists()


NAMES = (
    "gateway.recording",
    "gateway.server.observability",
    "gateway.server.observability",
    "gateway.pipeline.pipeline",
    "gateway.pipeline.upstream_reader",
)


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
async def test_recording_frees_its_memory_after_it_is_written(tmp_path, streamed):
    async with gateway(THOUGHT, model={"format": "hermes_json"}, **recorded(tmp_path)) as site:
        await site.chat(stream=streamed)
        gc.collect()
        with watched():
            for _ in range(2):
                assert (await site.chat(stream=streamed)).status_code == 200
                await site.app.state.telemetry.flush()
            assert [name for name in census() if name.startswith(NAMES) and not name.endswith("Recorder")] == []
