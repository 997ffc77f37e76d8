"""Count the path of a chunk and of a request through the gateway: functions, files, and changes of file.

`python -m bench --only paths` prints the counts.  A profile hook in this process sees each call of the package.  The
gateway serves a client over sockets, in front of a backend that sends one chunk at a time.
"""

import asyncio
import json
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Self

import uvicorn

import gateway
from bench.figures import Figure
from gateway import config
from gateway.formats import format_names
from gateway.server.app import create_app
from gateway.server.http.server_config import ServerConfig

_PACKAGE = str(Path(gateway.__file__).parent)
_WARM, _COUNTED = 20, 20  # chunks, and requests: the first ones, and those that count
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_CHAT = "/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
_RESPONSES = "/v1/responses", {"model": "m", "input": "Hi", "store": False}
_WANTED = {"chat": (14, 9, 12), "responses": (20, 12, 16)}


class PathProfile:
    """Record the functions of the package that are called in the block, in order."""

    def __init__(self) -> None:
        self.calls: list[CodeType] = []

    def __enter__(self) -> Self:
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_PACKAGE):
            self.calls.append(frame.f_code)

    @property
    def files(self) -> set[str]:
        """The files of the functions."""
        return {code.co_filename for code in self.calls}

    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of functions, of files, and of changes of file."""
        changes = sum(one.co_filename != other.co_filename for one, other in pairwise(self.calls))
        return len({*self.calls}), len(self.files), changes


def figures() -> Iterator[Figure]:
    """Yield the counts of a chunk in two APIs, and of a whole request."""
    for name, (path, body) in (("chat", _CHAT), ("responses", _RESPONSES)):
        profile = asyncio.run(_chunk_path(path, {**body, "stream": True}))
        for what, count, wanted in zip(
            ("functions", "files", "changes of file"), profile.counts(), _WANTED[name], strict=True
        ):
            yield Figure("paths", f"a chunk of {name}, {what}", "", (count,), wanted=wanted)
    yield Figure("paths", "a whole request, files", "", (len(asyncio.run(_request_path(*_CHAT)).files),), wanted=45)


async def _chunk_path(path: str, body: dict[str, object]) -> PathProfile:
    """Return the path of one chunk that arrives alone, late in a stream."""
    turns = [asyncio.Event() for _ in range(_WARM + _COUNTED)]
    async with _served(turns) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        _send(writer, path, body)
        await reader.readuntil(b" word")
        profiles = []
        for turn in turns:
            with PathProfile() as profile:
                turn.set()
                await reader.readuntil(b" word")
            profiles.append(profile)
        writer.close()
    return _shortest(profiles)


async def _request_path(path: str, body: dict[str, object]) -> PathProfile:
    """Return the path of a whole request on an open connection."""
    async with _served([]) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        profiles = []
        for _ in range(_WARM + _COUNTED):
            with PathProfile() as profile:
                _send(writer, path, body)
                await _read_body(reader)
            profiles.append(profile)
        writer.close()
    return _shortest(profiles)


def _shortest(profiles: list[PathProfile]) -> PathProfile:
    """Return the shortest path of those behind the first ones: a timer may run within others."""
    return min(profiles[_WARM:], key=PathProfile.counts)


def _send(writer: asyncio.StreamWriter, path: str, body: dict[str, object]) -> None:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)


async def _read_body(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))


@asynccontextmanager
async def _served(turns: list[asyncio.Event]) -> AsyncIterator[int]:
    """Yield the port of a gateway.  Its backend sends a chunk, and one more at each event; without events a body."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await _read_request(reader)
                await (_stream(writer, turns) if turns else _whole(writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    backend = await asyncio.start_server(respond, "127.0.0.1", 0)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        settings = _config(backend.sockets[0].getsockname()[1], folder)
        server = uvicorn.Server(ServerConfig(create_app(settings), settings))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        yield listener.getsockname()[1]
        server.should_exit = True
        await serving
        backend.close()


def _config(port: int, folder: str) -> config.Config:
    data = {
        "backends": {"up": {"url": f"http://127.0.0.1:{port}", "kind": "vllm", "probe_seconds": 0}},
        "models": {"m": {"backends": ["up"], "format": "native"}},
        "store": {"url": f"sqlite:///{folder}/bench.db", "sealing_keys": ["s" * 32]},
        "server": {"drain_seconds": 0},
    }
    return config.parse(json.dumps(data), "bench.yaml", {}, format_names())


async def _read_request(reader: asyncio.StreamReader) -> None:
    """Wait for the body of a request, which comes in one piece."""
    await reader.read(1 << 16)


def _frame(delta: dict[str, object], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    fields = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


async def _stream(writer: asyncio.StreamWriter, turns: list[asyncio.Event]) -> None:
    writer.write(_HEAD + _chunked(_frame({"role": "assistant", "content": " word"})))
    for turn in turns:
        await turn.wait()
        writer.write(_chunked(_frame({"content": " word"})))
    await writer.drain()


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def _whole(writer: asyncio.StreamWriter) -> None:
    message = {"role": "assistant", "content": "Hi"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    body = json.dumps(
        {"id": "c", "object": "chat.completion", "created": 1, "choices": [choice], "usage": usage}
    ).encode()
    writer.write(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    )
    await writer.drain()
