"""One connection as any ASGI server may drive it: how it ends, and what it does when the client does not listen."""

import asyncio
import gc
import json
import logging
import weakref
from contextlib import asynccontextmanager, nullcontext

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from gateway.server.telemetry.telemetry import Telemetry
from gateway.server.websocket import connection
from support.app import gateway, listening
from support.upstream import DONE, END, HANG, HELLO, SOON, chunk, head
from support.websocket import connected, error, is_end, texts

BAD = "invalid_request_error"
SLOW = [head(), chunk("Hel"), HANG]
PATIENCE = 5


class Server:
    """What a server is to the application: `comes` puts in what the client sends, `sent` has what it gets.

    open: whether there is room for what is sent; failure: what sending raises.
    """

    def __init__(self):
        self.incoming, self.sent, self.told = asyncio.Queue(), [], asyncio.Condition()
        self.open, self.failure = asyncio.Event(), None
        self.open.set()
        self.comes({"type": "websocket.connect"})

    def comes(self, message):
        self.incoming.put_nowait(message)

    def create(self, **fields):
        self.say(type="response.create", **{"model": "m", "input": "Hello", **fields})

    def say(self, **event):
        self.comes({"type": "websocket.receive", "text": json.dumps(event)})

    def leaves(self):
        self.comes({"type": "websocket.disconnect", "code": 1005})

    async def taken(self):
        """Until the application has taken all that came."""
        async with asyncio.timeout(PATIENCE):
            while not self.incoming.empty():  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0)

    async def send(self, message):
        await self.open.wait()
        if self.failure and message["type"] == "websocket.send":
            raise self.failure
        async with self.told:
            self.sent.append(message)
            self.told.notify_all()

    @property
    def events(self):
        return [json.loads(message["text"]) for message in self.sent if message["type"] == "websocket.send"]

    async def until(self, holds):
        """Until this can be said of what was sent."""
        async with asyncio.timeout(PATIENCE), self.told:
            await self.told.wait_for(lambda: holds(self))

    async def ends(self, count=1):
        """Until so many responses are over, and give their last events."""
        await self.until(lambda it: sum(map(is_end, it.events)) >= count)
        return [event for event in self.events if is_end(event)]

    @property
    def closed(self):
        """The code with which the application closed the connection."""
        return next((message["code"] for message in self.sent if message["type"] == "websocket.close"), None)


@asynccontextmanager
async def call(site):
    """A connection: the server's side of it, and the application's."""
    server = Server()
    scope = {"type": "websocket", "path": "/v1/responses", "query_string": b"", "headers": [], "subprotocols": []}
    task = asyncio.create_task(site.app(scope, server.incoming.get, server.send))
    await server.until(lambda it: it.sent)
    yield server, task
    server.open.set()
    server.leaves()
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait([task])


def deltas(server):
    return [event["delta"] for event in server.events if event["type"] == "response.output_text.delta"]


# A client that does not listen


async def test_what_comes_in_is_taken_however_little_goes_out():
    async with gateway(SLOW) as site, call(site) as (server, task):
        server.create()
        await server.until(deltas)
        server.open.clear()
        for _ in range(20):
            server.create()
            server.say(type="response.steer", previous_response_id="resp_1", input="Stop.")
        server.comes({"type": "websocket.receive", "bytes": b"{"})
        await server.taken()
        assert not task.done() and not site.upstream.gone.is_set()
        server.leaves()
        async with asyncio.timeout(SOON):
            await site.upstream.gone.wait()
            await task
        assert len(site.upstream.posts) == 1


async def test_who_only_asks_and_never_listens_is_left():
    async with gateway(SLOW) as site, call(site) as (server, task):
        server.create()
        await server.until(deltas)
        server.open.clear()
        for _ in range(64):
            server.say(type="response.steer")
        await server.taken()
        assert not task.done()
        server.say(type="response.steer")
        async with asyncio.timeout(SOON):
            await site.upstream.gone.wait()
            await task


async def test_who_leaves_need_not_hear_an_error():
    async with gateway(HELLO) as site, call(site) as (server, task):
        server.open.clear()
        server.create(temperature=9)
        server.create(stream_id="?")
        await server.taken()
        server.leaves()
        async with asyncio.timeout(PATIENCE):
            await task
    assert server.events == []


@pytest.mark.parametrize("failure", [OSError("gone"), RuntimeError("closed already")])
async def test_a_connection_that_takes_nothing_any_more_is_over(failure):
    go = asyncio.Event()
    async with gateway([head(), chunk("Hel"), go, chunk("lo"), HANG]) as site, call(site) as (server, task):
        server.create()
        server.create()
        await server.until(deltas)
        server.failure = failure
        go.set()
        async with asyncio.timeout(PATIENCE):
            await site.upstream.gone.wait()
            await task
        assert len(site.upstream.posts) == 1


# The end of a connection


async def test_a_connection_that_is_old_takes_nothing_new(monkeypatch):
    monkeypatch.setattr(connection, "_MOST_SECONDS", 0.5)
    go = asyncio.Event()
    slow = [head(), chunk("Hel"), go, chunk(finish="stop"), DONE, END]
    async with gateway(slow, HELLO) as site, call(site) as (server, task):
        server.create(stream_id="a")
        server.create(stream_id="a")
        await server.until(deltas)
        asked = 0
        while not asked or error((await server.ends(asked))[-1])[2] != "websocket_connection_limit_reached":
            server.say(type="other", stream_id="b")
            asked += 1
        server.create(stream_id="b")
        event = (await server.ends(asked + 1))[-1]
        assert error(event) == (400, BAD, "websocket_connection_limit_reached", None) and event["stream_id"] == "b"
        assert server.closed is None
        go.set()
        ends = await server.ends(asked + 3)
        assert [texts(event) for event in ends[-2:]] == [["Hel"], ["Hi"]], "what had come is answered"
        await server.until(lambda it: it.closed)
        assert server.closed == 1001 and server.sent[-1]["reason"].startswith("Responses websocket connection limit")
        assert not task.done()


async def test_one_that_is_old_and_does_nothing_is_closed(monkeypatch):
    monkeypatch.setattr(connection, "_MOST_SECONDS", 0.05)
    async with listening(HELLO) as site, connected(site) as socket:
        with pytest.raises(ConnectionClosed) as info:
            await socket.event()
    assert info.value.rcvd.code == 1001


async def test_a_gateway_that_stops_lets_what_runs_come_to_its_end():
    go = asyncio.Event()
    slow = [head(), chunk("Hel"), go, chunk(finish="stop"), DONE, END]
    async with listening(slow) as site, connected(site) as busy, connected(site) as idle:
        await busy.create()
        await busy.until("response.output_text.delta")
        stopping = asyncio.create_task(site.app.state.sockets.close())
        with pytest.raises(ConnectionClosed) as info:
            await idle.event()
        assert info.value.rcvd.code == 1012
        assert error(await busy.respond(stream_id="a"))[:3] == (503, "server_error", "server_is_overloaded")
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"ws://127.0.0.1:{site.client.base_url.port}/v1/responses")
        assert refused.value.response.status_code == 503 and b"stopping" in refused.value.response.body
        go.set()
        assert texts((await busy.events())[-1]) == ["Hel"]
        with pytest.raises(ConnectionClosed) as info:
            await busy.event()
        assert info.value.rcvd.code == 1012
        await stopping


async def test_one_that_is_closed_twice_is_closed():
    async with gateway(HELLO) as site, call(site) as (server, task):
        await site.app.state.sockets.close()
        server.failure, server.open = RuntimeError("closed already"), Shut()
        await site.app.state.sockets.close()
        assert server.closed == 1012 and not task.done()


class Shut:
    """No room, and never again."""

    async def wait(self):
        raise RuntimeError("closed already")

    def set(self):
        pass


async def test_a_server_that_gives_a_connection_up_has_the_client_told():
    async with gateway(SLOW) as site, call(site) as (server, task):
        server.create(stream_id="a")
        server.create(stream_id="a")
        server.create(stream_id="b")
        await server.until(lambda it: len(deltas(it)) == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        ends = [event for event in server.events if event["type"] == "response.failed"]
        assert sorted(event["stream_id"] for event in ends) == ["a", "b"]
        assert {event["response"]["error"]["code"] for event in ends} == {"server_error"}
        assert len(site.upstream.posts) == 2


async def test_what_is_remembered_goes_with_its_connection():
    async with gateway(HELLO) as site:
        async with call(site) as (server, _):
            server.create(store=False)
            await server.ends()
            (one,) = site.app.state.sockets._open
            remembered, one = weakref.ref(one._client.recent), None
            gc.disable()
        try:
            assert remembered() is None, "it does not wait for the collector"
        finally:
            gc.enable()


# Faults


class Asking:
    """Somebody else's way to answer."""

    def __init__(self, answer):
        self.answer, self.joined, self.telemetry = answer, nullcontext, Telemetry()


async def test_a_fault_of_ours_is_told_and_logged(caplog):
    async def answer(*_):
        raise KeyError("oops")

    async with gateway(HELLO) as site:
        site.app.state.asking, asking = Asking(answer), site.app.state.asking
        async with call(site) as (server, task):
            server.create(stream_id="a")
            (event,) = await server.ends()
            assert error(event)[:2] == (500, "server_error") and event["stream_id"] == "a"
            assert not task.done()
        site.app.state.asking = asking
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.args[0] in event["error"]["message"] and "oops" in str(record.exc_info[1])


async def test_events_that_end_too_early_are_no_answer():
    async def answer(ask, read, reply, send):
        assert (ask.tenant, ask.http.method) == ("", "POST")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b'event: a\ndata: {"type":"a"}\n\n', "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return True

    async with gateway(HELLO) as site:
        site.app.state.asking, asking = Asking(answer), site.app.state.asking
        async with call(site) as (server, _):
            server.create(stream_id="a")
            (event,) = await server.ends()
            assert error(event)[:3] == (503, "server_error", "server_is_overloaded") and event["stream_id"] == "a"
            assert server.events[0] == {"type": "a", "stream_id": "a"}
        site.app.state.asking = asking


async def test_a_client_that_cannot_be_read_ends_its_connection():
    async with gateway(SLOW) as site, call(site) as (server, task):
        server.create()
        await server.until(deltas)
        server.comes({"type": "websocket.receive"})
        with pytest.raises(KeyError):
            await task
        assert site.upstream.gone.is_set()
