"""Test the store after a gateway is killed during requests: acknowledged responses are whole, and no other response is stored in part."""

import asyncio
from contextlib import suppress
from functools import partial

import httpx
import pytest
from sqlalchemy import func, select, update

from gateway.store.tables import conversations, items, keys, responses, threads
from support.app import HELLO_MESSAGES, gateway, problem
from support.gateway_process import process
from support.sse import events
from support.stored import get_json, item_texts
from support.upstream import DONE, END, HANG, Upstream, chunk, completion_body, head, whole
from support.wait import now, until

ANSWER = [head(), chunk("T"), chunk("wo"), chunk(finish="stop"), DONE, END]
KEY = {"idempotency-key": "once"}
LEASE_MS, KEY_LEASE = 30_000, 60


class Life:
    """The state of a client before the kill: a response, and a conversation with another response in it."""

    async def begin(self, client):
        self.conversation = (await client.post("/v1/conversations", json={})).json()["id"]
        self.first = await self.respond(client, input="a")
        self.in_conversation = await self.respond(client, input="a", conversation=self.conversation)
        self.requests = {
            "chain": ("/v1/responses", {"input": "b", "previous_response_id": self.first["id"]}, KEY),
            "conversation": ("/v1/responses", {"input": "b", "conversation": self.conversation}, {}),
            "completion": ("/v1/chat/completions", {"messages": HELLO_MESSAGES, "store": True, "metadata": {"a": "b"}}, {}),
        }  # fmt: skip
        self.saw = dict.fromkeys(self.requests, "")  # by name, the text of the response so far

    async def respond(self, client, **fields):
        answer = await client.post("/v1/responses", json={"model": "m", **fields})
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def ask(self, client, name):
        """Send a request, and collect its response until the end or the loss of the connection."""
        path, body, headers = self.requests[name]
        with suppress(httpx.RemoteProtocolError, httpx.ReadError):
            async with client.stream(
                "POST", path, json={"model": "m", "stream": True, **body}, headers=headers
            ) as answer:
                async for piece in answer.aiter_text():
                    self.saw[name] += piece

    def ended(self, name):
        """Return the response in the last event."""
        return events(self.saw[name])[-1]["response"]


@pytest.fixture
async def life(store_url):
    lived = Life()
    async with gateway(whole(completion_body("One")), store={"url": store_url}) as site:
        await lived.begin(site.client)
    return lived


@pytest.fixture
async def after(store_url, life):
    """A client of another gateway, which opens the store at its first request, after the kill."""
    async with gateway(whole(completion_body("Three")), store={"url": store_url}) as site:
        yield site.client


async def is_whole(client, store, lived, kept):
    """Check that everything stored before is there, and that new responses are stored whole if in `kept`, else not at all."""
    async with store.reading() as db:
        ids = [*await db.scalars(select(responses.c.id))]
        length = await db.scalar(select(func.sum(threads.c.length)))
        assert await db.scalar(select(func.count()).select_from(items)) == length
    found = [await get_json(client, f"responses/{id}") for id in ids]
    assert lived.first in found and lived.in_conversation in found
    turns = [
        [*await item_texts(client, f"responses/{one['id']}/input_items"), one["output"][0]["content"][0]["text"]]
        for one in found
    ]
    both = ["a", "One", "b", "Two"]
    answers = kept & {"chain", "conversation"}
    assert sorted(turns) == sorted([both[:2], both[:2], *[both for _ in answers]])
    expected = both if "conversation" in kept else both[:2]
    assert await item_texts(client, f"conversations/{lived.conversation}/items") == expected
    completions = [
        one["choices"][0]["message"]["content"] for one in (await get_json(client, "chat/completions"))["data"]
    ]
    assert completions == ["Two" for name in kept if name == "completion"]
    return ids


async def goes_on(client, lived, ids):
    """Check that each response and the conversation can be continued."""
    for id in ids:
        turn = [*await item_texts(client, f"responses/{id}/input_items")]
        follows = await lived.respond(client, input="c", previous_response_id=id)
        assert (await item_texts(client, f"responses/{follows['id']}/input_items"))[: len(turn)] == turn
    path = f"conversations/{lived.conversation}/items"
    before = await item_texts(client, path)
    await lived.respond(client, input="c", conversation=lived.conversation)
    assert (await item_texts(client, path))[:-1] == [*before, "c"]


async def is_locked(client, store, lived, begun, killed):
    """Check that the conversation is locked by a lease that began while the dead gateway ran; times in seconds."""
    ask = {"model": "m", "input": "c", "conversation": lived.conversation}
    assert problem(await client.post("/v1/responses", json=ask))[2] == "conversation_locked"
    async with store.reading() as db:
        leased = await db.scalar(select(conversations.c.held_until)) - LEASE_MS
    assert int(begun * 1000) <= leased <= killed * 1000


async def leases_end(store):
    """Move the leases into the past."""
    async with store.writing() as db:
        await db.execute(update(conversations).values(held_until=conversations.c.held_until - LEASE_MS))
        await db.execute(update(keys).values(held_until=keys.c.held_until - KEY_LEASE))


def reached(upstream, number, life, name, point):
    """Return whether the request has arrived as the given number, and its response has got to the point."""
    return len(upstream.posts) >= number and POINTS[point][1] in life.saw[name]


POINTS = {"asked": (0, ""), "begun": (1, "\n\n"), "speaking": (2, '"T"'), "said": (4, '"wo"')}


@pytest.mark.parametrize(
    ("store_url", "points"),
    [
        ("sqlite", {"chain": "asked", "conversation": "begun", "completion": "said"}),
        ("sqlite", {"chain": "said", "conversation": "asked", "completion": "speaking"}),
        ("postgresql", {"chain": "begun", "conversation": "said", "completion": "asked"}),
    ],
    indirect=["store_url"],
)
async def test_store_is_whole_if_the_gateway_is_killed_during_responses(
    points, store_url, store, life, after, tmp_path
):
    """points: how much of the response to each request the backend has sent, and the client has read."""
    begun = now()
    scripts = [[*ANSWER[: POINTS[point][0]], HANG] for point in points.values()]
    async with (
        asyncio.timeout(60),
        Upstream(scripts, ()).serving() as upstream,
        process(upstream.url, store_url, tmp_path) as (child, client),
        asyncio.TaskGroup() as asking,
    ):
        for number, (name, point) in enumerate(points.items(), 1):
            asking.create_task(life.ask(client, name))
            await until(partial(reached, upstream, number, life, name, point))
        child.kill()
    killed = now()
    ids = await is_whole(after, store, life, kept=set())
    await is_locked(after, store, life, begun, killed)
    path, body, headers = life.requests["chain"]
    answer = await after.post(path, json={"model": "m", "stream": True, **body}, headers=headers)
    assert problem(answer)[::2] == (409, "idempotency_key_in_use")
    await leases_end(store)
    answer = await after.post(path, json={"model": "m", "stream": True, **body}, headers=headers)
    assert answer.status_code == 200 and "idempotent-replayed" not in answer.headers
    await goes_on(after, life, ids)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_store_has_all_responses_that_ended_before_a_kill(store_url, store, life, tmp_path):
    """The gateway started afterwards is a process, too."""
    async with Upstream([ANSWER], ()).serving() as upstream:
        async with process(upstream.url, store_url, tmp_path) as (child, client):
            await asyncio.gather(*(life.ask(client, name) for name in life.requests))
            child.kill()
        async with process(upstream.url, store_url, tmp_path) as (_, client):
            ids = await is_whole(client, store, life, kept={*life.requests})
            for name in ("chain", "conversation"):
                ended = life.ended(name)
                assert await get_json(client, f"responses/{ended['id']}") == ended
            path, body, headers = life.requests["chain"]
            answer = await client.post(path, json={"model": "m", "stream": True, **body}, headers=headers)
            assert answer.text == life.saw["chain"] and len(upstream.posts) == 3
            await leases_end(store)
            await goes_on(client, life, ids)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("name", "point"),
    [
        ("conversation", "INSERT INTO responses"),
        ("conversation", "COMMIT"),
        ("conversation", "COMMITTED"),
        ("completion", "INSERT INTO labels"),
    ],
)
async def test_store_is_whole_if_the_gateway_is_killed_while_storing(name, point, store, life, after, tmp_path):
    """The client has not got the last event."""
    async with (
        Upstream([ANSWER], ()).serving() as upstream,
        process(upstream.url, f"sqlite:///{tmp_path}/gateway.db", tmp_path, dies_at=point) as (child, client),
    ):
        await life.ask(client, name)
        assert await child.wait() == -9
    assert "response.completed" not in life.saw[name] and "[DONE]" not in life.saw[name]
    ids = await is_whole(after, store, life, kept={name} if point == "COMMITTED" else set())
    await leases_end(store)
    await goes_on(after, life, ids)
