"""Test the upstream client against servers that send exactly given bytes, on real sockets and both event loops."""

import asyncio
import gc
import hashlib
import os
import re
import socket
import ssl
import struct
import weakref
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from functools import partial
from math import inf
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import pytest
import trustme

from gateway.errors import ConnectionLost, UpstreamError, UpstreamInvalid, UpstreamTimeout, UpstreamUnreachable
from gateway.server.http.deadline_timer import DeadlineTimer
from gateway.server.upstream import DECLINED, HANDLED, WAKE, ConnectionPool
from support.app import on_both_loops
from support.upstream import arrived
from support.wait import idle, until

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


async def turns():
    """Let the loop write what is written, read it at the other end, and run the callbacks of both."""
    for _ in range(4):
        await asyncio.sleep(0)


async def until_waiting(answer):
    """Wait until a reader waits for an answer."""
    await until(lambda: answer._waiter is not None and not answer._waiter.done())


class Clock:
    """A loop for a DeadlineTimer, whose time the test moves."""

    def __init__(self):
        self._now, self._timers = 0.0, []

    def time(self):
        return self._now

    def call_at(self, when, callback):
        timer = SimpleNamespace(when=when, callback=callback, cancel=lambda: self._timers.remove(timer))
        self._timers.append(timer)
        return timer

    def advance(self, seconds):
        """Move the time, and call the callbacks that are due."""
        self._now += seconds
        while due := [timer for timer in self._timers if timer.when <= self._now]:
            due[0].cancel()
            due[0].callback()


class Peer:
    """The server's side of one connection."""

    def __init__(self, number, reader, writer):
        self.number = number  # of the connection, from 1
        self.reader = reader
        self.writer = writer
        self.requests = []
        self.closed = asyncio.Event()  # the client closed its end
        self.done = asyncio.Event()  # the server closed its end, too
        self.sent = 0

    async def request(self):
        """Read the next request, and return its head and body."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        size = int(re.search(rb"content-length: (\d+)", head)[1])
        self.requests.append((head, await self.reader.readexactly(size)))
        return self.requests[-1]

    async def send(self, *parts):
        """Send each part in a packet of its own, which the client reads before the next; wait for a part that is an event."""
        for part in parts:
            if isinstance(part, asyncio.Event):
                await part.wait()
                continue
            self.writer.write(part)
            await self.writer.drain()
            self.sent += len(part)
            await turns()

    def reset(self):
        """Close with a RST instead of a FIN."""
        linger = struct.pack("ii", 1, 0)
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort()

    async def watch(self):
        """Wait until the client closes its end."""
        with suppress(ConnectionError):
            while await self.reader.read(65536):
                pass
        self.closed.set()


async def meet(script, peer):
    """Play the script until it ends or the client closes the connection."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        await script(peer)
    peer.writer.close()
    with suppress(ConnectionError, ssl.SSLError):
        await peer.writer.wait_closed()
    peer.done.set()


@asynccontextmanager
async def backend(script, *, host="127.0.0.1", path="", context=None, **settings):
    """Yield a pool whose connections each meet `script(peer)`, and the list of the peers so far."""
    peers = []

    async def welcome(reader, writer):
        peers.append(Peer(len(peers) + 1, reader, writer))
        await meet(script, peers[-1])

    server = await asyncio.start_server(welcome, host, 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    root = f"{'https' if context else 'http'}://{f'[{host}]' if ':' in host else host}:{port}{path}"
    pool = ConnectionPool(root, **settings)
    try:
        yield pool, peers
    finally:
        await pool.close()
        server.close()
        await server.wait_closed()
        for peer in peers:  # a connection that is left open ends the test at the timeout of `on_both_loops`
            await peer.done.wait()


def script_of(*parts, then=None):
    """Return a script that answers every request with the same parts, and calls `then(peer)` after the last."""

    async def script(peer):
        while True:
            await peer.request()
            await peer.send(*parts)
            if then:
                await then(peer)

    return script


def streamed_from(chunks):
    """Return a script that answers with the chunks of a queue, one packet each, up to an empty one."""

    async def script(peer):
        while await peer.request():
            await peer.send(STREAM)
            while chunk := await chunks.get():
                await peer.send(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await peer.send(LAST)

    return script


async def hang_up(peer):
    raise ConnectionResetError  # ends the script, which closes the connection


async def reset(peer):
    await arrived(peer.writer)
    peer.reset()
    raise ConnectionResetError


async def post(pool, path, body=b"", headers=MappingProxyType({})):
    """Send a request, and return its answer as soon as the head has come."""
    sent = pool.post(path, body, headers)
    try:
        await until(sent.headers_received)
    except BaseException:
        sent.close()
        raise
    return sent.response


async def read(answer, seconds=inf):
    """Return the bytes of the body since the last read, at least one; b"" at the end; raise TimeoutError after so many seconds."""
    if not await answer.ready(seconds):
        raise TimeoutError
    return answer.take()


async def whole(answer):
    """Return the body up to its end."""
    with closing(answer):
        data = b""
        while part := await read(answer):
            data += part
        return data


async def ask(pool, body=b"{}"):
    """Send a request, and return the status and the whole body."""
    answer = await post(pool, "/v1/x", body)
    return answer.status, await whole(answer)


async def failure_of(answer):
    """Return the bytes that can be read, and the error after them."""
    data = b""
    with closing(answer), pytest.raises(UpstreamError) as caught:
        while part := await read(answer):
            data += part
    return data, caught.value


# The request


@on_both_loops
async def test_upstream_request_headers_override_those_of_the_pool():
    async with backend(script_of(OK), path="/prefix/", headers={"Authorization": "Bearer k", "x-a": "1"}) as (
        pool,
        peers,
    ):
        answer = await post(pool, "/v1/chat", b'{"a":1}', {"X-A": "2", "traceparent": "\xe9\tt"})
        assert await whole(answer) == b"ok"
    head, body = peers[0].requests[0]
    host, *lines = head.decode("latin-1").split("\r\n")[1:-2]
    assert head.startswith(b"POST /prefix/v1/chat HTTP/1.1\r\n")
    assert re.fullmatch(r"host: 127\.0\.0\.1:\d+", host)
    assert lines == [
        "accept-encoding: identity",
        "content-type: application/json",
        "Authorization: Bearer k",
        "X-A: 2",
        "traceparent: \xe9\tt",
        "content-length: 7",
    ]
    assert body == b'{"a":1}'


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x", "a\r\nx-evil: 1"),
        ("x", "a\nb"),
        ("x", "a\0"),
        ("x", "snowman ☃"),
        ("x\r\ny", "a"),
        ("x: y", "a"),
        ("", "a"),
        ("Host", "elsewhere"),
        ("Content-Length", "0"),
        ("transfer-encoding", "chunked"),
    ],
)
@on_both_loops
async def test_upstream_request_refuses_an_unsafe_header_and_hides_its_value(name, value):
    with pytest.raises(ValueError, match="cannot be sent") as caught:
        ConnectionPool("http://127.0.0.1:1", headers={name: value})
    assert value not in str(caught.value) or not value.strip("a")
    with pytest.raises(ValueError, match="cannot be sent"):
        await post(ConnectionPool("http://127.0.0.1:1"), "/", b"", {name: value})


@pytest.mark.parametrize("path", ["", "v1", "/a b", "/a\r\nx: y", "/é", "/a#b"])
@on_both_loops
async def test_upstream_request_refuses_an_unsafe_path(path):
    with pytest.raises(ValueError, match="not a path"):
        await post(ConnectionPool("http://127.0.0.1:1"), path, b"")


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:80", "ftp://h", "http://", "http://u:p@h", "http://h?q", "http://h#f", "http://h/a b", "http://é",
     "http://a b/", "http://h:99999"],
)  # fmt: skip
def test_upstream_client_refuses_a_url_that_is_not_a_server_root(url):
    with pytest.raises(ValueError, match=r"url|[Pp]ort"):
        ConnectionPool(url)


@on_both_loops
async def test_upstream_client_connects_to_an_ipv6_literal_and_a_host_name():
    async with backend(script_of(OK), host="::1") as (pool, peers):
        assert await ask(pool) == (200, b"ok")
    assert re.search(rb"\r\nhost: \[::1\]:\d+\r\n", peers[0].requests[0][0])
    async with backend(script_of(OK), host="localhost") as (pool, _):
        assert await ask(pool) == (200, b"ok")


@on_both_loops
async def test_upstream_connection_has_tcp_nodelay():
    async with backend(script_of(OK)) as (pool, _):
        with closing(await post(pool, "/", b"")) as answer:
            sock = answer._connection._raw.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


# The answer


FRAMINGS = {
    "chunked": (STREAM + b"3;ext=1\r\nabc\r\n4\r\n\r\nde\r\n" + LAST, b"abc\r\nde", True),
    "length": (b"HTTP/1.1 200 Fine\r\nContent-Length: 7\r\n\r\nabc\r\nde", b"abc\r\nde", True),
    "trailers": (STREAM + b"3\r\nabc\r\n0\r\nx-sum: 1\r\nx-status: no\r\n\r\n", b"abc", True),
    "interim": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: a\r\n\r\n" + OK, b"ok", True),
    "empty": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
    "1.0 keep-alive": (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", b"ok", True),
    "close": (b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok", b"ok", False),
}


@pytest.mark.parametrize("kind", FRAMINGS)
@on_both_loops
async def test_upstream_response_reads_the_same_wherever_it_is_cut(kind):
    raw, body, reusable = FRAMINGS[kind]
    cuts = iter(range(1, len(raw)))

    async def script(peer):
        with suppress(StopIteration):
            while await peer.request():
                cut = next(cuts)
                await peer.send(raw[:cut], raw[cut:])

    async with backend(script) as (pool, peers):
        heads = []
        for _ in range(1, len(raw)):
            answer = await post(pool, "/", b"{}")
            heads.append((answer.status, answer.headers))
            assert await whole(answer) == body
        assert heads == heads[:1] * len(heads)
        assert not {"x-sum", "x-status", "link"} & set(heads[0][1])
        assert len(peers) == (1 if reusable else len(raw) - 1)


@on_both_loops
async def test_upstream_response_in_single_bytes_reads_the_same():
    raw, body, _ = FRAMINGS["chunked"]
    async with backend(script_of(*(raw[i : i + 1] for i in range(len(raw))))) as (pool, _):
        assert await ask(pool) == (200, body)


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@on_both_loops
async def test_upstream_response_without_length_ends_at_the_close(version):
    async with backend(script_of(b"HTTP/" + version + b" 200 OK\r\n\r\n", b"all ", b"of it", then=hang_up)) as (
        pool,
        peers,
    ):
        assert await ask(pool) == (200, b"all of it")
        assert await ask(pool) == (200, b"all of it")
        assert len(peers) == 2


@on_both_loops
async def test_upstream_response_without_length_is_lost_at_a_reset():
    async with backend(script_of(b"HTTP/1.1 200 OK\r\n\r\n", b"half", then=reset)) as (pool, _):
        data, error = await failure_of(await post(pool, "/", b""))
        assert (data, type(error), error.problem.code, error.problem.status) == (
            b"half",
            ConnectionLost,
            "upstream_lost",
            502,
        )


@on_both_loops
async def test_upstream_response_headers_are_lower_case_and_joined():
    async with backend(
        script_of(b"HTTP/1.1 503 No\r\nX-A: 1\r\nx-a:  2 \r\nX-\xc4: \xe9\r\nContent-Length: 0\r\n\r\n")
    ) as (pool, _):
        with suppress(UpstreamInvalid):
            await post(pool, "/", b"")
    async with backend(
        script_of(b"HTTP/1.1 503 No\r\nX-A: 1\r\nx-a:  2\r\nX-B: \xe9\r\nContent-Length: 0\r\n\r\n")
    ) as (pool, _):
        with closing(await post(pool, "/", b"")) as answer:
            assert answer.status == 503
            assert answer.headers == {"x-a": "1, 2", "x-b": "é", "content-length": "0"}
            assert await read(answer) == b""
            assert await read(answer) == b""


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 000 Zero\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 600 Far\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 66000 + b"\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"x-%d: %d\r\n" % (i, i) for i in range(6000)) + b"\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 3000,
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 66000,
    ],
    ids=["ssh", "no colon", "000", "600", "101", "length", "both lengths", "long header", "many headers", "many 1xx", "no end"],
)  # fmt: skip
@on_both_loops
async def test_upstream_response_that_is_not_http_is_refused_and_closed(raw):
    async def script(peer):
        await peer.request()
        await peer.send(raw)
        await peer.watch()

    async with backend(script) as (pool, peers):
        with pytest.raises(UpstreamInvalid, match=r"sent (no valid HTTP|an invalid response): ."):
            await post(pool, "/", b"")
        await peers[0].closed.wait()


@on_both_loops
async def test_upstream_response_head_just_under_64_kib_is_read():
    head = b"HTTP/1.1 200 OK\r\nx: " + b"a" * 65000 + b"\r\ncontent-length: 100000\r\n\r\n"
    async with backend(script_of(head + b"b" * 100000)) as (pool, _):
        assert await ask(pool) == (200, b"b" * 100000)


@pytest.mark.parametrize("flood", [b"x: a\r\n", b"a"], ids=["many", "endless"])
@on_both_loops
async def test_upstream_response_with_endless_trailers_fails_after_its_body(flood):
    packets, body_read = [flood * (30000 // len(flood))] * 5, asyncio.Event()

    async def script(peer):
        await peer.request()
        await peer.send(STREAM + b"2\r\nhi\r\n0\r\n", body_read, *packets)
        await peer.watch()

    async with backend(script) as (pool, _):
        answer = await post(pool, "/", b"")
        assert await read(answer) == b"hi"
        body_read.set()
        data, error = await failure_of(answer)
        assert (data, type(error)) == (b"", UpstreamInvalid)


@on_both_loops
async def test_upstream_response_with_a_bad_chunk_fails_after_earlier_bytes():
    async with backend(script_of(STREAM + b"2\r\nhi\r\nzz\r\n")) as (pool, _):
        answer = await post(pool, "/", b"")
        data, error = await failure_of(answer)
        assert (data, type(error)) == (b"hi", UpstreamInvalid)


@on_both_loops
async def test_upstream_response_may_come_before_the_request_is_written():
    async def script(peer):
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
        if peer.number == 1:
            await peer.watch()
        await reset(peer)

    async with backend(script) as (pool, peers):
        for _ in range(2):  # first the backend waits for the client to close, then it resets
            assert await ask(pool, bytes(20_000_000)) == (413, b"big")
        await peers[0].closed.wait()
        assert len(peers) == 2  # with a request half written a connection is of no use


# Nothing is lost


@pytest.mark.parametrize("end", [hang_up, reset], ids=["close", "reset"])
@pytest.mark.parametrize("secure", [False, True], ids=["tcp", "tls"])
@on_both_loops
async def test_upstream_response_read_late_has_all_bytes_before_the_break(secure, end, authority):
    chunks = [b"data: %d\n\n" % i for i in range(100)]
    raw = b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks) + b"ff\r\nhalf"
    context, trusting = authority if secure else (None, None)
    async with backend(script_of(STREAM + raw, then=end), context=context, ssl=trusting) as (pool, _):
        answer = await post(pool, "/", b"")
        await answer._connection.closed
        data, error = await failure_of(answer)
        assert data == b"".join(chunks) + b"half"
        assert type(error) is ConnectionLost


@pytest.mark.parametrize("end", [hang_up, reset], ids=["close", "reset"])
@on_both_loops
async def test_upstream_response_shorter_than_its_length_is_lost(end):
    async with backend(script_of(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", then=end)) as (pool, _):
        data, error = await failure_of(await post(pool, "/", b""))
        assert (data, type(error)) == (b"half", ConnectionLost)


@pytest.mark.parametrize("secure", [False, True], ids=["tcp", "tls"])
@on_both_loops
async def test_upstream_response_bytes_in_the_kernel_survive_a_reset(secure, authority):
    context, trusting = authority if secure else (None, None)
    answers, sent = [], []

    async def send_block(peer):
        sent.append(bytes([len(sent)]) * 50_000)
        await peer.send(sent[-1])
        await arrived(peer.writer)

    async def script(peer):
        await peer.request()
        await peer.send(STREAM + b"1000000\r\n")
        await until(lambda: len(answers), 1)
        (answer,) = answers
        while not answer._connection.reading_paused:  # until the client pauses its socket
            await send_block(peer)
            await until(lambda: answer._connection.reading_paused or answer.unread > len(sent) * 50_000)
        await send_block(peer)  # into the client's kernel
        peer.writer.write(bytes(10_000_000))  # more than both kernels take
        await turns()
        peer.reset()

    async with backend(script, context=context, ssl=trusting) as (pool, peers):
        answers.append(await post(pool, "/", b""))
        await peers[0].done.wait()
        data, error = await failure_of(answers[0])
        assert len(data) > 300_000  # more than is read ahead: the socket was paused
        assert data.startswith(b"".join(sent))
        assert type(error) is ConnectionLost


def resident():
    """Return the bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("secure", [False, True], ids=["tcp", "tls"])
@on_both_loops
async def test_upstream_response_unread_stops_the_sender_and_loses_no_byte(secure, authority):
    block = os.urandom(65536)
    wanted = hashlib.sha256(block * 800).hexdigest()
    context, trusting = authority if secure else (None, None)

    async def script(peer):
        await peer.request()
        await peer.send(STREAM)
        for _ in range(800):
            await peer.send(b"10000\r\n" + block + b"\r\n")
        await peer.send(LAST)

    async with backend(script, context=context, ssl=trusting) as (pool, peers):
        with closing(await post(pool, "/", b"")) as answer:
            before = resident()
            await until(lambda: answer._connection.reading_paused)
            sent = -1
            while sent < peers[0].sent:  # until the kernels take no more
                sent = peers[0].sent
                await idle(0.2)
            assert sent < 20_000_000
            assert resident() - before < 10_000_000
            digest = hashlib.sha256()
            largest = 0
            while part := await read(answer):
                digest.update(part)
                largest = max(largest, len(part))
            assert digest.hexdigest() == wanted
            assert largest < 1_000_000


@on_both_loops
async def test_upstream_connection_is_reused_after_a_long_unread_body():
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 263000\r\n\r\n"
    end = asyncio.Event()
    async with backend(script_of(head + bytes(262_000), end, bytes(1000))) as (pool, peers):
        for _ in range(2):
            answer = await post(pool, "/", b"")
            await until(partial(getattr, answer, "unread"), len(head) + 262_000)
            end.set()
            await until(partial(getattr, answer, "_over"))
            end.clear()
            answer.close()
        assert len(peers) == 1


@on_both_loops
async def test_upstream_response_may_have_packets_without_body_after_a_long_one():
    chunk = b"10000\r\n" + bytes(65536) + b"\r\n"
    async with backend(script_of(STREAM, chunk, b"1", chunk[1:], b"0\r", b"\n\r\n")) as (pool, peers):
        for _ in range(2):
            assert await ask(pool) == (200, bytes(131072))
        assert len(peers) == 1


@on_both_loops
async def test_upstream_response_read_does_not_suspend_if_bytes_are_there():
    async with backend(script_of(STREAM + b"2\r\nhi\r\n2\r\nho\r\n" + LAST)) as (pool, _):
        with closing(await post(pool, "/", b"")) as answer:
            await until(lambda: answer._over)
            for wanted in (b"hiho", b""):
                step = read(answer, 1)
                with pytest.raises(StopIteration) as done:
                    step.send(None)
                assert done.value.value == wanted


# Keeping connections


@on_both_loops
async def test_upstream_connection_used_last_is_reused_first():
    async with backend(script_of(OK)) as (pool, peers):
        first, second = await post(pool, "/", b"1"), await post(pool, "/", b"2")
        assert [await whole(first), await whole(second)] == [b"ok", b"ok"]
        for _ in range(3):
            await ask(pool)
        assert [len(peer.requests) for peer in peers] == [1, 4]


@pytest.mark.parametrize("limit", [0, 2])
@on_both_loops
async def test_upstream_pool_keeps_at_most_the_configured_idle_connections(limit):
    async def script(peer):
        await peer.request()
        await peer.send(OK)
        await peer.watch()

    async with backend(script, idle_connections=limit) as (pool, peers):
        answers = [await post(pool, "/", b"") for _ in range(4)]
        for answer in answers:
            await whole(answer)
        await until(lambda: sum(peer.closed.is_set() for peer in peers), 4 - limit)
        assert len(pool._idle._connections) == limit


@on_both_loops
async def test_upstream_connection_is_reused_if_a_whole_body_is_left_unread():
    async with backend(script_of(OK)) as (pool, peers):
        for _ in range(3):
            answer = await post(pool, "/", b"")
            await until(partial(getattr, answer, "_over"))
            answer.close()
            answer.close()
            assert await read(answer) == b""
        assert len(peers) == 1


@on_both_loops
async def test_upstream_response_closed_twice_does_not_affect_the_next_one():
    end = asyncio.Event()
    async with backend(script_of(OK[:-1], end, b"k")) as (pool, peers):
        first = await post(pool, "/", b"")
        end.set()
        assert await whole(first) == b"ok"
        end.clear()
        second = await post(pool, "/", b"")
        first.close()
        third = await post(pool, "/", b"")
        end.set()
        assert [await whole(second), await whole(third)] == [b"ok", b"ok"]
        assert len(peers) == 2


@on_both_loops
async def test_upstream_response_closed_before_its_end_closes_its_socket():
    async def script(peer):
        await peer.request()
        await peer.send(STREAM + b"2\r\nhi\r\n")
        await peer.watch()

    async with backend(script) as (pool, peers):
        answer = await post(pool, "/", b"")
        answer.close()
        answer.close()
        await peers[0].closed.wait()
        with pytest.raises(ConnectionLost, match="closed before its end"):
            await read(answer)


@on_both_loops
async def test_upstream_response_close_wakes_its_reader():
    async def script(peer):
        await peer.request()
        await peer.send(STREAM)
        await peer.watch()

    async with backend(script) as (pool, _):
        answer = await post(pool, "/", b"")
        reading = asyncio.create_task(read(answer))
        await until_waiting(answer)
        answer.close()
        with pytest.raises(ConnectionLost):
            await reading


@pytest.mark.parametrize("end", [hang_up, reset], ids=["close", "reset"])
@on_both_loops
async def test_upstream_connection_closed_by_the_backend_while_idle_is_dropped(end):
    async with backend(script_of(OK, then=end)) as (pool, peers):
        for _ in range(3):
            assert await ask(pool) == (200, b"ok")
            await until(lambda: len(pool._idle._connections), 0)
        assert [len(peer.requests) for peer in peers] == [1, 1, 1]


async def stale(peer, first=b"", end=hang_up):
    """Answer one request; break the second one off if it is on the first connection."""
    await peer.request()
    await peer.send(OK)
    await peer.request()
    if peer.number == 1:
        await peer.send(first)
        await end(peer)
    await peer.send(OK)


@pytest.mark.parametrize("end", [hang_up, reset], ids=["close", "reset"])
@on_both_loops
async def test_upstream_request_on_a_stale_connection_is_retried_on_a_new_one(end):
    async with backend(lambda peer: stale(peer, end=end), reused=20) as (pool, peers):
        assert await ask(pool, b"1") == (200, b"ok")
        assert await ask(pool, b"2") == (200, b"ok")
        assert [[body for _, body in peer.requests] for peer in peers] == [[b"1", b"2"], [b"2"]]


@pytest.mark.parametrize("first", [b"H", b"HTTP/1.1 100 Continue\r\n\r\n"], ids=["a byte", "100"])
@on_both_loops
async def test_upstream_request_is_not_retried_after_the_first_byte(first):
    async with backend(lambda peer: stale(peer, first=first), reused=20) as (pool, peers):
        await ask(pool)
        with pytest.raises(ConnectionLost):
            await ask(pool)
        assert len(peers) == 1


@pytest.mark.parametrize("end", [hang_up, reset], ids=["close", "reset"])
@on_both_loops
async def test_upstream_request_that_a_model_may_have_worked_on_is_not_retried(end):
    async with backend(lambda peer: stale(peer, end=end), reused=0) as (pool, peers):
        await ask(pool)
        with pytest.raises(ConnectionLost):
            await ask(pool)
        assert [len(peer.requests) for peer in peers] == [2]


@pytest.mark.parametrize("end", [hang_up, reset], ids=["close", "reset"])
@on_both_loops
async def test_upstream_request_on_a_new_connection_is_not_retried(end):
    async with backend(script_of(then=end)) as (pool, peers):
        with pytest.raises(ConnectionLost):
            await ask(pool)
        assert len(peers) == 1


@on_both_loops
async def test_upstream_connection_closing_in_the_pool_is_not_reused():
    async with backend(script_of(OK)) as (pool, peers):
        answer = await post(pool, "/", b"")
        assert await whole(answer) == b"ok"
        answer._connection._raw.abort()  # as after a reset that the connection has not seen yet
        assert await ask(pool) == (200, b"ok")
        assert [len(peer.requests) for peer in peers] == [1, 1]


@on_both_loops
async def test_upstream_request_is_retried_only_once():
    async def script(peer):
        await peer.request()
        if peer.number <= 2:
            await peer.send(OK)
            await peer.request()

    async with backend(script, reused=20) as (pool, peers):
        answers = [await post(pool, "/", b""), await post(pool, "/", b"")]
        for answer in answers:
            await whole(answer)
        with pytest.raises(ConnectionLost):
            await ask(pool)
        assert [len(peer.requests) for peer in peers] == [1, 2, 1]


@pytest.mark.parametrize("garbage", [b"more", OK, b"\r\n\r\n?"])
@pytest.mark.parametrize("moment", ["same packet", "before close", "idle"])
@on_both_loops
async def test_upstream_connection_is_closed_by_bytes_after_the_response(garbage, moment):
    read_whole = asyncio.Event()
    packets = {"same packet": [OK + garbage], "before close": [OK, garbage], "idle": [OK, read_whole, garbage]}

    async def script(peer):
        await peer.request()
        await peer.send(*packets[moment])
        await peer.watch()

    async with backend(script) as (pool, peers):
        for count in (1, 2):
            answer = await post(pool, "/", b"")
            if moment != "idle":
                await answer._connection.closed
            assert await whole(answer) == b"ok"
            read_whole.set()
            await peers[-1].closed.wait()
            read_whole.clear()
            assert len(peers) == count


@on_both_loops
async def test_upstream_pool_close_closes_idle_connections_and_keeps_no_more():
    closed = asyncio.Event()

    async def script(peer):
        await peer.request()
        await peer.send(STREAM + b"2\r\nhi\r\n")
        await peer.send(*([LAST] if peer.number < 3 else [closed, LAST]))
        await peer.watch()

    async with backend(script) as (pool, peers):
        answers = [await post(pool, "/", b"") for _ in range(3)]
        for answer in answers[:2]:
            await whole(answer)
        await pool.close()
        assert all(answer._connection.closed.done() for answer in answers[:2])
        for peer in peers[:2]:
            await peer.closed.wait()
        closed.set()
        assert await whole(answers[2]) == b"hi"
        await peers[2].closed.wait()


# Cancelling, limits


@pytest.mark.parametrize("first", [b"", STREAM, STREAM + b"5\r\nhi"], ids=["no head", "head", "body"])
@on_both_loops
async def test_upstream_request_cancelled_closes_its_socket(first):
    async def script(peer):
        await peer.request()
        await peer.send(first)
        await peer.watch()

    answers, parts = [], []
    async with backend(script) as (pool, peers):

        async def read_on():
            with closing(await post(pool, "/", b"")) as answer:
                answers.append(answer)
                while part := await read(answer):
                    parts.append(part)

        task = asyncio.create_task(read_on())
        await until(lambda: len(peers) == 1 and len(peers[0].requests) == 1)
        if first:
            await until(lambda: len(answers), 1)
            await until(lambda: b"".join(parts), b"hi" if first.endswith(b"hi") else b"")
            await until_waiting(answers[0])
        assert not peers[0].closed.is_set()
        task.cancel()
        await peers[0].closed.wait()
        with pytest.raises(asyncio.CancelledError):
            await task


@on_both_loops
async def test_upstream_response_wait_cancelled_on_arrival_loses_no_byte():
    arrival = asyncio.Event()

    async def script(peer):
        await peer.request()
        await peer.send(STREAM, arrival, b"2\r\nhi\r\n")
        await peer.watch()

    async with backend(script) as (pool, peers):
        with closing(await post(pool, "/", b"")) as answer:
            reading = asyncio.create_task(read(answer))
            await until_waiting(answer)
            arrival.set()
            while not answer._waiter.done():  # noqa: ASYNC110 - the test needs exactly this turn of the loop
                await asyncio.sleep(0)
            assert reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert await read(answer) == b"hi"
        await peers[0].closed.wait()


@pytest.mark.parametrize("parts", [[], [b"HTTP/1.1 100 Continue\r\n\r\n"], [b"HTTP/1.1 2"], [b"H", b"T", b"T", b"P"]])
@on_both_loops
async def test_upstream_timeout_without_a_whole_head_closes_the_socket(parts):
    async def script(peer):
        await peer.request()
        await peer.send(*parts)
        await peer.watch()

    async with backend(script) as (pool, peers):
        with closing(pool.post("/", b"")) as sent:
            await until(lambda: len(peers) == 1 and len(peers[0].requests) == 1)
            await until(lambda: sent.response.unread, len(b"".join(parts)))
            assert not await sent.response.ready(0.1)
            assert not sent.headers_received()
        await peers[0].closed.wait()


@on_both_loops
async def test_upstream_timeout_idle_ends_a_silent_body_after_its_bytes():
    async def script(peer):
        await peer.request()
        await peer.send(STREAM, b"2\r\nhi\r\n")
        await peer.watch()

    async with backend(script) as (pool, peers):
        answer = await post(pool, "/", b"")
        assert await read(answer) == b"hi"
        with closing(answer), pytest.raises(TimeoutError):
            await read(answer, 0.1)
        await peers[0].closed.wait()


@on_both_loops
async def test_upstream_timeout_idle_allows_a_slow_body():
    """The limit holds for each wait alone, and not between two waits."""
    chunks, clock = asyncio.Queue(), Clock()
    async with backend(streamed_from(chunks)) as (pool, peers):
        for limit in (0.15, inf):
            answer = await post(pool, "/", b"")
            answer._connection.timer = DeadlineTimer(clock)
            for part in (b"%d" % i for i in range(8)):
                reading = asyncio.create_task(read(answer, limit))
                await until_waiting(answer)
                clock.advance(0.1)
                chunks.put_nowait(part)
                assert await reading == part
                clock.advance(10)  # no reader waits: no limit
            chunks.put_nowait(b"")
            assert await read(answer, limit) == b""
            clock.advance(10)
            answer.close()
        assert len(peers) == 1


@on_both_loops
async def test_upstream_timeout_while_waiting_loses_no_byte():
    chunks = asyncio.Queue()
    async with backend(streamed_from(chunks)) as (pool, _):
        with closing(await post(pool, "/", b"")) as answer:
            for seconds in (0, -1, 0.05):
                assert not await answer.ready(seconds)
            chunks.put_nowait(b"hi")
            assert await answer.ready()
            assert await answer.ready(0)
            assert await read(answer, 0) == b"hi"
            chunks.put_nowait(b"")
            assert await answer.ready()
            assert await read(answer) == b""


@pytest.mark.parametrize("status", [200, 503])
@on_both_loops
async def test_upstream_response_with_an_error_status_is_ready_at_its_head(status):
    async def script(peer):
        await peer.request()
        await peer.send(b"HTTP/1.1 %d So\r\ncontent-length: 5\r\n\r\n" % status)
        await peer.watch()

    async with backend(script) as (pool, _):
        with closing(pool.post("/", b"")) as sent:
            if status == 200:
                await until(sent.headers_received)
            assert await sent.response.ready(0.1 if status == 200 else inf) == (status == 503)
            assert sent.headers_received() and sent.response.status == status


class Callback:
    """A callback for chunks that records them; results: what it returns in turn, the last one again and again."""

    def __init__(self, *results):
        self.results, self.chunks = [*results], []

    def __call__(self, data, _now):
        self.chunks.append(data)
        return self.results.pop(0) if len(self.results) > 1 else self.results[0]

    async def called(self, times):
        """Wait until it has been called so often."""
        await until(lambda: len(self.chunks), times)


@on_both_loops
async def test_upstream_chunk_callback_that_handled_it_keeps_the_reader_waiting():
    chunks, callback = asyncio.Queue(), Callback(HANDLED)
    async with backend(streamed_from(chunks)) as (pool, _):
        with closing(await post(pool, "/", b"")) as answer:
            waiting = answer.ready(inf, callback)
            for number, chunk in enumerate((b"one", b"two", b"three"), 1):
                chunks.put_nowait(chunk)
                await callback.called(number)
            assert not waiting.done()
            chunks.put_nowait(b"")
            assert await waiting
            assert callback.chunks == [b"one", b"two", b"three"]
            assert answer.take() == b""  # the end


@on_both_loops
async def test_upstream_chunk_callback_that_declined_leaves_the_chunk_to_the_reader():
    chunks, callback = asyncio.Queue(), Callback(HANDLED, DECLINED)
    async with backend(streamed_from(chunks)) as (pool, _):
        with closing(await post(pool, "/", b"")) as answer:
            waiting = answer.ready(inf, callback)
            chunks.put_nowait(b"one")
            await callback.called(1)
            chunks.put_nowait(b"two")
            assert await waiting
            assert (callback.chunks, answer.take()) == ([b"one", b"two"], b"two")
            chunks.put_nowait(b"")
            assert await answer.ready() and answer.take() == b""


@on_both_loops
async def test_upstream_chunk_callback_can_wake_the_reader():
    chunks, callback = asyncio.Queue(), Callback(WAKE)
    async with backend(streamed_from(chunks)) as (pool, _):
        with closing(await post(pool, "/", b"")) as answer:
            waiting = answer.ready(inf, callback)
            chunks.put_nowait(b"one")
            assert await waiting
            assert callback.chunks == [b"one"] and not answer._parts
            chunks.put_nowait(b"two")
            assert await answer.ready() and answer.take() == b"two"
            chunks.put_nowait(b"")


@on_both_loops
async def test_upstream_chunk_callback_is_not_called_without_a_waiting_reader():
    chunks, callback = asyncio.Queue(), Callback(DECLINED)
    async with backend(streamed_from(chunks)) as (pool, _):
        with closing(await post(pool, "/", b"")) as answer:
            waiting = answer.ready(inf, callback)
            chunks.put_nowait(b"one")
            assert await waiting
            for chunk in (b"two", b"three", b""):
                chunks.put_nowait(chunk)
            await until(lambda: answer._over)
            assert (callback.chunks, answer.take()) == ([b"one"], b"onetwothree")


async def words(count, clock, chunks, callback):
    """Let a callback get so many chunks, 0.3 s apart."""
    for number in range(1, count + 1):
        clock.advance(0.3)
        chunks.put_nowait(b"word")
        await callback.called(number)


@on_both_loops
async def test_upstream_timeout_idle_restarts_at_each_chunk_of_a_callback():
    chunks, clock, callback = asyncio.Queue(), Clock(), Callback(HANDLED)
    async with backend(streamed_from(chunks)) as (pool, _):
        with closing(await post(pool, "/", b"")) as answer:
            answer._connection.timer, answer._connection.clock = DeadlineTimer(clock), clock.time
            waiting = answer.ready(0.4, callback)
            clock.advance(0.4)
            assert not await waiting
            assert callback.chunks == []
            waiting = answer.ready(0.4, callback)
            await words(8, clock, chunks, callback)
            clock.advance(0.3)
            assert not waiting.done()
            clock.advance(0.2)
            assert not await waiting
            chunks.put_nowait(b"")
            assert await answer.ready(0.4, callback)
            assert (callback.chunks, answer.take()) == ([b"word"] * 8, b"")


@on_both_loops
async def test_upstream_wait_with_a_callback_ends_at_its_last_time():
    chunks, clock, callback = asyncio.Queue(), Clock(), Callback(HANDLED)
    async with backend(streamed_from(chunks)) as (pool, _):
        with closing(await post(pool, "/", b"")) as answer:
            answer._connection.timer, answer._connection.clock = DeadlineTimer(clock), clock.time
            waiting = answer.ready(0.4, callback, until=1.0)
            await words(3, clock, chunks, callback)
            clock.advance(0.05)
            assert not waiting.done()
            clock.advance(0.1)
            assert not await waiting
            chunks.put_nowait(b"")
            assert await answer.ready(0.4, callback)
            assert (callback.chunks, answer.take()) == ([b"word"] * 3, b"")


@on_both_loops
async def test_upstream_response_that_is_lost_is_ready_to_be_read():
    async with backend(script_of(STREAM, then=hang_up)) as (pool, _):
        with closing(await post(pool, "/", b"")) as answer:
            assert await answer.ready()
            with pytest.raises(ConnectionLost):
                await read(answer)


@on_both_loops
async def test_upstream_connection_is_freed_after_its_close():
    async with backend(script_of(STREAM, then=hang_up)) as (pool, _):
        answer = await post(pool, "/", b"")
        with closing(answer), pytest.raises(ConnectionLost):
            await read(answer, 600)
        await answer._connection.closed
        gone = weakref.ref(answer._connection)
        del answer

        def freed():
            if gone() is not None:  # it is part of a cycle
                gc.collect()
            return gone() is None

        await until(freed)


@pytest.mark.parametrize("stage", ["begun", "connecting", "handshake"])
@on_both_loops
async def test_upstream_request_closed_before_it_is_connected_leaves_no_socket(stage, authority):
    async def script(peer):
        await peer.reader.read(10)
        await peer.watch()

    async with backend(script) as (plain, peers):
        pool = ConnectionPool(f"https://127.0.0.1:{plain._port}", ssl=authority[1])
        sent = pool.post("/", b"")
        if stage == "connecting":
            await asyncio.sleep(0)
        if stage == "handshake":
            await until(lambda: len(peers), 1)
        sent.close()
        for peer in peers:
            await peer.closed.wait()
        with pytest.raises(ConnectionLost):
            sent.headers_received()
    assert len(peers) == (stage == "handshake")


@on_both_loops
async def test_upstream_connection_that_is_refused_is_unreachable():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        pool = ConnectionPool(f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(
            UpstreamUnreachable,
            match=r"The backend cannot be reached: connection refused; is the server running\?$",
        ):
            await post(pool, "/", b"")


@pytest.mark.parametrize("host", ["h" * 64, "no-such-host.invalid"])
@on_both_loops
async def test_upstream_host_that_does_not_resolve_is_unreachable(host):
    with pytest.raises(UpstreamUnreachable, match="the host name cannot be resolved"):
        await post(ConnectionPool(f"http://{host}:1"), "/", b"")


@on_both_loops
async def test_upstream_timeout_connect_ends_a_pending_connection():
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as stack:
        for _ in range(4):  # fill the queue, so that further connections get no reply
            queued = stack.enter_context(socket.socket())
            queued.setblocking(False)
            queued.connect_ex(full.getsockname())
        pool = ConnectionPool(f"http://127.0.0.1:{full.getsockname()[1]}", connect=0.1)
        with pytest.raises(UpstreamTimeout, match="did not accept a connection within"):
            await post(pool, "/", b"")


# TLS


@pytest.fixture(scope="module")
def authority():
    """The TLS context of a server, and that of a client that trusts it."""
    ca = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert("127.0.0.1").configure_cert(server)
    client = ssl.create_default_context()
    ca.configure_trust(client)
    return server, client


@on_both_loops
async def test_upstream_tls_is_verified_and_kept_alive(authority):
    server, client = authority
    async with backend(script_of(STREAM, b"2\r\nhi\r\n", LAST), context=server, ssl=client) as (pool, peers):
        for _ in range(3):
            assert await ask(pool) == (200, b"hi")
        assert len(peers) == 1


@on_both_loops
async def test_upstream_tls_untrusted_certificate_is_unreachable(authority):
    async with backend(script_of(OK), context=authority[0]) as (pool, _):
        with pytest.raises(UpstreamUnreachable, match="the certificate is not trusted: "):
            await post(pool, "/", b"")


@on_both_loops
async def test_upstream_tls_certificate_of_another_host_is_unreachable(authority):
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca = trustme.CA()
    ca.issue_cert("elsewhere.test").configure_cert(server)
    client = ssl.create_default_context()
    ca.configure_trust(client)
    async with backend(script_of(OK), context=server, ssl=client) as (pool, _):
        with pytest.raises(UpstreamUnreachable, match="the certificate is not trusted: "):
            await post(pool, "/", b"")


@pytest.mark.parametrize("patience", [0.1, 0])
@on_both_loops
async def test_upstream_tls_handshake_hanging_times_out_breaking_is_unreachable(patience, authority):
    async def script(peer):
        await peer.reader.read(10)
        if patience:
            await peer.watch()

    async with backend(script) as (plain, peers):
        pool = ConnectionPool(f"https://127.0.0.1:{plain._port}", connect=patience, ssl=authority[1])
        with pytest.raises(UpstreamTimeout if patience else UpstreamUnreachable):
            await post(pool, "/", b"")
        if patience:
            await until(lambda: len(peers), 1)
            await peers[0].closed.wait()


@on_both_loops
async def test_upstream_tls_close_in_the_last_handshake_packet_is_lost(authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # where the server sends the last message of the handshake
    ca = trustme.CA()
    ca.issue_cert("127.0.0.1").configure_cert(context)
    client = ssl.create_default_context()
    ca.configure_trust(client)

    async def script(peer):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_side=True)
        done = False
        while not done:
            incoming.write(await peer.reader.read(65536))
            with suppress(ssl.SSLWantReadError):
                tls.do_handshake()
                done = True
                tls.unwrap()
            await peer.send(outgoing.read())
        await peer.watch()

    async with backend(script) as (plain, peers):
        pool = ConnectionPool(f"https://127.0.0.1:{plain._port}", ssl=client)
        with pytest.raises(ConnectionLost):
            await post(pool, "/", b"")
        await peers[0].closed.wait()
