"""Test the direct way to a connection past ASGI messages: same bytes as uvicorn, and disconnects without a task."""

import asyncio
import json
import logging
import re
from contextlib import suppress
from types import SimpleNamespace
from unittest.mock import Mock

import httpx
import pytest
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HEADER_VALUE_RE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from gateway.server.http.client_connection import CancelOnDisconnect, EventStreamWriter, client_connection
from gateway.server.http.coalescing_transport import CoalescingTransport
from gateway.server.http.server_config import ServerConfig
from gateway.server.http.uvicorn_protocol import FastRequestCycle, HttpProtocol
from gateway.server.middleware.request_context import RequestContextMiddleware
from gateway.server.observability.telemetry import Telemetry
from support.app import HELLO_MESSAGES, listening, settings
from support.memory import until_freed, watched
from support.raw_requests import request_bytes
from support.upstream import HANG, HELLO, completion_body, whole
from support.wait import DEADLINE, idle

FIELDS = [(b"content-length", b"2"), (b"content-type", b"application/json")]
ADDRESSES = {"sockname": ("127.0.0.1", 80), "peername": ("127.0.0.1", 5000)}
ANSWER = whole(completion_body("Hi"))


class Wire:
    """A transport that keeps what is written."""

    def __init__(self):
        self.written, self.closed = [], False

    def write(self, data):
        self.written.append(data)

    def close(self):
        self.closed = True

    def pause_reading(self):
        """Do nothing."""

    resume_reading = pause_reading


def uvicorn_cycle(*, keep_alive=True):
    """Return a transport and a request on it as uvicorn has read it."""
    wire = Wire()
    logger = logging.getLogger("test")
    return wire, RequestResponseCycle(
        scope={"type": "http", "method": "POST", "http_version": "1.1"},
        transport=CoalescingTransport(wire, asyncio.get_running_loop()),
        flow=FlowControl(wire),
        logger=logger,
        access_logger=logger,
        access_log=False,
        default_headers=[],
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=keep_alive,
        on_response=Mock(),
    )


def cycle(*, keep_alive=True):
    """Return a transport and the same request as the gateway's own Cycle."""
    wire, other = uvicorn_cycle()
    protocol = SimpleNamespace(
        **{name: getattr(other, name) for name in ("scope", "flow", "logger", "access_logger", "access_log")},
        joining=other.transport,
        server_state=SimpleNamespace(default_headers=[]),
        on_response_complete=other.on_response,
        expect_100_continue=False,
    )
    return wire, FastRequestCycle(protocol, keep_alive)


async def first_cycle_of(protocol, data, addresses=ADDRESSES):
    """Return the number of tasks, the cycle and its members after a request has come and before its response."""

    async def app(scope, receive, send):
        await asyncio.Event().wait()

    protocol = protocol(ServerConfig(app, settings("http://x")), ServerState(), {}, asyncio.get_running_loop())
    transport = Mock(is_closing=lambda: False, get_extra_info=addresses.get)
    protocol.connection_made(transport)
    protocol.data_received(data)
    tasks, cycle = [*protocol.tasks], protocol.cycle
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    protocol.connection_lost(None)
    return len(tasks), cycle, vars(cycle)


REQUESTS = {
    "a question": b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
    "half a body": b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{",
    "no body": b"GET /a%20b/%2f?a=1&b=%20#c HTTP/1.1\r\nhost: x\r\nx-a: 1\r\nX-A: 2\r\n\r\n",
    "at a whole address": b"GET http://y/a?b HTTP/1.1\r\nhost: x\r\n\r\n",
    "the last one": b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    "an old one": b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
    "an upgrade to what nobody knows": b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
    "two": b"GET /a HTTP/1.1\r\nhost: x\r\n\r\nGET /b HTTP/1.1\r\nhost: x\r\n\r\n",
}


@pytest.mark.parametrize("data", REQUESTS.values(), ids=REQUESTS)
async def test_request_begins_with_the_same_state_as_in_uvicorn(data):
    (tasks, ours, _), (others, theirs, names) = (
        await first_cycle_of(HttpProtocol, data),
        await first_cycle_of(HttpToolsProtocol, data),
    )
    own = {"transport", "flow", "message_event", "on_response"}  # of their connections
    assert all(getattr(ours, name) is not None for name in own)
    ours.scope.pop("gateway.headers")
    assert client_connection(ours.scope) is ours
    ours.scope.pop("extensions")
    for name in sorted(names.keys() - own):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert tasks == others


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        ({}, (None, None)),
        ({"sockname": ("::1", 80, 0, 0), "peername": ("fe80::1", 5000, 0, 2)}, (("::1", 80), ("fe80::1", 5000))),
    ],
)
async def test_request_has_the_host_and_the_port_of_both_ends(addresses, expected):
    _, cycle, _ = await first_cycle_of(HttpProtocol, REQUESTS["a question"], addresses)
    assert (cycle.scope["server"], cycle.scope["client"]) == expected


async def by_messages(cycle, fields, body):
    await cycle.send({"type": "http.response.start", "status": 200, "headers": fields})
    await cycle.send({"type": "http.response.body", "body": body})


@pytest.mark.parametrize("keep_alive", [True, False])
async def test_response_sent_whole_has_the_bytes_that_uvicorn_sends(keep_alive):
    wire, one = cycle(keep_alive=keep_alive)
    assert one.try_send(FIELDS, b"{}")
    expected, other = uvicorn_cycle(keep_alive=keep_alive)
    await by_messages(other, FIELDS, b"{}")
    assert wire.written == expected.written and len(wire.written) == 1
    assert wire.closed == expected.closed == (not keep_alive)
    for each in (one, other):
        assert each.response_started and each.response_complete and each.message_event.is_set()
        each.on_response.assert_called_once_with()


@pytest.mark.parametrize("keep_alive", [True, False])
@pytest.mark.parametrize("last", [b"data: [DONE]\n\n", b""])
async def test_response_stream_has_the_bytes_that_uvicorn_sends(last, keep_alive):
    wire, one = cycle(keep_alive=keep_alive)
    assert one.try_begin(FIELDS[1:]) and one.try_write(b"data: {}\n\n") and one.try_end(last)
    expected, other = uvicorn_cycle(keep_alive=keep_alive)
    await other.send({"type": "http.response.start", "status": 200, "headers": FIELDS[1:]})
    await other.send({"type": "http.response.body", "body": b"data: {}\n\n", "more_body": True})
    await other.send({"type": "http.response.body", "body": last})
    assert wire.written == expected.written and len(wire.written) == 2
    assert wire.closed == expected.closed == (not keep_alive)
    for each in (one, other):
        assert each.response_started and each.response_complete and each.message_event.is_set()
        each.on_response.assert_called_once_with()
    assert not one.try_begin(FIELDS[1:]) and not one.try_write(b"more") and not one.try_end(b"")


async def test_response_stream_that_is_ended_twice_sends_one_end():
    wire, one = cycle()
    stream = EventStreamWriter(one.send)
    await stream.begin({"x-a": "1"})
    await stream.end(b"data: [DONE]\n\n")
    await stream.end()
    assert len(wire.written) == 1 and wire.written[0].endswith(b"[DONE]\n\n\r\n0\r\n\r\n")


async def test_response_with_a_forged_header_is_left_to_uvicorn():
    wire, one = cycle()
    bad = [*FIELDS, (b"x-a", b"1\r\nx-b: 2")]
    assert not one.try_send(bad, b"{}") and not one.try_begin(bad)
    assert not one.response_started and not wire.written
    with pytest.raises(RuntimeError, match="header value"):
        await by_messages(one, bad, b"{}")


async def test_response_head_takes_the_bytes_that_uvicorn_takes():
    for byte in range(256):
        _, one = cycle()
        value = b"1%c2" % byte
        assert one.try_begin([(b"x-a", value)]) == (not HEADER_VALUE_RE.search(value)), byte


@pytest.mark.parametrize("state", ["paused", "gone", "begun"])
async def test_response_is_not_sent_directly_if_paused_gone_or_begun(state):
    wire, one = cycle()
    if state == "paused":
        one.flow.pause_writing()
    one.disconnected, one.response_started = state == "gone", state == "begun"
    assert not one.try_send(FIELDS, b"{}") and not one.try_begin(FIELDS[1:])
    assert not one.try_write(b"data: {}\n\n") and not one.try_end(b"") and not wire.written


async def test_client_connection_of_a_foreign_server_knows_only_messages():
    for scope in ({}, {"extensions": {}}):
        one = client_connection(scope)
        assert not one.try_send(FIELDS, b"{}") and not one.try_begin(FIELDS[1:])
        assert not one.try_write(b"a") and not one.try_end(b"")
        assert one.take_body() is None and not one.on_disconnect(Mock())
        one.clear_on_disconnect()


async def test_response_pieces_need_a_chunked_body():
    wire, one = cycle()
    await one.send({"type": "http.response.start", "status": 200, "headers": FIELDS})
    assert not one.try_write(b"{}") and not one.try_end(b"{}")
    wire, one = cycle()
    await one.send({"type": "http.response.start", "status": 200, "headers": FIELDS[1:]})
    assert one.try_write(b"{}") and b"".join(wire.written).endswith(b"\r\n\r\n2\r\n{}\r\n")


async def test_disconnect_callback_is_set_and_removed():
    _, one = cycle()
    gone = Mock()
    assert one.on_disconnect(gone) and one.transport.on_lost is gone
    one.clear_on_disconnect()
    assert one.transport.on_lost is None
    one.disconnected = True
    assert not one.on_disconnect(gone), "it is too late"


async def test_disconnect_callback_of_the_next_request_stays():
    (_, first), (_, second), gone = cycle(), cycle(), Mock()
    second.transport = first.transport
    first.on_disconnect(Mock())
    second.on_disconnect(gone)
    first.clear_on_disconnect()
    assert first.transport.on_lost is gone


async def next_body(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    return await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))


async def body_by_messages(cycle):
    """Return the body that ASGI messages give, or None if more is to come."""
    message = await cycle.receive()
    return message["body"] if not message["more_body"] else None


@pytest.mark.parametrize("body", [b"{}", b"", b"x" * (HIGH_WATER_LIMIT + 1)])
async def test_request_body_that_has_arrived_is_taken_once(body):
    _, one = cycle()
    _, other = uvicorn_cycle()
    for each in (one, other):
        each.body += body
        each.more_body = False
        each.message_event.set()
        each.flow.pause_reading()
    assert one.take_body() == await body_by_messages(other) == body
    for each in (one, other):
        assert each.body == b"" and not each.message_event.is_set() and not each.flow.read_paused
    assert one.take_body() is None, "a message tells what comes after it"


@pytest.mark.parametrize("state", ["more to come", "wants a 100", "gone", "answered", "taken"])
async def test_request_body_that_is_unfinished_or_gone_is_not_taken(state):
    _, one = cycle()
    one.body += b"{}"
    one.more_body, one.waiting_for_100_continue = state == "more to come", state == "wants a 100"
    one.disconnected, one.response_complete = state == "gone", state == "answered"
    if state != "taken":
        one.message_event.set()
    assert one.take_body() is None and one.body == b"{}"


@pytest.mark.parametrize("cut", [5, 70, 130, -1])
async def test_request_means_the_same_at_any_cut_of_its_bytes(cut):
    async with listening(ANSWER) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.client.base_url.port)
        for one in (request_bytes(), request_bytes()[:cut], request_bytes()[cut:]):
            writer.write(one)
            await idle(0.02)
        async with asyncio.timeout(DEADLINE):
            responses = [json.loads(await next_body(reader)) for _ in range(2)]
        writer.close()
    first, second = site.upstream.posts
    assert first.json == second.json and responses[0]["choices"] == responses[1]["choices"]


@pytest.mark.parametrize("cut", [0, 90], ids=["in one", "in two"])
async def test_request_body_in_chunks_beyond_the_limit_is_a_413(cut):
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    request = b"%b65\r\n%b\r\n0\r\n\r\n" % (head, b" " * 101)
    async with listening(limits={"body_bytes": 100}) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.client.base_url.port)
        for piece in (request[:cut], request[cut:]):
            writer.write(piece)
            await idle(0.02)
        async with asyncio.timeout(DEADLINE):
            assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
        writer.close()


def test_idle_connection_is_kept_longer_than_clients_and_proxies_keep_it():
    """Otherwise the gateway closes it at the moment in which the client sends the next request."""
    kept = ServerConfig(None, settings("http://x")).timeout_keep_alive
    assert kept > max(httpx.Limits().keepalive_expiry, 60)  # 60 s: HAProxy in `deploy`, nginx, load balancers


async def test_disconnect_message_cancels_the_task_once():
    done = []

    async def app(scope, receive, send):
        with suppress(ClientDisconnect), CancelOnDisconnect(scope, receive):
            await asyncio.Event().wait()
        done.append(asyncio.current_task().cancelling())

    async def receive():
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": []}
    await RequestContextMiddleware(app, Telemetry())(scope, receive, Mock())
    assert done == [0]


async def test_disconnect_is_noticed_for_the_second_pipelined_request():
    second = asyncio.Event()

    async def come(_):
        second.set()

    async with listening(ANSWER, [come, HANG]) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.client.base_url.port)
        writer.write(request_bytes() * 2)
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        async with asyncio.timeout(DEADLINE):
            await second.wait()
        assert not site.upstream.gone.is_set()
        writer.transport.abort()
        async with asyncio.timeout(DEADLINE):
            await site.upstream.gone.wait()


async def test_response_to_connection_close_closes_the_connection():
    async with listening(ANSWER) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.client.base_url.port)
        writer.write(request_bytes().replace(b"host: x", b"connection: close\r\nhost: x"))
        async with asyncio.timeout(DEADLINE):
            response = await reader.read()
        writer.close()
    head, _, body = response.partition(b"\r\n\r\n")
    assert b"\r\nconnection: close" in head and json.loads(body)["choices"][0]["message"]["content"] == "Hi"


async def test_stream_behind_a_100_says_only_that_its_connection_closes():
    body = json.dumps({"model": "m", "stream": True, "messages": HELLO_MESSAGES}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n"
    async with listening(HELLO) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.client.base_url.port)
        writer.write(head % len(body))
        async with asyncio.timeout(DEADLINE):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
            writer.write(body)
            response = await reader.read()
        writer.close()
    lines = response.partition(b"\r\n\r\n")[0].lower().split(b"\r\n")
    assert [line for line in lines if line.startswith(b"connection:")] == [b"connection: close"]


async def test_idle_connection_holds_nothing_of_its_last_request():
    async with listening(ANSWER) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.client.base_url.port)
        for _ in range(2):
            with watched():
                writer.write(request_bytes())
                async with asyncio.timeout(DEADLINE):
                    await next_body(reader)
                await until_freed(FastRequestCycle)
        writer.close()
        await writer.wait_closed()


async def test_large_answers_are_whole_on_a_kept_connection():
    text = "Hi, " * 25_000  # longer than a body that is joined with its head
    async with listening(whole(completion_body(text))) as site:
        answers = [await site.chat() for _ in range(2)]
    assert [answer.json()["choices"][0]["message"]["content"] for answer in answers] == [text, text]
