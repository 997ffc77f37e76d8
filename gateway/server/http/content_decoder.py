"""Decode a body with a Content-Encoding, in steps of a bounded size."""

import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from sys import version_info
from typing import Protocol

from gateway.errors import BadRequest

STEP = 1 << 18  # bytes that are decoded at a time: a millisecond at most
_WINDOW = 23  # log2 of the window of a zstd frame in bytes, as RFC 9659 limits it
_MAX_PARTS = 16  # members of gzip, frames of zstd: tiny ones cost far more than their bytes
_ZSTD = "compression.zstd" if version_info >= (3, 14) else "backports.zstd"
_DAMAGED = "The request body is incomplete, or it does not match its content encoding."


class DecompressorPart(Protocol):
    """A member of gzip or a frame of zstd; it keeps input that it has not decoded yet."""

    @property
    def eof(self) -> bool:
        """Return True at the end of the part."""

    @property
    def unused_data(self) -> bytes:
        """Return the input behind the end of the part."""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Decode at most `max_length` bytes."""


class _ZlibPart:
    """A part by zlib, which hands back undecoded input."""

    def __init__(self, wbits: int) -> None:
        self._one, self._left = zlib.decompressobj(wbits), b""

    @property
    def eof(self) -> bool:
        return self._one.eof

    @property
    def unused_data(self) -> bytes:
        return self._one.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        decoded = self._one.decompress(self._left + data, max_length)
        self._left = self._one.unconsumed_tail
        return decoded


def _zstd() -> DecompressorPart:
    zstd = import_module(_ZSTD)
    part: DecompressorPart = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW})
    return part


_gzip = partial(_ZlibPart, 16 + zlib.MAX_WBITS)
ENCODINGS: Mapping[str, Callable[[], DecompressorPart]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": partial(_ZlibPart, zlib.MAX_WBITS),
    "zstd": _zstd,
}


class ContentDecoder:
    """Decode a body of one part or a few.  Raise BadRequest for anything else."""

    def __init__(self, new: Callable[[], DecompressorPart]) -> None:
        self._new, self._part, self._parts = new, new(), 1

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the decoded data in pieces of at most STEP bytes.  data: not empty."""
        more = True
        while more:
            if self._part.eof:
                self._begin()
            decoded = self._decoded(data)
            yield decoded
            data = self._part.unused_data
            more = bool(data) if self._part.eof else len(decoded) == STEP

    def close(self) -> None:
        """Check that the data is complete."""
        if not self._part.eof:
            raise _damaged()

    def _begin(self) -> None:
        """Begin another part."""
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise _damaged()
        self._part = self._new()

    def _decoded(self, data: bytes) -> bytes:
        try:
            return self._part.decompress(data, STEP)
        except Exception as error:  # the exception of zstd is unknown before its import
            raise _damaged() from error


def _damaged() -> BadRequest:
    return BadRequest(_DAMAGED, code="invalid_content_encoding")


def decode_beginning(body: bytes, encoding: str, limit: int) -> bytes:
    """Return a body without its encoding, as far as that can be decoded, but not much more than `limit` bytes.

    An unknown encoding leaves nothing.
    """
    if encoding in ("", "identity"):
        return body
    decoded = b""
    if body and (new := ENCODINGS.get(encoding)):
        with suppress(BadRequest):
            for piece in ContentDecoder(new).feed(body):
                decoded += piece
                if len(decoded) >= limit:
                    break
    return decoded
