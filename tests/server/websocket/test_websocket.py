"""Test responses over a WebSocket on real sockets: events, lanes, errors, handshakes, disconnects and backpressure."""

import asyncio
import json
import logging
import tracemalloc

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from support.app import bearer, listening, on_both_loops, problem
from support.endless_upstream import MAX_BUFFERED, PIECE, Pouring
from support.jobs import BAD
from support.sse import comments, events
from support.stored import ANN, BOB, stored
from support.upstream import CLOSE, DONE, END, HANG, HELLO, chunk, gated, head, paused, whole
from support.wait import DEADLINE, until
from support.websocket import address, connected, error, response, texts, upstream_messages

KEYS = {
    "keys": [
        {"name": "ann", "key": f"ann-{'k' * 20}"},
        {"name": "bob", "key": f"bob-{'k' * 20}", "models": ["other"]},
        {"name": "cat", "key": f"cat-{'k' * 20}", "scopes": ["admin"]},
    ]
}
UNREAD = {"max_queue": 1, "max_size": None, "ping_interval": None}
QUICK = {"stream": {"grace_seconds": 0.02, "keepalive_seconds": 0.02}}


def kinds(events):
    return [event["type"] for event in events]


def plain(events):
    """Return the events without their ids and times."""
    text = json.dumps(events)
    for event in events:
        for id in (event.get("item_id"), (event.get("item") or {}).get("id"), event.get("response", {}).get("id")):
            text = text.replace(id, "id") if id else text
    return [{name: _plain(value) for name, value in event.items()} for event in json.loads(text)]


def _plain(value):
    times = ("created_at", "completed_at")
    return {name: 0 if name in times else one for name, one in value.items()} if isinstance(value, dict) else value


# Answers


async def test_websocket_events_equal_those_of_an_http_stream():
    async with listening(HELLO) as site, connected(site) as socket:
        await socket.create(input="Hi", metadata={"a": "b"})
        event_list = await socket.events()
        other = await site.respond(input="Hi", metadata={"a": "b"}, stream=True)
        kept = await site.client.get(f"/v1/responses/{event_list[-1]['response']['id']}")
        assert kept.json() == response(event_list[-1])
    assert plain(event_list) == plain(events(other.text)) and "stream_id" not in event_list[0]
    assert texts(event_list[-1]) == ["Hi"] and comments(other.text) == []


async def test_websocket_binary_message_is_accepted():
    async with listening(HELLO) as site, connected(site) as socket:
        await socket.ws.send(json.dumps({"type": "response.create", "model": "m", "input": "Hi"}).encode())
        assert texts((await socket.events())[-1]) == ["Hi"]


async def test_websocket_fragmented_message_is_accepted():
    message = json.dumps({"type": "response.create", "model": "m", "input": "Hi"})
    async with listening(HELLO) as site, connected(site) as socket:
        await socket.ws.send([message[:9], message[9:20], message[20:]])
        assert texts((await socket.events())[-1]) == ["Hi"]


async def test_websocket_responses_come_one_after_the_other():
    go = asyncio.Event()
    async with listening(gated("one", go), HELLO) as site, connected(site) as socket:
        for name in "abc":
            await socket.create(input=name)
        first = await socket.until("response.output_text.delta")
        assert len(site.upstream.posts) == 1
        go.set()
        event_list = first + await socket.events(ends=3)
        numbers = [event["sequence_number"] for event in event_list]
        assert numbers == [n for count in (9, 9, 9) for n in range(count)], "none comes between those of another"
        assert [post.json["messages"][0]["content"] for post in site.upstream.posts] == ["a", "b", "c"]


async def test_websocket_lanes_run_concurrently_and_events_name_their_lane():
    gates = [asyncio.Event(), asyncio.Event()]
    scripts = gated("one", gates[0]), gated("two", gates[1]), HELLO
    async with listening(*scripts) as site, connected(site) as socket:
        begun = []
        for lane in ("a", "b"):
            await socket.create(stream_id=lane)
            begun += await socket.until("response.output_text.delta")
        await socket.create(stream_id="a")
        await socket.create()
        event_list = await socket.events()
        assert {event.get("stream_id") for event in event_list} == {None} and texts(event_list[-1]) == ["Hi"]
        gates[1].set()
        second = await socket.events()
        assert {event["stream_id"] for event in second} == {"b"} and texts(second[-1]) == ["two"]
        assert len(site.upstream.posts) == 3, "the other one of its lane waits"
        gates[0].set()
        first, third = await socket.events(), await socket.events()
        assert {event["stream_id"] for event in first + third} == {"a"}
        assert (texts(first[-1]), texts(third[-1])) == (["one"], ["Hi"])
        assert [event["stream_id"] for event in begun] == ["a"] * 5 + ["b"] * 5


async def test_websocket_17th_response_waits():
    go = asyncio.Event()
    slow = gated("Hi", go)
    async with listening(*[slow] * 16, HELLO) as site, connected(site) as socket:
        for lane in range(17):
            await socket.create(stream_id=f"l{lane}")
        deltas = 0
        while deltas < 16:
            deltas += (await socket.event())["type"] == "response.output_text.delta"
        assert len(site.upstream.posts) == 16
        go.set()
        event_list = await socket.events(ends=17)
        assert event_list[-1]["type"] == "response.completed" and len(site.upstream.posts) == 17


async def test_websocket_keepalive_repeats_the_in_progress_event():
    go = asyncio.Event()
    script = [head(), go, chunk("Hi"), chunk(finish="stop"), DONE, END]
    async with listening(script, **QUICK) as site, connected(site) as socket:
        await socket.create(stream_id="a")
        begun = await socket.until("response.in_progress")
        more = [await socket.event() for _ in range(3)]
        go.set()
        rest = await socket.events()
    assert kinds(begun) == ["response.created", "response.in_progress"]
    assert kinds(more) == ["response.in_progress"] * 3 and rest[-1]["type"] == "response.completed"
    assert {event["stream_id"] for event in begun + more + rest} == {"a"}


async def test_websocket_steer_is_refused():
    go = asyncio.Event()
    async with listening(gated("one", go)) as site, connected(site) as socket:
        await socket.create(stream_id="a")
        id = (await socket.event())["response"]["id"]
        await socket.say(type="response.steer", previous_response_id=id, input="Stop.")
        failed = (await socket.until("response.steer.failed"))[-1]
        assert failed["error"]["code"] == "steering_not_supported" and "stream_id" not in failed
        assert failed["steer"] == {"input": "Stop.", "previous_response_id": id}
        go.set()
        assert texts((await socket.events())[-1]) == ["one"]


async def test_websocket_processed_event_is_accepted():
    async with listening(HELLO) as site, connected(site) as socket:
        id = response(await socket.respond())["id"]
        await socket.say(type="response.processed", response_id=id)
        assert texts(await socket.respond()) == ["Hi"]


# Errors


REFUSED = {
    "no JSON": ("{", 400, None, None),
    "no object": ("[]", 400, None, None),
    "no type": ({}, 400, "missing_required_parameter", "type"),
    "another type": ({"type": "response.delete"}, 400, "invalid_value", "type"),
    "not streamed": ({"type": "response.create", "stream": False}, 400, "unsupported_value", "stream"),
    "in the background": ({"type": "response.create", "background": True}, 400, "unsupported_value", "background"),
    "a bad lane": ({"type": "response.create", "stream_id": ""}, 400, "invalid_stream_id", "stream_id"),
    "no model": ({"type": "response.create", "input": "Hi"}, 400, "missing_required_parameter", "model"),
    "a bad parameter": (
        {"type": "response.create", "model": "m", "input": "Hi", "temperature": 9}, 400, "decimal_above_max_value",
        "temperature",
    ),
    "another model": ({"type": "response.create", "model": "x", "input": "Hi"}, 404, "model_not_found", "model"),
}  # fmt: skip


async def test_websocket_error_leaves_the_connection_open():
    async with listening(HELLO) as site, connected(site) as socket:
        for number, (case, (message, *expected)) in enumerate(REFUSED.items()):
            await socket.ws.send(message if isinstance(message, str) else json.dumps(message))
            status, type, *rest = error(await socket.event())
            assert ([status, *rest], type) == (expected, BAD), case
            assert len(site.upstream.posts) == number, case
            assert texts(await socket.respond()) == ["Hi"], case


async def test_websocket_error_waits_for_earlier_responses_of_its_lane():
    go = asyncio.Event()
    async with listening(gated("one", go)) as site, connected(site) as socket:
        await socket.create(stream_id="a")
        await socket.until("response.output_text.delta")
        await socket.create(stream_id="a", temperature=9)
        await socket.create(stream_id="a", stream=False)
        await socket.ws.send("{")
        event = await socket.event()
        assert error(event)[0] == 400 and "stream_id" not in event, "of no lane that could be known"
        go.set()
        assert texts((await socket.events())[-1]) == ["one"]
        refusals = await socket.events(ends=2)
        assert [(error(event)[3], event["stream_id"]) for event in refusals] == [("temperature", "a"), ("stream", "a")]


async def test_websocket_error_reports_a_refusing_or_unreachable_backend():
    busy = whole({"error": {"message": "Busy.", "code": 503}}, status=503)
    more = {"more_backends": {"away": {"url": "http://127.0.0.1:9"}}, "more_models": {"gone": {"backends": ["away"]}}}
    async with listening(busy, HELLO, **more) as site, connected(site) as socket:
        event = await socket.respond(stream_id="a")
        assert error(event)[:2] == (503, "server_error") and event["stream_id"] == "a"
        assert error(await socket.respond(model="gone"))[::2] == (502, "upstream_unreachable")
        assert texts(await socket.respond()) == ["Hi"]


async def test_websocket_failure_during_a_response_is_sent_once():
    broken = [head(), chunk("Hel"), CLOSE]
    async with listening(broken, HELLO) as site, connected(site) as socket:
        await socket.create(stream_id="a")
        event_list = await socket.events()
        assert "error" not in kinds(event_list) and {event["stream_id"] for event in event_list} == {"a"}
        assert event_list[-1]["type"] == "response.failed" and event_list[-1]["response"]["status"] == "failed"
        assert event_list[-1]["response"]["output"][0]["content"][0]["text"] == "Hel"
        assert texts(await socket.respond()) == ["Hi"]


async def test_websocket_33rd_lane_is_refused():
    async with listening(HELLO) as site, connected(site) as socket:
        for lane in range(32):
            assert texts(await socket.respond(stream_id=f"l{lane}")) == ["Hi"]
        event = await socket.respond(stream_id="l32")
        assert error(event) == (400, BAD, "websocket_stream_limit_reached", "stream_id")
        assert event["stream_id"] == "l32"
        assert texts(await socket.respond(stream_id="l0")) == texts(await socket.respond()) == ["Hi"]


async def test_websocket_limits_the_number_of_waiting_requests():
    go = asyncio.Event()
    async with listening(gated("one", go), HELLO) as site, connected(site) as socket:
        await socket.create(stream_id="a")
        await socket.until("response.output_text.delta")
        for _ in range(64 + 150):
            await socket.create(stream_id="a")
        refused = [await socket.event() for _ in range(150)]
        assert {(*error(event), event["stream_id"]) for event in refused} == {
            (429, "rate_limit_error", "rate_limit_exceeded", None, "a")
        }
        go.set()
        event_list = await socket.events(ends=65)
        assert event_list[-1]["type"] == "response.completed" and len(site.upstream.posts) == 65


async def test_websocket_limits_the_bytes_of_waiting_requests():
    go = asyncio.Event()
    async with listening(gated("one", go), HELLO, limits={"body_bytes": 1000}) as site, connected(site) as socket:
        await socket.create()
        await socket.until("response.output_text.delta")
        await socket.create(input="x" * 800)
        await socket.create(input="x" * 800)
        assert error(await socket.event())[0] == 429
        go.set()
        assert kinds(await socket.events(ends=2)).count("response.completed") == 2


# The handshake


async def handshake_error(site, lines=None, **headers):
    """Return the status, type and code with which a handshake is refused."""
    with pytest.raises(InvalidStatus) as info:
        async with connect(address(site), additional_headers=lines or headers):
            pass
    answer = info.value.response
    error_body = json.loads(answer.body)["error"]
    assert answer.headers["content-type"] == "application/json" and set(error_body) == {
        "message",
        "type",
        "param",
        "code",
    }
    return answer.status_code, error_body["type"], error_body["code"]


async def test_websocket_handshake_needs_an_api_key():
    async with listening(HELLO, auth=KEYS) as site:
        assert await handshake_error(site) == (401, BAD, "invalid_api_key")
        assert await handshake_error(site, authorization="Bearer wrong") == (401, BAD, "invalid_api_key")
        assert await handshake_error(site, **bearer(f"cat-{'k' * 20}")) == (403, BAD, "scope_not_allowed")
        async with connected(site, ANN) as socket:
            assert texts(await socket.respond()) == ["Hi"]
        async with connected(site, BOB) as socket:
            assert error(await socket.respond()) == (403, BAD, "model_not_allowed", "model")


async def test_websocket_switched_off_refuses_the_handshake(caplog):
    async with listening(HELLO, responses={"websocket": False}, auth=KEYS) as site:
        assert await handshake_error(site) == (426, BAD, None)
        assert not caplog.records, "nothing is wrong with that"
        assert problem(await site.respond(headers=ANN, input=3))[0] == 400


async def test_websocket_origin_must_be_allowed():
    async with listening(HELLO, server={"cors": ["https://a.example"]}) as site:
        for origin in ("https://b.example", "null", "http://127.0.0.1"):
            assert await handshake_error(site, origin=origin) == (403, BAD, "origin_not_allowed")
        own = f"http://127.0.0.1:{site.client.base_url.port}"
        for origin in ("https://a.example", own):
            async with connected(site, {"origin": origin}) as socket:
                assert texts(await socket.respond()) == ["Hi"]
    async with listening(HELLO, server={"cors": ["*"]}) as site, connected(site, {"origin": "null"}) as socket:
        assert texts(await socket.respond()) == ["Hi"]


ORIGINS = [
    "null", "", "https://b.example", "HTTPS://A.EXAMPLE", "https://a.example:443", "https://a.example:444",
    "http://a.example", "https://me@a.example", "https://a.example@b.example", "https://a.example.b.example",
    "https://b.example, https://a.example", "https://a.example/", "http://[", "https://a.example\t", "//a.example",
    "http://127.0.0.1", "http://me@{own}", "ftp://{own}", "http://{own}/", "{own}", "http://{own}.b.example",
]  # fmt: skip


async def test_websocket_origin_is_compared_exactly():
    async with listening(HELLO, server={"cors": ["https://a.example"]}) as site:
        own = f"127.0.0.1:{site.client.base_url.port}"
        for origin in ORIGINS:
            lines = [("origin", origin.replace("{own}", own))]
            if origin.strip() == "https://a.example":  # white space around a value is not part of it
                async with connected(site, lines):
                    continue
            assert await handshake_error(site, lines) == (403, BAD, "origin_not_allowed"), origin


async def test_websocket_origin_given_twice_is_400():
    async with listening(HELLO, server={"cors": ["https://a.example"]}) as site:
        for other in ("https://a.example", "https://b.example"):
            for lines in ([other, "https://a.example"], ["https://a.example", other]):
                with pytest.raises(InvalidStatus, match="400"):
                    await connect(address(site), additional_headers=[("origin", one) for one in lines])


async def test_websocket_subprotocol_is_ignored():
    """A key in the name of a subprotocol does not authenticate."""
    async with listening(HELLO, auth=KEYS) as site:
        offered = {"sec-websocket-protocol": f"openai-insecure-api-key.ann-{'k' * 20}, realtime"}
        assert await handshake_error(site, **offered) == (401, BAD, "invalid_api_key")
        async with connected(site, {**ANN, **offered}) as socket:
            assert texts(await socket.respond()) == ["Hi"]


async def test_websocket_on_another_path_is_403():
    async with listening(HELLO) as site:
        for path in ("/compact", "/../chat/completions"):
            with pytest.raises(InvalidStatus) as info:
                await connect(address(site) + path)
            assert info.value.response.status_code == 403


# Warnings


async def test_websocket_warnings_are_events_for_debugging_clients():
    fields = {"moderation": {"policy": {}}, "stream_id": "a"}
    async with listening(HELLO, store={"url": "sqlite:////nowhere/at/all/gateway.db"}) as site:
        async with connected(site, {"x-gateway-debug": "1"}) as socket:
            await socket.create(**fields)
            first, *event_list, second, last = await socket.events()
        async with connected(site) as socket:
            await socket.create(**fields)
            assert not [event for event in await socket.events() if event["type"].startswith("gateway")]
    assert first == {"type": "gateway:warnings", "stream_id": "a", "warnings": ["dropped:moderation"]}
    assert second == {"type": "gateway:warnings", "stream_id": "a", "warnings": ["dropped:store"]}
    assert event_list[0]["type"] == "response.created" and last["type"] == "response.completed"


async def test_websocket_strict_client_gets_an_error_instead_of_a_warning():
    async with listening(HELLO) as site, connected(site, {"x-gateway-strict": "1"}) as socket:
        event = await socket.respond(moderation={"policy": {}})
        assert error(event) == (400, BAD, "unsupported_parameter", "moderation")
        assert texts(await socket.respond()) == ["Hi"]


# A client that leaves, or does not read


@pytest.mark.parametrize("how", ["closes", "resets"])
@pytest.mark.parametrize("script", [[HANG], [head(), HANG], [head(), chunk("Hel"), HANG]])
@on_both_loops
async def test_websocket_disconnect_closes_the_upstream_connection(script, how, caplog):
    async with listening(script) as site, connected(site) as socket:
        await socket.create(input="a")
        await socket.create(input="b")
        await site.upstream.arrived.wait()
        if script[-2:-1] and script[-2] == chunk("Hel"):
            await socket.until("response.output_text.delta")
        await leave(site, socket, how)
        assert len(site.upstream.posts) == 1, "what waited is not asked any more"
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def leave(site, socket, how):
    """Disconnect the client, and wait until the upstream sees its own connection closed."""
    assert not site.upstream.gone.is_set()
    if how == "closes":
        leaving = asyncio.create_task(socket.ws.close())
    else:
        socket.ws.transport.abort()
        leaving = asyncio.create_task(socket.ws.wait_closed())
    async with asyncio.timeout(DEADLINE):
        await site.upstream.gone.wait()
    await leaving


@on_both_loops
async def test_websocket_disconnect_ends_all_lanes():
    async with listening([head(), chunk("Hel"), HANG], responses={"resume_seconds": 0}) as site:
        before = len(asyncio.all_tasks())
        async with connected(site, max_queue=None) as socket:
            for lane in range(20):
                await socket.create(stream_id=f"l{lane}")
            while len(site.upstream.posts) < 16:
                await socket.event()
        await until(lambda: len(asyncio.all_tasks()) <= before + 5)
        assert len(site.upstream.posts) == 16


async def test_websocket_disconnect_stores_the_partial_response():
    async with listening([head(), chunk("Hel"), HANG]) as site:
        async with connected(site) as socket:
            await socket.create()
            id = (await socket.until("response.output_text.delta"))[0]["response"]["id"]
        await site.upstream.gone.wait()
        kept = await stored(site, id)
    assert (kept["status"], kept["output"][0]["content"][0]["text"]) == ("cancelled", "Hel")


async def test_websocket_disconnect_leaves_a_resumable_response_running():
    go = asyncio.Event()
    async with listening(paused(go), HELLO, responses={"resume_seconds": 60}) as site:
        async with connected(site) as socket:
            await socket.create()
            event_list = await socket.until("response.output_text.delta")
        go.set()
        id, seen = event_list[0]["response"]["id"], event_list[-1]["sequence_number"]
        rest = await site.client.get(f"/v1/responses/{id}", params={"stream": "true", "starting_after": seen})
        assert texts(events(rest.text)[-1]) == ["Hello"]
        async with connected(site) as socket:
            again = await socket.respond(previous_response_id=id, stream_id="a")
        assert texts(again) == ["Hi"] and upstream_messages(site)[1] == ("assistant", "Hello")


@on_both_loops
async def test_websocket_client_that_does_not_read_holds_the_backend_back():
    pour = Pouring(10**9)
    async with listening([head(), pour], model={"format": "native"}) as site, connected(site, **UNREAD) as socket:
        await socket.create(store=False)
        await socket.until("response.output_text.delta")
        tracemalloc.start()
        await pour.stuck()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert not pour.over.is_set()
        assert pour.sent < MAX_BUFFERED, "the backend was held back"
        assert peak < 8_000_000, "little of it is kept, by the client as well"
        before = pour.sent
        count = before // len(PIECE) + 600  # more than all that has been sent
        numbers = [(await socket.event())["sequence_number"] for _ in range(count)]
        assert numbers == [*range(numbers[0], numbers[0] + count)], "nothing is missing"
        await until(lambda: pour.sent > before + 500 * len(PIECE))  # the backend goes on when there is room
        socket.ws.transport.abort()  # a closing handshake would have to wait for all that is sent


@on_both_loops
async def test_websocket_disconnect_without_reading_frees_the_backend():
    pour = Pouring(10**9)
    async with listening([head(), pour], model={"format": "native"}) as site, connected(site, **UNREAD) as socket:
        await socket.create(store=False)
        await pour.stuck()
        socket.ws.transport.abort()
        async with asyncio.timeout(DEADLINE):
            await pour.over.wait()
