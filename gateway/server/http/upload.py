"""Read a multipart body up to its field `model`, and pass on the rest as it arrives.

A client may send the field behind its files.  The bytes before it then go to a temporary file.
"""

import asyncio
from collections.abc import AsyncGenerator
from tempfile import SpooledTemporaryFile
from typing import IO

from fastapi import Request
from starlette.requests import ClientDisconnect

from gateway.api.multipart import FieldFinder, boundary_of, content_type_of
from gateway.api.validation import missing_parameter
from gateway.errors import TooLarge, UnsupportedMediaType
from gateway.server.http.request_reader import get_header

KEPT = 1 << 20  # bytes in memory; a body of this size can be sent again
_BLOCK = 256 << 10  # bytes read from the file at a time


def multipart_boundary(http: Request) -> bytes:
    """Return the boundary of a multipart body; raise UnsupportedMediaType for another type or an encoding."""
    boundary = boundary_of(get_header(http.scope, b"content-type") or "")
    if (encoding := get_header(http.scope, b"content-encoding") or "identity") != "identity":
        message = f"The content encoding '{encoding}' is not supported for files. Send them without one."
        raise UnsupportedMediaType(message, code="unsupported_content_encoding")
    return boundary


class ClientUpload:
    """A multipart body: `read_model`, then `pieces` for each attempt.  The code that creates it has to close it.

    limit: bytes of the body.
    """

    def __init__(self, http: Request, limit: int) -> None:
        """Raise UnsupportedMediaType for another type or an encoding, and TooLarge for an announced length."""
        boundary = multipart_boundary(http)
        self.content_type, self._finder = content_type_of(boundary), FieldFinder(boundary, "model")
        length = get_header(http.scope, b"content-length")
        self._length, self._limit = None if length is None else int(length), limit
        self._check(self._length or 0)
        self._receive = http.receive
        self._file: IO[bytes] = SpooledTemporaryFile(KEPT)  # noqa: SIM115 - `close` closes it
        self._kept = self._received = 0
        self._more = True
        self.is_repeatable = True

    async def read_model(self) -> str:
        """Return the model's name; raise BadRequest without one, or for two of them."""
        finder = self._finder
        while self._more and (not finder.ended if finder.value is None else self._kept < KEPT):
            piece = await self._next()
            if self._kept + len(piece) <= KEPT:
                self._file.write(piece)
            else:
                await asyncio.to_thread(self._file.write, piece)
            self._kept += len(piece)
        if not finder.value:
            raise missing_parameter("model")
        return finder.value.decode("utf-8", "replace")

    @property
    def size(self) -> int:
        """The bytes that have arrived."""
        return self._received

    def length(self, model: str) -> int | None:
        """Return the bytes of the body with another model's name; None if the client announced no length."""
        if self._more and self._length is None:
            return None
        whole = self._length if self._more and self._length is not None else self._received
        return whole + len(model.encode()) - (self._finder.end - self._finder.begin)

    async def whole(self, model: str) -> bytes | None:
        """Return the body with another model's name if all of it is in memory, else None."""
        return None if self._more or self._kept > KEPT else b"".join([piece async for piece in self.pieces(model)])

    async def pieces(self, model: str) -> AsyncGenerator[bytes]:
        """Yield the body with another model's name.  Raise ClientDisconnect, TooLarge, or BadRequest for two models."""
        async for piece in self._blocks(0, self._finder.begin):
            yield piece
        yield model.encode()
        async for piece in self._blocks(self._finder.end, self._kept):
            yield piece
        while self._more:
            self.is_repeatable = False
            if piece := await self._next():
                yield piece

    def close(self) -> None:
        """Delete the temporary file."""
        self._file.close()

    async def _blocks(self, begin: int, end: int) -> AsyncGenerator[bytes]:
        """Yield a part of the bytes that are kept."""
        self._file.seek(begin)
        while begin < end:
            block = await asyncio.to_thread(self._file.read, min(_BLOCK, end - begin))
            begin += len(block)
            yield block

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece: bytes = message.get("body", b"")
        self._more = message.get("more_body", False)
        self._received += len(piece)
        self._check(self._received)
        self._finder.feed(piece)
        return piece

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise TooLarge(f"The request body is larger than the limit of {self._limit} bytes (limits.upload_bytes).")
