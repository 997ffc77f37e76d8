"""Write responses past ASGI's messages, which take several times as long.

The bytes are those that uvicorn writes for the messages, in one write.
"""

import asyncio
from collections.abc import Callable
from operator import itemgetter

from uvicorn.protocols.http.httptools_impl import (
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from gateway.server.http.client_connection import ClientConnection, HeaderList

_HEAD = b"HTTP/1."
_OK = STATUS_LINE[200]
_CLOSE = (b"connection", b"close")
_CHUNKED = (b"transfer-encoding", b"chunked")
_value = itemgetter(1)
_line = b": ".join


class CoalescingTransport:
    """The used part of a transport.  It delays headers to the end of the loop's turn, to send them with the first data.

    on_lost: called when the connection is lost.
    """

    on_lost: Callable[[], None] | None = None

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._head = b""

    def write(self, data: bytes) -> None:
        """Write data; headers wait for the first data."""
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(_HEAD):
            self._head = data
            self._loop.call_soon(self.flush)
            return
        self._transport.write(data)

    def close(self) -> None:
        """Write what is delayed, and close."""
        self.flush().close()

    def flush(self) -> asyncio.Transport:
        """Write what is delayed; return the transport below."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""
        return self._transport

    def get_write_buffer_size(self) -> int:
        """Return the bytes that are not sent yet."""
        return len(self._head) + self._transport.get_write_buffer_size()

    def is_closing(self) -> bool:
        """Return True if the transport closes."""
        return self._transport.is_closing()

    def abort(self) -> None:
        """Close the transport at once."""
        self._transport.abort()


class CoalescingProtocol(HttpToolsProtocol):
    """uvicorn's protocol, whose transport joins writes."""

    joining: CoalescingTransport


class FastRequestCycle(RequestResponseCycle, ClientConnection):
    """uvicorn's request with its response, with a short way past ASGI's messages.

    It is made without the dozen keywords of uvicorn's own, which cost as much as the rest of the constructor.
    """

    transport: CoalescingTransport  # type: ignore[assignment] # all of one that is used
    disconnected = response_started = response_complete = False
    more_body = True
    chunked_encoding: bool | None = None
    expected_content_length = 0
    _on_disconnect: Callable[[], None] | None = None

    def __init__(self, protocol: CoalescingProtocol, keep_alive: bool) -> None:
        self.scope, self.transport, self.flow = protocol.scope, protocol.joining, protocol.flow
        self.logger, self.access_logger = protocol.logger, protocol.access_logger
        self.access_log, self.default_headers = protocol.access_log, protocol.server_state.default_headers
        self.on_response, self.keep_alive = protocol.on_response_complete, keep_alive
        self.waiting_for_100_continue = protocol.expect_100_continue
        self.message_event, self.body = asyncio.Event(), bytearray()

    def try_send(self, headers: HeaderList, body: bytes) -> bool:
        if not self._can_begin(headers):
            return False
        self.transport.flush().write(self._head(headers) + body)
        self._end()
        return True

    def try_begin(self, headers: HeaderList) -> bool:
        """Send the headers, together with the data of the same turn of the loop."""
        if not self._can_begin(headers):
            return False
        self.chunked_encoding = True
        self.transport.write(self._head(headers, _CHUNKED))
        return True

    def try_write(self, piece: bytes) -> bool:
        if not self._can_write():
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        return True

    def try_end(self, piece: bytes) -> bool:
        if not self._can_write():
            return False
        self.transport.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(piece), piece) if piece else b"0\r\n\r\n")
        self._end()
        return True

    def take_body(self) -> bytes | None:
        """Take the body as `receive` gives it, in one message."""
        if self.more_body or self.waiting_for_100_continue or not self.message_event.is_set():
            return None
        if self.disconnected or self.response_complete:
            return None
        self.flow.resume_reading()
        self.message_event.clear()
        body, self.body = bytes(self.body), bytearray()
        return body

    def on_disconnect(self, callback: Callable[[], None]) -> bool:
        if self.disconnected:
            return False
        self._on_disconnect = self.transport.on_lost = callback
        return True

    def clear_on_disconnect(self) -> None:
        if self._on_disconnect and self.transport.on_lost is self._on_disconnect:  # else that of the next request
            self.transport.on_lost = None
        self._on_disconnect = None

    def _can_begin(self, headers: HeaderList) -> bool:
        """Return True if a response can begin without waiting, with headers that uvicorn accepts."""
        if self.flow.write_paused or self.disconnected or self.response_started or self.scope["method"] == "HEAD":
            return False
        if HEADER_VALUE_RE.search(b"".join(map(_value, headers))):
            return False
        self.response_started = True
        return True

    def _can_write(self) -> bool:
        """Return True if a piece of a body can be written without waiting."""
        if self.flow.write_paused or self.disconnected or self.response_complete:
            return False
        return bool(self.chunked_encoding)

    def _end(self) -> None:
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    def _head(self, headers: HeaderList, *more: tuple[bytes, bytes]) -> bytes:
        close = () if self.keep_alive else (_CLOSE,)
        return b"%b%b\r\n\r\n" % (_OK, b"\r\n".join(map(_line, (*headers, *close, *more))))
