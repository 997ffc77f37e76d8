"""Send responses: ready bytes, whole or piece by piece, and JSON objects.

The headers of a stream are those of sse-starlette.  The sending is our own, as the relay watches the client and sends
keep-alives.  Without the library's tasks for that, and a lock and a time limit around each piece, a stream costs half
as much (`docs/decisions/003-streams-without-tasks.md`).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol

from sse_starlette import EventSourceResponse
from starlette.responses import Response
from starlette.types import Send

from gateway.api.responses.objects import encode

_EVENTS = tuple(EventSourceResponse(iter(()), headers={"cache-control": "no-cache"}).raw_headers)
_JSON = (b"content-type", b"application/json")
TryWrite = Callable[[bytes], bool]  # gives the client a piece of its answer, as a FastSend does
HeaderList = list[tuple[bytes, bytes]]  # of a head, in lower case


class JsonBytesResponse(Response):
    """An object as it is.  The framework's own way of writing one gives up on what is nested deeply."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:  # noqa: ANN401 - of the framework
        return encode(content)


class FastSend:
    """A way to the client without messages; False where that would have to wait, and then nothing is given.

    whole: an answer of status 200, whose fields have the length of its body.
    begin, now and last: a stream of that status, by its head, its pieces, and the last piece with the end.
    """

    def whole(self, fields: HeaderList, body: bytes) -> bool:
        return False

    def begin(self, fields: HeaderList) -> bool:
        return False

    def now(self, piece: bytes) -> bool:
        return False

    def last(self, piece: bytes) -> bool:
        return False


_NEVER = FastSend()


def at_once(send: Send) -> FastSend:
    """The shorter way that something knows which sends messages."""
    return send if isinstance(send, FastSend) else _NEVER


class ResponseWriter(Protocol):
    """Where the pieces of an answer go.  end: with the last one, which may be empty; to say it again adds nothing."""

    @property
    def now(self) -> TryWrite: ...
    def write(self, piece: bytes) -> Awaitable[None]: ...
    def end(self, piece: bytes) -> Awaitable[None]: ...


class EventStreamWriter:
    """begin, (now | tell)*, end."""

    def __init__(self, send: Send) -> None:
        self._send, self._short = send, at_once(send)
        self.now = self._short.now
        self._ended = False

    async def begin(self, headers: Mapping[str, str]) -> None:
        fields = [*_raw(headers), *_EVENTS]
        if not self._short.begin(fields):
            await _send_head(fields, self._send)

    def write(self, piece: bytes) -> Awaitable[None]:
        return self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self, piece: bytes = b"") -> None:
        if not (self._ended or self._short.last(piece)):
            await self._send({"type": "http.response.body", "body": piece, "more_body": False})
        self._ended = True


async def send_event_stream(pieces: AsyncIterator[bytes], headers: Mapping[str, str], send: Send) -> None:
    """Pieces that others have made."""
    stream = EventStreamWriter(send)
    await stream.begin(headers)
    async for piece in pieces:
        await stream.write(piece)
    await stream.end()


async def send_json(body: bytes, headers: Mapping[str, str], send: Send) -> None:
    """A JSON text."""
    fields = [(b"content-length", b"%d" % len(body)), _JSON]
    if headers:
        fields = [*_raw(headers), *fields]
    if not at_once(send).whole(fields, body):
        await _send_head(fields, send)
        await send({"type": "http.response.body", "body": body})


async def _send_head(fields: HeaderList, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": fields})


def _raw(headers: Mapping[str, str]) -> Iterable[tuple[bytes, bytes]]:
    return ((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items())
