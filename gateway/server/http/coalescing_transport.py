"""Join the headers of a response with its first data, so that both are one write."""

import asyncio
from collections.abc import Callable

LARGE = 1 << 14  # bytes of data that is not copied to join it with other data
_HEAD = b"HTTP/1."


class CoalescingTransport:
    """The used part of a transport.  It delays headers to the end of the loop's turn, to send them with the first data.

    write_below: writes data that is no head while nothing is delayed; on_lost: called when the transport is lost.
    """

    on_lost: Callable[[], None] | None = None

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.below, self.write_below, self._loop = transport, transport.write, loop
        self.delayed = b""

    def write(self, data: bytes) -> None:
        """Write data; headers wait for the first data, and are joined with it unless that copies much."""
        if self.delayed and len(data) > LARGE:
            self.write_parts(data)
            return
        if self.delayed:
            data, self.delayed = self.delayed + data, b""
        elif data.startswith(_HEAD):
            self.delayed = data
            self._loop.call_soon(self.flush)
            return
        self.below.write(data)

    def write_parts(self, *parts: bytes) -> None:
        """Write what is delayed and these parts in one system call, without a copy.  A closed connection drops them."""
        if not self.below.is_closing():
            self.below.writelines((self.delayed, *parts) if self.delayed else parts)
        self.delayed = b""

    def close(self) -> None:
        """Write what is delayed, and close."""
        self.flush().close()

    def flush(self) -> asyncio.Transport:
        """Write what is delayed, unless the connection is closed; return the transport below."""
        if self.delayed:
            if not self.below.is_closing():
                self.below.write(self.delayed)
            self.delayed = b""
        return self.below

    def get_write_buffer_size(self) -> int:
        """Return the bytes that are not sent yet."""
        return len(self.delayed) + self.below.get_write_buffer_size()

    def is_closing(self) -> bool:
        """Return True if the transport closes."""
        return self.below.is_closing()

    def abort(self) -> None:
        """Close the transport at once."""
        self.below.abort()
