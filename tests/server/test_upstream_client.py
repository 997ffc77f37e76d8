"""The upstream client against servers that send exactly given bytes: real sockets, both event loops."""

import asyncio
import fcntl
import gc
import hashlib
import os
import re
import socket
import ssl
import struct
import termios
import time
import weakref
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from math import inf
from pathlib import Path
from types import MappingProxyType

import pytest
import trustme

from gateway.errors import Unreachable, UpstreamError, UpstreamInvalid, UpstreamTimeout
from gateway.server.client import Lost, Pool
from support.app import on_both_loops

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
SOON = 2.0  # seconds within which the other side has to see that a socket was closed


class Peer:
    """The server's side of one connection."""

    def __init__(self, number, reader, writer):
        self.number = number  # from 1, in the order of coming
        self.reader = reader
        self.writer = writer
        self.requests = []
        self.closed = asyncio.Event()  # the client closed its end
        self.done = asyncio.Event()  # and so did we
        self.sent = 0

    async def request(self):
        """The next request, head and body, as it came."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        size = int(re.search(rb"content-length: (\d+)", head)[1])
        self.requests.append((head, await self.reader.readexactly(size)))
        return self.requests[-1]

    async def send(self, *parts, pause=0.002):
        """Each part in a packet of its own."""
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()
            self.sent += len(part)
            await asyncio.sleep(pause)

    async def arrived(self):
        """Wait until the other side's kernel has all that was sent."""
        number = self.writer.get_extra_info("socket").fileno()
        while struct.unpack("i", fcntl.ioctl(number, termios.TIOCOUTQ, bytes(4)))[0]:  # noqa: ASYNC110 (only it knows)
            await asyncio.sleep(0.005)

    def reset(self):
        """Close with a RST instead of a FIN."""
        linger = struct.pack("ii", 1, 0)
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort()

    async def watch(self):
        """Until the client closes."""
        with suppress(ConnectionError):
            while await self.reader.read(65536):
                pass
        self.closed.set()


async def meet(script, peer):
    """Play the script to its end, or to the client's."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        await script(peer)
    peer.writer.close()
    with suppress(ConnectionError, ssl.SSLError):
        await peer.writer.wait_closed()
    peer.done.set()


@asynccontextmanager
async def backend(script, *, host="127.0.0.1", path="", context=None, **settings):
    """A pool whose connections each meet `script(peer)`, and the peers so far."""
    peers = []

    async def welcome(reader, writer):
        peers.append(Peer(len(peers) + 1, reader, writer))
        await meet(script, peers[-1])

    server = await asyncio.start_server(welcome, host, 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    root = f"{'https' if context else 'http'}://{f'[{host}]' if ':' in host else host}:{port}{path}"
    pool = Pool(root, **settings)
    try:
        yield pool, peers
    finally:
        await pool.close()
        server.close()
        await server.wait_closed()
        for peer in peers:  # a connection that is left open is an error
            await asyncio.wait_for(peer.done.wait(), 5)


def answering(*parts, then=None, pause=0.002):
    """A script that answers every request with the same packets, and after the last one does `then(peer)`."""

    async def script(peer):
        while True:
            await peer.request()
            await peer.send(*parts, pause=pause)
            if then:
                await then(peer)

    return script


async def hang_up(peer):
    raise ConnectionResetError  # ends the script, which closes the connection


async def reset(peer):
    await peer.arrived()
    peer.reset()
    raise ConnectionResetError


async def post(pool, path, body=b"", headers=MappingProxyType({}), *, first_byte=inf):
    """The answer, once its head is there."""
    sent = pool.post(path, body, headers)
    try:
        async with asyncio.timeout(None if first_byte == inf else first_byte):
            while not sent.headed():  # noqa: ASYNC110 (nobody is woken for it)
                await asyncio.sleep(0.001)
    except BaseException:
        sent.close()
        raise
    return sent.answer


async def read(answer, idle=inf):
    """What has come of the body since the last time, at least a byte; nothing at its end."""
    if not await answer.ready(idle):
        raise TimeoutError
    return answer.take()


async def whole(answer):
    """The body to its end."""
    with closing(answer):
        data = b""
        while part := await read(answer):
            data += part
        return data


async def ask(pool, body=b"{}", **more):
    answer = await post(pool, "/v1/x", body, **more)
    return answer.status, await whole(answer)


async def fails(answer):
    """What could be read, and the error it ended with."""
    data = b""
    with closing(answer), pytest.raises(UpstreamError) as caught:
        while part := await read(answer):
            data += part
    return data, caught.value


# The request


@on_both_loops
async def test_a_request_has_our_headers_the_pools_and_its_own_and_its_own_wins():
    async with backend(answering(OK), path="/prefix/", headers={"Authorization": "Bearer k", "x-a": "1"}) as (
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
async def test_a_header_that_could_change_the_request_is_refused_without_showing_its_value(name, value):
    with pytest.raises(ValueError, match="cannot be sent") as caught:
        Pool("http://127.0.0.1:1", headers={name: value})
    assert value not in str(caught.value) or not value.strip("a")
    with pytest.raises(ValueError, match="cannot be sent"):
        await post(Pool("http://127.0.0.1:1"), "/", b"", {name: value})


@pytest.mark.parametrize("path", ["", "v1", "/a b", "/a\r\nx: y", "/é", "/a#b"])
@on_both_loops
async def test_a_path_that_could_change_the_request_is_refused(path):
    with pytest.raises(ValueError, match="not a path"):
        await post(Pool("http://127.0.0.1:1"), path, b"")


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:80", "ftp://h", "http://", "http://u:p@h", "http://h?q", "http://h#f", "http://h/a b", "http://é",
     "http://a b/", "http://h:99999"],
)  # fmt: skip
def test_a_url_that_is_no_root_of_a_server_is_refused(url):
    with pytest.raises(ValueError, match=r"url|[Pp]ort"):
        Pool(url)


@on_both_loops
async def test_an_ipv6_literal_and_a_name_are_understood():
    async with backend(answering(OK), host="::1") as (pool, peers):
        assert await ask(pool) == (200, b"ok")
    assert re.search(rb"\r\nhost: \[::1\]:\d+\r\n", peers[0].requests[0][0])
    async with backend(answering(OK), host="localhost") as (pool, _):
        assert await ask(pool) == (200, b"ok")


@on_both_loops
async def test_small_packets_go_out_at_once():
    async with backend(answering(OK)) as (pool, _):
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
async def test_every_cut_of_an_answer_reads_the_same(kind):
    raw, body, reusable = FRAMINGS[kind]
    cuts = iter(range(1, len(raw)))

    async def script(peer):
        with suppress(StopIteration):
            while await peer.request():
                cut = next(cuts)
                await peer.send(raw[:cut], raw[cut:], pause=0.001)

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
async def test_all_in_single_bytes_reads_the_same():
    raw, body, _ = FRAMINGS["chunked"]
    async with backend(answering(*(raw[i : i + 1] for i in range(len(raw))))) as (pool, _):
        assert await ask(pool) == (200, body)


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@on_both_loops
async def test_a_body_without_a_length_ends_well_where_the_backend_closes(version):
    async with backend(answering(b"HTTP/" + version + b" 200 OK\r\n\r\n", b"all ", b"of it", then=hang_up)) as (
        pool,
        peers,
    ):
        assert await ask(pool) == (200, b"all of it")
        assert await ask(pool) == (200, b"all of it")
        assert len(peers) == 2


@on_both_loops
async def test_a_body_without_a_length_is_lost_when_the_connection_is_reset():
    async with backend(answering(b"HTTP/1.1 200 OK\r\n\r\n", b"half", then=reset)) as (pool, _):
        data, error = await fails(await post(pool, "/", b""))
        assert (data, type(error), error.problem.code, error.problem.status) == (b"half", Lost, "upstream_lost", 502)


@on_both_loops
async def test_names_of_headers_are_lower_and_repeated_ones_joined():
    async with backend(
        answering(b"HTTP/1.1 503 No\r\nX-A: 1\r\nx-a:  2 \r\nX-\xc4: \xe9\r\nContent-Length: 0\r\n\r\n")
    ) as (pool, _):
        with suppress(UpstreamInvalid):
            await post(pool, "/", b"")
    async with backend(
        answering(b"HTTP/1.1 503 No\r\nX-A: 1\r\nx-a:  2\r\nX-B: \xe9\r\nContent-Length: 0\r\n\r\n")
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
async def test_what_is_no_answer_is_refused_and_its_socket_closed_at_once(raw):
    async def script(peer):
        await peer.request()
        await peer.send(raw)
        await peer.watch()

    async with backend(script) as (pool, peers):
        with pytest.raises(UpstreamInvalid, match=r"no proper HTTP: ."):
            await post(pool, "/", b"")
        await asyncio.wait_for(peers[0].closed.wait(), SOON)


@on_both_loops
async def test_a_head_of_just_under_64_kib_is_read():
    head = b"HTTP/1.1 200 OK\r\nx: " + b"a" * 65000 + b"\r\ncontent-length: 100000\r\n\r\n"
    async with backend(answering(head + b"b" * 100000)) as (pool, _):
        assert await ask(pool) == (200, b"b" * 100000)


@pytest.mark.parametrize("flood", [b"x: a\r\n", b"a"], ids=["many", "endless"])
@on_both_loops
async def test_trailers_without_end_are_refused_after_what_came_before_them(flood):
    packets = [flood * (30000 // len(flood))] * 5

    async def script(peer):
        await peer.request()
        await peer.send(STREAM + b"2\r\nhi\r\n0\r\n")
        await peer.send(*packets)
        await peer.watch()

    async with backend(script) as (pool, _):
        data, error = await fails(await post(pool, "/", b""))
        assert (data, type(error)) == (b"hi", UpstreamInvalid)


@on_both_loops
async def test_a_broken_chunk_is_an_error_after_what_came_before_it():
    async with backend(answering(STREAM + b"2\r\nhi\r\nzz\r\n")) as (pool, _):
        answer = await post(pool, "/", b"")
        data, error = await fails(answer)
        assert (data, type(error)) == (b"hi", UpstreamInvalid)


@on_both_loops
async def test_an_answer_may_come_before_the_request_is_written():
    async def script(peer):
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
        if peer.number == 1:
            await peer.watch()
        await reset(peer)

    async with backend(script) as (pool, peers):
        for _ in range(2):  # first the backend waits for us to hang up, then it resets
            assert await ask(pool, bytes(20_000_000)) == (413, b"big")
        await asyncio.wait_for(peers[0].closed.wait(), SOON)
        assert len(peers) == 2  # with a request half written a connection is of no use


# Nothing is lost


@pytest.mark.parametrize("end", [hang_up, reset], ids=["close", "reset"])
@pytest.mark.parametrize("secure", [False, True], ids=["tcp", "tls"])
@on_both_loops
async def test_a_late_reader_gets_all_that_came_before_the_connection_broke(secure, end, authority):
    chunks = [b"data: %d\n\n" % i for i in range(100)]
    raw = b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks) + b"ff\r\nhalf"
    context, trusting = authority if secure else (None, None)
    async with backend(answering(STREAM + raw, then=end), context=context, ssl=trusting) as (pool, _):
        answer = await post(pool, "/", b"")
        await asyncio.sleep(0.2)
        data, error = await fails(answer)
        assert data == b"".join(chunks) + b"half"
        assert type(error) is Lost


@pytest.mark.parametrize("end", [hang_up, reset], ids=["close", "reset"])
@on_both_loops
async def test_a_body_cut_short_of_its_length_is_lost(end):
    async with backend(answering(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", then=end)) as (pool, _):
        data, error = await fails(await post(pool, "/", b""))
        assert (data, type(error)) == (b"half", Lost)


@pytest.mark.parametrize("secure", [False, True], ids=["tcp", "tls"])
@on_both_loops
async def test_what_waits_in_the_kernel_for_a_reader_behind_survives_a_reset(secure, authority):
    context, trusting = authority if secure else (None, None)
    sent = []

    async def script(peer):
        await peer.request()
        await peer.send(STREAM + b"1000000\r\n")
        with suppress(TimeoutError):  # until the client's kernel takes no more
            while True:
                sent.append(bytes([len(sent)]) * 50_000)
                await peer.send(sent[-1], pause=0)
                await asyncio.wait_for(peer.arrived(), 0.2)
        peer.reset()

    async with backend(script, context=context, ssl=trusting) as (pool, peers):
        answer = await post(pool, "/", b"")
        await asyncio.sleep(0.1)
        await peers[0].done.wait()
        data, error = await fails(answer)
        assert len(data) > 300_000  # more than is read ahead: the socket was paused
        assert data.startswith(b"".join(sent[:-1]))
        assert type(error) is Lost


def resident():
    """Bytes of memory this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("secure", [False, True], ids=["tcp", "tls"])
@on_both_loops
async def test_a_reader_that_does_not_read_stops_the_sender_and_then_gets_every_byte(secure, authority):
    block = os.urandom(65536)
    wanted = hashlib.sha256(block * 800).hexdigest()
    context, trusting = authority if secure else (None, None)

    async def script(peer):
        await peer.request()
        await peer.send(STREAM)
        for _ in range(800):
            await peer.send(b"10000\r\n" + block + b"\r\n", pause=0)
        await peer.send(LAST)

    async with backend(script, context=context, ssl=trusting) as (pool, peers):
        with closing(await post(pool, "/", b"")) as answer:
            before = resident()
            sent = -1
            while sent < peers[0].sent:
                sent = peers[0].sent
                await asyncio.sleep(0.2)
            assert sent < 20_000_000
            assert resident() - before < 10_000_000
            digest = hashlib.sha256()
            largest = 0
            while part := await read(answer, idle=5):
                digest.update(part)
                largest = max(largest, len(part))
            assert digest.hexdigest() == wanted
            assert largest < 1_000_000


@on_both_loops
async def test_an_end_that_comes_with_much_unread_leaves_the_connection_usable():
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 263000\r\n\r\n"
    async with backend(answering(head + bytes(262_000), bytes(1000), pause=0.05)) as (pool, peers):
        for _ in range(2):
            answer = await post(pool, "/", b"", first_byte=5)
            await asyncio.sleep(0.15)
            answer.close()
        assert len(peers) == 1


@on_both_loops
async def test_packets_without_a_byte_of_body_are_well_after_a_long_body():
    chunk = b"10000\r\n" + bytes(65536) + b"\r\n"
    async with backend(answering(STREAM, chunk, b"1", chunk[1:], b"0\r", b"\n\r\n")) as (pool, peers):
        for _ in range(2):
            assert await ask(pool) == (200, bytes(131072))
        assert len(peers) == 1


@on_both_loops
async def test_a_read_returns_at_once_when_something_is_there():
    async with backend(answering(STREAM + b"2\r\nhi\r\n2\r\nho\r\n" + LAST)) as (pool, _):
        with closing(await post(pool, "/", b"")) as answer:
            await asyncio.sleep(0.05)
            for wanted in (b"hiho", b""):
                step = read(answer, idle=1)
                with pytest.raises(StopIteration) as done:
                    step.send(None)
                assert done.value.value == wanted


# Keeping connections


@on_both_loops
async def test_a_connection_is_used_again_the_last_one_first():
    async with backend(answering(OK)) as (pool, peers):
        first, second = await post(pool, "/", b"1"), await post(pool, "/", b"2")
        assert [await whole(first), await whole(second)] == [b"ok", b"ok"]
        for _ in range(3):
            await ask(pool)
        assert [len(peer.requests) for peer in peers] == [1, 4]


@pytest.mark.parametrize("limit", [0, 2])
@on_both_loops
async def test_no_more_idle_connections_are_kept_than_allowed(limit):
    async def script(peer):
        await peer.request()
        await peer.send(OK)
        await peer.watch()

    async with backend(script, idle_connections=limit) as (pool, peers):
        answers = [await post(pool, "/", b"") for _ in range(4)]
        for answer in answers:
            await whole(answer)
        await asyncio.sleep(0.25)
        assert sum(peer.closed.is_set() for peer in peers) == 4 - limit


@on_both_loops
async def test_an_answer_closed_with_its_end_unread_gives_its_connection_back():
    async with backend(answering(OK)) as (pool, peers):
        for _ in range(3):
            answer = await post(pool, "/", b"")
            await asyncio.sleep(0.02)
            answer.close()
            answer.close()
            assert await read(answer) == b""
        assert len(peers) == 1


@on_both_loops
async def test_an_answer_closed_twice_leaves_the_next_one_on_its_connection_alone():
    async with backend(answering(OK[:-1], b"k", pause=0.05)) as (pool, peers):
        first = await post(pool, "/", b"")
        assert await whole(first) == b"ok"
        second = await post(pool, "/", b"")
        first.close()
        third = await post(pool, "/", b"")
        assert [await whole(second), await whole(third)] == [b"ok", b"ok"]
        assert len(peers) == 2


@on_both_loops
async def test_an_answer_closed_before_its_end_closes_its_socket_at_once():
    async def script(peer):
        await peer.request()
        await peer.send(STREAM + b"2\r\nhi\r\n")
        await peer.watch()

    async with backend(script) as (pool, peers):
        answer = await post(pool, "/", b"")
        answer.close()
        answer.close()
        await asyncio.wait_for(peers[0].closed.wait(), SOON)
        with pytest.raises(Lost, match="closed before its end"):
            await read(answer)


@on_both_loops
async def test_closing_an_answer_wakes_its_reader():
    async def script(peer):
        await peer.request()
        await peer.send(STREAM)
        await peer.watch()

    async with backend(script) as (pool, _):
        answer = await post(pool, "/", b"")
        reading = asyncio.create_task(read(answer, idle=5))
        await asyncio.sleep(0.02)
        answer.close()
        with pytest.raises(Lost):
            await reading


@pytest.mark.parametrize("end", [hang_up, reset], ids=["close", "reset"])
@on_both_loops
async def test_an_idle_connection_that_the_backend_closes_is_dropped(end):
    async with backend(answering(OK, then=end)) as (pool, peers):
        for _ in range(3):
            assert await ask(pool) == (200, b"ok")
            await asyncio.sleep(0.05)
            assert pool._idle.pop() is None
        assert [len(peer.requests) for peer in peers] == [1, 1, 1]


async def stale(peer, first=b"", end=hang_up):
    """Answer one request; leave the second one without a proper answer if it is on the first connection."""
    await peer.request()
    await peer.send(OK)
    await peer.request()
    if peer.number == 1:
        await peer.send(first)
        await end(peer)
    await peer.send(OK)


@pytest.mark.parametrize("end", [hang_up, reset], ids=["close", "reset"])
@on_both_loops
async def test_a_request_on_a_stale_connection_is_sent_again_on_a_new_one(end):
    async with backend(lambda peer: stale(peer, end=end)) as (pool, peers):
        assert await ask(pool, b"1") == (200, b"ok")
        assert await ask(pool, b"2") == (200, b"ok")
        assert [[body for _, body in peer.requests] for peer in peers] == [[b"1", b"2"], [b"2"]]


@on_both_loops
async def test_a_request_is_not_sent_again_once_a_byte_of_the_answer_came():
    async with backend(lambda peer: stale(peer, first=b"H")) as (pool, peers):
        await ask(pool)
        with pytest.raises(Lost):
            await ask(pool)
        assert len(peers) == 1


@pytest.mark.parametrize("end", [hang_up, reset], ids=["close", "reset"])
@on_both_loops
async def test_a_request_on_a_new_connection_is_never_sent_again(end):
    async with backend(answering(then=end)) as (pool, peers):
        with pytest.raises(Lost):
            await ask(pool)
        assert len(peers) == 1


@on_both_loops
async def test_a_kept_connection_that_breaks_in_this_moment_is_not_asked():
    async with backend(answering(OK)) as (pool, peers):
        answer = await post(pool, "/", b"")
        assert await whole(answer) == b"ok"
        answer._connection._raw.abort()  # as after a reset of which the connection has not been told
        assert await ask(pool) == (200, b"ok")
        assert [len(peer.requests) for peer in peers] == [1, 1]


@on_both_loops
async def test_a_request_is_sent_again_only_once():
    async def script(peer):
        await peer.request()
        if peer.number <= 2:
            await peer.send(OK)
            await peer.request()

    async with backend(script) as (pool, peers):
        answers = [await post(pool, "/", b""), await post(pool, "/", b"")]
        for answer in answers:
            await whole(answer)
        with pytest.raises(Lost):
            await ask(pool)
        assert [len(peer.requests) for peer in peers] == [1, 2, 1]


@pytest.mark.parametrize("garbage", [b"more", OK, b"\r\n\r\n?"])
@pytest.mark.parametrize("delay", [None, 0, 0.05], ids=["same packet", "before close", "idle"])
@on_both_loops
async def test_bytes_after_an_answer_cost_the_connection_and_not_the_answer(garbage, delay):
    async def script(peer):
        await peer.request()
        await peer.send(*([OK + garbage] if delay is None else [OK]))
        await asyncio.sleep(delay or 0)
        await peer.send(*([] if delay is None else [garbage]))
        await peer.watch()

    async with backend(script) as (pool, peers):
        for count in (1, 2):
            answer = await post(pool, "/", b"")
            if not delay:
                await asyncio.sleep(0.02)
            assert await whole(answer) == b"ok"
            await asyncio.wait_for(peers[-1].closed.wait(), SOON)
            assert len(peers) == count


@on_both_loops
async def test_a_closed_pool_closes_what_is_idle_and_keeps_nothing_more():
    async def script(peer):
        await peer.request()
        await peer.send(STREAM + b"2\r\nhi\r\n")
        if peer.number < 3:
            await peer.send(LAST)
            await peer.watch()
        await asyncio.sleep(0.1)
        await peer.send(LAST)
        await peer.watch()

    async with backend(script) as (pool, peers):
        answers = [await post(pool, "/", b"") for _ in range(3)]
        for answer in answers[:2]:
            await whole(answer)
        await pool.close()
        assert all(answer._connection.gone.done() for answer in answers[:2])
        for peer in peers[:2]:
            await asyncio.wait_for(peer.closed.wait(), SOON)
        assert await whole(answers[2]) == b"hi"
        await asyncio.wait_for(peers[2].closed.wait(), SOON)


# Cancelling, limits


@pytest.mark.parametrize("first", [b"", STREAM, STREAM + b"5\r\nhi"], ids=["no head", "head", "body"])
@on_both_loops
async def test_cancelling_closes_the_socket_at_once(first):
    async def script(peer):
        await peer.request()
        await peer.send(first)
        await peer.watch()

    async with backend(script) as (pool, peers):

        async def read_on():
            with closing(await post(pool, "/", b"", first_byte=10)) as answer:
                while await read(answer, idle=10):
                    pass

        task = asyncio.create_task(read_on())
        await asyncio.sleep(0.1)
        assert not peers[0].closed.is_set()
        task.cancel()
        await asyncio.wait_for(peers[0].closed.wait(), SOON)
        with pytest.raises(asyncio.CancelledError):
            await task


@on_both_loops
async def test_a_wait_that_is_given_up_in_the_moment_in_which_something_came_loses_nothing():
    async def script(peer):
        await peer.request()
        await peer.send(STREAM)
        await asyncio.sleep(0.05)
        await peer.send(b"2\r\nhi\r\n")
        await peer.watch()

    async with backend(script) as (pool, peers):
        with closing(await post(pool, "/", b"")) as answer:
            reading = asyncio.create_task(read(answer))
            await asyncio.sleep(0.01)
            while not answer._waiter.done():  # noqa: ASYNC110 (the moment is the point)
                await asyncio.sleep(0)
            assert reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert await read(answer) == b"hi"
        await asyncio.wait_for(peers[0].closed.wait(), SOON)


@pytest.mark.parametrize("parts", [[], [b"HTTP/1.1 100 Continue\r\n\r\n"], [b"HTTP/1.1 2"], [b"H", b"T", b"T", b"P"]])
@on_both_loops
async def test_a_head_that_does_not_come_in_time_is_a_timeout(parts):
    async def script(peer):
        await peer.request()
        await peer.send(*parts, pause=0.02)
        await peer.watch()

    async with backend(script) as (pool, peers):
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            await post(pool, "/", b"", first_byte=0.1)
        assert 0.09 < time.monotonic() - start < 0.1 + SOON
        await asyncio.wait_for(peers[0].closed.wait(), SOON)


@on_both_loops
async def test_a_silent_body_is_a_timeout_after_what_had_come():
    async def script(peer):
        await peer.request()
        await peer.send(STREAM, b"2\r\nhi\r\n")
        await peer.watch()

    async with backend(script) as (pool, peers):
        answer = await post(pool, "/", b"", first_byte=5)
        assert await read(answer, idle=0.1) == b"hi"
        start = time.monotonic()
        with closing(answer), pytest.raises(TimeoutError):
            await read(answer, idle=0.1)
        assert 0.09 < time.monotonic() - start < 0.1 + SOON
        await asyncio.wait_for(peers[0].closed.wait(), SOON)


@on_both_loops
async def test_a_slow_body_is_no_timeout():
    parts = [b"1\r\n%d\r\n" % i for i in range(8)]

    async def script(peer):
        for _ in range(2):
            await peer.request()
            await peer.send(STREAM, *parts, LAST, pause=0.06)

    async with backend(script) as (pool, peers):
        for idle in (0.15, inf):
            answer = await post(pool, "/", b"", first_byte=0.15)
            data = b""
            while part := await read(answer, idle=idle):
                data += part
            assert data == b"01234567"
            await asyncio.sleep(0.2)  # no reader waits: no limit
            answer.close()
        assert len(peers) == 1


@on_both_loops
async def test_waiting_until_a_read_is_ready_gives_nothing_up():
    async def script(peer):
        await peer.request()
        await peer.send(STREAM)
        await asyncio.sleep(0.2)
        await peer.send(b"2\r\nhi\r\n", pause=0.1)
        await peer.send(LAST)

    async with backend(script) as (pool, _):
        with closing(await post(pool, "/", b"", first_byte=5)) as answer:
            for seconds in (0, -1, 0.05):
                assert not await answer.ready(seconds)
            assert await answer.ready(5)
            assert await answer.ready(0)
            assert await read(answer, idle=0.01) == b"hi"
            assert await answer.ready()
            assert await read(answer) == b""


@pytest.mark.parametrize("status", [200, 503])
@on_both_loops
async def test_the_head_of_an_error_is_all_that_is_waited_for(status):
    async def script(peer):
        await peer.request()
        await peer.send(b"HTTP/1.1 %d So\r\ncontent-length: 5\r\n\r\n" % status)
        await peer.watch()

    async with backend(script) as (pool, _):
        with closing(pool.post("/", b"")) as sent:
            assert await sent.answer.ready(SOON if status == 503 else 0.1) == (status == 503)
            assert sent.headed() and sent.answer.status == status


class Ear:
    """Hears what comes while somebody waits; says: what it answers, in turn, the last one again and again."""

    def __init__(self, *says):
        self.says, self.heard = [*says], []

    def __call__(self, data):
        self.heard.append(data)
        return self.says.pop(0) if len(self.says) > 1 else self.says[0]


def saying(*parts, pause=0.05):
    """A backend that streams these, one after the other, and then its end."""

    async def script(peer):
        await peer.request()
        await peer.send(STREAM)
        for part in parts:
            await asyncio.sleep(pause)
            await peer.send(b"%x\r\n%b\r\n" % (len(part), part))
        await asyncio.sleep(pause)
        await peer.send(LAST)

    return script


@on_both_loops
async def test_who_waits_sleeps_on_where_an_ear_takes_what_comes():
    async with backend(saying(b"one", b"two", b"three")) as (pool, _):
        with closing(await post(pool, "/", b"")) as answer:
            ear = Ear(True)
            assert await answer.ready(5, ear)
            assert ear.heard == [b"one", b"two", b"three"]
            assert answer.take() == b""  # the end


@on_both_loops
async def test_what_is_nothing_for_an_ear_is_there_for_who_waits():
    async with backend(saying(b"one", b"two")) as (pool, _):
        with closing(await post(pool, "/", b"")) as answer:
            ear = Ear(True, None)
            assert await answer.ready(5, ear)
            assert (ear.heard, answer.take()) == ([b"one", b"two"], b"two")
            assert await answer.ready(5) and answer.take() == b""


@on_both_loops
async def test_an_ear_may_wake_who_waits_when_it_has_taken_all():
    async with backend(saying(b"one", b"two")) as (pool, _):
        with closing(await post(pool, "/", b"")) as answer:
            ear = Ear(False)
            assert await answer.ready(5, ear)
            assert ear.heard == [b"one"] and not answer._parts
            assert await answer.ready(5) and answer.take() == b"two"


@on_both_loops
async def test_an_ear_hears_nothing_while_nobody_waits():
    async with backend(saying(b"one", b"two", b"three")) as (pool, _):
        with closing(await post(pool, "/", b"")) as answer:
            ear = Ear(None)
            assert await answer.ready(5, ear)
            await asyncio.sleep(0.3)
            assert (ear.heard, answer.take()) == ([b"one"], b"onetwothree")


@on_both_loops
async def test_a_wait_is_so_long_after_what_an_ear_heard():
    async with backend(saying(*[b"word"] * 8, b"", pause=0.1)) as (pool, _):  # an empty chunk is the end
        with closing(await post(pool, "/", b"")) as answer:
            ear = Ear(True)
            assert await answer.ready(0.4, ear)
            assert ear.heard == [b"word"] * 8
    async with backend(saying(b"word", b"word", b"late", pause=0.2)) as (pool, _):
        with closing(await post(pool, "/", b"")) as answer:
            ear = Ear(True)
            assert not await answer.ready(0.1, ear)
            assert ear.heard == []


@on_both_loops
async def test_an_error_is_ready_to_be_read():
    async with backend(answering(STREAM, then=hang_up)) as (pool, _):
        with closing(await post(pool, "/", b"")) as answer:
            assert await answer.ready(5)
            with pytest.raises(Lost):
                await read(answer)


@on_both_loops
async def test_nothing_holds_on_to_a_connection_that_is_gone():
    async with backend(answering(STREAM, then=hang_up)) as (pool, _):
        answer = await post(pool, "/", b"", first_byte=600)
        with closing(answer), pytest.raises(Lost):
            await read(answer, idle=600)
        await answer._connection.gone
        gone = weakref.ref(answer._connection)
        del answer
        await asyncio.sleep(0.05)
        gc.collect()
        assert gone() is None


@pytest.mark.parametrize("stage", ["begun", "connecting", "handshake"])
@on_both_loops
async def test_what_is_closed_before_there_is_a_connection_leaves_nothing_behind(stage, authority):
    async def script(peer):
        await peer.reader.read(10)
        await peer.watch()

    async with backend(script) as (plain, peers):
        pool = Pool(f"https://127.0.0.1:{plain._port}", ssl=authority[1])
        sent = pool.post("/", b"")
        if stage == "connecting":
            await asyncio.sleep(0)
        while stage == "handshake" and not peers:  # noqa: ASYNC110 (only it knows)
            await asyncio.sleep(0.01)
        sent.close()
        for peer in peers:
            await asyncio.wait_for(peer.closed.wait(), SOON)
        with pytest.raises(Lost):
            sent.headed()
    assert len(peers) == (stage == "handshake")


@on_both_loops
async def test_a_refused_connection_is_unreachable():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        pool = Pool(f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(Unreachable, match="ConnectionRefusedError"):
            await post(pool, "/", b"")


@pytest.mark.parametrize("host", ["h" * 64, "no-such-host.invalid"])
@on_both_loops
async def test_a_name_that_is_none_is_unreachable(host):
    with pytest.raises(Unreachable):
        await post(Pool(f"http://{host}:1"), "/", b"")


@on_both_loops
async def test_a_connection_that_does_not_come_about_in_time_is_a_timeout():
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as stack:
        for _ in range(4):  # until the queue is full; then further ones get no reply
            queued = stack.enter_context(socket.socket())
            queued.setblocking(False)
            queued.connect_ex(full.getsockname())
        pool = Pool(f"http://127.0.0.1:{full.getsockname()[1]}", connect=0.1)
        start = time.monotonic()
        with pytest.raises(UpstreamTimeout, match="no connection in time"):
            await post(pool, "/", b"")
        assert time.monotonic() - start < 0.1 + SOON


# TLS


@pytest.fixture(scope="module")
def authority():
    """A server's context, and a client's that trusts it."""
    ca = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert("127.0.0.1").configure_cert(server)
    client = ssl.create_default_context()
    ca.configure_trust(client)
    return server, client


@on_both_loops
async def test_tls_is_spoken_verified_and_kept_alive(authority):
    server, client = authority
    async with backend(answering(STREAM, b"2\r\nhi\r\n", LAST), context=server, ssl=client) as (pool, peers):
        for _ in range(3):
            assert await ask(pool) == (200, b"hi")
        assert len(peers) == 1


@on_both_loops
async def test_a_certificate_nobody_vouches_for_is_unreachable(authority):
    async with backend(answering(OK), context=authority[0]) as (pool, _):
        with pytest.raises(Unreachable, match="SSLCertVerificationError"):
            await post(pool, "/", b"")


@on_both_loops
async def test_a_certificate_of_another_host_is_unreachable(authority):
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca = trustme.CA()
    ca.issue_cert("elsewhere.test").configure_cert(server)
    client = ssl.create_default_context()
    ca.configure_trust(client)
    async with backend(answering(OK), context=server, ssl=client) as (pool, _):
        with pytest.raises(Unreachable, match="SSLCertVerificationError"):
            await post(pool, "/", b"")


@pytest.mark.parametrize("patience", [0.1, 0])
@on_both_loops
async def test_a_tls_handshake_that_hangs_is_a_timeout_and_one_that_breaks_is_unreachable(patience, authority):
    async def script(peer):
        await peer.reader.read(10)
        if patience:
            await peer.watch()

    async with backend(script) as (plain, peers):
        pool = Pool(f"https://127.0.0.1:{plain._port}", connect=patience, ssl=authority[1])
        with pytest.raises(UpstreamTimeout if patience else Unreachable):
            await post(pool, "/", b"")
        if patience:
            await asyncio.wait_for(peers[0].closed.wait(), SOON)


@on_both_loops
async def test_a_backend_that_leaves_in_the_packet_that_ends_the_handshake_is_lost(authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # there the server's word is the last one
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
        pool = Pool(f"https://127.0.0.1:{plain._port}", ssl=client)
        with pytest.raises(Lost):
            await post(pool, "/", b"")
        await asyncio.wait_for(peers[0].closed.wait(), SOON)
