"""Send responses: ready bytes, whole or piece by piece, and JSON objects.

The headers of a stream are those of sse-starlette.  The sending is our own, as the relay watches the client and sends
keep-alives.  Without the library's tasks for that, and a lock and a time limit around each piece, a stream costs half
as much (`docs/decisions/003-streams-without-tasks.md`).
"""

from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from typing import Any, Protocol

from sse_starlette import EventSourceResponse
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.api.responses.objects import encode
from gateway.server.http.client_connection import ClientConnection, HeaderList, TryWrite

_EVENTS = tuple(EventSourceResponse(iter(()), headers={"cache-control": "no-cache"}).raw_headers)
_PART = 96 << 10  # bytes
_JSON = (b"content-type", b"application/json")


class JsonBytesResponse(Response):
    """An object as it is.  The framework's own way of writing one gives up on what is nested deeply."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:  # noqa: ANN401 - of the framework
        return encode(content)


class JsonPiecesResponse(Response):
    """A large object as the pieces of its JSON, joined to parts while they are sent."""

    media_type = "application/json"

    def __init__(self, pieces: Iterable[bytes | memoryview], headers: Mapping[str, str]) -> None:
        self._pieces = [*pieces]
        super().__init__(headers={**headers, "content-length": str(sum(map(len, self._pieces)))})

    async def __call__(self, _: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        part, size = list[bytes | memoryview](), 0
        for piece in self._pieces:
            part.append(piece)
            size += len(piece)
            if size > _PART:
                await send({"type": "http.response.body", "body": b"".join(part), "more_body": True})
                part, size = [], 0
        await send({"type": "http.response.body", "body": b"".join(part), "more_body": False})


_MESSAGES_ONLY = ClientConnection()


def connection_behind(send: Send) -> ClientConnection:
    """Return the connection that `send` is of; a wrapped `send` has to see each message, so it has none."""
    return send if isinstance(send, ClientConnection) else _MESSAGES_ONLY


class ResponseWriter(Protocol):
    """A writer of a response's pieces.

    try_write: sends a piece if that needs no waiting; else False.
    try_write_unrecorded: see ClientConnection.
    end: sends the last piece, which may be empty; a second call sends nothing.
    """

    @property
    def try_write(self) -> TryWrite: ...
    @property
    def try_write_unrecorded(self) -> TryWrite: ...
    def write(self, piece: bytes) -> Awaitable[None]: ...
    def end(self, piece: bytes) -> Awaitable[None]: ...


class EventStreamWriter:
    """Write a stream of events: `begin`, any number of `try_write` and `write`, `end`."""

    def __init__(self, send: Send) -> None:
        self._send, self._connection = send, connection_behind(send)
        self.try_write = self._connection.try_write
        self.try_write_unrecorded = self._connection.try_write_unrecorded
        self._ended = False

    async def begin(self, headers: Mapping[str, str]) -> None:
        """Send the headers."""
        fields = [*_raw(headers), *_EVENTS]
        if not self._connection.try_begin(fields):
            await _send_head(fields, self._send)

    def write(self, piece: bytes) -> Awaitable[None]:
        """Send a piece; wait while the client does not read."""
        return self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self, piece: bytes = b"") -> None:
        """Send the last piece and the end; a second call sends nothing."""
        if not (self._ended or self._connection.try_end(piece)):
            await self._send({"type": "http.response.body", "body": piece, "more_body": False})
        self._ended = True


async def send_event_stream(pieces: AsyncIterator[bytes], headers: Mapping[str, str], send: Send) -> None:
    """Send ready pieces as a stream of events."""
    stream = EventStreamWriter(send)
    await stream.begin(headers)
    async for piece in pieces:
        await stream.write(piece)
    await stream.end()


async def send_json(body: bytes, headers: Mapping[str, str], send: Send) -> None:
    """Send a JSON text with status 200."""
    fields = [(b"content-length", b"%d" % len(body)), _JSON]
    if headers:
        fields = [*_raw(headers), *fields]
    if not connection_behind(send).try_send(fields, body):
        await _send_head(fields, send)
        await send({"type": "http.response.body", "body": body})


async def _send_head(fields: HeaderList, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": fields})


def _raw(headers: Mapping[str, str]) -> Iterable[tuple[bytes, bytes]]:
    return ((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items())
