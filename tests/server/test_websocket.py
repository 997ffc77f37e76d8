"""Responses over a WebSocket, on real sockets: events are messages, lanes run beside each other, errors end nothing."""

import asyncio
import json
import logging
import tracemalloc

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from support.app import listening, on_both_loops, problem
from support.endless_upstream import PIECE, Pouring
from support.sse import comments, events
from support.upstream import CLOSE, DONE, END, HANG, HELLO, SOON, chunk, head, whole
from support.websocket import address, asked, connected, error, response, texts

BAD = "invalid_request_error"
ANN = {"authorization": f"Bearer ann-{'k' * 20}"}
KEYS = {
    "keys": [
        {"name": "ann", "key": f"ann-{'k' * 20}"},
        {"name": "bob", "key": f"bob-{'k' * 20}", "models": ["other"]},
        {"name": "cat", "key": f"cat-{'k' * 20}", "scopes": ["admin"]},
    ]
}
DEAF = {"max_queue": 1, "max_size": None, "ping_interval": None}
QUICK = {"stream": {"grace_seconds": 0.02, "keepalive_seconds": 0.02}}


def gated(text, go):
    """An answer whose end waits."""
    return [head(), chunk(text), go, chunk(finish="stop"), DONE, END]


def kinds(events):
    return [event["type"] for event in events]


def plain(events):
    """Without what is never the same twice."""
    text = json.dumps(events)
    for event in events:
        for id in (event.get("item_id"), (event.get("item") or {}).get("id"), event.get("response", {}).get("id")):
            text = text.replace(id, "id") if id else text
    return [{name: _plain(value) for name, value in event.items()} for event in json.loads(text)]


def _plain(value):
    times = ("created_at", "completed_at")
    return {name: 0 if name in times else one for name, one in value.items()} if isinstance(value, dict) else value


# Answers


async def test_the_events_are_those_of_a_stream():
    async with listening(HELLO) as site, connected(site) as socket:
        await socket.create(input="Hi", metadata={"a": "b"})
        told = await socket.events()
        other = await site.respond(input="Hi", metadata={"a": "b"}, stream=True)
        kept = await site.client.get(f"/v1/responses/{told[-1]['response']['id']}")
        assert kept.json() == response(told[-1])
    assert plain(told) == plain(events(other.text)) and "stream_id" not in told[0]
    assert texts(told[-1]) == ["Hi"] and comments(other.text) == []


async def test_a_binary_message_is_one_as_well():
    async with listening(HELLO) as site, connected(site) as socket:
        await socket.ws.send(json.dumps({"type": "response.create", "model": "m", "input": "Hi"}).encode())
        assert texts((await socket.events())[-1]) == ["Hi"]


async def test_a_message_in_pieces_is_one():
    message = json.dumps({"type": "response.create", "model": "m", "input": "Hi"})
    async with listening(HELLO) as site, connected(site) as socket:
        await socket.ws.send([message[:9], message[9:20], message[20:]])
        assert texts((await socket.events())[-1]) == ["Hi"]


async def test_responses_come_one_after_the_other():
    go = asyncio.Event()
    async with listening(gated("one", go), HELLO) as site, connected(site) as socket:
        for name in "abc":
            await socket.create(input=name)
        first = await socket.until("response.output_text.delta")
        assert len(site.upstream.posts) == 1
        go.set()
        told = first + await socket.events(ends=3)
        numbers = [event["sequence_number"] for event in told]
        assert numbers == [n for count in (9, 9, 9) for n in range(count)], "none comes between those of another"
        assert [post.json["messages"][0]["content"] for post in site.upstream.posts] == ["a", "b", "c"]


async def test_lanes_run_beside_each_other_and_each_event_names_its_own():
    gates = [asyncio.Event(), asyncio.Event()]
    scripts = gated("one", gates[0]), gated("two", gates[1]), HELLO
    async with listening(*scripts) as site, connected(site) as socket:
        begun = []
        for lane in ("a", "b"):
            await socket.create(stream_id=lane)
            begun += await socket.until("response.output_text.delta")
        await socket.create(stream_id="a")
        await socket.create()
        told = await socket.events()
        assert {event.get("stream_id") for event in told} == {None} and texts(told[-1]) == ["Hi"]
        gates[1].set()
        second = await socket.events()
        assert {event["stream_id"] for event in second} == {"b"} and texts(second[-1]) == ["two"]
        assert len(site.upstream.posts) == 3, "the other one of its lane waits"
        gates[0].set()
        first, third = await socket.events(), await socket.events()
        assert {event["stream_id"] for event in first + third} == {"a"}
        assert (texts(first[-1]), texts(third[-1])) == (["one"], ["Hi"])
        assert [event["stream_id"] for event in begun] == ["a"] * 5 + ["b"] * 5


async def test_a_17th_response_waits():
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
        told = await socket.events(ends=17)
        assert told[-1]["type"] == "response.completed" and len(site.upstream.posts) == 17


async def test_silence_is_broken():
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


async def test_nothing_can_be_steered():
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


async def test_word_that_a_response_was_read_is_taken():
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


@pytest.mark.parametrize("case", REFUSED)
async def test_an_error_leaves_the_connection_as_it_is(case):
    message, *expected = REFUSED[case]
    async with listening(HELLO) as site, connected(site) as socket:
        await socket.ws.send(message if isinstance(message, str) else json.dumps(message))
        status, type, *rest = error(await socket.event())
        assert ([status, *rest], type) == (expected, BAD)
        assert site.upstream.posts == []
        assert texts(await socket.respond()) == ["Hi"]


async def test_an_error_comes_when_it_is_its_turn():
    go = asyncio.Event()
    async with listening(gated("one", go)) as site, connected(site) as socket:
        await socket.create(stream_id="a")
        await socket.until("response.output_text.delta")
        await socket.create(stream_id="a", temperature=9)
        await socket.create(stream_id="a", stream=False)
        await socket.ws.send("{")
        told = await socket.event()
        assert error(told)[0] == 400 and "stream_id" not in told, "of no lane that could be known"
        go.set()
        assert texts((await socket.events())[-1]) == ["one"]
        told = await socket.events(ends=2)
        assert [(error(event)[3], event["stream_id"]) for event in told] == [("temperature", "a"), ("stream", "a")]


async def test_a_backend_that_refuses_is_an_error_and_so_is_one_that_is_not_there():
    busy = whole({"error": {"message": "Busy.", "code": 503}}, status=503)
    more = {"more_backends": {"away": {"url": "http://127.0.0.1:9"}}, "more_models": {"gone": {"backends": ["away"]}}}
    async with listening(busy, HELLO, **more) as site, connected(site) as socket:
        told = await socket.respond(stream_id="a")
        assert error(told)[:2] == (503, "server_error") and told["stream_id"] == "a"
        assert error(await socket.respond(model="gone"))[::2] == (502, "upstream_unreachable")
        assert texts(await socket.respond()) == ["Hi"]


async def test_a_failure_in_the_middle_is_told_once():
    broken = [head(), chunk("Hel"), CLOSE]
    async with listening(broken, HELLO) as site, connected(site) as socket:
        await socket.create(stream_id="a")
        told = await socket.events()
        assert "error" not in kinds(told) and {event["stream_id"] for event in told} == {"a"}
        assert told[-1]["type"] == "response.failed" and told[-1]["response"]["status"] == "failed"
        assert told[-1]["response"]["output"][0]["content"][0]["text"] == "Hel"
        assert texts(await socket.respond()) == ["Hi"]


async def test_a_33rd_lane_is_one_too_many():
    async with listening(HELLO) as site, connected(site) as socket:
        for lane in range(32):
            assert texts(await socket.respond(stream_id=f"l{lane}")) == ["Hi"]
        told = await socket.respond(stream_id="l32")
        assert error(told) == (400, BAD, "websocket_stream_limit_reached", "stream_id")
        assert told["stream_id"] == "l32"
        assert texts(await socket.respond(stream_id="l0")) == texts(await socket.respond()) == ["Hi"]


async def test_only_so_many_requests_wait():
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
        told = await socket.events(ends=65)
        assert told[-1]["type"] == "response.completed" and len(site.upstream.posts) == 65


async def test_only_so_many_bytes_wait():
    go = asyncio.Event()
    async with listening(gated("one", go), HELLO, limits={"body_bytes": 1000}) as site, connected(site) as socket:
        await socket.create()
        await socket.until("response.output_text.delta")
        await socket.create(input="x" * 800)
        await socket.create(input="x" * 800)
        assert error(await socket.event())[0] == 429
        go.set()
        assert kinds(await socket.events(ends=2)).count("response.completed") == 2


# Who may come in


async def refused(site, lines=None, **headers):
    """The answer to a handshake, as one of HTTP."""
    with pytest.raises(InvalidStatus) as info:
        async with connect(address(site), additional_headers=lines or headers):
            pass
    answer = info.value.response
    said = json.loads(answer.body)["error"]
    assert answer.headers["content-type"] == "application/json" and set(said) == {"message", "type", "param", "code"}
    return answer.status_code, said["type"], said["code"]


async def test_a_key_opens_a_connection():
    async with listening(HELLO, auth=KEYS) as site:
        assert await refused(site) == (401, BAD, "invalid_api_key")
        assert await refused(site, authorization="Bearer wrong") == (401, BAD, "invalid_api_key")
        assert await refused(site, authorization=f"Bearer cat-{'k' * 20}") == (403, BAD, "scope_not_allowed")
        async with connected(site, ANN) as socket:
            assert texts(await socket.respond()) == ["Hi"]
        async with connected(site, {"authorization": f"Bearer bob-{'k' * 20}"}) as socket:
            assert error(await socket.respond()) == (403, BAD, "model_not_allowed", "model")


async def test_an_operator_may_not_want_any(caplog):
    async with listening(HELLO, responses={"websocket": False}, auth=KEYS) as site:
        assert await refused(site) == (426, BAD, None)
        assert not caplog.records, "nothing is wrong with that"
        assert problem(await site.respond(headers=ANN, input=3))[0] == 400


async def test_of_pages_only_those_connect_that_are_allowed():
    async with listening(HELLO, server={"cors": ["https://a.example"]}) as site:
        for origin in ("https://b.example", "null", "http://127.0.0.1"):
            assert await refused(site, origin=origin) == (403, BAD, "origin_not_allowed")
        own = f"http://127.0.0.1:{site.client.base_url.port}"
        for origin in ("https://a.example", own):
            async with connected(site, {"origin": origin}) as socket:
                assert texts(await socket.respond()) == ["Hi"]
    async with listening(HELLO, server={"cors": ["*"]}) as site, connected(site, {"origin": "null"}) as socket:
        assert texts(await socket.respond()) == ["Hi"]


@pytest.mark.parametrize(
    "origin",
    [
        "null", "", "https://b.example", "HTTPS://A.EXAMPLE", "https://a.example:443", "https://a.example:444",
        "http://a.example", "https://me@a.example", "https://a.example@b.example", "https://a.example.b.example",
        "https://b.example, https://a.example", "https://a.example/", "http://[", "https://a.example\t", "//a.example",
        "http://127.0.0.1", "http://me@{own}", "ftp://{own}", "http://{own}/", "{own}", "http://{own}.b.example",
    ],
)  # fmt: skip
async def test_an_origin_is_the_very_one_or_another(origin):
    async with listening(HELLO, server={"cors": ["https://a.example"]}) as site:
        own = f"127.0.0.1:{site.client.base_url.port}"
        lines = [("origin", origin.replace("{own}", own))]
        if origin.strip() == "https://a.example":  # white space around a value is none of it
            async with connected(site, lines):
                return
        assert await refused(site, lines) == (403, BAD, "origin_not_allowed")


async def test_of_several_origins_none_is_right():
    async with listening(HELLO, server={"cors": ["https://a.example"]}) as site:
        for other in ("https://a.example", "https://b.example"):
            for lines in ([other, "https://a.example"], ["https://a.example", other]):
                with pytest.raises(InvalidStatus, match="400"):
                    await connect(address(site), additional_headers=[("origin", one) for one in lines])


async def test_a_protocol_within_is_not_spoken():
    """Tokens in its name are no keys either."""
    async with listening(HELLO, auth=KEYS) as site:
        offered = {"sec-websocket-protocol": f"openai-insecure-api-key.ann-{'k' * 20}, realtime"}
        assert await refused(site, **offered) == (401, BAD, "invalid_api_key")
        async with connected(site, {**ANN, **offered}) as socket:
            assert texts(await socket.respond()) == ["Hi"]


async def test_nothing_else_is_there_for_a_websocket():
    async with listening(HELLO) as site:
        for path in ("/compact", "/../chat/completions"):
            with pytest.raises(InvalidStatus) as info:
                await connect(address(site) + path)
            assert info.value.response.status_code == 403


# Warnings


async def test_what_was_not_passed_as_it_came_is_told_to_those_who_want_to_know():
    fields = {"moderation": {"policy": {}}, "stream_id": "a"}
    async with listening(HELLO, store={"url": "sqlite:////nowhere/at/all/gateway.db"}) as site:
        async with connected(site, {"x-gateway-debug": "1"}) as socket:
            await socket.create(**fields)
            first, *told, second, last = await socket.events()
        async with connected(site) as socket:
            await socket.create(**fields)
            assert not [event for event in await socket.events() if event["type"].startswith("gateway")]
    assert first == {"type": "gateway:warnings", "stream_id": "a", "warnings": ["dropped:moderation"]}
    assert second == {"type": "gateway:warnings", "stream_id": "a", "warnings": ["dropped:store"]}
    assert told[0]["type"] == "response.created" and last["type"] == "response.completed"


async def test_a_strict_client_is_told_so_instead():
    async with listening(HELLO) as site, connected(site, {"x-gateway-strict": "1"}) as socket:
        told = await socket.respond(moderation={"policy": {}})
        assert error(told) == (400, BAD, "unsupported_parameter", "moderation")
        assert texts(await socket.respond()) == ["Hi"]


# A client that leaves, or does not read


@pytest.mark.parametrize("how", ["closes", "resets"])
@pytest.mark.parametrize("script", [[HANG], [head(), HANG], [head(), chunk("Hel"), HANG]])
@on_both_loops
async def test_when_the_client_leaves_so_does_the_gateway(script, how, caplog):
    async with listening(script) as site, connected(site) as socket:
        await socket.create(input="a")
        await socket.create(input="b")
        await site.upstream.arrived.wait()
        if script[-2:-1] and script[-2] == chunk("Hel"):
            await socket.until("response.output_text.delta")
        await leaves(site, socket, how)
        assert len(site.upstream.posts) == 1, "what waited is not asked any more"
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def leaves(site, socket, how):
    """The client goes; the upstream has to see its own connection closed, and soon."""
    assert not site.upstream.gone.is_set()
    if how == "closes":
        leaving = asyncio.create_task(socket.ws.close())
    else:
        socket.ws.transport.abort()
        leaving = asyncio.create_task(socket.ws.wait_closed())
    async with asyncio.timeout(SOON):
        await site.upstream.gone.wait()
    await leaving


@on_both_loops
async def test_all_lanes_of_a_client_that_leaves_are_given_up():
    async with listening([head(), chunk("Hel"), HANG], responses={"resume_seconds": 0}) as site:
        before = len(asyncio.all_tasks())
        async with connected(site, max_queue=None) as socket:
            for lane in range(20):
                await socket.create(stream_id=f"l{lane}")
            while len(site.upstream.posts) < 16:
                await socket.event()
        async with asyncio.timeout(2):
            while len(asyncio.all_tasks()) > before + 5:  # noqa: ASYNC110 (nothing tells when a task has gone)
                await asyncio.sleep(0.01)
        assert len(site.upstream.posts) == 16


async def test_a_client_that_leaves_finds_what_had_come():
    async with listening([head(), chunk("Hel"), HANG]) as site:
        async with connected(site) as socket:
            await socket.create()
            id = (await socket.until("response.output_text.delta"))[0]["response"]["id"]
        await site.upstream.gone.wait()
        async with asyncio.timeout(5):
            while (kept := await site.client.get(f"/v1/responses/{id}")).status_code == 404:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    told = kept.json()
    assert (told["status"], told["output"][0]["content"][0]["text"]) == ("cancelled", "Hel")


async def test_a_response_that_may_be_taken_up_again_goes_on_without_its_client():
    go = asyncio.Event()
    script = [head(), chunk("Hel"), go, chunk("lo"), chunk(finish="stop"), DONE, END]
    async with listening(script, HELLO, responses={"resume_seconds": 60}) as site:
        async with connected(site) as socket:
            await socket.create()
            told = await socket.until("response.output_text.delta")
        go.set()
        id, seen = told[0]["response"]["id"], told[-1]["sequence_number"]
        rest = await site.client.get(f"/v1/responses/{id}", params={"stream": "true", "starting_after": seen})
        assert texts(events(rest.text)[-1]) == ["Hello"]
        async with connected(site) as socket:
            again = await socket.respond(previous_response_id=id, stream_id="a")
        assert texts(again) == ["Hi"] and asked(site)[1] == ("assistant", "Hello")


@on_both_loops
async def test_a_client_that_does_not_read_holds_the_backend_back():
    pour = Pouring(10**9)
    async with listening([head(), pour], model={"format": "native"}) as site, connected(site, **DEAF) as socket:
        await socket.create(store=False)
        await socket.until("response.output_text.delta")
        tracemalloc.start()
        await pour.stuck()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert not pour.over.is_set()
        assert pour.sent < 25_000_000, "the backend was held back"
        assert peak < 8_000_000, "little of it is kept, by the client as well"
        before = pour.sent
        numbers = [(await socket.event())["sequence_number"] for _ in range(2000)]
        assert numbers == [*range(numbers[0], numbers[0] + 2000)], "nothing is missing"
        await pour.stuck()
        assert pour.sent > before + 500 * len(PIECE), "it goes on when there is room"
        socket.ws.transport.abort()  # it would not hear that it may go


@on_both_loops
async def test_a_client_that_neither_reads_nor_stays_frees_the_backend():
    pour = Pouring(10**9)
    async with listening([head(), pour], model={"format": "native"}) as site, connected(site, **DEAF) as socket:
        await socket.create(store=False)
        await pour.stuck()
        socket.ws.transport.abort()
        async with asyncio.timeout(5):
            await pour.over.wait()
