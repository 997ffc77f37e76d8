"""Test the inspector: who may see which requests, their entries, and their replay in another format."""

import asyncio
import json
import sys

import pytest

from gateway.recording import Recording, RequestEntry, ResponseDataEntry, UpstreamDataEntry, parse_recording
from gateway.server.admin import inspector
from support.app import bearer, gateway, listening, problem
from support.upstream import HELLO, KEY, chunk, head, stream, whole
from support.wait import until

LIST = "/admin/exchanges"
ON = {"inspector": {"enabled": True}}
KEYS = [
    {"name": "ann", "key": "ann-key"},
    {"name": "eve", "key": "eve-key", "scopes": ["inference", "admin"]},
]
EVE = bearer("eve-key")
CALLING = stream(
    chunk('<tool_call>\n{"name": "f", "argu'), chunk('ments": {"a": 1}}\n</tool_call>'), chunk(finish="stop")
)
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


async def get_json(site, path="", **query):
    answer = await site.client.get(f"{LIST}{path}", params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()


async def ids(site, **query):
    return [one["id"] for one in (await get_json(site, **query))["exchanges"]]


async def ask(site, id, **more):
    return await site.chat(headers={"x-request-id": id}, **more)


# Access


async def test_inspector_is_absent_unless_enabled():
    async with gateway(HELLO) as site:
        await ask(site, "one")
        for path in (LIST, f"{LIST}/one", f"{LIST}/one/entries", f"{LIST}/one/recording"):
            assert (await site.client.get(path)).status_code == 404
        assert (await site.client.post(f"{LIST}/one/replay", json={})).status_code == 404


@pytest.mark.parametrize("path", ["", "/one", "/one/entries", "/one/recording", "/one/replay"])
async def test_inspector_requires_a_key_with_the_admin_scope(path):
    async with gateway(HELLO, auth={"keys": KEYS}, **ON) as site:
        await site.chat(headers={**EVE, "x-request-id": "one"})
        method = "POST" if path.endswith("replay") else "GET"
        for headers, status in (({}, 401), (bearer("ann-key"), 403)):
            answer = await site.client.request(method, f"{LIST}{path}", headers=headers, json={"format": "auto"})
            assert problem(answer)[0] == status
        if method == "GET":
            assert (await site.client.get(f"{LIST}{path}", headers=EVE)).status_code == 200


async def test_inspector_page_is_static_and_public():
    async with gateway(HELLO, auth={"keys": KEYS}, **ON) as site:
        before = (await site.client.get("/inspector")).text
        await site.chat(headers={**EVE, "x-request-id": "of-a-request"})
        answer = await site.client.get("/inspector")
        assert answer.text == before and "hermes_json" in (await site.client.get("/inspector?id=one")).text
        assert "script-src 'self'" in answer.headers["content-security-policy"]


# List


async def test_inspector_list_has_live_requests_first_then_the_newest():
    go = asyncio.Event()
    script = [head(), chunk("Hi"), go, *HELLO[1:]]
    async with listening(script, HELLO, **ON) as site:
        asking = asyncio.create_task(ask(site, "live", stream=True))
        await site.upstream.arrived.wait()
        for name in ("old", "new"):
            await ask(site, name)
        assert await ids(site) == ["live", "new", "old"]
        assert await ids(site, status="live") == ["live"]
        go.set()
        await asking
        assert await ids(site, status="live") == []


async def test_inspector_list_filters_by_model_status_and_code():
    more = {"other": {"backends": ["up"]}}
    async with gateway(HELLO, HELLO, whole("no", 500), more_models=more, **ON) as site:
        await ask(site, "noted", surprise=1)
        await ask(site, "other", model="other")
        await ask(site, "failed")
        assert await ids(site) == ["failed", "other", "noted"]
        assert await ids(site, model="m") == ["failed", "noted"] and await ids(site, model="the") == ["other"]
        assert await ids(site, status="2xx") == ["other", "noted"]
        assert await ids(site, status="502") == ["failed"]
        assert await ids(site, code="forwarded", model="m", status="200") == ["noted"]
        assert await ids(site, code="dropped") == []


async def test_inspector_shows_the_record_of_a_request():
    async with gateway(HELLO, **ON) as site:
        await ask(site, "one", surprise=1)
        (one,) = (await get_json(site))["exchanges"]
        known = await get_json(site, "/one")
    assert (one["endpoint"], one["model"], one["backend"]) == ("/v1/chat/completions", "m", "up")
    assert (one["live"], one["status"], one["error"], one["cut"]) == (False, 200, None, False)
    assert one["ledger"] == ["forwarded:surprise"] and one["output_tokens"] == 2
    assert 0 < one["first_byte"] <= one["duration"]
    assert one.pop("kept") and known.items() >= one.items()
    assert (one["prompt"], one["key"], one["tools_called"], one["input_tokens"]) == ("Hello", "", [], 7)
    assert 0 < one["first_token"] <= one["duration"]
    assert [warning["title"] for warning in one["warnings"]] == ["surprise passed on"]
    assert {"<think>", "</think>", "<tool_call>", "[TOOL_CALLS]"} <= {*known["markers"]} and "list" not in known[
        "markers"
    ]
    assert known["line"]["sent_bytes"] > 0 and known["reason"]


async def test_inspector_shows_a_request_of_an_unknown_model():
    async with gateway(HELLO, **ON) as site:
        await ask(site, "none", model="nobody-has-it")
        known = await get_json(site, "/none")
    assert (known["status"], known["error"], known["model"], known["first_byte"]) == (404, "model_not_found", "", None)
    assert "nobody-has-it" in known["message"]


async def test_inspector_list_omits_a_recording_without_entries():
    async with gateway(HELLO, **ON) as site:
        site.app.state.telemetry.recorder.recent.append(Recording("empty", "", 1))
        assert await ids(site) == []
        assert (await get_json(site, "/empty/entries"))["entries"] == []


async def test_inspector_picks_the_newest_of_equal_ids_or_the_given_start():
    async with gateway(HELLO, **ON) as site:
        await ask(site, "a/b", model="m")
        await ask(site, "a/b", model="nobody-has-it")
        recent = site.app.state.telemetry.recorder.recent
        recent[0].started = "earlier"
        assert (await get_json(site, "/a%2Fb"))["status"] == 404
        assert (await get_json(site, "/a%2Fb", started="earlier"))["status"] == 200
        for path in ("/a%2Fc", "/a%2Fb?started=never"):
            assert problem(await site.client.get(f"{LIST}{path}"))[0] == 404


# Entries


async def test_inspector_entries_of_a_stream_are_read_page_by_page(monkeypatch):
    monkeypatch.setattr(inspector, "_ENTRIES", 3)
    go = asyncio.Event()
    script = [head(), chunk("Hi"), go, chunk(finish="stop"), *stream()[1:]]
    async with listening(script, **ON) as site:
        asking = asyncio.create_task(ask(site, "one", stream=True))
        await until(lambda: ids(site), ["one"])
        kinds, after = [], -1

        async def next_page():
            nonlocal after
            page = await get_json(site, "/one/entries", after=after)
            kinds.extend(entry["kind"] for entry in page["entries"])
            after += len(page["entries"])
            return page

        async def has_written():
            page = await next_page()
            return "wrote" in kinds and (page["over"], page["more"])

        assert await until(has_written, (False, False))
        assert kinds == ["asked", "prepared", "put", "answered", "read", "began", "wrote"]
        go.set()
        await asking
        first = await get_json(site, "/one/entries")
        assert first["more"] and first["over"] and len(first["entries"]) == 3
        while (page := await get_json(site, "/one/entries", after=after))["entries"]:
            kinds += [one["kind"] for one in page["entries"]]
            after = page["entries"][-1]["n"]
        assert kinds[-1] == "over" and page == {"entries": [], "more": False, "over": True}


async def test_inspector_shows_a_message_without_the_tokens_of_its_servers():
    server = {"type": "url", "name": "s", "url": "http://u:pass-1@h", "authorization_token": "token-1"}
    async with gateway(HELLO, **ON) as site:
        await site.message(headers={"x-request-id": "one", "x-api-key": "mine-1"}, mcp_servers=[server])
        (head,) = (await get_json(site))["exchanges"]
        text = json.dumps(await get_json(site, "/one/entries"))
    assert (head["endpoint"], head["status"]) == ("/v1/messages", 200) and "Hello" in text
    for secret in ("pass-1", "token-1", "mine-1"):
        assert secret not in text


async def test_inspector_entries_contain_content_but_no_secrets():
    more = {"type": "mcp", "server_label": "s", "server_url": "http://u:pass-1@h", "headers": {"x": "secret-1"}}
    backend = {"api_key": KEY}
    async with gateway(whole({"error": f"no {KEY}"}, 500), HELLO, backend=backend, **ON) as site:
        body = {"model": "m", "input": "my words", "tools": [more]}
        await site.client.post("/v1/responses", json=body, headers={"x-request-id": "one", "authorization": "mine-1"})
        text = json.dumps(await get_json(site, "/one/entries"))
    assert "my words" in text and "no ****" in text
    for secret in (KEY, "pass-1", "secret-1", "mine-1"):
        assert secret not in text


@pytest.mark.parametrize("after", ["", "x", "-7"])
async def test_inspector_entries_begin_at_zero_for_an_invalid_after(after):
    async with gateway(HELLO, **ON) as site:
        await ask(site, "one")
        assert (await get_json(site, "/one/entries", after=after))["entries"][0]["n"] == 0


def recording_of(*sizes):
    made = Recording("1", "", 1 << 30)
    made.add(RequestEntry(0.0, path="/", body=b"a" * sizes[0]))
    for size in sizes[1:]:
        made.add(UpstreamDataEntry(0.0, call=1, data=b"r" * size))
    made.add(ResponseDataEntry(0.0, data=b"w"))
    return made


def test_inspector_page_of_entries_is_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr(inspector, "_LONGEST", 10)
    monkeypatch.setattr(inspector, "_BYTES", 20)
    page = inspector.entries_page(recording_of(11, 10, 1), -1, ())
    assert [one.get("cut") for one in page.entries] == [11, None] and page.more and not page.over
    assert page.entries[0]["body"] == {"text": "a" * 10}
    page = inspector.entries_page(recording_of(1, 12, 1), 0, ())
    assert [(one["n"], one.get("cut")) for one in page.entries] == [(1, 12), (2, None), (3, None)]
    assert page.entries[0]["data"] == {"text": "r" * 10} and not page.more


# Recording file


@pytest.mark.parametrize("content", [True, False])
async def test_inspector_recording_has_content_only_if_configured(content):
    async with gateway(HELLO, recording={"content": content}, **ON) as site:
        await site.client.post(
            "/v1/responses", json={"model": "m", "input": "my words"}, headers={"x-request-id": "one"}
        )
        answer = await site.client.get(f"{LIST}/one/recording")
    assert answer.headers["content-disposition"] == 'attachment; filename="recording.jsonl"'
    assert parse_recording(answer.content).over and (b"my words" in answer.content) is content
    assert json.loads(answer.text.partition("\n")[0])["redacted"] is not content


# Replay


async def replay(site, id, **body):
    return await site.client.post(f"{LIST}/{id}/replay", json=body)


async def test_inspector_replays_a_request_in_another_format():
    async with gateway(CALLING, model={"backends": ["up"], "format": "hermes_json"}, **ON) as site:
        await ask(site, "one", stream=True, tools=TOOLS)
        same, other = [(await replay(site, "one", format=format)).json() for format in ("hermes_json", "llama3_json")]
    assert (same["same"], same["differences"], same["reason"]) == (True, [], "")
    (choice,) = same["response"]["choices"]
    assert [(call["name"], json.loads(call["arguments"])) for call in choice["tool_calls"]] == [("f", {"a": 1})]
    (choice,) = other["response"]["choices"]
    assert not other["same"] and "said:" in other["differences"] and choice["text"].startswith("<tool_call>")


async def test_inspector_replay_reports_why_it_is_impossible():
    async with gateway(HELLO, **ON) as site:
        await ask(site, "none", model="nobody-has-it")
        report = (await replay(site, "none", format="auto")).json()
        assert report == {"same": False, "differences": [], "reason": "no backend was called", "response": None}
        assert problem(await replay(site, "none", format="nonsense"))[::3] == (400, "format")
        assert problem(await replay(site, "none"))[::3] == (400, "format")
        site.app.state.telemetry.recorder.recent[-1].over = False
        assert "still running" in (await replay(site, "none", format="auto")).json()["error"]["message"]


async def test_inspector_replay_ends_at_its_timeout(monkeypatch, tmp_path):
    monkeypatch.setattr(inspector, "_SECONDS", 0)
    assert (await inspector.ReplayRunner().replay(b"", "auto")) == inspector.ReplayResult(
        False, reason="The replay took longer than 0 s."
    )


async def test_inspector_replay_without_output_reports_a_failure(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert (await inspector.ReplayRunner().replay(b"", "auto")).reason == "The recording cannot be replayed."
