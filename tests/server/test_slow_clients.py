"""Clients that do not read what they asked for, or never come to the end of asking, on real sockets."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.client import connect

from gateway.config import Config
from gateway.server.app import create_app
from support.app import HELLO_MESSAGES, listening, on_both_loops, running, settings
from support.endless_upstream import PIECE, Pouring
from support.raw_requests import HEAD, asking, narrow, port_of
from support.upstream import DONE, END, HELLO, Upstream, chunk, head

NATIVE = {"model": {"format": "native"}}
MOST = 25_000_000  # bytes that all buffers between a server and a client hold together
WHOLE = HEAD % 2 + b"{}"


# Reading


@on_both_loops
async def test_who_reads_nothing_holds_the_server_back_and_is_cut_off():
    pour = Pouring(10**9)
    async with listening([head(), pour], stream={"client_seconds": 0.3}, **NATIVE) as site, asking(site) as sock:
        await pour.over.wait()
        assert 0 < pour.sent < MOST
        with pytest.raises(ConnectionError):
            while await asyncio.get_running_loop().sock_recv(sock, 1 << 20):
                pass
            raise ConnectionError("or it was closed in the middle")


@on_both_loops
async def test_who_reads_slowly_is_not():
    pour = Pouring(200)  # 3 MB
    script = [head(), pour, chunk(finish="stop"), DONE, END]
    async with listening(script, stream={"client_seconds": 0.3}, **NATIVE) as site, asking(site) as sock:
        said, loop = b"", asyncio.get_running_loop()
        for _ in range(100):  # of more than is read meanwhile
            said += await loop.sock_recv(sock, 16_384)
            await asyncio.sleep(0.01)
        while not said.endswith(b"0\r\n\r\n"):
            said += await loop.sock_recv(sock, 1 << 20)
        assert said.count(b"~") == len(PIECE) * 200


@on_both_loops
async def test_nobody_is_cut_off_where_there_is_no_bound():
    pour = Pouring(10**9)
    async with listening([head(), pour], stream={"client_seconds": 0}, **NATIVE) as site, asking(site):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await pour.over.wait()
    await pour.over.wait()


@on_both_loops
async def test_a_websocket_is_cut_off_as_well():
    pour = Pouring(10**9)
    async with listening([head(), pour], stream={"client_seconds": 0.3}, **NATIVE) as site:
        sock = await narrow(port_of(site))
        async with connect(
            f"ws://127.0.0.1:{port_of(site)}/v1/responses", sock=sock, max_queue=1, close_timeout=0
        ) as ws:
            await ws.send(json.dumps({"type": "response.create", "model": "m", "input": "Hello", "store": False}))
            await pour.over.wait()
            assert 0 < pour.sent < MOST


# Asking


@asynccontextmanager
async def waiting(seconds):
    """The port of a gateway that waits so long for the next byte of a request."""
    async with Upstream([HELLO], ()).serving() as upstream:
        known = settings(upstream.url)
        async with running(create_app(known), known, seconds) as url:
            yield int(url.rpartition(":")[2])


UNFINISHED = {
    "nothing": b"",
    "half a head": WHOLE[:40],
    "half a body": HEAD % 100 + b"{",
    "half a second request": WHOLE + WHOLE[:40],
}


@pytest.mark.parametrize("case", UNFINISHED)
@on_both_loops
async def test_a_request_without_an_end_is_not_waited_for(case):
    async with waiting(0.2) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(UNFINISHED[case])
        assert (await reader.read()).count(b"HTTP/1.1 400") == ("second" in case)
        writer.close()


@on_both_loops
async def test_a_request_may_come_slowly():
    async with waiting(0.5) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for i in range(0, len(WHOLE), 8):  # for longer than it is waited for
            writer.write(WHOLE[i : i + 8])
            await asyncio.sleep(0.06)
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 400 ")
        writer.close()
        await writer.wait_closed()


@on_both_loops
async def test_a_request_that_is_answered_is_not_waited_for():
    go = asyncio.Event()
    script = [head(), chunk("Hi"), go, chunk(finish="stop"), DONE, END]
    async with Upstream([script], ()).serving() as upstream:
        known = settings(upstream.url)
        async with running(create_app(known), known, 0.1) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            body = json.dumps({"model": "m", "messages": HELLO_MESSAGES, "stream": True}).encode()
            writer.write(HEAD % len(body) + body)
            await reader.readuntil(b"Hi")
            await asyncio.sleep(0.3)
            go.set()
            await reader.readuntil(b"[DONE]")
            writer.close()
            await writer.wait_closed()


class Plain:
    """An application that is not the gateway, and answers as it is made to."""

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
async def test_a_body_that_nobody_takes_is_no_fault_of_its_client():
    go = asyncio.Event()

    async def lazily(receive, send):
        await go.wait()
        while (await receive())["more_body"]:
            pass
        await answer_with(send, b"")

    async with running(Plain(lazily), None, 0.1) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(HEAD % 1_000_000 + b" " * 1_000_000)
        await asyncio.sleep(0.4)
        go.set()
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await writer.wait_closed()


@on_both_loops
async def test_a_large_answer_may_take_as_long_as_it_takes():
    """All of it is in the buffer at once, which is never empty meanwhile."""

    async def at_once(receive, send):
        await answer_with(send, b"~" * 64_000_000)

    async with running(Plain(at_once), Config(stream={"client_seconds": 0.5})) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]), limit=1 << 17)
        writer.write(HEAD % 0)
        got = 0
        while got < 64_000_000:
            got += (await reader.read(1 << 18)).count(b"~")
            await asyncio.sleep(0.003)
        writer.close()
        await writer.wait_closed()


@on_both_loops
async def test_what_is_no_request_is_refused_and_not_waited_for():
    async with waiting(0.1) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x16\x03\x01\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
        await writer.wait_closed()


# Neither


@on_both_loops
async def test_a_connection_without_a_request_is_closed_when_it_had_none_since_its_last_answer():
    """It may have had many before, at any time, and an answer may take longer than that."""
    now = asyncio.get_running_loop().time

    async def slowly(receive, send):
        await asyncio.sleep(float((await receive())["body"]))
        await answer_with(send, b"")

    async with running(Plain(slowly), None, 60, 0.3) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        for pause, seconds in ((0, b"0.0"), (0.2, b"0.0"), (0.2, b"0.5"), (0, b"0.0")):
            await asyncio.sleep(pause)
            writer.write(HEAD % 3 + seconds)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        answered = now()
        assert await reader.read() == b""
        assert 0.29 < now() - answered < 2
        writer.close()


@on_both_loops
async def test_a_connection_with_half_a_request_is_not_one_without():
    async def at_once(receive, send):
        await answer_with(send, b"")

    async with running(Plain(at_once), None, 60, 0.1) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        for piece in (HEAD % 0, HEAD[:30], HEAD[30:] % 0):
            writer.write(piece)
            if piece != HEAD[:30]:
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            else:
                await asyncio.sleep(0.3)
        writer.close()
