"""Bodies that are encoded on their way: what a Content-Encoding stands for, undone in steps of a bounded size."""

import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from sys import version_info
from typing import Protocol

from gateway.errors import BadRequest

STEP = 1 << 18  # bytes that are decoded at a time: a millisecond at most
_WINDOW = 23  # log2 of the bytes that a frame of zstd may want to have at hand, as RFC 9659 has it
_MOST_PARTS = 16  # members of gzip, frames of zstd: tiny ones cost far more than their bytes
_ZSTD = "compression.zstd" if version_info >= (3, 14) else "backports.zstd"
_DAMAGED = "The body is not what its content encoding says, or not all of it."


class DecompressorPart(Protocol):
    """A member of gzip or a frame of zstd; what it was given and has not decoded yet it keeps."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _ZlibPart:
    """A Part by zlib, which hands back what it has not decoded yet."""

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
    """An encoded body, as it comes: one part or a few, and nothing else.  Raises BadRequest for what is not that."""

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
        """Another part."""
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise _damaged()
        self._part = self._new()

    def _decoded(self, data: bytes) -> bytes:
        try:
            return self._part.decompress(data, STEP)
        except Exception as error:  # zstd's own is not known before it is loaded
            raise _damaged() from error


def _damaged() -> BadRequest:
    return BadRequest(_DAMAGED, code="invalid_content_encoding")
