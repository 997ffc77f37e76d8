"""Bytes in, payloads out: server-sent events, lines, or one whole body.  Knows no JSON and no sockets."""

from collections.abc import Iterator
from typing import ClassVar, Protocol

from msgspec import Struct

from gateway.errors import UpstreamInvalid

_BOM = b"\xef\xbb\xbf"
_LF = ord("\n")


class FrameTooLong(UpstreamInvalid):
    """The upstream sent an event, or a body, longer than the operator allows."""

    code = "frame_too_long"

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"The backend sent {what} larger than the limit of {limit} bytes.")


class FrameDecoder(Protocol):
    """Cuts a byte stream into payloads, however the bytes are split; `close` leaves nothing behind.

    aligned: what comes next begins a payload.  opening, ending: what is around most of them.
    after: where in the data the payload ends that stands at this place, if that can be seen, else where the data ends.
    """

    opening: ClassVar[bytes]
    ending: ClassVar[bytes]
    aligned: bool

    def next_boundary(self, data: bytes, at: int) -> int: ...
    def feed(self, data: bytes) -> Iterator[bytes]: ...
    def close(self) -> Iterator[bytes]: ...


class _FrameBuffer:
    """The parts of a payload that is not whole yet, up to the limit.  `_what`: what is limited."""

    __slots__ = ("_limit", "_parts", "_size", "aligned")
    _what = "an event"
    opening: ClassVar[bytes]
    ending: ClassVar[bytes]

    def __init__(self, limit: int) -> None:
        self._limit, self._size = limit, 0
        self._parts: list[bytes] = []
        self.aligned = True

    def next_boundary(self, data: bytes, at: int) -> int:
        end = data.find(self.ending, at)
        return len(data) if end < 0 else end + len(self.ending)

    def _keep(self, part: bytes) -> None:
        if part:
            self._parts.append(part)
            self._size += len(part)
            if self._size > self._limit:
                raise FrameTooLong(self._what, self._limit)

    def _joined(self, end: bytes) -> bytes:
        """The payload of which this is the end."""
        self._keep(end)
        whole, self._size = b"".join(self._parts), 0
        self._parts.clear()
        return whole


class SSE(_FrameBuffer):
    """The `data:` lines of each event, joined.

    Lines may end in LF, CRLF or CR.  Every byte is looked at a fixed number of times.
    """

    __slots__ = ("_after_cr", "_begun", "_newline")
    opening, ending = b"data: ", b"\n\n"

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._newline = b""  # a line end that may yet become an empty line
        self._after_cr = False
        self._begun = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        *whole, rest = (self._newline + self._lf(data)).split(b"\n\n")
        self._newline = b"\n" if rest.endswith(b"\n") else b""
        for end in whole:
            event = self._joined(end) if self._parts or not self._begun or len(end) > self._limit else end
            plain = event.startswith(b"data: ") and b"\n" not in event  # almost always
            if payload := event[6:] if plain else _payload(event):
                yield payload
        self._keep(rest[: len(rest) - len(self._newline)])
        self.aligned = not (self._parts or self._newline or self._after_cr)

    def close(self) -> Iterator[bytes]:
        """The last event, if its empty line never came."""
        self._newline = b""
        if payload := _payload(self._joined(b"")):
            yield payload

    def _lf(self, data: bytes) -> bytes:
        if self._after_cr and data:
            data, self._after_cr = data.removeprefix(b"\n"), False
        if b"\r" not in data:
            return data
        self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _joined(self, end: bytes) -> bytes:
        """The first event of the stream may begin with a mark of its encoding."""
        event = super()._joined(end)
        if self._begun or not event:
            return event
        self._begun = True
        return (event.lstrip(b"\n") if event[0] == _LF else event).removeprefix(_BOM)


class NDJSONDecoder(_FrameBuffer):
    """Each line that is not empty: newline-delimited JSON.  Lines may end in LF or CRLF."""

    __slots__ = ()
    _what = "a line"
    opening, ending = b"", b"\n"

    def feed(self, data: bytes) -> Iterator[bytes]:
        *ends, rest = data.split(b"\n")
        for end in ends:
            if line := self._joined(end).strip():
                yield line
        self._keep(rest)
        self.aligned = not self._parts

    def close(self) -> Iterator[bytes]:
        """The last line, if its end never came."""
        if line := self._joined(b"").strip():
            yield line


class BodyBuffer(Struct, eq=False):
    """One body, which is one payload, and comes in one piece almost always."""

    _limit: int
    _pieces: list[bytes] = []
    _size: int = 0

    def append(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            raise FrameTooLong("a body", self._limit)
        self._pieces.append(piece)

    def close(self) -> bytes:
        whole, self._size = b"".join(self._pieces), 0
        self._pieces.clear()
        return whole


def _payload(event: bytes) -> bytes:
    lines = (line.partition(b":") for line in event.split(b"\n"))
    return b"\n".join(value.removeprefix(b" ") for field, _, value in lines if field == b"data")
