"""Answers as they are sent: ready bytes, whole or as they come.

The headers of a stream are those of sse-starlette, the sending is our own: who watches the client and keeps it alive is
the exchange.  Without the library's own tasks for that, and a lock and a time limit around every piece, a stream costs
half as much (`docs/decisions.md`).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from sse_starlette import EventSourceResponse
from starlette.types import Send

_EVENTS = tuple(EventSourceResponse(iter(()), headers={"cache-control": "no-cache"}).raw_headers)
_JSON = (b"content-type", b"application/json")


# Gives the client a piece of its answer at once; False where that would have to wait, and then it is not given.
Now = Callable[[bytes], bool]
Fields = list[tuple[bytes, bytes]]  # of a head, in lower case
Whole = Callable[[Fields, bytes], bool]  # the same for a whole answer


class Outlet(Protocol):
    """Where the pieces of an answer go."""

    @property
    def now(self) -> Now: ...
    def tell(self, piece: bytes) -> Awaitable[None]: ...


def never(_: bytes) -> bool:
    """A Now for who cannot do that."""
    return False


def at_once(send: Send) -> Now:
    """The shorter way that something knows which sends messages, as its `now`."""
    now: Now = getattr(send, "now", never)
    return now


class EventStream:
    """begin, (now | tell)*, end."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.now = at_once(send)

    async def begin(self, headers: Mapping[str, str]) -> None:
        await _send_head([*_raw(headers), *_EVENTS], self._send)

    def tell(self, piece: bytes) -> Awaitable[None]:
        return self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


async def send_stream(pieces: AsyncIterator[bytes], headers: Mapping[str, str], send: Send) -> None:
    """Pieces that others have made."""
    stream = EventStream(send)
    await stream.begin(headers)
    async for piece in pieces:
        await stream.tell(piece)
    await stream.end()


async def send_whole(body: bytes, headers: Mapping[str, str], send: Send) -> None:
    """A JSON text."""
    fields = [(b"content-length", b"%d" % len(body)), _JSON]
    if headers:
        fields = [*_raw(headers), *fields]
    at_once: Whole | None = getattr(send, "whole", None)
    if not (at_once and at_once(fields, body)):
        await _send_head(fields, send)
        await send({"type": "http.response.body", "body": body})


async def _send_head(fields: Fields, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": fields})


def _raw(headers: Mapping[str, str]) -> Iterable[tuple[bytes, bytes]]:
    return ((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items())
