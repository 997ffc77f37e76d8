"""Test continuing responses over a WebSocket: unstored ones of the same connection, and those of the store."""

import asyncio

import pytest

from gateway.server.websocket.recent_responses import RecentResponses, ResponseChain
from support.app import listening
from support.jobs import BAD, ended
from support.stored import ANN, BOB, TENANTS
from support.upstream import CLOSE, HELLO, chunk, gated, head, stream, whole
from support.websocket import connected, error, response, upstream_messages

GONE = (400, BAD, "previous_response_not_found", "previous_response_id")
NOWHERE = {"url": "sqlite:////nowhere/at/all/gateway.db"}
BROKEN = [head(), chunk("Hel"), CLOSE]


def stream_of(text):
    return stream(chunk(text), chunk(finish="stop"))


ONE, TWO, THREE, FOUR = map(stream_of, ("one", "two", "three", "four"))


async def respond(socket, **fields):
    """Return a response that completes; it is not stored unless `store` says so."""
    return response(await socket.respond(**{"store": False, **fields}))


async def input_items(site, id):
    """Return the role and text of the stored input items of a response."""
    answer = await site.client.get(f"/v1/responses/{id}/input_items", params={"order": "asc"})
    assert answer.status_code == 200, answer.text
    items = answer.json()["data"]
    assert len({item["id"] for item in items}) == len(items)
    return [(item["role"], item["content"][0]["text"]) for item in items]


# The connection


async def test_websocket_unstored_response_is_continued_on_its_connection(store_url):
    async with listening(ONE, TWO, THREE, store={"url": store_url}) as site:
        async with connected(site) as socket:
            first = await respond(socket, input="a", instructions="Be brief.")
            second = await respond(socket, input="b", previous_response_id=first["id"])
            assert (second["previous_response_id"], second["store"]) == (first["id"], False)
            await respond(socket, input="c", previous_response_id=second["id"])
        assert upstream_messages(site) == [
            ("user", "a"), ("assistant", "one"), ("user", "b"), ("assistant", "two"), ("user", "c"),
        ]  # fmt: skip
        for one in (first, second):
            assert (await site.client.get(f"/v1/responses/{one['id']}")).status_code == 404


async def test_websocket_unstored_response_needs_no_store():
    async with listening(ONE, TWO, store=NOWHERE) as site, connected(site) as socket:
        first = await respond(socket, input="a")
        await respond(socket, input="b", previous_response_id=first["id"])
        assert upstream_messages(site) == [("user", "a"), ("assistant", "one"), ("user", "b")]


async def test_websocket_response_that_could_not_be_stored_is_continued():
    async with listening(ONE, TWO, store=NOWHERE) as site, connected(site) as socket:
        first = await respond(socket, input="a", store=True)
        assert first["store"] is False
        await respond(socket, input="b", previous_response_id=first["id"])
        assert upstream_messages(site) == [("user", "a"), ("assistant", "one"), ("user", "b")]


async def test_websocket_unstored_response_is_gone_with_its_connection():
    async with listening(ONE, TWO) as site:
        async with connected(site) as socket:
            first = await respond(socket, input="a")
        async with connected(site) as socket, connected(site) as other:
            assert error(await socket.respond(input="b", previous_response_id=first["id"])) == GONE
            second = await respond(socket, input="b")
            assert error(await other.respond(input="c", previous_response_id=second["id"])) == GONE
        assert len(site.upstream.posts) == 2


async def test_websocket_unstored_response_is_replaced_by_the_next_of_its_lane():
    async with listening(HELLO) as site, connected(site) as socket:
        first = await respond(socket)
        await respond(socket, previous_response_id=first["id"], stream_id="a")
        await respond(socket, previous_response_id=first["id"])
        assert error(await socket.respond(previous_response_id=first["id"], stream_id="a")) == GONE


async def test_websocket_tool_call_is_answered_in_the_next_response():
    call = {"index": 0, "id": "call_1", "function": {"name": "f", "arguments": '{"a": 1}'}}
    calls = stream(chunk(tool_calls=[call]), chunk(finish="tool_calls"))
    async with listening(calls, TWO) as site, connected(site) as socket:
        first = await respond(socket, input="a", tools=[{"type": "function", "name": "f"}])
        output = {"type": "function_call_output", "call_id": "call_1", "output": "fine"}
        await respond(socket, input=[output], previous_response_id=first["id"])
        _, past, answer = site.upstream_body["messages"]
    assert past["tool_calls"][0]["id"] == answer["tool_call_id"] == "call_1" and answer["content"] == "fine"


async def test_websocket_reasoning_goes_back_to_the_model():
    thinks = stream(chunk(reasoning_content="Hm."), chunk("one"), chunk(finish="stop"))
    async with listening(thinks, TWO) as site, connected(site) as socket:
        first = await respond(socket, input="a")
        context = {"context": "all_turns"}
        await respond(socket, input="b", previous_response_id=first["id"], reasoning=context)
    assert site.upstream_body["messages"][1] == {"role": "assistant", "content": "one", "reasoning_content": "Hm."}


async def test_websocket_response_with_generate_false_is_continued():
    async with listening(ONE, TWO) as site, connected(site) as socket:
        first = await respond(socket, input="a", generate=False)
        assert (first["status"], first["output"]) == ("completed", [])
        second = await respond(socket, input=[], previous_response_id=first["id"])
        assert upstream_messages(site) == [("user", "a")]
        await respond(socket, input="b", previous_response_id=second["id"])
        assert upstream_messages(site) == [("user", "a"), ("assistant", "two"), ("user", "b")]


async def test_websocket_unstored_responses_are_limited_to_body_bytes():
    async with listening(HELLO, limits={"body_bytes": 3000}) as site, connected(site) as socket:
        first = await respond(socket, input="x" * 1000)
        second = await respond(socket, input="x" * 1000, stream_id="a", previous_response_id=first["id"])
        assert error(await socket.respond(previous_response_id=first["id"])) == GONE, "the oldest is forgotten"
        third = await respond(socket, input="x" * 1000, stream_id="a", previous_response_id=second["id"])
        assert error(await socket.respond(previous_response_id=third["id"], stream_id="a")) == GONE


# The store


async def test_websocket_stored_response_takes_its_unstored_chain_along(store_url):
    async with listening(ONE, TWO, THREE, FOUR, store={"url": store_url}) as site:
        async with connected(site) as socket:
            first = await respond(socket, input="a")
            second = await respond(socket, input="b", previous_response_id=first["id"])
            third = await respond(socket, input="c", previous_response_id=second["id"], store=True)
        before = [("user", "a"), ("assistant", "one"), ("user", "b"), ("assistant", "two"), ("user", "c")]
        assert await input_items(site, third["id"]) == before
        assert (await site.client.get(f"/v1/responses/{third['id']}")).json() == third
        async with connected(site) as socket:
            fourth = await respond(socket, input="d", previous_response_id=third["id"], store=True)
        assert upstream_messages(site) == [*before, ("assistant", "three"), ("user", "d")]
        assert await input_items(site, fourth["id"]) == upstream_messages(site)


async def test_websocket_unstored_response_continues_a_stored_one(store_url):
    async with listening(ONE, TWO, THREE, FOUR, store={"url": store_url}) as site, connected(site) as socket:
        first = await respond(socket, input="a", store=True)
        second = await respond(socket, input="b", previous_response_id=first["id"])
        third = await respond(socket, input="c", previous_response_id=second["id"], store=True)
        before = [("user", "a"), ("assistant", "one"), ("user", "b"), ("assistant", "two"), ("user", "c")]
        assert upstream_messages(site) == await input_items(site, third["id"]) == before
        assert (await site.client.delete(f"/v1/responses/{first['id']}")).status_code == 200
        for id in (second["id"], third["id"]):
            assert error(await socket.respond(input="d", previous_response_id=id, stream_id="a")) == GONE


async def test_websocket_stored_responses_branch_from_an_unstored_one(store_url):
    async with listening(ONE, TWO, THREE, FOUR, store={"url": store_url}) as site, connected(site) as socket:
        first = await respond(socket, input="a", store=True)
        second = await respond(socket, input="b", previous_response_id=first["id"])
        left = await respond(socket, input="c", previous_response_id=second["id"], store=True)
        right = await respond(socket, input="d", previous_response_id=second["id"], store=True)
        before = [("user", "a"), ("assistant", "one"), ("user", "b"), ("assistant", "two")]
        assert await input_items(site, left["id"]) == [*before, ("user", "c")]
        assert await input_items(site, right["id"]) == [*before, ("user", "d")]


async def test_websocket_resumable_response_takes_its_unstored_chain_along(store_url):
    go = asyncio.Event()
    async with listening(ONE, gated("two", go), store={"url": store_url}, responses={"resume_seconds": 60}) as site:
        async with connected(site) as socket:
            first = await respond(socket, input="a")
            await socket.create(input="b", previous_response_id=first["id"])
            id = (await socket.until("response.output_text.delta"))[0]["response"]["id"]
            before = [("user", "a"), ("assistant", "one"), ("user", "b")]
            assert await input_items(site, id) == before
        go.set()
        assert (await ended(site, id))["status"] == "completed"
        assert await input_items(site, id) == before


async def test_websocket_conversation_gains_the_items_of_each_response():
    async with listening(ONE, TWO) as site, connected(site) as socket:
        id = (await site.client.post("/v1/conversations", json={})).json()["id"]
        first = await respond(socket, input="a", conversation=id)
        assert error(await socket.respond(input="b", previous_response_id=first["id"])) == GONE
        await respond(socket, input="b", conversation=id)
        assert upstream_messages(site) == [("user", "a"), ("assistant", "one"), ("user", "b")]


async def test_websocket_tenant_cannot_continue_responses_of_another():
    async with listening(HELLO, auth=TENANTS) as site:
        async with connected(site, ANN) as socket:
            first = await respond(socket, store=True)
            await respond(socket, previous_response_id=first["id"])
        async with connected(site, BOB) as socket:
            assert error(await socket.respond(previous_response_id=first["id"])) == GONE


# Failures


FAILING = {
    "a bad parameter": (ONE, {"temperature": 9}),
    "an output without a call": (
        ONE, {"input": [{"type": "function_call_output", "call_id": "call_x", "output": "fine"}]}
    ),
    "a model that is not there": (ONE, {"model": "x"}),
    "a backend that refuses": (whole({"error": "busy"}, status=503), {}),
    "a backend that breaks": (BROKEN, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", FAILING)
@pytest.mark.parametrize("lane", [{}, {"stream_id": "a"}])
async def test_websocket_failed_continuation_in_its_lane_drops_the_response(case, lane):
    script, fields = FAILING[case]
    async with listening(ONE, script, HELLO) as site, connected(site) as socket:
        first = await respond(socket, input="a", **lane)
        last = await socket.respond(**{"store": False, "previous_response_id": first["id"], **lane, **fields})
        assert last["type"] in ("error", "response.failed")
        assert error(await socket.respond(previous_response_id=first["id"], **lane)) == GONE


@pytest.mark.parametrize("case", FAILING)
async def test_websocket_failed_continuation_in_another_lane_keeps_the_response(case):
    script, fields = FAILING[case]
    async with listening(ONE, script, HELLO) as site, connected(site) as socket:
        first = await respond(socket, input="a")
        await socket.respond(**{"store": False, "previous_response_id": first["id"], "stream_id": "a", **fields})
        await respond(socket, input="b", previous_response_id=first["id"])
        assert upstream_messages(site) == [("user", "a"), ("assistant", "one"), ("user", "b")]


async def test_websocket_failure_without_a_previous_response_keeps_the_lane():
    async with listening(ONE, BROKEN, HELLO) as site, connected(site) as socket:
        first = await respond(socket, input="a")
        assert error(await socket.respond(temperature=9))[3] == "temperature"
        failed = await socket.respond(store=False)
        assert failed["type"] == "response.failed"
        assert error(await socket.respond(previous_response_id=failed["response"]["id"], stream_id="a")) == GONE
        await respond(socket, input="b", previous_response_id=first["id"])


async def test_websocket_stored_response_survives_a_failed_continuation():
    async with listening(ONE, BROKEN, THREE) as site, connected(site) as socket:
        first = await respond(socket, input="a", store=True)
        assert (await socket.respond(previous_response_id=first["id"]))["type"] == "response.failed"
        await respond(socket, input="b", previous_response_id=first["id"])
        assert upstream_messages(site) == [("user", "a"), ("assistant", "one"), ("user", "b")]


async def test_websocket_fork_keeps_the_context_from_its_start():
    go = asyncio.Event()
    async with listening(ONE, gated("two", go), THREE, FOUR) as site, connected(site) as socket:
        first = await respond(socket, input="a")
        await socket.create(input="b", previous_response_id=first["id"], stream_id="fork", store=False)
        await socket.until("response.in_progress")
        await socket.create(input="c", previous_response_id=first["id"], store=False)
        while (event := await socket.event()).get("stream_id") or event["type"] != "response.completed":
            pass
        go.set()
        fork = response((await socket.events())[-1])
        await respond(socket, input="d", previous_response_id=fork["id"], stream_id="fork")
        assert upstream_messages(site) == [
            ("user", "a"),
            ("assistant", "one"),
            ("user", "b"),
            ("assistant", "two"),
            ("user", "d"),
        ]


# Recent responses, without a gateway


def test_websocket_recent_responses_are_limited_in_bytes():
    recent = RecentResponses(10)
    for n, lane in enumerate([None, "a", "b"]):
        recent.add(lane, f"resp_{n}", ResponseChain(None, (b"[]", b"{}")))
    assert recent.find("resp_0") is None and recent.find(None) is None
    assert recent.find("resp_1") == recent.find("resp_2") == ResponseChain(None, (b"[]", b"{}"))
    recent.add("a", "resp_3", ResponseChain("resp_9", (b"[]",)))
    assert recent.find("resp_1") is None and recent.find("resp_2") and recent.find("resp_3")
    recent.add("c", "resp_4", ResponseChain(None, (b"x" * 8,)))
    assert recent.find("resp_2") is None and recent.find("resp_3") and recent.find("resp_4")
    recent.add("c", "resp_5", ResponseChain(None, (b"x" * 11,)))
    assert not any(recent.find(f"resp_{n}") for n in range(6))


def test_websocket_recent_response_is_forgotten_only_by_its_own_lane():
    recent = RecentResponses(100)
    recent.add("a", "resp_1", ResponseChain(None, (b'[{"id":1}]', b'[{"id":2},{"id":3}]')))
    for lane, id in (("b", "resp_1"), (None, "resp_1"), ("a", "resp_2"), ("a", None)):
        recent.forget(lane, id)
    assert recent.find("resp_1").items() == [{"id": 1}, {"id": 2}, {"id": 3}]
    recent.forget("a", "resp_1")
    assert recent.find("resp_1") is None
