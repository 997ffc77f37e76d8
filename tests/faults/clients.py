"""What a client does wrong: it leaves, in each stage of an answer and in each way, or it does not read."""

import asyncio
import socket
import struct
from contextlib import asynccontextmanager

from msgspec import Struct

from faults.matrix import Cell, closed, left, level, now, site_of, sound
from faults.rows import CHUNKED, HEL, JSON, STREAM, chunked, forever, raw
from faults.ways import HTTP
from support.endless_upstream import MAX_BUFFERED
from support.upstream import HANG, HELLO, SOON, chunk, head
from support.wait import idle

STILL = 0.2  # seconds without a byte, after which no more come


class Row(Struct, frozen=True):
    """streamed, whole: the backend's scripts; seen: what the client waits for in a stream before it goes."""

    name: str
    streamed: list
    whole: list
    how: str
    seen: bytes = b""


BODY = head(type="application/json")
STAGES = {
    "before the backend's head": ([HANG], [HANG], b""),
    "before its body": ([head(), HANG], [BODY, HANG], b""),
    "before content": ([head(), chunk(role="assistant", content=""), HANG], [BODY, JSON[:9], HANG], b""),
    "amid the answer": ([*HEL, HANG], [BODY, JSON[:60], HANG], b"Hel"),
    "after the content, before the end": ([*HEL, chunk(finish="stop"), HANG], [BODY, JSON, HANG], b"Hel"),
}
WAYS_OUT = ("closes", "resets", "half-closes")
LEAVING = [
    Row(f"{how} {stage}", streamed, whole, how, seen)
    for stage, (streamed, whole, seen) in STAGES.items()
    for how in WAYS_OUT
]
ASKING = [Row(f"{how} while it sends its request", HELLO, HELLO, how) for how in WAYS_OUT]
DEAF = [
    Row("never reads, then resets", [raw(STREAM, CHUNKED), forever(chunked(chunk("~" * 16_000)))], [], "resets", b"~~~")
]
ROWS = [*ASKING, *LEAVING, *DEAF]


async def cells(row):
    async with site_of({}) as site:
        return {way.name: await cell(row, way, site) for way in HTTP if way.streamed or row.whole}


async def cell(row, way, site):
    await site.upstream.set_scripts(HELLO)
    wrong = [*await sound(way, site)]
    before = await level()
    await site.upstream.set_scripts(row.streamed if way.streamed else row.whole)
    run = incomplete_request if row in ASKING else unread if row in DEAF else left_alone
    result = await run(row, way, site)
    await site.upstream.set_scripts(HELLO)
    result.wrong = (*wrong, *result.wrong, *await sound(way, site), *await left(before))
    return result


async def left_alone(row, way, site):
    """The client goes, and the backend is let go of."""
    site.upstream.arrived.clear()
    async with connection(site, way, way.body()) as (reader, writer):
        await site.upstream.arrived.wait()
        if way.streamed and row.seen:
            await reader.readuntil(row.seen)
        early = site.upstream.posts[-1].peer in site.upstream.over
        seconds = await closed(site, goes(writer, row.how))
    wrong = ("the backend is let go of too early",) * early + ("the backend is kept",) * (seconds >= SOON)
    return Cell("", seconds=seconds, wrong=wrong)


async def incomplete_request(row, way, site):
    """The client goes before anybody knows what it wants."""
    count = len(site.upstream.posts)
    async with connection(site, way, way.body(), missing=1) as (_, writer):
        await idle(0.01)
        goes(writer, row.how)
        await idle(0.01)
    return Cell("never asked", wrong=("the backend was asked",) * (len(site.upstream.posts) - count))


async def unread(row, way, site):
    """The backend is held back, and let go of when the client is gone."""
    pour = row.streamed[-1]
    pour.sent = 0
    async with connection(site, way, way.body()) as (reader, writer):
        await reader.readuntil(row.seen)
        writer.transport.pause_reading()
        last = -1
        while last != (last := pour.sent):
            await idle(STILL)
        seconds = await closed(site, goes(writer, row.how))
    return Cell("held back", seconds=seconds, wrong=(f"{pour.sent} bytes were taken",) * (pour.sent > MAX_BUFFERED))


@asynccontextmanager
async def connection(site, way, body, missing=0):
    """A client's own socket, with its request on the way but for the last bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.client.base_url.port)
    head = f"POST {way.path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    writer.write(head + body[: len(body) - missing])
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def goes(writer, how):
    """The moment in which it goes."""
    if how == "half-closes":
        writer.write_eof()
    elif how == "closes":
        writer.close()
    else:
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
    return now()
