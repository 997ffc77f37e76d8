"""What responses go on from over a WebSocket: those of the connection that nobody stores, and those of the store."""

import asyncio

import pytest

from gateway.server.websocket.recent import Chain, Recent
from support.app import listening
from support.upstream import CLOSE, DONE, END, HELLO, chunk, head, stream, whole
from support.websocket import asked, connected, error, response

BAD = "invalid_request_error"
GONE = (400, BAD, "previous_response_not_found", "previous_response_id")
NOWHERE = {"url": "sqlite:////nowhere/at/all/gateway.db"}
BROKEN = [head(), chunk("Hel"), CLOSE]


def says(text):
    return stream(chunk(text), chunk(finish="stop"))


ONE, TWO, THREE, FOUR = map(says, ("one", "two", "three", "four"))


async def told(socket, **fields):
    """A response that is complete, not stored unless that is wanted."""
    return response(await socket.respond(**{"store": False, **fields}))


async def listed(site, id):
    """All that the model was given with a response, as the store has it."""
    answer = await site.client.get(f"/v1/responses/{id}/input_items", params={"order": "asc"})
    assert answer.status_code == 200, answer.text
    items = answer.json()["data"]
    assert len({item["id"] for item in items}) == len(items)
    return [(item["role"], item["content"][0]["text"]) for item in items]


# The connection


async def test_what_is_not_stored_can_be_gone_on_from_in_its_connection(store_url):
    async with listening(ONE, TWO, THREE, store={"url": store_url}) as site:
        async with connected(site) as socket:
            first = await told(socket, input="a", instructions="Be brief.")
            second = await told(socket, input="b", previous_response_id=first["id"])
            assert (second["previous_response_id"], second["store"]) == (first["id"], False)
            await told(socket, input="c", previous_response_id=second["id"])
        assert asked(site) == [
            ("user", "a"), ("assistant", "one"), ("user", "b"), ("assistant", "two"), ("user", "c"),
        ]  # fmt: skip
        for one in (first, second):
            assert (await site.client.get(f"/v1/responses/{one['id']}")).status_code == 404


async def test_it_needs_no_store():
    async with listening(ONE, TWO, store=NOWHERE) as site, connected(site) as socket:
        first = await told(socket, input="a")
        await told(socket, input="b", previous_response_id=first["id"])
        assert asked(site) == [("user", "a"), ("assistant", "one"), ("user", "b")]


async def test_what_could_not_be_stored_can_be_gone_on_from_as_well():
    async with listening(ONE, TWO, store=NOWHERE) as site, connected(site) as socket:
        first = await told(socket, input="a", store=True)
        assert first["store"] is False
        await told(socket, input="b", previous_response_id=first["id"])
        assert asked(site) == [("user", "a"), ("assistant", "one"), ("user", "b")]


async def test_it_is_gone_with_its_connection():
    async with listening(ONE, TWO) as site:
        async with connected(site) as socket:
            first = await told(socket, input="a")
        async with connected(site) as socket, connected(site) as other:
            assert error(await socket.respond(input="b", previous_response_id=first["id"])) == GONE
            second = await told(socket, input="b")
            assert error(await other.respond(input="c", previous_response_id=second["id"])) == GONE
        assert len(site.upstream.posts) == 2


async def test_it_is_the_latest_of_its_lane():
    async with listening(HELLO) as site, connected(site) as socket:
        first = await told(socket)
        await told(socket, previous_response_id=first["id"], stream_id="a")
        await told(socket, previous_response_id=first["id"])
        assert error(await socket.respond(previous_response_id=first["id"], stream_id="a")) == GONE


async def test_a_call_is_answered_in_the_next_response():
    call = {"index": 0, "id": "call_1", "function": {"name": "f", "arguments": '{"a": 1}'}}
    calls = stream(chunk(tool_calls=[call]), chunk(finish="tool_calls"))
    async with listening(calls, TWO) as site, connected(site) as socket:
        first = await told(socket, input="a", tools=[{"type": "function", "name": "f"}])
        output = {"type": "function_call_output", "call_id": "call_1", "output": "fine"}
        await told(socket, input=[output], previous_response_id=first["id"])
        _, past, answer = site.asked["messages"]
    assert past["tool_calls"][0]["id"] == answer["tool_call_id"] == "call_1" and answer["content"] == "fine"


async def test_reasoning_goes_back_to_the_model():
    thinks = stream(chunk(reasoning_content="Hm."), chunk("one"), chunk(finish="stop"))
    async with listening(thinks, TWO) as site, connected(site) as socket:
        first = await told(socket, input="a")
        context = {"context": "all_turns"}
        await told(socket, input="b", previous_response_id=first["id"], reasoning=context)
    assert site.asked["messages"][1] == {"role": "assistant", "content": "one", "reasoning_content": "Hm."}


async def test_a_prompt_that_is_only_shown_can_be_gone_on_from():
    async with listening(ONE, TWO) as site, connected(site) as socket:
        first = await told(socket, input="a", generate=False)
        assert (first["status"], first["output"]) == ("completed", [])
        second = await told(socket, input=[], previous_response_id=first["id"])
        assert asked(site) == [("user", "a")]
        await told(socket, input="b", previous_response_id=second["id"])
        assert asked(site) == [("user", "a"), ("assistant", "two"), ("user", "b")]


async def test_more_is_not_kept_than_a_request_may_bring():
    async with listening(HELLO, limits={"body_bytes": 3000}) as site, connected(site) as socket:
        first = await told(socket, input="x" * 1000)
        second = await told(socket, input="x" * 1000, stream_id="a", previous_response_id=first["id"])
        assert error(await socket.respond(previous_response_id=first["id"])) == GONE, "the oldest is forgotten"
        third = await told(socket, input="x" * 1000, stream_id="a", previous_response_id=second["id"])
        assert error(await socket.respond(previous_response_id=third["id"], stream_id="a")) == GONE


# The store


async def test_one_that_is_stored_takes_with_it_what_it_goes_on_from(store_url):
    async with listening(ONE, TWO, THREE, FOUR, store={"url": store_url}) as site:
        async with connected(site) as socket:
            first = await told(socket, input="a")
            second = await told(socket, input="b", previous_response_id=first["id"])
            third = await told(socket, input="c", previous_response_id=second["id"], store=True)
        before = [("user", "a"), ("assistant", "one"), ("user", "b"), ("assistant", "two"), ("user", "c")]
        assert await listed(site, third["id"]) == before
        assert (await site.client.get(f"/v1/responses/{third['id']}")).json() == third
        async with connected(site) as socket:
            fourth = await told(socket, input="d", previous_response_id=third["id"], store=True)
        assert asked(site) == [*before, ("assistant", "three"), ("user", "d")]
        assert await listed(site, fourth["id"]) == asked(site)


async def test_one_that_is_not_stored_goes_on_from_one_that_is(store_url):
    async with listening(ONE, TWO, THREE, FOUR, store={"url": store_url}) as site, connected(site) as socket:
        first = await told(socket, input="a", store=True)
        second = await told(socket, input="b", previous_response_id=first["id"])
        third = await told(socket, input="c", previous_response_id=second["id"], store=True)
        before = [("user", "a"), ("assistant", "one"), ("user", "b"), ("assistant", "two"), ("user", "c")]
        assert asked(site) == await listed(site, third["id"]) == before
        assert (await site.client.delete(f"/v1/responses/{first['id']}")).status_code == 200
        for id in (second["id"], third["id"]):
            assert error(await socket.respond(input="d", previous_response_id=id, stream_id="a")) == GONE


async def test_two_that_are_stored_go_on_from_one_that_is_not(store_url):
    async with listening(ONE, TWO, THREE, FOUR, store={"url": store_url}) as site, connected(site) as socket:
        first = await told(socket, input="a", store=True)
        second = await told(socket, input="b", previous_response_id=first["id"])
        left = await told(socket, input="c", previous_response_id=second["id"], store=True)
        right = await told(socket, input="d", previous_response_id=second["id"], store=True)
        before = [("user", "a"), ("assistant", "one"), ("user", "b"), ("assistant", "two")]
        assert await listed(site, left["id"]) == [*before, ("user", "c")]
        assert await listed(site, right["id"]) == [*before, ("user", "d")]


async def test_one_that_outlives_its_client_takes_with_it_what_it_goes_on_from(store_url):
    go = asyncio.Event()
    slow = [head(), chunk("two"), go, chunk(finish="stop"), DONE, END]
    async with listening(ONE, slow, store={"url": store_url}, responses={"resume_seconds": 60}) as site:
        async with connected(site) as socket:
            first = await told(socket, input="a")
            await socket.create(input="b", previous_response_id=first["id"])
            id = (await socket.until("response.output_text.delta"))[0]["response"]["id"]
            before = [("user", "a"), ("assistant", "one"), ("user", "b")]
            assert await listed(site, id) == before
        go.set()
        async with asyncio.timeout(5):
            while (await site.client.get(f"/v1/responses/{id}")).json()["status"] != "completed":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert await listed(site, id) == before


async def test_a_conversation_grows():
    async with listening(ONE, TWO) as site, connected(site) as socket:
        id = (await site.client.post("/v1/conversations", json={})).json()["id"]
        first = await told(socket, input="a", conversation=id)
        assert error(await socket.respond(input="b", previous_response_id=first["id"])) == GONE
        await told(socket, input="b", conversation=id)
        assert asked(site) == [("user", "a"), ("assistant", "one"), ("user", "b")]


async def test_keys_do_not_see_each_other_s():
    keys = {"keys": [{"name": name, "key": f"{name}-{'k' * 20}"} for name in ("ann", "bob")]}
    ann, bob = ({"authorization": f"Bearer {name}-{'k' * 20}"} for name in ("ann", "bob"))
    async with listening(HELLO, auth=keys) as site:
        async with connected(site, ann) as socket:
            first = await told(socket, store=True)
            await told(socket, previous_response_id=first["id"])
        async with connected(site, bob) as socket:
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
async def test_what_could_not_be_gone_on_from_in_its_lane_is_forgotten(case, lane):
    script, fields = FAILING[case]
    async with listening(ONE, script, HELLO) as site, connected(site) as socket:
        first = await told(socket, input="a", **lane)
        last = await socket.respond(**{"store": False, "previous_response_id": first["id"], **lane, **fields})
        assert last["type"] in ("error", "response.failed")
        assert error(await socket.respond(previous_response_id=first["id"], **lane)) == GONE


@pytest.mark.parametrize("case", FAILING)
async def test_a_fork_that_fails_takes_nothing_from_the_lane_that_it_comes_from(case):
    script, fields = FAILING[case]
    async with listening(ONE, script, HELLO) as site, connected(site) as socket:
        first = await told(socket, input="a")
        await socket.respond(**{"store": False, "previous_response_id": first["id"], "stream_id": "a", **fields})
        await told(socket, input="b", previous_response_id=first["id"])
        assert asked(site) == [("user", "a"), ("assistant", "one"), ("user", "b")]


async def test_what_fails_without_going_on_from_anything_takes_nothing():
    async with listening(ONE, BROKEN, HELLO) as site, connected(site) as socket:
        first = await told(socket, input="a")
        assert error(await socket.respond(temperature=9))[3] == "temperature"
        failed = await socket.respond(store=False)
        assert failed["type"] == "response.failed"
        assert error(await socket.respond(previous_response_id=failed["response"]["id"], stream_id="a")) == GONE
        await told(socket, input="b", previous_response_id=first["id"])


async def test_what_is_stored_stays_so():
    async with listening(ONE, BROKEN, THREE) as site, connected(site) as socket:
        first = await told(socket, input="a", store=True)
        assert (await socket.respond(previous_response_id=first["id"]))["type"] == "response.failed"
        await told(socket, input="b", previous_response_id=first["id"])
        assert asked(site) == [("user", "a"), ("assistant", "one"), ("user", "b")]


async def test_a_fork_has_what_was_there_when_it_began():
    go = asyncio.Event()
    slow = [head(), chunk("two"), go, chunk(finish="stop"), DONE, END]
    async with listening(ONE, slow, THREE, FOUR) as site, connected(site) as socket:
        first = await told(socket, input="a")
        await socket.create(input="b", previous_response_id=first["id"], stream_id="fork", store=False)
        await socket.until("response.in_progress")
        await socket.create(input="c", previous_response_id=first["id"], store=False)
        while (event := await socket.event()).get("stream_id") or event["type"] != "response.completed":
            pass
        go.set()
        fork = response((await socket.events())[-1])
        await told(socket, input="d", previous_response_id=fork["id"], stream_id="fork")
        assert asked(site) == [("user", "a"), ("assistant", "one"), ("user", "b"), ("assistant", "two"), ("user", "d")]


# Alone


def test_so_much_is_remembered_and_no_more():
    recent = Recent(10)
    for n, lane in enumerate([None, "a", "b"]):
        recent.keep(lane, f"resp_{n}", Chain(None, (b"[]", b"{}")))
    assert recent.find("resp_0") is None and recent.find(None) is None
    assert recent.find("resp_1") == recent.find("resp_2") == Chain(None, (b"[]", b"{}"))
    recent.keep("a", "resp_3", Chain("resp_9", (b"[]",)))
    assert recent.find("resp_1") is None and recent.find("resp_2") and recent.find("resp_3")
    recent.keep("c", "resp_4", Chain(None, (b"x" * 8,)))
    assert recent.find("resp_2") is None and recent.find("resp_3") and recent.find("resp_4")
    recent.keep("c", "resp_5", Chain(None, (b"x" * 11,)))
    assert not any(recent.find(f"resp_{n}") for n in range(6))


def test_only_the_lane_that_has_it_forgets_a_response():
    recent = Recent(100)
    recent.keep("a", "resp_1", Chain(None, (b'[{"id":1}]', b'[{"id":2},{"id":3}]')))
    for lane, id in (("b", "resp_1"), (None, "resp_1"), ("a", "resp_2"), ("a", None)):
        recent.forget(lane, id)
    assert recent.find("resp_1").items() == [{"id": 1}, {"id": 2}, {"id": 3}]
    recent.forget("a", "resp_1")
    assert recent.find("resp_1") is None
