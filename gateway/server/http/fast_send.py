"""Write responses past ASGI messages, which take several times as long: what uvicorn writes for them, as one write."""

import asyncio
from collections.abc import Callable
from operator import itemgetter

from starlette.types import Send
from uvicorn.protocols.http.httptools_impl import (
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from gateway.server.http.disconnect import DisconnectSource
from gateway.server.http.response_writer import FastSend, HeaderList

_HEAD = b"HTTP/1."
_OK = STATUS_LINE[200]
_CLOSE = (b"connection", b"close")
_CHUNKED = (b"transfer-encoding", b"chunked")
_value = itemgetter(1)
_line = b": ".join


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
            self._loop.call_soon(self.flush)
            return
        self._transport.write(data)

    def close(self) -> None:
        self.flush().close()

    def flush(self) -> asyncio.Transport:
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


class ClientChannel(DisconnectSource, FastSend):
    """The way from and to the client of one request, as one that leads nowhere."""


_NOWHERE = ClientChannel()


def direct(send: Send) -> ClientChannel:
    """Return the channel of uvicorn's `send` in our own protocol; other senders have none."""
    cycle = getattr(send, "__self__", None)
    return cycle if isinstance(cycle, FastRequestCycle) else _NOWHERE


class CoalescingProtocol(HttpToolsProtocol):
    """uvicorn's protocol, whose transport joins writes."""

    joining: CoalescingTransport


class FastRequestCycle(RequestResponseCycle, ClientChannel):
    """uvicorn's request with its answer: what ASGI's messages do to it can be done without them.

    Made without the dozen keywords of uvicorn's own, which cost as much as all that they say.
    """

    transport: CoalescingTransport  # type: ignore[assignment] # all of one that is used
    disconnected = response_started = response_complete = False
    more_body = True
    chunked_encoding: bool | None = None
    expected_content_length = 0
    _lost: Callable[[], None] | None = None

    def __init__(self, protocol: CoalescingProtocol, keep_alive: bool) -> None:
        self.scope, self.transport, self.flow = protocol.scope, protocol.joining, protocol.flow
        self.logger, self.access_logger = protocol.logger, protocol.access_logger
        self.access_log, self.default_headers = protocol.access_log, protocol.server_state.default_headers
        self.on_response, self.keep_alive = protocol.on_response_complete, keep_alive
        self.waiting_for_100_continue = protocol.expect_100_continue
        self.message_event, self.body = asyncio.Event(), bytearray()

    def whole(self, fields: HeaderList, body: bytes) -> bool:
        if not self._begins(fields):
            return False
        self.transport.flush().write(self._head(fields) + body)
        self._over()
        return True

    def begin(self, fields: HeaderList) -> bool:
        """Send the headers together with the data of the same turn of the loop."""
        if not self._begins(fields):
            return False
        self.chunked_encoding = True
        self.transport.write(self._head(fields, _CHUNKED))
        return True

    def now(self, piece: bytes) -> bool:
        if not self._goes_on():
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        return True

    def last(self, piece: bytes) -> bool:
        if not self._goes_on():
            return False
        self.transport.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(piece), piece) if piece else b"0\r\n\r\n")
        self._over()
        return True

    def take_body(self) -> bytes | None:
        """As `receive` would give it, in one message."""
        if self.more_body or self.waiting_for_100_continue or not self.message_event.is_set():
            return None
        if self.disconnected or self.response_complete:
            return None
        self.flow.resume_reading()
        self.message_event.clear()
        body, self.body = bytes(self.body), bytearray()
        return body

    def watch(self, gone: Callable[[], None]) -> bool:
        """Call this function when the connection is lost, until `unwatch`."""
        if self.disconnected:
            return False
        self._lost = self.transport.lost = gone
        return True

    def clear_on_disconnect(self) -> None:
        if self._lost and self.transport.lost is self._lost:  # else that of the next request
            self.transport.lost = None
        self._lost = None

    def _begins(self, fields: HeaderList) -> bool:
        """Return True if a response may begin now."""
        if self.flow.write_paused or self.disconnected or self.response_started or self.scope["method"] == "HEAD":
            return False
        if HEADER_VALUE_RE.search(b"".join(map(_value, fields))):
            return False
        self.response_started = True
        return True

    def _goes_on(self) -> bool:
        """Return True if a body goes on."""
        if self.flow.write_paused or self.disconnected or self.response_complete:
            return False
        return bool(self.chunked_encoding)

    def _over(self) -> None:
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    def _head(self, fields: HeaderList, *more: tuple[bytes, bytes]) -> bytes:
        close = () if self.keep_alive else (_CLOSE,)
        return b"%b%b\r\n\r\n" % (_OK, b"\r\n".join(map(_line, (*fields, *close, *more))))
