"""Delay writes to a client within one turn of the event loop, so that several of them are one system call."""

import asyncio
from collections.abc import Callable

_HEAD = b"HTTP/1."
_LARGE = 1 << 18  # bytes whose copy takes longer than a write
_BATCH = 1 << 14  # bytes of frames that are not delayed any more


class CoalescingTransport:
    """The used part of a transport.  It delays headers to the end of the loop's turn, to send them with the first data.

    on_lost: called when the connection is lost.
    """

    on_lost: Callable[[], None] | None = None

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._delayed = b""

    def write(self, data: bytes) -> None:
        """Write data; headers wait for the first data, and are joined with it unless that copies much."""
        if self._delayed and len(data) > _LARGE:
            self.flush()
        elif self._delayed:
            data, self._delayed = self._delayed + data, b""
        elif data.startswith(_HEAD):
            self._delayed = data
            self._loop.call_soon(self.flush)
            return
        self._transport.write(data)

    def close(self) -> None:
        """Write what is delayed, and close."""
        self.flush().close()

    def flush(self) -> asyncio.Transport:
        """Write what is delayed, unless the connection is closed; return the transport below."""
        if self._delayed:
            if not self._transport.is_closing():
                self._transport.write(self._delayed)
            self._delayed = b""
        return self._transport

    def get_write_buffer_size(self) -> int:
        """Return the bytes that are not sent yet."""
        return len(self._delayed) + self._transport.get_write_buffer_size()

    def is_closing(self) -> bool:
        """Return True if the transport closes."""
        return self._transport.is_closing()

    def abort(self) -> None:
        """Close the transport at once."""
        self._transport.abort()


class FrameTransport(CoalescingTransport):
    """Delay all data to the end of the loop's turn, or until it is a batch: the frames of a WebSocket."""

    def write(self, data: bytes) -> None:
        """Write data together with that of the same turn."""
        if not self._delayed:
            self._loop.call_soon(self.flush)
        self._delayed += data
        if len(self._delayed) > _BATCH:
            self.flush()

    def pause_reading(self) -> None:
        """Read nothing more from the client for now."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read from the client again."""
        self._transport.resume_reading()
