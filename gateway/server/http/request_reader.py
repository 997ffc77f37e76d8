"""Read a request: its headers, and its body."""

import asyncio
from collections.abc import AsyncIterator, Callable, MutableMapping
from io import BytesIO
from typing import Any

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from gateway.api.body import Counts, decode_body
from gateway.api.validation import ParamCheck
from gateway.config import Config
from gateway.errors import TooLarge, UnsupportedMediaType
from gateway.server.http.client_connection import client_connection
from gateway.server.http.content_decoder import ENCODINGS, ContentDecoder
from gateway.server.http.memory import FREE, Room
from gateway.server.worker_thread import parse_body

_LARGE = 1 << 18  # bytes of a body that is read into one place; the first read of a connection has as many
_PLACE = "gateway.headers"  # in the scope of a request


def get_header(scope: MutableMapping[str, Any], name: bytes) -> str | None:
    """Return the first header of this lower-case name; None if it is missing."""
    value = header_dict(scope).get(name)
    return None if value is None else value.decode("latin-1")


def header_dict(scope: MutableMapping[str, Any]) -> dict[bytes, bytes]:
    """Return the first header of each name."""
    found: dict[bytes, bytes] = scope.get(_PLACE) or scope.setdefault(_PLACE, dict(reversed(scope["headers"])))
    return found


async def read_fields(
    request: Request, check: ParamCheck, decode: Callable[[bytes, Counts], dict[str, Any]] = decode_body
) -> dict[str, Any]:
    """Read the body as an object that passes a check; an empty body is an empty object."""
    config: Config = request.app.state.config
    with room_of(request) as room:
        raw = await read_body(request, config.limits.body_bytes, room)
        body = await parse_body(decode, raw or b"{}", counts_of(config))
    check(body, "")
    return body


def counts_of(config: Config) -> Counts:
    """Return the limits of entries in one body."""
    return Counts(config.limits.items, config.limits.parts)


def room_of(request: Request) -> Room:
    """Return the memory that the body of a request may take."""
    state = request.app.state
    return Room(state.buffers, state.config.limits.memory_bytes)


def arrived_body(request: Request, limit: int) -> bytes | None:
    """Take a small body that has arrived with its headers, as most have; return None for any other.

    `read_body` reads these.
    """
    headers = header_dict(request.scope)
    length = headers.get(b"content-length")
    if not length or int(length) > min(limit, FREE) or b"content-encoding" in headers:
        return None
    return client_connection(request.scope).take_body()


async def read_body(request: Request, limit: int, room: Room) -> bytes:
    """Read and decode the body within its limit, which holds for the sent and for the decoded bytes.

    Raise TooLarge; or UpstreamUnavailable, before anything of it is read.
    """
    encoding, length = _content_headers(request)
    if length > limit:
        raise _too_large(limit)
    if length > FREE:
        await room.grow(length)
    if encoding == "identity":
        connection = client_connection(request.scope)
        whole = connection.take_body()
        if whole is None and length > _LARGE:
            whole = await connection.read_body(length)
            if whole is not None and len(whole) < length:
                raise ClientDisconnect
        return await _received(request.receive, limit, room) if whole is None else _allowed(whole, limit)
    if encoding not in ENCODINGS:
        message = f"The content encoding '{encoding}' is not supported. Send one of {', '.join(ENCODINGS)} or identity."
        raise UnsupportedMediaType(message, code="unsupported_content_encoding")
    return await _joined(_decoded(request.stream(), ContentDecoder(ENCODINGS[encoding]), limit), limit, room)


def _content_headers(request: Request) -> tuple[str, int]:
    """Return the encoding, from all lines of the header, and the length; 0 if it is unknown."""
    headers = header_dict(request.scope)
    length = int(headers.get(b"content-length", 0))
    if b"content-encoding" not in headers:
        return "identity", length
    lines = (value for name, value in request.scope["headers"] if name == b"content-encoding")
    return ", ".join(line.decode("latin-1").strip().lower() for line in lines) or "identity", length


def _allowed(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise _too_large(limit)
    return body


async def _received(receive: Receive, limit: int, room: Room) -> bytes:
    whole, size, more = BytesIO(), 0, True  # grows in place; joining a list would hold all pieces as well
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece, more = message.get("body", b""), message.get("more_body", False)
        whole.write(piece)
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        if size > FREE:
            await room.grow(size)
    return whole.getvalue()


async def _decoded(stream: AsyncIterator[bytes], decoding: ContentDecoder, limit: int) -> AsyncIterator[bytes]:
    """Yield the decoded body, and let other tasks run after each step.  An empty body has no encoding."""
    came = 0
    async for data in stream:
        came += len(data)
        if came > limit:
            raise _too_large(limit)
        for piece in decoding.feed(data) if data else ():
            yield piece
            await asyncio.sleep(0)
    if came:
        decoding.close()


async def _joined(stream: AsyncIterator[bytes], limit: int, room: Room) -> bytes:
    whole, size = BytesIO(), 0
    async for piece in stream:
        whole.write(piece)
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        await room.grow(size)
    return whole.getvalue()


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The request body is larger than the limit of {limit} bytes.")
