"""Test chains of responses, conversations, item references, stored chat completions, and a store that fails."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from gateway.store import conversations
from gateway.store.write_queue import WriteQueue
from support.app import gateway, listening, problem
from support.jobs import BAD, get
from support.sse import comments, events, payloads
from support.stored import ANN, BOB, TENANTS, stored
from support.upstream import CLOSE, DONE, END, HANG, HELLO, chunk, completion_body, gated, head, silent, stream, whole
from support.wait import until
from support.websocket import upstream_messages

CALLS = {
    "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
F = {"type": "function", "name": "f"}


async def respond(site, **fields):
    """Return a response that succeeds."""
    answer = await site.respond(**fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_response_chain_sends_all_earlier_items_to_the_model():
    async with gateway(
        whole(completion_body("one")), whole(completion_body("two")), whole(completion_body("three"))
    ) as site:
        first = await respond(site, input="a", instructions="Be brief.")
        second = await respond(site, input="b", previous_response_id=first["id"])
        assert upstream_messages(site) == [
            ("user", "a"),
            ("assistant", "one"),
            ("user", "b"),
        ]  # the instructions are not inherited
        third = await respond(site, input="c", previous_response_id=second["id"], instructions="Be long.")
        assert upstream_messages(site)[0] == ("system", "Be long.") and upstream_messages(site)[-2:] == [
            ("assistant", "two"),
            ("user", "c"),
        ]
        assert third["previous_response_id"] == second["id"] and third["store"] is True
        kept = await get(site, third["id"])
    assert kept.json() == third


async def test_response_chain_branches():
    async with gateway(*(whole(completion_body(text)) for text in ("one", "two", "three", "four"))) as site:
        first = await respond(site, input="a")
        left = await respond(site, input="b", previous_response_id=first["id"])
        right = await respond(site, input="c", previous_response_id=first["id"])
        await respond(site, input="d", previous_response_id=right["id"])
        assert upstream_messages(site) == [
            ("user", "a"),
            ("assistant", "one"),
            ("user", "c"),
            ("assistant", "three"),
            ("user", "d"),
        ]
        assert (await get(site, left["id"])).json() == left


async def test_tool_call_is_answered_in_the_next_response_without_tools():
    async with gateway(whole(completion_body(None, **CALLS)), whole(completion_body("done"))) as site:
        first = await respond(site, input="a", tools=[F], tool_choice={"type": "function", "name": "f"})
        (call,) = first["output"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "42"}
        second = await respond(site, input=[output], previous_response_id=first["id"])
        assert [message["role"] for message in site.upstream_body["messages"]] == ["user", "assistant", "tool"]
        assert second["tools"] == [] and "tools" not in site.upstream_body


async def test_response_streamed_can_be_continued_after_its_last_event():
    async with gateway(HELLO, whole(completion_body("two"))) as site:
        ended = events((await site.respond(input="a", stream=True)).text)[-1]["response"]
        assert (await get(site, ended["id"])).json() == ended
        await respond(site, input="b", previous_response_id=ended["id"])
        assert upstream_messages(site) == [("user", "a"), ("assistant", "Hi"), ("user", "b")]


@pytest.mark.parametrize("streamed", [False, True])
async def test_response_that_is_stored_keeps_its_warnings(streamed):
    calls = {"tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"n": oops'}}]}
    script = (
        stream(chunk(None, **calls), chunk(finish="tool_calls")) if streamed else whole(completion_body(None, **calls))
    )
    async with gateway(script) as site:
        answer = await site.respond(input="a", tools=[F], stream=streamed)
        ended = events(answer.text)[-1]["response"] if streamed else answer.json()
        kept = await get(site, ended["id"])
        assert kept.json() == ended
        (item,) = ended["output"]
        assert (item["status"], item["arguments"]) == ("completed", '{"n": oops')
        assert "invalid:tool_calls.function.arguments" in kept.headers["x-gateway-warnings"].split(", ")


async def test_response_that_is_stored_without_warnings_has_none():
    async with gateway(whole(completion_body("one"))) as site:
        kept = await get(site, (await respond(site, input="a"))["id"])
        assert "x-gateway-warnings" not in kept.headers


@pytest.mark.parametrize("stream", [False, True])
async def test_response_with_store_false_is_not_stored(stream):
    async with gateway(HELLO if stream else whole(completion_body("one"))) as site:
        answer = await site.respond(input="a", store=False, stream=stream)
        id = events(answer.text)[-1]["response"]["id"] if stream else answer.json()["id"]
        assert problem(await get(site, id))[0] == 404
        answer = await site.respond(input="b", previous_response_id=id)
        assert problem(answer) == (400, BAD, "previous_response_not_found", "previous_response_id")
        assert len(site.upstream.posts) == 1


async def test_response_chain_with_a_deleted_response_is_refused():
    async with gateway(*(whole(completion_body(text)) for text in ("one", "two"))) as site:
        first = await respond(site, input="a")
        second = await respond(site, input="b", previous_response_id=first["id"])
        assert (await site.client.delete(f"/v1/responses/{first['id']}")).status_code == 200
        answer = await site.respond(input="c", previous_response_id=second["id"])
        assert problem(answer) == (400, BAD, "previous_response_not_found", "previous_response_id")
        assert (await get(site, second["id"])).json() == second


async def test_response_that_failed_can_be_continued_without_its_output():
    thought = chunk(reasoning_content="Hm.")
    for broken in ([], [thought]):
        async with gateway(
            [head(), *broken, chunk("Hel"), CLOSE], whole(completion_body("two")), whole(completion_body("three"))
        ) as site:
            failed = events((await site.respond(input="a", stream=True)).text)[-1]["response"]
            assert failed["status"] == "failed" and (await get(site, failed["id"])).json() == failed
            for _ in range(2):
                await respond(site, input="b", previous_response_id=failed["id"])
                assert upstream_messages(site) == [("user", "a"), ("user", "b")]


async def test_tool_call_cut_short_is_left_out_of_the_next_request():
    cut = stream(
        chunk("Hi"),
        chunk(tool_calls=[{"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a'}}]),
        chunk(finish="length"),
    )
    async with gateway(cut, whole(completion_body("two"))) as site:
        ended = events((await site.respond(input="a", stream=True, tools=[F])).text)[-1]["response"]
        assert ended["output"][-1]["status"] == "incomplete"
        await respond(site, input="b", previous_response_id=ended["id"])
        assert upstream_messages(site) == [("user", "a"), ("assistant", "Hi"), ("user", "b")]


async def test_response_refused_by_the_backend_does_not_affect_the_next_one():
    async with gateway(whole({"error": "busy"}, status=503), whole(completion_body("two"))) as site:
        assert (await site.respond(input="a")).status_code == 503
        assert (await site.respond(input="a", stream=True, store=True)).status_code == 200


@pytest.mark.parametrize("type", ["additional_tools", "tool_search_output"])
async def test_tool_that_two_items_of_the_history_hold_is_offered_once(type):
    """A model searches again for a tool that it found in an earlier turn."""

    def turn(n):
        searched = {"type": "tool_search_call", "call_id": f"s{n}", "arguments": {"query": "f"}}
        found = {"type": type, "call_id": f"s{n}", "tools": [{**F, "description": f"{n}"}]}
        return [searched, found] if type == "tool_search_output" else [found]

    async with gateway(HELLO) as site:
        first = await respond(site, input=[{"role": "user", "content": "a"}, *turn(1)])
        second = await respond(site, input=turn(2), previous_response_id=first["id"])
        await respond(site, input="c", previous_response_id=second["id"])
    (tool,) = site.upstream_body["tools"]
    assert tool["function"]["description"] == "2"


async def test_item_reference_stands_for_the_stored_item():
    async with gateway(*(whole(completion_body(text)) for text in ("one", "two"))) as site:
        first = await respond(site, input=[{"type": "message", "id": "msg_mine", "role": "user", "content": "a"}])
        (message,) = first["output"]
        question = {"role": "user", "content": "b"}
        second = await respond(
            site, input=[{"type": "item_reference", "id": "msg_mine"}, {"id": message["id"]}, question]
        )
        assert upstream_messages(site) == [("user", "a"), ("assistant", "one"), ("user", "b")]
        listed = (await get(site, f"{second['id']}/input_items", params={"order": "asc"})).json()["data"]
        assert [item["type"] for item in listed] == ["message"] * 3 and listed[1]["id"] == message["id"]
        answer = await site.respond(input=[{"id": "msg_nobodys"}, question])
    assert problem(answer)[0] == 404 and problem(answer)[3] == "input[0]"


async def test_item_sent_again_is_stored_as_a_new_item():
    async with gateway(*(whole(completion_body(text)) for text in ("one", "two"))) as site:
        question = {"type": "message", "id": "msg_mine", "role": "user", "content": "a"}
        first = await respond(site, input=[question, question])
        again = [question, *first["output"], {"role": "user", "content": "b"}]
        second = await respond(site, input=again, previous_response_id=first["id"])
        assert len(upstream_messages(site)) == 6
        found, page = [], {"has_more": True}
        while page["has_more"]:
            after = {"after": found[-1]["id"]} if found else {}
            page = (await get(site, f"{second['id']}/input_items", params={"order": "asc", "limit": 1, **after})).json()
            found += page["data"]
    texts = [item["content"][0]["text"] for item in found]
    assert texts == ["a", "a", "one", "a", "one", "b"] and len({item["id"] for item in found}) == 6
    assert found[0]["id"] == "msg_mine" and found[2] == first["output"][0]


async def test_tenant_cannot_use_responses_or_items_of_another_tenant():
    async with gateway(whole(completion_body("one")), auth=TENANTS) as site:
        first = (await site.respond(input="a", headers=ANN)).json()
        created = (await site.client.post("/v1/conversations", json={}, headers=ANN)).json()
        assert (await get(site, first["id"], headers=ANN)).status_code == 200
        assert problem(await get(site, first["id"], headers=BOB))[0] == 404
        answer = await site.respond(input="b", previous_response_id=first["id"], headers=BOB)
        assert problem(answer)[2] == "previous_response_not_found"
        answer = await site.respond(input="b", conversation=created["id"], headers=BOB)
        assert problem(answer)[::3] == (404, "conversation")
        answer = await site.respond(input=[{"id": first["output"][0]["id"]}], headers=BOB)
        assert problem(answer)[0] == 404


# Conversations


async def conversation(site, *items):
    return (await site.client.post("/v1/conversations", json={"items": [*items]})).json()["id"]


async def items_of(site, id):
    listed = (await site.client.get(f"/v1/conversations/{id}/items", params={"order": "asc"})).json()["data"]
    return [(item.get("role"), item["content"][0]["text"]) for item in listed]


@pytest.mark.parametrize("store", [True, False])
async def test_conversation_gains_the_items_of_each_response(store):
    async with gateway(*(whole(completion_body(text)) for text in ("one", "two"))) as site:
        id = await conversation(site, {"role": "developer", "content": "Be brief."})
        first = await respond(site, input="a", conversation=id, store=store)
        await respond(site, input="b", conversation={"id": id}, store=store)
        assert upstream_messages(site) == [("system", "Be brief."), ("user", "a"), ("assistant", "one"), ("user", "b")]
        assert first["conversation"] == {"id": id}
        assert await items_of(site, id) == [
            ("developer", "Be brief."), ("user", "a"), ("assistant", "one"), ("user", "b"), ("assistant", "two"),
        ]  # fmt: skip
        assert (await get(site, first["id"])).status_code == (200 if store else 404)


@pytest.mark.parametrize("store", [True, False])
async def test_conversation_response_makes_two_write_transactions(store, monkeypatch):
    """The first locks the conversation; the second stores the response and unlocks it."""
    written, turn = [], WriteQueue.turn
    monkeypatch.setattr(WriteQueue, "turn", lambda queue: written.append(queue) or turn(queue))
    async with gateway(whole(completion_body("one"))) as site:
        id = await conversation(site)
        written.clear()
        await respond(site, input="a", conversation=id, store=store)
        assert len(written) == 2


@pytest.mark.parametrize("store", [True, False])
async def test_conversation_excludes_a_failed_response(store):
    async with gateway([head(), chunk("Hel"), CLOSE], whole(completion_body("two"))) as site:
        id = await conversation(site)
        failed = events((await site.respond(input="a", conversation=id, stream=True, store=store)).text)[-1]["response"]
        assert await items_of(site, id) == []
        assert (await get(site, failed["id"])).status_code == (200 if store else 404)
        await respond(site, input="b", conversation=id)
        assert upstream_messages(site) == [("user", "b")]


async def test_conversation_is_unlocked_after_a_backend_refuses():
    async with gateway(whole({"error": "busy"}, status=503), whole(completion_body("two"))) as site:
        id = await conversation(site)
        assert (await site.respond(input="a", conversation=id)).status_code == 503
        await respond(site, input="b", conversation=id)
        assert await items_of(site, id) == [("user", "b"), ("assistant", "two")]


async def test_conversation_is_locked_while_a_response_runs():
    go_on = asyncio.Event()
    async with gateway(gated("Hi", go_on), whole(completion_body("two"))) as site:
        id = await conversation(site)
        first = asyncio.create_task(site.respond(input="a", conversation=id, stream=True))
        await site.upstream.arrived.wait()
        answer = await site.respond(input="b", conversation=id)
        assert problem(answer) == (400, BAD, "conversation_locked", "conversation")
        go_on.set()
        assert (await first).status_code == 200
        await respond(site, input="b", conversation=id)
    assert upstream_messages(site) == [("user", "a"), ("assistant", "Hi"), ("user", "b")]


async def test_conversation_lock_is_renewed_while_a_response_runs(monkeypatch):
    """The clock of the leases moves past the end of the first one, but not past the end of the renewed one."""
    clock, renewals, renew = SimpleNamespace(now=1000.0), [], conversations.renew

    async def recorded(db, id, holder, now_ms, lease_ms):
        renewals.append(now_ms)
        await renew(db, id, holder, now_ms, lease_ms)

    monkeypatch.setattr(conversations, "renew", recorded)
    monkeypatch.setattr("gateway.server.conversations.stored_context.time", SimpleNamespace(time=lambda: clock.now))
    monkeypatch.setattr("gateway.server.conversations.stored_context._LEASE", 0.3)
    go_on = asyncio.Event()
    async with gateway(gated("Hi", go_on), whole(completion_body("two"))) as site:
        id = await conversation(site)
        first = asyncio.create_task(site.respond(input="a", conversation=id, stream=True))
        await site.upstream.arrived.wait()
        clock.now = 1000.2
        await until(lambda: renewals.count(1000_200) >= 2)  # the second begins when the first is stored
        clock.now = 1000.4
        assert problem(await site.respond(input="b", conversation=id))[2] == "conversation_locked"
        go_on.set()
        assert (await first).status_code == 200


async def test_conversation_that_does_not_exist_is_404():
    async with gateway(HELLO) as site:
        assert problem(await site.respond(conversation="conv_x"))[::3] == (404, "conversation")


async def test_response_of_a_disconnected_client_is_stored_as_cancelled():
    async with listening([head(), chunk("Hel"), HANG]) as site:
        async with site.client.stream(
            "POST", "/v1/responses", json={"model": "m", "input": "a", "stream": True}
        ) as answer:
            seen = ""
            while "Hel" not in seen:
                seen += await anext(answer.aiter_text())
        await site.upstream.gone.wait()
        id = events(seen)[0]["response"]["id"]
        kept = await stored(site, id)
    assert (kept["status"], kept["error"], kept["output"][0]["status"]) == ("cancelled", None, "incomplete")
    assert kept["output"][0]["content"][0]["text"] == "Hel"


async def test_response_is_stored_once_if_the_client_leaves_at_its_body():
    async with gateway(whole(completion_body("one"))) as site:
        messages = [{"type": "http.request", "body": b'{"model": "m", "input": "a"}', "more_body": False}]
        leaving, got = asyncio.Event(), []

        async def receive():
            if messages:
                return messages.pop()
            await leaving.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            if message["type"] == "http.response.body":
                got.append(json.loads(message["body"]))
                leaving.set()
                await asyncio.Event().wait()  # the client takes no more

        scope = {"type": "http", "method": "POST", "path": "/v1/responses", "query_string": b"", "headers": []}
        await site.client._transport.app(scope, receive, send)
        (answer,) = got
        assert (answer["status"], (await get(site, answer["id"])).json()) == ("completed", answer)


# A store that fails

NOWHERE = {"url": "sqlite:////nowhere/at/all/gateway.db"}


async def test_store_failure_leaves_the_response_and_adds_a_warning():
    async with gateway(whole(completion_body("one")), HELLO, store=NOWHERE) as site:
        answer = await site.respond(input="a")
        assert (answer.status_code, answer.json()["store"]) == (200, False)
        assert answer.headers["x-gateway-warnings"] == "dropped:store"
        answer = await site.respond(input="a", stream=True)
    assert events(answer.text)[0]["response"]["store"] is True and events(answer.text)[-1]["response"]["store"] is False
    assert comments(answer.text) == [": gateway-warnings dropped:store"]


async def test_store_failure_is_503_where_a_lookup_is_needed():
    async with gateway(HELLO, store=NOWHERE) as site:
        for fields in ({"previous_response_id": "resp_1"}, {"conversation": "conv_1"}, {"input": [{"id": "a"}]}):
            assert problem(await site.respond(**fields))[:3] == (503, "server_error", "store_unavailable")
        assert problem(await get(site, "resp_1"))[0] == 503
        assert site.upstream.posts == []


async def test_store_is_used_again_after_it_recovers(tmp_path):
    folder = tmp_path / "later"
    async with gateway(whole(completion_body("one")), store={"url": f"sqlite:///{folder}/gateway.db"}) as site:
        assert (await respond(site, input="a"))["store"] is False
        folder.mkdir()
        answer = await respond(site, input="a")
        assert answer["store"] is True and (await get(site, answer["id"])).json() == answer


# Chat completions


@pytest.mark.parametrize("stream", [False, True])
async def test_chat_completion_with_store_true_is_stored(stream):
    async with gateway(HELLO if stream else whole(completion_body("Hi"))) as site:
        answer = await site.chat(stream=stream, store=True, metadata={"a": "b"})
        id = payloads(answer.text)[0]["id"] if stream else answer.json()["id"]
        kept = (await site.client.get(f"/v1/chat/completions/{id}")).json()
        assert "store" not in site.upstream_body and "x-gateway-warnings" not in answer.headers
        other = (await site.chat(stream=stream)).text
    assert kept["choices"][0]["message"]["content"] == "Hi" and kept["metadata"] == {"a": "b"}
    assert kept["usage"]["total_tokens"] == 9 and (stream or {**answer.json(), "metadata": {"a": "b"}} == kept)
    assert "chatcmpl-" in other


async def test_chat_completion_stream_with_store_true_has_keepalive_comments():
    script = [head(), chunk("Hi"), silent(0.2), chunk(finish="stop"), DONE, END]
    async with gateway(script, stream={"keepalive_seconds": 0.05}) as site:
        answer = await site.chat(stream=True, store=True)
    assert ": keep-alive" in comments(answer.text)


async def test_chat_completion_that_fails_is_not_stored():
    async with gateway([head(), chunk("Hel"), CLOSE]) as site:
        answer = await site.chat(stream=True, store=True)
        assert (await site.client.get(f"/v1/chat/completions/{payloads(answer.text)[0]['id']}")).status_code == 404


async def test_response_is_stored_if_the_client_leaves_after_the_last_item():
    async with gateway(HELLO) as site:
        body, left, chunks = json.dumps({"model": "m", "input": "a", "stream": True}).encode(), asyncio.Event(), []
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive():
            if message := next(messages, None):
                return message
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            chunks.append(message.get("body", b""))
            if b"response.output_item.done" in chunks[-1]:
                left.set()
                await asyncio.Event().wait()

        scope = {"type": "http", "method": "POST", "path": "/v1/responses", "headers": [], "query_string": b""}
        await site.app({**scope, "raw_path": b"/v1/responses", "http_version": "1.1", "scheme": "http"}, receive, send)
        event_list = events(b"".join(chunks).decode())
        assert (
            event_list[-1]["type"] == "response.completed"
            and (await get(site, event_list[-1]["response"]["id"])).json() == event_list[-1]["response"]
        )
