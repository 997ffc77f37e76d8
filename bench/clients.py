"""`python -m bench.clients`: compare the gateway's upstream client with aiohttp and httpx, as one table.

The unit is CPU µs of the client alone.  It runs in this process under uvloop, against the mock upstream on another
core.  Each value is the median of rounds in which the clients take turns.

The first row is no speed.  A backend sends 100 events and dies; the row counts the events that reach a reader which is
200 ms late.  The program needs aiohttp and gcc.
"""

import asyncio
import os
import socket
import struct
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress
from pathlib import Path
from statistics import median

import aiohttp
import httpx
import uvloop

from bench import compiled
from bench.processes import free_port, running, wait_until_ready
from gateway.errors import ConnectionLost
from gateway.server.upstream import ConnectionPool

ROUNDS = 5
LINES = 200
PATH = "/v1/chat/completions"
JSON = {"content-type": "application/json"}
FIRST_BYTE, IDLE = 600.0, 120.0  # timeouts as in production; they are part of the cost

Parts = AsyncIterator[bytes]
Post = Callable[[bytes], Parts]
Client = Callable[[str], AbstractAsyncContextManager[Post]]  # takes the URL of a backend


def _body(chunks: int, *, stream: bool) -> bytes:
    text = f"@@m=plain,n={chunks}@@ hello"
    return b'{"model":"m","stream":%s,"messages":[{"role":"user","content":"%s"}]}' % (
        b"true" if stream else b"false",
        text.encode(),
    )


@asynccontextmanager
async def _ours(url: str) -> AsyncIterator[Post]:
    pool = ConnectionPool(url)

    async def post(body: bytes) -> Parts:
        with closing(pool.post(PATH, body)) as sent:
            while not sent.headers_received():
                await sent.response.ready(FIRST_BYTE)
            while await sent.response.ready(IDLE) and (data := sent.response.take()):
                yield data

    yield post
    await pool.close()


@asynccontextmanager
async def _aiohttp(url: str) -> AsyncIterator[Post]:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=IDLE)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:

        async def post(body: bytes) -> Parts:
            async with session.post(url + PATH, data=body, headers=JSON) as answer:
                async for data in answer.content.iter_any():
                    yield data

        yield post


@asynccontextmanager
async def _httpx(url: str) -> AsyncIterator[Post]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=32)
    async with httpx.AsyncClient(limits=limits, timeout=httpx.Timeout(5, read=IDLE), trust_env=False) as client:

        async def post(body: bytes) -> Parts:
            async with client.stream("POST", url + PATH, content=body, headers=JSON) as answer:
                async for data in answer.aiter_raw():
                    yield data

        yield post


CLIENTS: dict[str, Client] = {"ours": _ours, "aiohttp": _aiohttp, "httpx": _httpx}


async def _cpu(post: Post, body: bytes, requests: int, at_once: int) -> float:
    """Return CPU seconds per request, with `at_once` concurrent requests."""
    left = iter(range(requests))

    async def work() -> None:
        for _ in left:
            async for _ in post(body):
                pass

    begin = time.process_time()
    await asyncio.gather(*(work() for _ in range(at_once)))
    return (time.process_time() - begin) / requests


async def _round(post: Post) -> dict[str, float]:
    whole, stream = _body(50, stream=False), _body(LINES, stream=True)
    lines = b"".join([data async for data in post(stream)]).count(b"data: ")
    await _cpu(post, whole, 64, 32)
    return {
        "CPU µs per request, c=1": 1e6 * await _cpu(post, whole, 1000, 1),
        "CPU µs per request, c=32": 1e6 * await _cpu(post, whole, 2000, 32),
        "CPU µs per line of a burst, c=1": 1e6 * await _cpu(post, stream, 200, 1) / lines,
        "CPU µs per line of a burst, c=16": 1e6 * await _cpu(post, stream, 400, 16) / lines,
    }


async def _die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send one event, then 99 and half of a further one, and reset the connection."""
    await reader.readuntil(b"\r\n\r\n")
    first, *rest = [b"9\r\ndata: %d\n\n\r\n" % (number % 10) for number in range(100)]
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + first)
    await asyncio.sleep(0.05)
    writer.write(b"".join(rest) + b"ff\r\nhalf")
    await asyncio.sleep(0.05)
    linger = struct.pack("ii", 1, 0)  # closes with a RST
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


async def _rescued(client: Client) -> float:
    """Return the number of events for a reader that is busy for 200 ms after the first one, while the backend dies."""
    server = await asyncio.start_server(_die, "127.0.0.1", 0)
    data = b""
    async with client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as post:
        with suppress(ConnectionLost, aiohttp.ClientError, httpx.HTTPError):
            async for part in post(b"{}"):
                data += part
                await asyncio.sleep(0.2)
    server.close()
    await server.wait_closed()
    return data.count(b"\n\n")


async def _measure(url: str) -> dict[str, dict[str, float]]:
    """Return a row per figure, with a value per client."""
    rows: dict[str, dict[str, list[float]]] = {}
    for _ in range(ROUNDS):
        for name, client in CLIENTS.items():
            async with client(url) as post:
                for title, value in (await _round(post)).items():
                    rows.setdefault(title, {}).setdefault(name, []).append(value)
    lost = {"events of 100 that outlive the backend": {name: await _rescued(c) for name, c in CLIENTS.items()}}
    return lost | {title: {name: median(values) for name, values in row.items()} for title, row in rows.items()}


def main() -> None:
    """Print the table."""
    first, *_, last = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {last})
    port = free_port()
    log = Path(tempfile.gettempdir()) / f"mock-{port}.log"
    with running([str(compiled.mock()), str(port)], first, log) as mock:
        wait_until_ready(mock, port, "/v1/models", log)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            rows = runner.run(_measure(f"http://127.0.0.1:{port}"))
    log.unlink()
    print(f"{'':42}" + "".join(f"{name:>10}" for name in CLIENTS))
    for title, row in rows.items():
        print(f"{title:42}" + "".join(f"{value:10.4g}" for value in row.values()))


if __name__ == "__main__":
    main()
