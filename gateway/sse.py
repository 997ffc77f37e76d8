"""Split bytes into payloads: server-sent events or lines.  Knows no JSON and no sockets."""

from collections.abc import Iterator
from typing import ClassVar, Protocol

from gateway.errors import UpstreamInvalid

_BOM = b"\xef\xbb\xbf"
_LF, _CR = b"\n\r"  # as numbers: `in` looks for bytes at a tenth of the speed, because it tries them as a number first


class FrameTooLong(UpstreamInvalid):
    """An upstream event, line or body beyond the operator's limit."""

    code = "frame_too_long"

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"The backend sent {what} larger than the limit of {limit} bytes.")


class FrameDecoder(Protocol):
    """Split a byte stream into payloads, at any chunk boundaries.

    aligned: the next byte begins a payload.
    opening, ending: the bytes around most payloads.
    """

    opening: ClassVar[bytes]
    ending: ClassVar[bytes]
    aligned: bool

    def next_boundary(self, data: bytes, at: int) -> int:
        """Return the offset behind the payload at `at`, or the end of the data if the payload does not end there."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the payloads that the data completes.  Raise FrameTooLong beyond the limit."""

    def close(self) -> Iterator[bytes]:
        """Yield the last payload, if its end is missing."""


class _FrameBuffer:
    """The parts of an incomplete payload, up to the limit.

    _what: the name of a payload in an error message.
    """

    __slots__ = ("_limit", "_parts", "_size", "aligned")
    _what = "an event"
    opening: ClassVar[bytes]
    ending: ClassVar[bytes]

    def __init__(self, limit: int) -> None:
        self._limit, self._size = limit, 0
        self._parts: list[bytes] = []
        self.aligned = True

    def next_boundary(self, data: bytes, at: int) -> int:
        """Return the offset behind the first ending from `at` on, or the end of the data without one."""
        end = data.find(self.ending, at)
        return len(data) if end < 0 else end + len(self.ending)

    def _keep(self, part: bytes) -> None:
        if part:
            self._parts.append(part)
            self._size += len(part)
            if self._size > self._limit:
                raise FrameTooLong(self._what, self._limit)

    def _joined(self, end: bytes) -> bytes:
        """Return the buffered payload with its last part."""
        self._keep(end)
        whole, self._size = b"".join(self._parts), 0
        self._parts.clear()
        return whole


class SSE(_FrameBuffer):
    """Decode server-sent events: the `data:` lines of each event, joined.

    Lines may end in LF, CRLF or CR.  Each byte is processed a fixed number of times.
    """

    __slots__ = ("_after_cr", "_begun", "_newline")
    opening, ending = b"data: ", b"\n\n"

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._newline = b""  # a line end that the next bytes may turn into an empty line
        self._after_cr = False
        self._begun = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the payloads that the data completes.  Raise FrameTooLong beyond the limit."""
        *whole, rest = (self._newline + self._lf(data)).split(b"\n\n")
        self._newline = b"\n" if rest.endswith(b"\n") else b""
        for end in whole:
            event = self._joined(end) if self._parts or not self._begun or len(end) > self._limit else end
            plain = event.startswith(b"data: ") and _LF not in event  # almost always
            if payload := event[6:] if plain else _payload(event):
                yield payload
        self._keep(rest[: len(rest) - len(self._newline)])
        self.aligned = not (self._parts or self._newline or self._after_cr)

    def close(self) -> Iterator[bytes]:
        """Yield the last event, if its empty line is missing."""
        self._newline = b""
        if payload := _payload(self._joined(b"")):
            yield payload

    def _lf(self, data: bytes) -> bytes:
        if self._after_cr and data:
            data, self._after_cr = data.removeprefix(b"\n"), False
        if _CR not in data:
            return data
        self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _joined(self, end: bytes) -> bytes:
        """Return the buffered event, without the byte order mark that the first one may begin with."""
        event = super()._joined(end)
        if self._begun or not event:
            return event
        self._begun = True
        return (event.lstrip(b"\n") if event[0] == _LF else event).removeprefix(_BOM)


class NDJSONDecoder(_FrameBuffer):
    """Decode newline-delimited JSON: each line that is not empty.  Lines may end in LF or CRLF."""

    __slots__ = ()
    _what = "a line"
    opening, ending = b"", b"\n"

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines that the data completes.  Raise FrameTooLong beyond the limit."""
        *ends, rest = data.split(b"\n")
        for end in ends:
            if line := self._joined(end).strip():
                yield line
        self._keep(rest)
        self.aligned = not self._parts

    def close(self) -> Iterator[bytes]:
        """Yield the last line, if its line end is missing."""
        if line := self._joined(b"").strip():
            yield line


def _payload(event: bytes) -> bytes:
    lines = (line.partition(b":") for line in event.split(b"\n"))
    return b"\n".join(value.removeprefix(b" ") for field, _, value in lines if field == b"data")
