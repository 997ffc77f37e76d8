"""The body of a request: its bytes, or its fields where there are few."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from gateway.config import Config
from gateway.endpoints.body import decode_body
from gateway.endpoints.checks import ParamCheck
from gateway.endpoints.counts import Counts
from gateway.errors import TooLarge, UnsupportedMediaType
from gateway.server.apart import parsed
from gateway.server.buffers import FREE, Room
from gateway.server.encodings import ENCODINGS, ContentDecoder
from gateway.server.headers import header_dict
from gateway.server.presence import door


async def read_fields(request: Request, config: Config, check: ParamCheck) -> dict[str, Any]:
    """The body as an object that passes a check; nothing at all is an empty one."""
    with room_of(request, config) as room:
        raw = await read_body(request, config.limits.body_bytes, room)
        body = await parsed(decode_body, raw or b"{}", counts_of(config))
    check(body, "")
    return body


def counts_of(config: Config) -> Counts:
    """Return what one body may hold."""
    return Counts(config.limits.items, config.limits.parts)


def room_of(request: Request, config: Config) -> Room:
    """Return the memory that the body of a request may take."""
    return Room(request.app.state.buffers, config.limits.memory_bytes)


async def read_body(request: Request, limit: int, room: Room) -> bytes:
    """The body, decoded, if it is no larger than allowed: neither as it is, nor as it was sent.

    Raise TooLarge, or Unavailable before anything of it is read.
    """
    encoding, length = _said(request)
    if length > limit:
        raise _too_large(limit)
    if length > FREE:
        await room.grow(length)
    if encoding == "identity":
        whole = door(request.receive).whole_body()
        return await _received(request.receive, limit, room) if whole is None else _allowed(whole, limit)
    if encoding not in ENCODINGS:
        message = f"The content encoding '{encoding}' is not supported: send one of {', '.join(ENCODINGS)} or identity."
        raise UnsupportedMediaType(message, code="unsupported_content_encoding")
    return await _joined(_decoded(request.stream(), ContentDecoder(ENCODINGS[encoding]), limit), limit, room)


def _said(request: Request) -> tuple[str, int]:
    """The encoding, of several lines all, and the length; 0 if it is not known."""
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
    pieces, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece, more = message.get("body", b""), message.get("more_body", False)
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        if size > FREE:
            await room.grow(size)
    return b"".join(pieces)


async def _decoded(stream: AsyncIterator[bytes], decoding: ContentDecoder, limit: int) -> AsyncIterator[bytes]:
    """After each step others have their turn.  Nothing at all is no body, however that is said to be encoded."""
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
    pieces, size = [], 0
    async for piece in stream:
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        await room.grow(size)
    return b"".join(pieces)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The request body is larger than {limit} bytes.")
