"""Play the backend's responses of a recording, call by call, with the bytes and the times that were recorded."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import dropwhile
from typing import Literal

from msgspec import DecodeError, Struct, json

from gateway.recording import (
    Recording,
    RecordingEntry,
    RoundEndEntry,
    UpstreamDataEntry,
    UpstreamErrorEntry,
    UpstreamHeadersEntry,
    UpstreamRequestEntry,
)

Rechunk = Callable[[Sequence[bytes]], Sequence[bytes]]
CallEnd = Literal["end", "break", "hang", "away"]
_ENDS: dict[str | None, CallEnd] = {
    "upstream_timeout": "hang",
    "upstream_unreachable": "away",
}  # by the problem code of the round
_HEAD_LIMIT = 64 << 10
_GONE = (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError, ValueError)


class RecordedChunk(Struct, frozen=True):
    """A piece of a response.  after: seconds since the piece before, or since the request."""

    after: float
    data: bytes


class RecordedCall(Struct, frozen=True):
    """One upstream call with its response.

    status: 0 if there was not even a head.
    end: the end of the response: complete, a broken connection, no connection at all ("away"), or a timeout ("hang").
    """

    backend: str
    path: str
    status: int
    content_type: str
    retry_after: str | None
    chunks: Sequence[RecordedChunk]
    end: CallEnd

    def cut(self, cut: Rechunk) -> "RecordedCall":
        """Return the call with its bytes in other pieces, without delays."""
        pieces = [RecordedChunk(0, data) for data in cut([piece.data for piece in self.chunks])]
        return RecordedCall(self.backend, self.path, self.status, self.content_type, self.retry_after, pieces, self.end)


def recorded_calls(recording: Recording) -> list[RecordedCall]:
    """Return the upstream calls in their order."""
    return [_call(recording.entries, entry) for entry in recording.entries if isinstance(entry, UpstreamRequestEntry)]


def join_chunks(pieces: Sequence[bytes]) -> Sequence[bytes]:
    """Join all pieces to one."""
    data = b"".join(pieces)
    return [data] if data else []


def split_every(size: int) -> Rechunk:
    """Return a function that splits data into pieces of this many bytes."""

    def cut(pieces: Sequence[bytes]) -> Sequence[bytes]:
        data = b"".join(pieces)
        return [data[i : i + size] for i in range(0, len(data), size)]

    return cut


def _call(entries: Sequence[RecordingEntry], put: UpstreamRequestEntry) -> RecordedCall:
    own = [
        entry
        for entry in entries
        if isinstance(entry, UpstreamHeadersEntry | UpstreamErrorEntry | UpstreamDataEntry) and entry.call == put.call
    ]
    reads = [entry for entry in own if isinstance(entry, UpstreamDataEntry)]
    for entry in own:
        if isinstance(entry, UpstreamErrorEntry):
            piece = RecordedChunk(entry.t - put.t, entry.body)
            status, type, after = entry.status, entry.content_type, entry.retry_after
            return RecordedCall(put.backend, put.path, status, type, after, [piece], "end")
    head = next((entry for entry in own if isinstance(entry, UpstreamHeadersEntry)), None)
    end = "end" if reads and not reads[-1].data else _broken(entries, put)
    type = head.content_type if head else ""
    return RecordedCall(put.backend, put.path, 200 if head else 0, type, None, [*_pieces(put, reads)], end)


def _pieces(put: UpstreamRequestEntry, reads: Sequence[UpstreamDataEntry]) -> Iterator[RecordedChunk]:
    last = put.t
    for read in reads:
        if read.data:
            yield RecordedChunk(read.t - last, read.data)
            last = read.t


def _broken(entries: Sequence[RecordingEntry], put: UpstreamRequestEntry) -> CallEnd:
    """Return the end of an incomplete response, by the problem of its round."""
    ended = next(
        (entry for entry in dropwhile(lambda one: one is not put, entries) if isinstance(entry, RoundEndEntry)), None
    )
    return _ENDS.get(ended.problem.code if ended and ended.problem else None, "break")


CallChooser = Callable[["MockRequest"], RecordedCall | None]
_NONE = RecordedCall("", "", 404, "application/json", None, (), "end")


class MockRequest(Struct, frozen=True):
    """A request to the mock backend."""

    method: str
    path: str
    body: bytes

    @property
    def model(self) -> str:
        """The model in the body, or ""."""
        try:
            data = json.decode(self.body)
        except (DecodeError, UnicodeDecodeError):
            return ""
        model = data.get("model") if isinstance(data, dict) else None
        return model if isinstance(model, str) else ""


class MockBackend:
    """A model server that plays recorded calls.

    choose: returns the call for a request; None: respond with 404.
    models: the names that /v1/models lists.
    timed: play at the recorded pace.
    """

    def __init__(self, choose: CallChooser, models: Iterable[str], *, timed: bool = False) -> None:
        self._choose, self._timed = choose, timed
        listed = [{"id": one, "object": "model", "created": 0, "owned_by": "replay"} for one in models]
        self._list = json.encode({"object": "list", "data": listed})
        self._talks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serving(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        """Serve within the block, and yield the root URL."""
        server = await asyncio.start_server(self._talk, host, port, limit=_HEAD_LIMIT)
        try:
            yield f"http://{host}:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for talk in self._talks:
                talk.cancel()
            await asyncio.gather(*self._talks, return_exceptions=True)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk
        self._talks.add(talk)
        try:
            with suppress(*_GONE):
                while await self._answer(await _question(reader), reader, writer):
                    pass
        finally:
            self._talks.discard(talk)
            writer.close()

    async def _answer(self, request: MockRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Respond to a request; return True if the connection stays usable."""
        if request.method == "GET":
            found = request.path.endswith("/v1/models")
            writer.write(_whole(200 if found else 404, self._list if found else b"{}"))
            await writer.drain()
            return True
        call = self._choose(request) or _NONE
        if call.status:
            writer.write(_head(call))
        for piece in call.chunks:
            await asyncio.sleep(piece.after if self._timed else 0)
            writer.write(b"%x\r\n%b\r\n" % (len(piece.data), piece.data))
            await writer.drain()
        if call.end == "hang":
            await reader.read(1)  # waits until the client disconnects
        elif call.end == "end":
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        return call.end == "end"


async def _question(reader: asyncio.StreamReader) -> MockRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *lines = head.split("\r\n")
    method, path, _ = line.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return MockRequest(method, path.partition("?")[0], body)


def _head(call: RecordedCall) -> bytes:
    after = f"retry-after: {call.retry_after}\r\n" if call.retry_after else ""
    type = f"content-type: {call.content_type}\r\n" if call.content_type else ""
    return f"HTTP/1.1 {call.status} Said\r\n{type}{after}transfer-encoding: chunked\r\n\r\n".encode("latin-1")


def _whole(status: int, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body
