"""Bytes in, payloads out: server-sent events, or one whole body.  Knows no JSON and no sockets."""

from collections.abc import Iterator
from typing import Protocol

from gateway.errors import UpstreamInvalid

_BOM = b"\xef\xbb\xbf"


class FrameTooLong(UpstreamInvalid):
    """The upstream sent an event, or a body, longer than the operator allows."""

    code = "frame_too_long"


class Framing(Protocol):
    """Cuts a byte stream into payloads, however the bytes are split; `close` leaves nothing behind."""

    def feed(self, data: bytes) -> Iterator[bytes]: ...
    def close(self) -> Iterator[bytes]: ...


class SSE:
    """The `data:` lines of each event, joined.

    Lines may end in LF, CRLF or CR.  Every byte is looked at a fixed number of times.
    """

    __slots__ = ("_after_cr", "_begun", "_limit", "_newline", "_parts", "_size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []  # of the event that is not whole yet
        self._size = 0
        self._newline = b""  # a line end that may yet become an empty line
        self._after_cr = False
        self._begun = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        *whole, rest = (self._newline + self._lf(data)).split(b"\n\n")
        self._newline = b"\n" if rest.endswith(b"\n") else b""
        for end in whole:
            event = self._joined(end) if self._parts or not self._begun or len(end) > self._limit else end
            if payload := _payload(event):
                yield payload
        self._keep(rest[: len(rest) - len(self._newline)])

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

    def _keep(self, part: bytes) -> None:
        if part:
            self._parts.append(part)
            self._size += len(part)
            if self._size > self._limit:
                raise FrameTooLong(f"The backend sent an event of more than {self._limit} bytes.")

    def _joined(self, end: bytes) -> bytes:
        """The event of which this is the end; the first of the stream may begin with a mark of its encoding."""
        self._keep(end)
        event, self._size = b"".join(self._parts), 0
        self._parts.clear()
        if self._begun or not event:
            return event
        self._begun = True
        return event.removeprefix(_BOM)


class Whole:
    """One body, which is one payload."""

    __slots__ = ("_limit", "_parts", "_size")

    def __init__(self, limit: int) -> None:
        self._limit, self._size = limit, 0
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._parts.append(data)
        self._size += len(data)
        if self._size > self._limit:
            raise FrameTooLong(f"The backend sent a body of more than {self._limit} bytes.")
        yield from ()

    def close(self) -> Iterator[bytes]:
        yield b"".join(self._parts)


def _payload(event: bytes) -> bytes:
    if event.startswith(b"data: ") and b"\n" not in event:  # almost always
        return event[6:]
    lines = (line.partition(b":") for line in event.split(b"\n"))
    return b"\n".join(value.removeprefix(b" ") for field, _, value in lines if field == b"data")
