"""Test clients that do not read their response, or do not finish their request, on real sockets."""

import asyncio
import json
from contextlib import asynccontextmanager, suppress

import pytest
from websockets.asyncio.client import connect

from gateway.config import Config
from gateway.server.app import create_app
from support.app import listening, on_both_loops, running, settings
from support.endless_upstream import MAX_BUFFERED, PIECE, Pouring
from support.raw_requests import HEAD, asking, narrow, port_of, request_bytes
from support.upstream import DONE, END, HELLO, Upstream, chunk, head
from support.wait import idle, undisturbed

NATIVE = {"model": {"format": "native"}}
WHOLE = HEAD % 2 + b"{}"


# Response


@on_both_loops
async def test_slow_client_that_reads_nothing_is_cut_off():
    pour = Pouring(10**9)
    async with listening([head(), pour], stream={"client_seconds": 0.3}, **NATIVE) as site, asking(site) as sock:
        await pour.over.wait()
        assert 0 < pour.sent < MAX_BUFFERED
        with pytest.raises(ConnectionError):
            while await asyncio.get_running_loop().sock_recv(sock, 1 << 20):
                pass
            raise ConnectionError("or it was closed in the middle")


@on_both_loops
async def test_slow_client_that_keeps_reading_is_not_cut_off():
    pour = Pouring(200)  # 3 MB
    script = [head(), pour, chunk(finish="stop"), DONE, END]
    async with listening(script, stream={"client_seconds": 1}, **NATIVE) as site, asking(site) as sock:
        data, loop = b"", asyncio.get_running_loop()
        for _ in range(120):  # in all longer than the limit, of which each pause is a hundredth
            data += await loop.sock_recv(sock, 16_384)
            await idle(0.01)
        while not data.endswith(b"0\r\n\r\n"):
            data += await loop.sock_recv(sock, 1 << 20)
        assert data.count(b"~") == len(PIECE) * 200


@on_both_loops
async def test_slow_client_is_not_cut_off_where_the_limit_is_zero():
    pour = Pouring(10**9)
    async with listening([head(), pour], stream={"client_seconds": 0}, **NATIVE) as site, asking(site):
        await idle(0.5)
        assert not pour.over.is_set()
    await pour.over.wait()


@on_both_loops
async def test_slow_client_of_a_websocket_is_cut_off():
    pour = Pouring(10**9)
    async with listening([head(), pour], stream={"client_seconds": 0.3}, **NATIVE) as site:
        sock = await narrow(port_of(site))
        async with connect(
            f"ws://127.0.0.1:{port_of(site)}/v1/responses", sock=sock, max_queue=1, close_timeout=0
        ) as ws:
            await ws.send(json.dumps({"type": "response.create", "model": "m", "input": "Hello", "store": False}))
            await pour.over.wait()
            assert 0 < pour.sent < MAX_BUFFERED


# Request


@asynccontextmanager
async def waiting(seconds):
    """Yield the port of a gateway that waits so long for the next byte of a request."""
    async with Upstream([HELLO], ()).serving() as upstream:
        known = settings(upstream.url)
        async with running(create_app(known), known, seconds) as url:
            yield int(url.rpartition(":")[2])


UNFINISHED = {
    "nothing": b"",
    "half a head": WHOLE[:40],
    "half a body": HEAD % 100 + b"{",
    "half a large body": HEAD % 1_000_000 + b" " * 500_000,
    "half a second request": WHOLE + WHOLE[:40],
}


@pytest.mark.parametrize("case", UNFINISHED)
@on_both_loops
async def test_timeout_request_closes_an_unfinished_request(case):
    async with waiting(0.5 if "second" in case else 0.1) as port:  # the first request has to be read before

        async def read_to_the_end():
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(UNFINISHED[case])
            assert (await reader.read()).count(b"HTTP/1.1 400") == ("second" in case)
            writer.close()

        await undisturbed(read_to_the_end, 0.3)


@on_both_loops
async def test_timeout_request_counts_from_the_last_byte():
    async with waiting(0.6) as port:

        async def send_slowly():
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for i in range(0, len(WHOLE), 2):  # in all longer than the limit, of which each pause is a thirtieth
                writer.write(WHOLE[i : i + 2])
                await idle(0.02)
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 400 ")
            writer.close()
            await writer.wait_closed()

        await undisturbed(send_slowly, 0.3)


@on_both_loops
async def test_timeout_request_has_a_total_for_a_client_that_sends_byte_by_byte():
    async with waiting(0.05) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD % 1_000_000)
        received = b""
        with suppress(ConnectionError):  # a reset is an end as well: bytes were still on their way
            while not (reader.at_eof() or writer.is_closing()):
                writer.write(b" ")
                await idle(0.01)
            received = await reader.read()
        assert received == b""
        writer.close()


@on_both_loops
async def test_timeout_request_does_not_end_a_running_response():
    go = asyncio.Event()
    script = [head(), chunk("Hi"), go, chunk(finish="stop"), DONE, END]
    async with Upstream([script], ()).serving() as upstream:
        known = settings(upstream.url)
        async with running(create_app(known), known, 0.1) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(request_bytes(stream=True))
            await reader.readuntil(b"Hi")
            await idle(0.3)
            go.set()
            await reader.readuntil(b"[DONE]")
            writer.close()
            await writer.wait_closed()


class Plain:
    """An application other than the gateway, with a given function for its responses."""

    def __init__(self, answer):
        self._answer = answer

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            await self._answer(receive, send)
            return
        for step in ("startup", "shutdown"):
            await receive()
            scope["state"]["stopping"] = list
            await send({"type": f"lifespan.{step}.complete"})


async def answer_with(send, body):
    size = b"%d" % len(body)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", size)]})
    await send({"type": "http.response.body", "body": body})


@on_both_loops
async def test_timeout_request_does_not_count_an_unread_body():
    go = asyncio.Event()

    async def lazily(receive, send):
        await go.wait()
        while (await receive())["more_body"]:
            pass
        await answer_with(send, b"")

    async with running(Plain(lazily), None, 0.2) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(HEAD % 1_000_000 + b" " * 1_000_000)
        await idle(0.4)
        go.set()
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await writer.wait_closed()


@on_both_loops
async def test_slow_client_of_a_large_response_is_not_cut_off():
    """The whole response is in the buffer at once, which is not empty before the end."""

    async def at_once(receive, send):
        await answer_with(send, b"~" * 64_000_000)

    async with running(Plain(at_once), Config(stream={"client_seconds": 0.5})) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]), limit=1 << 17)
        writer.write(HEAD % 0)
        got = 0
        while got < 64_000_000:
            got += (await reader.read(1 << 18)).count(b"~")
            await idle(0.003)
        writer.close()
        await writer.wait_closed()


@on_both_loops
async def test_request_that_is_not_http_is_refused():
    async with waiting(600) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x16\x03\x01\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
        await writer.wait_closed()


# Between requests


@on_both_loops
async def test_connection_without_a_request_is_closed_after_the_idle_time():
    """Earlier requests count as often as they come, and a response may take longer than the idle time."""
    now = asyncio.get_running_loop().time

    async def slowly(receive, send):
        await idle(float((await receive())["body"]))
        await answer_with(send, b"")

    async with running(Plain(slowly), None, 600, 0.5) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        for pause, seconds in (*[(0.1, b"0.0")] * 6, (0, b"0.6"), (0, b"0.0")):
            await idle(pause)
            start = now()
            writer.write(HEAD % 3 + seconds)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert await reader.read() == b""
        assert now() - start > 0.49
        writer.close()


@on_both_loops
async def test_connection_with_half_a_request_is_not_idle():
    async def at_once(receive, send):
        await answer_with(send, b"")

    async with running(Plain(at_once), None, 60, 0.3) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        for piece in (HEAD % 0, HEAD[:30], HEAD[30:] % 0):
            writer.write(piece)
            if piece != HEAD[:30]:
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            else:
                await idle(0.6)
        writer.close()
