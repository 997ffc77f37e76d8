"""Test one WebSocket connection below an ASGI server: unread replies, age limit, shutdown, cancellation and internal errors."""

import asyncio
import gc
import json
import logging
import weakref
from contextlib import asynccontextmanager, nullcontext

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from gateway.api.body import COUNTS
from gateway.server.observability.telemetry import Telemetry
from gateway.server.websocket import connection
from support.app import gateway, listening
from support.jobs import BAD
from support.upstream import HANG, HELLO, chunk, gated, head
from support.wait import DEADLINE, until
from support.websocket import address, connected, error, is_end, texts

SLOW = [head(), chunk("Hel"), HANG]


class Server:
    """The ASGI server of one connection: `put` adds a message of the client, `sent` has the messages to the client.

    open: set while there is room for messages to the client; failure: the exception that sending raises.
    """

    def __init__(self):
        self.incoming, self.sent, self.changed = asyncio.Queue(), [], asyncio.Condition()
        self.open, self.failure = asyncio.Event(), None
        self.open.set()
        self.put({"type": "websocket.connect"})

    def put(self, message):
        self.incoming.put_nowait(message)

    def create(self, **fields):
        self.say(type="response.create", **{"model": "m", "input": "Hello", **fields})

    def say(self, **event):
        self.put({"type": "websocket.receive", "text": json.dumps(event)})

    def disconnect(self):
        self.put({"type": "websocket.disconnect", "code": 1005})

    async def taken(self):
        """Wait until the application has taken all messages of the client."""
        await until(self.incoming.empty)

    async def send(self, message):
        await self.open.wait()
        if self.failure and message["type"] == "websocket.send":
            raise self.failure
        async with self.changed:
            self.sent.append(message)
            self.changed.notify_all()

    @property
    def events(self):
        return [json.loads(message["text"]) for message in self.sent if message["type"] == "websocket.send"]

    async def until(self, holds):
        """Wait until a condition holds for this server."""
        async with asyncio.timeout(DEADLINE), self.changed:
            await self.changed.wait_for(lambda: holds(self))

    async def ends(self, count=1):
        """Wait until so many responses are over, and return their last events."""
        await self.until(lambda server: sum(map(is_end, server.events)) >= count)
        return [event for event in self.events if is_end(event)]

    @property
    def closed(self):
        """Return the code with which the application closed the connection, or None."""
        return next((message["code"] for message in self.sent if message["type"] == "websocket.close"), None)


@asynccontextmanager
async def connection_to(site):
    """Open a connection, and yield its server and the task of the application."""
    server = Server()
    scope = {"type": "websocket", "path": "/v1/responses", "query_string": b"", "headers": [], "subprotocols": []}
    task = asyncio.create_task(site.app(scope, server.incoming.get, server.send))
    await server.until(lambda server: server.sent)
    yield server, task
    server.open.set()
    server.disconnect()
    async with asyncio.timeout(DEADLINE):
        await asyncio.wait([task])


def deltas(server):
    return [event["delta"] for event in server.events if event["type"] == "response.output_text.delta"]


# A client that does not read


async def test_websocket_messages_are_taken_while_the_client_does_not_read():
    async with gateway(SLOW) as site, connection_to(site) as (server, task):
        server.create()
        await server.until(deltas)
        server.open.clear()
        for _ in range(20):
            server.create()
            server.say(type="response.steer", previous_response_id="resp_1", input="Stop.")
        server.put({"type": "websocket.receive", "bytes": b"{"})
        await server.taken()
        assert not task.done() and not site.upstream.gone.is_set()
        server.disconnect()
        async with asyncio.timeout(DEADLINE):
            await site.upstream.gone.wait()
            await task
        assert len(site.upstream.posts) == 1


async def test_websocket_connection_ends_at_the_65th_unread_reply():
    async with gateway(SLOW) as site, connection_to(site) as (server, task):
        server.create()
        await server.until(deltas)
        server.open.clear()
        for _ in range(64):
            server.say(type="response.steer")
        await server.taken()
        assert not task.done()
        server.say(type="response.steer")
        async with asyncio.timeout(DEADLINE):
            await site.upstream.gone.wait()
            await task


async def test_websocket_disconnect_drops_unsent_errors():
    async with gateway(HELLO) as site, connection_to(site) as (server, task):
        server.open.clear()
        server.create(temperature=9)
        server.create(stream_id="?")
        await server.taken()
        server.disconnect()
        async with asyncio.timeout(DEADLINE):
            await task
    assert server.events == []


@pytest.mark.parametrize("failure", [OSError("gone"), RuntimeError("closed already")])
async def test_websocket_connection_ends_if_sending_fails(failure):
    go = asyncio.Event()
    async with gateway([head(), chunk("Hel"), go, chunk("lo"), HANG]) as site, connection_to(site) as (server, task):
        server.create()
        server.create()
        await server.until(deltas)
        server.failure = failure
        go.set()
        async with asyncio.timeout(DEADLINE):
            await site.upstream.gone.wait()
            await task
        assert len(site.upstream.posts) == 1


# The end of a connection


def aging(monkeypatch):
    """Return an event that ends the wait of connections for their age limit."""
    old, pause = asyncio.Event(), asyncio.sleep

    async def wait(seconds, *result):
        return await (old.wait() if seconds == connection._MAX_SECONDS else pause(seconds, *result))

    monkeypatch.setattr(asyncio, "sleep", wait)
    return old


async def test_websocket_connection_at_its_age_limit_refuses_new_requests(monkeypatch):
    old, go = aging(monkeypatch), asyncio.Event()
    async with gateway(gated("Hel", go), HELLO) as site, connection_to(site) as (server, task):
        server.create(stream_id="a")
        server.create(stream_id="a")
        await server.until(deltas)
        old.set()
        count = 0
        while not count or error((await server.ends(count))[-1])[2] != "websocket_connection_limit_reached":
            server.say(type="other", stream_id="b")
            count += 1
        server.create(stream_id="b")
        event = (await server.ends(count + 1))[-1]
        assert error(event) == (400, BAD, "websocket_connection_limit_reached", None) and event["stream_id"] == "b"
        assert server.closed is None
        go.set()
        ends = await server.ends(count + 3)
        assert [texts(event) for event in ends[-2:]] == [["Hel"], ["Hi"]], "what had come is answered"
        await server.until(lambda server: server.closed)
        assert server.closed == 1001 and server.sent[-1]["reason"].startswith("Responses websocket connection limit")
        assert not task.done()


async def test_websocket_connection_idle_at_its_age_limit_is_closed(monkeypatch):
    monkeypatch.setattr(connection, "_MAX_SECONDS", 0.05)
    async with listening(HELLO) as site, connected(site) as socket:
        with pytest.raises(ConnectionClosed) as info:
            await socket.event()
    assert info.value.rcvd.code == 1001


async def test_websocket_shutdown_lets_running_responses_end():
    go = asyncio.Event()
    async with listening(gated("Hel", go)) as site, connected(site) as busy, connected(site) as idle:
        await busy.create()
        await busy.until("response.output_text.delta")
        stopping = asyncio.create_task(site.app.state.sockets.close())
        with pytest.raises(ConnectionClosed) as info:
            await idle.event()
        assert info.value.rcvd.code == 1012
        assert error(await busy.respond(stream_id="a"))[:3] == (503, "server_error", "server_is_overloaded")
        with pytest.raises(InvalidStatus) as refused:
            await connect(address(site))
        assert refused.value.response.status_code == 503 and b"stopping" in refused.value.response.body
        go.set()
        assert texts((await busy.events())[-1]) == ["Hel"]
        with pytest.raises(ConnectionClosed) as info:
            await busy.event()
        assert info.value.rcvd.code == 1012
        await stopping


async def test_websocket_shutdown_may_come_twice():
    async with gateway(HELLO) as site, connection_to(site) as (server, task):
        await site.app.state.sockets.close()
        server.failure, server.open = RuntimeError("closed already"), Shut()
        await site.app.state.sockets.close()
        assert server.closed == 1012 and not task.done()


class Shut:
    """A transport that is closed: sending raises."""

    async def wait(self):
        raise RuntimeError("closed already")

    def set(self):
        pass


async def test_websocket_connection_cancelled_sends_failed_events():
    async with gateway(SLOW) as site, connection_to(site) as (server, task):
        server.create(stream_id="a")
        server.create(stream_id="a")
        server.create(stream_id="b")
        await server.until(lambda server: len(deltas(server)) == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        ends = [event for event in server.events if event["type"] == "response.failed"]
        assert sorted(event["stream_id"] for event in ends) == ["a", "b"]
        assert {event["response"]["error"]["code"] for event in ends} == {"server_error"}
        assert len(site.upstream.posts) == 2


async def test_websocket_recent_responses_are_freed_with_the_connection():
    async with gateway(HELLO) as site:
        async with connection_to(site) as (server, _):
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


class FakeHandler:
    """A stand-in for the handler of model requests."""

    def __init__(self, handle):
        self.handle, self.acquire_concurrency, self.telemetry, self.counts = handle, nullcontext, Telemetry(), COUNTS


async def test_websocket_internal_error_is_sent_and_logged(caplog):
    async def answer(*_):
        raise KeyError("oops")

    async with gateway(HELLO) as site:
        site.app.state.handler, handler = FakeHandler(answer), site.app.state.handler
        async with connection_to(site) as (server, task):
            server.create(stream_id="a")
            (event,) = await server.ends()
            assert error(event)[:2] == (500, "server_error") and event["stream_id"] == "a"
            assert not task.done()
        site.app.state.handler = handler
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.request_id in event["error"]["message"] and "oops" in str(record.exc_info[1])


async def test_websocket_response_without_a_last_event_is_an_error():
    async def answer(ask, read, reply, send):
        assert (ask.tenant, ask.http.method) == ("", "POST")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b'event: a\ndata: {"type":"a"}\n\n', "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return True

    async with gateway(HELLO) as site:
        site.app.state.handler, handler = FakeHandler(answer), site.app.state.handler
        async with connection_to(site) as (server, _):
            server.create(stream_id="a")
            (event,) = await server.ends()
            assert error(event)[:3] == (503, "server_error", "server_is_overloaded") and event["stream_id"] == "a"
            assert server.events[0] == {"type": "a", "stream_id": "a"}
        site.app.state.handler = handler


async def test_websocket_connection_ends_at_a_message_without_data():
    async with gateway(SLOW) as site, connection_to(site) as (server, task):
        server.create()
        await server.until(deltas)
        server.put({"type": "websocket.receive"})
        with pytest.raises(KeyError):
            await task
        assert site.upstream.gone.is_set()
