"""The head of an answer and what follows it at once, as one write: a system call costs a tenth of a request."""

import asyncio
from collections.abc import Callable

_HEAD = b"HTTP/1."


class CoalescingTransport:
    """The used part of a transport.  It holds a head back, at most to the end of the loop's turn.

    lost: what is to be called when the connection is.
    """

    lost: Callable[[], None] | None = None

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(_HEAD):
            self._head = data
            self._loop.call_soon(self.alone)
            return
        self._transport.write(data)

    def close(self) -> None:
        self.alone().close()

    def alone(self) -> asyncio.Transport:
        """The one that it is made of, with all that was written."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""
        return self._transport

    def get_write_buffer_size(self) -> int:
        return len(self._head) + self._transport.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def abort(self) -> None:
        self._transport.abort()
