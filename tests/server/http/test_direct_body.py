"""Test large bodies that are read past the parser: they are whole at any cut, and nothing else of a connection changes."""

import asyncio
import json
from itertools import pairwise
from types import SimpleNamespace

import pytest
from fastapi import Request
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect
from uvicorn.server import ServerState

from gateway.server.http import request_reader
from gateway.server.http.client_connection import client_connection
from gateway.server.http.direct_body import DirectBody
from gateway.server.http.memory import Buffers, Room
from gateway.server.http.server_config import ServerConfig
from gateway.server.http.uvicorn_protocol import STOPPING, HttpProtocol
from support.app import listening, on_both_loops, settings
from support.memory import until_freed, watched
from support.raw_requests import HEAD, request_bytes
from support.upstream import completion_body, whole
from support.wait import DEADLINE, until

ANSWER = whole(completion_body("Hi"))
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBOR/+A" * (1 << 17)}}
MESSAGES = [{"role": "user", "content": [{"type": "text", "text": "a \\\n é"}, IMAGE]}]
LARGE = request_bytes(messages=MESSAGES)


# In memory


class Line:
    """A transport, for the bytes that a test feeds it with."""

    def __init__(self):
        self.protocol, self.reads, self.written, self.closes = None, True, b"", False

    def set_protocol(self, protocol):
        self.protocol = protocol

    def get_protocol(self):
        return self.protocol

    def get_extra_info(self, _):
        return None

    def pause_reading(self):
        self.reads = False

    def resume_reading(self):
        self.reads = True

    def is_closing(self):
        return self.closes

    def close(self):
        self.closes = True

    def write(self, data):
        self.written += data

    async def feed(self, data):
        """Hand data to the protocol in one turn of the loop, or in more if it does not read, until it closes."""
        while data and not self.closes:
            if isinstance(self.protocol, asyncio.BufferedProtocol):
                room = self.protocol.get_buffer(-1)
                size = min(len(room), len(data))
                room[:size] = data[:size]
                room.release()
                self.protocol.buffer_updated(size)
            elif self.reads:
                size = len(data)
                self.protocol.data_received(data)
            else:
                size = 0
                await asyncio.sleep(0)
            data = data[size:]
        await asyncio.sleep(0)


def connected(app):
    """Return a transport with a protocol for an application."""
    line, loop = Line(), asyncio.get_running_loop()
    config = ServerConfig(app, settings("http://x"))
    line.protocol = HttpProtocol(config, ServerState(), {STOPPING: list}, loop)
    line.protocol.connection_made(line)
    return line, line.protocol


async def end(protocol):
    """End the task of the application."""
    for task in [*protocol.tasks]:
        task.cancel()
        await asyncio.wait([task])
    protocol.connection_lost(None)


async def exchange(pieces, count):
    """Send pieces of requests to an application that echoes bodies; return the bytes of its responses, and if it closes.

    count: of the responses.
    """
    loop = asyncio.get_running_loop()
    done, echoed = loop.create_future(), []

    async def echo(scope, receive, send):
        with Room(Buffers(), 1 << 30) as room:
            body = await request_reader.read_body(Request(scope, receive), 1 << 30, room)
        echoed.append(body)
        scope.pop("extensions")
        size = b"%d" % len(body)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", size)]})
        await send({"type": "http.response.body", "body": body})
        if len(echoed) == count:
            done.set_result(None)

    line, protocol = connected(echo)
    for piece in pieces:
        await line.feed(piece)
    async with asyncio.timeout(DEADLINE):
        await done
    await asyncio.sleep(0)
    assert line.protocol is protocol and all(type(one) is bytes for one in echoed)
    outcome = line.written, line.closes
    await end(protocol)
    return outcome


def exchanged(pieces, count):
    """Return the outcomes of an exchange with bodies that are read directly, and of one without."""
    with pytest.MonkeyPatch.context() as patch:
        outcomes = []
        for least in (1, 1 << 20):  # of a body that is read directly
            patch.setattr(request_reader, "_LARGE", least)
            outcomes.append(asyncio.run(exchange(pieces, count)))
        return outcomes


def cut(data, places):
    places = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(places)]


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=3), st.lists(st.integers(0), max_size=9))
def test_direct_body_is_the_same_at_any_cut(bodies, places):
    data = b"".join(HEAD % len(body) + body for body in bodies)
    direct, other = exchanged(cut(data, places), len(bodies))
    assert direct == other and not direct[1]


LAST = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 4\r\n\r\nabcd"
FOLLOWED = {
    "another": LAST + LAST,
    "what is no request": HEAD % 4 + b"abcd\0bad\r\n\r\n",
    "what is not read any more": LAST + b"\0bad\r\n\r\n",
    "one behind an old one": b"POST / HTTP/1.0\r\ncontent-length: 4\r\n\r\nabcd" + LAST,
}


@pytest.mark.parametrize("data", FOLLOWED.values(), ids=FOLLOWED)
def test_direct_body_leaves_what_follows_to_the_parser(data):
    for place in range(len(data) + 1):
        direct, other = exchanged(cut(data, [place]), 1)
        assert direct == other, place


async def begun(body=b"ab", length=4):
    """Return the transport of a request that waits for the rest of its body, its cycle, and the task that reads it."""
    scopes = []

    async def app(scope, receive, send):
        scopes.append(scope)
        await asyncio.Event().wait()

    line, protocol = connected(app)
    await line.feed(HEAD % length + body)
    connection = client_connection(scopes[0])
    task = asyncio.create_task(connection.read_body(length))
    await asyncio.sleep(0)
    return line, protocol, task


async def test_direct_body_ends_early_if_the_client_disconnects():
    line, protocol, task = await begun()
    await line.feed(b"c")
    line.protocol.eof_received()
    line.protocol.connection_lost(None)
    assert await task == b"abc"
    assert protocol.cycle.disconnected and await protocol.cycle.receive() == {"type": "http.disconnect"}
    await end(protocol)


@pytest.mark.parametrize("more", [b"", b"c"])
async def test_direct_body_whose_reader_is_cancelled_goes_on_in_messages(more):
    line, protocol, task = await begun()
    await line.feed(more)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() and line.protocol is protocol
    await line.feed(b"cd"[len(more) :])
    message = await protocol.cycle.receive()
    assert (message["body"], message["more_body"]) == (b"cd", False), "the rest of the body"
    await end(protocol)


async def test_direct_body_may_end_in_the_turn_in_which_its_reader_is_cancelled():
    line, protocol, task = await begun()
    task.cancel()
    line.protocol.buffer_updated(2)
    await asyncio.wait([task])
    assert task.cancelled() and line.protocol is protocol and not protocol.cycle.more_body
    await end(protocol)


async def test_direct_body_of_a_closed_connection_is_left_when_its_reader_is_cancelled():
    line, protocol, task = await begun()
    line.close()
    task.cancel()
    await asyncio.wait([task])
    assert line.protocol is not protocol
    line.protocol.connection_lost(None)
    await end(protocol)


async def test_direct_body_lets_its_owner_see_what_else_happens():
    calls = []
    names = ("pause_writing", "resume_writing", "eof_received")
    owner = SimpleNamespace(**{name: lambda name=name: calls.append(name) for name in names})
    body = DirectBody(owner, Line(), b"", 1)
    for name in names:
        getattr(body, name)()
    assert calls == [*names]


UNFIT = {
    "in chunks": b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n4\r\nab",
    "that waits for a 100": b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\nab",
    "of an upgrade": b"POST / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\ncontent-length: 4\r\n\r\nab",
    "that is complete": b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nabcd",
}


@pytest.mark.parametrize("data", UNFIT.values(), ids=UNFIT)
async def test_direct_body_is_none(data):
    async def app(scope, receive, send):
        await asyncio.Event().wait()

    line, protocol = connected(app)
    await line.feed(data)
    assert await protocol.cycle.read_body(4) is None and line.protocol is protocol
    await end(protocol)


async def test_direct_body_of_a_client_that_leaves_is_a_disconnect():
    async def short(length):
        return b"a"

    connection = SimpleNamespace(take_body=lambda: None, read_body=short)
    scope = {"type": "http", "headers": [(b"content-length", b"1000000")], "extensions": {"gateway.client": connection}}
    with Room(Buffers(), 1 << 30) as room, pytest.raises(ClientDisconnect):
        await request_reader.read_body(Request(scope), 1 << 30, room)


# Over sockets


async def opened(site):
    return await asyncio.open_connection("127.0.0.1", site.client.base_url.port)


async def status(reader):
    """Return the status of the next response, whose body is read as well."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    await reader.readexactly(length)
    return int(head.split()[1])


@pytest.mark.parametrize("cut", [1, 70_000, len(LARGE) - 1, len(LARGE), len(LARGE) + 20])
@on_both_loops
async def test_direct_body_reaches_the_backend_between_other_requests(cut):
    data = LARGE + request_bytes() + LARGE
    async with listening(ANSWER) as site, asyncio.timeout(DEADLINE):
        reader, writer = await opened(site)
        for piece in (data[:cut], data[cut:]):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        assert [await status(reader) for _ in range(3)] == [200] * 3
        writer.close()
        assert site.app.state.buffers.taken == 0
    posts = [one.json for one in site.upstream.posts]
    assert [posts[0]["messages"], posts[2]["messages"]] == [MESSAGES] * 2 and posts[0] == posts[2]


@on_both_loops
async def test_direct_body_does_not_outlive_its_request_on_an_open_connection():
    async with listening(ANSWER) as site, asyncio.timeout(DEADLINE):
        reader, writer = await opened(site)
        with watched():
            writer.write(LARGE)
            assert await status(reader) == 200
            await until_freed(DirectBody)
        writer.close()


@on_both_loops
async def test_direct_body_that_a_client_does_not_finish_is_let_go(caplog):
    async with listening(ANSWER) as site, asyncio.timeout(DEADLINE):
        _, writer = await opened(site)
        writer.write(LARGE[:-1])
        await until(lambda: site.app.state.buffers.taken > 0)
        writer.transport.abort()
        await until(lambda: site.app.state.buffers.taken, 0)
        assert (await site.chat()).status_code == 200
    assert len(site.upstream.posts) == 1 and "Traceback" not in caplog.text
    assert json.loads(LARGE.partition(b"\r\n\r\n")[2])["messages"] == MESSAGES
