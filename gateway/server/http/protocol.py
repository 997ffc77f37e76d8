"""Serve connections with uvicorn's protocols, and end those of clients that stop halfway.

With a certificate all connections use TLS.  No task waits for ever: neither for a client that does not read, nor for
the rest of a request.  The server tells the connections that the gateway stops, and they tell the application, which
would learn it only after they are closed.
"""

import asyncio
import sys
from asyncio import TimerHandle
from collections.abc import Callable
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING
from urllib.parse import unquote

import httptools
import uvicorn
from starlette.types import ASGIApp, Scope
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from gateway.config import Config
from gateway.server.http.client_connection import set_client_connection
from gateway.server.http.deadline_timer import DeadlineTimer
from gateway.server.http.fast_send import CoalescingProtocol, CoalescingTransport, FastRequestCycle
from gateway.server.http.request_reader import header_dict

if TYPE_CHECKING:
    from gateway.server.http.tls import Certificates

STOPPING = "stopping"  # key of a callback in the lifespan's state: the gateway stops
_PONG = 60.0  # seconds for a pong; a client sends it when it has read all before the ping
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
_LAST_WORDS = 5  # seconds, beyond the drain, for the last messages to clients


class ServerConfig(uvicorn.Config):
    """Settings of one process that serves an application; `follow` applies those that may change meanwhile.

    request_seconds: limit without a byte of an unfinished request; client_seconds: `stream.client_seconds`.
    drain_delay_seconds: `server.drain_delay_seconds`; leaving: during that delay each response closes its connection.
    """

    client_seconds: float
    drain_delay_seconds: float
    request_seconds = 60.0
    leaving = False

    def __init__(self, app: ASGIApp, config: Config) -> None:
        certificates = self._certificates = _certificates(config)
        super().__init__(
            app,
            workers=1,
            loop="uvloop" if sys.platform != "win32" else "asyncio",
            http=HttpProtocol,
            ws=WebSocketProtocol,
            ws_ping_timeout=_PONG,
            ws_per_message_deflate=False,
            lifespan="on",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=round(config.server.drain_seconds) + _LAST_WORDS,
            ssl_context_factory=(lambda *_: certificates.context) if certificates else None,
        )
        self.follow(config)

    def set_certificate(self, config: Config) -> None:
        """Use a new certificate from the next connection on.  Raise OSError, and keep the old one, if that fails."""
        if self._certificates and config.server.tls:
            self._certificates.renew(config.server.tls)

    def follow(self, config: Config) -> None:
        """Apply new settings from the next connection on; the write timeout applies at once."""
        self.ws_max_size = config.limits.body_bytes
        self.ws_ping_interval = config.stream.keepalive_seconds or None
        self.client_seconds = config.stream.client_seconds
        self.drain_delay_seconds = config.server.drain_delay_seconds


class SlowClientProtocol(asyncio.Protocol):
    """Close the connection of a client that reads nothing for `client_seconds`.

    It costs nothing while the transport's buffer is not full.
    """

    config: ServerConfig
    transport: asyncio.Transport
    _unread: TimerHandle | None = None

    def pause_writing(self) -> None:
        """Start the timer: the client does not read fast enough."""
        super().pause_writing()
        self._wait()

    def resume_writing(self) -> None:
        """Stop the timer."""
        super().resume_writing()
        self._wait_no_more()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._wait_no_more()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if seconds := self.config.client_seconds:
            left = self.transport.get_write_buffer_size()
            self._unread = asyncio.get_running_loop().call_later(seconds, self._look, left)

    def _look(self, left: int) -> None:
        """Reset the timer if the client took some data, however little."""
        if self.transport.get_write_buffer_size() < left:
            self._wait()
        else:
            self.transport.abort()

    def _wait_no_more(self) -> None:
        if self._unread:
            self._unread.cancel()


class HttpProtocol(SlowClientProtocol, CoalescingProtocol):  # type: ignore[misc] # its config is one of ours
    """Close connections whose request does not end, or that servers could read in different ways."""

    scope: Scope  # type: ignore[assignment] # uvicorn's, with our entries
    _unsent: TimerHandle | None = None
    _complete = False  # the last request
    _headless: int | None = 0  # bytes of unfinished headers; None: they are complete
    _too_large = False  # the headers
    _begun = 0.0  # time of the first byte of an unfinished request
    _received = 0  # its bytes

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        self.joining, self._idle = CoalescingTransport(transport, self.loop), DeadlineTimer(self.loop)
        self.transport = self.joining  # type: ignore[assignment] # all of it that is used
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the disconnect to the current request."""
        self._expect_no_more()
        self._idle.stop()
        self._idle.cancel()
        super().connection_lost(exc)
        if on_lost := self.joining.on_lost:
            on_lost()

    def data_received(self, data: bytes) -> None:
        """Parse data, within the limits of time and size."""
        if self._too_large:
            self._drop(len(data))
            return
        self._idle.stop()
        self._expect_no_more()
        super().data_received(data)
        if not self._complete and not self._too_large:
            self._expect()
            self._bound(len(data))
            self._hurry(len(data))

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
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        if self._complete:  # an idle connection holds nothing of its last request
            self.cycle = self.scope = self.headers = None  # type: ignore[assignment] # as before the first request
        self._idle.set(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection to the WebSocket protocol."""
        self.transport = self.joining.flush()
        super().handle_websocket_upgrade()
        self.parser = None  # type: ignore[assignment]  # both would be a reference cycle

    def shutdown(self) -> None:
        """Tell the application that the gateway stops."""
        _pass_on(self.app_state)
        super().shutdown()

    def _check(self, version: str) -> None:
        """Raise ValueError for headers that the parser takes and others read in another way."""
        headers, parser = header_dict(self.scope), self.parser
        if sum(map(len, chain.from_iterable(self.headers))) > _MAX_HEAD:
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
            self._expect_no_more()
            self.transport.write(_HEAD_TOO_LARGE)
            self._unsent = self.loop.call_later(_LINGERS, self.transport.close)
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
            self._unsent = self.loop.call_later(self.config.request_seconds, self._miss)

    def _miss(self) -> None:
        if self.flow.read_paused:  # the gateway does not read
            self._expect()
        else:
            self.transport.close()

    def _expect_no_more(self) -> None:
        if self._unsent:
            self._unsent.cancel()
            self._unsent = None


class WebSocketProtocol(SlowClientProtocol, WebSocketsSansIOProtocol):  # type: ignore[misc] # see Http
    """Let the application close the connection, after the responses that run in it."""

    def shutdown(self) -> None:
        """Tell the application that the gateway stops."""
        _pass_on(self.app_state)

    async def send(self, message: ASGISendEvent) -> None:
        """Send a message; a refusal is an end of the handshake as well."""
        await super().send(message)
        if self.close_sent:  # uvicorn would report a refusal as an error
            self.handshake_complete = True


def _certificates(config: Config) -> "Certificates | None":
    if not config.server.tls:
        return None
    from gateway.server.http.tls import Certificates  # noqa: PLC0415 - a heavy import, rarely needed

    return Certificates(config.server.tls)


def _pass_on(state: dict[str, Callable[[], None]]) -> None:
    state[STOPPING]()
