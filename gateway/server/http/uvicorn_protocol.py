"""Serve HTTP connections with uvicorn's protocol: this file and `server_config` know uvicorn's internals.

A response goes past ASGI's messages, which take several times as long.  The bytes are those that uvicorn writes for the
messages, in one write.  Connections end whose request does not end, or that servers could read in different ways.  The
server tells the connections that the gateway stops, and they tell the application.
"""

import asyncio
from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from urllib.parse import unquote

import httptools
from starlette.types import Scope
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.protocols.utils import is_ssl

from gateway.server.http.client_connection import ClientConnection, HeaderList, set_client_connection
from gateway.server.http.coalescing_transport import LARGE, CoalescingTransport
from gateway.server.http.deadline_timer import DeadlineTimer
from gateway.server.http.direct_body import BodyOwner, DirectBody
from gateway.server.http.request_reader import header_dict
from gateway.server.http.slow_client import SlowClientProtocol

STOPPING = "stopping"  # key of a callback in the lifespan's state: the gateway stops
_MAX_HEAD = 1 << 16  # bytes of a request's headers
_MAX_PAUSES = 10  # times `request_seconds` for a request, and as much again for each megabyte
_SLOWEST = 1 << 20  # bytes
_LINGERS, _MAX_DROPPED = 1.0, 4 << 20  # seconds and bytes in which a refused client may still send
_TOO_LARGE = (
    b'{"error":{"message":"The head of the request is larger than 64 KiB.","type":"invalid_request_error",'
    b'"param":null,"code":"request_header_too_large"}}'
)
_HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
    b"connection: close\r\n\r\n%b" % (len(_TOO_LARGE), _TOO_LARGE)
)
_name = itemgetter(0)
_LENGTHS = (b"content-length", b"transfer-encoding")
_OK = STATUS_LINE[200]
_CLOSE = (b"connection", b"close")
_CHUNKED = (b"transfer-encoding", b"chunked")
_LAST_REQUEST = b"GET / HTTP/1.0\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
_LINE_END = b"\r\n"
_CONTROLS = bytes({*range(32), 127} - {9})  # characters that no header may have within it


class FastRequestCycle(RequestResponseCycle, ClientConnection):
    """uvicorn's request with its response, with a short way past ASGI's messages.

    It is made without the dozen keywords of uvicorn's own, which cost as much as the rest of the constructor.
    """

    transport: CoalescingTransport  # type: ignore[assignment] # all of one that is used
    expected_content_length = 0

    def __init__(self, protocol: "HttpProtocol", keep_alive: bool) -> None:
        self.scope = protocol.scope  # type: ignore[assignment] # with our entries
        self.transport, self.flow = protocol.joining, protocol.flow
        self.logger, self.access_logger = protocol.logger, protocol.access_logger
        self.access_log, self.default_headers = protocol.access_log, protocol.server_state.default_headers
        self.on_response, self.keep_alive = protocol.on_response_complete, keep_alive
        self.waiting_for_100_continue = protocol.expect_100_continue
        self.message_event, self.body = asyncio.Event(), bytearray()
        # Python finds these at once, but not defaults of the class:
        self.disconnected = self.response_started = self.response_complete = False
        self.more_body, self.streamed = True, 0
        self.chunked_encoding: bool | None = None
        self._on_disconnect: Callable[[], None] | None = None

    def try_send(self, headers: HeaderList, body: bytes) -> bool:
        if not (head := self._begun_head(headers)):
            return False
        if len(body) > LARGE:
            self.transport.write_parts(head, body)
        else:
            (self.transport.flush().write if self.transport.delayed else self.transport.write_below)(head + body)
        self._end()
        return True

    def try_begin(self, headers: HeaderList) -> bool:
        """Send the headers, together with the data of the same turn of the loop."""
        if not (head := self._begun_head(headers, _CHUNKED)):
            return False
        self.chunked_encoding = True
        self.transport.write(head)
        return True

    def try_write(self, piece: bytes, after: bytes = b"") -> bool:
        """Send a piece as one chunk, and these bytes after it."""
        if self.flow.write_paused or self.disconnected or self.response_complete or not self.chunked_encoding:
            return False
        size = len(piece)
        self.streamed += size
        if size > LARGE:
            self.transport.write_parts(b"%x\r\n" % size, piece, b"\r\n" + after)
        else:
            chunk = _size_line(size) + piece + (_LINE_END + after if after else _LINE_END)
            (self.transport.write if self.transport.delayed else self.transport.write_below)(chunk)
        return True

    def try_end(self, piece: bytes) -> bool:
        if not self.try_write(piece, _LAST_CHUNK if piece else b""):  # a chunk of no bytes is the end itself
            return False
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

    async def read_body(self, length: int) -> bytes | None:
        protocol = self.transport.below.get_protocol()
        if not (isinstance(protocol, HttpProtocol) and self.more_body and protocol.has_plain_body):
            return None
        reader = DirectBody(protocol, self.transport.below, self.body, length)
        self.body = bytearray()
        self.message_event.clear()
        self.flow.resume_reading()
        body = await reader.read()
        if len(body) == length:
            self.message_event.clear()
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

    def cut(self) -> None:
        self.disconnected = True  # otherwise uvicorn logs an error
        self.transport.close()

    def _begun_head(self, headers: HeaderList, *more: tuple[bytes, bytes]) -> bytes:
        """Begin a response if it can begin without waiting, with headers that uvicorn accepts.

        Return its head; b"" if it cannot.
        """
        if self.flow.write_paused or self.disconnected or self.response_started or self.scope["method"] == "HEAD":
            return b""
        fields = (*headers, *more) if self.keep_alive else (*headers, _CLOSE, *more)
        lines = _LINE_END.join([name + b": " + value for name, value in fields])
        if len(lines) - len(lines.translate(None, _CONTROLS)) > len(_LINE_END) * (len(fields) - 1):
            return b""
        self.response_started = True
        return b"%b%b\r\n\r\n" % (_OK, lines)

    def _end(self) -> None:
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


class HttpProtocol(SlowClientProtocol, HttpToolsProtocol, BodyOwner):  # type: ignore[misc] # its config is one of ours
    """Close connections whose request does not end, or that servers could read in different ways."""

    scope: Scope  # type: ignore[assignment] # uvicorn's, with our entries
    _complete = False  # the last request
    _headless: int | None = 0  # bytes of unfinished headers; None: they are complete
    _most = 0  # bytes that the headers can have
    _too_large = False  # the headers
    _begun = 0.0  # time of the first byte of an unfinished request
    _received = 0  # its bytes

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Begin as uvicorn does.  The transport knows its addresses; to ask its socket takes ten times as long."""
        self.connections.add(self)
        self.flow, self.scheme = FlowControl(transport), "https" if is_ssl(transport) else "http"
        self.server, self.client = _address(transport, "sockname"), _address(transport, "peername")
        self.joining, self._deadline = CoalescingTransport(transport, self.loop), DeadlineTimer(self.loop)
        self.transport = self.joining  # type: ignore[assignment] # all of it that is used
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the disconnect to the current request."""
        self._deadline.stop()
        self._deadline.cancel()
        super().connection_lost(exc)
        if on_lost := self.joining.on_lost:
            on_lost()

    def data_received(self, data: bytes) -> None:
        """Parse data, within the limits of time and size."""
        if self._too_large:
            self._drop(len(data))
            return
        self._deadline.stop()
        self._most = len(data) + (self._headless or 0)
        super().data_received(data)
        if not self._complete and not self._too_large:
            self._expect()
            self._bound(len(data))
            self._hurry(len(data))

    @property
    def has_plain_body(self) -> bool:
        """Return True if the rest of the request is the rest of its body, and the client sends it unasked."""
        upgrades = self.parser.should_upgrade()
        return not (upgrades or self.expect_100_continue or b"transfer-encoding" in header_dict(self.scope))

    def body_received(self, size: int, *, whole: bool) -> None:
        """Do as `data_received`.  After the body another parser has to begin, as this one still waits for it.

        Behind the last request of a connection it skips all data, as this one would.
        """
        self._deadline.stop()
        if whole:
            more = self.parser.should_keep_alive()
            self.parser = httptools.HttpRequestParser(self if more else None)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            if not more:
                self.parser.feed_data(_LAST_REQUEST)
            self.on_message_complete()
        else:
            self._expect()
            self._hurry(size)

    def on_message_begin(self) -> None:
        """Begin to read a request."""
        self._complete, self._headless, self._received = False, 0, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Start a request as uvicorn does, with a FastRequestCycle, and without a root path and a limit of connections.

        An error here is a 400, and the end of the connection.
        """
        self._headless = None
        parser, version, scope = self.parser, self.parser.get_http_version(), self.scope
        self._check(version)
        scope["method"] = parser.get_method().decode("ascii")
        if version != "1.1":
            scope["http_version"] = version
        if parser.should_upgrade() and self._should_upgrade():
            return
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope["path"], scope["raw_path"] = unquote(path) if "%" in path else path, url.path
        scope["query_string"] = url.query or b""
        # After a refusal the body that follows is unknown: a client that expects a 100 may not send it.
        stays = version != "1.0" and not (self.expect_100_continue or self.config.leaving)
        self._enter(FastRequestCycle(self, stays and parser.should_keep_alive()))

    def _enter(self, cycle: FastRequestCycle) -> None:
        """Start the request, or queue it behind earlier ones of the connection."""
        set_client_connection(self.scope, cycle)
        before, self.cycle = self.cycle, cycle
        if before is None or before.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def on_message_complete(self) -> None:
        """Note the end of the request."""
        self._complete = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Do as uvicorn does, without a new timer for each request."""
        self.server_state.total_requests += 1
        if self.joining.below.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        if self._complete:  # an idle connection holds nothing of its last request
            self.cycle = self.scope = self.headers = None  # type: ignore[assignment] # as before the first request
            self._deadline.set(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection to the WebSocket protocol."""
        self._deadline.cancel()
        self.transport = self.joining.flush()
        super().handle_websocket_upgrade()
        self.parser = None  # type: ignore[assignment]  # both would be a reference cycle

    def shutdown(self) -> None:
        """Tell the application that the gateway stops."""
        pass_stop_on(self.app_state)
        super().shutdown()

    def _check(self, version: str) -> None:
        """Raise ValueError for headers that the parser takes and others read in another way."""
        headers, parser = header_dict(self.scope), self.parser
        if self._most > _MAX_HEAD and sum(map(len, chain.from_iterable(self.headers))) > _MAX_HEAD:
            self._too_large = True
            raise ValueError("a head that is too large")
        if version not in ("1.0", "1.1") or (version == "1.1" and b"host" not in headers):
            raise ValueError("no version or no host")
        if len(headers) < len(self.headers) and [*map(_name, self.headers)].count(b"host") > 1:
            raise ValueError("more than one host")
        if b"transfer-encoding" in headers and not self._is_in_chunks():
            raise ValueError("a body of no known length")
        upgrades = parser.should_upgrade() and self._should_upgrade()
        if upgrades and (parser.get_method() != b"GET" or any(one in headers for one in _LENGTHS)):
            raise ValueError("a handshake with a body")

    def _is_in_chunks(self) -> bool:
        return [value.lower() for name, value in self.headers if name == b"transfer-encoding"] == [b"chunked"]

    def _bound(self, size: int) -> None:
        if self._headless is not None:
            self._headless += size
            if self._headless > 2 * _MAX_HEAD and not self._too_large:
                self._too_large = True
                self.send_400_response("")

    def send_400_response(self, msg: str) -> None:
        """Refuse the request as uvicorn does.

        If its headers are too large, drop the rest of it, so that the client reads the error.
        """
        if self._too_large:
            self.transport.write(_HEAD_TOO_LARGE)
            self._deadline.set(_LINGERS, self.transport.close)
        else:
            super().send_400_response(msg)

    def _drop(self, size: int) -> None:
        self._received += size
        if self._received > _MAX_DROPPED:
            self.transport.close()

    def _hurry(self, size: int) -> None:
        """Close the connection of a client that sends its request too slowly."""
        now = self.loop.time()
        if not self._received:
            self._begun = now
        self._received += size
        if now - self._begun > _MAX_PAUSES * self.config.request_seconds * (1 + self._received / _SLOWEST):
            self.transport.close()

    def _expect(self) -> None:
        if not self.transport.is_closing():
            self._deadline.set(self.config.request_seconds, self._miss)

    def _miss(self) -> None:
        if self.flow.read_paused:  # the gateway does not read
            self._expect()
        else:
            self.transport.close()


def _address(transport: asyncio.Transport, name: str) -> tuple[str, int] | None:
    """Return the host and the port of one end of a connection; None if it has ended already."""
    known = transport.get_extra_info(name)
    return (str(known[0]), int(known[1])) if known else None


@lru_cache(1 << 10)  # most chunks of a stream are of a few sizes
def _size_line(size: int) -> bytes:
    return b"%x\r\n" % size


def pass_stop_on(state: dict[str, Callable[[], None]]) -> None:
    """Tell the application that the gateway stops.  state: the lifespan's."""
    state[STOPPING]()
