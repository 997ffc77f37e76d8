"""A backend that answers as a question asks for it: @@kind pause@@ in its text.  python -m soak.mock PORT"""

import asyncio
import json
import re
import socket
import struct
import sys
from contextlib import suppress

import uvloop

from support.upstream import DONE, call, chunk, completion_body, frame, head, whole
from support.wait import idle

KNOB = re.compile(rb"@@(\w+) ([\d.]+)@@(?!.*@@)", re.DOTALL)  # the last one
COUNTS = frame(choices=[], usage={"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": 16})
END = [chunk(finish="stop"), COUNTS, DONE]
WORDS = [chunk(f"word {number} ") for number in range(10)]
THOUGHTS = [chunk(reasoning_content=f"thought {number} ") for number in range(5)]
CODE = [chunk(tool_calls=call(arguments=piece)) for piece in ('{"a": "', *("x = 1; " for _ in range(8)), '"}')]
CALLS = [chunk(tool_calls=call("f", "", id="call_a")), *CODE, chunk(finish="tool_calls"), COUNTS, DONE]
LARGE = [chunk("~" * 8_000) for _ in range(20)]
WELL = {
    "text": [*WORDS, *END],
    "thoughts": [*THOUGHTS, *WORDS, *END],
    "calls": [*THOUGHTS, *CALLS],
    "large": [*LARGE, *END],
    "drip": [*WORDS[:2], *END],
}
BODIES = {
    "text": completion_body("word " * 10),
    "thoughts": completion_body("word " * 10, reasoning_content="thought " * 5),
    "calls": completion_body(
        None, tool_calls=[{"id": "call_a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    ),
    "large": completion_body("~" * 160_000),
    "drip": completion_body("drip"),
}
REFUSED = {
    "html": whole(b"<html>Welcome to nginx!</html>", type="text/html")[0],
    "busy": whole({"error": "too busy"}, status=503, retry_after="1")[0],
    "slow_down": whole({"error": "slow down"}, status=429, retry_after="1")[0],
    "garbage": whole(b'data: {"choices": [}\n\n', type="text/event-stream")[0],
}
BROKEN = ("resets", "closes", "hangs")
FAULTS = (*REFUSED, *BROKEN)


async def serve(reader, writer):
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            request_head = await reader.readuntil(b"\r\n\r\n")
            size = re.search(rb"(?i)content-length: (\d+)", request_head)
            body = await reader.readexactly(int(size[1]) if size else 0)
            if request_head.startswith(b"GET"):
                writer.write(whole({"data": [{"id": "m"}]})[0])
            elif not await answer(body, reader, writer):
                break
    writer.transport.abort()


async def answer(body, reader, writer):
    """True if another request may follow."""
    found = KNOB.search(body)
    kind, pause = (found[1].decode(), float(found[2])) if found else ("text", 0.0)
    if kind in REFUSED:
        writer.write(REFUSED[kind])
        return True
    if kind in BROKEN:
        await breaks(kind, pause, reader, writer)
        return False
    if not json.loads(body).get("stream"):
        await idle(pause * 5)
        await write_paced(writer, [whole(BODIES[kind])[0]], pause, drips=kind == "drip")
        return True
    await write_paced(writer, [head()], 0)
    await write_paced(writer, map(chunked, WELL[kind]), pause, drips=kind == "drip")
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


async def write_paced(writer, pieces, pause, *, drips=False):
    for piece in pieces:
        size = 16 if drips else len(piece)
        for at in range(0, len(piece), size):
            if writer.is_closing():
                raise ConnectionError
            writer.write(piece[at : at + size])
            await writer.drain()
            await idle(pause / 20 if drips else pause)


async def breaks(kind, pause, reader, writer):
    await write_paced(writer, [head(), *map(chunked, WORDS[:3])], pause)
    if kind == "hangs":
        await reader.read()  # until the other side closes
    elif kind == "resets":
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


def chunked(piece):
    return b"%x\r\n%b\r\n" % (len(piece), piece)


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), backlog=2048)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
