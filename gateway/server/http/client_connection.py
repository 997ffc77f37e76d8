"""The client's connection of one request, in `scope["extensions"]`: a short way past ASGI's messages.

The server's protocol puts it there.  A connection that has no short way refuses each call, and messages have to do.
CancelOnDisconnect notices that the client disconnects, from the end of its request to the end of its response.
Responses go out as ready bytes, whole or piece by piece, or as JSON objects.

The headers of a stream are those of sse-starlette.  The sending is our own, as the relay watches the client and sends
keep-alives.  Without the library's tasks for that, and a lock and a time limit around each piece, a stream costs half
as much (`docs/decisions/003-streams-without-tasks.md`).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Protocol

from sse_starlette import EventSourceResponse
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.api.responses.objects import encode

EXTENSION = "gateway.client"
CLIENT_DISCONNECTED = "the client disconnected"  # as the message of a cancellation
HeaderList = list[tuple[bytes, bytes]]  # names in lower case
TryWrite = Callable[[bytes], bool]  # ClientConnection.try_write
# Without that of the connection, which the server decides on.
_EVENTS = tuple(
    field
    for field in EventSourceResponse(iter(()), headers={"cache-control": "no-cache"}).raw_headers
    if field[0] != b"connection"
)
_PART = 96 << 10  # bytes
_JSON = (b"content-type", b"application/json")


class ClientConnection:
    """A connection that knows only ASGI's messages.  Subclasses have the short way.

    Each `try_…` returns False, and sends nothing, where it would have to wait or the response has another status.
    streamed: bytes of the pieces that `try_write` and `try_end` have sent.
    """

    streamed: int  # not a default of the class, as Python would search for it at each change

    def __init__(self) -> None:
        self.streamed = 0

    def take_body(self) -> bytes | None:
        """Take the request's whole body, if it has arrived and was not taken yet; else return None."""
        return None

    async def read_body(self, length: int) -> bytes | None:
        """Read the request's body, whose length is known, into one place, if nothing was taken from it yet.

        Return less of it if the client disconnects, and None where only messages have it.
        """
        return None

    def on_disconnect(self, callback: Callable[[], None]) -> bool:
        """Call this function if the client disconnects, until `clear_on_disconnect`.

        Return False where only a message reports a disconnect.
        """
        return False

    def clear_on_disconnect(self) -> None:
        """Forget the function of `on_disconnect`."""

    def cut(self) -> None:
        """Close the connection, so that a response without its end is seen to be incomplete."""

    def try_send(self, headers: HeaderList, body: bytes) -> bool:
        """Send a whole response with status 200.  headers: with the length of the body."""
        return False

    def try_begin(self, headers: HeaderList) -> bool:
        """Begin a stream with status 200."""
        return False

    def try_write(self, piece: bytes) -> bool:
        """Send a piece of a stream."""
        return False

    # Sends a piece that the caller records itself; False also where `try_write` records nothing.
    try_write_unrecorded = try_write

    def try_end(self, piece: bytes) -> bool:
        """Send the last piece of a stream, which may be empty, and its end."""
        return False


_MESSAGES_ONLY = ClientConnection()


def client_connection(scope: Scope) -> ClientConnection:
    """Return the connection of a request; of a foreign server one that knows only messages."""
    try:
        connection: ClientConnection = scope["extensions"][EXTENSION]
    except KeyError:
        return _MESSAGES_ONLY
    return connection


def set_client_connection(scope: Scope, connection: ClientConnection) -> None:
    """Put the connection into the scope of its request; the application removes it at the end of the request."""
    scope.setdefault("extensions", {})[EXTENSION] = connection


def remove_client_connection(scope: Scope) -> None:
    """Take the connection out of the scope; together they are a reference cycle."""
    del scope["extensions"][EXTENSION]


def scope_without_connection(scope: Scope) -> Scope:
    """Return the scope for a part of the request that has another client."""
    return {**scope, "extensions": {}}


class CancelOnDisconnect:
    """Context manager that cancels its body when the client disconnects, and raises ClientDisconnect then.

    Where the connection reports no disconnect, a task waits for the message of it.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._connection, self._receive = client_connection(scope), receive
        self._disconnected = False

    def __enter__(self) -> None:
        worker = asyncio.current_task()
        assert worker
        self._worker = worker
        watched = self._connection.on_disconnect(self._cancel)
        self._watcher = None if watched else asyncio.create_task(self._watch())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.clear_on_disconnect()
        if self._watcher:
            self._watcher.cancel()
        worker = self._worker
        del self._worker, self._watcher  # each refers to this object, and would be a cycle
        if self._disconnected and kind is asyncio.CancelledError:
            worker.uncancel()
            raise ClientDisconnect

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._cancel()

    def _cancel(self) -> None:
        self._disconnected = True
        self._worker.cancel(CLIENT_DISCONNECTED)


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
