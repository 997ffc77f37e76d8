"""Test that bodies of requests take no more memory than they may, and wait for it in their order."""

import asyncio
import gzip
import json
import tracemalloc

import pytest
from fastapi import Request

from gateway.errors import UpstreamUnavailable
from gateway.server.http import memory
from gateway.server.http.client_connection import ClientConnection, set_client_connection
from gateway.server.http.memory import Buffers, Room
from gateway.server.http.request_reader import arrived_body, read_body
from support.app import HELLO_MESSAGES, gateway, problem
from support.upstream import HELLO, paused
from support.wait import until

LIMIT = 300_000
BODY = json.dumps({"model": "m", "stream": True, "messages": HELLO_MESSAGES, "user": "a" * 60_000}).encode()


async def test_buffers_give_room_in_the_order_of_the_requests():
    store, order = Buffers(), []

    async def body(name, size):
        with Room(store, 100) as room:
            await room.grow(size)
            order.append(name)
            await asyncio.sleep(0)

    store.taken = 60
    size = memory.FREE + 1
    first = asyncio.create_task(body("first", size))
    second = asyncio.create_task(body("second", size))
    await asyncio.sleep(0)
    assert order == []
    store.give(60)
    await asyncio.gather(first, second)
    assert (order, store.taken) == (["first", "second"], 0)


class ArrivedConnection(ClientConnection):
    """A connection whose request has arrived whole."""

    def take_body(self):
        return b"{}"


SMALL = str(memory.FREE)


@pytest.mark.parametrize(
    ("headers", "limit", "taken"),
    [
        ({"content-length": SMALL}, memory.FREE, True),
        ({"content-length": SMALL}, memory.FREE - 1, False),
        ({"content-length": str(memory.FREE + 1)}, 2 * memory.FREE, False),
        ({"content-length": SMALL, "content-encoding": "gzip"}, memory.FREE, False),
        ({}, memory.FREE, False),
    ],
)
def test_only_a_small_body_of_known_length_is_taken_without_room(headers, limit, taken):
    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "headers": fields}
    set_client_connection(scope, ArrivedConnection())
    assert arrived_body(Request(scope), limit) == (b"{}" if taken else None)


def test_small_body_that_has_not_arrived_is_left_to_be_read():
    scope = {"type": "http", "headers": [(b"content-length", b"2")]}
    assert arrived_body(Request(scope), memory.FREE) is None


async def test_buffers_do_not_count_small_bodies():
    store = Buffers()
    with Room(store, 1) as room:
        await room.grow(memory.FREE)
        assert store.taken == 0


async def test_buffers_have_room_for_what_is_too_large_if_it_is_alone():
    store = Buffers()
    with Room(store, 1) as room:
        await room.grow(memory.FREE + 1)
        assert store.taken == 3 * (memory.FREE + 1)
        await room.grow(memory.FREE)
        await room.grow(9 * memory.FREE)
        assert store.taken == 27 * memory.FREE
    assert store.taken == 0


async def test_room_counts_content_besides_the_body():
    store = Buffers()
    with Room(store, 1 << 30) as room:
        await room.grow(memory.FREE + 1)
        await room.add(100_000)
        await room.add(100_000)
        assert store.taken == 3 * (memory.FREE + 1 + 200_000)
    assert store.taken == 0


async def test_buffers_refuse_what_waits_too_long(monkeypatch):
    monkeypatch.setattr(memory, "_MAX_WAIT", 0.01)
    store = Buffers()
    store.taken = 60
    with Room(store, 60) as room, pytest.raises(UpstreamUnavailable, match=r"limits\.memory_bytes"):
        await room.grow(memory.FREE + 1)
    assert (store.taken, len(store._waiting)) == (60, 0)


@pytest.mark.parametrize("room", ["before", "after", "meanwhile"])
async def test_buffers_forget_a_request_that_is_given_up(room):
    store = Buffers()
    store.taken = 60
    waiting = asyncio.create_task(store.take(50, 100))
    behind = asyncio.create_task(store.take(20, 100))
    await asyncio.sleep(0)
    if room == "before":
        store.give(60)
    waiting.cancel()
    if room == "meanwhile":
        store.give(60)
    await asyncio.gather(waiting, return_exceptions=True)
    if room == "after":
        store.give(60)
    await behind
    assert store.taken == 20 and not store._waiting


@pytest.mark.parametrize("path", ["chat/completions", "embeddings", "conversations"])
@pytest.mark.parametrize("chunked", [False, True])
async def test_body_without_room_is_refused_while_others_are_answered(monkeypatch, path, chunked):
    monkeypatch.setattr(memory, "_MAX_WAIT", 0.05)
    go = asyncio.Event()
    async with gateway(paused(go), HELLO, limits={"memory_bytes": LIMIT}) as site:
        first = asyncio.create_task(site.chat(BODY))
        await site.upstream.arrived.wait()

        async def pieces():
            for start in range(0, len(BODY), 10_000):
                yield BODY[start : start + 10_000]

        content = pieces() if chunked else BODY
        refused = await site.client.post(f"/v1/{path}", content=content, headers={"content-type": "application/json"})
        assert problem(refused)[:3] == (503, "server_error", "server_is_overloaded")
        assert refused.headers["retry-after"] == "1"
        assert (await site.chat()).status_code == 200, "a small body has room"
        go.set()
        assert (await first).status_code == 200
        assert (await site.chat(BODY)).status_code == 200


async def test_body_waits_until_there_is_room():
    go = asyncio.Event()
    async with gateway(paused(go), HELLO, limits={"memory_bytes": LIMIT}) as site:
        first = asyncio.create_task(site.chat(BODY))
        await site.upstream.arrived.wait()
        second = asyncio.create_task(site.chat(BODY))
        waiting = site.app.state.buffers._waiting
        await until(lambda: len(waiting), 1)
        assert len(site.upstream.posts) == 1
        go.set()
        assert [(await one).status_code for one in (first, second)] == [200, 200]


def test_buffers_tell_once_when_much_is_given_back():
    amounts = []
    store = Buffers(lambda: amounts.append(store.taken))
    for sizes in ((40 << 20, 8 << 20), (1 << 20,)):
        store.taken = sum(sizes)
        for size in sizes:
            store.give(size)
    assert amounts == [0]


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_body_is_held_once_while_it_is_read(encoding):
    size, step = 16 << 20, 1 << 16
    sent = gzip.compress(bytes(size)) if encoding == "gzip" else memoryview(bytes(size))
    pieces = [sent[start : start + step] for start in reversed(range(0, len(sent), step))]

    async def receive():
        return {"type": "http.request", "body": bytes(pieces.pop()), "more_body": bool(pieces)}

    headers = [(b"content-encoding", encoding.encode())]
    request = Request({"type": "http", "headers": headers, "extensions": {}}, receive)
    tracemalloc.start()
    try:
        with Room(Buffers(), 1 << 30) as room:
            assert len(await read_body(request, 1 << 30, room)) == size
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * size


async def test_body_of_a_known_length_is_refused_unread(monkeypatch):
    monkeypatch.setattr(memory, "_MAX_WAIT", 0.01)
    store, received = Buffers(), []
    store.taken = 60
    scope = {"type": "http", "headers": [(b"content-length", b"100000")], "extensions": {}}
    request = Request(scope, lambda: received.append("a piece"))  # awaiting it would fail
    with Room(store, 60) as room, pytest.raises(UpstreamUnavailable):
        await read_body(request, 1 << 20, room)
    assert received == []
